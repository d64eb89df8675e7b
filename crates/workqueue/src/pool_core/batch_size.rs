//! *take*, and the size of a batch: by the time of items, and by who else could run some.

use super::{INTENSIVE, PoolCore, PoolItem, PwqIndex, WorkerId, at};
use std::mem;

/// How long a batch may take, in ns.
const SLICE_NS: u64 = 20_000;

/// How many items of `service_ns` each fit in the time of a batch.
#[inline]
pub(crate) fn slice(service_ns: u64) -> u64 {
    SLICE_NS / service_ns.max(1)
}

impl<T: PoolItem> PoolCore<T> {
    /// *take*: a worker that may run takes a batch. `sink` gets the entries in their order, as
    /// slices of their places. Returns the number of entries.
    pub fn take(
        &mut self,
        worker: WorkerId,
        mut sink: impl FnMut(PwqIndex, &[Option<T>]),
    ) -> usize {
        self.emptied.clear();
        let mut room = self.room();
        let mut taken = 0;
        while taken < room {
            let Some(index) = self.first_listed() else {
                break;
            };
            let pwq = at(&mut self.pwqs, index);
            let mut entries = pwq.fifo.len().min(room - taken);
            if pwq.unmanaged {
                if taken > 0 {
                    break;
                }
                self.workers.set_flag(worker, INTENSIVE, true);
                (entries, room) = (1, 1);
            } else if pwq.slot_is_wanted() {
                // The pwq that waits for the slot gets it after each item.
                (entries, room) = (1, taken + 1);
            }
            let sink = |places: &_| sink(index, places);
            pwq.fifo.pop_many(entries, sink, &mut self.spares);
            taken += entries;
            self.listed -= entries;
            self.pass(worker, index);
        }
        self.taken += u64::from(taken > 0);
        taken
    }

    /// The slot of the first pwq goes to the batch; its other entries wait behind other pwqs.
    #[inline]
    fn pass(&mut self, worker: WorkerId, index: PwqIndex) {
        self.unlink(index);
        let pwq = at(&mut self.pwqs, index);
        let has_more = !pwq.fifo.is_empty();
        if !has_more {
            self.emptied.push(index);
        }
        let held = &mut self.workers.get_mut(worker).held;
        debug_assert!(!held.contains(&index), "one slot does for a batch");
        held.push(index);
        pwq.listed = has_more && pwq.acquire_slot();
        if pwq.listed {
            self.list_last(index);
        } else {
            self.listed -= pwq.fifo.len();
        }
    }

    #[inline]
    fn room(&self) -> usize {
        if !self.batching {
            return 1;
        }
        let most = u64::from(crate::batch::BATCH_MAX);
        let room = slice(self.service_ns).clamp(1, most) as usize;
        if self.workers.target() > 1 && self.is_worth_a_wake() && self.is_ready_for_more_than(1) {
            // Another worker can run the other half.
            return room.min(self.listed.div_ceil(2)).max(1);
        }
        room
    }

    /// Whether batches may have more than one entry. Only if the pool is watched: otherwise the
    /// rest of a batch would wait for an item that sleeps.
    pub fn set_batching(&mut self, on: bool) {
        self.batching = on;
    }

    /// The time that an item takes, in ns.
    #[must_use]
    pub fn service_ns(&self) -> u64 {
        self.service_ns
    }

    /// Notes that items took `ns` each. A longer time counts when it comes twice in a row: a batch
    /// whose thread lost its CPU says nothing about its items. The first one counts at once.
    #[inline]
    pub fn note_service(&mut self, ns: u64) {
        let before = mem::replace(&mut self.noted_ns, ns);
        let known = self.service_ns;
        self.service_ns = if ns > known {
            (known + ns.min(before).max(known)).div_ceil(2)
        } else {
            known - (known - ns) / 8
        };
    }
}
