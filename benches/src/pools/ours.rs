//! Ours, and what only ours can do.

use super::loads::{Spent, compute, done, lasting, nap, until_done};
use super::memory::resident;
use super::{Pool, PoolContender, PoolLoads};
use crate::Part::{Ours, Variant};
use inflight_sync::cpu;
use inflight_topology::Scope;
use inflight_workqueue::{Attrs, Work, Workqueue, WorkqueueBuilder, WorkqueueSystem, blocking};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// One queue of each kind, on pools that no other contender shares.
#[must_use]
pub fn ours() -> Vec<PoolContender> {
    let contender = |name, part, make| PoolContender {
        name,
        part,
        make,
        grows: false,
    };
    vec![
        contender("unbound", Ours, |_| lasting(queue(Queue::Unbound))),
        contender("bound", Variant, |_| lasting(queue(Queue::Bound))),
        contender("ordered", Variant, |_| lasting(queue(Queue::Ordered))),
        contender("unbound, max_active 64", Variant, |_| {
            lasting(queue(Queue::Limited(64)))
        }),
    ]
}

/// A queue to measure.
#[derive(Clone, Copy, Debug)]
pub(super) enum Queue {
    Unbound,
    Bound,
    Ordered,
    /// Unbound, with so many active items.
    Limited(usize),
    /// Unbound, and no worker is brought because one is found asleep.
    Unsampled,
    /// Unbound, and the CPU time of its items is measured.
    Metered,
}

/// An unbound queue with so many active items.
#[must_use]
pub fn limited(max_active: usize) -> Box<dyn PoolLoads> {
    lasting(queue(Queue::Limited(max_active)))
}

/// An unbound queue whose items' CPU time is measured.
#[must_use]
pub fn metered() -> Box<dyn PoolLoads> {
    lasting(queue(Queue::Metered))
}

#[derive(Debug)]
struct Own {
    wq: Workqueue,
    /// Runs it.
    _system: WorkqueueSystem,
}

fn queue(kind: Queue) -> Own {
    let mut builder = WorkqueueSystem::builder().idle_timeout(Duration::from_millis(500));
    if matches!(kind, Queue::Unsampled) {
        builder = builder.sampling(false);
    }
    builder = builder.cpu_time(matches!(kind, Queue::Metered));
    let system = builder.build().expect("this machine has a topology");
    let draft = system.workqueue("bench");
    let attrs = Attrs::new().scope(Scope::System).strict(false);
    let builder: WorkqueueBuilder = match kind {
        Queue::Unbound | Queue::Unsampled | Queue::Metered => draft.unbound(attrs).max_active(2048),
        Queue::Bound => draft.bound().max_active(2048),
        Queue::Ordered => draft.ordered_with(attrs),
        Queue::Limited(max) => draft.unbound(attrs).max_active(max),
    };
    Own {
        wq: builder.build().expect("a good name and limit"),
        _system: system,
    }
}

impl Pool for Own {
    fn spawn(&self, f: impl FnOnce() + Send + 'static) {
        drop(self.wq.spawn(f));
    }
    fn may_sleep(f: impl FnOnce()) {
        blocking(f);
    }
    const CAN_SAY: bool = true;
}

/// Works that are queued again and again.
#[derive(Debug)]
pub struct Reusable {
    own: Own,
    works: Vec<Work>,
}

impl Reusable {
    /// So many works for an unbound or an ordered queue.
    #[must_use]
    pub fn new(ordered: bool, works: usize) -> Self {
        let kind = if ordered {
            Queue::Ordered
        } else {
            Queue::Unbound
        };
        Self {
            own: queue(kind),
            works: (0..works).map(|_| Work::new(done)).collect(),
        }
    }

    /// Queues each of them once.
    #[must_use]
    pub fn run(&self) -> Spent {
        until_done(self.works.len() as u64, thread::yield_now, || {
            for work in &self.works {
                let queued = self.own.wq.queue(work).expect("the queue is open");
                assert!(queued.is_queued(), "it has ended");
            }
        })
    }
}

/// Bytes in memory for each of so many works that are queued and wait. Only in a process that has
/// done nothing else.
#[must_use]
pub fn memory_of_queued(works: usize) -> f64 {
    let own = queue(Queue::Limited(1));
    let works: Vec<_> = (0..works).map(|_| Work::new(|| ())).collect();
    let open = Arc::new(AtomicBool::new(false));
    drop(own.wq.spawn({
        let open = open.clone();
        move || {
            // Ordering: Acquire, pairs with the store below.
            while !open.load(Ordering::Acquire) {
                nap();
            }
        }
    }));
    let before = resident();
    for work in &works {
        let queued = own.wq.queue(work).expect("the queue is open");
        assert!(queued.is_queued(), "once");
    }
    let queued = resident();
    // Ordering: Release, pairs with the load above.
    open.store(true, Ordering::Release);
    own.wq.flush().expect("nobody waits for itself");
    queued.saturating_sub(before) as f64 / works.len() as f64
}

/// A work that runs again and again.
#[derive(Debug)]
pub struct Again {
    own: Own,
    left: Arc<AtomicU64>,
    work: Work,
}

/// One hop less; `false` if there is none left.
fn hops_on(left: &AtomicU64) -> bool {
    // Relaxed: a work does not run twice at once, and the queue orders its runs.
    let hops = left.load(Ordering::Relaxed);
    left.store(hops.saturating_sub(1), Ordering::Relaxed);
    if hops == 0 {
        done();
    }
    hops > 0
}

impl Again {
    /// On an unbound queue: it queues itself.
    #[must_use]
    pub fn queued() -> Self {
        let own = queue(Queue::Unbound);
        let left = Arc::new(AtomicU64::new(0));
        let me: Arc<OnceLock<Work>> = Arc::default();
        let work = Work::new({
            let (wq, left, me) = (own.wq.clone(), left.clone(), me.clone());
            move || {
                if hops_on(&left) {
                    let work = me.get().expect("set before the first run");
                    wq.queue(work).expect("the queue is open");
                }
            }
        });
        me.set(work.clone()).expect("only here");
        Self { own, left, work }
    }

    /// On an unbound queue: it says so.
    #[must_use]
    pub fn said() -> Self {
        let own = queue(Queue::Unbound);
        let left = Arc::new(AtomicU64::new(0));
        let work = Work::repeating("again", {
            let left = left.clone();
            move || match hops_on(&left) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        Self { own, left, work }
    }

    /// `hops` times.
    #[must_use]
    pub fn run(&self, hops: u64) -> Spent {
        self.left.store(hops, Ordering::Relaxed);
        until_done(1, nap, || {
            self.own.wq.queue(&self.work).expect("the queue is open");
        })
    }
}

/// As [`PoolLoads::ping`](super::PoolLoads::ping), through the bound pool of the submitter's CPU
/// and a handle that is waited for.
pub fn ping_bound() -> impl Fn(usize, Duration) -> Vec<u32> {
    let own = queue(Queue::Bound);
    move |times, pause| {
        let own = &own; // All of it: the system must last.
        let ping = |_| {
            compute(pause);
            let start = Instant::now();
            let handle = own.wq.spawn_on(cpu::current(), || ());
            handle.wait().expect("it ends well");
            start.elapsed().as_nanos() as u32
        };
        (0..times).map(ping).collect()
    }
}

/// As [`PoolLoads::ping`](super::PoolLoads::ping), by a call that needs no worker.
pub fn ping_call() -> impl Fn(usize, Duration) -> Vec<u32> {
    let own = queue(Queue::Unbound);
    move |times, pause| {
        let own = &own; // All of it: the system must last.
        let ping = |_| {
            compute(pause);
            let start = Instant::now();
            own.wq.call(|| ()).expect("it ends well");
            start.elapsed().as_nanos() as u32
        };
        (0..times).map(ping).collect()
    }
}

/// Works that are queued and cannot run yet.
#[derive(Debug)]
pub struct Pending {
    own: Own,
    works: Vec<Work>,
}

impl Pending {
    /// So many, behind one that runs.
    #[must_use]
    pub fn new(works: usize) -> Self {
        Self {
            own: queue(Queue::Unsampled),
            works: (0..works).map(|_| Work::new(|| ())).collect(),
        }
    }

    fn queue(&self) {
        for work in &self.works {
            self.own.wq.queue(work).expect("the queue is open");
        }
    }

    /// Queues them behind items that hold all slots, then takes each one back.
    #[must_use]
    pub fn cancel(&self) -> Spent {
        let (held, holding) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
        // As many as run at once.
        let holders: Vec<_> = (0..thread::available_parallelism().map_or(1, usize::from))
            .map(|_| {
                let (held, holding) = (held.clone(), holding.clone());
                self.own.wq.spawn(move || {
                    holding.fetch_add(1, Ordering::Relaxed);
                    // Ordering: Acquire, pairs with the store below; hands nothing over.
                    while held.load(Ordering::Acquire) {
                        nap();
                    }
                })
            })
            .collect();
        // Relaxed: a count, nothing is handed over.
        while holding.load(Ordering::Relaxed) < holders.len() as u64 {
            nap();
        }
        self.queue();
        let spent = until_done(0, nap, || {
            assert!(self.works.iter().all(Work::cancel), "they could not run");
        });
        // Ordering: Release, pairs with the holders' loads.
        held.store(false, Ordering::Release);
        for holder in holders {
            holder.wait().expect("it ends well");
        }
        spent
    }

    /// Queues them and waits for each.
    #[must_use]
    pub fn flush_each(&self) -> Spent {
        until_done(0, nap, || {
            self.queue();
            for work in &self.works {
                work.flush().expect("not from inside");
            }
        })
    }

    /// Queues them and waits for all.
    #[must_use]
    pub fn flush(&self) -> Spent {
        until_done(0, nap, || {
            self.queue();
            self.own.wq.flush().expect("not from inside");
        })
    }
}
