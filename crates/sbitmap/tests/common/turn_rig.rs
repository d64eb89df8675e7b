//! What tests of turns share: builders of each kind, and tasks polled by hand.
#![allow(dead_code, reason = "each test file uses its part")]

use inflight_sbitmap::tenancy::{Rules, ShareLimiter, TenantIndex};
use inflight_sbitmap::{Engine, Fairness, SbitmapQueue, SbitmapQueueBuilder};
use inflight_sync::atomic::{AtomicBool, Ordering};
use inflight_sync::block_hook::{BlockHook, install};
use inflight_sync::{Arc, thread};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Wake, Waker};

pub(crate) type Mode = (Fairness, Engine);

pub(crate) fn builder(depth: usize, (fairness, engine): Mode) -> SbitmapQueueBuilder {
    SbitmapQueue::builder(depth)
        .fairness(fairness)
        .engine(engine)
}

/// A queue whose bits are all taken.
pub(crate) fn taken(depth: usize, fairness: Mode) -> (Arc<SbitmapQueue>, Vec<usize>) {
    let queue = builder(depth, fairness).build().unwrap();
    let mut bits = Vec::new();
    assert_eq!(queue.try_get_batch(depth, &mut bits), depth);
    (Arc::new(queue), bits)
}

pub(crate) fn wait_for_waiters(queue: &SbitmapQueue, n: usize) {
    while queue.snapshot().ws_active != n {
        thread::yield_now();
    }
}

#[derive(Default)]
pub(crate) struct Told(pub(crate) AtomicBool);

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A queue of one tenant without limits, or of two of which tenant 1 may have none.
pub(crate) fn in_turns(depth: usize, engine: Engine) -> SbitmapQueue {
    #[derive(Debug)]
    struct NoneForOne;
    impl ShareLimiter for NoneForOne {
        fn may_take(&self, tenant: TenantIndex) -> bool {
            tenant == 0
        }
        fn took(&self, _: TenantIndex, _: usize) {}
        fn gives(&self, _: usize) {}
    }
    let above = Rules {
        shares: Some(Arc::new(NoneForOne)),
        newcomers: None,
        ..Rules::default()
    };
    let queue = SbitmapQueue::builder(depth).engine(engine);
    queue
        .fairness(Fairness::fair())
        .build_with_rules(above)
        .unwrap()
}

/// Holds a thread up when it is to run again.
#[derive(Default)]
pub(crate) struct Stop {
    asleep: AtomicBool,
    reached: AtomicBool,
    go: AtomicBool,
}

struct StopAfterSleep(Arc<Stop>);

impl BlockHook for StopAfterSleep {
    fn blocking(&self) {
        // Ordering: Release pairs with the Acquire of `wait_until_asleep`.
        self.0.asleep.store(true, Ordering::Release);
    }

    fn unblocked(&self) {
        // Ordering: Release pairs with the Acquire of `wait_until_reached`, Acquire with the
        // Release of `go_on`.
        self.0.reached.store(true, Ordering::Release);
        while !self.0.go.load(Ordering::Acquire) {
            thread::yield_now();
        }
    }
}

impl Stop {
    /// A thread that is held up in `f`.
    pub(crate) fn spawn<T: Send + 'static>(
        self: &Arc<Self>,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let stop = self.clone();
        thread::spawn(move || {
            let _installed = install(Rc::new(StopAfterSleep(stop)));
            f()
        })
    }

    /// It is about to sleep, and so will be held up. A thread that only waits in the list may be
    /// served before it sleeps.
    pub(crate) fn wait_until_asleep(&self) {
        while !self.asleep.load(Ordering::Acquire) {
            thread::yield_now();
        }
    }

    pub(crate) fn wait_until_reached(&self) {
        while !self.reached.load(Ordering::Acquire) {
            thread::yield_now();
        }
    }

    pub(crate) fn go_on(&self) {
        self.go.store(true, Ordering::Release);
    }
}
