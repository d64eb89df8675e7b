//! What can go wrong.

use std::error::Error;
use std::fmt;

/// Why a bitmap or queue cannot be built.
///
/// ```
/// use inflight_sbitmap::{BuildError, Sbitmap};
/// assert_eq!(Sbitmap::builder(64).shift(7).build().unwrap_err(), BuildError::ShiftTooLarge);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// More than [`MAX_DEPTH`](crate::MAX_DEPTH) bits, now or as `max_depth`.
    DepthTooLarge,
    /// A word has 64 bits, so the shift is at most 6.
    ShiftTooLarge,
    /// The map is to grow to a depth below the one it begins with.
    MaxDepthBelowDepth,
    /// [`Engine::Local`](crate::Engine::Local) was asked for with
    /// [`Fairness::Batched`](crate::Fairness::Batched), which needs
    /// [`Engine::Shared`](crate::Engine::Shared).
    BatchedNeedsShared,
    /// [`Engine::Local`](crate::Engine::Local) was asked for with
    /// [`round_robin`](crate::SbitmapQueueBuilder::round_robin), which needs
    /// [`Engine::Shared`](crate::Engine::Shared).
    RoundRobinNeedsShared,
    /// [`Engine::Local`](crate::Engine::Local) was asked for with more than 65,536 bits, now or as
    /// `max_depth`; they need [`Engine::Shared`](crate::Engine::Shared).
    DepthNeedsShared,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DepthTooLarge => {
                let most = crate::MAX_DEPTH;
                write!(f, "depth or max_depth is above the maximum of {most}")
            }
            Self::ShiftTooLarge => f.write_str("shift is above 6 (a word has 64 bits)"),
            Self::MaxDepthBelowDepth => f.write_str("max_depth is below the depth"),
            Self::BatchedNeedsShared => f.write_str("Engine::Local cannot serve Fairness::Batched"),
            Self::RoundRobinNeedsShared => f.write_str("Engine::Local cannot hand out round robin"),
            Self::DepthNeedsShared => {
                f.write_str("Engine::Local has at most 65536 bits, max_depth included")
            }
        }
    }
}

impl Error for BuildError {}

/// Why a bit cannot be given back. The bitmap is unchanged for that bit.
///
/// ```
/// use inflight_sbitmap::{PutError, Sbitmap};
/// let map = Sbitmap::builder(8).build().unwrap();
/// assert_eq!(map.put(3), Err(PutError::NotAllocated));
/// assert_eq!(map.put(8), Err(PutError::OutOfRange));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PutError {
    /// Nobody holds the bit: it was given back before, or never handed out.
    NotAllocated,
    /// The bitmap has no such bit: it is not below `max_depth`. Of a [`BitMask`](crate::BitMask)
    /// also: it reaches beyond the word that its first bit is in.
    OutOfRange,
}

impl fmt::Display for PutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAllocated => "the bit is not allocated (given back twice?)",
            Self::OutOfRange => "no such bit: not below max_depth, or a mask beyond its word",
        })
    }
}

impl Error for PutError {}

/// Why a map keeps its depth.
///
/// ```
/// use inflight_sbitmap::{ResizeError, Sbitmap};
/// let map = Sbitmap::builder(8).build().unwrap();
/// assert_eq!(map.resize(0), Err(ResizeError::Zero));
/// assert_eq!(map.resize(9), Err(ResizeError::AboveMaxDepth));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResizeError {
    /// At least one bit must be left.
    Zero,
    /// Above the `max_depth` for which memory was laid out, which is the first depth if none was
    /// asked for.
    AboveMaxDepth,
}

impl fmt::Display for ResizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zero => "a map cannot be resized to no bits",
            Self::AboveMaxDepth => "the depth is above the map's max_depth",
        })
    }
}

impl Error for ResizeError {}
