//! The calls for a rescuer, and where it sleeps.

use inflight_sync::atomic::{AtomicU64, Ordering};
use inflight_sync::{Arc, Mutex, Unparker};
use std::collections::VecDeque;

/// Pools in which items of a queue wait and that get no threads.
pub(crate) struct MaydayList<P> {
    state: Mutex<State<P>>,
    /// Relaxed: a statistic.
    maydays: AtomicU64,
}

struct State<P> {
    /// Pools that have called, oldest call first, each once.
    calls: VecDeque<Arc<P>>,
    /// Where the thread sleeps, once it has arrived.
    thread: Option<Unparker>,
    /// Its number, if threads have one.
    number: Option<u32>,
    /// The thread leaves when no call is left.
    stopped: bool,
}

impl<P> Default for MaydayList<P> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                calls: VecDeque::new(),
                thread: None,
                number: None,
                stopped: false,
            }),
            maydays: AtomicU64::new(0),
        }
    }
}

impl<P> MaydayList<P> {
    /// *mayday*: an item of the queue waits in a pool that gets no threads.
    pub(crate) fn call(&self, pool: &Arc<P>) {
        let thread = {
            let mut state = self.state.lock();
            if state.calls.iter().any(|p| Arc::ptr_eq(p, pool)) {
                return;
            }
            state.calls.push_back(pool.clone());
            state.thread.clone()
        };
        self.maydays.fetch_add(1, Ordering::Relaxed);
        // A thread that has not arrived yet looks when it does.
        if let Some(thread) = thread {
            thread.unpark();
        }
    }

    /// The queue is empty and takes nothing more: the thread may go.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.poke();
    }

    /// The thread looks again: where it is to run may have changed.
    pub(crate) fn poke(&self) {
        let thread = self.state.lock().thread.clone();
        if let Some(thread) = thread {
            thread.unpark();
        }
    }

    pub(crate) fn maydays(&self) -> u64 {
        self.maydays.load(Ordering::Relaxed)
    }

    /// The number of its thread, if that has arrived.
    pub(crate) fn thread(&self) -> Option<u32> {
        self.state.lock().number
    }

    /// The rescuer sleeps there, and its thread has that number.
    pub(crate) fn arrive(&self, thread: Unparker, number: Option<u32>) {
        let mut state = self.state.lock();
        (state.thread, state.number) = (Some(thread), number);
    }

    /// The pool that has called first, and whether the rescuer is to leave if there is none.
    pub(crate) fn next(&self) -> (Option<Arc<P>>, bool) {
        let mut state = self.state.lock();
        (state.calls.pop_front(), state.stopped)
    }
}
