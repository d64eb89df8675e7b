//! Where a job gets requests from that others completed: psync's workers, and the workers to whom
//! completions were steered.

use std::mem;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;

use inflight::tags::Tag;

use crate::slot::Slot;

/// One per job, on its own cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Inbox {
    finished: Mutex<Vec<Tag<Slot>>>,
    /// That of the job's engine.
    waker: OnceLock<Waker>,
}

impl Inbox {
    /// From now on whatever arrives wakes the job.
    pub(crate) fn attach(&self, waker: Waker) {
        // Why ignored: a job has one engine.
        let _ = self.waker.set(waker);
    }

    /// Appends what has arrived.
    pub(crate) fn empty_into(&self, finished: &mut Vec<Tag<Slot>>) {
        let arrived = mem::take(&mut *self.lock());
        if finished.is_empty() {
            *finished = arrived;
        } else {
            finished.extend(arrived);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Tag<Slot>>> {
        // A push is complete or has not begun, so a panic elsewhere spoils nothing.
        self.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives a request back to its job: the callback of the run's completions.
pub(crate) fn deliver(inboxes: &[Inbox], tag: Tag<Slot>) {
    let inbox = &inboxes[tag.job];
    inbox.lock().push(tag);
    if let Some(waker) = inbox.waker.get() {
        waker.wake_by_ref();
    }
}
