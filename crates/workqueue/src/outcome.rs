//! How a spawned function or future has ended, and who waits for that.

use crate::error::JoinError;
use inflight_sync::Mutex;
use inflight_sync::wait::Notify;
use std::mem;

/// What a handle waits for, and the function `F` until it runs: one word says where it is, and one
/// place holds first the one, then the other.
pub(crate) struct Outcome<T, F = Elsewhere>(Mutex<State<T, F>>);

/// The function is not kept here.
pub(crate) enum Elsewhere {}

/// There is one handle, so there is at most one who waits. Boxed, as most never do.
type Waiter = Option<Box<Notify>>;

enum State<T, F> {
    Unbegun {
        f: F,
        waiter: Waiter,
    },
    Open {
        waiter: Waiter,
    },
    /// The error is rare, and large.
    Done(Result<T, Box<JoinError>>),
    Taken,
}

impl<T, F> Outcome<T, F> {
    /// Of something that is done elsewhere.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(State::Open { waiter: None }))
    }

    /// Of this function.
    pub(crate) fn of(f: F) -> Self {
        Self(Mutex::new(State::Unbegun { f, waiter: None }))
    }

    /// The function, once: it runs, or is dropped.
    pub(crate) fn begin(&self) -> Option<F> {
        let mut state = self.0.lock();
        match mem::replace(&mut *state, State::Taken) {
            State::Unbegun { f, waiter } => {
                *state = State::Open { waiter };
                Some(f)
            }
            other => {
                *state = other;
                None
            }
        }
    }

    /// J1: sets the result. Only the first call counts.
    pub(crate) fn complete(&self, result: Result<T, JoinError>) {
        let mut state = self.0.lock();
        let State::Open { waiter } = &mut *state else {
            return;
        };
        let waiter = waiter.take();
        *state = State::Done(result.map_err(Box::new));
        drop(state);
        if let Some(waiter) = waiter {
            waiter.notify();
        }
    }

    /// J2: takes the result, or leaves word who is to be told of it.
    pub(crate) fn take_or_wait(
        &self,
        notify: &mut dyn FnMut() -> Notify,
    ) -> Option<Result<T, JoinError>> {
        if let Some(result) = self.0.lock().take() {
            return Some(result);
        }
        // A waker may run anything when it is cloned or dropped, so neither is under the lock.
        let mut notify = Some(notify());
        let mut state = self.0.lock();
        let result = state.take();
        if let State::Unbegun { waiter, .. } | State::Open { waiter } = &mut *state {
            match waiter {
                Some(old) => notify = notify.map(|new| mem::replace(&mut **old, new)),
                None => *waiter = notify.take().map(Box::new),
            }
        }
        drop(state);
        drop(notify);
        result
    }

    /// Whether the result has been set.
    pub(crate) fn is_set(&self) -> bool {
        let state = self.0.lock();
        matches!(*state, State::Done(_) | State::Taken)
    }
}

impl<T, F> State<T, F> {
    /// The result, once; `None` while there is none yet.
    fn take(&mut self) -> Option<Result<T, JoinError>> {
        if let Self::Unbegun { .. } | Self::Open { .. } = self {
            return None;
        }
        match mem::replace(self, Self::Taken) {
            Self::Done(result) => Some(result.map_err(|error| *error)),
            _ => Some(Err(JoinError::Taken)),
        }
    }
}
