//! All constants of the model, in one place. Every scope runs with the same.

use crate::cpus::Scheduler;
use inflight_topology::{Scope, Topology};
use inflight_workqueue::unstable::Costs;

/// The published machine and its load: 12 cores of 2 threads in 4 caches.
///
/// What is not in the source was fitted to its nine rows, all at once; `docs/simulator.md` says
/// how, and which of it the rows do not determine. Times in ns.
#[derive(Clone, Debug, PartialEq)]
pub struct DmCrypt3900x {
    /// The machine, as `Topology::synthetic` reads it.
    pub machine: String,
    /// CPUs, caches and scheduler.
    pub scheduler: Scheduler,
    /// Encrypting or decrypting 32 KiB, with all that belongs to it. The CPU times of the source
    /// imply it: far more than the instructions for it take.
    pub encrypt: f64,
    /// Making the contents of a write.
    pub generate: f64,
    /// Verifying those of a read.
    pub verify: f64,
    /// Reaping one IO and submitting the next.
    pub submit: f64,
    /// The part of `Scheduler::cold` that a read costs whose issuer ran elsewhere.
    pub cold_read: f64,
    /// IOs in flight for each issuer: published.
    pub depth: usize,
    /// KiB of an IO: published.
    pub kib: f64,
    /// Latency of the device.
    pub read_latency: f64,
    /// As `read_latency`.
    pub write_latency: f64,
    /// MiB/s of the device.
    pub device_mib_s: f64,
    /// The chance that a worker of the whole system wakes in its waker's cache when its last CPU is
    /// taken.
    pub follows_waker: f64,
    /// Active items of a queue on a CPU.
    pub max_active: usize,
    /// Workers of a pool that has no target of its own.
    pub workers: usize,
    /// The shipped constants of stealing.
    pub costs: Costs,
    /// Issuers are heard when they submit.
    pub hears: bool,
    /// The estimate of what an item takes is wrong by this factor.
    pub misjudged: f64,
}

const US: f64 = 1e3;

impl Default for DmCrypt3900x {
    fn default() -> Self {
        Self {
            machine: "cache:4 core:3 smt:2".to_owned(),
            scheduler: Scheduler {
                sibling_slowdown: 1.45,
                switch: 2.0 * US,
                slice: 3_000_000,
                tick: 4_000_000,
                look_when_idle: 0.9,
                pull_after: 450_000,
                drift_per_s: 50.0,
                cold: 1.7 * US,
                far: 2.5,
                jitter: 0.15,
            },
            encrypt: 174.0 * US,
            generate: 38.0 * US,
            verify: 38.0 * US,
            submit: 6.4 * US,
            cold_read: 0.2,
            depth: 64,
            kib: 32.0,
            read_latency: 100.0 * US,
            write_latency: 40.0 * US,
            device_mib_s: 6400.0,
            follows_waker: 0.5,
            max_active: 24,
            workers: 4096,
            costs: Costs::default(),
            hears: true,
            misjudged: 1.0,
        }
    }
}

impl DmCrypt3900x {
    /// The machine.
    ///
    /// ```
    /// use inflight_sim::dmcrypt::DmCrypt3900x;
    /// let of = |machine: &str| DmCrypt3900x { machine: machine.into(), ..Default::default() };
    /// assert!(of("core:4 smt:2 offline:0").topology().is_ok());
    /// assert!(of("core:4 smt:4").topology().is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// If the description cannot be read, or the model has no constants for such a machine: for
    /// cores of more than two threads, and for CPUs of several speeds.
    pub fn topology(&self) -> Result<Topology, String> {
        let topology = Topology::synthetic(&self.machine).map_err(|error| error.to_string())?;
        if topology
            .pods(Scope::Smt)
            .iter()
            .any(|core| core.cpus().len() > 2)
        {
            return Err("the model knows cores of one or two threads only".to_owned());
        }
        if topology.speed_classes().len() > 1 {
            return Err("the model knows CPUs of one speed only".to_owned());
        }
        Ok(topology)
    }

    /// How long the device transfers one IO.
    pub(super) fn transfer(&self) -> f64 {
        self.kib / 1024.0 / self.device_mib_s * 1e9
    }
}
