//! The way back from an item to its queue, and how an item is taken back.

use super::Shared;
use super::flow::Left;
use super::fronts::Fronts;
use crate::item::{Ended, Instance};
use crate::limits::gate_of;
use crate::pool::{Deeds, Entry};
use crate::trace::TraceStep;
use crate::worker;
use inflight_sync::{Arc, CachePadded, Weak};

/// An item's way back to the queue through which it has gone.
#[derive(Debug)]
pub(crate) struct Home(pub(super) CachePadded<Weak<Shared>>);

/// What is left to do after an item was taken back, outside all locks.
#[must_use]
pub(crate) struct Withdrawn {
    entry: Option<Entry>,
    deeds: Deeds,
    left: Left,
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

    /// Whether the caller is the item whose slot this one waits for. No lock is held. `place` tells
    /// where it waits: its front end and ticket.
    pub(crate) fn is_behind_caller(
        &self,
        gate: usize,
        key: usize,
        instance: Instance,
        place: impl Fn() -> Option<(usize, u64)>,
    ) -> bool {
        let gate = gate_of(gate);
        let Some(queue) = self.queue_with(gate) else {
            return false;
        };
        if !worker::runs_item_of(queue.key()) {
            return false;
        }
        worker::give_back();
        let is_this = |e: &Entry| e.instance == instance && e.work.key() == key;
        let slots = queue.fronts.as_ref().map(|fronts| &fronts.slots);
        // Its letter, if it is one, is delivered, and tells its place.
        let front = queue.in_gate(gate, |state, _| {
            let (front, ticket) = place()?;
            let is_at = match slots {
                // A hint may be of another queue.
                Some(slots) if !slots.knows(front, gate) => false,
                Some(slots) => slots.inspect(front, ticket, is_this).unwrap_or(false),
                None => state.gate.is_behind_the_only_one(ticket, is_this),
            };
            is_at.then_some(front)
        });
        front.is_some_and(|front| {
            let holds_it = |at| slots.map_or(at == gate, |s| s.share_the_only_one(at, front));
            worker::runs_through(queue.key(), holds_it)
        })
    }

    /// Takes the entry back, wherever it is in that queue. The item's lock is held. `place` tells
    /// where it waits: its front end and ticket.
    pub(crate) fn withdraw(
        &self,
        gate: usize,
        key: usize,
        instance: Instance,
        place: impl Fn() -> Option<(usize, u64)>,
    ) -> Option<Withdrawn> {
        let gate = gate_of(gate);
        let queue = self.queue_with(gate)?;
        let (mut state, deeds) = queue.open(gate);
        let is_this = |e: &Entry| e.instance == instance && e.work.key() == key;
        let inactive = place().and_then(|(front, ticket)| match &queue.fronts {
            // A hint may be of another queue.
            Some(Fronts { slots, .. }) if !slots.knows(front, gate) => None,
            Some(Fronts { slots, .. }) => slots.remove(front, ticket, is_this),
            None => state.gate.remove(ticket, is_this),
        });
        let left = inactive
            .as_ref()
            .map(|entry| state.leave_inactive(entry.colour));
        drop(state);
        // Not found at all: a worker has it in hand and will find that it cannot claim it.
        let entry = inactive.or_else(|| queue.system.pools().remove(key, instance));
        let left = left.or_else(|| {
            // Pools are shared: it may have come through another queue.
            let entry = entry.as_ref()?;
            let queue = &entry.queue;
            Some(queue.end_one(entry.gate, entry.colour, &Ended::Cancelled))
        });
        Some(Withdrawn {
            entry,
            deeds,
            left: left.unwrap_or_default(),
        })
    }
}
