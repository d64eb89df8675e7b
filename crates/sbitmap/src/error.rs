//! The errors of this crate.

use crate::MAX_DEPTH;

/// The error of building a bitmap or queue.
///
/// ```
/// use inflight_sbitmap::{BuildError, Sbitmap};
/// let error = Sbitmap::builder(64).shift(7).build().unwrap_err();
/// assert_eq!(error, BuildError::Shift { shift: 7 });
/// assert_eq!(error.to_string(), "shift 7 is not in 0 to 6 (a word has 64 bits)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// The depth is not in 1 to [`MAX_DEPTH`](crate::MAX_DEPTH).
    Depth {
        /// The depth asked for.
        depth: usize,
    },
    /// `max_depth` is below the depth, or above [`MAX_DEPTH`](crate::MAX_DEPTH).
    MaxDepth {
        /// The largest depth asked for.
        max_depth: usize,
        /// The initial depth.
        depth: usize,
    },
    /// The shift is above 6 (a word has 64 bits).
    Shift {
        /// The shift asked for.
        shift: u32,
    },
    /// [`Engine::Local`](crate::Engine::Local) was chosen together with
    /// [`Fairness::Batched`](crate::Fairness::Batched), which needs
    /// [`Engine::Shared`](crate::Engine::Shared).
    BatchedNeedsShared,
    /// [`Engine::Local`](crate::Engine::Local) was chosen together with
    /// [`round_robin`](crate::SbitmapQueueBuilder::round_robin), which needs
    /// [`Engine::Shared`](crate::Engine::Shared).
    RoundRobinNeedsShared,
    /// [`Engine::Local`](crate::Engine::Local) was chosen for a depth or a `max_depth` of more than
    /// 65,536 bits, which needs [`Engine::Shared`](crate::Engine::Shared).
    DepthNeedsShared {
        /// The largest depth asked for.
        max_depth: usize,
    },
}

inflight_sync::error_text!(BuildError {
    Self::Depth { depth } => "depth {depth} is not in 1 to {MAX_DEPTH}",
    Self::MaxDepth { max_depth, depth } =>
        "max_depth {max_depth} is not in {depth} (the depth) to {MAX_DEPTH}",
    Self::Shift { shift } => "shift {shift} is not in 0 to 6 (a word has 64 bits)",
    Self::BatchedNeedsShared => "Engine::Local does not support Fairness::Batched",
    Self::RoundRobinNeedsShared => "Engine::Local does not support round robin",
    Self::DepthNeedsShared { max_depth } => "Engine::Local has at most 65536 bits, not {max_depth}",
});

/// The error of a put. The bitmap is unchanged for that bit.
///
/// ```
/// use inflight_sbitmap::{PutError, Sbitmap};
/// let map = Sbitmap::builder(8).build().unwrap();
/// assert_eq!(map.put(3), Err(PutError::NotAllocated { bit: 3 }));
/// assert_eq!(map.put(8), Err(PutError::OutOfRange { bit: 8 }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PutError {
    /// The bit is not in use: it was put before, or never handed out.
    NotAllocated {
        /// The bit; one of them in the case of several.
        bit: usize,
    },
    /// The bitmap has no such bit: it is not below `max_depth`.
    OutOfRange {
        /// The bit; one of them in the case of several.
        bit: usize,
    },
    /// A [`BitMask`](crate::BitMask) reaches beyond the word of its first bit.
    BeyondWord {
        /// The first bit of the mask that is beyond the word.
        bit: usize,
    },
}

inflight_sync::error_text!(PutError {
    Self::NotAllocated { bit } => "bit {bit} is not allocated (put twice?)",
    Self::OutOfRange { bit } => "bit {bit} is not below max_depth",
    Self::BeyondWord { bit } => "bit {bit} of the mask is beyond the word of its first bit",
});

/// The error of a resize. The depth is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResizeError {
    /// The depth is not in 1 to `max_depth`, which by default is the first depth.
    Depth {
        /// The depth asked for.
        depth: usize,
        /// The largest depth possible.
        most: usize,
    },
}

impl ResizeError {
    /// Checks that a map of at most `most` bits can have this depth.
    pub(crate) fn check(depth: usize, most: usize) -> Result<(), Self> {
        let there = (1..=most).contains(&depth);
        there.then_some(()).ok_or(Self::Depth { depth, most })
    }
}

inflight_sync::error_text!(ResizeError {
    Self::Depth { depth, most } => "depth {depth} is not in 1 to {most} (max_depth)",
});

/// The error of a wait for an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GetError {
    /// The time was up before an id came.
    TimedOut,
    /// The queue is [closed](crate::SbitmapQueue::close).
    Closed,
}

inflight_sync::error_text!(GetError {
    Self::TimedOut => "timed out before an id was free",
    Self::Closed => "the queue is closed",
});

/// The error of getting several ids together. None of them was taken.
///
/// ```
/// use inflight_sbitmap::{GetManyError, SbitmapQueue};
/// let queue = SbitmapQueue::builder(4).build().unwrap();
/// let error = queue.get_many_blocking(5).unwrap_err();
/// assert_eq!(error, GetManyError::TooMany { n: 5, depth: 4 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GetManyError {
    /// The number is above the queue's depth, at the time of the call or after a resize.
    TooMany {
        /// How many were asked for.
        n: usize,
        /// The depth of the queue.
        depth: usize,
    },
    /// There are not so many bits for this caller now. Only
    /// [`try_get_many`](crate::SbitmapQueue::try_get_many) returns this.
    Exhausted {
        /// How many were asked for.
        n: usize,
    },
    /// The time was up before the ids came.
    TimedOut,
    /// The queue is [closed](crate::SbitmapQueue::close).
    Closed,
}

impl GetManyError {
    /// Returns the error of a wait for one id, or for parts that follow the depth.
    pub(crate) fn of_one(self) -> GetError {
        match self {
            Self::TimedOut => GetError::TimedOut,
            _ => GetError::Closed,
        }
    }
}

inflight_sync::error_text!(GetManyError {
    Self::TooMany { n, depth } => "{n} ids are more than the depth {depth} of the queue",
    Self::Exhausted { n } => "{n} ids are not available now",
    Self::TimedOut => "timed out before enough ids were free",
    Self::Closed => "the queue is closed",
});
