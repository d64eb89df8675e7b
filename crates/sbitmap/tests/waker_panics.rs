//! Wakers that panic: the panic reaches the putter, and everybody else is woken.
#![cfg(not(any(loom, shuttle)))]

#[path = "common/tasks.rs"]
mod tasks;

use inflight_sbitmap::{Fairness, SbitmapQueue};
use inflight_sync::{Arc, Mutex};
use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::ptr;
use std::task::{Context, RawWaker, RawWakerVTable, Wake, Waker};
use tasks::{Count, Task};

/// 64 bits, all taken: eight waiters are woken at once.
fn full() -> SbitmapQueue {
    let queue = SbitmapQueue::builder(64).build().unwrap();
    assert_eq!(queue.try_get_batch(64, &mut Vec::new()), 64);
    queue
}

fn woken(tasks: &[Task<'_>]) -> usize {
    tasks.iter().filter(|task| task.is_woken()).count()
}

fn poll<F: Future + ?Sized>(future: Pin<&mut F>, waker: &Waker) -> bool {
    future.poll(&mut Context::from_waker(waker)).is_ready()
}

/// Counts, then panics.
struct Bomb(Arc<Count>);

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        self.0.clone().wake();
        panic!("this waker panics on purpose");
    }
}

#[test]
fn a_waker_that_panics_costs_nobody_else_a_wake() {
    for bad in 0..8 {
        let queue = full();
        let mut tasks: Vec<Task<'_>> = Vec::new();
        let bomb = Arc::<Count>::default();
        let mut get = pin!(queue.get());
        for i in 0..8 {
            if i == bad {
                let waker = Waker::from(Arc::new(Bomb(bomb.clone())));
                assert!(
                    get.as_mut()
                        .poll(&mut Context::from_waker(&waker))
                        .is_pending()
                );
            } else {
                tasks.push(Task::waiting(&queue));
            }
        }
        let bits = [0, 1, 2, 3, 4, 5, 6, 7];
        let put = catch_unwind(AssertUnwindSafe(|| queue.put_batch(&bits)));
        assert!(put.is_err(), "the panic reaches the putter");
        assert_eq!(
            (bomb.get(), woken(&tasks)),
            (1, 7),
            "the bad one was number {bad}"
        );
        assert!(tasks.iter_mut().all(|task| task.poll().is_some()));
        assert!(
            get.as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_ready()
        );
        assert_eq!(queue.weight(), 64);
        assert_eq!(queue.snapshot().ws_active, 0);
    }
}

/// Two in one batch: the first panic is on its way when the second comes.
#[test]
fn two_wakers_that_panic_do_not_bring_down_the_process() {
    let queue = full();
    let bomb = Arc::<Count>::default();
    let mut bad = [pin!(queue.get()), pin!(queue.get())];
    for get in &mut bad {
        assert!(!poll(
            get.as_mut(),
            &Waker::from(Arc::new(Bomb(bomb.clone())))
        ));
    }
    let tasks: Vec<_> = (0..6).map(|_| Task::waiting(&queue)).collect();
    let put = catch_unwind(AssertUnwindSafe(|| {
        queue.put_batch(&[0, 1, 2, 3, 4, 5, 6, 7])
    }));
    assert!(put.is_err());
    assert_eq!((bomb.get(), woken(&tasks)), (2, 6));
}

/// A put that owes several batches pays all of them, although the first waiter's waker panics.
#[test]
fn a_panic_does_not_end_the_batches_of_a_put() {
    let queue = full();
    let waker = Waker::from(Arc::new(Bomb(Arc::default())));
    let mut first = pin!(queue.get());
    assert!(!poll(first.as_mut(), &waker));
    let tasks: Vec<_> = (1..64).map(|_| Task::waiting(&queue)).collect();
    let bits: Vec<_> = (0..64).collect();
    let put = catch_unwind(AssertUnwindSafe(|| queue.put_batch(&bits)));
    assert!(put.is_err(), "the panic reaches the putter");
    assert_eq!(woken(&tasks), 63, "all bits are free, so everybody is told");
}

#[test]
fn a_panic_does_not_end_wake_all() {
    let queue = full();
    let waker = Waker::from(Arc::new(Bomb(Arc::default())));
    let mut first = pin!(queue.get());
    assert!(!poll(first.as_mut(), &waker));
    let tasks: Vec<_> = (1..32).map(|_| Task::waiting(&queue)).collect();
    assert!(catch_unwind(AssertUnwindSafe(|| queue.wake_all())).is_err());
    assert_eq!(woken(&tasks), 31);
}

/// The last handle of a waker may drop a task that waits in the same queue.
#[test]
fn a_waker_may_own_another_waiter_of_the_queue() {
    struct Owns(#[allow(dead_code, reason = "dropped with the waker")] Mutex<Option<Other>>);
    type Other = Pin<Box<dyn Future<Output = usize> + Send>>;
    impl Wake for Owns {
        fn wake(self: Arc<Self>) {}
    }

    // One wait queue is shared by the first and the ninth waiter.
    let queue = Arc::new(full());
    let mut other: Other = Box::pin({
        let queue = queue.clone();
        async move { queue.get().await.unwrap() }
    });
    assert!(!poll(other.as_mut(), Waker::noop()));
    let between: Vec<_> = (0..7).map(|_| Task::waiting(&queue)).collect();
    let waker = Waker::from(Arc::new(Owns(Mutex::new(Some(other)))));
    let mut mine = Box::pin(queue.get());
    assert!(!poll(mine.as_mut(), &waker));
    drop(waker);
    // Exchanges the waker: its last handle goes, and with it the other waiter, in the same list.
    assert!(!poll(mine.as_mut(), Waker::noop()));
    drop(mine);
    drop(between);
    assert_eq!(queue.snapshot().ws_active, 0);
}

/// A dropped waiter passes its wake on; the waker it meets panics. Nothing is lost.
#[test]
fn a_panic_in_the_wake_passed_on_loses_no_bit() {
    let queue = Arc::new(SbitmapQueue::builder(1).build().unwrap());
    let bit = queue.get_blocking().unwrap();
    let bomb = Waker::from(Arc::new(Bomb(Arc::default())));
    let mut chosen = Box::pin(queue.get());
    assert!(!poll(chosen.as_mut(), Waker::noop()));
    let mut next = Box::pin(queue.get());
    assert!(!poll(next.as_mut(), &bomb));
    queue.put(bit).unwrap(); // chooses the first
    assert!(
        catch_unwind(AssertUnwindSafe(|| drop(chosen))).is_err(),
        "the wake went on"
    );
    drop(next);
    assert_eq!(queue.try_get(), Some(bit));
}

/// A collector that has all it wants tells the others, and one of their wakers panics: what it has
/// goes back, as its call does not return, and the next collector is let in.
#[test]
fn a_panic_at_the_end_of_a_collector_loses_no_bit() {
    for fairness in [Fairness::batched(), Fairness::fair(), Fairness::fifo()] {
        let queue = SbitmapQueue::builder(2).fairness(fairness).build().unwrap();
        let bit = queue.try_get().unwrap();
        let mut many = pin!(queue.get_many(2));
        assert!(!poll(many.as_mut(), Waker::noop()));
        let mut bad = Box::pin(queue.get());
        let bomb = Waker::from(Arc::new(Bomb(Arc::default())));
        assert!(!poll(bad.as_mut(), &bomb));
        queue.put(bit).unwrap();
        let polled = catch_unwind(AssertUnwindSafe(|| poll(many.as_mut(), Waker::noop())));
        let has = if polled.is_ok_and(|ready| ready) {
            2
        } else {
            0
        };
        drop(bad);
        assert_eq!(queue.weight(), has, "{fairness:?}");
        queue.put_batch(&[0, 1][..has]).unwrap();
        let mut next = pin!(queue.get_many(2));
        assert!(poll(next.as_mut(), Waker::noop()), "{fairness:?}");
    }
}

/// A collector finds that another one is in, and that one leaves before the first has left its
/// waker. So the first is let in and drops the waker again, which panics. Its call does not return,
/// and the next collector is let in.
#[test]
fn a_panic_at_the_beginning_of_a_collector_keeps_nobody_out() {
    type Collect = Pin<Box<dyn Future<Output = Vec<usize>>>>;

    inflight_sync::thread_local! {
        static INSIDE: RefCell<Option<Collect>> = const { RefCell::new(None) };
    }
    static FIRST: RawWakerVTable = RawWakerVTable::new(clone, nothing, nothing, nothing);
    static CLONE: RawWakerVTable = RawWakerVTable::new(clone, nothing, nothing, panics);

    fn clone(_: *const ()) -> RawWaker {
        drop(INSIDE.take());
        RawWaker::new(ptr::null(), &CLONE)
    }
    fn nothing(_: *const ()) {}
    fn panics(_: *const ()) {
        panic!("the drop of this waker panics on purpose");
    }

    let batched = SbitmapQueue::builder(2).fairness(Fairness::batched());
    let queue = Arc::new(batched.build().unwrap());
    let bit = queue.try_get().unwrap();
    let mut inside = Box::pin({
        let queue = queue.clone();
        async move { queue.get_many(2).await.unwrap() }
    });
    assert!(!poll(inside.as_mut(), Waker::noop()));
    INSIDE.set(Some(inside));
    // SAFETY: the functions use no data, and no other thread gets the waker.
    let waker = unsafe { Waker::from_raw(RawWaker::new(ptr::null(), &FIRST)) };
    let mut many = Box::pin(queue.get_many(2));
    let polled = catch_unwind(AssertUnwindSafe(|| poll(many.as_mut(), &waker)));
    assert!(polled.is_err(), "its waker was dropped");
    drop(many);
    queue.put(bit).unwrap();
    let mut next = pin!(queue.get_many(2));
    assert!(poll(next.as_mut(), Waker::noop()));
}

/// Throws what panics when it is dropped.
struct ThrowsBomb;

struct DropsBadly;

impl Drop for DropsBadly {
    fn drop(&mut self) {
        panic!("what was thrown panics on purpose");
    }
}

impl Wake for ThrowsBomb {
    fn wake(self: Arc<Self>) {
        std::panic::panic_any(DropsBadly);
    }
}

/// One waker of those who wait for a bit throws, and one of those who wait to collect. What they
/// throw panics when it is dropped. The first panic comes out of the call; the process goes on.
fn two_lists_throw(call: impl Fn(&SbitmapQueue)) {
    let batched = SbitmapQueue::builder(4).fairness(Fairness::batched());
    let queue = batched.build().unwrap();
    assert_eq!(queue.try_get_batch(4, &mut Vec::new()), 4);
    let mut inside = Box::pin(queue.get_many(2));
    assert!(!poll(inside.as_mut(), Waker::noop()));
    let throws = Waker::from(Arc::new(ThrowsBomb));
    let mut single = Box::pin(queue.get());
    assert!(!poll(single.as_mut(), &throws));
    let mut outside = Box::pin(queue.get_many(2));
    assert!(!poll(outside.as_mut(), &throws));
    let inside = std::cell::Cell::new(Some(inside));
    let called = catch_unwind(AssertUnwindSafe(|| {
        call(&queue);
        drop(inside.take());
    }));
    std::mem::forget(called.expect_err("the first panic comes out"));
}

#[test]
fn two_lists_throw_at_a_resize() {
    two_lists_throw(|queue| queue.resize(3).unwrap());
}

#[test]
fn two_lists_throw_at_a_close() {
    two_lists_throw(|queue| queue.close());
}

#[test]
fn two_lists_throw_at_the_end_of_a_collector() {
    two_lists_throw(|_| ());
}
