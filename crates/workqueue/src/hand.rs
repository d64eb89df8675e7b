//! A visit: what a worker takes out of one mailbox at once, runs one after the other, and then
//! tells the gate of.
//!
//! The worker goes from one item to the next by the lock of its own hand alone. Whoever must have
//! what it has not begun, because the worker sleeps or takes long, takes it out, and tells the gate
//! of what has ended: see `PROTOCOL.md`, "Visits".

use crate::door::Shared;
use crate::flush::Colour;
use crate::item::{Ended, Item, POOL_KEYS, Run, Set, Unset, WorkRef};
use crate::pool::Entry;
use crate::pools::Lease;
use crate::work::Queued;
use inflight_sync::{Arc, CachePadded, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fmt;

/// No pool has this name.
const NOWHERE: u32 = POOL_KEYS;

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
    /// Items that were kept, and that the gate has not counted yet.
    pub(crate) kept: usize,
    /// Slots to be given back.
    pub(crate) slots: usize,
}

/// An item that has been taken out of a mailbox, or kept.
pub(crate) struct Drawn {
    pub(crate) work: WorkRef,
    pub(crate) set: Set,
}

impl Drawn {
    /// As it would have come out of the gate.
    pub(crate) fn entry(self, whence: &Whence) -> Entry {
        Entry {
            work: self.work,
            queue: whence.queue.clone(),
            pool: whence.on_one_slot.clone(),
            gate: whence.gate,
            instance: self.set.instance,
            colour: whence.colour,
            may_be_running: self.set.may_be_running,
        }
    }

    pub(crate) fn is_pending(&self) -> bool {
        self.work.is_pending_as(self.set.instance)
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
    /// So many of the last of them were not drawn, but kept: they have no slot of their own, and
    /// the gate does not know of them.
    own: usize,
    /// So many more may be kept.
    room: usize,
    /// The gate has let it.
    keeps: bool,
    /// The item that the worker runs, or is about to run.
    now: Option<usize>,
    /// Slots that are the visit's.
    slots: usize,
    ends: Ends,
    begun: isize,
    kept: usize,
}

/// What becomes of an item that the one in hand queues.
pub(crate) enum Kept {
    /// This was the answer.
    Answer(Queued),
    /// The gate has to be asked first whether anything may be kept.
    Ask,
    /// It goes the way of all.
    No,
}

impl Held {
    /// V4: a visit begins. There was none. It may go on with so many items that its own queue.
    pub(crate) fn begin(
        &mut self,
        whence: Whence,
        items: impl Iterator<Item = Drawn>,
        room: usize,
    ) {
        debug_assert!(self.whence.is_none() && self.rest.is_empty());
        self.rest.extend(items);
        self.slots = match whence.on_one_slot {
            Some(_) => 1,
            None => self.rest.len(),
        };
        self.whence = Some(whence);
        (self.room, self.keeps) = (room, false);
        // One that is alone is told of when it is taken.
        self.begun = if self.rest.len() == 1 { -1 } else { 0 };
    }

    /// V5: what the visit's items queue may be kept.
    pub(crate) fn begin_to_keep(&mut self) {
        self.keeps = true;
    }

    /// The visit keeps nothing from now on.
    pub(crate) fn keep_nothing(&mut self) {
        self.room = 0;
    }

    /// How many items there are, and the first one's key.
    pub(crate) fn content(&self) -> Option<(usize, usize)> {
        let first = self.rest.front()?;
        Some((self.rest.len(), first.work.key()))
    }

    pub(crate) fn whence(&self) -> Option<&Whence> {
        self.whence.as_ref()
    }

    /// V6: what was kept and has not begun, but what was cancelled: that has ended. From now on
    /// nothing is kept.
    pub(crate) fn take_kept(&mut self) -> Vec<Drawn> {
        self.keep_nothing();
        let own = std::mem::take(&mut self.own);
        let drawn = self.rest.len() - own;
        let mut kept: Vec<_> = self.rest.drain(drawn..).collect();
        kept.retain(Drawn::is_pending);
        let cancelled = own - kept.len();
        self.kept += cancelled;
        self.ends.cancelled += cancelled as u64;
        kept
    }

    /// N5: what has not been begun, and what has ended; the worker is left with what it runs now.
    pub(crate) fn recall(&mut self) -> Option<Recalled> {
        let whence = self.whence.clone()?;
        debug_assert_eq!(self.own, 0, "what was kept has been taken out");
        // What was drawn takes its slots along.
        let left = match whence.on_one_slot {
            Some(_) => self.slots,
            None => self.rest.len() + usize::from(self.now.is_some()),
        };
        let tally = self.tally(&whence, left);
        self.slots -= match whence.on_one_slot {
            Some(_) => 0,
            None => self.rest.len(),
        };
        Some(Recalled {
            rest: self.rest.drain(..).collect(),
            now: self.now,
            tally,
            whence,
        })
    }

    /// What there is to tell; so many slots are still needed.
    fn tally(&mut self, whence: &Whence, slots: usize) -> Tally {
        let given = self.slots - slots;
        self.slots = slots;
        Tally {
            colour: whence.colour,
            ends: std::mem::take(&mut self.ends),
            begun: std::mem::take(&mut self.begun),
            kept: std::mem::take(&mut self.kept),
            slots: given,
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
            if held.rest.len() < held.own {
                held.own -= 1;
                held.kept += 1;
            }
            return Pass::Run(next);
        }
        held.now = None;
        let whence = held.whence.take().expect("the visit lasts until here");
        let tally = held.tally(&whence, 0);
        drop(held);
        drop(whence);
        Pass::Over(tally)
    }

    /// V5: an item that the worker, of that pool, queues from within the one it runs.
    pub(crate) fn keep<R: Run + ?Sized>(
        &self,
        pool: u32,
        gate: usize,
        work: &Item<R>,
        handle: impl FnOnce() -> WorkRef,
    ) -> Kept {
        let mut held = self.0.lock();
        if held.room == 0 {
            return Kept::No;
        }
        if !held.keeps {
            return Kept::Ask;
        }
        // Who else runs it must not run it here, too.
        let runner = if held.now == Some(work.key()) {
            pool
        } else {
            NOWHERE
        };
        match work.set_pending(Some(runner)) {
            Ok(set) => {
                work.set_gate(gate);
                held.rest.push_back(Drawn {
                    work: handle(),
                    set,
                });
                held.own += 1;
                held.room -= 1;
                Kept::Answer(Queued::Queued)
            }
            Err(Unset::Answer(answer)) => Kept::Answer(answer),
            Err(Unset::RunsElsewhere) => Kept::No,
        }
    }
}

impl fmt::Debug for Hand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hand").finish_non_exhaustive()
    }
}
