//! How items leave a queue, and who waits for that: flush, drain, changes of the limit.

use super::fronts::Started;
use super::{DoorState, Shared};
use crate::error::{MinActiveError, QueueError};
use crate::flush::Colour;
use crate::gate::Gate;
use crate::hand::{Ends, Tally};
use crate::item::Ended;
use crate::limits::{Share, gate_of};
use crate::pool::{Deeds, Entry};
use crate::trace::{self, TraceStep};
use crate::worker;
use inflight_sync::Arc;
use inflight_sync::atomic::Ordering;

/// What is left to do after an item has ended, outside all locks.
#[derive(Default)]
#[must_use]
pub(super) struct Left {
    deeds: Deeds,
    /// The names of items that have become active, if somebody wants to know.
    promoted: Vec<String>,
    /// Those that have become active by a limit over all gates.
    started: Started,
    /// Somebody who waits for the queue should look again.
    news: bool,
    /// Somebody waits for the whole system.
    shut: bool,
}

/// Those that a change has let through, if somebody wants to know.
#[must_use]
pub(crate) struct Promoted {
    pub(super) queue: Arc<Shared>,
    pub(super) items: Vec<String>,
}

impl Promoted {
    /// No lock is held, that of the settings included: who is told may ask the system anything.
    pub(crate) fn tell(self) {
        self.queue.trace_all(&self.items, TraceStep::Activated);
    }
}

impl Left {
    pub(super) fn settle(self, queue: &Shared) {
        self.deeds.perform();
        queue.trace_all(&self.promoted, TraceStep::Activated);
        self.started.settle(queue);
        if self.news {
            queue.event.notify_all();
            if self.shut {
                queue.system.queue_is_idle();
            }
        }
    }
}

impl DoorState {
    /// Items have ended: gives their slots to the next ones.
    pub(super) fn leave(&mut self, tally: Tally, started: Started) -> Left {
        let Ends {
            returned,
            panicked,
            cancelled,
        } = tally.ends;
        self.completed += returned;
        self.panicked += panicked;
        self.cancelled += cancelled;
        // Those of a visit came in on its colour, while others of that were left.
        self.gate.enter_late(tally.colour, tally.kept);
        let news = self
            .gate
            .leave_many(tally.colour, tally.ends.all(), tally.slots);
        let (deeds, promoted) = self.promote();
        Left {
            deeds,
            promoted,
            started,
            news,
            shut: self.shut,
        }
    }

    /// An inactive item was taken back: it had no slot.
    pub(super) fn leave_inactive(&mut self, colour: Colour) -> Left {
        self.cancelled += 1;
        Left {
            news: self.gate.leave(colour, false),
            shut: self.shut,
            ..Left::default()
        }
    }

    /// Lets inactive items through, as long as there is room.
    fn promote(&mut self) -> (Deeds, Vec<String>) {
        let (mut deeds, mut promoted) = (Deeds::default(), Vec::new());
        while let Some(first) = self.gate.promote() {
            let (pool, first) = first.into_active();
            let rescuer = first.queue.rescuer().cloned();
            let traced = trace::is_on(pool.env());
            // Those for the same pool in one section.
            let here = |entry: &Entry| entry.pool.as_ref().is_some_and(|p| Arc::ptr_eq(p, &pool));
            let more = || Some(self.gate.promote_if(here)?.into_active().1);
            let all = std::iter::once(first).chain(std::iter::from_fn(more));
            let all =
                all.inspect(|entry| promoted.extend(traced.then(|| entry.work.name().to_owned())));
            deeds.push(pool.push_all(rescuer.as_ref(), all));
        }
        (deeds, promoted)
    }

    /// Whether who queues has to ask.
    pub(super) fn is_closed(&self) -> bool {
        self.shut || self.destroyed || self.draining > 0
    }

    pub(super) fn refusal(&self, queue: usize) -> Option<QueueError> {
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
    /// A change of who may queue: from now on the mailbox is open or closed accordingly.
    fn change(self: &Arc<Self>, f: impl Fn(&mut DoorState)) {
        self.in_each_gate(|_, state, mail| {
            f(state);
            mail.closed = state.is_closed();
        });
    }

    /// C6: an item of that gate has run so many times more, each as if it had been queued.
    pub(crate) fn repeated(&self, gate: usize, times: u64) {
        if times == 0 {
            return;
        }
        let door = &self.gates[gate_of(gate)];
        let mut state = door.state.lock();
        // Relaxed: a statistic.
        door.started.fetch_add(times, Ordering::Relaxed);
        state.gate.passed(times);
        state.completed += times;
    }

    /// E1-E3: an active item has ended, or its worker found it cancelled.
    pub(crate) fn leave(&self, gate: usize, colour: Colour, ended: &Ended) {
        self.end_one(gate, colour, ended).settle(self);
    }

    pub(super) fn end_one(&self, gate: usize, colour: Colour, ended: &Ended) -> Left {
        self.end(
            gate,
            Tally {
                colour,
                ends: Ends::one(ended),
                begun: 0,
                kept: 0,
                slots: 1,
            },
        )
    }

    /// E1, E2: the slots first. Once an item is counted as ended, whoever drains may go on.
    pub(super) fn end(&self, gate: usize, tally: Tally) -> Left {
        let started = self.give_back(gate, tally.slots);
        let mut state = self.gates[gate_of(gate)].state.lock();
        state.leave(self.told(tally), started)
    }

    /// R to R6, if the limit is one over all gates.
    pub(super) fn give_back(&self, gate: usize, slots: usize) -> Started {
        let fronts = self.fronts.as_ref().filter(|_| slots > 0);
        fronts.map_or_else(Started::default, |fronts| fronts.leave(gate, slots))
    }

    /// What is left for the gate, when the slots of another limit have been given back.
    pub(super) fn told(&self, tally: Tally) -> Tally {
        Tally {
            slots: if self.fronts.is_some() {
                0
            } else {
                tally.slots
            },
            ..tally
        }
    }

    /// F1: closes the current colour of every gate. Returns what a flush waits for.
    fn close_colours(self: &Arc<Self>) -> Vec<(usize, Colour)> {
        let mut closed = Vec::new();
        self.in_each_gate(|gate, state, _| {
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
        if let Some(fronts) = &self.fronts {
            // What has been queued before comes before.
            self.in_each_gate(|_, _, _| ());
            let mut started = Started::default();
            let each = &mut |_, entry| started.push(entry);
            fronts.slots.set_max_active(max_active, each);
            return started.settle(self);
        }
        self.let_through(|gate| gate.set_max_active(max_active))
            .tell();
    }

    pub(crate) fn set_min_active(self: &Arc<Self>, asked: usize) -> Result<(), MinActiveError> {
        let per_node = self.fronts.as_ref();
        let per_node = per_node.filter(|fronts| fronts.slots.share() == Share::PerNode);
        let slots = &per_node.ok_or(MinActiveError::NotPerNode)?.slots;
        let max_active = slots.limits().0;
        if !(1..=max_active).contains(&asked) {
            return Err(MinActiveError::OutOfRange { asked, max_active });
        }
        // As in `set_max_active`.
        self.in_each_gate(|_, _, _| ());
        let mut started = Started::default();
        slots.set_min_active(asked, &mut |_, entry| started.push(entry));
        started.settle(self);
        Ok(())
    }

    /// Nobody becomes active, or as many as may again.
    pub(crate) fn set_frozen(self: &Arc<Self>, frozen: bool) -> Promoted {
        // Ordering: Release, pairs with the Acquire in `is_frozen`: a run that the thaw lets repeat
        // sees what was done before it.
        self.frozen.store(frozen, Ordering::Release);
        let Some(fronts) = &self.fronts else {
            let promoted = self.let_through(|gate| gate.set_frozen(frozen));
            if frozen {
                // What a worker has in hand beside the item that holds the slot is not active.
                self.recall_all();
            }
            return promoted;
        };
        // What has been queued before comes before.
        self.in_each_gate(|_, _, _| ());
        let mut started = Started::default();
        let each = &mut |_, entry| started.push(entry);
        fronts.slots.set_frozen(frozen, each);
        if frozen {
            // F2: whoever was at a gate meanwhile has left it, active or not.
            self.in_each_gate(|_, _, _| ());
        }
        started.perform(self)
    }

    /// Changes what limits each gate, and lets those through who may go then.
    fn let_through(self: &Arc<Self>, change: impl Fn(&mut Gate<Entry>)) -> Promoted {
        let mut promoted = Vec::new();
        for gate in 0..self.gates.len() {
            let (mut state, deeds) = self.open(gate);
            change(&mut state.gate);
            let (started, items) = state.promote();
            drop(state);
            deeds.perform();
            started.perform();
            promoted.extend(items);
        }
        Promoted {
            queue: self.clone(),
            items: promoted,
        }
    }
}
