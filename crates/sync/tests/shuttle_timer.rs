//! Random schedules of a timer: tasks that ask again with other wakers, that give up, and whose
//! time comes before that of others; a thread that is refused; a timer that goes.
#![cfg(shuttle)]

mod shuttle_support;

use inflight_sync::fault::Faults;
use inflight_sync::model::{check_pct, check_random};
use inflight_sync::time::{Clock, Timer};
use inflight_sync::{Arc, block_on};
use shuttle_support::{Threads, polled};
use std::pin::pin;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Schedules of each kind.
const RUNS: usize = 200;

fn check(name: &str, model: fn()) {
    check_random(name, RUNS, model);
    check_pct(name, RUNS, 3, model);
}

/// Three threads sleep twice each. Some have polled before, or given up one that comes first.
fn three_sleep() {
    let (clock, faults) = (Clock::manual(), Faults::new());
    let timer = Arc::new(Timer::with_faults(clock.clone(), &faults));
    faults.fail_next_spawns(2);
    let mut threads = Threads::default();
    for (n, seconds) in [[3, 1], [2, 2], [1, 4]].into_iter().enumerate() {
        threads.on(&timer, move |timer| {
            for seconds in seconds {
                let until = |seconds| timer.clock().now() + SECOND * seconds;
                polled(timer.sleep_until(until(1)), n);
                let until = until(seconds);
                let mut sleep = pin!(timer.sleep_until(until));
                if polled(sleep.as_mut(), n).is_none() {
                    block_on(sleep);
                }
                assert!(timer.clock().now() >= until);
            }
        });
    }
    threads.join_ticking(&clock, SECOND / 2);
}

/// Two wait for a time that does not come: the timer goes.
fn the_timer_goes() {
    let timer = Timer::new(Clock::manual());
    let mut threads = Threads::default();
    for seconds in [1, 2] {
        let sleep = timer.sleep_until(timer.clock().now() + SECOND * seconds);
        threads.spawn(move || block_on(sleep));
    }
    drop(timer);
    threads.join();
}

#[test]
fn sleeps() {
    check("sleeps", three_sleep);
}

#[test]
fn sleeps_end_with_their_timer() {
    check("sleeps_end_with_their_timer", the_timer_goes);
}
