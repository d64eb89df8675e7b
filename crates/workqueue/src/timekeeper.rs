//! The system's timekeeper: one thread that does things when their time has come.
//!
//! It is started when the first thing is to be done later, sleeps until the earliest of them, and
//! without limit while there is none. Its time is that of the system's clock.

use crate::door::Shared;
use crate::error::QueueError;
use crate::item::{Instance, WorkRef};
use crate::panics::contained;
use crate::pool::{Env, Pool};
use crate::system;
use crate::threads::End;
use crate::worker;
use inflight_sync::time::Instant;
use inflight_sync::{Arc, Mutex, MutexGuard, Parker, Unparker};
use std::collections::BTreeMap;
use std::fmt;
use std::io;

/// Something that is done at its time, once.
pub(crate) enum Alarm {
    /// An item is queued.
    Queue(Delayed),
    /// A pool that could get no worker is looked after.
    Distress(Arc<Pool>),
    /// A pool in which items wait is looked at.
    Look(Arc<Pool>),
    /// What a pool's workers have used is charged.
    Meter(Arc<Pool>),
    /// The watchdog looks whether all moves.
    Watch(Arc<system::Shared>),
    /// That call of the pool's poller has had its time.
    Call(Arc<Pool>, u64),
}

impl fmt::Debug for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(delayed) => delayed.fmt(f),
            Self::Distress(_) => f.write_str("Distress"),
            Self::Look(_) => f.write_str("Look"),
            Self::Meter(_) => f.write_str("Meter"),
            Self::Watch(_) => f.write_str("Watch"),
            Self::Call(_, call) => write!(f, "Call({call})"),
        }
    }
}

/// An item that waits for its time, and where it goes then.
pub(crate) struct Delayed {
    pub(crate) work: WorkRef,
    pub(crate) queue: Arc<Shared>,
    pub(crate) cpu: usize,
    pub(crate) instance: Instance,
}

impl fmt::Debug for Delayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delayed")
            .field("queue", &self.queue.name())
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}

/// The place of an alarm: earlier ones first, those of the same time in the order they were set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    at: Instant,
    id: u64,
}

/// An item's own end of its alarm.
#[derive(Debug)]
pub(crate) struct Armed {
    queue: Arc<Shared>,
    cpu: usize,
    key: Key,
}

impl Armed {
    /// The CPU that the item goes to.
    pub(crate) fn cpu(&self) -> usize {
        self.cpu
    }

    /// The queue that the item goes to.
    pub(crate) fn queue(&self) -> &Arc<Shared> {
        &self.queue
    }

    /// Takes the alarm back, unless the timekeeper has it in hand: then it finds the item gone.
    pub(crate) fn disarm(&self) -> Option<Alarm> {
        let keeper = &self.queue.env().timekeeper;
        keeper.state.lock().alarms.remove(&self.key)
    }
}

#[derive(Default)]
pub(crate) struct Timekeeper {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    alarms: BTreeMap<Key, Alarm>,
    next_id: u64,
    started: bool,
    /// Where the thread sleeps, once it has arrived.
    thread: Option<Unparker>,
    /// Nothing is queued later any more.
    closed: bool,
    /// The thread leaves.
    stopped: bool,
}

/// The timekeeper, locked, with its thread there or on its way: setting an alarm cannot fail.
pub(crate) struct Ready<'a>(MutexGuard<'a, State>);

/// The timekeeper's thread, if it has to look at its alarms again.
#[must_use = "the timekeeper may sleep past an alarm"]
pub(crate) struct Poke(Option<Unparker>);

impl Poke {
    pub(crate) fn perform(self) {
        if let Some(thread) = self.0 {
            thread.unpark();
        }
    }
}

impl State {
    fn start(&mut self, env: &Arc<Env>) -> io::Result<()> {
        if !self.started {
            let keeper = env.clone();
            env.start_thread("inflight/timer".to_owned(), move || run(&keeper))?;
            self.started = true;
        }
        Ok(())
    }
}

impl Ready<'_> {
    fn set(&mut self, at: Instant, alarm: Alarm) -> (Key, Poke) {
        let state = &mut *self.0;
        let key = Key {
            at,
            id: state.next_id,
        };
        state.next_id += 1;
        let first = state.alarms.first_key_value().is_none_or(|(k, _)| key < *k);
        state.alarms.insert(key, alarm);
        // A thread that has not arrived yet looks when it does.
        let sleeper = state.thread.clone().filter(|_| first);
        (key, Poke(sleeper))
    }

    /// T1: the item is queued at its time.
    pub(crate) fn arm(&mut self, at: Instant, delayed: Delayed) -> (Armed, Poke) {
        let (queue, cpu) = (delayed.queue.clone(), delayed.cpu);
        let (key, poke) = self.set(at, Alarm::Queue(delayed));
        (Armed { queue, cpu, key }, poke)
    }
}

impl Timekeeper {
    /// Locks it, with its thread started.
    pub(crate) fn ready(&self, env: &Arc<Env>) -> Result<Ready<'_>, QueueError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(QueueError::ShutDown);
        }
        let started = state.start(env);
        started.map_err(|e| QueueError::NoTimer(e.kind()))?;
        Ok(Ready(state))
    }

    /// Sets an alarm that is no item's. `false` if the thread cannot be started.
    pub(crate) fn set_alarm(&self, env: &Arc<Env>, at: Instant, alarm: Alarm) -> bool {
        let mut state = self.state.lock();
        if state.stopped || state.start(env).is_err() {
            return false;
        }
        let poke = Ready(state).set(at, alarm).1;
        poke.perform();
        true
    }

    /// Whether its thread has been started.
    pub(crate) fn is_there(&self) -> bool {
        self.state.lock().started
    }

    /// Sets an alarm, unless the thread has not been started.
    pub(crate) fn set_if_there(&self, at: Instant, alarm: Alarm) -> bool {
        let state = self.state.lock();
        if !state.started || state.stopped {
            return false;
        }
        let poke = Ready(state).set(at, alarm).1;
        poke.perform();
        true
    }

    /// Z2: nothing is queued later any more. What waits for its time is idle again.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let (items, others) = std::mem::take(&mut state.alarms)
            .into_iter()
            .partition(|(_, alarm)| matches!(alarm, Alarm::Queue(_)));
        state.alarms = others;
        drop(state);
        let items: BTreeMap<Key, Alarm> = items;
        for alarm in items.into_values() {
            let Alarm::Queue(delayed) = alarm else {
                continue;
            };
            // Dropping an item that nobody else has runs foreign code.
            contained(|| {
                delayed.queue.refuse_later(&delayed.work, delayed.instance);
                drop(delayed);
            });
        }
    }

    /// Z5: sends the thread home.
    pub(crate) fn stop(&self) {
        let (thread, alarms) = {
            let mut state = self.state.lock();
            state.stopped = true;
            (state.thread.clone(), std::mem::take(&mut state.alarms))
        };
        drop(alarms);
        if let Some(thread) = thread {
            thread.unpark();
        }
    }

    /// T2: takes what is due; else says until when to sleep. `None` if the thread is to leave.
    fn due(&self, now: Instant) -> Option<Due> {
        let mut state = self.state.lock();
        if state.stopped {
            return None;
        }
        match state.alarms.first_entry() {
            None => Some(Due::Nothing),
            Some(first) if first.key().at > now => Some(Due::At(first.key().at)),
            Some(first) => Some(Due::Now(first.remove())),
        }
    }
}

enum Due {
    Now(Alarm),
    At(Instant),
    Nothing,
}

/// The thread function of the timekeeper.
fn run(env: &Arc<Env>) -> End {
    worker::join_system(env);
    let parker = Parker::current();
    env.timekeeper.state.lock().thread = Some(parker.unparker());
    while let Some(due) = env.timekeeper.due(env.clock.now()) {
        match due {
            // Dropping an item that nobody else has runs foreign code.
            Due::Now(alarm) => drop(contained(|| ring(alarm))),
            // Woken or in time, it looks again.
            Due::At(at) => drop(parker.park_until(&env.clock, at)),
            Due::Nothing => parker.park(),
        }
    }
    worker::leave_system();
    End::WithSystem
}

fn ring(alarm: Alarm) {
    match alarm {
        Alarm::Queue(delayed) => {
            let queue = delayed.queue.clone();
            queue.expire(delayed);
        }
        Alarm::Distress(pool) => pool.distress(),
        Alarm::Look(pool) => pool.look(),
        Alarm::Meter(pool) => pool.read_meter(),
        Alarm::Watch(system) => system.look(),
        Alarm::Call(pool, call) => pool.call_is_over(call),
    }
}
