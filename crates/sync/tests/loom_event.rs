//! Models of the event protocol (`wait/event.rs`), driving the shipped type.
//!
//! | weaken | fails |
//! |---|---|
//! | N2, the fence in `notify_all` | `h4_event_thread`, `h4_event_task` |
//! | W2, the fence after enqueueing | `h4_event_thread`, `h4_event_task` |

#![cfg(loom)]

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::model::{Bound, check};
use inflight_sync::time::Clock;
use inflight_sync::wait::Event;
use inflight_sync::{Arc, block_on, thread};
use std::time::Duration;

const UNBOUNDED: Bound = Bound {
    quick: None,
    deep: None,
};
const TWO: Bound = Bound {
    quick: Some(2),
    deep: Some(4),
};

struct Shared {
    busy: AtomicUsize,
    event: Event,
}

impl Shared {
    fn new(busy: usize) -> Arc<Self> {
        Arc::new(Self {
            busy: AtomicUsize::new(busy),
            event: Event::new(),
        })
    }

    fn busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 0
    }

    fn finish_one(&self) {
        self.busy.fetch_sub(1, Ordering::Relaxed); // N1
        self.event.notify_all();
    }
}

/// Store buffering between N1-N3 and W1-W3: the waiter must not sleep for ever.
#[test]
fn h4_event_thread() {
    check("h4_event_thread", UNBOUNDED, || {
        let shared = Shared::new(1);
        let notifier = thread::spawn({
            let shared = shared.clone();
            move || shared.finish_one()
        });
        shared.event.wait_while(|| shared.busy());
        assert!(!shared.busy());
        notifier.join().unwrap();
    });
}

/// The same as a task.
#[test]
fn h4_event_task() {
    check("h4_event_task", UNBOUNDED, || {
        let shared = Shared::new(1);
        let notifier = thread::spawn({
            let shared = shared.clone();
            move || shared.finish_one()
        });
        block_on(shared.event.listen_while(|| shared.busy()));
        assert!(!shared.busy());
        notifier.join().unwrap();
    });
}

/// A waiter woken while its condition still holds goes back to sleep and is woken again.
#[test]
fn event_woken_too_early() {
    check("event_woken_too_early", TWO, || {
        let shared = Shared::new(2);
        let notifiers = [(); 2].map(|()| {
            let shared = shared.clone();
            thread::spawn(move || shared.finish_one())
        });
        shared.event.wait_while(|| shared.busy());
        assert!(!shared.busy());
        notifiers.into_iter().for_each(|n| n.join().unwrap());
    });
}

/// A future that blocks its own thread between its waker's news and the executor's sleep.
#[test]
fn block_on_with_a_nested_wait() {
    check("block_on_with_a_nested_wait", TWO, || {
        let outer = Shared::new(1);
        let inner = Shared::new(1);
        let notifier = thread::spawn({
            let (outer, inner) = (outer.clone(), inner.clone());
            move || {
                outer.finish_one();
                inner.finish_one();
            }
        });
        block_on(async {
            let mut waited = false;
            let condition = || {
                if !std::mem::replace(&mut waited, true) {
                    inner.event.wait_while(|| inner.busy());
                }
                outer.busy()
            };
            outer.event.listen_while(condition).await;
        });
        notifier.join().unwrap();
    });
}

/// A manual clock moved past the deadline wakes the timed waiter, whatever the order.
#[test]
fn h4_manual_clock_deadline() {
    check("h4_manual_clock_deadline", UNBOUNDED, || {
        let clock = Clock::manual();
        let deadline = clock.now() + Duration::from_nanos(1);
        let mover = thread::spawn({
            let clock = clock.clone();
            move || clock.advance(Duration::from_nanos(1))
        });
        let event = Event::new();
        assert!(
            !event.wait_while_until(&clock, deadline, || true),
            "nobody ends the condition"
        );
        mover.join().unwrap();
    });
}
