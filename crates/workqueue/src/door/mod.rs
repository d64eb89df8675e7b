//! What is behind a workqueue handle: its gates, and the way of an item through them to a pool.

use crate::attrs::{Kind, Layout};
use crate::error::QueueError;
use crate::flush::Colour;
use crate::gate::Gate;
use crate::item::{Ended, WorkRef};
use crate::pool::{Deed, Entry, Env, Pool};
use crate::rescuer::Rescuer;
use crate::stats::WorkqueueStats;
use crate::system;
use crate::trace::{self, TraceStep};
use crate::watchdog::Waiting;
use crate::worker;
use inflight_sync::atomic::{AtomicU64, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::wait::Event;
use inflight_sync::{Arc, CachePadded, Mutex, MutexGuard};
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

impl Count {
    const KINDS: usize = 5;
}

struct Door {
    state: Mutex<DoorState>,
    /// Runs that have begun. Relaxed: a statistic.
    started: AtomicU64,
}

pub(crate) struct DoorState {
    gate: Gate<Entry>,
    /// Pools by place, or the only one. Filled as they are needed.
    pools: Vec<Option<Arc<Pool>>>,
    draining: usize,
    destroyed: bool,
    shut: bool,
    completed: u64,
    panicked: u64,
    cancelled: u64,
}

/// Where a pending item is.
#[derive(Debug)]
pub(crate) struct Spot {
    queue: Arc<Shared>,
    gate: usize,
    /// Its ticket if it was inactive at first.
    ticket: Option<u64>,
    pool: Arc<Pool>,
}

/// What is left to do after an item was taken back, outside all locks.
#[must_use]
pub(crate) struct Withdrawn {
    queue: Arc<Shared>,
    entry: Option<Entry>,
    left: Left,
}

/// What is left to do after an item has ended, outside all locks.
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
        self.left.settle(&self.queue);
        if let Some(entry) = &self.entry {
            self.queue.trace(&entry.work, TraceStep::Cancelled);
        }
        drop(self.entry);
    }
}

impl Spot {
    /// The queue it came through, and the pool it is in.
    pub(crate) fn into_parts(self) -> (Arc<Shared>, Arc<Pool>) {
        (self.queue, self.pool)
    }

    /// Whether the caller is the item whose slot this one waits for. The item's lock is held.
    pub(crate) fn is_behind_caller(&self) -> bool {
        let Some(ticket) = self.ticket else {
            return false;
        };
        worker::runs_through(self.queue.key(), self.gate)
            && self.queue.gates[self.gate]
                .state
                .lock()
                .gate
                .is_behind_the_only_one(ticket)
    }

    /// Takes the entry back, wherever it is. The item's lock is held.
    pub(crate) fn withdraw(&self, key: usize, instance: u64) -> Withdrawn {
        let mut state = self.queue.gates[self.gate].state.lock();
        let inactive = self.ticket.and_then(|ticket| state.gate.remove(ticket));
        let was_active = inactive.is_none();
        // Not found at all: a worker has it in hand and will find that it cannot claim it.
        let entry = inactive.or_else(|| self.pool.remove(key, instance));
        let left = match &entry {
            Some(entry) => state.leave(entry.colour, Ended::Cancelled, was_active),
            None => Left {
                deed: Deed::default(),
                promoted: None,
                news: false,
                shut: false,
            },
        };
        drop(state);
        Withdrawn {
            queue: self.queue.clone(),
            entry,
            left,
        }
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
            deed,
            promoted,
            news,
            shut: self.shut,
        }
    }

    /// Lets one inactive item through, if there is room.
    fn promote(&mut self) -> (Deed, Option<WorkRef>) {
        let Some(entry) = self.gate.promote() else {
            return (Deed::default(), None);
        };
        let (pool, entry) = entry.into_active();
        let promoted = trace::is_on(pool.env()).then(|| entry.work.clone());
        (pool.push(entry), promoted)
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
                state: Mutex::new(DoorState {
                    gate: Gate::new(max_active),
                    pools: vec![None; pools],
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
        Arc::new(Self {
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
    pub(crate) fn key(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).addr()
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
        let active = self.doors().map(|door| door.gate.active()).sum();
        let max_active = self.doors().next().map_or(0, |door| door.gate.max_active());
        (active, max_active)
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
        let mut doors = self.doors();
        doors.find_map(|door| {
            let (ticket, first) = door.gate.first_inactive()?;
            Some(Waiting {
                place: format!("queue {}", self.name),
                progress: ticket + self.count(Count::Touched),
                item: format!("{}: {}", self.name, first.work.name()),
                waiting: door.gate.inactive(),
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

    fn doors(&self) -> impl Iterator<Item = MutexGuard<'_, DoorState>> {
        self.gates.iter().map(|door| door.state.lock())
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
    fn close_colours(&self) -> Vec<(usize, Colour)> {
        let doors = self.doors().enumerate();
        doors
            .filter_map(|(gate, mut door)| Some((gate, door.gate.ledger.close()?)))
            .collect()
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
        let ended: u64 = self.doors().map(|door| door.gate.ended()).sum();
        let queued: u64 = self.doors().map(|door| door.gate.queued()).sum();
        ended == queued
    }

    pub(crate) fn shut(&self) {
        self.doors().for_each(|mut door| door.shut = true);
    }

    pub(crate) fn flush(&self) {
        let mut colours = self.close_colours();
        self.event.wait_while(|| self.holds(&mut colours));
    }

    /// D1-D3: only the queue's own items may queue until it is empty.
    pub(crate) fn drain(&self) {
        self.doors().for_each(|mut door| door.draining += 1);
        self.event.wait_while(|| !self.is_idle());
        self.doors().for_each(|mut door| door.draining -= 1);
    }

    pub(crate) fn destroy(&self) {
        self.doors().for_each(|mut door| door.destroyed = true);
        self.drain();
        self.dismiss_rescuer();
    }

    pub(crate) fn set_max_active(&self, max_active: usize) {
        for door in &self.gates {
            let mut deeds = Vec::new();
            let mut state = door.state.lock();
            state.gate.set_max_active(max_active);
            while let Some(entry) = state.gate.promote() {
                let (pool, entry) = entry.into_active();
                let work = trace::is_on(self.env()).then(|| entry.work.clone());
                deeds.push((pool.push(entry), work));
            }
            drop(state);
            for (deed, work) in deeds {
                deed.perform();
                if let Some(work) = work {
                    self.trace(&work, TraceStep::Activated);
                }
            }
        }
    }

    pub(crate) fn is_congested(&self, cpu: usize) -> bool {
        let (gate, _) = self.route(cpu, None);
        self.gates[gate].state.lock().gate.is_full()
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
            stats.queued += state.gate.queued();
            stats.started += door.started.load(Ordering::Relaxed);
            stats.completed += state.completed + state.panicked;
            stats.panicked += state.panicked;
            stats.cancelled += state.cancelled;
            stats.active += state.gate.active();
            stats.inactive += state.gate.inactive();
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
