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
    Batched,
    /// Bounded overtaking by *turns*: one list, first come first served, and a thread that was
    /// woken may take up to 16 bits past those who wait.
    ///
    /// The wake of a thread costs more than anything else here; a turn divides that cost among
    /// its bits. With `p` waiters before it, a waiter sees at most `(p + 8) * 16` bits go to
    /// others before its own: each earlier waiter and each of the at most 8 turns that still
    /// last has at most 16. To that comes one bit for each thread that had looked for waiters
    /// before this one came and had not yet taken its bit.
    ///
    /// One woken thread at a time is under way, and serves the next when it runs. If it does not
    /// run (stopped, starved), the others go on after 64 more bits have come back, or after 10 to
    /// 20 ms (640 ms in a queue that has long been still).
    ///
    /// Tasks are woken for one bit at a time, all of them at once as long as bits last, and take
    /// no turns. Over a window of many turns identical threads get equal shares; within one turn
    /// one thread has 16 bits and its neighbour none.
    #[default]
    Fair,
    /// Strict order: each freed bit goes to whoever waits longest, and nobody takes one past them.
    ///
    /// With `p` waiters before it a waiter sees exactly `p` bits go to others, and one for each
    /// thread that had looked for waiters before this one came and had not yet taken its bit.
    /// Each bit costs one wake.
    Fifo,
}
