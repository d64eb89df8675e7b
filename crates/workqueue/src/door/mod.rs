//! What is behind a workqueue handle: its gates, and the way of an item through them to a pool.

use crate::attrs::{Kind, Layout};
use crate::error::QueueError;
use crate::flush::Colour;
use crate::gate::Gate;
use crate::item::{Ended, Instance, Set, WorkRef};
use crate::pool::{Deed, Deeds, Entry, Env, Pool};
use crate::rescuer::Rescuer;
use crate::stats::WorkqueueStats;
use crate::system;
use crate::trace::{self, TraceStep};
use crate::watchdog::Waiting;
use crate::worker;
use inflight_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::wait::Event;
use inflight_sync::{Arc, CachePadded, Mutex, MutexGuard, Weak};
use inflight_topology::Topology;
use std::fmt;
use std::time::Duration;

mod call;
mod submit;

pub(crate) struct Shared {
    name: String,
    /// Names the queue among all of the system that ever were.
    number: u64,
    kind: Kind,
    layout: Arc<Layout>,
    /// One for each CPU of a bound queue, one for an unbound queue.
    gates: Box<[CachePadded<Door>]>,
    /// Items have ended: flushes and drains look again.
    event: Event,
    /// Items that were to be queued later and were refused then. Relaxed: a statistic.
    refused: AtomicU64,
    /// Its items hold nobody back once they have started.
    cpu_intensive: bool,
    counts: [AtomicU64; Count::KINDS],
    /// The name of the last item that has panicked, and what it said.
    last_panic: Mutex<Option<(String, Option<String>)>>,
    /// By CPU: what items take along to find the queue. Each has its own count of handles.
    homes: Box<[Arc<Home>]>,
    /// Runs the items when no worker can be had.
    rescuer: Option<Arc<Rescuer>>,
    system: Arc<system::Shared>,
}

/// What a queue's builder may switch on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) highpri: bool,
    pub(crate) mem_reclaim: bool,
    pub(crate) cpu_intensive: bool,
}

/// What is counted for a queue as a whole. Relaxed: statistics.
#[derive(Clone, Copy)]
pub(crate) enum Count {
    CmWakeup,
    FoundAsleep,
    Intensive,
    /// In ns.
    CpuTime,
    /// How often an item has said that it gets on.
    Touched,
}

/// More of them than this share a count of handles.
const HOMES: usize = 16;

impl Count {
    const KINDS: usize = 5;
}

struct Door {
    /// What has been queued and not been looked at yet.
    mail: CachePadded<Mailbox>,
    state: Mutex<DoorState>,
    /// Runs that have begun. Relaxed: a statistic.
    started: AtomicU64,
}

/// A gate's mailbox. Its lock comes after the gate's and before the pools'.
struct Mailbox {
    inside: Mutex<Mail>,
    /// How many letters there are. Written under the lock, and read where it is enough to know of
    /// those that came before, by whatever told the reader of them.
    letters: AtomicUsize,
}

struct Mail {
    /// Oldest first.
    letters: Vec<Letter>,
    /// Nothing is put in: who queues asks the gate.
    closed: bool,
    /// By the places of the gate's pools.
    bells: Vec<Option<Bell>>,
}

/// How a pool learns of its letters.
struct Bell {
    pool: Arc<Pool>,
    /// Somebody has rung, or is about to, since the mailbox was emptied.
    rung: bool,
}

/// An item with PENDING set, on its way to the gate.
struct Letter {
    work: WorkRef,
    set: Set,
    /// Which of the gate's pools it is to go to.
    pool: usize,
}

pub(crate) struct DoorState {
    gate: Gate<Entry>,
    /// Pools by place, or the only one. Filled as they are needed.
    pools: Vec<Option<Arc<Pool>>>,
    /// Room for the letters of the next visit.
    room: Vec<Letter>,
    draining: usize,
    destroyed: bool,
    shut: bool,
    completed: u64,
    panicked: u64,
    cancelled: u64,
}

/// An item's way back to the queue through which it has gone.
#[derive(Debug)]
pub(crate) struct Home(CachePadded<Weak<Shared>>);

/// What is left to do after an item was taken back, outside all locks.
#[must_use]
pub(crate) struct Withdrawn {
    entry: Option<Entry>,
    deeds: Deeds,
    left: Left,
}

/// What is left to do after an item has ended, outside all locks.
#[derive(Default)]
#[must_use]
struct Left {
    deed: Deed,
    /// The item that has become active, if somebody wants to know.
    promoted: Option<WorkRef>,
    /// Somebody who waits for the queue should look again.
    news: bool,
    /// Somebody waits for the whole system.
    shut: bool,
}

impl Left {
    fn settle(self, queue: &Shared) {
        self.deed.perform();
        if let Some(work) = self.promoted {
            queue.trace(&work, TraceStep::Activated);
        }
        if self.news {
            queue.event.notify_all();
            if self.shut {
                queue.system.queue_is_idle();
            }
        }
    }
}

impl Withdrawn {
    pub(crate) fn settle(self) {
        self.deeds.perform();
        if let Some(entry) = &self.entry {
            self.left.settle(&entry.queue);
            entry.queue.trace(&entry.work, TraceStep::Cancelled);
        }
    }
}

impl Home {
    /// The queue, if it is still there, and if it has that gate: the number may be another queue's.
    fn queue_with(&self, gate: usize) -> Option<Arc<Shared>> {
        self.0.upgrade().filter(|queue| gate < queue.gates.len())
    }

    /// Whether the caller is the item whose slot this one waits for. No lock is held.
    pub(crate) fn is_behind_caller(
        &self,
        gate: usize,
        key: usize,
        instance: Instance,
        ticket: impl Fn() -> Option<u64>,
    ) -> bool {
        let Some(queue) = self.queue_with(gate) else {
            return false;
        };
        if !worker::runs_through(queue.key(), gate) {
            return false;
        }
        queue.visit(gate, |state, _| {
            let is_this = |e: &Entry| e.instance == instance && e.work.key() == key;
            ticket().is_some_and(|ticket| state.gate.is_behind_the_only_one(ticket, is_this))
        })
    }

    /// Takes the entry back, wherever it is in that queue. The item's lock is held.
    pub(crate) fn withdraw(
        &self,
        gate: usize,
        key: usize,
        instance: Instance,
        ticket: impl Fn() -> Option<u64>,
    ) -> Option<Withdrawn> {
        let queue = self.queue_with(gate)?;
        let (mut state, deeds) = queue.open(gate);
        let is_this = |e: &Entry| e.instance == instance && e.work.key() == key;
        let inactive = ticket().and_then(|ticket| state.gate.remove(ticket, is_this));
        let left = inactive
            .as_ref()
            .map(|entry| state.leave(entry.colour, Ended::Cancelled, false));
        drop(state);
        // Not found at all: a worker has it in hand and will find that it cannot claim it.
        let entry = inactive.or_else(|| queue.system.remove(key, instance));
        let left = left.or_else(|| {
            // Pools are shared: it may have come through another queue.
            let entry = entry.as_ref()?;
            let door = &entry.queue.gates[entry.gate];
            let mut state = door.state.lock();
            Some(state.leave(entry.colour, Ended::Cancelled, true))
        });
        Some(Withdrawn {
            entry,
            deeds,
            left: left.unwrap_or_default(),
        })
    }
}

impl Door {
    /// Items that have been queued here.
    fn queued(&self) -> u64 {
        let state = self.state.lock();
        state.gate.queued() + self.letters() as u64
    }

    fn letters(&self) -> usize {
        // Relaxed: as said where it is.
        self.mail.letters.load(Ordering::Relaxed)
    }

    /// The letters become items that have been queued. The gate is locked.
    fn deliver(&self, queue: &Arc<Shared>, gate: usize, state: &mut DoorState) -> Deeds {
        let mut letters = {
            if self.letters() == 0 {
                return Deeds::default();
            }
            let mut mail = self.mail.inside.lock();
            // Relaxed: as said where it is.
            self.mail.letters.store(0, Ordering::Relaxed);
            for bell in mail.bells.iter_mut().flatten() {
                bell.rung = false;
            }
            std::mem::replace(&mut mail.letters, std::mem::take(&mut state.room))
        };
        let mut deeds = Deeds::default();
        {
            let DoorState {
                gate: limit, pools, ..
            } = state;
            let mut rest = letters.drain(..).peekable();
            while let Some(first) = rest.peek() {
                let place = first.pool;
                let pool = pools[place].as_ref().expect("its letter was accepted");
                let mut active = || {
                    while let Some(letter) = rest.next_if(|letter| letter.pool == place) {
                        let entry = queue.admit(limit, letter.work, letter.set, gate, pool);
                        if entry.is_some() {
                            return entry;
                        }
                    }
                    None
                };
                deeds.push(pool.push_all(queue, std::iter::from_fn(&mut active)));
            }
        }
        state.room = letters;
        deeds
    }
}

impl DoorState {
    /// An item has ended: gives its slot to the next one.
    fn leave(&mut self, colour: Colour, ended: Ended, was_active: bool) -> Left {
        match ended {
            Ended::Returned => self.completed += 1,
            Ended::Panicked(_) => self.panicked += 1,
            Ended::Cancelled => self.cancelled += 1,
        }
        let news = self.gate.leave(colour, was_active);
        let (deed, promoted) = self.promote();
        Left {
            deed: deed.unwrap_or_default(),
            promoted,
            news,
            shut: self.shut,
        }
    }

    /// Lets one inactive item through, if there is room.
    fn promote(&mut self) -> (Option<Deed>, Option<WorkRef>) {
        let Some(entry) = self.gate.promote() else {
            return (None, None);
        };
        let (pool, entry) = entry.into_active();
        let promoted = trace::is_on(pool.env()).then(|| entry.work.clone());
        (Some(pool.push(entry)), promoted)
    }

    /// Whether who queues has to ask.
    fn is_closed(&self) -> bool {
        self.shut || self.destroyed || self.draining > 0
    }

    fn refusal(&self, queue: usize) -> Option<QueueError> {
        if self.shut {
            return Some(QueueError::ShutDown);
        }
        if (self.destroyed || self.draining > 0) && !worker::runs_item_of(queue) {
            let destroyed = self.destroyed;
            return Some(if destroyed {
                QueueError::Destroyed
            } else {
                QueueError::Draining
            });
        }
        None
    }
}

impl Shared {
    pub(crate) fn new(
        name: String,
        kind: Kind,
        flags: Flags,
        max_active: usize,
        rescuer: Option<Arc<Rescuer>>,
        system: &Arc<system::Shared>,
    ) -> Arc<Self> {
        let layout = Layout::new(&system.env().topology, kind, flags.highpri);
        let (gates, pools) = match kind {
            Kind::Bound => (layout.places.len(), 1),
            Kind::Unbound(_) | Kind::Ordered(_) => (1, layout.places.len()),
        };
        let door = || {
            CachePadded::new(Door {
                mail: CachePadded::new(Mailbox {
                    inside: Mutex::new(Mail {
                        letters: Vec::new(),
                        closed: false,
                        bells: (0..pools).map(|_| None).collect(),
                    }),
                    letters: AtomicUsize::new(0),
                }),
                state: Mutex::new(DoorState {
                    gate: Gate::new(max_active),
                    pools: vec![None; pools],
                    room: Vec::new(),
                    draining: 0,
                    destroyed: false,
                    shut: false,
                    completed: 0,
                    panicked: 0,
                    cancelled: 0,
                }),
                started: AtomicU64::new(0),
            })
        };
        Arc::new_cyclic(|me| Self {
            homes: (0..system.env().topology.cpus().len().clamp(1, HOMES))
                .map(|_| Arc::new(Home(CachePadded::new(me.clone()))))
                .collect(),
            name,
            number: system.env().metering.number(),
            kind,
            layout,
            gates: (0..gates).map(|_| door()).collect(),
            event: Event::new(),
            refused: AtomicU64::new(0),
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            last_panic: Mutex::new(None),
            // Every active item of an unbound queue runs, up to its CPUs: the flag means nothing.
            cpu_intensive: flags.cpu_intensive && kind == Kind::Bound,
            rescuer,
            system: system.clone(),
        })
    }

    /// Names the queue among all that exist.
    pub(crate) fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn is_cpu_intensive(&self) -> bool {
        self.cpu_intensive
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// How many items are active, over all CPUs, and how many may be, on each CPU of a bound queue.
    pub(crate) fn level(&self) -> (usize, usize) {
        let levels = self.gates.iter().map(|door| {
            let state = door.state.lock();
            let (active, _) = state.gate.room_for(door.letters());
            (state.gate.active() + active, state.gate.max_active())
        });
        levels.fold((0, 0), |(sum, _), (active, max)| (sum + active, max))
    }

    pub(crate) fn is_highpri(&self) -> bool {
        self.layout.places[0].high
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn env(&self) -> &Arc<Env> {
        self.system.env()
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.env().topology
    }

    pub(crate) fn clock(&self) -> Clock {
        self.env().clock.clone()
    }

    pub(crate) fn counted(&self, what: Count, times: u64) {
        self.counts[what as usize].fetch_add(times, Ordering::Relaxed);
    }

    /// Its items have used so much CPU time.
    pub(crate) fn used_cpu(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.counted(Count::CpuTime, nanos);
    }

    fn count(&self, what: Count) -> u64 {
        self.counts[what as usize].load(Ordering::Relaxed)
    }

    /// An item has panicked.
    pub(crate) fn panicked(&self, item: &str, message: Option<&str>) {
        let last = Some((item.to_owned(), message.map(str::to_owned)));
        *self.last_panic.lock() = last;
    }

    pub(crate) fn last_panic(&self) -> Option<(String, Option<String>)> {
        self.last_panic.lock().clone()
    }

    /// Tells it, if somebody wants to know. No lock may be held.
    pub(crate) fn trace(&self, work: &WorkRef, step: TraceStep) {
        if trace::is_on(self.env()) {
            trace::tell(self.env(), &self.name, work.name(), step);
        }
    }

    /// What waits here because `max_active` others are active, if anything does.
    pub(crate) fn starved(&self) -> Option<Waiting> {
        self.gates.iter().find_map(|door| {
            let state = door.state.lock();
            let (ticket, first) = state.gate.first_inactive()?;
            Some(Waiting {
                place: format!("queue {}", self.name),
                progress: ticket + self.count(Count::Touched),
                item: format!("{}: {}", self.name, first.work.name()),
                waiting: state.gate.inactive(),
                running: Vec::new(),
            })
        })
    }

    /// An item was not queued although its time had come.
    pub(crate) fn refused_later(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn rescuer(&self) -> Option<&Arc<Rescuer>> {
        self.rescuer.as_ref()
    }

    pub(crate) fn is_rescued_by(&self, rescuer: &Arc<Rescuer>) -> bool {
        self.rescuer().is_some_and(|r| Arc::ptr_eq(r, rescuer))
    }

    /// Nothing is queued and nothing will be.
    pub(crate) fn dismiss_rescuer(&self) {
        if let Some(rescuer) = &self.rescuer {
            rescuer.stop();
        }
    }

    /// What an item queued from that CPU takes along.
    fn home(&self, cpu: usize) -> Arc<Home> {
        self.homes[cpu % self.homes.len()].clone()
    }

    /// Locks a gate. What was in its mailbox has come; the deeds are for when no lock is held.
    fn open(self: &Arc<Self>, gate: usize) -> (MutexGuard<'_, DoorState>, Deeds) {
        let door = &self.gates[gate];
        let mut state = door.state.lock();
        let deeds = door.deliver(self, gate, &mut state);
        (state, deeds)
    }

    /// A section of a gate, with an empty mailbox. No lock is held.
    fn visit<R>(
        self: &Arc<Self>,
        gate: usize,
        f: impl FnOnce(&mut DoorState, &mut Mail) -> R,
    ) -> R {
        let (mut state, deeds) = self.open(gate);
        let result = f(&mut state, &mut self.gates[gate].mail.inside.lock());
        drop(state);
        deeds.perform();
        result
    }

    fn visit_all(self: &Arc<Self>, mut f: impl FnMut(usize, &mut DoorState, &mut Mail)) {
        for gate in 0..self.gates.len() {
            self.visit(gate, |state, mail| f(gate, state, mail));
        }
    }

    /// V2: the mailbox of that gate has been rung for.
    pub(crate) fn fetch(self: &Arc<Self>, gate: usize) {
        let (state, deeds) = self.open(gate);
        drop(state);
        deeds.perform();
    }

    /// A change of who may queue: from now on the mailbox is open or closed accordingly.
    fn change(self: &Arc<Self>, f: impl Fn(&mut DoorState)) {
        self.visit_all(|_, state, mail| {
            f(state);
            mail.closed = state.is_closed();
        });
    }

    pub(crate) fn started(&self, gate: usize) {
        self.gates[gate].started.fetch_add(1, Ordering::Relaxed);
    }

    /// E1-E3: an active item has ended, or its worker found it cancelled.
    pub(crate) fn leave(&self, gate: usize, colour: Colour, ended: Ended) {
        let left = self.gates[gate].state.lock().leave(colour, ended, true);
        left.settle(self);
    }

    /// F1: closes the current colour of every gate. Returns what a flush waits for.
    fn close_colours(self: &Arc<Self>) -> Vec<(usize, Colour)> {
        let mut closed = Vec::new();
        self.visit_all(|gate, state, _| {
            closed.extend(state.gate.ledger.close().map(|colour| (gate, colour)));
        });
        closed
    }

    /// F2: whether something that the flush waits for is left.
    fn holds(&self, colours: &mut Vec<(usize, Colour)>) -> bool {
        colours
            .retain(|(gate, colour)| !self.gates[*gate].state.lock().gate.ledger.is_over(*colour));
        !colours.is_empty()
    }

    /// D2: whether at some moment during this call nothing was queued, active or inactive.
    ///
    /// Both sums only grow, and what ends was queued before. All ends are read before any queueing:
    /// if the sums are equal, nothing was left at the moment between. Looking at one gate after the
    /// other would miss an item that moves to a gate already seen.
    pub(crate) fn is_idle(&self) -> bool {
        let ends = self.gates.iter().map(|d| d.state.lock().gate.ended());
        let ended: u64 = ends.sum();
        let queued: u64 = self.gates.iter().map(|d| d.queued()).sum();
        ended == queued
    }

    pub(crate) fn shut(self: &Arc<Self>) {
        self.change(|state| state.shut = true);
    }

    pub(crate) fn flush(self: &Arc<Self>) {
        let mut colours = self.close_colours();
        self.event.wait_while(|| self.holds(&mut colours));
    }

    /// D1-D3: only the queue's own items may queue until it is empty.
    pub(crate) fn drain(self: &Arc<Self>) {
        self.change(|state| state.draining += 1);
        self.event.wait_while(|| !self.is_idle());
        self.change(|state| state.draining -= 1);
    }

    pub(crate) fn destroy(self: &Arc<Self>) {
        self.change(|state| state.destroyed = true);
        self.drain();
        self.dismiss_rescuer();
    }

    pub(crate) fn set_max_active(self: &Arc<Self>, max_active: usize) {
        for gate in 0..self.gates.len() {
            let (mut state, mut deeds) = self.open(gate);
            let mut promoted = Vec::new();
            state.gate.set_max_active(max_active);
            loop {
                let (deed, work) = state.promote();
                match deed {
                    Some(deed) => deeds.push(deed),
                    None => break,
                }
                promoted.extend(work);
            }
            drop(state);
            deeds.perform();
            for work in promoted {
                self.trace(&work, TraceStep::Activated);
            }
        }
    }

    pub(crate) fn is_congested(&self, cpu: usize) -> bool {
        let (gate, _) = self.route(cpu, None);
        let door = &self.gates[gate];
        let state = door.state.lock();
        state.gate.room_for(door.letters() + 1).1 > 0
    }

    pub(crate) fn stats(&self) -> WorkqueueStats {
        let metered = self.env().metering.is_on();
        let mut stats = WorkqueueStats {
            refused: self.refused.load(Ordering::Relaxed),
            cm_wakeups: self.count(Count::CmWakeup),
            found_asleep: self.count(Count::FoundAsleep),
            cpu_intensive: self.count(Count::Intensive),
            maydays: self.rescuer().map_or(0, |rescuer| rescuer.maydays()),
            cpu_time: metered.then(|| Duration::from_nanos(self.count(Count::CpuTime))),
            rescued: self.rescuer().map_or(0, |rescuer| rescuer.rescued()),
            ..WorkqueueStats::default()
        };
        for door in &self.gates {
            let state = door.state.lock();
            let letters = door.letters();
            let (active, inactive) = state.gate.room_for(letters);
            stats.queued += state.gate.queued() + letters as u64;
            stats.started += door.started.load(Ordering::Relaxed);
            stats.completed += state.completed + state.panicked;
            stats.panicked += state.panicked;
            stats.cancelled += state.cancelled;
            stats.active += state.gate.active() + active;
            stats.inactive += state.gate.inactive() + inactive;
        }
        stats
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.dismiss_rescuer();
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workqueue")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
