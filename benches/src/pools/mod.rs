//! Pools of threads that run closures, side by side, and the loads they are measured under.

mod loads;
mod memory;
mod ours;
mod rivals;

pub(crate) use loads::compute;
pub use loads::{Burst, PoolLoads, Spent, thread_count};
pub use memory::{Memory, memory_of};
pub use ours::{
    Again, Pending, Reusable, limited, memory_of_queued, metered, ours, ping_bound, ping_call,
};
pub use rivals::rivals;

use crate::Part;
use std::fmt;

/// Runs closures on threads of its own.
pub trait Pool: fmt::Debug + Send + Sync + 'static {
    /// Queues `f`; nobody waits for its end.
    fn spawn(&self, f: impl FnOnce() + Send + 'static);

    /// Around something that sleeps, on a thread of this pool.
    fn may_sleep(f: impl FnOnce()) {
        f();
    }

    /// Whether [`may_sleep`](Pool::may_sleep) says something to the pool.
    const CAN_SAY: bool = false;
}

/// One of those compared.
#[derive(Clone, Copy, Debug)]
pub struct PoolContender {
    /// What tables call it.
    pub name: &'static str,
    /// Ours or a rival, and which part it plays in a ratio.
    pub part: Part,
    /// Makes one with so many threads, or that may grow beyond.
    pub make: fn(usize) -> Box<dyn PoolLoads>,
    /// It starts a thread for nearly every closure: too slow for the loads of many small ones.
    pub grows: bool,
}
