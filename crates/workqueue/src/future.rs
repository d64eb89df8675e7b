//! Futures as items: each poll is a run.
//!
//! The item's word does all that an executor needs: a wake queues the item; while it is pending
//! further wakes change nothing; a wake during a poll makes it run again afterwards, and it never
//! runs twice at once.
//!
//! A waker holds the task, and the task holds its item. The item holds the task only from a wake
//! until the poll that follows, so a future that nobody can wake any more goes.

use crate::cancel;
use crate::error::{JoinError, PanicPayload, QueueError};
use crate::item::{Name, ReusableRef, Run};
use crate::join_handle::{FutureOutcome, JoinHandle};
use crate::panics::{caught, contained};
use crate::unfinished::Ends;
use crate::workqueue::Workqueue;
use crate::workqueue_inner::{Count, Origin};
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::wait::Notify;
use inflight_sync::{Arc, Mutex, Weak, cpu};
use std::any::type_name;
use std::future::Future;
use std::mem;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

const NOWHERE: usize = usize::MAX;

/// From a wake until the poll that follows: the task.
type Woken<F> = Mutex<Option<Arc<Task<F>>>>;

struct Task<F: Future> {
    item: ReusableRef,
    queue: Workqueue,
    woken: Arc<Woken<F>>,
    state: Mutex<State<F>>,
    outcome: Arc<Outcome<F::Output>>,
    /// The CPU on which it was polled last; none before. Relaxed: a hint.
    polled_on: AtomicUsize,
}

struct Joint<F: Future> {
    item: ReusableRef,
    outcome: Arc<Outcome<F::Output>>,
    task: Weak<Task<F>>,
}

enum State<F> {
    Waiting(Pin<Box<F>>),
    /// With why it ends if this poll does not end it.
    Polled(Option<JoinError>),
    Over,
}

struct Polls<F: Future> {
    name: Option<Name>,
    woken: Arc<Woken<F>>,
}

impl<F> Run for Polls<F>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn own_name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn function() -> &'static str {
        type_name::<F>()
    }

    fn run(&self) -> ControlFlow<()> {
        let task = self.woken.lock().take();
        // Nobody there: the poll before has seen what this wake was for.
        if let Some(Err(payload)) = task.map(Task::poll) {
            // As the item's panic it is counted.
            resume_unwind(payload);
        }
        ControlFlow::Break(())
    }
}

impl<F> Task<F>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    /// `Err`: it has panicked, which the handle knows.
    fn poll(self: Arc<Self>) -> Result<(), Box<dyn std::any::Any + Send>> {
        let mut future = {
            let mut state = self.state.lock();
            match mem::replace(&mut *state, State::Polled(None)) {
                State::Waiting(future) => future,
                // It was aborted before.
                over => {
                    *state = over;
                    return Ok(());
                }
            }
        };
        if self.queue.inner().flags.wake_rules.is_some() {
            self.polled_on.store(cpu::current(), Ordering::Relaxed);
        }
        let waker = Waker::from(self.clone());
        let result = caught(|| future.as_mut().poll(&mut Context::from_waker(&waker)));
        let mut panicked = None;
        let result = match result {
            Ok(Poll::Pending) => {
                let mut state = self.state.lock();
                match mem::replace(&mut *state, State::Over) {
                    State::Polled(Some(why)) => Err(why),
                    _ => {
                        *state = State::Waiting(future);
                        return Ok(());
                    }
                }
            }
            Ok(Poll::Ready(value)) => Ok(value),
            Err(payload) => {
                let payload = PanicPayload::new(self.item.name().to_owned().into(), payload);
                panicked = Some(payload.message().map(str::to_owned));
                Err(JoinError::Panicked(payload))
            }
        };
        *self.state.lock() = State::Over;
        // Foreign destructors and wakers, and their panics, are not the poll's.
        contained(|| drop(future));
        self.outcome.complete(result);
        match panicked {
            None => Ok(()),
            Some(message) => Err(message.map_or_else(
                || Box::new(()) as Box<dyn std::any::Any + Send>,
                |message| Box::new(message),
            )),
        }
    }

    /// Ends the future, after the poll if it is being polled. `false`: it has ended.
    fn end(&self, why: JoinError) -> bool {
        let mut state = self.state.lock();
        match &mut *state {
            State::Over => return false,
            State::Polled(first) => {
                first.get_or_insert(why);
                return true;
            }
            State::Waiting(_) => {}
        }
        let future = mem::replace(&mut *state, State::Over);
        drop(state);
        contained(|| drop(future));
        self.outcome.complete(Err(why));
        true
    }

    /// No poll follows: the item lets the task go.
    fn forget_wake(&self) {
        let woken = self.woken.lock().take();
        // The same task: it is only counted down.
        drop(woken);
    }

    fn submit(self: Arc<Self>, origin: Origin) -> Result<(), QueueError> {
        let (queue, item) = (self.queue.clone(), self.item.clone());
        let woken = self.woken.clone();
        let waker = queue.inner().here();
        let cpu = self.place(waker);
        let before = woken.lock().replace(self);
        // The same task: it is only counted down.
        drop(before);
        queue.inner().queue_from(&item, cpu, origin).map(drop)
    }

    fn place(&self, waker: usize) -> usize {
        let inner = self.queue.inner();
        if inner.flags.wake_rules.is_none() {
            return waker;
        }
        let previous = self.polled_on.load(Ordering::Relaxed);
        inner.place(waker, if previous == NOWHERE { waker } else { previous })
    }

    /// As `submit`, and ends the future if that is refused. Returns the refusal.
    fn submit_or_end(self: Arc<Self>, origin: Origin) -> Option<QueueError> {
        let task = self.clone();
        let refusal = self.submit(origin).err();
        if let Some(refusal) = refusal {
            task.forget_wake();
            if task.end(JoinError::Rejected(refusal)) {
                task.queue.inner().counted(Count::Refused, 1);
            }
        }
        refusal
    }
}

impl<F> FutureOutcome<F::Output> for Joint<F>
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

    fn try_cancel(&self) -> bool {
        // If nobody has it, it has ended.
        let Some(task) = self.task.upgrade() else {
            return false;
        };
        // First: once the item is taken back a closed queue may be idle, and end what is left.
        let ends = task.end(JoinError::Cancelled);
        cancel::cancel(&self.item);
        // The poll that was taken back does not come to do it.
        task.forget_wake();
        ends
    }

    fn item(&self) -> &ReusableRef {
        &self.item
    }
}

impl<F> Wake for Task<F>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn wake(self: Arc<Self>) {
        self.submit_or_end(Origin::Own);
    }
}

impl<F: Future> Drop for Task<F> {
    fn drop(&mut self) {
        self.outcome.complete(Err(JoinError::Cancelled));
    }
}

impl<F> Ends for Task<F>
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn end(&self, why: QueueError) {
        Task::end(self, JoinError::Rejected(why));
    }
}

/// Polls a future on a queue, with the name that its user has given it. Returns why it was refused,
/// too.
pub(crate) fn spawn<F>(
    queue: &Workqueue,
    name: Option<Name>,
    future: F,
) -> (JoinHandle<F::Output>, Option<QueueError>)
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let woken = Arc::new(Mutex::new(None));
    let item = ReusableRef::new(Polls {
        name,
        woken: woken.clone(),
    });
    let outcome = Arc::new(Outcome::default());
    let task = Arc::new(Task {
        item: item.clone(),
        queue: queue.clone(),
        woken,
        state: Mutex::new(State::Waiting(Box::pin(future))),
        outcome: outcome.clone(),
        polled_on: AtomicUsize::new(NOWHERE),
    });
    let weak = Arc::downgrade(&task);
    queue.inner().unfinished.add(weak.clone());
    let refusal = task.submit_or_end(Origin::Anybody);
    if let (Some(task), Some(why)) = (weak.upgrade(), queue.inner().unfinished.over()) {
        // It came while the others were ended.
        Ends::end(&*task, why);
    }
    let joint = Arc::new(Joint {
        item,
        outcome,
        task: weak,
    });
    let clock = queue.inner().shared.clock.clone();
    (JoinHandle::of_future(joint, clock), refusal)
}

/// How a future has ended, and who waits for that.
struct Outcome<T>(Mutex<OutcomeState<T>>);

enum OutcomeState<T> {
    Open(Option<Notify>),
    Done(Result<T, JoinError>),
    Taken,
}

impl<T> Default for Outcome<T> {
    fn default() -> Self {
        Self(Mutex::new(OutcomeState::Open(None)))
    }
}

impl<T> Outcome<T> {
    /// The first end counts. Never panics.
    fn complete(&self, result: Result<T, JoinError>) {
        let mut state = self.0.lock();
        let OutcomeState::Open(waiter) = &mut *state else {
            return;
        };
        let waiter = waiter.take();
        *state = OutcomeState::Done(result);
        drop(state);
        if let Some(waiter) = waiter {
            contained(|| waiter.notify());
        }
    }

    fn take_or_wait(&self, notify: &mut dyn FnMut() -> Notify) -> Option<Result<T, JoinError>> {
        if let Some(result) = self.0.lock().take() {
            return Some(result);
        }
        // A waker may run anything when it is cloned or dropped, so neither is under the lock.
        let mut notify = Some(notify());
        let mut state = self.0.lock();
        let result = state.take();
        if let OutcomeState::Open(waiter) = &mut *state {
            mem::swap(waiter, &mut notify);
        }
        drop(state);
        drop(notify);
        result
    }

    fn is_set(&self) -> bool {
        !matches!(*self.0.lock(), OutcomeState::Open(_))
    }
}

impl<T> Drop for Outcome<T> {
    /// What nobody has taken is dropped by whoever comes last, a handle perhaps: as with functions,
    /// a panic of its destructor is nobody's.
    fn drop(&mut self) {
        let state = mem::replace(self.0.get_mut(), OutcomeState::Taken);
        contained(|| drop(state));
    }
}

impl<T> OutcomeState<T> {
    fn take(&mut self) -> Option<Result<T, JoinError>> {
        if let Self::Open(_) = self {
            return None;
        }
        match mem::replace(self, Self::Taken) {
            Self::Done(result) => Some(result),
            _ => Some(Err(JoinError::Taken)),
        }
    }
}
