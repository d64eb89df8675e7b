//! What the models share: the smallest systems, and a flag that an item can wait for.
#![allow(dead_code, reason = "each model file uses its part")]

mod pool;

pub(crate) use pool::Pool;

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::cell::UnsafeCell;
use inflight_sync::model::Bound;
use inflight_sync::time::Clock;
use inflight_sync::wait::Event;
use inflight_sync::{Arc, Mutex, thread};
use inflight_topology::{Scope, Topology};
use inflight_workqueue::unstable::ManualPool;
use inflight_workqueue::{Attrs, Work, Workqueue, WorkqueueSystem};
use std::time::Duration;

/// For the smallest: everything.
pub(crate) const ALL: Bound = Bound {
    quick: None,
    deep: None,
};

/// For small ones without workers.
pub(crate) const FIVE: Bound = Bound {
    quick: Some(5),
    deep: None,
};

/// For small models: some mistakes need a third preemption.
pub(crate) const FOUR: Bound = Bound {
    quick: Some(4),
    deep: None,
};

/// For those with four threads.
pub(crate) const ONE: Bound = Bound {
    quick: Some(1),
    deep: Some(2),
};

/// Between the two.
pub(crate) const THREE: Bound = Bound {
    quick: Some(3),
    deep: Some(4),
};

/// For those that take minutes with a fourth preemption.
pub(crate) const THREE_OR_ALL: Bound = Bound {
    quick: Some(3),
    deep: None,
};

/// For those with four threads whose mistakes need no second preemption.
pub(crate) const ONE_OR_THREE: Bound = Bound {
    quick: Some(1),
    deep: Some(3),
};

/// For those where one more preemption takes minutes.
pub(crate) const ZERO: Bound = Bound {
    quick: Some(0),
    deep: Some(1),
};

/// For those with two workers and a third thread.
pub(crate) const TWO: Bound = Bound {
    quick: Some(2),
    deep: Some(3),
};

/// A system with so many CPUs, and a bound queue on it.
pub(crate) fn system(cpus: usize, max_active: usize) -> (WorkqueueSystem, Workqueue) {
    let topo = Topology::synthetic(&format!("core:{cpus}")).unwrap();
    let builder = WorkqueueSystem::builder().topology(topo);
    // Nobody leaves: that has a model of its own.
    let sys = builder.idle_timeout(Duration::MAX).build().unwrap();
    let wq = sys.workqueue("model").bound().max_active(max_active);
    let wq = wq.build().unwrap();
    (sys, wq)
}

/// A system on such a machine where it can be known how long items take: by this clock, no time.
pub(crate) fn timed(machine: &str, clock: &Clock) -> WorkqueueSystem {
    let builder = WorkqueueSystem::builder().topology(Topology::synthetic(machine).unwrap());
    let builder = builder.idle_timeout(Duration::MAX).sampling(true);
    builder.clock(clock.clone()).build().unwrap()
}

/// A system with two CPUs that share a pool; items are small, and not so small that one worker
/// takes them all.
pub(crate) fn wide(clock: &Clock) -> (WorkqueueSystem, Workqueue) {
    let sys = timed("core:2", clock);
    let attrs = Attrs::new().scope(Scope::System);
    let wq = sys.workqueue("model").unbound(attrs).build().unwrap();
    for _ in 0..2 {
        let clock = clock.clone();
        let item = wq.spawn(move || clock.advance(Duration::from_micros(4)));
        item.wait().unwrap();
    }
    (sys, wq)
}

/// A count whose reads and writes order nothing, so that the code under test has to.
#[derive(Clone)]
pub(crate) struct Count(Arc<AtomicUsize>);

impl Count {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicUsize::new(0)))
    }

    pub(crate) fn add(&self) -> usize {
        // Relaxed: on purpose, see the type.
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn sub(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits until it is not 0, and does not say so.
    pub(crate) fn wait_silently(&self) {
        while self.get() == 0 {
            thread::yield_now();
        }
    }
}

/// A work that is never run twice at once. It counts its runs; the first of them says that it has
/// begun, and waits.
pub(crate) fn held(begun: &Flag, runs: &Count, wait: impl Fn() + Send + Sync + 'static) -> Work {
    let (begun, runs, inside) = (begun.clone(), runs.clone(), Count::new());
    Work::new(move || {
        assert_eq!(inside.add(), 0, "twice at once");
        if runs.add() == 0 {
            begun.raise();
            wait();
        }
        inside.sub();
    })
}

/// Raised once, waited for by parking.
#[derive(Clone)]
pub(crate) struct Flag(Arc<(AtomicUsize, Event)>);

impl Flag {
    pub(crate) fn new() -> Self {
        Self(Arc::new((AtomicUsize::new(0), Event::new())))
    }

    pub(crate) fn raise(&self) {
        // Ordering: Release, pairs with the Acquire in `wait`.
        self.0.0.store(1, Ordering::Release);
        self.0.1.notify_all();
    }

    pub(crate) fn wait(&self) {
        // Ordering: Acquire, pairs with the Release in `raise`.
        self.0
            .1
            .wait_while(|| self.0.0.load(Ordering::Acquire) == 0);
    }
}

/// A work that knows itself: the closure gets a handle on it. [`forget`](Own::forget) ends the
/// cycle.
pub(crate) struct Own {
    pub(crate) work: Work,
    slot: Arc<Mutex<Option<Work>>>,
}

impl Own {
    pub(crate) fn new(f: impl Fn(&Work) + Send + Sync + 'static) -> Self {
        let slot: Arc<Mutex<Option<Work>>> = Arc::new(Mutex::new(None));
        let work = Work::new({
            let slot = slot.clone();
            move || {
                let me = slot.lock().clone();
                f(&me.expect("set before the first run"));
            }
        });
        *slot.lock() = Some(work.clone());
        Self { work, slot }
    }

    pub(crate) fn forget(self) {
        let work = self.slot.lock().take();
        drop(work);
    }
}

/// What two threads may not touch at once: loom sees a run that is not ordered with the one before.
#[derive(Clone)]
pub(crate) struct Touched(Arc<UnsafeCell<usize>>);

// SAFETY: not two at once is what the models check; loom notices.
unsafe impl Send for Touched {}
// SAFETY: as above.
unsafe impl Sync for Touched {}

impl Touched {
    pub(crate) fn new() -> Self {
        Self(Arc::new(UnsafeCell::new(0)))
    }

    pub(crate) fn touch(&self) {
        // SAFETY: as above.
        self.0.with_mut(|p| unsafe { *p += 1 });
    }

    pub(crate) fn times(&self) -> usize {
        // SAFETY: as above.
        self.0.with(|p| unsafe { *p })
    }
}

/// Touched when it goes.
pub(crate) struct TouchedByDrop(pub(crate) Touched);

impl Drop for TouchedByDrop {
    fn drop(&mut self) {
        self.0.touch();
    }
}

/// Who ran, in this order. Its lock orders the runs, so what is to be seen without it is
/// [`Touched`].
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u32>>>);

impl Log {
    pub(crate) fn add(&self, who: u32) {
        self.0.lock().push(who);
    }

    pub(crate) fn get(&self) -> Vec<u32> {
        self.0.lock().clone()
    }
}

/// Draws from those pools until nothing is left that could run.
pub(crate) fn draw_all(pools: &[&ManualPool]) {
    while pools.iter().map(|pool| pool.draw(1)).sum::<usize>() > 0 {}
}

/// Threads that an item of the model has started, to be joined after it.
#[derive(Clone, Default)]
pub(crate) struct Started(Arc<Mutex<Vec<thread::JoinHandle<()>>>>);

impl Started {
    pub(crate) fn start(&self, f: impl FnOnce() + Send + 'static) {
        self.0.lock().push(thread::spawn(f));
    }

    pub(crate) fn join(&self) {
        let threads = std::mem::take(&mut *self.0.lock());
        threads.into_iter().for_each(|t| t.join().unwrap());
    }
}
