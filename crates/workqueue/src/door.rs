//! What is behind a workqueue handle: its gates, and the way of an item through them to a pool.

use crate::attrs::{Kind, Layout, Place};
use crate::error::QueueError;
use crate::flush::Colour;
use crate::gate::{Admitted, Gate};
use crate::pool::{Deed, Entry, Pool};
use crate::stats::WorkqueueStats;
use crate::system;
use crate::work::{Ended, Queued, WorkRef};
use crate::worker;
use inflight_sync::atomic::{AtomicU64, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::wait::Event;
use inflight_sync::{Arc, CachePadded, Mutex, MutexGuard};
use inflight_topology::Topology;
use std::fmt;

pub(crate) struct Shared {
    name: String,
    kind: Kind,
    layout: Arc<Layout>,
    /// One for each CPU of a bound queue, one for an unbound queue.
    gates: Box<[CachePadded<Door>]>,
    /// Items have ended: flushes and drains look again.
    event: Event,
    system: Arc<system::Shared>,
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
    /// Somebody who waits for the queue should look again.
    news: bool,
    /// Somebody waits for the whole system.
    shut: bool,
}

impl Left {
    fn settle(self, queue: &Shared) {
        self.deed.perform();
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
        drop(self.entry);
    }
}

impl Spot {
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
                deed: Deed::None,
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
            Ended::Panicked => self.panicked += 1,
            Ended::Cancelled => self.cancelled += 1,
        }
        let news = self.gate.leave(colour, was_active);
        Left {
            deed: self.promote(),
            news,
            shut: self.shut,
        }
    }

    /// Lets one inactive item through, if there is room.
    fn promote(&mut self) -> Deed {
        match self.gate.promote() {
            Some(entry) => {
                let pool = entry.pool.clone();
                pool.push(entry)
            }
            None => Deed::None,
        }
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
        max_active: usize,
        system: &Arc<system::Shared>,
    ) -> Arc<Self> {
        let layout = Layout::new(&system.env().topology, kind);
        let (gates, pools) = match kind {
            Kind::Bound => (layout.places.len(), 1),
            Kind::Unbound(_) => (1, layout.places.len()),
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
            kind,
            layout,
            gates: (0..gates).map(|_| door()).collect(),
            event: Event::new(),
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

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.system.env().topology
    }

    pub(crate) fn clock(&self) -> Clock {
        self.system.env().clock.clone()
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

    /// Which gate and place an item queued on `cpu` goes to, given the pool that runs it already.
    fn route(&self, cpu: usize, runner: Option<&Arc<Pool>>) -> (usize, usize) {
        let place = match runner.map(|pool| pool.place()) {
            // Bound to bound: it counts where it runs.
            Some(Place::Cpu(at)) if self.kind == Kind::Bound => self.layout.place_of(*at),
            _ => self.layout.place_of(cpu),
        };
        match self.kind {
            Kind::Bound => (place, place),
            Kind::Unbound(_) => (0, place),
        }
    }

    /// Q1-Q5: queues the item as if from `cpu`.
    pub(crate) fn submit(
        self: &Arc<Self>,
        work: &WorkRef,
        cpu: usize,
    ) -> Result<Queued, QueueError> {
        if let Some(refused) = work.refuses() {
            return Ok(refused);
        }
        let mut item = work.place();
        let runner = item.runner().cloned();
        let (gate, place) = self.route(cpu, runner.as_ref());
        let mut door = self.gates[gate].state.lock();
        if let Some(refusal) = door.refusal(self.key()) {
            return Err(refusal);
        }
        let may_be_running = runner.is_some();
        let pool = match runner {
            Some(pool) if !Arc::ptr_eq(pool.env(), self.system.env()) => {
                return Err(QueueError::OtherSystem);
            }
            Some(pool) => pool,
            None => self.pool(&mut door, place)?,
        };
        // From here on nothing fails: PENDING is never seen set for an item that is not queued.
        let instance = match work.set_pending(&mut item) {
            Ok(instance) => instance,
            Err(refused) => return Ok(refused),
        };
        let admitted = door.gate.admit(|colour| Entry {
            work: work.clone(),
            queue: self.clone(),
            pool: pool.clone(),
            gate,
            instance,
            colour,
            may_be_running,
        });
        let (ticket, deed) = match admitted {
            Admitted::Active(entry) => (None, pool.push(entry)),
            Admitted::Inactive(ticket) => (Some(ticket), Deed::None),
        };
        work.set_spot(
            &mut item,
            Spot {
                queue: self.clone(),
                gate,
                ticket,
                pool,
            },
        );
        drop(door);
        drop(item);
        deed.perform();
        Ok(Queued::Queued)
    }

    /// The pool of a place; it has, or is about to have, at least one worker.
    fn pool(&self, door: &mut DoorState, place: usize) -> Result<Arc<Pool>, QueueError> {
        let slot = if self.kind == Kind::Bound { 0 } else { place };
        if let Some(pool) = &door.pools[slot] {
            return Ok(pool.clone());
        }
        let pool = self.system.pool(&self.layout.places[place]);
        let pool = pool.map_err(|e| QueueError::NoWorker(e.kind()))?;
        door.pools[slot] = Some(pool.clone());
        Ok(pool)
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
    }

    pub(crate) fn set_max_active(&self, max_active: usize) {
        for door in &self.gates {
            let mut deeds = Vec::new();
            let mut state = door.state.lock();
            state.gate.set_max_active(max_active);
            while let Some(entry) = state.gate.promote() {
                let pool = entry.pool.clone();
                deeds.push(pool.push(entry));
            }
            drop(state);
            deeds.into_iter().for_each(Deed::perform);
        }
    }

    pub(crate) fn stats(&self) -> WorkqueueStats {
        let mut stats = WorkqueueStats::default();
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

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workqueue")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
