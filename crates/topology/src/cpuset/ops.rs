//! The operators, which are other names of the methods.

use std::ops::{
    BitAnd, BitAndAssign, BitOr, BitOrAssign, BitXor, BitXorAssign, Range, RangeInclusive, Sub,
    SubAssign,
};

use super::{CpuSet, WORD_BITS};

/// Implements an operator and its assigning form by a method.
macro_rules! operator {
    ($trait:ident, $operator:ident, $assign_trait:ident, $assign:ident, $method:ident) => {
        impl $trait for &CpuSet {
            type Output = CpuSet;

            fn $operator(self, other: Self) -> CpuSet {
                self.$method(other)
            }
        }

        impl $trait<&CpuSet> for CpuSet {
            type Output = CpuSet;

            fn $operator(self, other: &CpuSet) -> CpuSet {
                self.$method(other)
            }
        }

        impl $assign_trait<&CpuSet> for CpuSet {
            fn $assign(&mut self, other: &CpuSet) {
                *self = self.$method(other);
            }
        }
    };
}

operator!(BitOr, bitor, BitOrAssign, bitor_assign, union);
operator!(BitAnd, bitand, BitAndAssign, bitand_assign, intersection);
operator!(
    BitXor,
    bitxor,
    BitXorAssign,
    bitxor_assign,
    symmetric_difference
);
operator!(Sub, sub, SubAssign, sub_assign, difference);

impl CpuSet {
    /// Returns the CPUs that are in exactly one of the sets: the added and the removed ones.
    ///
    /// ```
    /// use inflight_topology::CpuSet;
    ///
    /// let (before, after) = (CpuSet::from(0..4), CpuSet::from(1..5));
    /// assert_eq!(before.symmetric_difference(&after), CpuSet::from([0, 4]));
    /// assert_eq!(&before ^ &after, &(&before | &after) - &(&before & &after));
    /// ```
    #[must_use]
    pub fn symmetric_difference(&self, other: &Self) -> Self {
        self.union(other).difference(&self.intersection(other))
    }

    /// Returns whether every CPU of `other` is also in this set.
    ///
    /// ```
    /// use inflight_topology::CpuSet;
    ///
    /// assert!(CpuSet::from(0..4).is_superset(&CpuSet::from([1, 3])));
    /// assert!(!CpuSet::from([1, 3]).is_superset(&CpuSet::from([2])));
    /// ```
    #[must_use]
    pub fn is_superset(&self, other: &Self) -> bool {
        other.is_subset(self)
    }

    /// Removes the CPUs for which `keep` is `false`.
    ///
    /// ```
    /// use inflight_topology::CpuSet;
    ///
    /// let mut even = CpuSet::from(0..6);
    /// even.retain(|cpu| cpu % 2 == 0);
    /// assert_eq!(even, CpuSet::from([0, 2, 4]));
    /// ```
    pub fn retain(&mut self, mut keep: impl FnMut(usize) -> bool) {
        *self = self.iter().filter(|&cpu| keep(cpu)).collect();
    }

    /// Removes all CPUs.
    ///
    /// ```
    /// use inflight_topology::CpuSet;
    ///
    /// let mut set = CpuSet::from([3]);
    /// set.clear();
    /// assert!(set.is_empty());
    /// ```
    pub fn clear(&mut self) {
        *self = Self::new();
    }

    /// Returns the first id of the set that is `cpu` or greater; after the greatest comes the
    /// lowest again. `None` only for the empty set. To iterate over a set in a circle, ask each
    /// time for one more than the last result.
    ///
    /// ```
    /// use inflight_topology::CpuSet;
    ///
    /// let set = CpuSet::from([2, 70]);
    /// assert_eq!(set.next_round(0), Some(2));
    /// assert_eq!(set.next_round(3), Some(70));
    /// assert_eq!(set.next_round(71), Some(2));
    /// assert_eq!(CpuSet::new().next_round(0), None);
    /// ```
    #[must_use]
    pub fn next_round(&self, cpu: usize) -> Option<usize> {
        let word = cpu / WORD_BITS;
        let rest = self
            .words
            .get(word)
            .map_or(0, |bits| bits & (!0 << (cpu % WORD_BITS)));
        if rest != 0 {
            return Some(word * WORD_BITS + rest.trailing_zeros() as usize);
        }
        let later = self.words.iter().enumerate().skip(word.saturating_add(1));
        later
            .filter(|&(_, &bits)| bits != 0)
            .map(|(word, bits)| word * WORD_BITS + bits.trailing_zeros() as usize)
            .next()
            .or_else(|| self.first())
    }
}

/// # Panics
///
/// The panics of [`CpuSet::insert`].
impl From<Range<usize>> for CpuSet {
    fn from(cpus: Range<usize>) -> Self {
        cpus.collect()
    }
}

/// # Panics
///
/// The panics of [`CpuSet::insert`].
impl From<RangeInclusive<usize>> for CpuSet {
    fn from(cpus: RangeInclusive<usize>) -> Self {
        cpus.collect()
    }
}

/// # Panics
///
/// The panics of [`CpuSet::insert`].
impl From<Vec<usize>> for CpuSet {
    fn from(cpus: Vec<usize>) -> Self {
        cpus.into_iter().collect()
    }
}

/// # Panics
///
/// The panics of [`CpuSet::insert`].
impl<'a> FromIterator<&'a usize> for CpuSet {
    fn from_iter<I: IntoIterator<Item = &'a usize>>(cpus: I) -> Self {
        cpus.into_iter().copied().collect()
    }
}
