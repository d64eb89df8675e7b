//! Operations on a bitmap, run against an oracle that is nothing but a set of numbers.
//!
//! One interpreter for the property tests and for the fuzz target, which includes this file by
//! path.

use inflight_sbitmap::{BitMask, Hint, PutError, ResizeError, Sbitmap};
use inflight_sync::cpu;
use std::collections::{BTreeMap, BTreeSet};

/// How the map is built.
#[derive(Clone, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) struct MapShape {
    /// Taken modulo [`MapShape::MAX_DEPTH`] + 1.
    pub(crate) depth: u16,
    /// How far the map may grow beyond `depth`; taken modulo [`MapShape::MAX_DEPTH`] + 1.
    pub(crate) growth: u16,
    /// Taken modulo 7; `None` is the map's own choice.
    pub(crate) shift: Option<u8>,
    pub(crate) round_robin: bool,
    pub(crate) check: Check,
}

/// How puts are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) enum Check {
    Default,
    Checked,
    Trusted,
}

/// A bit to be put, good or bad.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) enum Pick {
    /// One of those held, by position.
    Held(u16),
    /// Any number up to a little above the depth.
    Near(u16),
    /// Any number.
    Any(u64),
}

/// One call.
#[derive(Clone, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) enum Op {
    /// The thread goes on as if on this CPU.
    MoveTo(u8),
    Get,
    /// With a hint of the caller's, kept from call to call; set anew if given.
    GetWith(Option<u16>),
    Shallow(u16),
    Batch(u16),
    Mask(u8),
    Put(Pick),
    PutBatch(Vec<Pick>),
    PutMask(Pick, u64),
    /// To another depth, also an impossible one.
    Resize(u16),
    /// The bits in use from a start on, stopping after some.
    Visit(u16, u16),
    Snapshot,
}

/// Runs the operations on a new map, then gives everything back and counts what can be had.
pub(crate) fn run(geometry: &MapShape, ops: &[Op]) {
    let mut run = Run::new(geometry);
    for op in ops {
        run.step(op);
        assert_eq!(run.map.weight(), run.held.len(), "after {op:?}");
        assert_eq!(run.map.is_any_set(), !run.held.is_empty(), "after {op:?}");
    }
    run.finish();
    cpu::set_current_for_thread(None);
}

struct Run {
    map: Sbitmap,
    depth: usize,
    max_depth: usize,
    round_robin: bool,
    trusted: bool,
    hint: Hint,
    held: BTreeSet<usize>,
    /// For each limit, the bits that users of this limit hold.
    shallow: BTreeMap<usize, BTreeSet<usize>>,
}

impl MapShape {
    pub(crate) const MAX_DEPTH: usize = 300;
}

impl Run {
    fn new(geometry: &MapShape) -> Self {
        cpu::set_current_for_thread(Some(0));
        let depth = 1 + usize::from(geometry.depth).saturating_sub(1) % MapShape::MAX_DEPTH;
        let max_depth = depth + usize::from(geometry.growth) % (MapShape::MAX_DEPTH + 1);
        let builder = Sbitmap::builder(depth)
            .max_depth(max_depth)
            .round_robin(geometry.round_robin)
            .checked(geometry.check == Check::Checked);
        let builder = match geometry.check {
            Check::Trusted => builder.trusted(true),
            Check::Default | Check::Checked => builder,
        };
        let builder = match geometry.shift {
            Some(shift) => builder.shift(u32::from(shift % 7)),
            None => builder,
        };
        let map = builder.build().unwrap();
        assert_eq!((map.depth(), map.max_depth()), (depth, max_depth));
        Self {
            map,
            depth,
            max_depth,
            round_robin: geometry.round_robin,
            trusted: geometry.check == Check::Trusted,
            hint: Hint::at(0),
            held: BTreeSet::new(),
            shallow: BTreeMap::new(),
        }
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::MoveTo(to) => cpu::set_current_for_thread(Some(to.into())),
            Op::Get => self.get(),
            Op::GetWith(start) => self.get_with(start),
            Op::Shallow(limit) => self.get_shallow(usize::from(limit)),
            Op::Batch(n) => self.get_batch(usize::from(n)),
            Op::Mask(n) => self.get_mask(usize::from(n)),
            Op::Put(pick) => self.put(pick),
            Op::PutBatch(ref picks) => self.put_batch(picks),
            Op::PutMask(pick, mask) => self.put_mask(pick, mask),
            Op::Resize(depth) => self.resize(depth.into()),
            Op::Visit(start, stop) => self.visit(start.into(), stop.into()),
            Op::Snapshot => self.look(),
        }
    }

    fn take(&mut self, bit: usize) {
        assert!(bit < self.depth, "bit {bit} of {}", self.depth);
        assert!(self.held.insert(bit), "bit {bit} has two owners");
        assert!(self.map.is_set(bit));
    }

    fn release(&mut self, bit: usize) {
        assert!(self.held.remove(&bit));
        self.shallow.values_mut().for_each(|held| {
            held.remove(&bit);
        });
    }

    /// How many bits below the depth are free.
    fn free(&self) -> usize {
        self.depth - self.held.range(..self.depth).count()
    }

    /// What is held stays held; what is above the depth is not handed out.
    fn resize(&mut self, depth: usize) {
        let most = self.max_depth;
        let expected = match depth {
            0 => Err(ResizeError::Depth { depth, most }),
            _ if depth > most => Err(ResizeError::Depth { depth, most }),
            _ => Ok(()),
        };
        assert_eq!(self.map.resize(depth), expected, "resize({depth})");
        if expected.is_ok() {
            self.depth = depth;
            // Limits are shares of the depth, so those of another depth count no more.
            self.shallow.clear();
        }
        assert_eq!(self.map.depth(), self.depth);
    }

    /// `None` is exact.
    fn took(&mut self, got: Option<usize>) {
        match got {
            Some(bit) => self.take(bit),
            None => assert_eq!(self.free(), 0, "none although bits are free"),
        }
    }

    fn get(&mut self) {
        let got = self.map.try_get();
        self.took(got);
    }

    fn get_with(&mut self, start: Option<u16>) {
        if let Some(bit) = start {
            self.hint = Hint::at(bit.into());
        }
        let got = self.map.try_get_with(&mut self.hint);
        self.took(got);
    }

    fn get_shallow(&mut self, limit: usize) {
        let open = self.open_to(limit);
        match self.map.try_get_shallow(limit) {
            Some(bit) => {
                assert!(
                    open.contains(&bit),
                    "bit {bit} is not open to limit {limit}"
                );
                self.take(bit);
                let held = self.shallow.entry(limit).or_default();
                held.insert(bit);
                assert!(held.len() <= limit);
            }
            None => assert!(
                open.is_subset(&self.held),
                "none although open bits are free"
            ),
        }
    }

    /// The bits open to a limit: each word's share rounded down, the rest one each to the first
    /// words.
    fn open_to(&self, limit: usize) -> BTreeSet<usize> {
        if limit >= self.depth {
            return (0..self.depth).collect();
        }
        let words: Vec<_> = self.words().collect();
        let share = |&(_, len): &(usize, usize)| len * limit / self.depth;
        let missing = limit - words.iter().map(share).sum::<usize>();
        let open = words.iter().enumerate().flat_map(|(i, word)| {
            let n = share(word) + usize::from(i < missing);
            word.0..word.0 + n
        });
        open.collect()
    }

    /// Start and length of each word.
    fn words(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (depth, bits) = (self.depth, self.map.bits_per_word());
        (0..depth)
            .step_by(bits)
            .map(move |start| (start, bits.min(depth - start)))
    }

    fn get_batch(&mut self, n: usize) {
        let free = self.free();
        let mut bits = vec![usize::MAX];
        assert_eq!(self.map.try_get_batch(n, &mut bits), n.min(free));
        assert_eq!(
            bits.len(),
            1 + n.min(free),
            "bits are pushed, none is removed"
        );
        bits[1..].iter().for_each(|&bit| self.take(bit));
    }

    fn get_mask(&mut self, n: usize) {
        let got = self.map.try_get_mask(n);
        let n = n.min(self.map.bits_per_word());
        let candidates = self.words().filter_map(|word| self.range_in(word, n));
        let candidates: Vec<_> = candidates.collect();
        match got {
            Some(bits) => {
                assert!(!self.round_robin, "not available in turn");
                assert!(
                    candidates.contains(&bits),
                    "{bits:?} is none of {candidates:?}"
                );
                assert_eq!(bits.iter().count(), bits.count());
                bits.iter().for_each(|bit| self.take(bit));
            }
            None => assert!(
                self.round_robin || candidates.is_empty(),
                "none of {candidates:?}"
            ),
        }
    }

    /// What a search for `n` neighbours takes from a word: the free ones from the first free bit
    /// on.
    fn range_in(&self, (start, len): (usize, usize), n: usize) -> Option<BitMask> {
        let free = |bit: &usize| !self.held.contains(bit);
        let first = (start..start + len).find(free)?;
        if n == 0 || first + n > start + len {
            return None;
        }
        let mask = (0..n)
            .filter(|i| free(&(first + i)))
            .fold(0, |mask, i| mask | 1 << i);
        Some(BitMask { first, mask })
    }

    fn picked(&self, pick: Pick) -> usize {
        match pick {
            Pick::Held(i) if !self.held.is_empty() => {
                let position = usize::from(i) % self.held.len();
                *self.held.iter().nth(position).unwrap()
            }
            Pick::Held(bit) | Pick::Near(bit) => usize::from(bit) % (self.max_depth + 70),
            Pick::Any(bit) => usize::try_from(bit).unwrap_or(usize::MAX),
        }
    }

    /// What a put must say, and its effect on the oracle.
    fn expect(&mut self, bit: usize) -> Result<(), PutError> {
        if bit >= self.max_depth {
            Err(PutError::OutOfRange { bit })
        } else if self.held.contains(&bit) {
            self.release(bit);
            Ok(())
        } else {
            Err(PutError::NotAllocated { bit })
        }
    }

    /// All good bits are given back; the first bad one is what is reported.
    fn expect_all(&mut self, bits: impl Iterator<Item = usize>) -> Result<(), PutError> {
        let said: Vec<_> = bits.map(|bit| self.expect(bit)).collect();
        said.into_iter().collect()
    }

    /// A map that does not check must not be given a bit that is free.
    fn forbidden(&self, bit: usize) -> bool {
        self.trusted && bit < self.max_depth && !self.held.contains(&bit)
    }

    fn put(&mut self, pick: Pick) {
        let bit = self.picked(pick);
        if !self.forbidden(bit) {
            let expected = self.expect(bit);
            assert_eq!(self.map.put(bit), expected, "put({bit})");
        }
    }

    fn put_batch(&mut self, picks: &[Pick]) {
        let mut bits: Vec<_> = picks.iter().map(|&pick| self.picked(pick)).collect();
        if self.trusted {
            let mut seen = BTreeSet::new();
            bits.retain(|&bit| !self.forbidden(bit) && seen.insert(bit));
        }
        let bad: Vec<_> = bits
            .iter()
            .filter_map(|&bit| self.expect(bit).err())
            .collect();
        // Of those of one word it names any.
        match self.map.put_batch(&bits) {
            Ok(()) => assert_eq!(bad, [], "put_batch({bits:?})"),
            Err(error) => assert!(bad.contains(&error), "put_batch({bits:?}): {error}"),
        }
    }

    fn put_mask(&mut self, pick: Pick, mask: u64) {
        let first = self.picked(pick);
        let per_word = self.map.bits_per_word();
        let end = (first / per_word)
            .saturating_mul(per_word)
            .saturating_add(per_word);
        let end = end.min(self.max_depth);
        let bits = BitMask { first, mask };
        let top = 64 - mask.leading_zeros() as usize;
        if mask == 0 {
            // Nothing to give back, whatever is said about it.
            let _ = self.map.put_mask(bits);
            return;
        }
        if first.saturating_add(top) > end {
            let refused = self.map.put_mask(bits).unwrap_err();
            let beyond = match refused {
                PutError::BeyondWord { bit } => (end..self.max_depth).contains(&bit),
                PutError::OutOfRange { bit } => bit >= self.max_depth,
                _ => false,
            };
            assert!(beyond, "{bits:?}: {refused:?}");
            return;
        }
        if bits.iter().any(|bit| self.forbidden(bit)) {
            return;
        }
        let expected = self.expect_all(bits.iter());
        assert_eq!(self.map.put_mask(bits), expected, "{bits:?}");
    }

    fn visit(&self, start: usize, stop: usize) {
        let mut seen = Vec::new();
        self.map.for_each_set(start, |bit| {
            seen.push(bit);
            seen.len() <= stop
        });
        let start = if start >= self.max_depth { 0 } else { start };
        let turned = self.held.range(start..).chain(self.held.range(..start));
        let expected: Vec<_> = turned.copied().take(stop + 1).collect();
        assert_eq!(seen, expected, "from {start}, at most {stop} more");
    }

    fn look(&self) {
        let snapshot = self.map.snapshot();
        assert_eq!(snapshot.depth, self.depth);
        assert_eq!(snapshot.busy, self.held.len());
        assert_eq!(snapshot.max_depth, self.max_depth);
        assert!(snapshot.cleared + snapshot.busy <= self.max_depth);
        assert_eq!(snapshot.bits_per_word, self.map.bits_per_word());
        assert_eq!(snapshot.round_robin, self.round_robin);
        let per_word = self.map.bits_per_word();
        assert_eq!(snapshot.map_nr, self.words().count());
        let used = self.held.last().map_or(0, |last| last / per_word + 1);
        let mut words = vec![0_u64; used.max(snapshot.map_nr)];
        for bit in &self.held {
            words[bit / per_word] |= 1 << (bit % per_word);
        }
        assert_eq!(snapshot.words, words);
        let all = 0..self.max_depth + 2;
        assert!(
            all.into_iter()
                .all(|bit| self.map.is_set(bit) == self.held.contains(&bit))
        );
    }

    /// No bit is lost: when all are back and the map has its full size, each can be had once.
    fn finish(mut self) {
        let held: Vec<_> = self.held.iter().copied().collect();
        assert_eq!(self.map.put_batch(&held), Ok(()));
        self.held.clear();
        assert!(!self.map.is_any_set());
        if self.max_depth > 0 {
            self.resize(self.max_depth);
        }
        (0..self.depth).for_each(|_| self.get());
        assert_eq!(self.held.len(), self.max_depth);
        assert_eq!(self.map.try_get(), None);
    }
}
