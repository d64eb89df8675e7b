//! Futures as items: each poll is a run.
//!
//! The item's word does what an executor needs. A wake queues the item; while it is pending, more
//! wakes change nothing; after one during a poll it runs again, never twice at once.
//!
//! A waker holds the task, and the task holds its item. The item holds the task only from a wake
//! until the poll that follows, so a future that nothing can wake any more is dropped.

use crate::error::{JoinError, PanicPayload, QueueError};
use crate::item::{Name, Promise, ReusableRef, Run};
use crate::join_handle::{FutureHandle, JoinHandle};
use crate::panics::{caught, contained};
use crate::unfinished::Ends;
use crate::workqueue::Workqueue;
use crate::workqueue_inner::{Count, Origin};
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, Mutex, cpu};
use std::any::type_name;
use std::future::Future;
use std::mem;
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

mod ends_in_turn;

const NOWHERE: usize = usize::MAX;

/// The task, from a wake until the poll that follows.
type Woken<F> = Mutex<Option<Arc<Task<F>>>>;

struct Task<F: Future> {
    item: ReusableRef,
    queue: Workqueue,
    woken: Arc<Woken<F>>,
    state: Mutex<State<F>>,
    /// The CPU on which it was polled last, or `NOWHERE`. Relaxed: a hint.
    polled_on: AtomicUsize,
}

enum State<F: Future> {
    /// The promise comes first: the future's destructor may take long.
    Waiting(Promise<F::Output>, Pin<Box<F>>),
    /// With the reason why it ends after this poll.
    Polled(Option<JoinError>),
    Over,
}

struct Polls<F: Future> {
    name: Option<Name>,
    woken: Arc<Woken<F>>,
}

impl<F: Future<Output: Send> + Send + 'static> Run for Polls<F> {
    fn own_name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn function() -> &'static str {
        type_name::<F>()
    }

    fn run(&self) -> ControlFlow<()> {
        let task = self.woken.lock().take();
        // Empty if the poll before has seen what this wake was for.
        match task.map_or(Ok(()), Task::poll) {
            Ok(()) => ControlFlow::Break(()),
            // As the item's panic, so that it is counted.
            Err(Some(message)) => resume_unwind(Box::new(message)),
            Err(None) => resume_unwind(Box::new(())),
        }
    }
}

impl<F: Future<Output: Send> + Send + 'static> Task<F> {
    /// `Err` if the future has panicked, with the message if there is one; the handle has the
    /// payload.
    fn poll(self: Arc<Self>) -> Result<(), Option<String>> {
        let (promise, mut future) = {
            let mut state = self.state.lock();
            match mem::replace(&mut *state, State::Polled(None)) {
                State::Waiting(promise, future) => (promise, future),
                // It was ended before.
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
        let mut panicked = Ok(());
        let result = match result {
            Ok(Poll::Pending) => {
                let mut state = self.state.lock();
                match mem::replace(&mut *state, State::Over) {
                    State::Polled(Some(why)) => Err(why),
                    _ => {
                        *state = State::Waiting(promise, future);
                        return Ok(());
                    }
                }
            }
            Ok(Poll::Ready(value)) => Ok(value),
            Err(payload) => {
                let payload = PanicPayload::new(self.item.name().to_owned().into(), payload);
                panicked = Err(payload.message().map(str::to_owned));
                Err(JoinError::Panicked(payload))
            }
        };
        *self.state.lock() = State::Over;
        // Panics of the user's destructors and wakers are not the poll's.
        contained(|| drop(future));
        promise.complete(result);
        panicked
    }

    /// Queues a poll. If the result is a refusal, the caller ends the future.
    fn submit(self: &Arc<Self>, origin: Origin) -> Option<QueueError> {
        let queue = self.queue.inner();
        let cpu = self.place(queue.here());
        let before = self.woken.lock().replace(self.clone());
        // The same task, so this only lowers its count.
        drop(before);
        let refusal = queue.queue_from(&self.item, cpu, origin).err()?;
        self.forget_wake();
        Some(refusal)
    }

    fn refused(&self, refusal: QueueError) {
        if self.end(JoinError::Rejected(refusal)) {
            self.queue.inner().counted(Count::Refused);
        }
    }

    fn place(&self, waker: usize) -> usize {
        let inner = self.queue.inner();
        if inner.flags.wake_rules.is_none() {
            return waker;
        }
        let previous = self.polled_on.load(Ordering::Relaxed);
        inner.place(waker, if previous == NOWHERE { waker } else { previous })
    }
}

impl<F: Future<Output: Send> + Send + 'static> Wake for Task<F> {
    fn wake(self: Arc<Self>) {
        if let Some(refusal) = self.submit(Origin::Own) {
            ends_in_turn::soon(move || self.refused(refusal));
        }
    }
}

impl<F: Future<Output: Send> + Send + 'static> Ends for Task<F> {
    fn end(&self, why: JoinError) -> bool {
        let mut state = self.state.lock();
        if let State::Polled(first) = &mut *state {
            first.get_or_insert(why);
            return true;
        }
        let State::Waiting(promise, future) = mem::replace(&mut *state, State::Over) else {
            return false;
        };
        drop(state);
        ends_in_turn::now(|| {
            contained(|| drop(future));
            promise.complete(Err(why));
        });
        true
    }

    fn forget_wake(&self) {
        let woken = self.woken.lock().take();
        // The same task, so this only lowers its count.
        drop(woken);
    }
}

impl<F: Future> Drop for Task<F> {
    /// If the future has not ended, nobody can wake it any more. This may be the end of a poll, of
    /// a waker or of the call that has spawned it: a panic of its destructor is not theirs.
    fn drop(&mut self) {
        if let State::Waiting(promise, future) = mem::replace(self.state.get_mut(), State::Over) {
            drop(promise);
            contained(|| drop(future));
        }
    }
}

/// Polls a future on a queue, with the name that its user gave it. Also returns the refusal.
pub(crate) fn spawn<F: Future<Output: Send> + Send + 'static>(
    queue: &Workqueue,
    name: Option<Name>,
    future: F,
) -> (JoinHandle<F::Output>, Option<QueueError>) {
    let woken = Arc::new(Mutex::new(None));
    let item = ReusableRef::new(Polls {
        name,
        woken: woken.clone(),
    });
    let (promise, result) = Promise::new();
    let task = Arc::new(Task {
        item: item.clone(),
        queue: queue.clone(),
        woken,
        state: Mutex::new(State::Waiting(promise, Box::pin(future))),
        polled_on: AtomicUsize::new(NOWHERE),
    });
    let weak = Arc::downgrade(&task);
    queue.inner().unfinished.add(weak.clone());
    let refusal = task.submit(Origin::Anybody);
    if let Some(refusal) = refusal {
        task.refused(refusal);
    }
    drop(task);
    let future = Some(Box::new(FutureHandle { item, task: weak }));
    let clock = queue.inner().shared.clock.clone();
    (JoinHandle::new(result, future, clock), refusal)
}
