//! Pools of threads that run closures, side by side, and the loads they are measured under.

mod count;
mod loads;
mod memory;
mod ours;
mod own_loads;
mod rivals;
mod submitted;

pub use count::Spent;
pub(crate) use loads::compute;
pub use loads::{Burst, PoolLoads, thread_count};
pub use memory::{Memory, memory_of, memory_of_queued};
pub(crate) use ours::OwnWork;
pub use ours::{DEFAULT_MAX_ACTIVE, Kind, Own, ours};
pub use own_loads::{Again, Bystander, Pending, Queues, Reusable, flush_latency};
pub use rivals::{growing_rivals, rivals};
pub use submitted::Submitted;

use crate::Part;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Runs closures on threads of its own.
pub trait Pool: fmt::Debug + Send + Sync + 'static {
    /// Queues `f`, without a wait for its end.
    fn spawn(&self, f: impl FnOnce() + Send + 'static);

    /// Queues `f`; what is returned waits for its result. Through a channel, where the pool has no
    /// handle of its own.
    fn spawn_waited(&self, f: impl FnOnce() -> u64 + Send + 'static) -> impl FnOnce() -> u64 {
        let (send, receive) = crossbeam::channel::bounded(1);
        self.spawn(move || send.send(f()).expect("its receiver waits"));
        move || receive.recv().expect("its sender runs")
    }

    /// Queues a closure, and returns when the calling thread knows that it has run.
    fn ping(&self) {
        static REACHED: AtomicBool = AtomicBool::new(false);
        REACHED.store(false, Ordering::Relaxed);
        let me = thread::current();
        self.spawn(move || {
            // Ordering: Release, pairs with the load below.
            REACHED.store(true, Ordering::Release);
            me.unpark();
        });
        // Ordering: Acquire, pairs with the store above.
        while !REACHED.load(Ordering::Acquire) {
            thread::park();
        }
    }

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
    /// Makes one with this many threads, or more if it grows by itself.
    pub make: fn(usize) -> Box<dyn PoolLoads>,
}
