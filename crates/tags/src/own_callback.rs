//! Which callbacks of sets run on this thread: a callback must not wait for its own end.

use std::cell::RefCell;

inflight_sync::thread_local! {
    static RUNNING: RefCell<Vec<(Callback, usize)>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Callback {
    /// The build closure.
    Build,
    /// The hook before a wait.
    BeforeWait,
}

/// A callback of a set, by the set's address, runs on this thread until it is dropped.
pub(crate) struct Running(Callback, usize);

impl Running {
    /// `None` if it runs already.
    pub(crate) fn begin(callback: Callback, set: usize) -> Option<Self> {
        let begins = !Self::is(callback, set);
        // A thread that is ending keeps no list: nothing is detected there.
        let _ = RUNNING.try_with(|all| begins.then(|| all.borrow_mut().push((callback, set))));
        begins.then(|| Self(callback, set))
    }

    /// Whether it runs on this thread.
    pub(crate) fn is(callback: Callback, set: usize) -> bool {
        let runs = RUNNING.try_with(|all| all.borrow().contains(&(callback, set)));
        runs.unwrap_or(false)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Why ignored: as in `begin`.
        let _ = RUNNING.try_with(|all| all.borrow_mut().retain(|&one| one != (self.0, self.1)));
    }
}
