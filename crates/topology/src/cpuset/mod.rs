//! Sets of CPU ids.
//!
//! Invariant: the last word of `words` is not zero, so equal sets have equal vectors and an empty
//! set owns no memory.

mod grammar;
mod ops;

use std::fmt;

pub use grammar::ParseCpuSetError;
pub(crate) use grammar::is_decimal;

const WORD_BITS: usize = u64::BITS as usize;

/// A set of CPU ids that grows as needed.
///
/// Ids on real machines are sparse (an offline CPU, a container that shows only its own CPUs), so
/// an id is never a position: two CPUs may be `3` and `117`. The set is a bitmap over ids below
/// [`CpuSet::ID_LIMIT`]; membership is one load, the set operations work word by word.
///
/// The operators `|`, `&`, `-` and `^`, on references, are union, intersection, difference and
/// symmetric difference.
///
/// Both text forms of `/sys` are understood: `Display` and `FromStr` use the list form
/// (`0-5,24-29`), [`to_mask_string`](CpuSet::to_mask_string) and
/// [`from_mask_str`](CpuSet::from_mask_str) the mask form (`3f00003f`).
///
/// ```
/// use inflight_topology::CpuSet;
///
/// let set: CpuSet = "0-5,24-29".parse()?;
/// assert_eq!(set.len(), 12);
/// assert!(set.contains(24) && !set.contains(6));
/// assert_eq!(set.to_string(), "0-5,24-29");
/// # Ok::<(), inflight_topology::ParseCpuSetError>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct CpuSet {
    words: Vec<u64>,
}

impl CpuSet {
    /// One more than the largest id a set can hold: 65,536.
    ///
    /// It is far above the limit of any kernel, and low enough that a damaged number cannot make a
    /// set use all memory: the largest set takes 8 KiB.
    ///
    /// ```
    /// use inflight_topology::CpuSet;
    ///
    /// assert!("65535".parse::<CpuSet>().is_ok());
    /// assert!("65536".parse::<CpuSet>().is_err());
    /// assert_eq!(CpuSet::ID_LIMIT, 65_536);
    /// ```
    pub const ID_LIMIT: usize = 1 << 16;

    /// Makes an empty set.
    ///
    /// ```
    /// use inflight_topology::CpuSet;
    ///
    /// assert!(CpuSet::new().is_empty());
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Self { words: Vec::new() }
    }

    /// Adds `cpu` to the set. Returns whether it was not in the set before.
    ///
    /// # Panics
    ///
    /// If `cpu` is [`CpuSet::ID_LIMIT`] or more.
    ///
    /// ```
    /// use inflight_topology::CpuSet;
    ///
    /// let mut set = CpuSet::new();
    /// assert!(set.insert(3));
    /// assert!(!set.insert(3));
    /// ```
    pub fn insert(&mut self, cpu: usize) -> bool {
        assert!(
            cpu < Self::ID_LIMIT,
            "CPU id {cpu} is above {}",
            Self::ID_LIMIT - 1
        );
        let (word, bit) = (cpu / WORD_BITS, 1 << (cpu % WORD_BITS));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let fresh = self.words[word] & bit == 0;
        self.words[word] |= bit;
        fresh
    }

    /// Removes `cpu` from the set. Returns whether it was in the set. Any id is allowed.
    ///
    /// ```
    /// use inflight_topology::CpuSet;
    ///
    /// let mut set = CpuSet::from([1, 2]);
    /// assert!(set.remove(2));
    /// assert!(!set.remove(2));
    /// assert_eq!(set, CpuSet::from([1]));
    /// ```
    pub fn remove(&mut self, cpu: usize) -> bool {
        let present = self.contains(cpu);
        if present {
            self.words[cpu / WORD_BITS] &= !(1 << (cpu % WORD_BITS));
            self.trim();
        }
        present
    }

    /// Returns whether `cpu` is in the set. Any id is allowed.
    ///
    /// ```
    /// use inflight_topology::CpuSet;
    ///
    /// assert!(CpuSet::from([7]).contains(7));
    /// assert!(!CpuSet::from([7]).contains(usize::MAX));
    /// ```
    #[must_use]
    pub fn contains(&self, cpu: usize) -> bool {
        self.words
            .get(cpu / WORD_BITS)
            .is_some_and(|word| word >> (cpu % WORD_BITS) & 1 == 1)
    }

    /// Returns the number of CPUs in the set.
    ///
    /// ```
    /// use inflight_topology::CpuSet;
    ///
    /// assert_eq!(CpuSet::from([0, 64, 1000]).len(), 3);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// Returns whether the set has no CPU.
    ///
    /// ```
    /// use inflight_topology::CpuSet;
    ///
    /// assert!("".parse::<CpuSet>()?.is_empty());
    /// # Ok::<(), inflight_topology::ParseCpuSetError>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns the lowest id in the set.
    ///
    /// ```
    /// use inflight_topology::CpuSet;
    ///
    /// assert_eq!(CpuSet::from([9, 4]).first(), Some(4));
    /// assert_eq!(CpuSet::new().first(), None);
    /// ```
    #[must_use]
    pub fn first(&self) -> Option<usize> {
        self.iter().next()
    }

    /// Returns the highest id in the set.
    ///
    /// ```
    /// use inflight_topology::CpuSet;
    ///
    /// assert_eq!(CpuSet::from([9, 4]).last(), Some(9));
    /// assert_eq!(CpuSet::new().last(), None);
    /// ```
    #[must_use]
    pub fn last(&self) -> Option<usize> {
        let word = self.words.last()?;
        Some((self.words.len() - 1) * WORD_BITS + word.ilog2() as usize)
    }

    /// Returns the ids in ascending order.
    ///
    /// ```
    /// use inflight_topology::CpuSet;
    ///
    /// let ids: Vec<usize> = CpuSet::from([70, 2]).iter().collect();
    /// assert_eq!(ids, [2, 70]);
    /// ```
    #[must_use]
    pub fn iter(&self) -> CpuSetIter<'_> {
        CpuSetIter {
            words: &self.words,
            next: 0,
            rest: self.words.first().copied().unwrap_or(0),
        }
    }

    /// Returns the CPUs that are in either set.
    ///
    /// ```
    /// use inflight_topology::CpuSet;
    ///
    /// let both = CpuSet::from([0, 1]).union(&CpuSet::from([1, 80]));
    /// assert_eq!(both, CpuSet::from([0, 1, 80]));
    /// ```
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (long, short) = if self.words.len() >= other.words.len() {
            (self, other)
        } else {
            (other, self)
        };
        let mut words = long.words.clone();
        for (word, more) in words.iter_mut().zip(&short.words) {
            *word |= more;
        }
        Self { words }
    }

    /// Returns the CPUs that are in both sets.
    ///
    /// ```
    /// use inflight_topology::CpuSet;
    ///
    /// let common = CpuSet::from([0, 1]).intersection(&CpuSet::from([1, 80]));
    /// assert_eq!(common, CpuSet::from([1]));
    /// ```
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let words = self
            .words
            .iter()
            .zip(&other.words)
            .map(|(a, b)| a & b)
            .collect();
        Self::trimmed(words)
    }

    /// Returns the CPUs of this set that are not in `other`.
    ///
    /// ```
    /// use inflight_topology::CpuSet;
    ///
    /// let left = CpuSet::from([0, 1]).difference(&CpuSet::from([1, 80]));
    /// assert_eq!(left, CpuSet::from([0]));
    /// ```
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut words = self.words.clone();
        for (word, less) in words.iter_mut().zip(&other.words) {
            *word &= !less;
        }
        Self::trimmed(words)
    }

    /// Returns whether every CPU of this set is also in `other`.
    ///
    /// ```
    /// use inflight_topology::CpuSet;
    ///
    /// assert!(CpuSet::from([1]).is_subset(&CpuSet::from([0, 1])));
    /// assert!(CpuSet::new().is_subset(&CpuSet::new()));
    /// ```
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.words.len() <= other.words.len()
            && self
                .words
                .iter()
                .zip(&other.words)
                .all(|(a, b)| a & !b == 0)
    }

    /// Returns whether no CPU is in both sets.
    ///
    /// ```
    /// use inflight_topology::CpuSet;
    ///
    /// assert!(CpuSet::from([1]).is_disjoint(&CpuSet::from([0, 2])));
    /// ```
    #[must_use]
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(a, b)| a & b == 0)
    }

    /// Puts the first `used` of every `group` CPUs from `start` to `end` into the set. Word by
    /// word, because a text of a megabyte may name the largest range a hundred thousand times.
    ///
    /// The caller sees to `start <= end < ID_LIMIT` and `1 <= used <= group`.
    fn insert_groups(&mut self, start: usize, end: usize, used: usize, group: usize) {
        if group >= WORD_BITS {
            for first in (start..=end).step_by(group) {
                let last = end.min(first.saturating_add(used - 1));
                self.insert_words(first, last, |_| u64::MAX);
            }
            return;
        }
        let bits = |all: u128, bit: usize| all | u128::from(bit % group < used) << bit;
        let pattern = (0..u128::BITS as usize).fold(0, bits);
        self.insert_words(start, end, |base| {
            // How far into a group the word begins.
            let offset = (base + group - start % group) % group;
            (pattern >> offset) as u64
        });
        // The range may end with CPUs of a group that are not used.
        self.trim();
    }

    /// Puts those CPUs from `start` to `end` into the set that `bits` has: it is asked for the 64
    /// CPUs from the given one on.
    fn insert_words(&mut self, start: usize, end: usize, bits: impl Fn(usize) -> u64) {
        let (first, last) = (start / WORD_BITS, end / WORD_BITS);
        if last >= self.words.len() {
            self.words.resize(last + 1, 0);
        }
        for (word, index) in self.words[first..=last].iter_mut().zip(first..) {
            let base = index * WORD_BITS;
            let from = start.saturating_sub(base);
            let to = (end - base).min(WORD_BITS - 1);
            let within = u64::MAX >> (WORD_BITS - 1 - to) & u64::MAX << from;
            *word |= bits(base) & within;
        }
    }

    fn trimmed(words: Vec<u64>) -> Self {
        let mut set = Self { words };
        set.trim();
        set
    }

    /// Restores the invariant after bits were cleared.
    fn trim(&mut self) {
        let used = self
            .words
            .iter()
            .rposition(|&word| word != 0)
            .map_or(0, |last| last + 1);
        self.words.truncate(used);
    }
}

/// The ids of a [`CpuSet`] in ascending order.
///
/// ```
/// use inflight_topology::CpuSet;
///
/// let set = CpuSet::from([5, 64]);
/// let mut cpus: inflight_topology::CpuSetIter<'_> = set.iter();
/// assert_eq!(cpus.next(), Some(5));
/// assert_eq!(cpus.collect::<Vec<_>>(), [64]);
/// ```
#[derive(Clone, Debug)]
pub struct CpuSetIter<'a> {
    words: &'a [u64],
    /// Index of the word `rest` was taken from.
    next: usize,
    /// The bits of that word not yet handed out.
    rest: u64,
}

impl Iterator for CpuSetIter<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        while self.rest == 0 {
            self.next += 1;
            self.rest = *self.words.get(self.next)?;
        }
        let bit = self.rest.trailing_zeros() as usize;
        self.rest &= self.rest - 1;
        Some(self.next * WORD_BITS + bit)
    }
}

impl std::iter::FusedIterator for CpuSetIter<'_> {}

impl<'a> IntoIterator for &'a CpuSet {
    type Item = usize;
    type IntoIter = CpuSetIter<'a>;

    fn into_iter(self) -> CpuSetIter<'a> {
        self.iter()
    }
}

/// # Panics
///
/// The panics of [`CpuSet::insert`].
impl FromIterator<usize> for CpuSet {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        let mut set = Self::new();
        set.extend(cpus);
        set
    }
}

/// # Panics
///
/// The panics of [`CpuSet::insert`].
impl Extend<usize> for CpuSet {
    fn extend<I: IntoIterator<Item = usize>>(&mut self, cpus: I) {
        for cpu in cpus {
            self.insert(cpu);
        }
    }
}

/// # Panics
///
/// The panics of [`CpuSet::insert`].
impl<const N: usize> From<[usize; N]> for CpuSet {
    fn from(cpus: [usize; N]) -> Self {
        cpus.into_iter().collect()
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}
