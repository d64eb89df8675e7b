//! The state that the pools and queues of a system share.

use crate::completion::Completion;
use crate::cpu_time::Metering;
use crate::hog::Hogs;
use crate::known_blockers::KnownBlockers;
use crate::sampler::Sampling;
use crate::submitters::Submitters;
use crate::threads::{Reporter, Threads};
use crate::timer_queue::TimerQueue;
use crate::trace::Tracing;
use crate::watchdog::{Watch, Watchdog};
use inflight_sync::asym::AsymFence;
use inflight_sync::atomic::AtomicUsize;
use inflight_sync::fault::Faults;
use inflight_sync::time::Clock;
use inflight_sync::{Mutex, RetainedVersions, Weak};
use inflight_topology::{CpuSet, Topology};
use std::io;
use std::time::Duration;

pub(crate) struct SystemShared {
    pub(crate) system: Weak<dyn Watch>,
    /// The machine when the system was made.
    pub(crate) topology: Topology,
    /// The present machine.
    pub(crate) now: RetainedVersions<Topology>,
    pub(crate) unbound_cpus: Mutex<CpuSet>,
    /// How often `now` or `unbound_cpus` has changed. Relaxed: a worker may see it late.
    pub(crate) refreshes: AtomicUsize,
    pub(crate) clock: Clock,
    pub(crate) faults: Faults,
    /// For batches: recalls are rare, starts are frequent.
    pub(crate) fence: AsymFence,
    /// How long a surplus worker stays idle before it exits.
    pub(crate) idle_timeout: Duration,
    pub(crate) sampling: Sampling,
    pub(crate) known_blockers: KnownBlockers,
    pub(crate) hogs: Hogs,
    #[cfg(feature = "metrics")]
    pub(crate) ended_queues: crate::ended_queues::EndedQueues,
    /// What the last record told of queues.
    #[cfg(feature = "metrics")]
    pub(crate) recorded_queues: Mutex<crate::ended_queues::Lines>,
    /// The pools whose gauges were set by the last record.
    #[cfg(feature = "metrics")]
    pub(crate) recorded_pools: Mutex<std::collections::BTreeSet<String>>,
    pub(crate) submitters: Submitters,
    pub(crate) metering: Metering,
    pub(crate) tracing: Tracing,
    pub(crate) watchdog: Watchdog,
    pub(crate) reporter: Reporter,
    pub(crate) base_nice: i32,
    /// Why a thread did not get its priority.
    pub(crate) nice_refused: Mutex<Option<io::ErrorKind>>,
    pub(crate) threads: Mutex<Threads>,
    /// Done when nothing is in flight, nothing will be, and all threads' functions have returned.
    pub(crate) ended: Completion,
    pub(crate) timers: TimerQueue,
    pub(crate) power_efficient: bool,
}

impl SystemShared {
    /// An item has been given to a pool: plans a tick of the watchdog.
    pub(crate) fn arm_watchdog(&self) {
        if self.watchdog.threshold().is_some() {
            if let Some(system) = self.system.upgrade() {
                system.arm_watchdog();
            }
        }
    }
}
