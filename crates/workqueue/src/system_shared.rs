//! What the pools and queues of a system have in common.

use crate::cpu_time::Metering;
use crate::hog::Hogs;
use crate::known_blockers::KnownBlockers;
use crate::reporter::Reporter;
use crate::sampler::Sampling;
use crate::submitters::Submitters;
use crate::threads::Threads;
use crate::timer_queue::TimerQueue;
use crate::trace::Tracing;
use crate::watchdog::{Watch, Watchdog};
use inflight_sync::asym::AsymFence;
use inflight_sync::atomic::AtomicUsize;
use inflight_sync::fault::Faults;
use inflight_sync::time::Clock;
use inflight_sync::wait::Event;
use inflight_sync::{Mutex, RetainedVersions, Weak};
use inflight_topology::{CpuSet, Topology};
use std::io;
use std::time::Duration;

/// What every pool of a system shares.
pub(crate) struct SystemShared {
    /// Whose it is.
    pub(crate) system: Weak<dyn Watch>,
    /// The machine as it was when the system was made.
    pub(crate) topology: Topology,
    /// And as it is now.
    pub(crate) now: RetainedVersions<Topology>,
    pub(crate) unbound_cpus: Mutex<CpuSet>,
    /// How often one of those has changed. Relaxed: a worker that sees it late is late.
    pub(crate) refreshes: AtomicUsize,
    pub(crate) clock: Clock,
    pub(crate) faults: Faults,
    /// Of batches: recalls are rare, starts are not.
    pub(crate) fence: AsymFence,
    /// After how long an idle worker too many leaves.
    pub(crate) idle_timeout: Duration,
    pub(crate) sampling: Sampling,
    pub(crate) known_blockers: KnownBlockers,
    pub(crate) hogs: Hogs,
    pub(crate) submitters: Submitters,
    pub(crate) metering: Metering,
    pub(crate) tracing: Tracing,
    pub(crate) watchdog: Watchdog,
    pub(crate) reporter: Reporter,
    /// The priority of the process.
    pub(crate) base_nice: i32,
    /// Why a thread did not get the priority it should have.
    pub(crate) nice_refused: Mutex<Option<io::ErrorKind>>,
    pub(crate) threads: Mutex<Threads>,
    /// A thread's function has returned.
    pub(crate) thread_over: Event,
    pub(crate) timers: TimerQueue,
    pub(crate) power_efficient: bool,
}

impl SystemShared {
    /// Something has been brought to run: the watchdog is to look after a while.
    pub(crate) fn arm_watchdog(&self) {
        if self.watchdog.threshold().is_some() {
            if let Some(system) = self.system.upgrade() {
                system.arm_watchdog();
            }
        }
    }
}
