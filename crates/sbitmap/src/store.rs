//! The id allocator as waiting in turns uses it. Event names as in `PROTOCOL-turns.md`.

mod shared;

pub(crate) use shared::SharedStore;

use crate::error::{PutError, ResizeError};
use crate::mask::BitMask;
use std::fmt::Debug;

/// Ids, and the number of their waiters.
///
/// The store is *drained* when every free id is visible to [`take`](Store::take). Once drained, it
/// stays drained while there are waiters.
pub(crate) trait Store: Debug + Send + Sync + 'static {
    /// G1. Takes an id unless there are waiters. Without waiters, `None` is exact.
    fn try_get(&self) -> Option<usize>;

    /// As `try_get`, for up to `n` ids, which are pushed to `ids`. Returns how many.
    fn try_get_batch(&self, n: usize, ids: &mut Vec<usize>) -> usize;

    /// As `try_get`, for up to `n` ids of one word; empty if there is none.
    fn try_get_mask(&self, n: usize) -> BitMask;

    /// As `try_get`, if fewer than `limit` of the ids open to this limit are taken.
    fn try_get_shallow(&self, limit: usize) -> Option<usize>;

    /// Takes an id although others wait: for a thread in its turn, and for serving waiters. Sees
    /// all ids once the store is drained.
    ///
    /// The id has no owner until `set_owned`, and putting it is an error if the store can detect
    /// it.
    fn take(&self) -> Option<usize>;

    /// Makes the caller the owner of `id`, which came from `take`.
    fn set_owned(&self, id: usize);

    /// P1 to P3. `true` if there may be waiters, so that the caller continues with P4.
    ///
    /// `false` if there are no waiters, or the id is where `drain_percpu` finds it.
    fn put(&self, id: usize) -> Result<bool, PutError>;

    /// As `put`, for several: how many ids came back, whether there may be waiters, and the first
    /// error.
    fn put_batch(&self, ids: &[usize]) -> (usize, bool, Result<(), PutError>);

    /// As `put_batch`, in one step.
    fn put_mask(&self, ids: BitMask) -> (usize, bool, Result<(), PutError>);

    /// The number of waiters. A hint without the list's lock, exact with it.
    fn waiters(&self) -> usize;

    /// Called under the list's lock, which serialises the callers.
    ///
    /// The caller's fence (V2) follows, so Relaxed is enough.
    fn set_waiters(&self, n: usize);

    /// Whether the store is drained. Under the list's lock, after `set_waiters` with a number that
    /// is not 0.
    fn is_drained(&self) -> bool;

    /// Drains the stacks of all CPUs. Not under the list's lock, because this may take long.
    fn drain_percpu(&self);

    /// The number of ids.
    fn depth(&self) -> usize;

    /// The number of free ids that [`take`](Store::take) sees now.
    fn free(&self) -> usize;

    /// Changes the depth. New ids are free at once, and the next `take` sees them.
    fn resize(&self, depth: usize) -> Result<(), ResizeError>;
}
