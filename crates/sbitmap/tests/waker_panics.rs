//! Wakers that panic: the panic reaches the putter, and everybody else is woken.
#![cfg(not(any(loom, shuttle)))]

#[path = "common/tasks.rs"]
mod tasks;

use inflight_sbitmap::SbitmapQueue;
use inflight_sync::Arc;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Wake, Waker};
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

fn poll<F: Future>(future: Pin<&mut F>, waker: &Waker) -> bool {
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
