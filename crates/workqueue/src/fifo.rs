//! A FIFO that allows removal from the middle.
//!
//! It has three parts: pops come from the head, pushes go to the tail, and full chunks are between
//! them. So a push moves no entries, memory follows the length, a position is found in constant
//! time, and poppers and pushers seldom touch the same places. An entry removed from the middle
//! leaves a hole. Holes at the ends are removed at once, others once they outnumber the entries by
//! a chunk. Empty chunks are kept for the FIFOs of the same pool.

use crate::shrink::shrink_ring;
use inflight_sync::prefetch_to_write;
use std::collections::VecDeque;

/// Places of a chunk; in tests a number that no `Vec` chooses by itself.
const CHUNK: usize = if cfg!(any(loom, test)) { 5 } else { 64 };

/// How many places ahead of the last one a push prefetches a cache line.
const AHEAD: usize = 8;

/// How many empty chunks are kept: enough for a thousand entries.
const SPARES: usize = 16;

/// Empty chunks, each with room for [`CHUNK`] places.
#[derive(Debug)]
pub(crate) struct SpareChunks<T>(Vec<Vec<Option<T>>>);

impl<T> Default for SpareChunks<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> SpareChunks<T> {
    fn get(&mut self) -> Vec<Option<T>> {
        self.0.pop().unwrap_or_else(|| Vec::with_capacity(CHUNK))
    }

    fn put(&mut self, mut chunk: Vec<Option<T>>) {
        // A part that never had an entry has no chunk.
        if self.0.len() < SPARES && chunk.capacity() >= CHUNK {
            chunk.clear();
            self.0.push(chunk);
        }
    }
}

/// A FIFO. Positions are numbers that wrap after 2^32.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Fifo<T> {
    /// At most [`CHUNK`] places.
    tail: Vec<Option<T>>,
    /// The position of the next place. A push writes only this and the tail.
    next: u32,
    /// The position of the first place.
    first: u32,
    /// Places without an entry.
    holes: u32,
    /// Places of the head before this have been popped.
    gone: u32,
    /// At most [`CHUNK`] places.
    head: Vec<Option<T>>,
    /// Each has [`CHUNK`] places.
    full: VecDeque<Vec<Option<T>>>,
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self {
            tail: Vec::new(),
            next: 0,
            first: 0,
            holes: 0,
            gone: 0,
            head: Vec::new(),
            full: VecDeque::new(),
        }
    }
}

/// How many bytes of a fifo a push touches.
pub(crate) const PUSHED: usize = std::mem::offset_of!(Fifo<u64>, head);

impl<T: Copy> Fifo<T> {
    #[inline]
    fn places(&self) -> usize {
        self.next.wrapping_sub(self.first) as usize
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.places() - self.holes as usize
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the entry's position.
    #[inline]
    pub(crate) fn push_back(&mut self, entry: T, spares: &mut SpareChunks<T>) -> u32 {
        if self.tail.len() == self.tail.capacity().min(CHUNK) {
            self.next_tail(spares);
        }
        self.tail.push(Some(entry));
        let ahead = self.tail.len() + AHEAD;
        if ahead < CHUNK {
            // The popper had the cache line last.
            prefetch_to_write(self.tail.as_ptr().wrapping_add(ahead));
        }
        let position = self.next;
        self.next = position.wrapping_add(1);
        position
    }

    #[cold]
    fn next_tail(&mut self, spares: &mut SpareChunks<T>) {
        let full = std::mem::replace(&mut self.tail, spares.get());
        for place in 0..AHEAD {
            prefetch_to_write(self.tail.as_ptr().wrapping_add(place));
        }
        if !full.is_empty() {
            self.full.push_back(full);
        }
    }

    /// Returns the entry's position.
    pub(crate) fn push_front(&mut self, entry: T, spares: &mut SpareChunks<T>) -> u32 {
        if self.gone == 0 {
            if self.head.len() == CHUNK {
                let full = std::mem::replace(&mut self.head, spares.get());
                self.full.push_front(full);
            } else if self.head.capacity() == 0 {
                self.head = spares.get();
            }
            // Room for more than one: entries are usually put back in groups.
            let room = CHUNK - self.head.len();
            self.head.splice(0..0, std::iter::repeat_n(None, room));
            self.gone = room as u32;
        }
        self.gone -= 1;
        self.head[self.gone as usize] = Some(entry);
        self.first = self.first.wrapping_sub(1);
        self.first
    }

    /// Pops `entries` entries, which must exist; `sink` gets slices of their places.
    #[inline]
    pub(crate) fn pop_many(
        &mut self,
        entries: usize,
        mut sink: impl FnMut(&[Option<T>]),
        spares: &mut SpareChunks<T>,
    ) {
        let mut left = entries;
        while left > 0 {
            let places = (self.head.len() - self.gone as usize).min(left);
            if places == 0 {
                self.next_head(spares);
                continue;
            }
            let slice = &self.head[self.gone as usize..][..places];
            // Holes in the slice do not count as entries, so there may be another round. Counting
            // first fetches the cache lines together.
            let taken = slice.iter().flatten().count();
            sink(slice);
            left -= taken;
            self.holes -= (places - taken) as u32;
            self.pop_places(places);
        }
    }

    /// The head has no places left: the next part becomes the head.
    fn next_head(&mut self, spares: &mut SpareChunks<T>) {
        self.head.clear();
        self.gone = 0;
        match self.full.pop_front() {
            Some(next) => spares.put(std::mem::replace(&mut self.head, next)),
            None => std::mem::swap(&mut self.head, &mut self.tail),
        }
        shrink_ring(&mut self.full, SPARES);
    }

    #[inline]
    fn pop_places(&mut self, places: usize) {
        self.gone += places as u32;
        self.first = self.first.wrapping_add(places as u32);
    }

    pub(crate) fn front(&self) -> Option<&T> {
        self.iter().next()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let head = self.head[self.gone as usize..].iter();
        let full = self.full.iter().flatten();
        head.chain(full).chain(&self.tail).flatten()
    }

    fn place(&mut self, position: u32) -> Option<&mut Option<T>> {
        let index = position.wrapping_sub(self.first) as usize;
        let in_head = self.head.len() - self.gone as usize;
        if index < in_head {
            return self.head.get_mut(self.gone as usize + index);
        }
        let behind = index - in_head;
        let in_full = self.full.len() * CHUNK;
        if behind < in_full {
            return self.full[behind / CHUNK].get_mut(behind % CHUNK);
        }
        self.tail.get_mut(behind - in_full)
    }

    pub(crate) fn at(&mut self, position: u32) -> Option<&T> {
        self.place(position)?.as_ref()
    }

    pub(crate) fn remove(&mut self, position: u32, spares: &mut SpareChunks<T>) -> Option<T> {
        let entry = self.place(position)?.take()?;
        self.holes += 1;
        while self.places() > 0 && self.first_place(spares).is_none() {
            self.pop_places(1);
            self.holes -= 1;
        }
        while self.places() > 0 && self.last_part(spares).last().is_some_and(Option::is_none) {
            self.last_part(spares).pop();
            self.next = self.next.wrapping_sub(1);
            self.holes -= 1;
        }
        Some(entry)
    }

    /// The first place, which must exist.
    fn first_place(&mut self, spares: &mut SpareChunks<T>) -> Option<T> {
        if self.head.len() == self.gone as usize {
            self.next_head(spares);
        }
        self.head[self.gone as usize]
    }

    /// The part that has the last place, which must exist.
    fn last_part(&mut self, spares: &mut SpareChunks<T>) -> &mut Vec<Option<T>> {
        if !self.tail.is_empty() {
            return &mut self.tail;
        }
        match self.full.pop_back() {
            Some(last) => {
                shrink_ring(&mut self.full, SPARES);
                spares.put(std::mem::replace(&mut self.tail, last));
                &mut self.tail
            }
            None => &mut self.head,
        }
    }

    /// Whether the holes outnumber the entries by more than a chunk.
    pub(crate) fn has_holes(&self) -> bool {
        self.places() > 2 * self.len() + CHUNK
    }

    /// Closes the holes. `moved` gets the new position of each entry.
    pub(crate) fn compact(&mut self, mut moved: impl FnMut(&T, u32), spares: &mut SpareChunks<T>) {
        let old = std::mem::take(self);
        (self.first, self.next) = (old.first, old.first);
        for entry in old.iter() {
            let position = self.push_back(*entry, spares);
            moved(entry, position);
        }
        let chunks = old.full.into_iter().chain([old.head, old.tail]);
        chunks.for_each(|chunk| spares.put(chunk));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn holes_are_closed_when_they_outnumber_the_entries_by_a_chunk() {
        let (mut fifo, mut spares) = (Fifo::default(), SpareChunks::default());
        let positions = [(); 20].map(|()| fifo.push_back(7, &mut spares));
        let mut removed = 0;
        while !fifo.has_holes() {
            removed += 1;
            fifo.remove(positions[removed], &mut spares).unwrap();
        }
        assert_eq!((removed, fifo.len(), fifo.places()), (13, 7, 20));
        fifo.compact(|_, _| (), &mut spares);
        assert_eq!((fifo.len(), fifo.places()), (7, 7));
    }

    proptest! {
        /// Against a list of positions and entries.
        #[test]
        fn as_a_plain_list(steps in proptest::collection::vec((0..6u8, 0..40usize), 0..400)) {
            let (mut fifo, mut spares) = (Fifo::default(), SpareChunks::default());
            let mut plain: VecDeque<(u32, u32)> = VecDeque::new();
            let mut next = 0;
            for (step, at) in steps {
                next += 1;
                match step {
                    0 | 1 => plain.push_back((fifo.push_back(next, &mut spares), next)),
                    2 => plain.push_front((fifo.push_front(next, &mut spares), next)),
                    3 => {
                        let many = at.min(plain.len());
                        let expected: Vec<_> = plain.drain(..many).map(|p| p.1).collect();
                        let mut popped: Vec<u32> = Vec::new();
                        let sink = |places: &[_]| popped.extend(places.iter().flatten());
                        fifo.pop_many(many, sink, &mut spares);
                        prop_assert_eq!(popped, expected);
                    }
                    4 if !plain.is_empty() => {
                        let (position, entry) = plain[at % plain.len()];
                        prop_assert_eq!(fifo.at(position), Some(&entry));
                        prop_assert_eq!(fifo.remove(position, &mut spares), Some(entry));
                        prop_assert_eq!(fifo.at(position), None, "it is gone");
                        plain.remove(at % plain.len());
                    }
                    _ if fifo.has_holes() => fifo.compact(|entry, position| {
                        let of = plain.iter_mut().find(|p| p.1 == *entry).expect("it is there");
                        of.0 = position;
                    }, &mut spares),
                    _ => {}
                }
                prop_assert_eq!(fifo.len(), plain.len());
                prop_assert_eq!(fifo.front().copied(), plain.front().map(|p| p.1));
                prop_assert!(fifo.iter().copied().eq(plain.iter().map(|p| p.1)));
                prop_assert!(fifo.full.iter().all(|chunk| chunk.len() == CHUNK));
                prop_assert!(spares.0.iter().all(|chunk| chunk.capacity() >= CHUNK));
            }
        }
    }
}
