//! A visit: what a worker takes out of one mailbox at once, runs one after the other, and then
//! tells the gate of.
//!
//! The worker goes from one item to the next by the lock of its own hand alone. Whoever must have
//! what it has not begun, because the worker sleeps or takes long, takes it out, and tells the gate
//! of what has ended: see `PROTOCOL.md`, "Visits".

use crate::door::Shared;
use crate::flush::Colour;
use crate::item::{Ended, Instance, WorkRef};
use crate::pool::Entry;
use crate::pools::Lease;
use inflight_sync::{Arc, CachePadded, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fmt;

/// How items have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) returned: u64,
    pub(crate) panicked: u64,
    pub(crate) cancelled: u64,
}

impl Ends {
    pub(crate) fn one(ended: &Ended) -> Self {
        let mut ends = Self::default();
        ends.add(ended);
        ends
    }

    pub(crate) fn all(&self) -> usize {
        (self.returned + self.panicked + self.cancelled) as usize
    }

    fn add(&mut self, ended: &Ended) {
        match ended {
            Ended::Returned => self.returned += 1,
            Ended::Panicked(_) => self.panicked += 1,
            Ended::Cancelled => self.cancelled += 1,
        }
    }
}

/// What a gate does not know of yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "somebody may wait for it"]
pub(crate) struct Tally {
    pub(crate) colour: Colour,
    pub(crate) ends: Ends,
    /// Runs that have begun. Below zero if one that was told of has turned out to be none.
    pub(crate) begun: isize,
    /// Slots to be given back.
    pub(crate) slots: usize,
}

/// An item that has been taken out of a mailbox.
pub(crate) struct Drawn {
    pub(crate) work: WorkRef,
    pub(crate) instance: Instance,
}

impl Drawn {
    /// As it would have come out of the gate.
    pub(crate) fn entry(self, whence: &Whence) -> Entry {
        Entry {
            work: self.work,
            queue: whence.queue.clone(),
            pool: whence.on_one_slot.clone(),
            gate: whence.gate,
            instance: self.instance,
            colour: whence.colour,
            may_be_running: false,
        }
    }
}

/// Who has sent the items of a visit.
#[derive(Clone)]
pub(crate) struct Whence {
    pub(crate) queue: Arc<Shared>,
    /// As an entry's.
    pub(crate) gate: usize,
    pub(crate) colour: Colour,
    /// All of them have one slot, because they run in order; and this is their pool, should they
    /// have to wait again.
    pub(crate) on_one_slot: Option<Arc<Lease>>,
}

#[derive(Default)]
pub(crate) struct Hand(CachePadded<Mutex<Held>>);

/// What is in a hand.
#[derive(Default)]
pub(crate) struct Held {
    /// As long as a visit lasts.
    whence: Option<Whence>,
    /// Oldest first.
    rest: VecDeque<Drawn>,
    /// The item that the worker runs, or is about to run.
    now: Option<usize>,
    ends: Ends,
    begun: isize,
}

impl Held {
    /// V4: a visit begins. There was none.
    pub(crate) fn begin(&mut self, whence: Whence, items: impl Iterator<Item = Drawn>) {
        debug_assert!(self.whence.is_none() && self.rest.is_empty());
        self.whence = Some(whence);
        self.rest.extend(items);
        // One that is alone is told of when it is taken: nobody recalls it.
        self.begun = if self.rest.len() == 1 { -1 } else { 0 };
    }

    /// How many items there are, and the first one's key.
    pub(crate) fn content(&self) -> Option<(usize, usize)> {
        let first = self.rest.front()?;
        Some((self.rest.len(), first.work.key()))
    }

    pub(crate) fn whence(&self) -> Option<&Whence> {
        self.whence.as_ref()
    }

    /// N5: what has not been begun, and what has ended; the worker is left with what it runs now.
    pub(crate) fn recall(&mut self) -> Option<Recalled> {
        let whence = self.whence.clone()?;
        let tally = self.tally(&whence, false);
        Some(Recalled {
            rest: self.rest.drain(..).collect(),
            now: self.now,
            tally,
            whence,
        })
    }

    fn tally(&mut self, whence: &Whence, is_over: bool) -> Tally {
        let ends = std::mem::take(&mut self.ends);
        Tally {
            colour: whence.colour,
            ends,
            begun: std::mem::take(&mut self.begun),
            slots: match whence.on_one_slot {
                Some(_) => usize::from(is_over),
                None => ends.all(),
            },
        }
    }
}

/// What was recalled from a hand.
pub(crate) struct Recalled {
    pub(crate) whence: Whence,
    pub(crate) rest: Vec<Drawn>,
    pub(crate) now: Option<usize>,
    pub(crate) tally: Tally,
}

/// What the worker does next.
pub(crate) enum Pass {
    /// Run this.
    Run(Drawn),
    /// Nothing is left: E1 to E3 for these.
    Over(Tally),
}

impl Hand {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock()
    }

    /// N4: the item that the worker has run, if there was one, has ended.
    pub(crate) fn pass(&self, ended: Option<&Ended>) -> Pass {
        let mut held = self.0.lock();
        if let Some(ended) = ended {
            held.ends.add(ended);
            held.begun -= isize::from(*ended == Ended::Cancelled);
        }
        if let Some(next) = held.rest.pop_front() {
            held.now = Some(next.work.key());
            held.begun += 1;
            return Pass::Run(next);
        }
        held.now = None;
        let whence = held.whence.take().expect("the visit lasts until here");
        let tally = held.tally(&whence, true);
        drop(held);
        drop(whence);
        Pass::Over(tally)
    }
}

impl fmt::Debug for Hand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hand").finish_non_exhaustive()
    }
}
