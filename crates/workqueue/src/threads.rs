//! The threads of a system, from their start until they are joined.

use inflight_sync::thread::JoinHandle;
use inflight_sync::{Arc, thread};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

inflight_sync::thread_local! {
    /// The address of the thread's system, valid until the last of its locals is destroyed.
    // loom's macro has no const form.
    #[allow(clippy::missing_const_for_thread_local)]
    static SYSTEM: Cell<usize> = Cell::new(0);
    /// The name that a system gave this thread when it started it.
    #[allow(clippy::missing_const_for_thread_local)]
    static NAME: RefCell<Option<Arc<str>>> = RefCell::new(None);
}

pub(crate) fn name() -> Option<Arc<str>> {
    // A thread whose locals are being destroyed has no name.
    NAME.try_with(|name| name.borrow().clone()).ok().flatten()
}

#[derive(Default)]
pub(crate) struct Threads {
    /// Ordered, so that each run of a model takes the same order.
    pub(crate) running: BTreeMap<u64, JoinHandle<()>>,
    pub(crate) started: u64,
    /// Threads whose function has returned.
    pub(crate) over: u64,
    /// A thread that ended before the system. The next one to end joins it.
    left: Option<JoinHandle<()>>,
    /// No more threads are started.
    pub(crate) stopped: bool,
    /// A thread has taken the handles to join them.
    joining: bool,
    pub(crate) joined: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The system continues without it.
    Early,
    /// With the system, which joins it.
    WithSystem,
}

impl Threads {
    pub(crate) fn are_over(&self) -> bool {
        self.stopped && self.over == self.started
    }

    /// The handles, for the first caller, which has to join them.
    pub(crate) fn take(&mut self) -> Option<Vec<JoinHandle<()>>> {
        if std::mem::replace(&mut self.joining, true) {
            return None;
        }
        let running = std::mem::take(&mut self.running).into_values();
        Some(running.chain(self.left.take()).collect())
    }

    /// A thread ends before the system. Returns an earlier one, to be joined.
    pub(crate) fn leave(&mut self, id: u64) -> Option<JoinHandle<()>> {
        // If it is not there, the thread that shuts the system down has taken it and joins it.
        let own = self.running.remove(&id)?;
        self.left.replace(own)
    }
}

/// Marks the calling thread as that system's, with the name that it was started with.
pub(crate) fn begin(system: usize) {
    SYSTEM.with(|s| s.set(system));
    NAME.with(|n| n.replace(thread::current_name().map(Into::into)));
}

pub(crate) fn is_of(system: usize) -> bool {
    SYSTEM.try_with(|s| s.get() == system).unwrap_or(false)
}
