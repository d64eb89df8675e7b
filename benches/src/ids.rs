//! What every contender can do without waiting.

use std::fmt;

/// Hands out numbers, each to one owner at a time.
pub trait Ids: fmt::Debug + Send + Sync {
    /// What each thread keeps for itself, such as a hint.
    type Local;

    /// The local part of a thread; threads have different numbers.
    fn local(&self, thread: usize) -> Self::Local;
    /// Takes one, if there is one.
    fn get(&self, local: &mut Self::Local) -> Option<usize>;
    /// Gives one back.
    fn put(&self, local: &mut Self::Local, id: usize);

    /// Gives several back.
    #[inline]
    fn put_all(&self, local: &mut Self::Local, ids: &[usize]) {
        ids.iter().for_each(|&id| self.put(local, id));
    }

    /// Whether the ids are `0..depth` and run out. What makes keys of its own does less work here
    /// and more elsewhere.
    fn is_bounded(&self) -> bool {
        true
    }
}

/// Panics unless exactly the ids `0..depth` can be had.
pub fn check_ids<I: Ids + ?Sized>(ids: &I, depth: usize) {
    if !ids.is_bounded() {
        return;
    }
    let local = &mut ids.local(0);
    let mut all: Vec<_> = std::iter::from_fn(|| ids.get(local))
        .take(depth + 1)
        .collect();
    all.sort_unstable();
    assert!(all.iter().copied().eq(0..depth), "ids were lost or doubled");
    all.into_iter().for_each(|id| ids.put(local, id));
}
