//! A worker pool: the core behind its lock, and the threads that drive it.

use crate::attrs::Place;
use crate::door::Shared;
use crate::flush::Colour;
use crate::item::WorkRef;
use crate::machine::{Action, Core, Item, Next, State};
use crate::timekeeper::Timekeeper;
use crate::worker;
use inflight_sync::fault::Faults;
use inflight_sync::thread::{self, Builder, JoinHandle};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex, Parker, Unparker};
use inflight_topology::Topology;
use std::fmt;
use std::io;
use std::time::Duration;

/// What every pool of a system shares.
pub(crate) struct Env {
    pub(crate) topology: Topology,
    pub(crate) clock: Clock,
    pub(crate) faults: Faults,
    pub(crate) threads: Mutex<Threads>,
    pub(crate) timekeeper: Timekeeper,
}

impl Env {
    /// Starts a thread that the end of the system waits for.
    pub(crate) fn start_thread(
        &self,
        name: String,
        f: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        // The lock spans the start, so that whoever stops the threads joins this one or prevents
        // it.
        let mut threads = self.threads.lock();
        if threads.stopped {
            return Err(io::Error::other("the workqueue system has been shut down"));
        }
        let builder = Builder::new().name(name).faults(&self.faults);
        threads.handles.push(builder.spawn(f)?);
        Ok(())
    }
}

/// The worker threads of a system.
#[derive(Default)]
pub(crate) struct Threads {
    pub(crate) handles: Vec<JoinHandle<()>>,
    /// No thread is started any more.
    pub(crate) stopped: bool,
    /// Somebody has taken the handles to join them.
    pub(crate) joining: bool,
    /// All threads have ended.
    pub(crate) joined: bool,
}

/// One queueing of one item, on its way through a gate and a pool.
pub(crate) struct Entry {
    pub(crate) work: WorkRef,
    pub(crate) queue: Arc<Shared>,
    pub(crate) pool: Arc<Pool>,
    /// Which gate of the queue it passes.
    pub(crate) gate: usize,
    pub(crate) instance: u64,
    pub(crate) colour: Colour,
    /// The item was being run by this pool when it was queued.
    pub(crate) may_be_running: bool,
}

impl Item for Entry {
    type Key = usize;

    fn key(&self) -> usize {
        self.work.key()
    }

    fn may_be_running(&self) -> bool {
        self.may_be_running
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("work", &format_args!("{:#x}", self.work.key()))
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}

/// An [`Action`] that has left the lock.
#[must_use = "a worker is waiting to be brought"]
pub(crate) enum Deed {
    None,
    Wake(Unparker),
    Create(Arc<Pool>),
}

impl Deed {
    /// Does it. No lock of gates, pools or items may be held.
    pub(crate) fn perform(self) {
        // A worker that waits with this library's means looks at its pool before it sleeps again.
        self.attempt().unwrap_or_else(|blocked| wake_all(&blocked));
    }

    /// Does it, for a worker that can [`keep`](Pool::keep_asking) asking. Else, if no thread can be
    /// had, those who may be able to are to be woken.
    pub(crate) fn attempt(self) -> Result<(), Vec<Unparker>> {
        match self {
            Self::None => Ok(()),
            Self::Wake(unparker) => {
                unparker.unpark();
                Ok(())
            }
            Self::Create(pool) => pool.bring_worker(),
        }
    }
}

fn wake_all(workers: &[Unparker]) {
    workers.iter().for_each(Unparker::unpark);
}

/// How often a refused thread is asked for at once.
const ATTEMPTS: usize = 4;

/// After how long a blocked worker asks again.
const ASK_AGAIN: Duration = Duration::from_millis(10);

pub(crate) struct Pool {
    place: Place,
    /// Of an unbound pool; names its threads.
    id: usize,
    env: Arc<Env>,
    state: Mutex<Inner>,
}

struct Inner {
    core: Core<Entry>,
    /// By worker.
    unparkers: Vec<Unparker>,
    /// Threads asked for, to number them.
    started: usize,
}

impl Inner {
    fn unparkers(&self, workers: Vec<usize>) -> Vec<Unparker> {
        let workers = workers.into_iter();
        workers.map(|w| self.unparkers[w].clone()).collect()
    }
}

impl Pool {
    /// A pool with its first worker on the way.
    pub(crate) fn new(place: Place, id: usize, env: &Arc<Env>) -> io::Result<Arc<Self>> {
        let pool = Arc::new(Self {
            state: Mutex::new(Inner {
                core: Core::new(place.target()),
                unparkers: Vec::new(),
                started: 0,
            }),
            place,
            id,
            env: env.clone(),
        });
        pool.start_worker()?;
        Ok(pool)
    }

    fn start_worker(self: &Arc<Self>) -> io::Result<()> {
        let number = {
            let mut inner = self.state.lock();
            inner.started += 1;
            inner.started - 1
        };
        let name = match &self.place {
            Place::Cpu(cpu) => format!("inflight/{cpu}:{number}"),
            Place::Pod { .. } => format!("inflight/u{}:{number}", self.id),
        };
        let pool = self.clone();
        self.env.start_thread(name, move || worker::run(&pool))
    }

    /// Starts the worker that the core has asked for. If that fails, returns the blocked workers,
    /// one of which is to ask again.
    fn bring_worker(self: &Arc<Self>) -> Result<(), Vec<Unparker>> {
        for _ in 0..ATTEMPTS {
            if self.start_worker().is_ok() {
                return Ok(());
            }
            thread::yield_now();
        }
        let mut inner = self.state.lock();
        let blocked = inner.core.create_failed();
        Err(inner.unparkers(blocked))
    }

    /// The calling worker is blocked, about to sleep, and no thread could be had for what is ready.
    /// Unless another one does so, it sleeps a little here instead; then its own sleep is left out,
    /// it looks at what it waits for, blocks anew and so asks again.
    pub(crate) fn keep_asking(&self, me: usize) {
        if !self.state.lock().core.keep(me) {
            return;
        }
        // Not the system's clock: that of a test may stand still.
        let clock = Clock::system();
        let deadline = clock.now() + ASK_AGAIN;
        let _ = Parker::current().park_until(&clock, deadline);
        self.state.lock().core.end_keeping();
    }

    /// Keeps the calling worker near its CPUs, as far as the system lets it.
    pub(crate) fn settle_thread(&self) {
        let topology = &self.env.topology;
        match &self.place {
            Place::Cpu(cpu) => {
                // Where pinning is refused the worker runs elsewhere; what it queues stays with it.
                let _ = topology.pin_current_thread_for_good(&[*cpu].into());
                inflight_sync::cpu::set_current_for_thread(Some(*cpu));
            }
            Place::Pod { cpus, strict: true } => {
                let _ = topology.pin_current_thread_for_good(cpus);
            }
            Place::Pod { strict: false, .. } => {}
        }
    }

    pub(crate) fn env(&self) -> &Arc<Env> {
        &self.env
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn id(&self) -> usize {
        self.id
    }

    pub(crate) fn push(self: &Arc<Self>, entry: Entry) -> Deed {
        self.event(|core| ((), core.push(entry))).1
    }

    /// Takes back an entry that no worker has taken.
    pub(crate) fn remove(&self, key: usize, instance: u64) -> Option<Entry> {
        let mut inner = self.state.lock();
        inner
            .core
            .remove(|e| e.instance == instance && e.key() == key)
    }

    /// A worker thread arrives.
    pub(crate) fn enter(&self, unparker: Unparker) -> usize {
        let mut inner = self.state.lock();
        inner.unparkers.push(unparker);
        inner.core.created()
    }

    pub(crate) fn next(self: &Arc<Self>, me: usize) -> (Next<Entry>, Deed) {
        self.event(|core| core.next(me))
    }

    pub(crate) fn block(self: &Arc<Self>, me: usize) -> Deed {
        self.event(|core| ((), core.block(me))).1
    }

    /// A worker that is blocked already goes to sleep.
    pub(crate) fn ask_again(self: &Arc<Self>) -> Deed {
        self.event(|core| ((), core.ask_again())).1
    }

    pub(crate) fn unblock(&self, me: usize) {
        self.state.lock().core.unblock(me);
    }

    pub(crate) fn is_idle(&self, me: usize) -> bool {
        self.state.lock().core.is_idle(me)
    }

    /// Sends the workers home. Nothing is queued and nothing will be.
    pub(crate) fn stop(&self) {
        let woken = {
            let mut inner = self.state.lock();
            let woken = inner.core.stop();
            inner.unparkers(woken)
        };
        wake_all(&woken);
    }

    pub(crate) fn report(&self) -> PoolReport {
        let inner = self.state.lock();
        PoolReport {
            workers: inner.core.states().filter(|s| *s != State::Gone).count(),
            idle: inner.core.states().filter(|s| *s == State::Idle).count(),
            blocked: inner.core.states().filter(|s| *s == State::Blocked).count(),
            running: inner.core.running(),
            target: inner.core.target(),
            ready: inner.core.ready(),
        }
    }

    /// One event of the core; its action becomes a deed.
    fn event<R>(self: &Arc<Self>, f: impl FnOnce(&mut Core<Entry>) -> (R, Action)) -> (R, Deed) {
        let mut inner = self.state.lock();
        let (result, action) = f(&mut inner.core);
        let deed = match action {
            Action::None => Deed::None,
            Action::Wake(worker) => Deed::Wake(inner.unparkers[worker].clone()),
            Action::Create => Deed::Create(self.clone()),
        };
        (result, deed)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("place", &self.place)
            .field("state", &self.report())
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(crate) struct PoolReport {
    pub(crate) workers: usize,
    pub(crate) idle: usize,
    pub(crate) blocked: usize,
    pub(crate) running: usize,
    pub(crate) target: usize,
    pub(crate) ready: usize,
}
