//! Futures of a queue that have not ended; the end of the queue ends them.

use crate::error::{JoinError, QueueError};
use crate::panics::contained;
use inflight_sync::{Mutex, Weak};

pub(crate) trait Ends: Send + Sync {
    /// Ends it; after the poll if it is being polled. `false` if it has ended.
    fn end(&self, why: JoinError) -> bool;

    /// No poll follows: the item drops its reference.
    fn forget_wake(&self);
}

#[derive(Default)]
pub(crate) struct Unfinished(Mutex<Register>);

#[derive(Default)]
struct Register {
    tasks: Vec<Weak<dyn Ends>>,
    /// How many tasks remained after the last cleanup.
    before: usize,
}

impl Unfinished {
    /// Called before the task is submitted: if the queue has ended by then, it refuses the task.
    pub(crate) fn add(&self, task: Weak<dyn Ends>) {
        let mut register = self.0.lock();
        if register.tasks.len() > 2 * register.before + 16 {
            register.tasks.retain(|task| task.strong_count() > 0);
            register.before = register.tasks.len();
        }
        register.tasks.push(task);
    }

    /// The queue accepts nothing more, and nothing is in flight: ends the futures.
    pub(crate) fn end(&self, why: QueueError) {
        let tasks = std::mem::take(&mut self.0.lock().tasks);
        for task in tasks {
            if let Some(task) = task.upgrade() {
                task.end(JoinError::Rejected(why));
                contained(|| drop(task));
            }
        }
    }
}
