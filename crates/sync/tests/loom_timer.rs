//! Models of the timer (`time/timer.rs`), driving the shipped type.
//!
//! | weaken | fails |
//! |---|---|
//! | who comes first does not unpark the thread | `h4_timer_second_task_is_first` |
//! | the drop does not unpark the thread | all |
//! | the drop wakes nobody | `h4_timer_is_dropped` |

#![cfg(loom)]

use inflight_sync::model::{Bound, check};
use inflight_sync::time::{Clock, Sleep, Timer};
use inflight_sync::{block_on, thread};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

const TWO: Bound = Bound {
    quick: Some(2),
    deep: Some(3),
};
const SECOND: Duration = Duration::from_secs(1);

fn sleep(timer: &Timer, seconds: u32) -> Sleep {
    timer.sleep_until(timer.clock().now() + SECOND * seconds)
}

/// The task waits, the thread begins, and the time comes, in any order.
#[test]
fn h4_timer() {
    check("h4_timer", TWO, || {
        let clock = Clock::manual();
        let timer = Timer::new(clock.clone());
        let sleep = sleep(&timer, 1);
        let advances = thread::spawn(move || clock.advance(SECOND));
        block_on(sleep);
        advances.join().unwrap();
    });
}

/// The thread sleeps, or is about to, for a later time than that of who comes now.
#[test]
fn h4_timer_second_task_is_first() {
    check("h4_timer_second_task_is_first", TWO, || {
        let clock = Clock::manual();
        let timer = Timer::new(clock.clone());
        let (mut long, short) = (sleep(&timer, 9), sleep(&timer, 1));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut long).poll(&mut cx).is_pending());
        let advances = thread::spawn(move || clock.advance(SECOND));
        block_on(short);
        advances.join().unwrap();
    });
}

/// Nobody sleeps on when the timer is gone.
#[test]
fn h4_timer_is_dropped() {
    check("h4_timer_is_dropped", TWO, || {
        let timer = Timer::new(Clock::manual());
        let sleep = sleep(&timer, 1);
        let drops = thread::spawn(move || drop(timer));
        block_on(sleep);
        drops.join().unwrap();
    });
}
