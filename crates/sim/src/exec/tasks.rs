//! The tasks, and the wakes that have arrived for them.

use inflight_sync::{Arc, Mutex};
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Wake, Waker};

/// Names a task for as long as the executor lives: numbers are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    slot: usize,
    generation: u64,
}

pub(super) type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;

/// A task outside the table: it runs, or waits to be dropped.
pub(super) struct Running {
    pub(super) cpu: usize,
    pub(super) waker: Waker,
    pub(super) future: TaskFuture,
}

enum State {
    Free,
    Waiting(Running),
    Running { cpu: usize, aborted: bool },
}

struct Slot {
    generation: u64,
    /// A poll is planned.
    woken: bool,
    state: State,
}

#[derive(Default)]
pub(super) struct Tasks {
    slots: Vec<Slot>,
    free: Vec<usize>,
}

impl Tasks {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn add(&mut self, cpu: usize, future: TaskFuture, inbox: &Arc<Inbox>) -> TaskId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                woken: false,
                state: State::Free,
            });
            self.slots.len() - 1
        });
        let entry = &mut self.slots[slot];
        entry.generation += 1;
        entry.woken = false;
        let task = TaskId {
            slot,
            generation: entry.generation,
        };
        let inbox = inbox.clone();
        let waker = Waker::from(Arc::new(TaskWaker { task, inbox }));
        entry.state = State::Waiting(Running { cpu, waker, future });
        task
    }

    fn slot(&mut self, id: TaskId) -> Option<&mut Slot> {
        let slot = &mut self.slots[id.slot];
        let alive = slot.generation == id.generation && !matches!(slot.state, State::Free);
        alive.then_some(slot)
    }

    /// Notes that a poll is planned. Its CPU, unless one was planned before or it is gone.
    pub(super) fn wake(&mut self, id: TaskId) -> Option<usize> {
        let slot = self.slot(id)?;
        let cpu = match &slot.state {
            State::Free => return None,
            State::Waiting(task) => task.cpu,
            State::Running { cpu, .. } => *cpu,
        };
        (!mem::replace(&mut slot.woken, true)).then_some(cpu)
    }

    /// Takes a task out to be polled. Wakes from here on lead to another poll.
    pub(super) fn start(&mut self, id: TaskId) -> Option<Running> {
        let slot = self.slot(id)?;
        slot.woken = false;
        let State::Waiting(task) = &slot.state else {
            return None;
        };
        let running = State::Running {
            cpu: task.cpu,
            aborted: false,
        };
        match mem::replace(&mut slot.state, running) {
            State::Waiting(task) => Some(task),
            State::Free | State::Running { .. } => None,
        }
    }

    /// Puts a task back that waits. Gives it back if it was aborted meanwhile.
    pub(super) fn suspend(&mut self, id: TaskId, task: Running) -> Option<Running> {
        let slot = self.slot(id)?;
        if let State::Running { aborted: true, .. } = slot.state {
            self.end(id);
            return Some(task);
        }
        slot.state = State::Waiting(task);
        None
    }

    pub(super) fn end(&mut self, id: TaskId) {
        if let Some(slot) = self.slot(id) {
            slot.state = State::Free;
            self.free.push(id.slot);
        }
    }

    /// The task, if it can be dropped now.
    pub(super) fn abort(&mut self, id: TaskId) -> Option<Running> {
        let slot = self.slot(id)?;
        if let State::Running { aborted, .. } = &mut slot.state {
            *aborted = true;
            return None;
        }
        let State::Waiting(task) = mem::replace(&mut slot.state, State::Free) else {
            return None;
        };
        self.free.push(id.slot);
        Some(task)
    }
}

/// Wakes in the order in which they arrived.
///
/// Wakers can be sent anywhere, so what they write to is locked; in a simulation there is one
/// thread.
#[derive(Default)]
pub(super) struct Inbox(Mutex<Vec<TaskId>>);

impl Inbox {
    pub(super) fn push(&self, id: TaskId) {
        self.0.lock().push(id);
    }

    pub(super) fn take(&self) -> Vec<TaskId> {
        mem::take(&mut *self.0.lock())
    }
}

struct TaskWaker {
    task: TaskId,
    inbox: Arc<Inbox>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.inbox.push(self.task);
    }
}
