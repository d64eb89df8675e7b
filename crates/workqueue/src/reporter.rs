//! Tells users of what the system has found out, on a thread of its own: a slow callback holds up
//! nothing but later reports, and destructors for which the timer has no time.

use inflight_sync::{Mutex, Unparker};
use std::collections::VecDeque;
use std::io;

/// So many reports wait at most; what is more is dropped.
pub(crate) const WAITING_MAX: usize = 1_024;

/// One call of a user's function.
pub(crate) type Report = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(crate) struct Reporter(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: VecDeque<Report>,
    started: bool,
    thread: Option<Unparker>,
    stopped: bool,
    dropped: u64,
}

impl Reporter {
    /// The report is given soon, after those before it. Gives it back if `most` wait, or for want
    /// of a thread, which is started by `start` if it is not there.
    pub(crate) fn push<F>(
        &self,
        most: usize,
        report: F,
        start: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), F>
    where
        F: FnOnce() + Send + 'static,
    {
        let mut state = self.0.lock();
        if !state.started && !state.stopped {
            state.started = start().is_ok();
        }
        if state.stopped || !state.started || state.waiting.len() >= most {
            return Err(report);
        }
        state.waiting.push_back(Box::new(report));
        let thread = state.thread.clone();
        drop(state);
        if let Some(thread) = thread {
            thread.unpark();
        }
        Ok(())
    }

    /// A report has been dropped.
    pub(crate) fn drop_one(&self) {
        self.0.lock().dropped += 1;
    }

    /// For the thread, which sleeps there: the next report, and whether none comes after the last.
    pub(crate) fn next(&self, thread: impl FnOnce() -> Unparker) -> (Option<Report>, bool) {
        let mut state = self.0.lock();
        state.thread.get_or_insert_with(thread);
        (state.waiting.pop_front(), state.stopped)
    }

    /// The thread looks again: where it is to run has changed.
    pub(crate) fn poke(&self) {
        let thread = self.0.lock().thread.clone();
        if let Some(thread) = thread {
            thread.unpark();
        }
    }

    /// How many reports were dropped because too many waited, or for want of a thread.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.lock().dropped
    }

    /// The thread leaves when it has given what waits.
    pub(crate) fn stop(&self) {
        self.0.lock().stopped = true;
        self.poke();
    }
}
