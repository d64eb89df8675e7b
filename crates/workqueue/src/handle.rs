//! The result of a spawned function.

use crate::door::{Home, Shared};
use crate::error::{JoinError, PanicPayload, QueueError};
use crate::item::{Ended, Item, Ran, Run};
use crate::outcome::Outcome;
use crate::panics::{caught, contained};
use crate::worker;
use inflight_sync::recycled::Recycled;
use inflight_sync::time::Clock;
use inflight_sync::wait::Notify;
use inflight_sync::{Arc, Parker};
use std::fmt;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Gives the result of a function that was [spawned](crate::Workqueue::spawn).
///
/// A future, for tasks; [`wait`](JoinHandle::wait), for threads. It always resolves: to the result,
/// to the panic, or to the reason why the function did not run. Dropping the handle, or a wait for
/// it, detaches: the function runs all the same.
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
#[must_use = "dropping the handle detaches the function: nobody learns how it ended"]
pub struct JoinHandle<T> {
    task: Recycled<dyn Joined<T>>,
    clock: Clock,
    /// Where the task went, if it does not know it itself: so what the worker drops last is the
    /// task alone, and the count of homes is not sent from CPU to CPU with each.
    home: Option<Arc<Home>>,
}

/// What a handle waits for.
pub(crate) trait Joined<T>: Send + Sync {
    /// See [`Outcome::take_or_wait`].
    fn take_or_wait(&self, notify: &mut dyn FnMut() -> Notify) -> Option<Result<T, JoinError>>;

    /// Whether the result is there, or has been taken.
    fn is_finished(&self) -> bool;

    /// See [`JoinHandle::try_cancel`].
    fn try_cancel(&self, home: Option<&Arc<Home>>) -> bool;

    /// Whether the caller is the function that the handle stands for.
    fn is_own(&self) -> bool;

    /// Whether a wait for it would be a wait for the caller's own return.
    fn waits_for_caller(&self, home: Option<&Arc<Home>>) -> bool;
}

/// A function that runs once.
struct Task<T, F>(Outcome<T, F>);

impl<T, F> Joined<T> for Item<Task<T, F>>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    fn take_or_wait(&self, notify: &mut dyn FnMut() -> Notify) -> Option<Result<T, JoinError>> {
        self.what().0.take_or_wait(notify)
    }

    fn is_finished(&self) -> bool {
        self.what().0.is_set()
    }

    fn try_cancel(&self, home: Option<&Arc<Home>>) -> bool {
        self.learn_home(home);
        let cancelled = self.cancel();
        if cancelled {
            self.discard(JoinError::Cancelled);
        }
        cancelled
    }

    fn is_own(&self) -> bool {
        worker::runs_work(self.key())
    }

    fn waits_for_caller(&self, home: Option<&Arc<Home>>) -> bool {
        if worker::runs_any() {
            self.learn_home(home);
        }
        self.waits_for_caller()
    }
}

impl<T, F> Run for Task<T, F>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    fn name(&self) -> &str {
        std::any::type_name::<F>()
    }

    fn run(&self) -> Ran {
        // A task is queued once, so the function is still there.
        let Some(f) = self.0.begin() else {
            return Ran::Over(Ended::Cancelled);
        };
        let (result, ended) = match caught(f) {
            Ok(value) => (Ok(value), Ended::Returned),
            Err(payload) => {
                let payload = PanicPayload::new(std::any::type_name::<F>(), payload);
                let message = payload.message().map(str::to_owned);
                (Err(JoinError::Panicked(payload)), Ended::Panicked(message))
            }
        };
        // A waker's panic is not the function's.
        contained(|| self.0.complete(result));
        Ran::Over(ended)
    }

    fn discard(&self, why: JoinError) {
        let f = self.0.begin();
        // Whatever the function's destructor does, the handle resolves.
        let dropped = caught(|| drop(f));
        contained(|| self.0.complete(Err(why)));
        if let Err(payload) = dropped {
            resume_unwind(payload);
        }
    }
}

pub(crate) fn spawn<T, F>(
    queue: &Arc<Shared>,
    cpu: Result<usize, QueueError>,
    f: F,
) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let (task, work) = Item::new(Task(Outcome::of(f)));
    let (refusal, home) = match cpu {
        Ok(cpu) => (
            queue.submit_new(&*task, work, cpu).err(),
            Some(queue.home(cpu)),
        ),
        Err(refusal) => (Some(refusal), None),
    };
    if let Some(refusal) = refusal {
        task.discard(JoinError::Rejected(refusal));
    }
    JoinHandle {
        home,
        ..JoinHandle::new(Recycled::unsize(task, |task| task), queue.clock())
    }
}

impl<T> JoinHandle<T> {
    pub(crate) fn new(task: Recycled<dyn Joined<T>>, clock: Clock) -> Self {
        Self {
            task,
            clock,
            home: None,
        }
    }

    /// Waits for the result. On a worker the wait counts as blocking.
    ///
    /// # Errors
    ///
    /// A [`JoinError`] that says why there is no result. [`JoinError::WouldDeadlock`] inside the
    /// function itself, and inside an item of a queue with `max_active` 1 if the function waits for
    /// that item's slot, and inside any BH item; the function is detached then, and runs later.
    /// Polling the handle as a future, and a timed wait, do not look at slots.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// # let wq = sys.workqueue("jobs").bound().build()?;
    /// assert_eq!(wq.spawn(|| 1 + 1).wait()?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(self) -> Result<T, JoinError> {
        if self.task.waits_for_caller(self.home.as_ref()) {
            return Err(JoinError::WouldDeadlock);
        }
        let parker = Parker::current();
        loop {
            let me = &mut || Notify::Thread(parker.unparker());
            let result = self.task.take_or_wait(me);
            if let Some(result) = result {
                return result;
            }
            parker.park();
        }
    }

    /// As [`wait`](JoinHandle::wait), but what is not waited for does not run: its caller has no
    /// handle by which to take it back.
    pub(crate) fn wait_or_take_back(self) -> Result<T, JoinError> {
        // What has begun has a slot of its own, so it does not wait for the caller's any more.
        if self.task.waits_for_caller(self.home.as_ref()) && self.try_cancel() {
            return Err(JoinError::WouldDeadlock);
        }
        self.wait()
    }

    /// Waits for the result, at most for `limit` on the system's clock.
    ///
    /// # Errors
    ///
    /// The handle itself, if the time has run out; the function goes on.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// use std::time::Duration;
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// # let wq = sys.workqueue("jobs").bound().build()?;
    /// match wq.spawn(|| 1 + 1).wait_timeout(Duration::from_secs(60)) {
    ///     Ok(result) => assert_eq!(result?, 2),
    ///     Err(handle) => drop(handle), // too slow for us
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_timeout(self, limit: Duration) -> Result<Result<T, JoinError>, Self> {
        if self.task.is_own() {
            return Ok(Err(JoinError::WouldDeadlock));
        }
        let deadline = self.clock.now() + limit;
        let parker = Parker::current();
        let mut in_time = true;
        loop {
            let me = &mut || Notify::Thread(parker.unparker());
            let result = self.task.take_or_wait(me);
            match result {
                Some(result) => return Ok(result),
                None if !in_time => return Err(self),
                None => in_time = parker.park_until(&self.clock, deadline),
            }
        }
    }

    /// Cancels the function if it has not begun; `true` if so. The handle then gives
    /// [`JoinError::Cancelled`].
    ///
    /// A future is not polled any more, and is dropped; `true` if it had not ended. If it is being
    /// polled, that is when the poll has ended, and the handle gives the result if that poll was
    /// the last.
    ///
    /// The function is dropped in this call. If that panics, so does the call, after the handle has
    /// resolved.
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
        self.task.try_cancel(self.home.as_ref())
    }

    /// Whether the result is there.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// # let wq = sys.workqueue("jobs").bound().build()?;
    /// let handle = wq.spawn(|| ());
    /// wq.flush()?;
    /// assert!(handle.is_finished());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.task.is_own() {
            return Poll::Ready(Err(JoinError::WouldDeadlock));
        }
        let me = &mut || Notify::Task(cx.waker().clone());
        match self.task.take_or_wait(me) {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle")
            .field("finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}
