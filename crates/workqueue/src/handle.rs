//! The result of a spawned function.

use crate::door::Shared;
use crate::error::{JoinError, PanicPayload, QueueError};
use crate::item::{Ended, Item, Run};
use crate::panics::{caught, contained};
use crate::worker;
use inflight_sync::time::Clock;
use inflight_sync::wait::Notify;
use inflight_sync::{Arc, Mutex, Parker};
use std::borrow::Cow;
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
    task: Arc<dyn Joined<T>>,
    clock: Clock,
}

/// What a handle waits for.
pub(crate) trait Joined<T>: Send + Sync {
    fn outcome(&self) -> &Outcome<T>;

    /// See [`JoinHandle::try_cancel`].
    fn try_cancel(&self) -> bool;

    /// Whether the caller is the function that the handle stands for.
    fn is_own(&self) -> bool;

    /// Whether a wait for it would be a wait for the caller's own return.
    fn waits_for_caller(&self) -> bool;
}

/// How a function has ended, and who waits for that.
pub(crate) struct Outcome<T>(Mutex<State<T>>);

enum State<T> {
    Open {
        /// There is one handle, so there is at most one who waits.
        waiter: Option<Notify>,
    },
    Done(Result<T, JoinError>),
    Taken,
}

impl<T> Outcome<T> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(State::Open { waiter: None }))
    }

    /// J1: sets the result. Only the first call counts.
    pub(crate) fn complete(&self, result: Result<T, JoinError>) {
        let mut state = self.0.lock();
        let State::Open { waiter } = &mut *state else {
            return;
        };
        let waiter = waiter.take();
        *state = State::Done(result);
        drop(state);
        if let Some(waiter) = waiter {
            waiter.notify();
        }
    }

    /// J2: takes the result, or leaves word who is to be told of it.
    fn take_or_wait(&self, notify: impl FnOnce() -> Notify) -> Option<Result<T, JoinError>> {
        if let Some(result) = self.0.lock().take() {
            return Some(result);
        }
        // A waker may run anything when it is cloned or dropped, so neither is under the lock.
        let mut notify = Some(notify());
        let mut state = self.0.lock();
        let result = state.take();
        if let State::Open { waiter } = &mut *state {
            std::mem::swap(waiter, &mut notify);
        }
        drop(state);
        drop(notify);
        result
    }
}

impl<T> State<T> {
    /// The result, once; `None` while there is none yet.
    fn take(&mut self) -> Option<Result<T, JoinError>> {
        if let Self::Open { .. } = self {
            return None;
        }
        match std::mem::replace(self, Self::Taken) {
            Self::Done(result) => Some(result),
            _ => Some(Err(JoinError::Taken)),
        }
    }
}

struct Task<T, F> {
    /// Gone once it runs or is cancelled.
    f: Mutex<Option<F>>,
    outcome: Outcome<T>,
}

impl<T, F> Joined<T> for Item<Task<T, F>>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    fn outcome(&self) -> &Outcome<T> {
        &self.what().outcome
    }

    fn try_cancel(&self) -> bool {
        let cancelled = self.cancel();
        if cancelled {
            self.discard(JoinError::Cancelled);
        }
        cancelled
    }

    fn is_own(&self) -> bool {
        worker::runs_work(self.key())
    }

    fn waits_for_caller(&self) -> bool {
        self.waits_for_caller()
    }
}

impl<T, F> Run for Task<T, F>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    fn run(&self) -> Ended {
        let f = self.f.lock().take();
        // A task is queued once, so the function is still there.
        let Some(f) = f else {
            return Ended::Cancelled;
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
        contained(|| self.outcome.complete(result));
        ended
    }

    fn discard(&self, why: JoinError) {
        let f = self.f.lock().take();
        // Whatever the function's destructor does, the handle resolves.
        let dropped = caught(|| drop(f));
        contained(|| self.outcome.complete(Err(why)));
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
    let task = Task {
        f: Mutex::new(Some(f)),
        outcome: Outcome::new(),
    };
    let name = Cow::Borrowed(std::any::type_name::<F>());
    let task = match cpu {
        Ok(cpu) => {
            let task = queue.item(cpu, name, task);
            if let Err(refusal) = queue.submit_new(&task, cpu) {
                task.discard(JoinError::Rejected(refusal));
            }
            task
        }
        Err(refusal) => {
            let task = Item::new(name, task);
            task.discard(JoinError::Rejected(refusal));
            task
        }
    };
    JoinHandle::new(task, queue.clock())
}

impl<T> JoinHandle<T> {
    pub(crate) fn new(task: Arc<dyn Joined<T>>, clock: Clock) -> Self {
        Self { task, clock }
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
        if self.task.waits_for_caller() {
            return Err(JoinError::WouldDeadlock);
        }
        let parker = Parker::current();
        loop {
            let result = self
                .task
                .outcome()
                .take_or_wait(|| Notify::Thread(parker.unparker()));
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
        if self.task.waits_for_caller() && self.try_cancel() {
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
            let result = self
                .task
                .outcome()
                .take_or_wait(|| Notify::Thread(parker.unparker()));
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
        self.task.try_cancel()
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
        !matches!(&*self.task.outcome().0.lock(), State::Open { .. })
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.task.is_own() {
            return Poll::Ready(Err(JoinError::WouldDeadlock));
        }
        match self
            .task
            .outcome()
            .take_or_wait(|| Notify::Task(cx.waker().clone()))
        {
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
