//! What the jobs, the signal handler and the main thread tell each other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::block::Corruption;

/// How many corrupted blocks are named; the rest is only counted.
pub(crate) const MAX_NAMED: usize = 10;

/// The state of a run, shared by all its threads.
#[derive(Debug)]
pub(crate) struct Control {
    stop: AtomicBool,
    interrupted: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    running: usize,
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
            interrupted: AtomicBool::new(false),
            state: Mutex::new(State {
                running: jobs,
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

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // The lock keeps the main thread from missing this between its look and its sleep.
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Ends the run on behalf of the user. Tells whether it was the first time.
    pub(crate) fn interrupt(&self) -> bool {
        let first = !self.interrupted.swap(true, Ordering::Relaxed);
        self.stop();
        first
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

    pub(crate) fn job_done(&self) {
        self.lock().running -= 1;
        self.changed.notify_all();
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

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every step on the state is complete in itself, so a panic elsewhere spoils nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
