//! The back end of the stacks of a model's queues.

use inflight_sync::percpu::Backend;
use inflight_sync::thread_local;
use std::cell::Cell;

thread_local! {
    static BACKEND: Cell<Backend> = Cell::new(Backend::TryLock);
}

/// The stacks of queues that this thread builds from now on in this execution. The try-lock until
/// somebody says otherwise: the busy flag asks that no two threads are on one CPU.
pub fn set_backend(backend: Backend) {
    BACKEND.with(|chosen| chosen.set(backend));
}

pub(crate) fn backend() -> Backend {
    BACKEND.with(Cell::get)
}
