//! Ours: the one file here that calls the workqueue crate.

use super::loads::lasting;
use super::{Pool, PoolContender};
use crate::Part::{Ours, Variant};
use crate::machine;
use inflight_sync::{CachePadded, cpu};
use inflight_topology::{Scope, Topology};
use inflight_workqueue::{Attrs, SystemBuilder, Work, Workqueue, WorkqueueSystem, blocking};
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The default number of active items.
pub const DEFAULT_MAX_ACTIVE: usize = inflight_workqueue::DEFAULT_MAX_ACTIVE;

/// One queue of each kind, on pools that no other contender shares.
#[must_use]
pub fn ours() -> Vec<PoolContender> {
    let contender = |name, part, make| PoolContender { name, part, make };
    vec![
        contender("unbound", Ours, |_| lasting(Own::new(Kind::Unbound))),
        contender("unbound, first time", Variant, |_| {
            lasting(Own::new(Kind::Brief))
        }),
        contender("bound, other CPU", Variant, |_| {
            lasting(Own::new(Kind::BoundThere))
        }),
        contender("bound, own CPU", Variant, |_| {
            lasting(Own::new(Kind::BoundHere))
        }),
        contender("ordered", Variant, |_| lasting(Own::new(Kind::Ordered))),
        contender("max_active 64", Variant, |_| {
            lasting(Own::new(Kind::Limited(64)))
        }),
        contender("max_active 128", Variant, |_| {
            lasting(Own::new(Kind::Limited(128)))
        }),
    ]
}

/// A queue to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One pool for all CPUs.
    Unbound,
    /// Unbound, and its idle workers leave soon.
    Brief,
    /// Bound to the CPU that the submitter is on.
    BoundHere,
    /// Bound to the second CPU; submitters are on the first.
    BoundThere,
    /// One item at a time.
    Ordered,
    /// Unbound, with this many active items.
    Limited(usize),
    /// Unbound, and no worker is brought because one is found asleep.
    Unsampled,
}

/// A queue of ours, in a system of its own or that other queues share.
#[derive(Clone)]
pub struct Own {
    wq: Workqueue,
    kind: Kind,
    trace: Arc<Trace>,
    /// Runs it.
    system: Arc<WorkqueueSystem>,
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// What a system tells while somebody wants to know: a count for each CPU.
struct Trace {
    wanted: AtomicBool,
    events: [CachePadded<AtomicU64>; 16],
}

impl Own {
    /// A queue in a system of its own.
    ///
    /// # Panics
    ///
    /// If the machine has no topology.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        let mut builder = WorkqueueSystem::builder().sampling(kind != Kind::Unsampled);
        if kind == Kind::Brief {
            builder = builder.idle_timeout(Duration::from_millis(500));
        }
        let mut one = Self::several(builder, kind, 1);
        one.swap_remove(0)
    }

    /// This many unbound queues over one pool, without a sampler.
    ///
    /// # Panics
    ///
    /// If the machine has no topology.
    #[must_use]
    pub fn unsampled(queues: usize) -> Vec<Self> {
        let builder = WorkqueueSystem::builder().sampling(false);
        Self::several(builder, Kind::Unsampled, queues)
    }

    /// This many unbound queues over one pool. If they can be traced, each step of each item calls
    /// a function that looks whether it is to count the step.
    ///
    /// # Panics
    ///
    /// If the machine has no topology.
    #[must_use]
    pub fn sharing_a_pool(queues: usize, traceable: bool) -> Vec<Self> {
        let builder = WorkqueueSystem::builder();
        let trace = Trace::new();
        let builder = match traceable {
            true => {
                let trace = trace.clone();
                builder.trace(move |_| trace.event())
            }
            false => builder,
        };
        let mut all = Self::several(builder, Kind::Unbound, queues);
        all.iter_mut().for_each(|own| own.trace = trace.clone());
        all
    }

    fn several(builder: SystemBuilder, kind: Kind, queues: usize) -> Vec<Self> {
        let system = Arc::new(builder.build().expect("this machine has a topology"));
        let attrs = || Attrs::new().scope(Scope::System).strict(false);
        let queue = |index| {
            let draft = system.workqueue(format!("bench-{index}"));
            let builder = match kind {
                Kind::Unbound | Kind::Brief | Kind::Unsampled => {
                    draft.unbound(attrs()).max_active(2048)
                }
                Kind::BoundHere | Kind::BoundThere => draft.bound().max_active(2048),
                Kind::Ordered => draft.ordered_with(attrs()),
                Kind::Limited(max) => draft.unbound(attrs()).max_active(max),
            };
            Self {
                wq: builder.build().expect("a good name and limit"),
                kind,
                trace: Trace::new(),
                system: system.clone(),
            }
        };
        (0..queues).map(queue).collect()
    }

    /// An unbound queue of that scope.
    ///
    /// # Panics
    ///
    /// If the machine has no topology.
    #[must_use]
    pub fn of_scope(scope: Scope, max_active: usize) -> Self {
        let machine = Topology::discover().expect("a machine with a CPU");
        Self::on(machine, scope, max_active)
    }

    /// An unbound queue of that scope on such a machine.
    ///
    /// # Panics
    ///
    /// If the limit is none.
    #[must_use]
    pub fn on(machine: Topology, scope: Scope, max_active: usize) -> Self {
        let system = WorkqueueSystem::builder().topology(machine).build();
        let system = system.expect("a machine has a CPU");
        let draft = system.workqueue("bench").unbound(Attrs::new().scope(scope));
        Self {
            wq: draft.max_active(max_active).build().expect("a good limit"),
            kind: Kind::Limited(max_active),
            trace: Trace::new(),
            system: Arc::new(system),
        }
    }

    /// Returns when all that was queued before has ended.
    pub(crate) fn flush(&self) {
        self.wq.flush_blocking().expect("nobody waits for itself");
    }

    /// How many characters the dump of its system has.
    pub(super) fn dump(&self) -> usize {
        self.system.dump().len()
    }

    /// Whether steps of items are counted from now on.
    pub(super) fn trace(&self, wanted: bool) {
        // Relaxed: when it is seen does not matter.
        self.trace.wanted.store(wanted, Ordering::Relaxed);
    }

    /// About how many steps have been counted.
    pub(super) fn traced(&self) -> u64 {
        let count = |events: &CachePadded<AtomicU64>| events.load(Ordering::Relaxed);
        self.trace.events.iter().map(count).sum()
    }
}

impl Trace {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            wanted: AtomicBool::new(false),
            events: std::array::from_fn(|_| CachePadded::new(AtomicU64::new(0))),
        })
    }

    fn event(&self) {
        if self.wanted.load(Ordering::Relaxed) {
            let events = &self.events[cpu::current() % self.events.len()];
            // Not a locked step, which would cost more than being told: two threads on one CPU may
            // lose an event, and only whether there were any is asked.
            events.store(events.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }
}

impl Pool for Own {
    fn spawn(&self, f: impl FnOnce() + Send + 'static) {
        match self.kind {
            Kind::BoundThere => drop(self.wq.spawn_on(machine::second_cpu(), f)),
            _ => drop(self.wq.spawn(f)),
        }
    }

    fn spawn_waited(&self, f: impl FnOnce() -> u64 + Send + 'static) -> impl FnOnce() -> u64 {
        let handle = self.wq.spawn(f);
        move || handle.wait().expect("it ends well")
    }

    fn ping(&self) {
        let handle = match self.kind {
            Kind::BoundHere => self.wq.spawn_on(cpu::current(), || ()),
            _ => self.wq.spawn(|| ()),
        };
        handle.wait().expect("it ends well");
    }

    fn may_sleep(f: impl FnOnce()) {
        blocking(f);
    }

    const CAN_SAY: bool = true;
}

/// A reusable work.
#[derive(Clone, Debug)]
pub(crate) struct OwnWork(Work);

impl OwnWork {
    pub(crate) fn new(f: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Work::new(f))
    }

    /// Runs again each time it says so.
    pub(super) fn repeating(f: impl Fn() -> ControlFlow<()> + Send + Sync + 'static) -> Self {
        Self(Work::repeating("again", f))
    }

    /// Queues it, and panics if it waits already.
    pub(crate) fn queue(&self, own: &Own) {
        let queued = own.wq.queue(&self.0).expect("the queue is open");
        assert!(queued.is_queued(), "it waits for its run already");
    }

    /// Whether it was taken back before its run.
    pub(super) fn cancel(&self) -> bool {
        self.0.cancel()
    }

    /// Returns when the run has ended for which it was queued last.
    pub(crate) fn flush(&self) {
        self.0.flush_blocking().expect("nobody waits for itself");
    }
}
