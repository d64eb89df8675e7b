//! Queueing items.

use super::{Count, WorkqueueInner};
use crate::batch::Entry;
use crate::current;
use crate::error::{AttrsError, BuildError, QueueError};
use crate::item::word::{Seq, is_live};
use crate::item::{ItemPtr, Job, NewTask, ReusableRef, TaskHandle};
use crate::pwq::{CLOSED, DESTROYED, DRAINING, NOT_OPEN, Pwq, RETIRED, SHUT_DOWN};
use crate::queued::Queued;
use crate::trace::TraceStep;
use crate::worker_pool::PoolState;
use inflight_sync::{Arc, MutexGuard, thread};
use std::ptr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Any caller: while the queue is drained, only its own items may queue.
    Anybody,
    /// The waker of one of the queue's futures, or a flush or a `mod_delayed` that was accepted
    /// before.
    Own,
    /// A timer. An item that comes due during a drain is postponed, so this one came before.
    Timer,
}

impl WorkqueueInner {
    /// Queues a reusable item.
    pub(crate) fn queue(
        self: &Arc<Self>,
        item: &ReusableRef,
        cpu: usize,
    ) -> Result<Queued, QueueError> {
        self.queue_from(item, cpu, Origin::Anybody)
    }

    pub(crate) fn queue_from(
        self: &Arc<Self>,
        item: &ReusableRef,
        cpu: usize,
        origin: Origin,
    ) -> Result<Queued, QueueError> {
        let pwq = self.pwq_of(cpu)?;
        self.ensure_worker(pwq, origin)?;
        match item.header().set_pending(Some(pwq.id)) {
            Err(answer) => Ok(answer),
            Ok(seq) => {
                self.push_reusable(pwq, item, seq, cpu, origin)?;
                Ok(Queued::Queued)
            }
        }
    }

    /// Queues an item whose delay has passed or ended early: it is pending with that number. If it
    /// is refused, the item is idle again. A cancel during the call is not an error.
    pub(crate) fn queue_pending(
        self: &Arc<Self>,
        item: &ReusableRef,
        seq: Seq,
        cpu: usize,
        origin: Origin,
    ) -> Result<(), QueueError> {
        let pwq = self.pwq_of(cpu);
        let ready = pwq.and_then(|pwq| self.ensure_worker(pwq, origin).map(|()| pwq));
        match ready {
            Ok(pwq) if item.header().redirect(seq, pwq.id) => {
                self.push_reusable(pwq, item, seq, cpu, origin)
            }
            Err(refusal) if self.take_back(item, seq, origin) => Err(refusal),
            _ => Ok(()), // It was cancelled during the call.
        }
    }

    /// Pushes the entry of a reusable item that is pending with that pwq. If it is refused, the
    /// item is idle again.
    fn push_reusable(
        self: &Arc<Self>,
        pwq: &Pwq,
        item: &ReusableRef,
        seq: Seq,
        cpu: usize,
        origin: Origin,
    ) -> Result<(), QueueError> {
        let pushed = self.push_and_trace(pwq, item.ptr(), seq, cpu, origin);
        let Err(refusal) = pushed else {
            return Ok(());
        };
        if self.take_back(item, seq, origin) {
            return Err(refusal);
        }
        // It was cancelled during the call, so it counts as queued.
        pwq.count_queued();
        // SAFETY: the cancel has left a reference with the entry.
        unsafe { item.ptr().release() };
        Ok(())
    }

    #[inline]
    pub(crate) fn spawn<F: Job>(
        self: &Arc<Self>,
        cpu: usize,
        f: F,
    ) -> Result<TaskHandle<F::Out>, (QueueError, NewTask<F>)> {
        let task = NewTask::new(f);
        match self.submit(task.ptr(), cpu) {
            Ok(()) => Ok(task.into_handle()),
            Err(refusal) => Err((refusal, task)),
        }
    }

    /// Queues a task that is not shared yet.
    fn submit(self: &Arc<Self>, task: ItemPtr, cpu: usize) -> Result<(), QueueError> {
        let pwq = self.pwq_of(cpu)?;
        self.ensure_worker(pwq, Origin::Anybody)?;
        // SAFETY: the task has not been queued yet.
        unsafe { task.header() }.set_first_pwq(pwq.id);
        self.push_and_trace(pwq, task, 0, cpu, Origin::Anybody)
    }

    /// *queue*, and a trace of it if tracing is on.
    #[inline]
    fn push_and_trace(
        self: &Arc<Self>,
        pwq: &Pwq,
        item: ItemPtr,
        seq: Seq,
        cpu: usize,
        origin: Origin,
    ) -> Result<(), QueueError> {
        if self.shared.tracing.is_on() {
            return self.push_traced(pwq, item, seq, cpu, origin);
        }
        self.push(pwq, item, seq, cpu, origin)
    }

    /// *queue* with a trace. If the queue accepts everything, the trace comes before the push, and
    /// so before the item's other steps.
    #[cold]
    fn push_traced(
        self: &Arc<Self>,
        pwq: &Pwq,
        item: ItemPtr,
        seq: Seq,
        cpu: usize,
        origin: Origin,
    ) -> Result<(), QueueError> {
        let (shared, queue) = (&self.shared, &self.name);
        let tell = |name: &str| shared.trace_on(queue, name, TraceStep::Queued, cpu);
        // Once queued, the item may run and free its name, so no reference outlives `push`.
        if pwq.flags() & (NOT_OPEN & !RETIRED) == 0 {
            // SAFETY: the caller has the item, and it has not been queued yet.
            tell(unsafe { item.name() });
            return self.push(pwq, item, seq, cpu, origin);
        }
        // SAFETY: as above.
        let name = unsafe { item.name() }.to_owned();
        self.push(pwq, item, seq, cpu, origin)?;
        tell(&name);
        Ok(())
    }

    /// Makes sure that the pool of the pwq has a worker, or will have one: there is a rescuer, or
    /// the item was accepted before.
    #[inline]
    pub(super) fn ensure_worker(&self, pwq: &Pwq, origin: Origin) -> Result<(), QueueError> {
        if pwq.flags() & CLOSED != 0 && !current::runs_item_of(self) {
            return Ok(()); // The item will be refused.
        }
        let waits = self.rescuer.is_some() || origin != Origin::Anybody;
        let has_worker = pwq.pool.ensure_worker(waits);
        let no_thread = self
            .shared
            .no_thread(QueueError::ShutDown, QueueError::NoWorker);
        has_worker.map_err(no_thread)
    }

    /// *queue*: pushes the entry of an item that is pending with that pwq.
    #[inline]
    fn push<'a>(
        self: &'a Arc<Self>,
        pwq: &'a Pwq,
        item: ItemPtr,
        seq: Seq,
        cpu: usize,
        origin: Origin,
    ) -> Result<(), QueueError> {
        if current::append(pwq, item, seq) {
            return Ok(());
        }
        let mut state = pwq.lock();
        if pwq.flags() & NOT_OPEN != 0 {
            drop(state);
            return self.push_closed(pwq, item, seq, cpu, origin);
        }
        self.push_locked(&mut state, pwq, item, seq);
        self.unlock_pushed(state, pwq);
        Ok(())
    }

    /// Releases the lock after a push. A pool that has called rescuers calls again for each new
    /// item at once.
    #[inline]
    fn unlock_pushed(&self, state: MutexGuard<'_, PoolState>, pwq: &Pwq) {
        let rescuer = self.rescuer.as_ref().filter(|_| state.has_called());
        pwq.pool.unlock_pushed(state);
        if let Some(rescuer) = rescuer {
            rescuer.call(&pwq.pool);
        }
    }

    /// Pushes under the pool's lock.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "each item comes through here, by two callers"
    )]
    fn push_locked(&self, state: &mut PoolState, pwq: &Pwq, item: ItemPtr, seq: Seq) {
        // SAFETY: PENDING keeps it alive, or the reference that a cancel has left with the entry.
        if !is_live(unsafe { item.header() }.load(), seq) {
            // Cancelled during the call, and counted as cancelled.
            state.core.pwq_mut(pwq.index).count_queued(1);
            return state.stale.push(item);
        }
        pwq.set_queued(true);
        let entry = |colour| Entry {
            item,
            seq,
            colour,
            counted: true,
        };
        if state.core.push(pwq.index, entry) {
            self.pwq_is_busy();
        }
    }

    /// The same if the pwq has been replaced, or the queue does not accept everything.
    #[cold]
    fn push_closed<'a>(
        self: &'a Arc<Self>,
        mut pwq: &'a Pwq,
        item: ItemPtr,
        seq: Seq,
        cpu: usize,
        origin: Origin,
    ) -> Result<(), QueueError> {
        loop {
            let mut state = pwq.lock();
            let flags = pwq.flags();
            if flags & RETIRED == 0 {
                self.may_queue(flags, origin)?;
                self.push_locked(&mut state, pwq, item, seq);
                self.unlock_pushed(state, pwq);
                return Ok(());
            }
            drop(state);
            // The pwq was replaced before it was retired, or under the same lock.
            let now = self.pwq_of(cpu)?;
            if ptr::eq(now, pwq) {
                thread::yield_now(); // It is about to open again.
            }
            pwq = now;
            self.ensure_worker(pwq, origin)?;
            // SAFETY: as in `push_locked`. If it was cancelled, the next push sees it.
            let _ = unsafe { item.header() }.redirect(seq, pwq.id);
        }
    }

    /// Whether the caller may queue on a queue that is not open.
    pub(crate) fn may_queue(&self, flags: u8, origin: Origin) -> Result<(), QueueError> {
        if flags & SHUT_DOWN != 0 {
            return Err(QueueError::ShutDown);
        }
        let own = match origin {
            Origin::Anybody => current::runs_item_of(self),
            Origin::Own => flags & DESTROYED == 0 || current::runs_item_of(self),
            Origin::Timer => flags & DESTROYED == 0,
        };
        if own {
            Ok(())
        } else if flags & DESTROYED != 0 {
            Err(QueueError::Destroyed)
        } else if flags & DRAINING != 0 {
            Err(QueueError::Draining)
        } else {
            Ok(())
        }
    }

    /// The flags of the pwq of a CPU.
    pub(crate) fn flags_of(self: &Arc<Self>, cpu: usize) -> Result<u8, QueueError> {
        Ok(self.pwq_of(cpu)?.flags() & !RETIRED)
    }

    /// Whether an item could be queued on a CPU now.
    pub(crate) fn check_queueing(self: &Arc<Self>, cpu: usize) -> Result<(), QueueError> {
        self.may_queue(self.flags_of(cpu)?, Origin::Anybody)?;
        self.ensure_worker(self.pwq_of(cpu)?, Origin::Anybody)
    }

    /// The queueing was refused: makes the item idle again. `false` if it was cancelled before. A
    /// timer's refusal is counted first; other callers get an error.
    pub(crate) fn take_back(&self, item: &ReusableRef, seq: Seq, origin: Origin) -> bool {
        let header = item.header();
        let mut seen = header.load();
        while is_live(seen, seq) {
            match header.take_pending(seen, 0) {
                Some(old) => {
                    if origin == Origin::Timer {
                        self.counted(Count::Refused);
                    }
                    item.tell_cancelled(old);
                    return true;
                }
                None => seen = header.load(),
            }
        }
        false
    }
}

impl From<QueueError> for BuildError {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::TooManyQueues => Self::TooManyQueues,
            _ => Self::ShutDown,
        }
    }
}

impl From<QueueError> for AttrsError {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::TooManyQueues => Self::TooManyQueues,
            _ => Self::ShutDown,
        }
    }
}
