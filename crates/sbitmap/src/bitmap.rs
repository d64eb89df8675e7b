//! The bitmap: words, hints, and the search over them.

use crate::builder::SbitmapBuilder;
use crate::cpu_hint::{CpuHint, Hint, Hints};
use crate::double_free::Check;
use crate::error::PutError;
use crate::layout::{Layout, low_mask, offsets};
pub(crate) use crate::mask::BitMask;
use crate::word::{Search, Word};
use inflight_sync::Mutex;
use inflight_sync::atomic::{AtomicUsize, Ordering};

mod bits_in_use;
mod resize;
mod set_clear;

/// A scalable bitmap: hands out the numbers `0..depth`, each to one owner at a time.
///
/// No operation sleeps until a bit is free, and none but [`try_get_batch`](Sbitmap::try_get_batch)
/// and the snapshots allocates. A getter that finds a word full moves freed bits back under that
/// word's lock, for a few instructions. A put that meets such a move waits for it, unless the map
/// is [`trusted`](SbitmapBuilder::trusted). Writes of the owner of a bit before
/// [`put`](Sbitmap::put) are visible to the next owner after [`try_get`](Sbitmap::try_get), so a
/// bit may index data that has no lock of its own.
///
/// # Fairness
///
/// None: the caller that searches while a bit is free gets it. With
/// [`SbitmapQueue`](crate::SbitmapQueue) callers can wait.
///
/// ```
/// use inflight_sbitmap::Sbitmap;
/// let map = Sbitmap::builder(64).max_depth(256).build().unwrap();
/// assert_eq!((map.depth(), map.max_depth(), map.bits_per_word()), (64, 256, 16));
/// let bit = map.try_get().unwrap();
/// assert!(bit < 64 && map.is_set(bit) && map.is_any_set());
/// assert_eq!((map.weight(), map.snapshot().busy), (1, 1));
/// assert_eq!(map.iter_set(0).collect::<Vec<_>>(), [bit]);
/// map.for_each_set(0, |set| set == bit);
/// map.put(bit).unwrap();
/// assert!(map.put(bit).is_err(), "a double free is an error");
/// ```
#[derive(Debug)]
pub struct Sbitmap {
    /// The layout for the largest depth. All its words exist, and its shift is used at every depth.
    full: Layout,
    /// The number of bits in use for allocation. Written under `resizing`.
    depth: AtomicUsize,
    resizing: Mutex<()>,
    in_turn: bool,
    check: Check,
    hints: Hints,
    words: Box<[Word]>,
}

impl Sbitmap {
    /// Returns the builder of a bitmap of `depth` bits, all free. A depth of 0 is an error of
    /// [`build`](SbitmapBuilder::build).
    pub fn builder(depth: usize) -> SbitmapBuilder {
        SbitmapBuilder::new(depth)
    }

    /// Makes a map with the layout's depth.
    pub(crate) fn new(layout: Layout, max_depth: usize, in_turn: bool, check: Check) -> Self {
        let full = layout.with_depth(max_depth);
        Self {
            full,
            depth: AtomicUsize::new(layout.depth),
            resizing: Mutex::new(()),
            in_turn,
            check,
            hints: Hints::new(layout, in_turn),
            words: (0..full.words()).map(|_| Word::default()).collect(),
        }
    }

    /// Returns the layout with the present depth.
    #[inline]
    fn layout(&self) -> Layout {
        // Relaxed: an operation during a resize may use either depth; `accept` checks again when a
        // bit was taken.
        self.full.with_depth(self.depth.load(Ordering::Relaxed))
    }

    /// Returns the number of bits to hand out. Bits beyond may still be in use after a
    /// [`resize`](Sbitmap::resize).
    #[inline]
    #[must_use]
    pub fn depth(&self) -> usize {
        self.layout().depth
    }

    /// Returns the largest depth to which the map can be resized.
    #[must_use]
    pub const fn max_depth(&self) -> usize {
        self.full.depth
    }

    /// Returns the number of bits used in each word.
    ///
    /// It is below 64 in a small map, so that the map spreads over at least four words.
    #[must_use]
    pub const fn bits_per_word(&self) -> usize {
        self.full.bits_per_word()
    }

    /// Takes a bit; the search begins at the calling CPU's hint. Returns `None` if all are taken.
    ///
    /// While others get and put, `None` says that the search found each bit taken, not that all
    /// were taken at one moment: a thread that puts a bit behind the search and takes one ahead of
    /// it hides both.
    ///
    /// In round-robin mode each CPU hands bits out one after the other.
    #[must_use = "a bit that is dropped is never given back"]
    #[inline]
    pub fn try_get(&self) -> Option<usize> {
        let slot = self.hints.of_this_cpu();
        self.try_get_at(slot)
            .or_else(|| self.by_hint(slot, |hint| self.try_get_with(hint)))
    }

    /// The common case of a get: the word of the hint has a free bit, and the map is not round
    /// robin.
    #[inline]
    fn try_get_at(&self, slot: &CpuHint) -> Option<usize> {
        let hint = slot.as_bit();
        let (i, _) = self.full.split(hint);
        let word = self.words.get(i).filter(|_| !self.in_turn)?;
        let layout = self.layout();
        let bit = layout.bit(i, word.try_get(Search::of_all(layout.word_depth(i)))?);
        if !self.accept(bit) {
            return None;
        }
        if bit == hint {
            slot.store(Hint::at(hint).after(Some(bit), layout, false));
        }
        Some(bit)
    }

    /// Searches from the hint of a CPU, and moves the hint.
    #[inline(never)]
    fn by_hint(
        &self,
        slot: &CpuHint,
        search: impl FnOnce(&mut Hint) -> Option<usize>,
    ) -> Option<usize> {
        let mut hint = slot.load(self.layout());
        let bit = search(&mut hint);
        slot.store(hint);
        bit
    }

    /// Takes a bit; the search begins at a hint of the caller's, and moves the hint.
    #[must_use = "a bit that is dropped is never given back"]
    pub fn try_get_with(&self, hint: &mut Hint) -> Option<usize> {
        self.search(hint, |layout, word, from| Search {
            depth: layout.word_depth(word),
            // The start within a word only matters for a round-robin map: the scan is one
            // instruction.
            from: if self.in_turn { from } else { 0 },
            wrap: !self.in_turn,
        })
    }

    /// Takes a bit if fewer than `limit` of the bits open to this limit are taken.
    ///
    /// Users that take bits only in this way hold at most `limit` bits of the whole map together;
    /// the rest stays free for others. The limit is spread over the words in proportion, exactly.
    /// This is blk-mq's shallow depth.
    ///
    /// ```
    /// let map = inflight_sbitmap::Sbitmap::builder(64).build().unwrap();
    /// let background = std::iter::from_fn(|| map.try_get_shallow(10)).count();
    /// assert_eq!(background, 10);
    /// assert!(map.try_get().is_some());
    /// ```
    #[must_use = "a bit that is dropped is never given back"]
    pub fn try_get_shallow(&self, limit: usize) -> Option<usize> {
        self.by_hint(self.hints.of_this_cpu(), |hint| {
            self.search(hint, |layout, word, from| Search {
                depth: layout.shallow(limit).word_depth(word),
                from,
                wrap: true,
            })
        })
    }

    /// Searches until a bit below the depth is found, and moves the hint.
    #[inline]
    fn search(
        &self,
        hint: &mut Hint,
        open: impl Fn(Layout, usize, u32) -> Search,
    ) -> Option<usize> {
        loop {
            let layout = self.layout();
            let start = hint.within(layout);
            let found = self.visit_words(layout, start, |word, from| open(layout, word, from));
            if found.is_none_or(|bit| self.accept(bit)) {
                *hint = start.after(found, layout, self.in_turn);
                return found;
            }
        }
    }

    /// Visits every word once, starting with the word of the hint.
    ///
    /// If the first word's search does not wrap, the bits before its start come last. Otherwise
    /// "none" would not be exact, and a waiter could miss a bit in its second search.
    #[inline]
    fn visit_words(
        &self,
        layout: Layout,
        start: Hint,
        search: impl Fn(usize, u32) -> Search,
    ) -> Option<usize> {
        let (first, offset) = layout.split(start.0 as usize);
        if layout.depth == 0 {
            return None;
        }
        let begun = search(first, offset);
        // The first word nearly always has a bit, so the rest is a separate function.
        match self.words[first].try_get(begun) {
            Some(offset) => Some(layout.bit(first, offset)),
            None => self.visit_others(layout, first, begun, |i| search(i, 0)),
        }
    }

    /// Visits all words but the first, and then the rest of the first one.
    #[inline(never)]
    fn visit_others(
        &self,
        layout: Layout,
        first: usize,
        begun: Search,
        search: impl Fn(usize) -> Search,
    ) -> Option<usize> {
        let visit = |i: usize, search: Search| {
            let offset = self.words[i].try_get(search)?;
            Some(layout.bit(i, offset))
        };
        let mut others = (first + 1..layout.words()).chain(0..first);
        let found = others.find_map(|i| visit(i, search(i)));
        if found.is_some() || begun.wrap || begun.from == 0 {
            return found;
        }
        visit(
            first,
            Search {
                depth: begun.from,
                from: 0,
                wrap: true,
            },
        )
    }

    /// Returns whether a bit just taken is below the depth; puts it back if not.
    ///
    /// A search may have begun before the map shrank. Relaxed is enough: a get that takes a bit of
    /// a word after the shrink flushed it has acquired the new depth with the bit.
    #[inline]
    fn accept(&self, bit: usize) -> bool {
        bit < self.depth.load(Ordering::Relaxed) || {
            let (word, offset) = self.full.split(bit);
            self.put_above_depth(word, 1 << offset) != 0
        }
    }

    /// Puts back the bits of a word just taken that are not below the depth, and returns the
    /// others.
    ///
    /// Under the lock: if the map grew in between, the bits would be free and no waiter would have
    /// been woken.
    #[cold]
    fn put_above_depth(&self, word: usize, taken: u64) -> u64 {
        let _resizing = self.resizing.lock();
        let kept = taken & low_mask(self.layout().word_depth(word));
        if kept != taken {
            let given_back = self.words[word].put_mask(taken & !kept, self.check);
            debug_assert!(given_back == taken & !kept, "they were ours");
        }
        kept
    }

    /// Takes up to `n` bits, pushes them to `bits` and returns their number.
    ///
    /// It takes ranges of whole words if possible, single bits after that. Fewer than `n` means
    /// that no more were free.
    ///
    /// ```
    /// let map = inflight_sbitmap::Sbitmap::builder(48).build().unwrap();
    /// let mut bits = Vec::new();
    /// assert_eq!(map.try_get_batch(32, &mut bits), 32);
    /// assert_eq!(map.try_get_batch(32, &mut bits), 16);
    /// bits.push(99);
    /// assert!(map.put_batch(&bits).is_err());
    /// assert_eq!(map.weight(), 0);
    /// ```
    pub fn try_get_batch(&self, n: usize, bits: &mut Vec<usize>) -> usize {
        let before = bits.len();
        let missing = |bits: &Vec<usize>| n - (bits.len() - before);
        while missing(bits) > 1 {
            let Some(range) = self.try_get_mask(missing(bits)) else {
                break;
            };
            bits.extend(range.iter());
        }
        while missing(bits) > 0 {
            let Some(bit) = self.try_get() else { break };
            bits.push(bit);
        }
        bits.len() - before
    }

    /// Takes up to `n` neighbouring bits of one word in one atomic step.
    ///
    /// At most [`bits_per_word`](Sbitmap::bits_per_word): a larger `n` is cut to it. The result may
    /// have holes at bits that were taken. Returns `None` if no word has room for such a range
    /// after its first free bit, although single bits may be free; in round-robin mode always
    /// `None`.
    #[must_use = "bits that are dropped are never given back"]
    #[inline]
    pub fn try_get_mask(&self, n: usize) -> Option<BitMask> {
        self.take_mask(n).some()
    }

    /// As `try_get_mask`, but an empty mask means none.
    #[inline(never)]
    pub(crate) fn take_mask(&self, n: usize) -> BitMask {
        if self.in_turn || n == 0 {
            return BitMask::EMPTY;
        }
        let layout = self.layout();
        let n = n.min(self.bits_per_word()) as u32;
        let slot = self.hints.of_this_cpu();
        let hint = slot.load(layout).within(layout);
        let (first, _) = layout.split(hint.0 as usize);
        for i in (first..layout.words()).chain(0..first) {
            let Some((offset, mut mask)) = self.words[i].take_range(n, layout.word_depth(i)) else {
                continue;
            };
            let first_bit = layout.bit(i, offset);
            let end = first_bit + n as usize;
            if end > self.depth.load(Ordering::Relaxed) {
                mask = self.put_above_depth(i, mask << offset) >> offset;
            }
            if mask == 0 {
                break; // The map has shrunk meanwhile, and no later word is left.
            }
            if i != first {
                slot.store(Hint::at(first_bit));
            }
            return BitMask {
                first: first_bit,
                mask,
            };
        }
        BitMask::EMPTY
    }

    /// Gives a bit back.
    ///
    /// # Errors
    ///
    /// [`PutError::NotAllocated`] if the bit is not in use. By default each double free is found
    /// that does not race with the other put; see [`checked`](SbitmapBuilder::checked) and
    /// [`trusted`](SbitmapBuilder::trusted). If another caller has got the bit in the meantime, the
    /// put gives back that caller's bit: a plain number has no owner.
    ///
    /// [`PutError::OutOfRange`] if the map has no such bit.
    #[inline]
    pub fn put(&self, bit: usize) -> Result<(), PutError> {
        // First: after the locked instruction of the put, the hint would be waited for.
        self.set_hint(bit);
        self.put_bit(bit)
    }

    #[inline]
    fn put_bit(&self, bit: usize) -> Result<(), PutError> {
        // Bits above the depth have positions too: they may still be in use.
        let (word, offset) = self.full.locate(bit)?;
        if self.words[word].put(offset, self.check) {
            Ok(())
        } else {
            Err(PutError::NotAllocated { bit })
        }
    }

    /// Marks whether a bit in use is kept for a waiter. Such a bit has no owner yet, so a put of it
    /// is an error.
    #[inline]
    pub(crate) fn set_granted(&self, bit: usize, granted: bool) {
        if self.check == Check::Trusted {
            return;
        }
        if let Ok((word, offset)) = self.full.locate(bit) {
            self.words[word].set_granted(offset, granted);
        }
    }

    /// Gives a bit back and points a hint of the caller's at it. The errors are those of
    /// [`put`](Sbitmap::put).
    ///
    /// For callers that keep a hint for each thread that allocates: the data of the bit is in its
    /// cache. The map's own hint does not move.
    ///
    /// ```
    /// use inflight_sbitmap::{Hint, Sbitmap};
    /// let map = Sbitmap::builder(8).build().unwrap();
    /// let mut hint = Hint::at(3);
    /// let bit = map.try_get_with(&mut hint).unwrap();
    /// map.put_with(bit, &mut hint).unwrap();
    /// assert_eq!(hint, Hint::at(bit));
    /// ```
    pub fn put_with(&self, bit: usize, hint: &mut Hint) -> Result<(), PutError> {
        self.put_bit(bit)?;
        if !self.in_turn && bit < self.depth() {
            *hint = Hint::at(bit);
        }
        Ok(())
    }

    /// Points the calling CPU's hint at a bit just put, unless the bit is above the depth.
    #[inline]
    fn set_hint(&self, bit: usize) {
        if !self.in_turn && bit < self.depth() {
            self.hints.of_this_cpu().store(Hint::at(bit));
        }
    }

    /// Gives several bits back, with one atomic step for each run of bits of the same word.
    ///
    /// Sorted bits make the longest runs; any order is legal.
    ///
    /// # Errors
    ///
    /// The errors of [`put`](Sbitmap::put), for one of `bits` that could not be given back. All
    /// others are given back.
    pub fn put_batch(&self, bits: &[usize]) -> Result<(), PutError> {
        self.put_runs(bits).1
    }

    /// As `put_batch`; also returns the number of bits that were put.
    pub(crate) fn put_runs(&self, bits: &[usize]) -> (usize, Result<(), PutError>) {
        let mut result = Ok(());
        let mut count = 0;
        let mut rest = bits.iter().copied().peekable();
        while let Some(bit) = rest.next() {
            let (word, offset) = match self.full.locate(bit) {
                Ok(place) => place,
                Err(e) => {
                    result = result.and(Err(e));
                    continue;
                }
            };
            let mut mask = 1_u64 << offset;
            // A bit that occurs twice ends the run, so that the second put is reported.
            while let Some(&next) = rest.peek() {
                match self.full.locate(next) {
                    Ok((w, o)) if w == word && mask >> o & 1 == 0 => mask |= 1 << o,
                    _ => break,
                }
                rest.next();
            }
            let (freed, put) = self.put_of_word(word, mask);
            count += freed;
            result = result.and(put);
        }
        if let Some(&last) = bits.last() {
            self.set_hint(last);
        }
        (count, result)
    }

    /// Gives the bits of a mask back in one atomic step.
    ///
    /// # Errors
    ///
    /// [`PutError::BeyondWord`] if the mask reaches beyond the word of its first bit (see
    /// [`bits_per_word`](Sbitmap::bits_per_word)), [`PutError::OutOfRange`] if it reaches beyond
    /// `max_depth`: nothing is given back.
    /// [`PutError::NotAllocated`] if some of the bits are not in use: the others are given back.
    ///
    /// ```
    /// let map = inflight_sbitmap::Sbitmap::builder(64).build().unwrap();
    /// let range = map.try_get_mask(3).unwrap();
    /// map.put_mask(range).unwrap();
    /// assert!(map.put_mask(range).is_err());
    /// ```
    pub fn put_mask(&self, bits: BitMask) -> Result<(), PutError> {
        self.put_mask_counted(bits).1
    }

    pub(crate) fn put_mask_counted(&self, bits: BitMask) -> (usize, Result<(), PutError>) {
        let (word, offset) = match bits.locate(self.full) {
            Ok(place) => place,
            Err(e) => return (0, Err(e)),
        };
        self.set_hint(bits.first);
        self.put_of_word(word, bits.mask << offset)
    }

    /// Returns the number of bits of a word that were put, and the error of the first that was not.
    fn put_of_word(&self, word: usize, mask: u64) -> (usize, Result<(), PutError>) {
        let held = self.words[word].put_mask(mask, self.check);
        let result = match offsets(mask & !held).next() {
            None => Ok(()),
            Some(offset) => Err(PutError::NotAllocated {
                bit: self.full.bit(word, offset),
            }),
        };
        (held.count_ones() as usize, result)
    }
}
