//! What a worker that finds nothing does before it sleeps, once for each search: a sleep and a
//! wakeup take longer than many an item.
//!
//! A worker spins for a short time. Where a thread submits from the same CPU, and in a pool of one
//! CPU, it yields the CPU: the submitter goes on, and the worker has all that it queues at once.

use crate::worker_pool::WorkerPool;
use inflight_sync::time::Clock;
use inflight_sync::{cpu, hint, thread};
use std::time::Duration;

/// How long a worker spins: the least and the most. A wakeup takes longer than the most.
const SPIN: (Duration, Duration) = (Duration::from_micros(2), Duration::from_micros(20));

/// A yield that takes longer has kept waiting what came. So one is left out for each [`LEFT_OUT`]
/// of it, up to [`MAX_LEFT_OUT`]: the whole machine may have paused.
const LONG_YIELD: Duration = Duration::from_micros(200);
/// About what a yield takes if nobody else needs the CPU, and a search after it.
const LEFT_OUT: Duration = Duration::from_micros(2);
const MAX_LEFT_OUT: u128 = 16_384;

pub(super) struct Linger {
    /// How long it spins.
    spin: Duration,
    /// How many yields it still leaves out.
    left_out: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LingerMode {
    Spin,
    Yield,
}

impl Linger {
    pub(super) fn new() -> Self {
        Self {
            spin: SPIN.0,
            left_out: 0,
        }
    }

    /// How to linger on this CPU now. `None`: not at all.
    pub(super) fn mode(&mut self, pool: &WorkerPool) -> Option<LingerMode> {
        let is_submitters = pool.shared.submitters.is_heard(cpu::current());
        self.mode_if(!is_submitters && pool.attrs.target() > 1)
    }

    /// The same. `may_spin`: nobody else needs this CPU.
    fn mode_if(&mut self, may_spin: bool) -> Option<LingerMode> {
        if may_spin {
            return Some(LingerMode::Spin);
        }
        let yields = self.left_out == 0;
        self.left_out = self.left_out.saturating_sub(1);
        yields.then_some(LingerMode::Yield)
    }

    /// It counts as running and as a taker, so the first entry wakes no other worker.
    pub(super) fn wait(&mut self, mode: LingerMode, pool: &WorkerPool) {
        let clock = &pool.shared.clock;
        match mode {
            LingerMode::Spin => {
                let until = clock.now() + self.spin;
                while !pool.seems_to_have_work() && clock.now() < until {
                    for _ in 0..8 {
                        hint::spin_loop();
                    }
                }
            }
            LingerMode::Yield => {
                let began = clock.now();
                pool.set_yielded_cpu(cpu::current());
                thread::yield_now();
                pool.set_yielded_cpu(usize::MAX);
                self.yielded(clock.now() - began);
            }
        }
    }

    fn yielded(&mut self, time: Duration) {
        if time > LONG_YIELD {
            let times = time.as_nanos() / LEFT_OUT.as_nanos();
            self.left_out = times.min(MAX_LEFT_OUT) as u32;
        }
    }

    /// Sleeps, and adapts the time to spin to that, like the halt polling of virtual machines.
    pub(super) fn sleep(&mut self, clock: &Clock, until_woken: impl FnOnce()) {
        let began = clock.now();
        until_woken();
        let (least, most) = SPIN;
        self.spin = if clock.now() - began < most {
            (self.spin * 2).min(most)
        } else {
            (self.spin / 2).max(least)
        };
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_waits_long_for_its_cpu_seldom_yields() {
        let mut linger = Linger::new();
        linger.yielded(LONG_YIELD);
        assert_eq!(
            linger.mode_if(false),
            Some(LingerMode::Yield),
            "that was not long"
        );
        linger.yielded(Duration::from_millis(2));
        assert_eq!(linger.mode_if(true), Some(LingerMode::Spin), "another CPU");
        let left_out = (0..2_000).take_while(|_| linger.mode_if(false).is_none());
        assert_eq!(left_out.count(), 1_000);
        assert_eq!(linger.mode_if(false), Some(LingerMode::Yield));
        linger.yielded(Duration::MAX);
        assert_eq!(linger.left_out, 16_384);
    }

    #[test]
    fn a_worker_that_was_woken_soon_spins_longer() {
        let clock = Clock::manual();
        let mut linger = Linger::new();
        let mut slept = |micros| {
            linger.sleep(&clock, || clock.advance(Duration::from_micros(micros)));
            linger.spin.as_micros()
        };
        assert_eq!([19; 5].map(&mut slept), [4, 8, 16, 20, 20]);
        assert_eq!([20; 4].map(&mut slept), [10, 5, 2, 2]);
    }
}
