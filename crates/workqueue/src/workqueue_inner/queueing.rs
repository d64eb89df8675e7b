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
use std::cell::Cell;
use std::convert::Infallible;
use std::ptr;

/// `Err`: the queue refuses. `Ok(Err)`: nothing to push, and nothing has changed.
pub(crate) type Pushed<E> = Result<Result<(), E>, QueueError>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Any caller: while the queue is drained, only its own items may queue.
    Anybody,
    /// The waker of a future, or a flush or `mod_delayed` that was accepted before.
    Own,
    /// A timer. An item that comes due during a drain is postponed, so this one came before.
    Timer,
}

impl WorkqueueInner {
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
        let header = item.header();
        if let Err(answer) = header.not_pending() {
            return Ok(answer);
        }
        let set = |pwq: &Pwq| header.set_pending(Some(pwq.id));
        let pushed = self.push_and_trace(pwq, item.ptr(), cpu, origin, set)?;
        Ok(pushed.err().unwrap_or(Queued::Queued))
    }

    /// Queues an item, pending with that number, whose delay has ended. If refused, it is idle
    /// again. A cancel during the call is not an error.
    pub(crate) fn queue_pending(
        self: &Arc<Self>,
        item: &ReusableRef,
        seq: Seq,
        cpu: usize,
        origin: Origin,
    ) -> Result<(), QueueError> {
        let old = Cell::new(0);
        let redirect = |pwq: &Pwq| {
            old.set(item.header().redirect(seq, pwq.id).ok_or(())?);
            Ok::<Seq, ()>(seq)
        };
        let pushed = self.pwq_of(cpu).and_then(|pwq| {
            self.ensure_worker(pwq, origin)?;
            self.push_and_trace(pwq, item.ptr(), cpu, origin, redirect)
        });
        item.tell_waiters(old.get());
        match pushed {
            Err(refusal) if self.take_back(item, seq, origin) => Err(refusal),
            _ => Ok(()), // It is queued, or was cancelled during the call.
        }
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

    fn submit(self: &Arc<Self>, task: ItemPtr, cpu: usize) -> Result<(), QueueError> {
        let pwq = self.pwq_of(cpu)?;
        self.ensure_worker(pwq, Origin::Anybody)?;
        let set = |pwq: &Pwq| {
            // SAFETY: the task has not been queued yet.
            unsafe { task.header() }.set_first_pwq(pwq.id);
            Ok::<Seq, Infallible>(0)
        };
        let Ok(()) = self.push_and_trace(pwq, task, cpu, Origin::Anybody, set)?;
        Ok(())
    }

    /// *queue*, and a trace of it if tracing is on. See [`push`](Self::push).
    #[inline]
    fn push_and_trace<E>(
        self: &Arc<Self>,
        pwq: &Pwq,
        item: ItemPtr,
        cpu: usize,
        origin: Origin,
        set: impl Fn(&Pwq) -> Result<Seq, E>,
    ) -> Pushed<E> {
        if self.shared.tracing.is_on() {
            return self.push_traced(pwq, item, cpu, origin, set);
        }
        self.push(pwq, item, cpu, origin, set)
    }

    /// *queue* with a trace. If the queue accepts everything, the trace comes before the push, and
    /// so before the item's other steps.
    #[cold]
    fn push_traced<E>(
        self: &Arc<Self>,
        pwq: &Pwq,
        item: ItemPtr,
        cpu: usize,
        origin: Origin,
        set: impl Fn(&Pwq) -> Result<Seq, E>,
    ) -> Pushed<E> {
        let (shared, queue) = (&self.shared, &self.name);
        let tell = |name: &str| shared.trace_on(queue, name, TraceStep::Queued, cpu);
        // Once queued, the item may run and free its name, so no reference outlives `push`.
        if pwq.flags() & (NOT_OPEN & !RETIRED) == 0 {
            // SAFETY: the caller has a handle on the item, or it is a task that was not queued yet.
            tell(unsafe { item.name() });
            return self.push(pwq, item, cpu, origin, set);
        }
        // SAFETY: as above.
        let name = unsafe { item.name() }.to_owned();
        let pushed = self.push(pwq, item, cpu, origin, set)?;
        if pushed.is_ok() {
            tell(&name);
        }
        Ok(pushed)
    }

    /// The pool has a worker, or will have one: a rescuer, or an item accepted before.
    #[inline]
    pub(super) fn ensure_worker(&self, pwq: &Pwq, origin: Origin) -> Result<(), QueueError> {
        if pwq.pool.has_worker() {
            return Ok(());
        }
        self.create_first_worker(pwq, origin)
    }

    #[cold]
    fn create_first_worker(&self, pwq: &Pwq, origin: Origin) -> Result<(), QueueError> {
        if pwq.flags() & CLOSED != 0 && !current::runs_item_of(self) {
            return Ok(()); // The item will be refused.
        }
        let waits = self.rescuer.is_some() || origin != Origin::Anybody;
        let has_worker = pwq.pool.create_first(waits);
        let no_thread = self
            .shared
            .no_thread(QueueError::ShutDown, QueueError::NoWorker);
        has_worker.map_err(no_thread)
    }

    /// *queue*: once it is certain that the queue accepts the item, makes it pending on a pwq with
    /// `set`, and pushes its entry. If `set` fails, nothing has changed. `set` is called once at
    /// most: under the pool's lock, or before an *append*.
    #[inline]
    fn push<'a, E>(
        self: &'a Arc<Self>,
        pwq: &'a Pwq,
        item: ItemPtr,
        cpu: usize,
        origin: Origin,
        set: impl Fn(&Pwq) -> Result<Seq, E>,
    ) -> Pushed<E> {
        if let Some(appended) = current::append(pwq, item, || set(pwq)) {
            return Ok(appended);
        }
        let state = pwq.lock();
        if pwq.flags() & NOT_OPEN != 0 {
            drop(state);
            return self.push_closed(pwq, item, cpu, origin, set);
        }
        Ok(self.push_locked(state, pwq, item, set))
    }

    /// Pushes under the pool's lock, and releases it. A pool that has called rescuers calls again.
    #[inline(always)]
    #[allow(
        clippy::inline_always,
        reason = "each item comes through here, by two callers"
    )]
    fn push_locked<E>(
        &self,
        mut state: MutexGuard<'_, PoolState>,
        pwq: &Pwq,
        item: ItemPtr,
        set: impl Fn(&Pwq) -> Result<Seq, E>,
    ) -> Result<(), E> {
        let seq = set(pwq)?;
        pwq.set_queued(true);
        if state
            .core
            .push(pwq.index, |colour| Entry::new(item, seq, colour))
        {
            self.busy.add();
        }
        let rescuer = self.rescuer.as_ref().filter(|_| state.has_called());
        pwq.pool.unlock_pushed(state);
        if let Some(rescuer) = rescuer {
            rescuer.call(&pwq.pool);
        }
        Ok(())
    }

    /// *queue* if the pwq has been replaced, or the queue does not accept everything.
    #[cold]
    fn push_closed<'a, E>(
        self: &'a Arc<Self>,
        mut pwq: &'a Pwq,
        item: ItemPtr,
        cpu: usize,
        origin: Origin,
        set: impl Fn(&Pwq) -> Result<Seq, E>,
    ) -> Pushed<E> {
        loop {
            let state = pwq.lock();
            let flags = pwq.flags();
            if flags & RETIRED == 0 {
                self.may_queue(flags, origin)?;
                return Ok(self.push_locked(state, pwq, item, set));
            }
            drop(state);
            // The pwq was replaced before it was retired, or under the same lock.
            let now = self.pwq_of(cpu)?;
            if ptr::eq(now, pwq) {
                thread::yield_now(); // It is about to open again.
            }
            pwq = now;
            self.ensure_worker(pwq, origin)?;
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

    pub(crate) fn flags_of(self: &Arc<Self>, cpu: usize) -> Result<u8, QueueError> {
        Ok(self.pwq_of(cpu)?.flags() & !RETIRED)
    }

    pub(crate) fn check_queueing(self: &Arc<Self>, cpu: usize) -> Result<(), QueueError> {
        self.may_queue(self.flags_of(cpu)?, Origin::Anybody)?;
        self.ensure_worker(self.pwq_of(cpu)?, Origin::Anybody)
    }

    /// A queueing that waited for its delay was refused: makes the item idle again. `false` if it
    /// was cancelled before. A timer's refusal is counted first; other callers get an error.
    pub(crate) fn take_back(&self, item: &ReusableRef, seq: Seq, origin: Origin) -> bool {
        let header = item.header();
        let mut seen = header.load();
        while is_live(seen, seq) {
            match header.take_pending(seen, 0) {
                Some(old) => {
                    if origin == Origin::Timer {
                        self.counted(Count::Refused);
                    }
                    item.tell_waiters(old);
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
