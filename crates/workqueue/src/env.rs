//! What the pools of a system have in common.

use crate::learned::Learned;
use crate::lending::Crowd;
use crate::meter::Metering;
use crate::sampler::Sampling;
use crate::threads::Threads;
use crate::timekeeper::Timekeeper;
use crate::trace::Tracer;
use crate::watchdog::Watchdog;
use inflight_sync::Mutex;
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::fault::Faults;
use inflight_sync::time::Clock;
use inflight_topology::Topology;
use std::io;
use std::time::Duration;

/// What every pool of a system shares.
pub(crate) struct Env {
    /// The machine as it was when the system was made.
    pub(crate) topology: Topology,
    /// And as it is now.
    pub(crate) now: Mutex<Topology>,
    /// How often it has changed. Relaxed: a worker that sees it late is late.
    pub(crate) refreshed: AtomicUsize,
    pub(crate) clock: Clock,
    pub(crate) faults: Faults,
    /// After how long an idle worker too many leaves.
    pub(crate) idle_timeout: Duration,
    pub(crate) sampling: Sampling,
    pub(crate) learned: Learned,
    /// Who submits to unbound queues.
    pub(crate) crowd: Crowd,
    pub(crate) metering: Metering,
    pub(crate) tracer: Option<Tracer>,
    pub(crate) watchdog: Option<Watchdog>,
    /// Why a thread did not get the priority it should have.
    pub(crate) nice_refused: Mutex<Option<io::ErrorKind>>,
    pub(crate) threads: Mutex<Threads>,
    pub(crate) timekeeper: Timekeeper,
    /// Queues that may save power do.
    pub(crate) power_efficient: bool,
}

impl Env {
    /// How often the machine has changed.
    pub(crate) fn refreshed(&self) -> usize {
        // Relaxed: as said where it is.
        self.refreshed.load(Ordering::Relaxed)
    }

    /// Whether that is a CPU: of the machine there was at first, or of that there is now.
    pub(crate) fn has_cpu(&self, cpu: usize) -> bool {
        let has = |topology: &Topology| {
            topology.possible().contains(cpu) || topology.cpus().contains(cpu)
        };
        has(&self.topology) || has(&self.now.lock())
    }

    /// The machine as it is now.
    pub(crate) fn machine(&self) -> Topology {
        self.now.lock().clone()
    }
}
