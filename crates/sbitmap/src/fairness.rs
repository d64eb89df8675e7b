//! Who may overtake whom.

use crate::batched::WakePolicy;
use std::fmt;

/// Who may overtake whom while waiting for a bit.
///
/// # Choose
///
/// | you want | mode |
/// |---|---|
/// | throughput with bounded overtaking, and have no reason for another | [`Fair`](Fairness::Fair) |
/// | strict order, or the same short wait for everybody; a wake for each bit is cheap enough | [`Fifo`](Fairness::Fifo) |
/// | futures that may stay unpolled for long, or exactly what the block layer does | [`Batched`](Fairness::Batched) |
///
/// Threads, timed threads and tasks may be mixed in every mode: they stand in the same list or
/// lists.
///
/// # A bit that is granted
///
/// In `Fair` and `Fifo` a bit is handed to a waiter, and is in use from then on, although the
/// waiter has yet to run. A thread runs sooner or later. **A future runs when it is polled**: one
/// that is kept and no longer polled (in a `select!` loop by reference, in a `FuturesUnordered`
/// that nobody drives) keeps the bit it was granted, and with a few of those the queue stands
/// still. Drop futures that are no longer wanted (`tokio::time::timeout` and `select!` by value do
/// so): the bit goes to the next waiter. With `Batched` an unpolled future keeps no bit, so whoever
/// comes next can have it; but it keeps the wake it was given, and who sleeps already waits for
/// later puts.
///
/// # Waiters for several
///
/// Whoever waits for `n` bits ([`get_many`](crate::SbitmapQueue::get_many)) counts as `n` waiters
/// in the bounds below. While it is the first, it collects: each bit that comes back is its until
/// it has all, and nobody else gets one, in a turn or not.
///
/// ```
/// use inflight_sbitmap::{BatchedOptions, FairOptions, Fairness, SbitmapQueue, WakePolicy};
/// let queue = SbitmapQueue::builder(8).fairness(Fairness::Fifo).build().unwrap();
/// assert_eq!(queue.fairness(), Fairness::fifo());
/// assert_eq!(Fairness::default(), Fairness::fair());
/// assert_eq!(Fairness::batched(), BatchedOptions::new().into());
/// // Options stand with the mode that has them.
/// let polled = FairOptions::new().completer_polls(true);
/// assert!(SbitmapQueue::builder(8).fairness(polled).build().is_ok());
/// let shallow = BatchedOptions::new().wake_policy(WakePolicy::FullestFirst).least_share(16);
/// let queue = SbitmapQueue::builder(64).fairness(shallow).build().unwrap();
/// assert_eq!(queue.fairness(), Fairness::Batched(shallow));
/// assert_eq!(queue.snapshot().wake_batch, 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Fairness {
    /// The block layer's rule: eight queues served one after the other, one batch of wakes for each
    /// batch of freed bits.
    ///
    /// A wake is a chance, not a bit: anybody who tries while a bit is free may take it first, and
    /// the woken waiter then queues again at the tail. Within one queue waiters are woken in
    /// the order they came, and each of eight batches in a row looks at every queue: a waiter
    /// with `p` others before it in its queue is woken within `8 * (p + 1)` batches. How often
    /// it may lose the race after that is not bounded.
    Batched(BatchedOptions),
    /// Bounded overtaking by *turns*: one list, first come first served, and a thread that was
    /// woken may take up to 13 bits past those who wait.
    ///
    /// The wake of a thread costs more than anything else here; a turn divides that cost among
    /// its bits. A turn is over after 13 bits or 11 later grants, whichever comes first: with more
    /// bits one thread would hold the others up longer, with fewer the wake is shared by too few.
    ///
    /// With `p` waiters before it, each for one bit, a waiter sees at most `(p + 11) * 13` bits go
    /// to others before its own: each earlier waiter and each of the at most 11 turns that still
    /// last has at most 13. An earlier waiter for `n` bits has `n` instead of 13, and a task 1. To
    /// that comes one bit for each thread that was about to take one when the wait began.
    ///
    /// The bound counts from the moment the wait has begun: when the future's first poll has
    /// returned, or the thread sleeps. Until then others may take bits past the newcomer, as
    /// many as they like: with [`Engine::Local`](crate::Engine::Local) that is as long as it
    /// takes to empty the stacks of all CPUs, some tens of microseconds, or longer if the
    /// newcomer's thread loses its CPU meanwhile.
    ///
    /// One woken thread at a time is under way, and serves the next when it runs. If it does not
    /// run (stopped, starved), the others go on after 64 more bits have come back, or after some
    /// time: 10 to 20 ms if those who wait have come just now, up to 330 ms if the newest of their
    /// threads has waited long.
    ///
    /// Tasks are woken for one bit at a time, all of them at once as long as bits last, and take
    /// no turns. So among threads and tasks in one queue the threads get up to 13 bits for each
    /// wait and the tasks one: if both should get the same, take [`Fifo`](Fairness::Fifo). Over a
    /// window of many turns identical threads get equal shares; within one turn one thread has 13
    /// bits and its neighbour none.
    Fair(FairOptions),
    /// Strict order: each freed bit goes to whoever waits longest, and nobody takes one past them.
    ///
    /// With `p` waiters before it, each for one bit, a waiter sees exactly `p` bits go to others
    /// once its wait has begun, and one for each thread that was about to take one by then; when
    /// a wait begins is said at [`Fair`](Fairness::Fair). An earlier waiter for `n` bits counts
    /// `n`. Each bit costs one wake.
    Fifo,
}

impl Fairness {
    /// [`Fair`](Fairness::Fair) without options.
    #[must_use]
    pub const fn fair() -> Self {
        Self::Fair(FairOptions::new())
    }

    /// [`Fifo`](Fairness::Fifo).
    #[must_use]
    pub const fn fifo() -> Self {
        Self::Fifo
    }

    /// [`Batched`](Fairness::Batched) without options.
    #[must_use]
    pub const fn batched() -> Self {
        Self::Batched(BatchedOptions::new())
    }
}

/// The mode, without its options.
impl fmt::Display for Fairness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Batched(_) => "Batched",
            Self::Fair(_) => "Fair",
            Self::Fifo => "Fifo",
        })
    }
}

impl Default for Fairness {
    fn default() -> Self {
        Self::fair()
    }
}

/// Options of [`Fairness::Fair`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct FairOptions {
    /// See [`completer_polls`](FairOptions::completer_polls()).
    pub completer_polls: bool,
}

impl FairOptions {
    /// The usual ones.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            completer_polls: false,
        }
    }

    /// Says that whoever puts bits back does not sleep for lack of them: it polls.
    ///
    /// A thread in its turn that finds no bit looks on for a while before it sleeps, or yields its
    /// CPU if that is where bits are put. Then it does so for longer: some 50 us instead of 25,
    /// eight yields instead of two. Means nothing for tasks.
    #[must_use]
    pub const fn completer_polls(mut self, on: bool) -> Self {
        self.completer_polls = on;
        self
    }
}

impl From<FairOptions> for Fairness {
    fn from(options: FairOptions) -> Self {
        Self::Fair(options)
    }
}

/// Options of [`Fairness::Batched`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct BatchedOptions {
    /// See [`wake_policy`](BatchedOptions::wake_policy()).
    pub wake_policy: WakePolicy,
    /// See [`least_share`](BatchedOptions::least_share()).
    pub least_share: Option<usize>,
}

impl BatchedOptions {
    /// The usual ones.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            wake_policy: WakePolicy::RoundRobin,
            least_share: None,
        }
    }

    /// In which order the wait queues are served.
    #[must_use]
    pub const fn wake_policy(mut self, policy: WakePolicy) -> Self {
        self.wake_policy = policy;
        self
    }

    /// The fewest bits that a user is kept to who then waits for its own puts: the limit of a
    /// [shallow get](crate::SbitmapQueue::try_get_shallow), or the smallest share of several users
    /// who count for themselves. By default nobody is kept to fewer than the depth.
    ///
    /// The wake batch becomes an eighth of it, from 1 to 8, for such a user sees only as many
    /// puts. [`set_least_share`](crate::SbitmapQueue::set_least_share) changes it.
    #[must_use]
    pub const fn least_share(mut self, bits: usize) -> Self {
        self.least_share = Some(bits);
        self
    }
}

impl From<BatchedOptions> for Fairness {
    fn from(options: BatchedOptions) -> Self {
        Self::Batched(options)
    }
}
