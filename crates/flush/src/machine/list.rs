//! Requests, and the two lists of those that wait for a flush.
//!
//! A request has one link. The link belongs to the machine from the submission to the completion,
//! and is free whenever the request is put into a list.

use super::request::Steps;
use inflight_sync::time::Instant;

const NIL: u32 = u32::MAX;

/// Names a request from its submission until it is [released](super::Machine::release).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub(super) u32);

impl Id {
    /// A small number: no two requests that are not released have the same.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// In the list of free entries.
    Free,
    /// Waits for the flush of this generation.
    Waiting(u64),
    /// Its data is under way.
    Data {
        /// It counts as data of a sequence.
        sequenced: bool,
        /// The number of this call, if it is a durable write.
        call: Option<u64>,
    },
    /// Its durable write has succeeded, and is not reported yet.
    Held,
    /// Its end was reported, or it has left.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    pub(super) place: Place,
    pub(super) left: Steps,
    /// Its data is to be durable when it ends.
    pub(super) fua: bool,
    /// How many calls had failed when its data could start.
    pub(super) failed_before: u64,
    /// When it began to wait for a flush.
    pub(super) joined: Instant,
    prev: u32,
    /// In a waiting list, or in the list of free entries.
    next: u32,
    linked: bool,
}

/// The requests of a generation, in the order in which they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct List {
    head: u32,
    tail: u32,
    pub(super) len: u32,
    /// When the first one came.
    pub(super) oldest: Instant,
}

impl List {
    pub(super) fn new() -> Self {
        Self {
            head: NIL,
            tail: NIL,
            len: 0,
            oldest: Instant::default(),
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn first(&self) -> Option<Id> {
        (self.head != NIL).then_some(Id(self.head))
    }
}

/// All requests that are not released.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Requests {
    entries: Vec<Entry>,
    free: u32,
}

impl Requests {
    pub(super) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: NIL,
        }
    }

    pub(super) fn insert(&mut self, left: Steps, fua: bool) -> Id {
        let fresh = Entry {
            place: Place::Ended,
            left,
            fua,
            failed_before: 0,
            joined: Instant::default(),
            prev: NIL,
            next: NIL,
            linked: false,
        };
        if self.free == NIL {
            let index = u32::try_from(self.entries.len()).expect("at most 2^32 - 1 requests");
            assert!(index != NIL, "at most 2^32 - 1 requests");
            self.entries.push(fresh);
            return Id(index);
        }
        let index = self.free;
        self.free = self.entries[index as usize].next;
        self.entries[index as usize] = fresh;
        Id(index)
    }

    pub(super) fn release(&mut self, id: Id) {
        let free = self.free;
        let entry = self.get_mut(id);
        debug_assert!(entry.place == Place::Ended && !entry.linked);
        entry.place = Place::Free;
        entry.next = free;
        self.free = id.0;
    }

    pub(super) fn get(&self, id: Id) -> &Entry {
        &self.entries[id.index()]
    }

    pub(super) fn get_mut(&mut self, id: Id) -> &mut Entry {
        &mut self.entries[id.index()]
    }

    /// The members of a list.
    pub(super) fn iter(&self, list: &List) -> impl Iterator<Item = Id> + '_ {
        let next = |id: &Id| match self.get(*id).next {
            NIL => None,
            next => Some(Id(next)),
        };
        std::iter::successors(list.first(), next)
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut()
    }

    pub(super) fn push_back(&mut self, list: &mut List, id: Id, now: Instant) {
        if list.is_empty() {
            list.oldest = now;
        }
        let tail = list.tail;
        let entry = self.get_mut(id);
        // Invariant: a request is in at most one list, and only that list uses its link.
        debug_assert!(!entry.linked, "the link is in use");
        entry.linked = true;
        entry.joined = now;
        (entry.prev, entry.next) = (tail, NIL);
        match tail {
            NIL => list.head = id.0,
            tail => self.entries[tail as usize].next = id.0,
        }
        list.tail = id.0;
        list.len += 1;
    }

    pub(super) fn unlink(&mut self, list: &mut List, id: Id) {
        let entry = self.get_mut(id);
        debug_assert!(entry.linked, "the link is free");
        entry.linked = false;
        let (prev, next) = (entry.prev, entry.next);
        (entry.prev, entry.next) = (NIL, NIL);
        match prev {
            NIL => list.head = next,
            prev => self.entries[prev as usize].next = next,
        }
        match next {
            NIL => list.tail = prev,
            next => self.entries[next as usize].prev = prev,
        }
        list.len -= 1;
    }
}
