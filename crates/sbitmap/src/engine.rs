//! Where the ids are kept.

/// Where a queue keeps its ids.
///
/// ```
/// use inflight_sbitmap::{BackEnd, Engine, Fairness, SbitmapQueue};
/// let builder = SbitmapQueue::builder(64).fairness(Fairness::Fair);
/// let queue = builder.engine(Engine::Shared).build().unwrap();
/// assert_eq!(queue.back_end(), BackEnd::Shared);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Engine {
    /// [`Local`](Engine::Local) where it can be used, else [`Shared`](Engine::Shared).
    #[default]
    Auto,
    /// One bitmap for all CPUs, as [`Sbitmap`](crate::Sbitmap). Serves every mode.
    Shared,
    /// Each CPU keeps some of the ids it has freed in a stack of its own. When ids run short or
    /// somebody waits the stacks are closed and emptied, so no id is out of reach.
    ///
    /// For [`Fair`](crate::Fairness::Fair) and [`Fifo`](crate::Fairness::Fifo), ids not in turn
    /// and a `max_depth` of at most 65,536.
    Local,
}

/// What keeps the ids of a queue, as found by [`SbitmapQueue::back_end`].
///
/// [`SbitmapQueue::back_end`]: crate::SbitmapQueue::back_end
///
/// ```
/// use inflight_sbitmap::{BackEnd, Fairness, SbitmapQueue};
/// let queue = SbitmapQueue::builder(64).fairness(Fairness::Batched).build().unwrap();
/// assert_eq!(queue.back_end(), BackEnd::Shared);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackEnd {
    /// One bitmap for all CPUs.
    Shared,
    /// Stacks changed by restartable sequences: no locked instruction.
    Rseq,
    /// Stacks with a lock word each, where restartable sequences are missing.
    TryLock,
    /// The model of [`Rseq`](BackEnd::Rseq) under loom.
    BusyFlag,
}
