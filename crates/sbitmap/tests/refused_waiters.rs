//! Who is refused because the depth is too small for it now, and has been chosen for a free bit.
#![cfg(not(any(loom, shuttle)))]

#[path = "common/tasks.rs"]
mod tasks;

use inflight_sbitmap::tenancy::{Request, Tenancy, Waiter};
use inflight_sbitmap::{Engine, Fairness, GetManyError, SbitmapQueue};
use inflight_sync::{Arc, Mutex};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use tasks::Count;

/// Wait queues of `Batched`: `WAIT_QUEUES` in `src/batched/queue_order.rs`. Each newcomer is put
/// into the next one.
const WAIT_QUEUES: usize = 8;

/// Begins to wait, for one of so many together.
fn wait(queue: &SbitmapQueue, least_depth: usize, waker: &Waker) -> Waiter {
    let mut waiter = queue.waiter(Request {
        least_depth,
        ..Request::one(0)
    });
    assert!(poll(queue, &mut waiter, waker).is_pending());
    waiter
}

fn poll(queue: &SbitmapQueue, waiter: &mut Waiter, waker: &Waker) -> Poll<Option<usize>> {
    let bit = waiter.poll_one(queue, &Context::from_waker(waker));
    bit.map(Result::ok)
}

/// Lets so many wait queues have had their newcomer.
fn come_and_go(queue: &SbitmapQueue, times: usize) {
    for _ in 0..times {
        wait(queue, 1, Waker::noop()).leave(queue);
    }
}

/// A newcomer to the first wait queue, and a bit that is put, while a shrink tells the wait queues
/// one after the other.
struct AmidShrink {
    queue: Arc<SbitmapQueue>,
    bit: usize,
    told: Arc<Count>,
    newcomer: Mutex<Option<Waiter>>,
}

impl Wake for AmidShrink {
    fn wake(self: Arc<Self>) {
        // The first wait queue's turn comes again.
        come_and_go(&self.queue, WAIT_QUEUES - 2);
        let waker = Waker::from(self.told.clone());
        *self.newcomer.lock() = Some(wait(&self.queue, 1, &waker));
        self.queue.put(self.bit).unwrap();
    }
}

/// The newcomer has looked before the bit was free, and the shrink has told its wait queue before
/// it came. Chosen for the bit is one in the next wait queue, who is refused: it hands that on.
#[test]
fn who_is_refused_after_it_was_chosen_passes_its_wake_on() {
    let queue = SbitmapQueue::builder(4).fairness(Fairness::batched());
    let queue = Arc::new(queue.build().unwrap());
    let mut bits = Vec::new();
    assert_eq!(queue.try_get_batch(4, &mut bits), 4);
    let bit = 0; // below the depth to come
    // The wakes begin with the second wait queue from here on.
    let mut first = wait(&queue, 1, Waker::noop());
    queue.put(bit).unwrap();
    assert_eq!(
        poll(&queue, &mut first, Waker::noop()),
        Poll::Ready(Some(bit))
    );
    come_and_go(&queue, WAIT_QUEUES - 1);
    let amid = Arc::new(AmidShrink {
        queue: queue.clone(),
        bit,
        told: Arc::default(),
        newcomer: Mutex::default(),
    });
    let mut before = wait(&queue, 1, &Waker::from(amid.clone()));
    let mut refused = wait(&queue, 4, Waker::noop());
    queue.resize(3).unwrap();
    let mut newcomer = amid.newcomer.lock().take().expect("it came");
    assert_eq!(amid.told.get(), 0, "the other one was chosen");
    assert_eq!(poll(&queue, &mut refused, Waker::noop()), Poll::Ready(None));
    assert_eq!(amid.told.get(), 1, "a bit is free, and it sleeps");
    assert_eq!(
        poll(&queue, &mut newcomer, Waker::noop()),
        Poll::Ready(Some(bit))
    );
    before.leave(&queue);
}

/// The error names the depth that was too small, also if there is a larger one by now.
#[test]
fn a_refused_waiter_is_told_the_depth_that_refused_it() {
    for engine in [Engine::Shared, Engine::Local] {
        let queue = SbitmapQueue::builder(8).max_depth(8).engine(engine);
        let queue = queue.build().unwrap();
        let held = queue.try_get_many(8).unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        let mut many = pin!(queue.get_many(6));
        assert!(many.as_mut().poll(&mut cx).is_pending());
        queue.resize(5).unwrap();
        queue.resize(8).unwrap();
        let error = GetManyError::TooMany { n: 6, depth: 5 };
        assert_eq!(many.as_mut().poll(&mut cx), Poll::Ready(Err(error)));
        queue.put_batch(&held).unwrap();
    }
}
