//! Where the ids are kept.

/// Where a queue keeps its ids.
///
/// Leave it at [`Auto`](Engine::Auto) unless you measure or test one of them: users see no other
/// difference. [`SbitmapQueue::back_end`] returns the result.
///
/// | | [`Local`](Engine::Local) | [`Shared`](Engine::Shared) |
/// |---|---|---|
/// | modes | `Fair`, `Fifo` | all |
/// | ids | up to 65,536, not [round robin](crate::SbitmapQueueBuilder::round_robin) | up to [`MAX_DEPTH`](crate::MAX_DEPTH), both orders |
/// | get and put on one CPU | its own stack of ids: no locked instruction on [`Rseq`](BackEnd::Rseq) | an atomic operation each on a word of the map |
/// | ids freed by another CPU than the one that gets | through the words | through the words |
/// | `weight`, `snapshot`, `for_each_set`, `resize`, a shallow get that finds nothing | close all stacks: tens of microseconds | look at the words |
///
/// **Under `--cfg loom`** `Auto` is `Shared`, so that models of your code stay small: a model does
/// not run the engine of production. Both give the same guarantees, and the local engine has models
/// of its own. To explore your code on it, choose `Local` (its stacks are then
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
    /// [`Local`](Engine::Local) if it can be used, else [`Shared`](Engine::Shared). Under loom
    /// always `Shared`.
    #[default]
    Auto,
    /// One bitmap for all CPUs, as [`Sbitmap`](crate::Sbitmap). For every mode.
    Shared,
    /// Each CPU keeps some of the ids that it has freed in a stack of its own. When ids run short
    /// or a caller waits, the stacks are closed and emptied, so each id can be got.
    ///
    /// For [`Fair`](crate::Fairness::Fair) and [`Fifo`](crate::Fairness::Fifo), a map that is not
    /// [round robin](crate::SbitmapQueueBuilder::round_robin) and a `max_depth` of at most 65,536;
    /// else the error of `build` names the reason.
    Local,
}

/// What keeps the ids of a queue; see [`SbitmapQueue::back_end`].
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
    /// Stacks with a lock word each, for systems without restartable sequences: other systems than
    /// Linux on x86-64 and aarch64, a C library that does not register them, Miri, sanitizers and
    /// loom.
    TryLock,
}
