//! A chunked table: it grows while it is read.
//!
//! Chunk `k` has `2^k` entries, so that 24 pointers reach 16 million of them.

use crate::atomic::{AtomicPtr, Ordering};
use std::marker::PhantomData;
use std::ptr;

/// Few in a model, because each costs time there.
const CHUNKS: usize = if cfg!(loom) { 4 } else { 24 };

/// A table that grows while it is read: an entry is made when a caller first needs it, and keeps
/// its address until the table is dropped. A look-up costs two loads.
///
/// ```
/// use inflight_sync::Grown;
/// use inflight_sync::atomic::{AtomicU32, Ordering};
/// let table = Grown::new();
/// table.get_or_make(1000, || AtomicU32::new(7)).fetch_add(1, Ordering::Relaxed);
/// assert_eq!(table.get(1000).unwrap().load(Ordering::Relaxed), 8);
/// assert!(table.get(0).is_none());
/// ```
// `new` needs `Send` and `Sync`: entries are made, used and dropped by different threads.
pub struct Grown<T> {
    /// Null, or the first entry of a boxed slice that stays until the end.
    chunks: [AtomicPtr<T>; CHUNKS],
    owns: PhantomData<Box<[T]>>,
}

/// The chunk of an entry, and its place in it.
const fn place(index: usize) -> (usize, usize) {
    let chunk = (index + 1).ilog2() as usize;
    (chunk, index + 1 - (1 << chunk))
}

impl<T> Grown<T> {
    /// The largest number of entries.
    pub const MOST: usize = (1 << CHUNKS) - 1;
}

impl<T: Send + Sync> Default for Grown<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + Sync> Grown<T> {
    /// Makes an empty table.
    #[must_use]
    pub fn new() -> Self {
        Self {
            chunks: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            owns: PhantomData,
        }
    }

    /// Returns an entry below [`MOST`](Self::MOST), if it has been made.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&T> {
        if index >= Self::MOST {
            return None;
        }
        let (chunk, offset) = place(index);
        // Ordering: pairs with the Release in `make`: the entries are there.
        let first = self.chunks[chunk].load(Ordering::Acquire);
        if first.is_null() {
            return None;
        }
        // SAFETY: a chunk has 2^chunk entries, `place` stays below that.
        let entry = unsafe { first.add(offset) };
        // SAFETY: the chunk stays until the table is dropped, and is only shared until then.
        Some(unsafe { &*entry })
    }

    /// Returns an entry below [`MOST`](Self::MOST), which with its neighbours is made now if there
    /// is none.
    ///
    /// # Panics
    ///
    /// If `index` is not below [`MOST`](Self::MOST), and with `make`.
    #[inline]
    pub fn get_or_make(&self, index: usize, make: impl FnMut() -> T) -> &T {
        match self.get(index) {
            Some(entry) => entry,
            None => self.make(index, make),
        }
    }

    #[cold]
    fn make(&self, index: usize, mut make: impl FnMut() -> T) -> &T {
        assert!(
            index < Self::MOST,
            "index {index} is beyond the table's {} entries",
            Self::MOST
        );
        let (chunk, _) = place(index);
        let entries: Box<[T]> = (0..1usize << chunk).map(|_| make()).collect();
        let first = Box::into_raw(entries).cast::<T>();
        // Ordering: Release pairs with the Acquire in `get`.
        let made = self.chunks[chunk].compare_exchange(
            ptr::null_mut(),
            first,
            Ordering::Release,
            Ordering::Relaxed,
        );
        if made.is_err() {
            // SAFETY: it comes from `into_raw` above, and nobody else has seen it.
            drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(first, 1 << chunk)) });
        }
        self.get(index)
            .expect("this thread or another one has made the entry")
    }

    /// Returns all entries that have been made, with their indices, which may have gaps.
    ///
    /// ```
    /// let table = inflight_sync::Grown::new();
    /// table.get_or_make(2, || 'c');
    /// assert_eq!(table.iter().collect::<Vec<_>>(), [(1, &'c'), (2, &'c')]);
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        let made = |chunk: usize| (0..1usize << chunk).map(move |offset| (1 << chunk) - 1 + offset);
        let there = move |chunk: &usize| self.get((1 << *chunk) - 1).is_some();
        (0..CHUNKS)
            .filter(there)
            .flat_map(made)
            .filter_map(|index| Some((index, self.get(index)?)))
    }
}

impl<T> Drop for Grown<T> {
    fn drop(&mut self) {
        for (chunk, first) in self.chunks.iter().enumerate() {
            // Relaxed: a drop comes after all other uses.
            let first = first.load(Ordering::Relaxed);
            if !first.is_null() {
                let entries = ptr::slice_from_raw_parts_mut(first, 1 << chunk);
                // SAFETY: `make` put it there, from `into_raw`, and no reference is left.
                drop(unsafe { Box::from_raw(entries) });
            }
        }
    }
}

crate::debug_fields!([T] Grown<T>);

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::atomic::AtomicUsize;
    use crate::{Arc, thread};

    #[test]
    fn each_index_has_one_place() {
        let mut next = 0;
        for chunk in 0..10 {
            for offset in 0..1 << chunk {
                assert_eq!(place(next), (chunk, offset));
                next += 1;
            }
        }
        assert_eq!(place(Grown::<u8>::MOST - 1).0, CHUNKS - 1);
    }

    #[test]
    fn entries_are_made_once_and_stay() {
        let table = Grown::new();
        assert!(table.get(0).is_none() && table.get(Grown::<u8>::MOST).is_none());
        let fifth: *const AtomicUsize = table.get_or_make(4, || AtomicUsize::new(7));
        assert!(table.get(2).is_none(), "another chunk");
        assert_eq!(table.iter().count(), 4);
        table.get_or_make(70, || AtomicUsize::new(1));
        let again: *const _ = table.get_or_make(4, || unreachable!("it is there"));
        assert_eq!(fifth, again);
        assert_eq!(table.iter().count(), 4 + 64);
    }

    #[test]
    fn makers_agree_on_an_entry() {
        let (table, made) = (Arc::new(Grown::new()), Arc::new(AtomicUsize::new(0)));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (table, made) = (table.clone(), made.clone());
                thread::spawn(move || {
                    for index in 0..200 {
                        let entry = table.get_or_make(index, || {
                            made.fetch_add(1, Ordering::Relaxed);
                            AtomicUsize::new(0)
                        });
                        entry.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        let sum: usize = table.iter().map(|(_, n)| n.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 600);
        assert!(made.load(Ordering::Relaxed) >= 255);
    }
}
