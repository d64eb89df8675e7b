//! The bitmap: words, hints, and the search over them.

use crate::builder::SbitmapBuilder;
use crate::error::PutError;
use crate::hint::{Hint, Hints};
use crate::layout::{Layout, low_mask};
use crate::snapshot::Snapshot;
use crate::word::{Check, Search, Word, offsets};

/// A scalable bitmap: hands out the numbers `0..depth`, each to one owner at a time.
///
/// No operation sleeps for a bit or allocates; a getter that finds a word full moves freed bits
/// back under that word's lock, for a few instructions. What the owner of a bit wrote before
/// [`put`](Sbitmap::put) is visible to the next owner after [`try_get`](Sbitmap::try_get), so a bit
/// may index data that has no lock of its own.
///
/// # Fairness
///
/// None: whoever searches when a bit is free gets it. [`SbitmapQueue`](crate::SbitmapQueue) adds
/// waiting.
///
/// ```
/// use inflight_sbitmap::Sbitmap;
/// let map = Sbitmap::builder(256).build().unwrap();
/// let bit = map.try_get().unwrap();
/// assert!(bit < 256);
/// map.put(bit).unwrap();
/// ```
#[derive(Debug)]
pub struct Sbitmap {
    layout: Layout,
    in_turn: bool,
    check: Check,
    hints: Hints,
    words: Box<[Word]>,
}

/// Bits of one word, taken in one atomic step: `first + i` for each set bit `i` of `mask`.
///
/// ```
/// use inflight_sbitmap::{BitMask, Sbitmap};
/// let map = Sbitmap::builder(64).build().unwrap();
/// let got: BitMask = map.try_get_mask(4).unwrap();
/// assert_eq!(got.mask, 0b1111);
/// assert_eq!(got.iter().count(), 4);
/// map.put_mask(got).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitMask {
    /// The lowest bit of the mask.
    pub first: usize,
    /// Which bits from `first` on; bit 0 is always set in what
    /// [`try_get_mask`](Sbitmap::try_get_mask) returns.
    pub mask: u64,
}

impl BitMask {
    /// The bits, lowest first.
    ///
    /// ```
    /// let bits = inflight_sbitmap::BitMask { first: 8, mask: 0b101 };
    /// assert_eq!(bits.iter().collect::<Vec<_>>(), [8, 10]);
    /// ```
    pub fn iter(self) -> impl Iterator<Item = usize> {
        offsets(self.mask).map(move |offset| self.first.wrapping_add(offset as usize))
    }

    /// How many bits.
    ///
    /// ```
    /// assert_eq!(inflight_sbitmap::BitMask { first: 8, mask: 0b101 }.count(), 2);
    /// ```
    #[must_use]
    pub const fn count(self) -> usize {
        self.mask.count_ones() as usize
    }
}

impl Sbitmap {
    /// A bitmap of `depth` bits, all free. A depth of 0 is legal: nothing can be had from it.
    ///
    /// ```
    /// use inflight_sbitmap::Sbitmap;
    /// let map = Sbitmap::builder(1024).shift(5).round_robin(true).build().unwrap();
    /// assert_eq!(map.bits_per_word(), 32);
    /// ```
    pub fn builder(depth: usize) -> SbitmapBuilder {
        SbitmapBuilder::new(depth)
    }

    pub(crate) fn new(layout: Layout, in_turn: bool, check: Check) -> Self {
        Self {
            layout,
            in_turn,
            check,
            hints: Hints::new(layout, in_turn),
            words: (0..layout.words())
                .map(|i| Word::new(layout.word_depth(i) as usize, check))
                .collect(),
        }
    }

    /// How many bits there are.
    ///
    /// ```
    /// assert_eq!(inflight_sbitmap::Sbitmap::builder(10).build().unwrap().depth(), 10);
    /// ```
    #[must_use]
    pub const fn depth(&self) -> usize {
        self.layout.depth
    }

    /// How many bits each word is used for.
    ///
    /// Fewer than 64 in a small map, so that it spreads over at least four words.
    ///
    /// ```
    /// assert_eq!(inflight_sbitmap::Sbitmap::builder(64).build().unwrap().bits_per_word(), 16);
    /// ```
    #[must_use]
    pub const fn bits_per_word(&self) -> usize {
        self.layout.bits_per_word()
    }

    /// Takes a bit, beginning at the calling CPU's hint. `None` when all are taken.
    ///
    /// In round-robin mode each CPU hands bits out in turn.
    ///
    /// ```
    /// let map = inflight_sbitmap::Sbitmap::builder(1).build().unwrap();
    /// assert_eq!(map.try_get(), Some(0));
    /// assert_eq!(map.try_get(), None);
    /// ```
    #[must_use = "a bit that is dropped is never given back"]
    pub fn try_get(&self) -> Option<usize> {
        let stored = self.hints.load();
        let mut hint = stored;
        let bit = self.try_get_with(&mut hint);
        self.hints.store(stored, hint);
        bit
    }

    /// Takes a bit, beginning at a hint of the caller's, which is moved on.
    ///
    /// ```
    /// use inflight_sbitmap::{Hint, Sbitmap};
    /// let map = Sbitmap::builder(8).build().unwrap();
    /// assert_eq!(map.try_get_with(&mut Hint::at(6)), Some(6));
    /// ```
    #[must_use = "a bit that is dropped is never given back"]
    pub fn try_get_with(&self, hint: &mut Hint) -> Option<usize> {
        let start = hint.within(self.layout);
        let found = self.search(start, |word, from| Search {
            depth: self.layout.word_depth(word),
            // Scanning within a word is one instruction, so only a turn-taking map minds where.
            from: if self.in_turn { from } else { 0 },
            wrap: !self.in_turn,
        });
        *hint = start.after(found, self.layout, self.in_turn);
        found
    }

    /// Takes a bit if fewer than `limit` of those open to this limit are taken.
    ///
    /// Users who only come this way hold at most `limit` bits of the whole map together; the rest
    /// stays free for others. The limit is spread over the words in proportion, exactly. This
    /// is blk-mq's shallow depth.
    ///
    /// ```
    /// let map = inflight_sbitmap::Sbitmap::builder(64).build().unwrap();
    /// let background = std::iter::from_fn(|| map.try_get_shallow(10)).count();
    /// assert_eq!(background, 10);
    /// assert!(map.try_get().is_some());
    /// ```
    #[must_use = "a bit that is dropped is never given back"]
    pub fn try_get_shallow(&self, limit: usize) -> Option<usize> {
        let stored = self.hints.load();
        let start = stored.within(self.layout);
        let found = self.search(start, |word, from| Search {
            depth: self.layout.shallow_depth(word, limit),
            from,
            wrap: true,
        });
        self.hints
            .store(stored, start.after(found, self.layout, self.in_turn));
        found
    }

    /// Visits every word once, from the hint's on.
    ///
    /// If the first word's search does not wrap, the bits before its start come last. Without that
    /// "none" would not be exact, and a waiter could miss a bit in its second look.
    fn search(&self, start: Hint, search: impl Fn(usize, u32) -> Search) -> Option<usize> {
        let (first, offset) = self.layout.split(start.0 as usize);
        let visit = |i: usize, search: Search| {
            let offset = self.words[i].try_get(search)?;
            Some(self.layout.bit(i, offset))
        };
        for i in (first..self.words.len()).chain(0..first) {
            let found = visit(i, search(i, if i == first { offset } else { 0 }));
            if found.is_some() {
                return found;
            }
        }
        let begun = search(first, offset);
        if begun.wrap || begun.from == 0 {
            return None;
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

    /// Takes up to `n` bits, pushes them to `bits` and returns how many.
    ///
    /// Takes ranges of whole words where it can, single bits after that. Fewer than `n` means that
    /// no more were free.
    ///
    /// ```
    /// let map = inflight_sbitmap::Sbitmap::builder(48).build().unwrap();
    /// let mut bits = Vec::new();
    /// assert_eq!(map.try_get_batch(32, &mut bits), 32);
    /// assert_eq!(map.try_get_batch(32, &mut bits), 16);
    /// map.put_batch(&bits).unwrap();
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
    /// At most [`bits_per_word`](Sbitmap::bits_per_word) (a larger `n` is cut to it). What is
    /// returned may have holes where bits were taken. `None` if no word has room for such a
    /// range after its first free bit, although single bits may be free; in round-robin mode
    /// always `None`.
    ///
    /// ```
    /// let map = inflight_sbitmap::Sbitmap::builder(64).build().unwrap();
    /// let range = map.try_get_mask(8).unwrap();
    /// assert_eq!(range.count(), 8);
    /// map.put_mask(range).unwrap();
    /// ```
    #[must_use = "bits that are dropped are never given back"]
    pub fn try_get_mask(&self, n: usize) -> Option<BitMask> {
        if self.in_turn || n == 0 {
            return None;
        }
        let n = u32::try_from(n.min(self.bits_per_word())).expect("at most 64");
        let (first, _) = self
            .layout
            .split(self.hints.load().within(self.layout).0 as usize);
        for i in (first..self.words.len()).chain(0..first) {
            if let Some((offset, mask)) = self.words[i].take_range(n, self.layout.word_depth(i)) {
                return Some(BitMask {
                    first: self.layout.bit(i, offset),
                    mask,
                });
            }
        }
        None
    }

    /// Gives a bit back.
    ///
    /// # Errors
    ///
    /// [`PutError::NotAllocated`] if nobody holds the bit. By default every double free is caught
    /// that does not race with the other put; see [`checked`](SbitmapBuilder::checked) and
    /// [`trusted`](SbitmapBuilder::trusted). A bit that somebody else has got in the meantime is
    /// that somebody's: a plain number cannot tell.
    ///
    /// [`PutError::OutOfRange`] if the map has no such bit.
    ///
    /// ```
    /// let map = inflight_sbitmap::Sbitmap::builder(8).build().unwrap();
    /// let bit = map.try_get().unwrap();
    /// assert!(map.put(bit).is_ok());
    /// assert!(map.put(bit).is_err());
    /// ```
    pub fn put(&self, bit: usize) -> Result<(), PutError> {
        let (word, offset) = self.locate(bit)?;
        self.words[word].put(offset, self.check)?;
        if !self.in_turn {
            self.hints.point_at(bit);
        }
        Ok(())
    }

    /// Gives several bits back, one atomic step for each run of bits of the same word.
    ///
    /// Sorted bits make the longest runs; any order is legal.
    ///
    /// # Errors
    ///
    /// As [`put`](Sbitmap::put), for the first bit that could not be given back. All others are.
    ///
    /// ```
    /// let map = inflight_sbitmap::Sbitmap::builder(8).build().unwrap();
    /// let mut bits = Vec::new();
    /// map.try_get_batch(8, &mut bits);
    /// bits.push(99);
    /// assert!(map.put_batch(&bits).is_err());
    /// assert_eq!(map.weight(), 0);
    /// ```
    pub fn put_batch(&self, bits: &[usize]) -> Result<(), PutError> {
        self.put_runs(bits).1
    }

    /// Also returns how many bits were given back.
    pub(crate) fn put_runs(&self, bits: &[usize]) -> (usize, Result<(), PutError>) {
        let mut result = Ok(());
        let mut count = 0;
        let mut rest = bits.iter().copied().peekable();
        while let Some(bit) = rest.next() {
            let (word, offset) = match self.locate(bit) {
                Ok(place) => place,
                Err(e) => {
                    result = result.and(Err(e));
                    continue;
                }
            };
            let mut mask = 1_u64 << offset;
            // A bit given twice in one run ends the run, so that the second is reported.
            while let Some(&next) = rest.peek() {
                match self.locate(next) {
                    Ok((w, o)) if w == word && mask >> o & 1 == 0 => mask |= 1 << o,
                    _ => break,
                }
                rest.next();
            }
            let before = mask.count_ones() as usize;
            match self.words[word].put_mask(mask, self.check) {
                Ok(()) => count += before,
                Err((freed, e)) => {
                    count += freed;
                    result = result.and(Err(e));
                }
            }
        }
        if let (Some(&last), false) = (bits.last(), self.in_turn) {
            self.hints.point_at(last);
        }
        (count, result)
    }

    /// Gives the bits of a mask back in one atomic step.
    ///
    /// # Errors
    ///
    /// [`PutError::OutOfRange`] if the mask is not inside one word of the map: nothing is given
    /// back. [`PutError::NotAllocated`] if nobody holds some of the bits: the others are given
    /// back.
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
        let (word, offset) = match self.locate(bits.first) {
            Ok(place) => place,
            Err(e) => return (0, Err(e)),
        };
        let room = low_mask(self.layout.word_depth(word) - offset);
        if bits.mask & !room != 0 {
            return (0, Err(PutError::OutOfRange));
        }
        match self.words[word].put_mask(bits.mask << offset, self.check) {
            Ok(()) => (bits.count(), Ok(())),
            Err((freed, e)) => (freed, Err(e)),
        }
    }

    fn locate(&self, bit: usize) -> Result<(usize, u32), PutError> {
        if bit < self.layout.depth {
            Ok(self.layout.split(bit))
        } else {
            Err(PutError::OutOfRange)
        }
    }

    /// How many bits are in use. A snapshot; exact when nobody gets or puts.
    ///
    /// ```
    /// let map = inflight_sbitmap::Sbitmap::builder(8).build().unwrap();
    /// let _bit = map.try_get();
    /// assert_eq!(map.weight(), 1);
    /// ```
    #[must_use]
    pub fn weight(&self) -> usize {
        self.in_use()
            .map(|(_, mask)| mask.count_ones() as usize)
            .sum()
    }

    /// Whether a bit is in use.
    ///
    /// `false` means that each bit was free at some moment of the call, and that what its last
    /// owner wrote before giving it back is visible. After a `fence(SeqCst)` that follows the
    /// closing of a gate which getters look at after a fence of their own, `false` means that
    /// nobody is inside.
    ///
    /// ```
    /// let map = inflight_sbitmap::Sbitmap::builder(8).build().unwrap();
    /// assert!(!map.is_any_set());
    /// ```
    #[must_use]
    pub fn is_any_set(&self) -> bool {
        self.in_use().any(|(_, mask)| mask != 0)
    }

    /// Whether this bit is in use; `false` for a bit the map does not have.
    ///
    /// ```
    /// let map = inflight_sbitmap::Sbitmap::builder(8).build().unwrap();
    /// let bit = map.try_get().unwrap();
    /// assert!(map.is_set(bit));
    /// ```
    #[must_use]
    pub fn is_set(&self, bit: usize) -> bool {
        self.locate(bit).is_ok_and(|(word, offset)| {
            self.words[word].in_use(self.layout.word_depth(word)) >> offset & 1 == 1
        })
    }

    /// Calls `f` for each bit in use, from `start` on and once around, until it returns `false`.
    ///
    /// Gets and puts that happen meanwhile may or may not be seen. A `start` beyond the map is 0.
    ///
    /// ```
    /// let map = inflight_sbitmap::Sbitmap::builder(8).build().unwrap();
    /// let bit = map.try_get().unwrap();
    /// let mut seen = Vec::new();
    /// map.for_each_set(0, |bit| {
    ///     seen.push(bit);
    ///     true
    /// });
    /// assert_eq!(seen, [bit]);
    /// ```
    pub fn for_each_set(&self, start: usize, mut f: impl FnMut(usize) -> bool) {
        let start = Hint::at(start).within(self.layout).0 as usize;
        let (first, offset) = self.layout.split(start);
        let visit = |i: usize, among: u64| {
            let word = self.words[i].in_use(self.layout.word_depth(i)) & among;
            (i, word)
        };
        let below = low_mask(offset);
        let words = (first..self.words.len())
            .map(|i| visit(i, if i == first { !below } else { u64::MAX }))
            .chain((0..first).map(|i| visit(i, u64::MAX)))
            // The part of the first word before `start` comes last.
            .chain((first..self.words.len()).take(1).map(|i| visit(i, below)));
        for (i, mask) in words {
            for offset in offsets(mask) {
                if !f(self.layout.bit(i, offset)) {
                    return;
                }
            }
        }
    }

    fn in_use(&self) -> impl Iterator<Item = (usize, u64)> {
        self.words
            .iter()
            .enumerate()
            .map(|(i, word)| (i, word.in_use(self.layout.word_depth(i))))
    }

    /// The state of the map, for people: `{}` and `{:#?}` print it.
    ///
    /// ```
    /// let map = inflight_sbitmap::Sbitmap::builder(8).build().unwrap();
    /// assert_eq!(map.snapshot().busy, 0);
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let words: Vec<u64> = self.in_use().map(|(_, mask)| mask).collect();
        Snapshot {
            depth: self.depth(),
            busy: words.iter().map(|w| w.count_ones() as usize).sum(),
            cleared: self.words.iter().map(|w| w.parked() as usize).sum(),
            bits_per_word: self.bits_per_word(),
            words,
            round_robin: self.in_turn,
            alloc_hint: self.hints.all(),
        }
    }
}
