//! A FIFO from whose middle entries can be taken.
//!
//! Chunks of equal size, so that no push moves what is there, memory follows the length, and a
//! position is found in constant time. An entry that is taken out of the middle leaves a hole;
//! holes at the ends go at once, others when they are as many as the entries.

use std::collections::VecDeque;

const CHUNK: usize = if cfg!(any(loom, test)) { 4 } else { 64 };

/// A FIFO. Positions are numbers that come round after 2^32.
#[derive(Debug)]
pub(crate) struct Fifo<T> {
    /// All but the first and the last have [`CHUNK`] places.
    chunks: VecDeque<VecDeque<Option<T>>>,
    /// An empty chunk, so that who pushes and pops by turns allocates nothing.
    spare: Option<VecDeque<Option<T>>>,
    /// The position of the first place.
    first: u32,
    places: usize,
    entries: usize,
}

impl<T> Default for Fifo<T> {
    fn default() -> Self {
        Self {
            chunks: VecDeque::new(),
            spare: None,
            first: 0,
            places: 0,
            entries: 0,
        }
    }
}

impl<T: Copy> Fifo<T> {
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    fn chunk(&mut self) -> VecDeque<Option<T>> {
        let spare = self.spare.take();
        spare.unwrap_or_else(|| VecDeque::with_capacity(CHUNK))
    }

    /// Returns its position.
    #[inline]
    pub(crate) fn push_back(&mut self, entry: T) -> u32 {
        if self.chunks.back().is_none_or(|last| last.len() == CHUNK) {
            let chunk = self.chunk();
            self.chunks.push_back(chunk);
        }
        let last = self.chunks.back_mut().expect("there is one with room");
        last.push_back(Some(entry));
        let position = self.first.wrapping_add(self.places as u32);
        self.places += 1;
        self.entries += 1;
        position
    }

    /// Returns its position.
    pub(crate) fn push_front(&mut self, entry: T) -> u32 {
        if self.chunks.front().is_none_or(|first| first.len() == CHUNK) {
            let chunk = self.chunk();
            self.chunks.push_front(chunk);
        }
        let first = self.chunks.front_mut().expect("there is one with room");
        first.push_front(Some(entry));
        self.first = self.first.wrapping_sub(1);
        self.places += 1;
        self.entries += 1;
        self.first
    }

    /// Pops so many entries, which there are.
    #[inline]
    pub(crate) fn pop_many(&mut self, entries: usize, mut sink: impl FnMut(T)) {
        let mut left = entries;
        while left > 0 {
            let first = self.chunks.front_mut().expect("it has so many");
            // Holes among them are not counted: perhaps another round.
            let places = first.len().min(left);
            for entry in first.drain(..places).flatten() {
                left -= 1;
                sink(entry);
            }
            self.first = self.first.wrapping_add(places as u32);
            self.places -= places;
            if first.is_empty() {
                self.spare = self.chunks.pop_front();
            }
        }
        self.entries -= entries;
    }

    /// The first place, a hole, goes.
    fn pop_hole(&mut self) {
        let first = self.chunks.front_mut().expect("there is a place");
        first.pop_front();
        self.first = self.first.wrapping_add(1);
        self.places -= 1;
        if first.is_empty() {
            self.spare = self.chunks.pop_front();
        }
    }

    /// The entry that comes next.
    pub(crate) fn front(&self) -> Option<&T> {
        self.iter().next()
    }

    /// In their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten().flatten()
    }

    fn place(&mut self, position: u32) -> Option<&mut Option<T>> {
        let index = position.wrapping_sub(self.first) as usize;
        if index >= self.places {
            return None;
        }
        let in_first = self.chunks.front()?.len();
        if index < in_first {
            return self.chunks.front_mut()?.get_mut(index);
        }
        let behind = index - in_first;
        self.chunks
            .get_mut(1 + behind / CHUNK)?
            .get_mut(behind % CHUNK)
    }

    /// The entry at a position, if there is one.
    pub(crate) fn at(&mut self, position: u32) -> Option<&T> {
        self.place(position)?.as_ref()
    }

    /// Takes the entry out that is at a position.
    pub(crate) fn remove(&mut self, position: u32) -> Option<T> {
        let entry = self.place(position)?.take()?;
        self.entries -= 1;
        while self.places > 0 && self.chunks[0][0].is_none() {
            self.pop_hole();
        }
        let ends_with_hole =
            |last: &&mut VecDeque<Option<T>>| last.back().is_some_and(Option::is_none);
        while let Some(last) = self.chunks.back_mut().filter(ends_with_hole) {
            last.pop_back();
            self.places -= 1;
            if last.is_empty() {
                self.spare = self.chunks.pop_back();
            }
        }
        Some(entry)
    }

    /// Whether there are more holes than entries, by a chunk.
    pub(crate) fn has_holes(&self) -> bool {
        self.places > 2 * self.entries + CHUNK
    }

    /// Closes the holes. `moved` is told where each entry is now.
    pub(crate) fn compact(&mut self, mut moved: impl FnMut(&T, u32)) {
        let old = std::mem::take(self);
        self.first = old.first;
        for entry in old.chunks.into_iter().flatten().flatten() {
            let position = self.push_back(entry);
            moved(&entry, position);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a list of positions and entries.
        #[test]
        fn as_a_plain_list(steps in proptest::collection::vec((0..6u8, 0..40usize), 0..400)) {
            let mut fifo = Fifo::default();
            let mut plain: VecDeque<(u32, u32)> = VecDeque::new();
            let mut next = 0;
            for (step, at) in steps {
                next += 1;
                match step {
                    0 | 1 => plain.push_back((fifo.push_back(next), next)),
                    2 => plain.push_front((fifo.push_front(next), next)),
                    3 => {
                        let many = at.min(plain.len());
                        let expected: Vec<_> = plain.drain(..many).map(|p| p.1).collect();
                        let mut popped = Vec::new();
                        fifo.pop_many(many, |entry| popped.push(entry));
                        prop_assert_eq!(popped, expected);
                    }
                    4 if !plain.is_empty() => {
                        let (position, entry) = plain[at % plain.len()];
                        prop_assert_eq!(fifo.at(position), Some(&entry));
                        prop_assert_eq!(fifo.remove(position), Some(entry));
                        prop_assert_eq!(fifo.at(position), None, "it is gone");
                        plain.remove(at % plain.len());
                    }
                    _ if fifo.has_holes() => fifo.compact(|entry, position| {
                        let of = plain.iter_mut().find(|p| p.1 == *entry).expect("it is there");
                        of.0 = position;
                    }),
                    _ => {}
                }
                prop_assert_eq!(fifo.len(), plain.len());
                prop_assert_eq!(fifo.front().copied(), plain.front().map(|p| p.1));
                prop_assert!(fifo.iter().copied().eq(plain.iter().map(|p| p.1)));
            }
        }
    }

    #[test]
    fn a_loop_that_queues_and_cancels_keeps_no_memory() {
        let mut fifo = Fifo::default();
        fifo.push_back(0);
        let mut last = fifo.push_back(1);
        for n in 2..10_000 {
            let position = fifo.push_back(n);
            assert_eq!(fifo.remove(last), Some(n - 1));
            last = position;
            if fifo.has_holes() {
                fifo.compact(|entry, position| last = if *entry == n { position } else { last });
            }
            assert!(fifo.places <= 2 * fifo.entries + CHUNK + 1);
        }
        assert_eq!(fifo.len(), 2);
    }
}
