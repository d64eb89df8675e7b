//! The handle on the result of a spawned function.

use crate::cancel;
use crate::current;
use crate::error::JoinError;
use crate::flush;
use crate::item::{Header, ReusableRef, TaskHandle};
use crate::unfinished::Ends;
use inflight_sync::time::{Clock, Instant};
use inflight_sync::wait::Notify;
use inflight_sync::{Parker, Weak, hint, thread};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// How often a waiting thread looks before it sleeps: for some us, like sleep and wakeup.
const LOOKS: u32 = 400;

/// Gives the result of a function that was [spawned](crate::Workqueue::spawn).
///
/// A future for tasks; [`wait`](JoinHandle::wait) for threads. It always resolves: to the result,
/// to the panic, or to the reason why the function did not run. Dropping the handle, or a wait for
/// it, detaches the function, which still runs.
///
/// ```
/// use inflight_workqueue::WorkqueueSystem;
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("jobs").bound().build()?;
/// let handle = wq.spawn(|| "done");
/// # let async_part = async {
/// assert_eq!(handle.await?, "done");
/// # Ok::<(), inflight_workqueue::JoinError>(()) };
/// # inflight_sync::block_on(async_part)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "`detach` says that nobody is to learn how the function ended"]
pub struct JoinHandle<T> {
    result: TaskHandle<T>,
    future: Option<Box<FutureHandle>>,
    clock: Clock,
}

pub(crate) struct FutureHandle {
    /// The item that polls it.
    pub(crate) item: ReusableRef,
    /// Cannot be upgraded once the future has ended.
    pub(crate) task: Weak<dyn Ends>,
}

impl<T> JoinHandle<T> {
    #[inline]
    pub(crate) fn new(
        result: TaskHandle<T>,
        future: Option<Box<FutureHandle>>,
        clock: Clock,
    ) -> Self {
        Self {
            result,
            future,
            clock,
        }
    }

    fn is_own(&self) -> bool {
        let future = self.future.as_ref().map(|future| future.item.ptr());
        current::runs_item(future.unwrap_or(self.result.ptr()))
    }

    /// Whether a wait for the result would wait for the caller's own return.
    fn waits_for_caller(&self) -> bool {
        if !current::runs_any() {
            return false;
        }
        let behind = || flush::is_behind_caller(self.header());
        self.is_own() || (!self.is_finished() && (current::may_not_sleep() || behind()))
    }

    fn header(&self) -> &Header {
        let future = self.future.as_ref().map(|future| future.item.header());
        future.unwrap_or(self.result.header())
    }

    fn take_or_wait(&mut self, notify: impl FnOnce() -> Notify) -> Option<Result<T, JoinError>> {
        let task = &mut self.result;
        task.try_take().or_else(|| task.take_or_wait(notify()))
    }

    /// Waits for the result. On a worker the wait counts as blocking.
    ///
    /// # Errors
    ///
    /// [`JoinError`] says why there is no result. [`JoinError::WouldDeadlock`] inside the function
    /// itself, inside an item of a queue with `max_active` 1 if the function waits for that item's
    /// slot, and inside any BH item. The function is then detached and runs later. Polling the
    /// handle as a future, and a timed wait, do not check slots.
    #[inline]
    pub fn wait(self) -> Result<T, JoinError> {
        if self.waits_for_caller() {
            return Err(JoinError::WouldDeadlock);
        }
        self.wait_for_result()
    }

    fn wait_for_result(mut self) -> Result<T, JoinError> {
        if cfg!(not(any(loom, shuttle))) {
            if let Some(result) = self.result.try_take() {
                return result;
            }
            let looks = match flush::pwq_of(self.header()) {
                // Checks would only delay the worker.
                Some(pwq) if pwq.pool.needs_callers_cpu() => {
                    if pwq.pool.yields_to_caller() {
                        thread::yield_now();
                    }
                    1
                }
                _ => LOOKS,
            };
            for _ in 0..looks {
                if let Some(result) = self.result.try_take() {
                    return result;
                }
                hint::spin_loop();
            }
        }
        let parker = Parker::current();
        loop {
            let me = || Notify::Thread(parker.unparker());
            if let Some(result) = self.take_or_wait(me) {
                return result;
            }
            parker.park();
        }
    }

    /// As `wait`, but cancels a function that it may not wait for: nobody else can.
    pub(crate) fn wait_or_take_back(self) -> Result<T, JoinError> {
        // A function that has begun has its own slot, so it no longer waits for the caller's. Asked
        // once: a limit that is lowered meanwhile would have it refused without a cancel.
        if self.waits_for_caller() && self.try_cancel() {
            return Err(JoinError::WouldDeadlock);
        }
        self.wait_for_result()
    }

    /// Waits for the result for at most `limit` on the system's clock. After that the function
    /// continues, and the handle can be waited for again.
    ///
    /// # Errors
    ///
    /// [`JoinError`] says why there is no result; [`JoinError::TimedOut`] after `limit`.
    ///
    /// ```
    /// # use inflight_workqueue::{JoinError, WorkqueueSystem};
    /// use std::time::Duration;
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// # let wq = sys.workqueue("jobs").bound().build()?;
    /// let mut handle = wq.spawn(|| 1 + 1);
    /// match handle.wait_timeout(Duration::from_secs(60)) {
    ///     Err(JoinError::TimedOut) => handle.detach(), // too slow for us
    ///     result => assert_eq!(result?, 2),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_timeout(&mut self, limit: Duration) -> Result<T, JoinError> {
        if self.is_own() || current::may_not_sleep() {
            return Err(JoinError::WouldDeadlock);
        }
        let deadline: Instant = self.clock.now() + limit;
        let parker = Parker::current();
        let mut in_time = true;
        loop {
            let me = || Notify::Thread(parker.unparker());
            match self.take_or_wait(me) {
                Some(result) => return result,
                None if !in_time => return Err(JoinError::TimedOut),
                None => in_time = parker.park_until(&self.clock, deadline),
            }
        }
    }

    /// Cancels the function if it has not begun: [`JoinError::Cancelled`]; `true` if so.
    ///
    /// A future is dropped, after the poll if it is being polled; `true` if it had not completed.
    /// If that poll was the last, the handle gives the result.
    ///
    /// The function is dropped in this call. If that panics, the call panics after the handle has
    /// resolved. A panic of a future's destructor is dropped.
    ///
    /// ```
    /// # use inflight_workqueue::{JoinError, WorkqueueSystem};
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// # let wq = sys.workqueue("jobs").bound().build()?;
    /// let handle = wq.spawn(|| "ran");
    /// if handle.try_cancel() {
    ///     assert!(matches!(handle.wait(), Err(JoinError::Cancelled)));
    /// } else {
    ///     assert_eq!(handle.wait()?, "ran");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[allow(clippy::must_use_candidate)] // Called for its effect as often as for its answer.
    pub fn try_cancel(&self) -> bool {
        let Some(future) = &self.future else {
            return cancel::cancel_task(&self.result);
        };
        let Some(task) = future.task.upgrade() else {
            return false;
        };
        // First: once the item is taken back, a closed queue may be idle and end the futures left.
        let ends = task.end(JoinError::Cancelled);
        cancel::cancel(&future.item);
        // The poll that was taken back would have done this.
        task.forget_wake();
        ends
    }

    /// Whether the function or future has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.result.is_finished()
    }

    /// Gives up the result; the function still runs, if the queue has taken it. The same as
    /// dropping the handle. Nobody hears of a refusal then, but for
    /// [`refused`](crate::WorkqueueStats::refused). So take
    /// [`try_spawn`](crate::Workqueue::try_spawn) for a function that owns what must not be lost.
    #[inline]
    pub fn detach(self) {
        drop(self);
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.is_own() {
            return Poll::Ready(Err(JoinError::WouldDeadlock));
        }
        let me = || Notify::Task(cx.waker().clone());
        match self.take_or_wait(me) {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        }
    }
}

// Nothing in it is pinned.
impl<T> Unpin for JoinHandle<T> {}

inflight_sync::debug_fields!([T] JoinHandle<T>: |this| finished = this.is_finished());
