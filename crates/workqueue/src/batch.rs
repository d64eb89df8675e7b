//! The entries that a worker has taken and runs one after another.
//!
//! | field | written by | read by |
//! |---|---|---|
//! | `next` | owner: `i + 1` before it runs entry `i` | any thread under the lock: entries below `next - 1` have ended |
//! | `end` | owner | any thread under the lock |
//! | `recalled` | set under the lock by others, cleared under the lock by the owner | owner, before each entry |
//! | `entries` | owner, beyond `end` | owner; any thread under the lock, below `end` |
//! | `skipped` | owner, for the entry it has started | any thread under the lock, for entries that have ended |
//!
//! "The lock" is that of the pool of the entries' pwqs. Indices only grow, and are taken modulo the
//! ring. *Recall* is a store-buffer pair with one cheap side; see `PROTOCOL.md`, part *take and
//! recall*.

use crate::item::ItemPtr;
use crate::item::word::Seq;
use inflight_sync::asym::AsymFence;
use inflight_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use inflight_sync::cell::UnsafeCell;
use std::ptr::NonNull;

/// The most entries that a worker takes.
pub(crate) const BATCH_MAX: u32 = if cfg!(loom) { 3 } else { 48 };

/// Room for a batch and for what its items append.
const RING: u32 = if cfg!(loom) { 6 } else { 64 };

/// One queueing of an item, kept alive by its PENDING, or after a cancel by a reference.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) item: ItemPtr,
    /// The rest in one word. Entries are copied soon after they were written, and a load of several
    /// fields would wait for the stores of each.
    rest: u64,
}

impl Entry {
    const COLOUR: u32 = Seq::BITS;
    const COUNTED: u64 = 1 << (Self::COLOUR + u8::BITS);

    /// An entry that its pwq counts as in flight.
    #[inline]
    pub(crate) const fn new(item: ItemPtr, seq: Seq, colour: u8) -> Self {
        let appended = Self::appended(item, seq, colour);
        Self {
            item,
            rest: appended.rest | Self::COUNTED,
        }
    }

    /// An entry that its pwq does not count: it is appended to its own batch, and the batch's other
    /// entries of that pwq and colour stand for it until they are settled.
    #[inline]
    pub(crate) const fn appended(item: ItemPtr, seq: Seq, colour: u8) -> Self {
        Self {
            item,
            rest: seq as u64 | (colour as u64) << Self::COLOUR,
        }
    }

    #[inline]
    pub(crate) const fn seq(self) -> Seq {
        self.rest as Seq
    }

    /// The flush colour that counts it, or that will count it.
    #[inline]
    pub(crate) const fn colour(self) -> u8 {
        (self.rest >> Self::COLOUR) as u8
    }

    /// Whether its pwq counts it as in flight.
    #[inline]
    pub(crate) const fn is_counted(self) -> bool {
        self.rest & Self::COUNTED != 0
    }

    pub(crate) fn set_counted(&mut self) {
        self.rest |= Self::COUNTED;
    }
}

/// An entry of a batch, with the pwq that it was taken from. The batch does not use the pwq.
#[derive(Debug)]
pub(crate) struct Taken<P> {
    pub(crate) entry: Entry,
    /// Alive while this entry, or another one of the batch and this pwq, is in flight.
    pub(crate) pwq: NonNull<P>,
}

impl<P> Clone for Taken<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Taken<P> {}

/// The entries that a worker has taken.
#[allow(missing_debug_implementations, reason = "no one prints it")]
pub struct Batch<P> {
    next: AtomicU32,
    end: AtomicU32,
    recalled: AtomicBool,
    skipped: AtomicU64,
    fence: AsymFence,
    entries: [UnsafeCell<Option<Taken<P>>>; RING as usize],
}

// SAFETY: see the table: `next`, `end` and the lock pass the entries from the owner to others.
unsafe impl<P: Sync> Sync for Batch<P> {}
// SAFETY: as above; any thread may use what an entry points to.
unsafe impl<P: Sync> Send for Batch<P> {}

impl<P> Batch<P> {
    pub(crate) fn new(fence: AsymFence) -> Self {
        Self {
            next: AtomicU32::new(0),
            end: AtomicU32::new(0),
            recalled: AtomicBool::new(false),
            skipped: AtomicU64::new(0),
            fence,
            entries: std::array::from_fn(|_| UnsafeCell::new(None)),
        }
    }

    fn place(&self, i: u32) -> &UnsafeCell<Option<Taken<P>>> {
        &self.entries[(i % RING) as usize]
    }

    /// An entry that has been appended and is not settled. For the owner, or under the lock.
    #[inline]
    pub(crate) fn get(&self, i: u32) -> Taken<P> {
        // SAFETY: nothing below `end` is written.
        let taken = self.place(i).with(|p| unsafe { *p });
        taken.expect("an entry below the end")
    }

    /// The entry that the owner starts next.
    #[inline]
    pub fn next(&self) -> u32 {
        // Ordering: Acquire, pairs with `start`: entries below `next - 1` have ended, and the
        // effects of their runs are seen.
        self.next.load(Ordering::Acquire)
    }

    /// The index behind the last entry.
    #[inline]
    pub fn end(&self) -> u32 {
        // Ordering: Acquire, pairs with `append`: the entries below are written.
        self.end.load(Ordering::Acquire)
    }

    /// Whether nothing may be appended. A hint: the owner checks again before it starts an entry.
    #[inline]
    pub(crate) fn is_recalled(&self) -> bool {
        // Relaxed: a hint.
        self.recalled.load(Ordering::Relaxed)
    }

    /// The same after an append: the recaller sees the entry, or the owner sees the recall.
    #[inline]
    pub fn is_recalled_now(&self) -> bool {
        // Ordering: pairs with the heavy fence in `recall`.
        self.fence.light();
        self.recalled.load(Ordering::Relaxed)
    }

    /// *recall*, under the lock, X1. After [`fence`](Batch::fence) the owner must take the lock
    /// before it starts anything at or beyond [`next`](Batch::next).
    pub fn recall(&self) {
        self.recalled.store(true, Ordering::Relaxed);
    }

    /// *recall*, X2; serves all batches that were recalled before it.
    pub fn fence(&self) {
        // Ordering: pairs with the light fences in `start` and `is_recalled_now`.
        self.fence.heavy();
    }

    /// For the owner, under the lock: continue at `next`, with nothing beyond.
    #[inline]
    pub fn resume(&self, next: u32) {
        // Relaxed: the lock orders this.
        self.next.store(next, Ordering::Relaxed);
        self.end.store(next, Ordering::Relaxed);
        if self.is_recalled() {
            self.recalled.store(false, Ordering::Relaxed);
        }
    }

    /// For the owner: whether there is room. `settled` is the first entry still in use.
    #[inline]
    pub(crate) fn has_room(&self, settled: u32) -> bool {
        // Relaxed: only the owner writes it.
        self.end.load(Ordering::Relaxed).wrapping_sub(settled) < RING
    }

    /// For the owner: appends one entry, for which there is [room](Self::has_room).
    #[inline]
    pub(crate) fn append(&self, settled: u32, taken: Taken<P>) {
        debug_assert!(self.has_room(settled));
        let end = self.end.load(Ordering::Relaxed);
        // SAFETY: nothing beyond `end` is read, and the entry that was in this place is settled.
        self.place(end).with_mut(|p| unsafe { *p = Some(taken) });
        let skipped = self.skipped.load(Ordering::Relaxed);
        if skipped & bit(end) != 0 {
            self.skipped.store(skipped & !bit(end), Ordering::Relaxed);
        }
        // Ordering: Release, pairs with the Acquire in `end`.
        self.end.store(end.wrapping_add(1), Ordering::Release);
    }

    /// For the owner of a settled batch, under the lock: adds up to [`BATCH_MAX`] entries.
    #[inline]
    pub(crate) fn fill(&self) -> Fill<'_, P> {
        // Relaxed, here and in `finish`: only the owner writes it.
        let end = self.end.load(Ordering::Relaxed);
        Fill {
            batch: self,
            end,
            first: None,
            alike: true,
        }
    }

    /// *start* of entry `i`, for the owner. `false`: perhaps recalled; it looks under the lock.
    #[inline]
    pub fn start(&self, i: u32) -> bool {
        // Ordering: Release, pairs with the Acquire in `next`.
        self.next.store(i.wrapping_add(1), Ordering::Release);
        // Ordering: pairs with the heavy fence in `recall`: the recaller sees this entry started,
        // or the owner sees the recall.
        self.fence.light();
        !self.recalled.load(Ordering::Relaxed)
    }

    /// For the owner: the entry that it started did not run.
    pub fn mark_skipped(&self, i: u32) {
        // Relaxed: only the owner writes it; `start` of the next entry, or the lock, publishes it.
        let skipped = self.skipped.load(Ordering::Relaxed);
        self.skipped.store(skipped | bit(i), Ordering::Relaxed);
    }

    /// For the owner: whether all entries that have ended ran.
    #[inline]
    pub(crate) fn has_skipped_none(&self) -> bool {
        // Relaxed: only the owner writes it.
        self.skipped.load(Ordering::Relaxed) == 0
    }

    /// Whether an entry that has ended did not run. Under the lock.
    pub fn is_skipped(&self, i: u32) -> bool {
        // Relaxed: as above.
        self.skipped.load(Ordering::Relaxed) & bit(i) != 0
    }
}

/// The pwq and the flush colour that entries share.
pub(crate) type PwqColour<P> = (NonNull<P>, u8);

pub(crate) struct Fill<'a, P> {
    batch: &'a Batch<P>,
    end: u32,
    /// The pwq and colour of the first entry.
    first: Option<PwqColour<P>>,
    /// Whether the others have the same.
    alike: bool,
}

pub(crate) struct BatchTaken<P> {
    pub(crate) entries: usize,
    /// The pwq and colour of all entries, if they are the same.
    pub(crate) common: Option<PwqColour<P>>,
}

impl<P> Fill<'_, P> {
    /// Adds entries of a pwq. There is room: the entries that were in these places are settled.
    #[inline]
    pub(crate) fn extend(&mut self, pwq: NonNull<P>, places: &[Option<Entry>]) {
        let entries = places.iter().flatten();
        let Some(first) = entries.clone().next() else {
            return;
        };
        let common = *self.first.get_or_insert((pwq, first.colour()));
        let mut alike = self.alike && common.0 == pwq;
        let mut end = self.end;
        entries.for_each(|entry| {
            alike &= entry.colour() == common.1;
            let place = self.batch.place(end);
            // SAFETY: nothing beyond `end` is read.
            place.with_mut(|p| unsafe { *p = Some(Taken { entry: *entry, pwq }) });
            end = end.wrapping_add(1);
        });
        (self.end, self.alike) = (end, alike);
    }

    #[inline]
    pub(crate) fn finish(self) -> BatchTaken<P> {
        let Self { batch, end, .. } = self;
        let entries = end.wrapping_sub(batch.end.load(Ordering::Relaxed));
        debug_assert!(entries <= BATCH_MAX, "a batch fits into the ring");
        // Clears the marks of the entries before.
        batch.skipped.store(0, Ordering::Relaxed);
        // Relaxed: others read this only under the lock.
        batch.end.store(end, Ordering::Relaxed);
        BatchTaken {
            entries: entries as usize,
            common: self.first.filter(|_| self.alike),
        }
    }
}

pub(crate) fn bits(from: u32, upto: u32) -> u64 {
    let entries = 0..upto.wrapping_sub(from);
    entries.fold(0, |bits, i| bits | bit(from.wrapping_add(i)))
}

/// The bit of entry `i` in a mask of entries.
pub(crate) const fn bit(i: u32) -> u64 {
    1 << (i % RING)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn an_entry_keeps_what_it_is_given() {
        let item = ItemPtr::dangling();
        for (seq, colour) in [(0, 0), (Seq::MAX, 0), (0, u8::MAX), (1, 2)] {
            let mut entry = Entry::appended(item, seq, colour);
            let new = Entry::new(item, seq, colour);
            assert_eq!(
                (entry.item, entry.seq(), entry.colour()),
                (item, seq, colour)
            );
            assert!(!entry.is_counted() && new.is_counted());
            entry.set_counted();
            assert_eq!(format!("{entry:?}"), format!("{new:?}"));
        }
    }
}
