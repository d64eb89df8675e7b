//! A deterministic executor in virtual time.
//!
//! One thread, one heap of events, a manual clock that the simulated types share. A task
//! that is woken is polled after the delay its [`WakeModel`] says, as a thread that was woken runs
//! a little later. Nothing depends on the machine: not the time, not the number of the CPU (each
//! task says where it runs), not an address. The same seed gives the same run.
//!
//! Events of one moment happen in the order in which they were planned.
//!
//! ```
//! use inflight_sim::exec::{Executor, Immediate};
//! use std::time::Duration;
//!
//! let mut executor = Executor::new(1, Immediate);
//! let world = executor.world().clone();
//! executor.spawn(0, async move {
//!     world.sleep(Duration::from_millis(3)).await;
//!     assert_eq!(world.now().as_nanos(), 3_000_000);
//! });
//! executor.run();
//! assert_eq!(executor.tasks(), 0);
//! ```

mod queue;
mod sleep;
mod tasks;
mod wake;

pub use sleep::Sleep;
pub use tasks::TaskId;
pub use wake::{Immediate, SchedulerLatency, Wake, WakeModel};

use fastrand::Rng;
use inflight_sync::time::{Clock, Instant};
use inflight_sync::{Arc, cpu};
use queue::{Event, Queue};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tasks::{Inbox, Tasks};

/// Owns the tasks and runs them.
///
/// Dropping it drops all tasks and planned events.
pub struct Executor {
    world: World,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The time was up.
    Deadline,
    /// All tasks have finished, and nothing is planned.
    Finished,
    /// Nothing is planned any more, but so many tasks wait: nobody will ever wake them.
    Stuck {
        /// Tasks that wait.
        tasks: usize,
    },
}

impl Executor {
    /// An executor at time zero whose random numbers begin at `seed`.
    #[must_use]
    pub fn new(seed: u64, wakes: impl WakeModel + 'static) -> Self {
        Self {
            world: World(Rc::new(Inner {
                clock: Clock::manual(),
                rng: RefCell::new(Rng::with_seed(seed)),
                wakes: RefCell::new(Box::new(wakes)),
                queue: RefCell::default(),
                tasks: RefCell::default(),
                inbox: Arc::default(),
                delayed: Cell::new(true),
            })),
        }
    }

    /// What tasks and events see of this executor.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// As [`World::spawn`].
    pub fn spawn(&self, cpu: usize, future: impl Future<Output = ()> + 'static) -> TaskId {
        self.world.spawn(cpu, future)
    }

    /// How many tasks have not finished.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.world.0.tasks.borrow().len()
    }

    /// Runs until nothing is planned any more. Does not return if tasks go on for ever.
    pub fn run(&mut self) -> End {
        self.run_events(None)
    }

    /// Runs everything planned up to and including `deadline`, and moves the clock there unless
    /// nothing is left to happen before.
    pub fn run_until(&mut self, deadline: Instant) -> End {
        self.run_events(Some(deadline))
    }

    fn run_events(&mut self, deadline: Option<Instant>) -> End {
        let _cpu = RestoreCpu;
        let inner = &self.world.0;
        loop {
            inner.plan_wakes();
            let next = inner.queue.borrow_mut().pop_until(deadline);
            match next {
                Some((at, event)) => {
                    inner.clock.advance(at - inner.clock.now());
                    self.happen(event);
                }
                None if !inner.queue.borrow().is_empty() => {
                    let now = inner.clock.now();
                    inner.clock.advance(deadline.unwrap_or(now) - now);
                    return End::Deadline;
                }
                None => {
                    return match self.tasks() {
                        0 => End::Finished,
                        tasks => End::Stuck { tasks },
                    };
                }
            }
        }
    }

    fn happen(&self, event: Event) {
        let inner = &self.world.0;
        match event {
            Event::Call(call) => {
                cpu::set_current_for_thread(Some(0));
                call(&self.world);
            }
            Event::Timer(waker) => {
                // Who sleeps for a time has the CPU back when it is over.
                inner.delayed.set(false);
                waker.wake();
                inner.plan_wakes();
                inner.delayed.set(true);
            }
            Event::Poll(id) => {
                let Some(mut running) = inner.tasks.borrow_mut().start(id) else {
                    return;
                };
                cpu::set_current_for_thread(Some(running.cpu));
                let mut context = Context::from_waker(&running.waker);
                let poll = running.future.as_mut().poll(&mut context);
                // A task that ended is dropped here, when nothing is borrowed: it may wake others.
                match poll {
                    Poll::Ready(()) => inner.tasks.borrow_mut().end(id),
                    Poll::Pending => {
                        let aborted = inner.tasks.borrow_mut().suspend(id, running);
                        drop(aborted);
                    }
                }
            }
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // Tasks hold the world, and the world the tasks.
        let inner = &self.world.0;
        let tasks = inner.tasks.take();
        let queue = inner.queue.take();
        drop((tasks, queue));
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("now", &self.world.now())
            .field("tasks", &self.tasks())
            .finish_non_exhaustive()
    }
}

/// The simulated world as its inhabitants see it: time, plans and other tasks. A cheap clone.
#[derive(Clone)]
pub struct World(Rc<Inner>);

struct Inner {
    clock: Clock,
    rng: RefCell<Rng>,
    wakes: RefCell<Box<dyn WakeModel>>,
    queue: RefCell<Queue>,
    tasks: RefCell<Tasks>,
    inbox: Arc<Inbox>,
    /// Whether wakes that arrive now are polled after the delay of the model.
    delayed: Cell<bool>,
}

impl World {
    /// The clock of this world, for the types that are simulated.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.0.clock.clone()
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.0.clock.now()
    }

    /// Begins a task on `cpu`: there it is polled. It first runs as if it was woken now.
    pub fn spawn(&self, cpu: usize, future: impl Future<Output = ()> + 'static) -> TaskId {
        let mut tasks = self.0.tasks.borrow_mut();
        let id = tasks.add(cpu, Box::pin(future), &self.0.inbox);
        self.0.inbox.push(id);
        id
    }

    /// Drops a task where it stands. Nothing happens if it has finished.
    ///
    /// A task that aborts itself is dropped when it next waits.
    pub fn abort(&self, id: TaskId) {
        let task = self.0.tasks.borrow_mut().abort(id);
        drop(task);
    }

    /// Waits for `time`. The task has the CPU: when the time is over it goes on at once.
    pub fn sleep(&self, time: Duration) -> Sleep {
        Sleep::new(self.clone(), self.now() + time)
    }

    /// Calls `f` after `delay`.
    pub fn call_after(&self, delay: Duration, f: impl FnOnce(&Self) + 'static) {
        self.plan(self.now() + delay, Event::Call(Box::new(f)));
    }

    fn plan(&self, at: Instant, event: Event) {
        self.0.queue.borrow_mut().plan(at, event);
    }
}

impl Inner {
    /// Turns the wakes that have arrived into polls. Those of one event are one batch.
    fn plan_wakes(&self) {
        let mut rank = 0;
        for task in self.inbox.take() {
            // One that is to be polled anyway needs no second poll.
            let Some(cpu) = self.tasks.borrow_mut().wake(task) else {
                continue;
            };
            let mut delay = Duration::ZERO;
            if self.delayed.get() {
                let wake = Wake { task, cpu, rank };
                delay = self
                    .wakes
                    .borrow_mut()
                    .delay(wake, &mut self.rng.borrow_mut());
            }
            rank += 1;
            let at = self.clock.now() + delay;
            self.queue.borrow_mut().plan(at, Event::Poll(task));
        }
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}

/// Lets the thread have its real CPU number again.
struct RestoreCpu;

impl Drop for RestoreCpu {
    fn drop(&mut self) {
        cpu::set_current_for_thread(None);
    }
}
