//! Tells users of what the system has found out, on a thread of its own: a slow callback holds up
//! nothing but later reports, and destructors for which the timer has no time.

use crate::panics::contained;
use crate::system_shared::SystemShared;
use crate::threads::End;
use inflight_sync::{Arc, Mutex, Parker, Unparker};
use std::collections::VecDeque;

/// So many reports wait at most; what is more is dropped.
const WAITING_MAX: usize = 1_024;

/// One call of a user's function.
type Report = Box<dyn FnOnce() + Send>;

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
    /// The report is given soon, after those before it.
    pub(crate) fn send(&self, shared: &Arc<SystemShared>, report: impl FnOnce() + Send + 'static) {
        if self.push(shared, WAITING_MAX, report).is_err() {
            self.0.lock().dropped += 1;
        }
    }

    /// Gives it back if so many wait, or for want of a thread.
    fn push<F>(&self, shared: &Arc<SystemShared>, most: usize, report: F) -> Result<(), F>
    where
        F: FnOnce() + Send + 'static,
    {
        let mut state = self.0.lock();
        if !state.started && !state.stopped {
            let me = shared.clone();
            let started = shared.start_thread("inflight/report".to_owned(), move || run(&me));
            state.started = started.is_ok();
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

impl SystemShared {
    /// Does what may run destructors of users: as a report if this is the timer's thread, which may
    /// not be held up. Here if there is no thread for that.
    pub(crate) fn apart(self: &Arc<Self>, f: impl FnOnce() + Send + 'static) {
        if !self.timers.is_own_thread() {
            return f();
        }
        if let Err(f) = self.reporter.push(self, usize::MAX, f) {
            f();
        }
    }
}

fn run(shared: &Arc<SystemShared>) -> End {
    let parker = Parker::current();
    let mut settled = None;
    loop {
        let refreshed = shared.refreshed();
        if settled.replace(refreshed) != Some(refreshed) {
            shared.settle_housekeeper(0);
        }
        let (report, stopped) = {
            let mut state = shared.reporter.0.lock();
            state.thread.get_or_insert_with(|| parker.unparker());
            (state.waiting.pop_front(), state.stopped)
        };
        match report {
            Some(report) => drop(contained(report)),
            None if stopped => return End::WithSystem,
            None => parker.park(),
        }
    }
}
