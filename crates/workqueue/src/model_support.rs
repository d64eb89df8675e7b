//! Parts that models drive themselves. A *manual* pool has no worker: each thread of the model is
//! one while it calls [`draw`](ManualPool::draw), on the code paths of a rescuer and of a thief.

use crate::batch::{Batch, Entry, Taken};
use crate::current::Context;
use crate::item::ItemPtr;
use crate::worker;
use crate::worker_pool::WorkerPool;
use crate::workqueue::Workqueue;
use inflight_sync::Arc;
use inflight_sync::asym::AsymFence;
use std::ptr::NonNull;

/// A pool for which no worker is created.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "no model prints it")]
pub struct ManualPool(Arc<WorkerPool>);

impl Workqueue {
    /// The pool for items that are queued on that CPU, from now on without workers.
    #[allow(
        clippy::must_use_candidate,
        reason = "a model may let others run its items"
    )]
    pub fn manual_pool(&self, cpu: usize) -> ManualPool {
        let pwq = self.inner().pwq_of(cpu).expect("the queue exists");
        pwq.pool.set_manual();
        ManualPool(pwq.pool.clone())
    }

    /// Makes the pool of that CPU assume that items take `ns`.
    pub fn set_service(&self, cpu: usize, ns: u64) {
        let pwq = self.inner().pwq_of(cpu).expect("the queue exists");
        let mut state = pwq.lock();
        while state.core.service_ns() < ns {
            state.core.note_service(2 * ns);
        }
        pwq.pool.unlock(state, false);
    }
}

impl ManualPool {
    /// Takes a batch of up to `most` entries and runs it. Its items may append up to the same
    /// limit. Returns how many were taken.
    #[allow(clippy::must_use_candidate, reason = "a model may not care")]
    pub fn draw(&self, most: usize) -> usize {
        let pool = &self.0;
        let mut state = pool.lock();
        let context = Context::attach(pool, &mut state, None, None);
        let batch = &context.shared.batch;
        state.core.set_batching(most > 1);
        let taken = state.take(context.me, batch).entries;
        let room = if most > 1 { most as u64 } else { 0 };
        context.begin_batch(batch.next(), room);
        pool.unlock(state, false);
        worker::run_as_guest(&context);
        context.detach();
        taken
    }

    /// Looks at siblings as a worker without work. Returns whether it has stolen and run a batch.
    #[allow(clippy::must_use_candidate, reason = "a model may not care")]
    pub fn steal(&self) -> bool {
        let pool = &self.0;
        let context = Context::attach(pool, &mut pool.lock(), None, None);
        let theft = pool.theft(&pool.lock());
        let stolen = theft.is_some_and(|theft| pool.steal(theft, context.me));
        context.detach();
        stolen
    }

    /// Does what a tick does if no worker has moved.
    pub fn recall(&self) {
        let mut state = self.0.lock();
        state.recall_all(|_| true);
        self.0.unlock(state, true);
    }
}

/// A batch of numbers.
pub type NumberBatch = Batch<()>;

impl NumberBatch {
    /// Empty.
    #[must_use]
    pub fn of_numbers() -> Self {
        Self::new(AsymFence::new())
    }

    /// *append*; `false` if there is no room.
    pub fn append_number(&self, settled: u32, number: u32) -> bool {
        let entry = Entry::new(ItemPtr::dangling(), number, 0);
        let pwq = NonNull::dangling();
        let room = self.has_room(settled);
        if room {
            self.append(settled, Taken { entry, pwq });
        }
        room
    }

    /// The number of entry `i`.
    pub fn number(&self, i: u32) -> u32 {
        self.get(i).entry.seq()
    }
}
