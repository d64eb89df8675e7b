//! Who may overtake whom.

/// Who may overtake whom while waiting for a bit.
///
/// ```
/// use inflight_sbitmap::{Fairness, SbitmapQueue};
/// let queue = SbitmapQueue::builder(8).fairness(Fairness::Batched).build().unwrap();
/// # let _ = queue;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Fairness {
    /// The block layer's rule: eight queues served in turn, one batch of wakes for each batch of
    /// freed bits.
    ///
    /// A wake is a chance, not a bit: anybody who tries while a bit is free may take it first, and
    /// the woken waiter then queues again at the tail. Within one queue waiters are woken in
    /// the order they came, and each of eight batches in a row looks at every queue: a waiter
    /// with `p` others before it in its queue is woken within `8 * (p + 1)` batches. How often
    /// it may lose the race after that is not bounded.
    #[default]
    Batched,
}
