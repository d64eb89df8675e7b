//! What a worker that finds nothing does before it sleeps, once until it has found something: a
//! sleep and a wakeup take longer than many an item.
//!
//! A worker spins for a short time. Where a thread submits from the same CPU, and in a pool of one
//! CPU, that would only delay what comes. There it yields the CPU: the submitter goes on, and if it
//! queues more and then waits, the worker has all of that at once.

use crate::worker_pool::WorkerPool;
use inflight_sync::time::Clock;
use inflight_sync::{cpu, hint, thread};
use std::time::Duration;

/// How long a worker spins: the least and the most. A wakeup takes longer than the most.
const SPIN: (Duration, Duration) = (Duration::from_micros(2), Duration::from_micros(20));

/// A yield that takes longer than this has kept waiting what came meanwhile. So a yield is left out
/// for each [`LEFT_OUT`] that it took.
const LONG_YIELD: Duration = Duration::from_micros(200);
const LEFT_OUT: Duration = Duration::from_micros(2);

/// How one worker lingers.
pub(super) struct Linger {
    /// How long it spins.
    spin: Duration,
    /// How many yields it still leaves out.
    left_out: u32,
}

/// One of the two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
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
    pub(super) fn way(&mut self, pool: &WorkerPool) -> Option<Way> {
        let is_submitters = pool.shared.submitters.is_heard(cpu::current());
        self.way_if(!is_submitters && pool.attrs.target() > 1)
    }

    /// The same, if others do not need this CPU, or if they may.
    fn way_if(&mut self, may_spin: bool) -> Option<Way> {
        if may_spin {
            return Some(Way::Spin);
        }
        let yields = self.left_out == 0;
        self.left_out = self.left_out.saturating_sub(1);
        yields.then_some(Way::Yield)
    }

    /// Lingers. The worker counts as running and as a taker, so the first entry wakes no other
    /// worker.
    pub(super) fn wait(&mut self, way: Way, pool: &WorkerPool) {
        let clock = &pool.shared.clock;
        match way {
            Way::Spin => {
                let until = clock.now() + self.spin;
                while !pool.seems_to_have_work() && clock.now() < until {
                    for _ in 0..8 {
                        hint::spin_loop();
                    }
                }
            }
            Way::Yield => {
                let began = clock.now();
                thread::yield_now();
                self.yielded(clock.now() - began);
            }
        }
    }

    fn yielded(&mut self, time: Duration) {
        if time > LONG_YIELD {
            let times = time.as_nanos() / LEFT_OUT.as_nanos();
            self.left_out = u32::try_from(times).unwrap_or(u32::MAX);
        }
    }

    /// Sleeps, and adapts the time to spin to how long it slept, like the halt polling of virtual
    /// machines.
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
        assert_eq!(linger.way_if(false), Some(Way::Yield), "that was not long");
        linger.yielded(Duration::from_millis(2));
        assert_eq!(linger.way_if(true), Some(Way::Spin), "another CPU");
        let left_out = (0..2_000).take_while(|_| linger.way_if(false).is_none());
        assert_eq!(left_out.count(), 1_000);
        assert_eq!(linger.way_if(false), Some(Way::Yield));
        linger.yielded(Duration::MAX);
        assert_eq!(linger.left_out, u32::MAX);
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
