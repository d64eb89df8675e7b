//! Lists of waiters, and a place to wait for a condition.
//!
//! A waiter is a sleeping thread or a task; both stand in the same list, so their order is common.

mod event;
mod list;

pub use event::{Event, WaitWhile};
pub use list::{Ticket, WaitList};

use crate::Unparker;
use std::task::Waker;

/// How to tell one waiter that it should look again.
///
/// ```
/// use inflight_sync::{Parker, wait::Notify};
/// let parker = Parker::current();
/// Notify::Thread(parker.unparker()).notify();
/// parker.park();
/// ```
#[derive(Clone, Debug)]
pub enum Notify {
    /// A thread that sleeps on its [`Parker`](crate::Parker).
    Thread(Unparker),
    /// A task.
    Task(Waker),
}

impl Notify {
    /// Wakes the waiter. Call it without holding a lock: a waker may run anything.
    ///
    /// ```
    /// # use inflight_sync::{Parker, wait::Notify};
    /// Notify::Thread(Parker::current().unparker()).notify();
    /// ```
    pub fn notify(self) {
        match self {
            Self::Thread(unparker) => unparker.unpark(),
            Self::Task(waker) => waker.wake(),
        }
    }
}
