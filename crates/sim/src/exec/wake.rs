//! How long a woken task takes until it runs.

use super::TaskId;
use fastrand::Rng;
use std::time::Duration;

/// A task that was woken.
#[derive(Clone, Copy, Debug)]
pub struct Wake {
    /// The woken task.
    pub task: TaskId,
    /// Where it runs.
    pub cpu: usize,
    /// How many others the same event has woken before it.
    pub rank: usize,
}

/// Says how long after its wake a task runs.
pub trait WakeModel {
    /// The time from this wake to the poll.
    fn delay(&mut self, wake: Wake, rng: &mut Rng) -> Duration;
}

/// Woken tasks run at once, in the order of their wakes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Immediate;

impl WakeModel for Immediate {
    fn delay(&mut self, _: Wake, _: &mut Rng) -> Duration {
        Duration::ZERO
    }
}

/// A waker needs some time for each of its wakes, and the scheduler a random time for each of the
/// woken.
#[derive(Clone, Copy, Debug)]
pub struct SchedulerLatency {
    /// The waker's time for each of those it wakes first.
    pub rank: Duration,
    /// The mean of the exponentially distributed rest.
    pub mean: Duration,
}

impl WakeModel for SchedulerLatency {
    fn delay(&mut self, wake: Wake, rng: &mut Rng) -> Duration {
        let rank = u32::try_from(wake.rank).unwrap_or(u32::MAX);
        // From the half-open interval, so that the logarithm is of a number above zero.
        let rest = -(1.0 - rng.f64()).ln();
        self.rank * rank + self.mean.mul_f64(rest)
    }
}
