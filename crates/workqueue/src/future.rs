//! Futures as items: each poll is a run.
//!
//! The item machinery does all that an executor needs: a wake queues the item; while it is pending
//! further wakes change nothing; a wake during a poll makes it run again afterwards, and it never
//! runs twice at once.
//!
//! Who holds what: a waker holds the task, and the task holds its item. The item holds the task
//! only from a wake until the poll that follows, so a future that nobody can wake any more goes.

use crate::door::{Home, Shared};
use crate::error::{JoinError, PanicPayload, QueueError};
use crate::handle::{JoinHandle, Joined};
use crate::item::{Ended, Item, Ran, Run, WorkRef};
use crate::outcome::Outcome;
use crate::panics::{caught, contained, dispose};
use crate::worker;
use inflight_sync::recycled::Recycled;
use inflight_sync::wait::Notify;
use inflight_sync::{Arc, Mutex, Weak};
use std::any::type_name;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

/// Where a task is between its wake and its poll.
type Inbox<F> = Mutex<Option<Arc<Task<F>>>>;

struct Task<F: Future> {
    item: WorkRef,
    queue: Arc<Shared>,
    inbox: Arc<Inbox<F>>,
    state: Mutex<State<F>>,
    outcome: Arc<Outcome<F::Output>>,
}

/// A handle's end of a future. It does not hold the task: one that nobody can wake goes.
struct Joint<F: Future> {
    item: WorkRef,
    outcome: Arc<Outcome<F::Output>>,
    task: Weak<Task<F>>,
}

enum State<F> {
    Waiting(Pin<Box<F>>),
    Polled { aborted: bool },
    Over,
}

/// What the item does.
struct Polls<F: Future>(Arc<Inbox<F>>);

impl<F> Run for Polls<F>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn name(&self) -> &str {
        type_name::<F>()
    }

    fn run(&self) -> Ran {
        let task = self.0.lock().take();
        // Nobody there: the poll before has seen what this wake was for.
        Ran::Over(task.map_or(Ended::Returned, |task| task.poll()))
    }

    fn discard(&self, why: JoinError) {
        let task = self.0.lock().take();
        if let Some(task) = task {
            task.end(why);
        }
    }
}

impl<F> Task<F>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn poll(self: Arc<Self>) -> Ended {
        let polled = State::Polled { aborted: false };
        let mut future = {
            let mut state = self.state.lock();
            match std::mem::replace(&mut *state, polled) {
                State::Waiting(future) => future,
                // It was aborted before.
                over => {
                    *state = over;
                    return Ended::Returned;
                }
            }
        };
        let waker = Waker::from(self.clone());
        let result = caught(|| future.as_mut().poll(&mut Context::from_waker(&waker)));
        let (result, ended) = match result {
            Ok(Poll::Pending) => {
                let mut state = self.state.lock();
                if !matches!(*state, State::Polled { aborted: true }) {
                    *state = State::Waiting(future);
                    return Ended::Returned;
                }
                (Err(JoinError::Cancelled), Ended::Returned)
            }
            Ok(Poll::Ready(value)) => (Ok(value), Ended::Returned),
            Err(payload) => {
                let payload = PanicPayload::new(type_name::<F>(), payload);
                let message = payload.message().map(str::to_owned);
                (Err(JoinError::Panicked(payload)), Ended::Panicked(message))
            }
        };
        *self.state.lock() = State::Over;
        // Foreign destructors and wakers, and their panics, are not the poll's.
        contained(|| drop(future));
        contained(|| self.outcome.complete(result));
        ended
    }

    /// It will not be polled any more, if it is not being polled.
    fn end(&self, why: JoinError) {
        let mut state = self.state.lock();
        if !matches!(*state, State::Waiting(_)) {
            return;
        }
        let future = std::mem::replace(&mut *state, State::Over);
        drop(state);
        if let Err(payload) = caught(|| drop(future)) {
            dispose(payload);
        }
        contained(|| self.outcome.complete(Err(why)));
    }

    /// It is not polled any more, once a poll that has begun has ended. `false` if it was over.
    fn abort(&self) -> bool {
        {
            let mut state = self.state.lock();
            match &mut *state {
                State::Over => return false,
                State::Polled { aborted } => {
                    *aborted = true;
                    return true;
                }
                State::Waiting(_) => {}
            }
        }
        self.end(JoinError::Cancelled);
        true
    }

    fn submit(self: Arc<Self>) -> Result<(), QueueError> {
        let (queue, item) = (self.queue.clone(), self.item.clone());
        let inbox = self.inbox.clone();
        let before = inbox.lock().replace(self);
        // The same task: it is only counted down.
        drop(before);
        queue.submit(&item, queue.here()).map(drop)
    }
}

impl<F> Joined<F::Output> for Joint<F>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn take_or_wait(
        &self,
        notify: &mut dyn FnMut() -> Notify,
    ) -> Option<Result<F::Output, JoinError>> {
        self.outcome.take_or_wait(notify)
    }

    fn is_finished(&self) -> bool {
        self.outcome.is_set()
    }

    fn try_cancel(&self, _home: Option<&Arc<Home>>) -> bool {
        let cancelled = self.item.cancel();
        if cancelled {
            self.item.discard(JoinError::Cancelled);
        }
        self.task.upgrade().is_some_and(|task| task.abort()) || cancelled
    }

    fn is_own(&self) -> bool {
        worker::runs_work(self.item.key())
    }

    fn waits_for_caller(&self, _home: Option<&Arc<Home>>) -> bool {
        self.item.waits_for_caller()
    }
}

impl<F> Wake for Task<F>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn wake(self: Arc<Self>) {
        let task = self.clone();
        if let Err(refusal) = self.submit() {
            task.inbox.lock().take();
            task.end(JoinError::Rejected(refusal));
        }
    }
}

impl<F: Future> Drop for Task<F> {
    /// Nobody can wake it any more: if it is not over, it never will be.
    fn drop(&mut self) {
        contained(|| self.outcome.complete(Err(JoinError::Cancelled)));
    }
}

/// Queues the first poll. If the queue refuses, the handle says so.
pub(crate) fn spawn<F>(
    queue: &Arc<Shared>,
    future: F,
) -> (JoinHandle<F::Output>, Option<QueueError>)
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let inbox = Arc::new(Mutex::new(None));
    let item: WorkRef = Item::lasting(Polls(inbox.clone()));
    let outcome = Arc::new(Outcome::new());
    let task = Arc::new(Task {
        item: item.clone(),
        queue: queue.clone(),
        inbox,
        state: Mutex::new(State::Waiting(Box::pin(future))),
        outcome: outcome.clone(),
    });
    let refusal = task.clone().submit().err();
    if let Some(refusal) = refusal {
        task.inbox.lock().take();
        task.end(JoinError::Rejected(refusal));
    }
    let joint = Recycled::new(Joint {
        item,
        outcome,
        task: Arc::downgrade(&task),
    });
    let handle = JoinHandle::new(Recycled::unsize(joint, |joint| joint), queue.clock());
    (handle, refusal)
}
