//! The threads of a system, from their start to their being joined.

use inflight_sync::thread::JoinHandle;
use inflight_sync::{Arc, thread};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

inflight_sync::thread_local! {
    /// The address of the system whose thread this is, until the last of its locals is destroyed:
    /// those may hold the system too.
    // loom's macro has no const form.
    #[allow(clippy::missing_const_for_thread_local)]
    static SYSTEM: Cell<usize> = Cell::new(0);
    /// The name that this thread has been started with, if a system has started it.
    #[allow(clippy::missing_const_for_thread_local)]
    static NAME: RefCell<Option<Arc<str>>> = RefCell::new(None);
}

/// The name of the calling thread, if it is a system's.
pub(crate) fn name() -> Option<Arc<str>> {
    // While the thread's locals are being destroyed it has none.
    NAME.try_with(|name| name.borrow().clone()).ok().flatten()
}

#[derive(Default)]
pub(crate) struct Threads {
    /// In an order that is the same in every run: a model has to repeat itself.
    pub(crate) running: BTreeMap<u64, JoinHandle<()>>,
    pub(crate) started: u64,
    /// Threads whose function has returned.
    pub(crate) over: u64,
    /// One that has left before the system's end. The next one to leave joins it.
    left: Option<JoinHandle<()>>,
    /// No thread is started any more.
    pub(crate) stopped: bool,
    /// Somebody has taken the handles to join them.
    joining: bool,
    /// All threads have ended.
    pub(crate) joined: bool,
}

/// How a thread of the system ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The system goes on without it.
    Early,
    /// With the system, which joins it.
    WithSystem,
}

impl Threads {
    /// Whether all threads have done what they had to.
    pub(crate) fn are_over(&self) -> bool {
        self.stopped && self.over == self.started
    }

    /// The handles, for the first to ask: it is to join them.
    pub(crate) fn take(&mut self) -> Option<Vec<JoinHandle<()>>> {
        if std::mem::replace(&mut self.joining, true) {
            return None;
        }
        let running = std::mem::take(&mut self.running).into_values();
        Some(running.chain(self.left.take()).collect())
    }

    /// A thread is about to end before the system does. Returns another one that has done so, to be
    /// joined: threads that have left do not pile up.
    pub(crate) fn leave(&mut self, id: u64) -> Option<JoinHandle<()>> {
        // Not there: whoever shuts the system down has taken it, and joins it.
        let own = self.running.remove(&id)?;
        self.left.replace(own)
    }
}

/// The calling thread is that system's from now on, under the name that it was started with.
pub(crate) fn begin(system: usize) {
    SYSTEM.with(|s| s.set(system));
    NAME.with(|n| n.replace(thread::current_name().map(Into::into)));
}

/// Whether the calling thread is that system's.
pub(crate) fn is_of(system: usize) -> bool {
    SYSTEM.try_with(|s| s.get() == system).unwrap_or(false)
}
