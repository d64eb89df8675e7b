//! The shared words: the ids that are free and in no stack, and how many ids have ever been put.
//!
//! ```text
//! ids put 32 | free mask 32
//! ```
//!
//! Gets only clear bits of the mask; puts set bits **and** add to the count. So if a word shows the
//! same count twice and no bit, nothing was put into it in between. In a large map a summary shows
//! which words may have free ids.

use super::summary::{self, Summary};
use crate::layout::{Layout, low_mask};
use crate::shallow_depth::Shallow;
use inflight_sync::asym::fence_after_rmw;
use inflight_sync::atomic::{AtomicU64, Ordering};
use inflight_sync::{CachePadded, prefetch_to_write};

/// The count takes the upper half.
pub(super) const SHIFT_MAX: u32 = 5;
const COUNT: u32 = 32;

const fn mask_of(word: u64) -> u64 {
    word & low_mask(COUNT)
}

/// Which ids a getter may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct WordDepths {
    layout: Layout,
    shallow: Option<Shallow>,
    /// How many of the first words are open completely.
    whole: usize,
}

impl WordDepths {
    /// Ids below the depth.
    pub(super) const fn all(layout: Layout) -> Self {
        Self {
            layout,
            shallow: None,
            whole: layout.depth >> layout.shift,
        }
    }

    /// The ids open to users that may hold `limit` ids.
    pub(super) const fn shallow(layout: Layout, limit: usize) -> Self {
        Self {
            layout,
            shallow: Some(layout.shallow(limit)),
            whole: 0,
        }
    }

    /// The number of summary words that cover words in reach. The last may cover others too.
    const fn groups(&self) -> usize {
        self.layout.words().div_ceil(summary::WORDS)
    }

    #[inline]
    pub(super) fn mask(&self, i: usize) -> u64 {
        if i < self.whole {
            return low_mask(COUNT);
        }
        low_mask(match self.shallow {
            None => self.layout.word_depth(i),
            Some(shallow) => shallow.word_depth(i),
        })
    }
}

/// Ids of one word.
#[derive(Clone, Copy, Debug)]
pub(super) struct WordMask {
    pub(super) word: usize,
    pub(super) mask: u64,
}

/// How many words, and groups, are read one by one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SummaryThresholds {
    pub(crate) words: usize,
    pub(crate) groups: usize,
}

/// What a pass found that took nothing. If two are equal, every word was empty in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    /// No bit of the highest summary was set, and nothing else was read.
    no_bit: bool,
    /// How many ids were ever put into the words read, and how often a summary bit was set.
    counts: u64,
    /// The summary bits. With equal counts, bits can only have been cleared.
    summary: u64,
}

impl Scan {
    #[inline]
    fn add(&mut self, count: u64) {
        self.counts = self.counts.wrapping_add(count);
    }
}

#[derive(Debug)]
pub(super) struct Words {
    words: Box<[CachePadded<AtomicU64>]>,
    summary: Summary,
    /// Which words of `summary` may have bits. Empty if there are few of them.
    top_summary: Summary,
}

impl Words {
    /// All ids of `layout` are free. If there are more than `thresholds.words` words, they have a
    /// summary; if that has more than `thresholds.groups` words, it has one too.
    pub(super) fn new(layout: Layout, thresholds: SummaryThresholds) -> Self {
        let full = |i| CachePadded::new(AtomicU64::new(low_mask(layout.word_depth(i))));
        let words = layout.words();
        let summarised = if words > thresholds.words { words } else { 0 };
        let groups = summarised.div_ceil(summary::WORDS);
        Self {
            words: (0..words).map(full).collect(),
            summary: Summary::new(summarised),
            top_summary: Summary::new(if groups > thresholds.groups {
                groups
            } else {
                0
            }),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    /// Takes up to `n` ids, all of the first word from `from` on that has any.
    ///
    /// The error is what was seen, if every word was empty (A1).
    pub(super) fn take(&self, depths: &WordDepths, from: usize, n: u32) -> Result<WordMask, Scan> {
        let words = depths.layout.words();
        let from = if from < words { from } else { 0 };
        if !self.summary.is_empty() {
            return self.take_by_summary(depths, from, n);
        }
        let mut scan = Scan::default();
        for range in [from..words, 0..from] {
            for word in range {
                match self.take_from(word, depths.mask(word), n) {
                    Ok(mask) => return Ok(WordMask { word, mask }),
                    Err(now) => scan.add(now >> COUNT),
                }
            }
        }
        Err(scan)
    }

    fn take_by_summary(&self, depths: &WordDepths, from: usize, n: u32) -> Result<WordMask, Scan> {
        if let Some(scan) = self.no_summary_bit() {
            return Err(scan);
        }
        // The word that the last ids came from mostly has more.
        if let Ok(mask) = self.take_from(from, depths.mask(from), n) {
            return Ok(WordMask { word: from, mask });
        }
        let (first, groups) = (from / summary::WORDS, depths.groups());
        let mut scan = Scan::default();
        for range in [first..groups, 0..first] {
            for group in range {
                let mut rest = self.read_summary(group, &mut scan);
                while rest != 0 {
                    let word = group * summary::WORDS + rest.trailing_zeros() as usize;
                    rest &= rest - 1;
                    match self.take_from(word, depths.mask(word), n) {
                        Ok(mask) => return Ok(WordMask { word, mask }),
                        Err(now) => {
                            scan.add(now >> COUNT);
                            if mask_of(now) == 0 {
                                self.clear_summary_bit(word);
                            }
                        }
                    }
                }
                self.clear_top_bit(group);
            }
        }
        Err(scan)
    }

    /// A1 and A2 if the highest summary has no bit: one read for 16 words, or for 16 groups.
    #[inline]
    fn no_summary_bit(&self) -> Option<Scan> {
        let highest = match &self.top_summary {
            none if none.is_empty() => &self.summary,
            top => top,
        };
        if highest.is_empty() {
            return None;
        }
        let mut scan = Scan {
            no_bit: true,
            ..Scan::default()
        };
        for i in 0..highest.groups() {
            let seen = highest.read(i);
            if seen.words() != 0 {
                return None;
            }
            scan.add(seen.count());
        }
        Some(scan)
    }

    /// Relaxed: a guess; `get_slow` checks properly.
    #[inline]
    pub(super) fn may_have_ids(&self, word: usize) -> bool {
        let word = self.words.get(word);
        word.is_some_and(|word| mask_of(word.load(Ordering::Relaxed)) != 0)
    }

    /// The first word from `from` on that has ids, as far as is known. `None`, after A1 and A2:
    /// every word is empty, including those above the depth, whose ids count as free here.
    #[inline]
    pub(super) fn first_with_ids(&self, from: usize) -> Option<usize> {
        if self.summary.is_empty() {
            return match self.counts_if_empty(from) {
                Err(word) => Some(word),
                counts => (self.counts_if_empty(from) != counts).then_some(from),
            };
        }
        let scan = self.no_summary_bit();
        (scan.is_none() || self.no_summary_bit() != scan).then_some(from)
    }

    /// The sum of the counts of all words, or the first word from `from` on that has an id.
    #[inline]
    fn counts_if_empty(&self, from: usize) -> Result<u64, usize> {
        let (before, begin) = self.words.split_at(from.min(self.words.len()));
        let mut counts = 0_u64;
        for (words, first) in [(begin, from), (before, 0)] {
            for (i, word) in words.iter().enumerate() {
                // Ordering: as in `is_empty`.
                let now = word.load(Ordering::Acquire);
                if mask_of(now) != 0 {
                    return Err(first + i);
                }
                counts = counts.wrapping_add(now >> COUNT);
            }
        }
        Ok(counts)
    }

    /// `group` may have no bit: later getters need not read it.
    fn clear_top_bit(&self, group: usize) {
        if self.top_summary.is_empty() || self.summary.read(group).words() != 0 {
            return;
        }
        let is_without = || self.summary.read(group).words() == 0;
        self.top_summary.clear_if(group, is_without);
    }

    /// The words of a group that may have ids.
    #[inline]
    fn read_summary(&self, group: usize, scan: &mut Scan) -> u64 {
        let seen = self.summary.read(group);
        scan.add(seen.count());
        scan.summary = scan.summary.wrapping_add(seen.states());
        seen.words()
    }

    /// `word` was seen empty: later getters need not read it.
    fn clear_summary_bit(&self, word: usize) {
        // Ordering: X3, Acquire pairs with the Release of the getter that emptied the word.
        let is_empty = || mask_of(self.words[word].load(Ordering::Acquire)) == 0;
        self.summary.clear_if(word, is_empty);
    }

    #[inline]
    fn take_from(&self, i: usize, depths: u64, n: u32) -> Result<u64, u64> {
        let word = &self.words[i];
        // Ordering: A1, Acquire pairs with the Release in `put`. It also keeps the second pass
        // after this one.
        let mut now = word.load(Ordering::Acquire);
        loop {
            let wanted = lowest(mask_of(now) & depths, n);
            if wanted == 0 {
                return Err(now);
            }
            // Ordering: Acquire pairs with the Release in `put`: the last owner's writes are seen.
            // Release, because a thread that then finds the bit gone must know of everything before
            // this get: an id put elsewhere in the meantime must not be missed.
            let old = word.fetch_and(!wanted, Ordering::AcqRel);
            let taken = old & wanted;
            if taken != 0 {
                return Ok(taken);
            }
            now = old;
        }
    }

    /// A2. Whether the words are as a pass of `take` left them: empty, and nothing put since.
    pub(super) fn are_still_empty(&self, depths: &WordDepths, before: Scan) -> bool {
        if before.no_bit {
            return self.no_summary_bit() == Some(before);
        }
        let mut scan = Scan::default();
        if self.summary.is_empty() {
            let mut words = 0..depths.layout.words();
            return words.all(|word| self.is_empty(word, depths, &mut scan)) && scan == before;
        }
        for group in 0..depths.groups() {
            let mut rest = self.read_summary(group, &mut scan);
            while rest != 0 {
                let word = group * summary::WORDS + rest.trailing_zeros() as usize;
                rest &= rest - 1;
                if !self.is_empty(word, depths, &mut scan) {
                    return false;
                }
            }
        }
        scan == before
    }

    #[inline]
    fn is_empty(&self, word: usize, depths: &WordDepths, scan: &mut Scan) -> bool {
        // Ordering: Acquire pairs with the Release in `put`; and it keeps the read of the mode word
        // (A3) after it.
        let now = self.words[word].load(Ordering::Acquire);
        scan.add(now >> COUNT);
        mask_of(now) & depths.mask(word) == 0
    }

    /// P1, P2 and PM. Puts ids that the caller has; all of one word.
    ///
    /// Returns the ids of the mask that were free already (put twice), and whether the word's count
    /// has passed a multiple of 32.
    pub(super) fn put(&self, ids: WordMask) -> WordPut {
        let word = &self.words[ids.word];
        prefetch_to_write(&**word); // fetches the line once, not for the read and the write
        // Relaxed: the exchange checks the value.
        let mut now = word.load(Ordering::Relaxed);
        loop {
            let twice = now & ids.mask;
            let added = u64::from((ids.mask & !twice).count_ones());
            // Not one addition: a bit that is set already would carry into its neighbour.
            let new = (now | ids.mask).wrapping_add(added << COUNT);
            // Ordering: Release pairs with the Acquire of the next get. Acquire as in `take_from`:
            // the chain of changes of a word carries everything before each.
            match word.compare_exchange_weak(now, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    // Ordering: P2, pairs with R2 of a thread that registers as a waiter, and with
                    // X2 in `clear_summary_bit`.
                    fence_after_rmw();
                    self.summary.set(ids.word);
                    if !self.top_summary.is_empty() {
                        // Ordering: PT, pairs with X2 in `clear_top_bit`. Where it is no
                        // instruction (x86-64), loads are not reordered, and a bit that was read is
                        // visible to all.
                        fence_after_rmw();
                        self.top_summary.set(ids.word / summary::WORDS);
                    }
                    let ticked = (now >> COUNT) % 32 + added >= 32;
                    return WordPut { twice, ticked };
                }
                Err(other) => now = other,
            }
        }
    }

    /// The free ids of a word. A snapshot.
    pub(super) fn free(&self, i: usize) -> u64 {
        // Ordering: Acquire pairs with the Release in `put`: a free id shows its last owner's
        // writes.
        mask_of(self.words[i].load(Ordering::Acquire))
    }
}

/// The result of `put`.
#[derive(Clone, Copy, Debug)]
pub(super) struct WordPut {
    pub(super) twice: u64,
    pub(super) ticked: bool,
}

/// The lowest `n` bits of those set.
#[inline]
pub(super) fn lowest(mask: u64, n: u32) -> u64 {
    if n == 1 {
        return mask & mask.wrapping_neg();
    }
    // The first `n` usable places have `n` bits, or all that there are: the common cases.
    let places = low_mask(n) << mask.trailing_zeros().min(COUNT);
    let within = mask & places;
    if within == places || within == mask {
        return within;
    }
    lowest_of_many(mask, n)
}

#[inline(never)]
fn lowest_of_many(mask: u64, n: u32) -> u64 {
    let rest = (0..n).fold(mask, |rest, _| rest & rest.wrapping_sub(1));
    mask ^ rest
}
