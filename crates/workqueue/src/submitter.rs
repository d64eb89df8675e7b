//! Who the calling thread is to those that count submitters: Y7 of `PROTOCOL-lending.md`.
//!
//! In a model nobody counts them: each step costs it dearly.

#[cfg(any(loom, shuttle))]
pub(crate) use model::{is_a_worker, note};
#[cfg(not(any(loom, shuttle)))]
pub(crate) use thread::{is_a_worker, note};

#[cfg(not(any(loom, shuttle)))]
mod thread {
    use crate::lending::Crowd;
    use std::cell::Cell;

    // Const and without a destructor: one load from the thread's own memory.
    inflight_sync::thread_local! {
        /// Whether the thread is a worker's. Where this lies is its name: no two threads that live
        /// have the same one.
        static IS_WORKER: Cell<usize> = const { Cell::new(0) };
    }

    /// The calling thread runs items, for good: its pool knows of it.
    pub(crate) fn is_a_worker() {
        IS_WORKER.with(|worker| worker.set(1));
    }

    /// Y7: the calling thread submits on that CPU.
    #[inline]
    pub(crate) fn note(crowd: &Crowd, cpu: usize) {
        IS_WORKER.with(|worker| {
            if worker.get() == 0 {
                crowd.note(std::ptr::from_ref(worker).addr(), cpu);
            }
        });
    }
}

#[cfg(any(loom, shuttle))]
mod model {
    use crate::lending::Crowd;

    pub(crate) fn is_a_worker() {}

    pub(crate) fn note(_: &Crowd, _: usize) {}
}
