//! What the jobs, the signal handler and the main thread tell each other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::anyhow;

use crate::block::Corruption;

/// How many corrupted blocks are named; the rest is only counted.
pub(crate) const MAX_NAMED: usize = 10;

/// The state of a run, shared by all its threads.
#[derive(Debug)]
pub(crate) struct Control {
    stop: AtomicBool,
    /// Whether what jobs do counts.
    counting: AtomicBool,
    interrupted: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Jobs that are not ready yet.
    preparing: usize,
    running: usize,
    /// Whether the jobs may begin.
    begun: bool,
    failure: Option<anyhow::Error>,
    /// Offsets already named, at most `MAX_NAMED`.
    named: Vec<u64>,
    /// Those among them not yet printed.
    unprinted: Vec<Corruption>,
}

impl Control {
    pub(crate) fn new(jobs: usize) -> Self {
        Self {
            stop: AtomicBool::new(false),
            counting: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            state: Mutex::new(State {
                preparing: jobs,
                running: jobs,
                begun: false,
                failure: None,
                named: Vec::new(),
                unprinted: Vec::new(),
            }),
            changed: Condvar::new(),
        }
    }

    /// Whether jobs should start nothing new.
    pub(crate) fn stopped(&self) -> bool {
        // Ordering: Relaxed, a job may well start one block more.
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether the run's ramp is over.
    pub(crate) fn counts(&self) -> bool {
        // Ordering: Relaxed, a block more or less does not matter.
        self.counting.load(Ordering::Relaxed)
    }

    /// Ends the ramp.
    pub(crate) fn count_from_now(&self) {
        self.counting.store(true, Ordering::Relaxed);
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // The lock keeps the main thread from missing this between its look and its sleep.
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Ends the run on behalf of the user.
    pub(crate) fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Relaxed);
        self.stop();
    }

    pub(crate) fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Ends the run because of an error; the first one is kept.
    pub(crate) fn fail(&self, error: anyhow::Error) {
        self.lock().failure.get_or_insert(error);
        self.stop();
    }

    pub(crate) fn take_failure(&self) -> Option<anyhow::Error> {
        self.lock().failure.take()
    }

    /// Keeps a corrupted block for printing, if it is among the first different ones.
    pub(crate) fn corrupted(&self, corruption: Corruption) {
        let mut state = self.lock();
        if state.named.len() < MAX_NAMED && !state.named.contains(&corruption.offset) {
            state.named.push(corruption.offset);
            state.unprinted.push(corruption);
        }
    }

    /// The corrupted blocks found since the last call.
    pub(crate) fn take_corruptions(&self) -> Vec<Corruption> {
        std::mem::take(&mut self.lock().unprinted)
    }

    /// Lets the jobs begin once all of them are ready, and tells when that was; `None` if the run
    /// was stopped before.
    pub(crate) fn begin(&self) -> Option<Instant> {
        let preparing = |state: &mut State| state.preparing > 0;
        let state = self.changed.wait_while(self.lock(), preparing);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let begun = (!self.stopped()).then(Instant::now);
        state.begun = true;
        drop(state);
        self.changed.notify_all();
        begun
    }

    /// Waits until every job is done, the run was stopped from elsewhere, or `timeout` is over.
    /// Tells how many jobs still run.
    pub(crate) fn wait(&self, timeout: Duration) -> usize {
        let stopped = self.stopped();
        let waiting = |state: &mut State| state.running > 0 && self.stopped() == stopped;
        let (state, _) = self
            .changed
            .wait_timeout_while(self.lock(), timeout, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        state.running
    }

    fn job_ready(&self) {
        self.lock().preparing -= 1;
        self.changed.notify_all();
    }

    fn job_done(&self) {
        self.lock().running -= 1;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every step on the state is complete in itself, so a panic elsewhere spoils nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A job's place at the common start. However its thread ends, the job counts as ready and as done,
/// so that nobody waits for it.
#[derive(Debug)]
pub(crate) struct Starter<'a> {
    control: &'a Control,
    ready: bool,
}

impl<'a> Starter<'a> {
    /// For one of the jobs `control` was made for.
    pub(crate) fn new(control: &'a Control) -> Self {
        Self {
            control,
            ready: false,
        }
    }

    /// Says that the job is ready, and waits until all others are.
    pub(crate) fn line_up(&mut self) {
        self.ready = true;
        self.control.job_ready();
        let waiting = |state: &mut State| !state.begun;
        let begun = self
            .control
            .changed
            .wait_while(self.control.lock(), waiting);
        drop(begun.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Starter<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.control.fail(anyhow!("a job panicked"));
        }
        if !self.ready {
            self.control.job_ready();
        }
        self.control.job_done();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn nobody_begins_before_the_last_is_ready() {
        let control = Control::new(3);
        let ready = std::sync::atomic::AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut starter = Starter::new(&control);
                    ready.fetch_add(1, Ordering::Relaxed);
                    starter.line_up();
                    assert_eq!(ready.load(Ordering::Relaxed), 3);
                });
            }
            assert!(control.begin().is_some());
        });
        assert_eq!(control.wait(Duration::ZERO), 0);
        assert!(control.take_failure().is_none());
    }

    #[test]
    fn a_job_that_fails_before_the_start_holds_up_nobody() {
        let control = Control::new(2);
        thread::scope(|scope| {
            scope.spawn(|| Starter::new(&control).line_up());
            let failing = Starter::new(&control);
            control.fail(anyhow!("no ring"));
            drop(failing);
            assert!(control.begin().is_none(), "it never started");
        });
        assert_eq!(control.wait(Duration::ZERO), 0);
        assert_eq!(control.take_failure().unwrap().to_string(), "no ring");
    }
}
