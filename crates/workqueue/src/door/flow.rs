//! How items leave a queue, and who waits for that: flush, drain, changes of the limit.

use super::fronts::Started;
use super::{DoorState, Shared};
use crate::error::QueueError;
use crate::flush::Colour;
use crate::gate::Gate;
use crate::item::{Ended, WorkRef};
use crate::limits::gate_of;
use crate::pool::{Deed, Entry};
use crate::trace::{self, TraceStep};
use crate::worker;
use inflight_sync::Arc;

/// What is left to do after an item has ended, outside all locks.
#[derive(Default)]
#[must_use]
pub(super) struct Left {
    deed: Deed,
    /// The item that has become active, if somebody wants to know.
    promoted: Option<WorkRef>,
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
    pub(super) works: Vec<WorkRef>,
}

impl Promoted {
    /// No lock is held, that of the settings included: who is told may ask the system anything.
    pub(crate) fn tell(self) {
        for work in &self.works {
            self.queue.trace(work, TraceStep::Activated);
        }
    }
}

impl Left {
    pub(super) fn settle(self, queue: &Shared) {
        self.deed.perform();
        if let Some(work) = self.promoted {
            queue.trace(&work, TraceStep::Activated);
        }
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
    /// An item has ended: gives its slot to the next one.
    pub(super) fn leave(&mut self, colour: Colour, ended: Ended, was_active: bool) -> Left {
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
            started: Started::default(),
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
        self.visit_all(|_, state, mail| {
            f(state);
            mail.closed = state.is_closed();
        });
    }

    /// E1-E3: an active item has ended, or its worker found it cancelled.
    pub(crate) fn leave(&self, gate: usize, colour: Colour, ended: Ended) {
        self.end(gate, colour, ended).settle(self);
    }

    /// E1, E2: the slot first. Once the item is counted as ended, whoever drains may go on.
    pub(super) fn end(&self, gate: usize, colour: Colour, ended: Ended) -> Left {
        let door = &self.gates[gate_of(gate)];
        let Some(fronts) = &self.fronts else {
            return door.state.lock().leave(colour, ended, true);
        };
        let started = fronts.leave(gate);
        Left {
            started,
            ..door.state.lock().leave(colour, ended, false)
        }
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
        if let Some(fronts) = &self.fronts {
            // What has been queued before comes before.
            self.visit_all(|_, _, _| ());
            let mut started = Started::default();
            let each = &mut |_, entry| started.push(entry);
            fronts.slots.set_max_active(max_active, each);
            return started.settle(self);
        }
        self.let_through(|gate| gate.set_max_active(max_active))
            .tell();
    }

    /// Nobody becomes active, or as many as may again.
    pub(crate) fn set_frozen(self: &Arc<Self>, frozen: bool) -> Promoted {
        let Some(fronts) = &self.fronts else {
            return self.let_through(|gate| gate.set_frozen(frozen));
        };
        // What has been queued before comes before.
        self.visit_all(|_, _, _| ());
        let mut started = Started::default();
        let each = &mut |_, entry| started.push(entry);
        fronts.slots.set_frozen(frozen, each);
        if frozen {
            // F2: whoever was at a gate meanwhile has left it, active or not.
            self.visit_all(|_, _, _| ());
        }
        started.perform(self)
    }

    /// Changes what limits each gate, and lets those through who may go then.
    fn let_through(self: &Arc<Self>, change: impl Fn(&mut Gate<Entry>)) -> Promoted {
        let mut promoted = Vec::new();
        for gate in 0..self.gates.len() {
            let (mut state, mut deeds) = self.open(gate);
            change(&mut state.gate);
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
        }
        Promoted {
            queue: self.clone(),
            works: promoted,
        }
    }
}
