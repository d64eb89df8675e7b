//! The state of a worker pool: queues, slots, workers. Pure: it has no threads and no clock, and
//! does not touch items. The pool keeps it behind its lock; the simulator drives it.
//!
//! - A **pwq** links a workqueue to this pool, with one FIFO of entries.
//! - The **worklist** lists the pwqs that have entries and a slot. A pwq without a slot is not on
//!   it. Entries never move from one list to another.
//! - A **batch** is what a worker takes in one section of the lock. It holds one slot of each pwq
//!   that it has entries of, because it runs the entries one after another.
//! - **Concurrency management**: `nr_running` counts the workers that are not idle, not blocked and
//!   not known to be CPU-intensive. While it is below the target and entries are listed, the pool
//!   wakes or creates a worker.

use crate::fifo::SpareChunks;
use crate::flush_colour::FlushNumber;
use crate::nr_active::{Limit, NrActive, PwqId};
use crate::shrink::shrink_table;
use inflight_sync::Arc;

mod batch_size;
mod pwq_state;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod wake_or_create;
mod workers;
mod worklist;

pub(crate) use batch_size::slice;
use pwq_state::Links;
pub(crate) use pwq_state::PwqState;
pub use pwq_state::{PoolItem, PwqIndex};
pub use wake_or_create::WakeAction;
#[cfg(any(test, loom, feature = "unstable-sim"))]
pub use workers::BLOCKED;
pub(crate) use workers::Worker;
pub use workers::{ASLEEP, INTENSIVE, WorkerId, WorkerPhase, Workers};

/// What remains to be done after the lock has been released. `P` identifies a pwq.
#[derive(Clone, Debug)]
pub enum Deferred<P = PwqIndex> {
    /// Give that pwq, of this or another pool, a slot of the limit.
    Slot(Arc<NrActive>, PwqId),
    /// Flushes of that pwq below that number are over.
    Flushed(P, FlushNumber),
    /// That pwq has become idle. The flag says whether its queue counts it in `busy`.
    Idle(P, bool),
}

/// The state of a worker pool. The fields that each push and each batch change come first.
#[derive(Debug)]
#[repr(C)]
pub struct PoolCore<T> {
    /// Entries of the pwqs on the worklist.
    listed: usize,
    /// The time that an item takes, in ns: a moving average.
    service_ns: u64,
    /// Removed ones are vacant.
    pwqs: Vec<PwqState<T>>,
    /// The ends of the worklist.
    worklist: Links,
    /// The workers of the pool.
    pub workers: Workers,
    deferred: Vec<Deferred>,
    /// For the FIFOs of all pwqs.
    spares: SpareChunks<T>,
    /// Whether batches may have more than one entry.
    batching: bool,
    /// The pwqs that the last batch left empty.
    emptied: Vec<PwqIndex>,
    /// Batches taken.
    taken: u64,
    /// What `note_service` was told last.
    noted_ns: u64,
}

// The fields that a push and a batch change are on one cache line.
const _: () = assert!(std::mem::offset_of!(PoolCore<u64>, workers) <= 48);

/// The pwq with that index, which must exist.
#[inline]
fn at<T: PoolItem>(pwqs: &mut [PwqState<T>], index: PwqIndex) -> &mut PwqState<T> {
    let pwq = &mut pwqs[index as usize];
    debug_assert!(!pwq.is_vacant(), "the pwq exists");
    pwq
}

impl<T: PoolItem> Default for PoolCore<T> {
    fn default() -> Self {
        Self::new(0)
    }
}

impl<T: PoolItem> PoolCore<T> {
    /// A pool in which `target` workers may run at once.
    #[must_use]
    pub fn new(target: usize) -> Self {
        Self {
            pwqs: Vec::new(),
            worklist: Links::default(),
            listed: 0,
            workers: Workers::new(target),
            service_ns: 1_000,
            batching: false,
            taken: 0,
            emptied: Vec::new(),
            spares: SpareChunks::default(),
            deferred: Vec::new(),
            noted_ns: u64::MAX,
        }
    }

    /// Adds a pwq. `unmanaged`: a worker that runs its items does not count as running.
    pub fn add_pwq(&mut self, id: PwqId, limit: Limit, unmanaged: bool) -> PwqIndex {
        let pwq = PwqState::new(id, limit, unmanaged);
        let at = match self.pwqs.iter().position(PwqState::is_vacant) {
            Some(free) => {
                self.pwqs[free] = pwq;
                free
            }
            None => {
                self.pwqs.push(pwq);
                self.pwqs.len() - 1
            }
        };
        at as PwqIndex
    }

    /// Removes a pwq in which nothing is in flight.
    pub(crate) fn remove_pwq(&mut self, index: PwqIndex) {
        let pwq = std::mem::replace(self.pwq_mut(index), PwqState::vacant());
        debug_assert_eq!(pwq.in_flight(), 0, "the pwq is idle");
        debug_assert!(!pwq.listed, "the pwq has no entries");
        if let (true, Limit::Shared(nr_active)) = (pwq.pending, &pwq.limit) {
            // If it is not there, the thread that carries its slot passes the slot on.
            let _ = nr_active.forget(pwq.id);
        }
        shrink_table(&mut self.pwqs, PwqState::is_vacant);
    }

    #[inline]
    pub(crate) fn pwq(&self, index: PwqIndex) -> &PwqState<T> {
        let pwq = &self.pwqs[index as usize];
        debug_assert!(!pwq.is_vacant(), "the pwq exists");
        pwq
    }

    #[inline]
    pub(crate) fn pwq_mut(&mut self, index: PwqIndex) -> &mut PwqState<T> {
        at(&mut self.pwqs, index)
    }

    /// What remains to be done after the lock has been released.
    #[inline]
    pub fn drain_deferred(&mut self) -> impl Iterator<Item = Deferred> + '_ {
        self.deferred.drain(..)
    }

    #[inline]
    pub(crate) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// *queue*: adds an entry at the end of a pwq; `make` gets its flush colour. Returns whether a
    /// counted pwq has become busy.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "each item comes through here")]
    pub fn push(&mut self, index: PwqIndex, make: impl FnOnce(u8) -> T) -> bool {
        let pwq = at(&mut self.pwqs, index);
        let first = pwq.counted && pwq.is_idle();
        let item = make(pwq.enter());
        item.set_position(pwq.fifo.push_back(item, &mut self.spares));
        if pwq.listed {
            self.listed += 1;
        } else {
            self.list(index);
        }
        first
    }

    /// Returns an entry that was taken to the head of its pwq; it stays counted.
    pub fn put_back(&mut self, index: PwqIndex, item: T) {
        let pwq = at(&mut self.pwqs, index);
        item.set_position(pwq.fifo.push_front(item, &mut self.spares));
        self.entry_added(index);
    }

    /// The same to the end of its pwq.
    pub(crate) fn put_behind(&mut self, index: PwqIndex, item: T) {
        let pwq = at(&mut self.pwqs, index);
        item.set_position(pwq.fifo.push_back(item, &mut self.spares));
        self.entry_added(index);
    }

    fn entry_added(&mut self, index: PwqIndex) {
        if at(&mut self.pwqs, index).listed {
            self.listed += 1;
        } else {
            self.list(index);
        }
    }

    /// Puts a pwq on the worklist if it has entries and can get a slot.
    pub(crate) fn list(&mut self, index: PwqIndex) {
        let pwq = self.pwq_mut(index);
        if !pwq.listed && pwq.has_work() && pwq.acquire_slot() {
            self.list_with_slot(index);
        }
    }

    fn list_with_slot(&mut self, index: PwqIndex) {
        let pwq = self.pwq_mut(index);
        pwq.listed = true;
        let entries = pwq.fifo.len();
        self.listed += entries;
        self.list_last(index);
    }

    /// Takes a pwq off the worklist that is empty or stopped, or above its limit.
    fn unlist(&mut self, index: PwqIndex) {
        let pwq = self.pwq_mut(index);
        if !std::mem::replace(&mut pwq.listed, false) {
            return;
        }
        let entries = pwq.fifo.len();
        self.listed -= entries;
        self.unlink(index);
        self.release_slot(index);
    }

    /// *grant*: gives a waiting pwq a slot. If the pwq has no use for it, passes the slot on.
    pub fn grant(&mut self, index: PwqIndex) {
        let pwq = self.pwq_mut(index);
        pwq.pending = false;
        if !pwq.listed && pwq.has_work() && !pwq.is_above_limit() {
            self.list_with_slot(index);
        } else {
            self.release_slot(index);
        }
    }

    /// A batch, or an item with a parked entry, returns a slot of that pwq.
    pub(crate) fn release_slot(&mut self, index: PwqIndex) {
        match &mut self.pwq_mut(index).limit {
            Limit::Own { used, .. } => {
                *used -= 1;
                self.list(index);
            }
            Limit::Shared(nr_active) => {
                let next = nr_active.release();
                let next = next.map(|pwq| Deferred::Slot(nr_active.clone(), pwq));
                self.deferred.extend(next);
                self.list(index);
            }
        }
    }

    /// The limit changes: that of the pwq, if it has its own slots, or one that it shares. If more
    /// slots are in use than there are now, a listed pwq gives its slot back.
    pub(crate) fn set_max(&mut self, index: PwqIndex, new: usize) {
        let pwq = self.pwq_mut(index);
        if let Limit::Own { max, .. } = &mut pwq.limit {
            *max = new;
        }
        if pwq.is_above_limit() {
            self.unlist(index);
        }
        self.list(index);
    }

    /// Sets or clears one of the reasons why entries are not taken from the pwq.
    pub(crate) fn set_stopped(&mut self, index: PwqIndex, set: impl FnOnce(&mut PwqState<T>)) {
        let pwq = self.pwq_mut(index);
        set(pwq);
        if pwq.is_stopped() {
            self.unlist(index);
        } else {
            self.list(index);
        }
    }

    /// *settle*: entries have ended, `ran` of them by running.
    #[inline]
    pub fn ended(&mut self, index: PwqIndex, colour: u8, entries: usize, ran: usize) {
        let pwq = at(&mut self.pwqs, index);
        if let Some(over) = pwq.leave(colour, entries, ran) {
            self.deferred.push(Deferred::Flushed(index, over));
        }
        if entries == 0 {
            return;
        }
        if (pwq.counted || pwq.retired) && pwq.in_flight() == 0 {
            self.deferred.push(Deferred::Idle(index, pwq.counted));
        }
    }

    /// Returns the slots of a worker's batch, except that of `except`.
    #[inline]
    pub fn release_held(&mut self, worker: WorkerId, except: Option<PwqIndex>) {
        if self.workers.get_mut(worker).held.is_empty() {
            return;
        }
        let mut held = std::mem::take(&mut self.workers.get_mut(worker).held);
        held.retain(|&index| {
            let stays = Some(index) == except;
            if !stays {
                self.release_slot(index);
            }
            stays
        });
        let worker = self.workers.get_mut(worker);
        debug_assert!(worker.held.is_empty(), "giving a slot back takes none");
        worker.held = held;
    }

    /// The batch no longer owns its slot of that pwq, if it holds one.
    pub(crate) fn transfer_slot(&mut self, worker: WorkerId, index: PwqIndex) {
        let held = &mut self.workers.get_mut(worker).held;
        held.retain(|held| *held != index);
    }

    /// *put back*: returns a parked entry to the head of its pwq, with its slot.
    pub(crate) fn unpark(&mut self, index: PwqIndex, item: T) {
        let pwq = at(&mut self.pwqs, index);
        item.set_position(pwq.fifo.push_front(item, &mut self.spares));
        if pwq.listed {
            self.listed += 1;
            self.release_slot(index);
        } else if pwq.is_stopped() || pwq.is_above_limit() {
            self.release_slot(index);
        } else {
            // The lock is held, so no one else can take the slot: nothing overtakes the entry.
            self.list_with_slot(index);
        }
    }

    /// Begins an item of the pwq on its caller's thread, if a slot is free and nothing waits: takes
    /// the slot and counts the item as in flight. Returns its colour.
    pub(crate) fn begin_inline(&mut self, index: PwqIndex) -> Option<u8> {
        let pwq = self.pwq_mut(index);
        if !pwq.fifo.is_empty() || pwq.is_stopped() {
            return None;
        }
        let begins = match &mut pwq.limit {
            Limit::Own { .. } => pwq.acquire_slot(),
            Limit::Shared(nr_active) => nr_active.try_acquire(),
        };
        begins.then(|| {
            pwq.inline += 1;
            pwq.enter()
        })
    }

    pub(crate) fn end_inline(&mut self, index: PwqIndex, colour: u8) {
        self.pwq_mut(index).inline -= 1;
        self.ended(index, colour, 1, 1);
        self.release_slot(index);
    }

    /// Whether the entry at that position of the FIFO is the one that `is_it` accepts.
    pub(crate) fn is_at(
        &mut self,
        index: PwqIndex,
        position: u32,
        is_it: impl FnOnce(&T) -> bool,
    ) -> bool {
        self.pwq_mut(index).fifo.at(position).is_some_and(is_it)
    }

    /// *cancel*: removes the entry at that position from the FIFO.
    pub(crate) fn remove(&mut self, index: PwqIndex, position: u32) {
        let pwq = at(&mut self.pwqs, index);
        let entry = pwq.fifo.remove(position, &mut self.spares);
        let entry = entry.expect("the entry is at that position");
        if pwq.fifo.has_holes() {
            let moved = |entry: &T, position| entry.set_position(position);
            pwq.fifo.compact(moved, &mut self.spares);
        }
        let (listed, empty) = (pwq.listed, pwq.fifo.is_empty());
        self.listed -= usize::from(listed);
        if empty {
            self.unlist(index);
        }
        self.cancelled(index, entry.colour());
    }

    /// A cancelled entry that is in no queue is no longer in flight.
    pub(crate) fn cancelled(&mut self, index: PwqIndex, colour: u8) {
        self.pwq_mut(index).count_cancelled();
        self.ended(index, colour, 1, 0);
    }

    /// Whether anything waits for the worker's batch to end: for the worker, or for its slots.
    pub(crate) fn waits_for(&self, worker: WorkerId) -> bool {
        let for_slot = |index: &PwqIndex| {
            let pwq = self.pwq(*index);
            pwq.waits_for_slot() || pwq.slot_is_wanted()
        };
        self.has_waiting() || self.workers.get(worker).held.iter().any(for_slot)
    }

    /// Whether listed entries wait for running workers.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        self.first_listed().is_some()
    }

    /// Entries that could be taken.
    #[must_use]
    pub fn listed(&self) -> usize {
        self.listed
    }

    /// The pwqs that the last take left empty.
    pub(crate) fn emptied(&self) -> &[PwqIndex] {
        &self.emptied
    }

    /// Batches taken since the pool was made.
    pub(crate) fn progress(&self) -> u64 {
        self.taken
    }

    /// Moves a pwq on the worklist to the front.
    pub(crate) fn bring_to_front(&mut self, index: PwqIndex) {
        if self.pwq(index).listed {
            self.unlink(index);
            self.list_first(index);
        }
    }
}
