//! Models of futures as items. Events as in `PROTOCOL.md`.

#![cfg(loom)]

mod model_support;

use inflight_sync::model::check;
use inflight_sync::{Arc, Mutex, thread};
use inflight_workqueue::JoinError;
use model_support::{Count, THREE, system};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// I.26 for futures: the event comes while the future is polled, or about to be. The wake must lead
/// to a poll that sees it; nobody wakes it again.
#[test]
fn i26_wake_against_poll() {
    check("i26_wake_against_poll", THREE, || {
        let (sys, wq) = system(1, 8);
        let pool = wq.manual_pool(0);
        let event = Count::new();
        let slot: Arc<Mutex<Option<Waker>>> = Arc::new(Mutex::new(None));
        let handle = wq.spawn_future({
            let (event, slot) = (event.clone(), slot.clone());
            poll_fn(move |cx| {
                let before = slot.lock().replace(cx.waker().clone());
                drop(before);
                if event.get() == 0 {
                    return Poll::Pending;
                }
                Poll::Ready(7)
            })
        });
        let waker = thread::spawn({
            let slot = slot.clone();
            move || {
                event.add();
                let waker = slot.lock().take();
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
        });
        // The first poll, and maybe the one that the wake is for.
        (0..2).for_each(|_| _ = pool.draw(1));
        waker.join().unwrap();
        pool.draw(1);
        assert!(handle.is_finished(), "the wake was lost");
        assert_eq!(handle.wait().unwrap(), 7);
        let left = slot.lock().take();
        drop(left);
        drop(sys);
    });
}

/// The future is aborted while it is queued, polled or between two polls. The handle resolves, and
/// the future is gone.
#[test]
fn abort_against_poll() {
    check("abort_against_poll", THREE, || {
        let (sys, wq) = system(1, 8);
        let slot: Arc<Mutex<Option<Waker>>> = Arc::new(Mutex::new(None));
        let held = Arc::new(());
        let handle = wq.spawn_future({
            let (slot, held) = (slot.clone(), held.clone());
            poll_fn(move |cx| {
                let _held = &held;
                let before = slot.lock().replace(cx.waker().clone());
                drop(before);
                Poll::<()>::Pending
            })
        });
        assert!(handle.try_cancel(), "it never ends by itself");
        assert!(matches!(handle.wait(), Err(JoinError::Cancelled)));
        drop(sys);
        assert_eq!(Arc::strong_count(&held), 1);
        let left = slot.lock().take();
        drop(left);
    });
}
