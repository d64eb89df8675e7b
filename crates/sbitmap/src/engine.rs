//! Where the ids are kept.

/// Where a queue keeps its ids.
///
/// Leave it at [`Auto`](Engine::Auto) unless you measure, or test one of them: what users see is
/// the same. [`SbitmapQueue::back_end`] says what was chosen.
///
/// | | [`Local`](Engine::Local) | [`Shared`](Engine::Shared) |
/// |---|---|---|
/// | modes | `Fair`, `Fifo` | all |
/// | ids | up to 65,536, not [round robin](crate::SbitmapQueueBuilder::round_robin) | up to [`MAX_DEPTH`](crate::MAX_DEPTH), both orders |
/// | get and put on one CPU | its own stack of ids: no locked instruction on [`Rseq`](BackEnd::Rseq) | an atomic operation each on a word of the map |
/// | ids freed by another CPU than the one that gets | through the words | through the words |
/// | `weight`, `snapshot`, `for_each_set`, `resize`, a shallow get that finds nothing | close all stacks: tens of microseconds | look at the words |
///
/// **Under `--cfg loom`** `Auto` is `Shared`, so that models of your code stay small: what runs in
/// a model is not what runs in production. Both give the same guarantees, and the local engine has
/// models of its own; to explore your code on it all the same, ask for `Local` (its stacks are then
/// [`TryLock`](BackEnd::TryLock)).
///
/// [`SbitmapQueue::back_end`]: crate::SbitmapQueue::back_end
///
/// ```
/// use inflight_sbitmap::{BackEnd, Engine, SbitmapQueue};
/// let queue = SbitmapQueue::builder(64).engine(Engine::Shared).build().unwrap();
/// assert_eq!(queue.back_end(), BackEnd::Shared);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Engine {
    /// [`Local`](Engine::Local) where it can be used, else [`Shared`](Engine::Shared). Under loom
    /// always `Shared`.
    #[default]
    Auto,
    /// One bitmap for all CPUs, as [`Sbitmap`](crate::Sbitmap). Serves every mode.
    Shared,
    /// Each CPU keeps some of the ids it has freed in a stack of its own. When ids run short or
    /// somebody waits the stacks are closed and emptied, so no id is out of reach.
    ///
    /// For [`Fair`](crate::Fairness::Fair) and [`Fifo`](crate::Fairness::Fifo), a map that is not
    /// [round robin](crate::SbitmapQueueBuilder::round_robin) and a `max_depth` of at most 65,536;
    /// else `build` fails and says which of them it was.
    Local,
}

/// What keeps the ids of a queue, as found by [`SbitmapQueue::back_end`].
///
/// [`SbitmapQueue::back_end`]: crate::SbitmapQueue::back_end
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum BackEnd {
    /// One bitmap for all CPUs.
    Shared,
    /// Stacks changed by restartable sequences: no locked instruction.
    Rseq,
    /// Stacks with a lock word each, where restartable sequences are missing: elsewhere than on
    /// Linux on x86-64 and aarch64, with a C library that does not register them, and under Miri,
    /// sanitizers and loom.
    TryLock,
}
