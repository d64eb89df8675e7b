//! What can go wrong, one small enum per operation.

use std::error::Error;
use std::fmt;

/// Why a [`TagSetBuilder`](crate::TagSetBuilder) refused.
///
/// ```
/// use inflight_tags::{BuildError, TagSet};
/// let error = TagSet::builder().depth(8).reserved(8).build(|_, _| ()).unwrap_err();
/// assert_eq!(error, BuildError::Reserved { reserved: 8, depth: 8 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// The number of hardware queues is not in 1..=65,536.
    HwQueues {
        /// The number asked for.
        hw_queues: usize,
    },
    /// The depth is not in 1..=10,240.
    Depth {
        /// The depth asked for.
        depth: usize,
    },
    /// The reserved tags leave no normal one.
    Reserved {
        /// How many reserved tags were asked for.
        reserved: usize,
        /// The depth they are to come out of.
        depth: usize,
    },
    /// [`Admission::ElasticOvercommit`](crate::Admission::ElasticOvercommit) asks for more than
    /// 10,240 tags beyond the depth.
    Extra {
        /// The number asked for.
        extra: usize,
    },
    /// The hardware queues for reads and for polled requests leave no default one.
    Kinds {
        /// How many are asked for for reads.
        read: usize,
        /// How many are asked for for polled requests.
        poll: usize,
        /// How many there are in all.
        hw_queues: usize,
    },
    /// All hardware queues together have more than 2^24 tags.
    TooLarge {
        /// How many tags they have.
        tags: usize,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HwQueues { hw_queues } => {
                write!(
                    f,
                    "{hw_queues} hardware queues asked for; 1 to 65536 are possible"
                )
            }
            Self::Depth { depth } => write!(f, "depth {depth} is not in 1 to 10240"),
            Self::Reserved { reserved, depth } => {
                write!(
                    f,
                    "{reserved} reserved tags leave no normal one at depth {depth}"
                )
            }
            Self::Extra { extra } => {
                write!(f, "{extra} tags beyond the depth are more than 10240")
            }
            Self::Kinds {
                read,
                poll,
                hw_queues,
            } => {
                write!(
                    f,
                    "{read} read and {poll} poll queues leave no default one of {hw_queues}"
                )
            }
            Self::TooLarge { tags } => write!(f, "{tags} tags are more than 16777216"),
        }
    }
}

impl Error for BuildError {}

/// Why a set kept its size.
///
/// ```
/// use inflight_tags::{ResizeError, TagSet};
/// let set = TagSet::builder().depth(8).reserved(2).build(|_, _| ())?;
/// let error = set.resize(9).unwrap_err();
/// assert_eq!(error, ResizeError::Depth { depth: 9, least: 3, most: 8 });
/// # Ok::<(), inflight_tags::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResizeError {
    /// The depth is outside the set's limits.
    Depth {
        /// The depth asked for.
        depth: usize,
        /// One more than the reserved tags.
        least: usize,
        /// The builder's [`max_depth`](crate::TagSetBuilder::max_depth).
        most: usize,
    },
    /// There cannot be so many hardware queues.
    HwQueues {
        /// The number asked for.
        hw_queues: usize,
        /// The builder's [`max_hw_queues`](crate::TagSetBuilder::max_hw_queues).
        most: usize,
    },
    /// The time was up before no tag was held or in flight.
    TimedOut,
}

impl fmt::Display for ResizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Depth { depth, least, most } => {
                write!(
                    f,
                    "depth {depth} is not in {least} (one more than reserved) to {most} (the \
                     builder's max_depth)"
                )
            }
            Self::HwQueues { hw_queues, most } => {
                write!(
                    f,
                    "{hw_queues} hardware queues asked for; 1 to {most} (the builder's \
                     max_hw_queues) are possible"
                )
            }
            Self::TimedOut => f.write_str("tags were in use until the time was up"),
        }
    }
}

impl Error for ResizeError {}

/// Why a [`Queue`](crate::Queue) gave no tag.
///
/// ```
/// use inflight_tags::{AllocError, AllocOptions, TagSet};
/// let set = TagSet::builder().depth(1).build(|_, _| ())?;
/// let dev = set.add_queue("nvme0n1");
/// let _held = dev.try_alloc(AllocOptions::new())?;
/// assert_eq!(dev.try_alloc(AllocOptions::new()).unwrap_err(), AllocError::Exhausted);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocError {
    /// There is no tag for this caller now: on this hardware queue all tags of the kind asked for
    /// are in use, or its tenant has its [share](crate::SharePolicy), or others wait and come
    /// first. Only the try forms say so.
    Exhausted,
    /// The set is frozen. Only the try forms say so.
    Frozen,
    /// The set is [quiesced](crate::TagSet::quiesce). Only the try forms say so.
    Quiesced,
    /// The time was up before a tag was free, or before the set was thawed.
    TimedOut,
    /// A reserved tag was asked for and the set has none.
    NoReserved,
    /// A hardware queue was asked for that the set does not have.
    NoSuchHwQueue,
    /// [`mapped_hw_queue`](crate::AllocOptions::mapped_hw_queue) asks for a hardware queue that
    /// serves no CPU.
    Unmapped,
    /// A hardware queue was asked for all CPUs of which are
    /// [offline](crate::TagSet::cpu_offline).
    InactiveHwQueue,
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exhausted => {
                "no tag for this tenant now: all tags of this hardware queue are in use, its \
                 share is used up, or others wait"
            }
            Self::Frozen => "the tag set is frozen",
            Self::Quiesced => "the tag set is quiesced",
            Self::TimedOut => "no tag could be had before the time was up",
            Self::NoReserved => "the tag set has no reserved tags",
            Self::NoSuchHwQueue => "the tag set has no such hardware queue",
            Self::Unmapped => "the hardware queue serves no CPU",
            Self::InactiveHwQueue => "all CPUs of this hardware queue are offline",
        })
    }
}

impl Error for AllocError {}

/// Why a hardware queue was not drained.
///
/// ```
/// use inflight_tags::{DrainError, TagSet};
/// let set = TagSet::builder().hw_queues(2).build(|_, _| ())?;
/// assert_eq!(set.drain_hw_queue_blocking(1), Err(DrainError::Active));
/// # Ok::<(), inflight_tags::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DrainError {
    /// It serves, or did so meanwhile.
    Active,
    /// The time was up before its last tag was freed.
    TimedOut,
    /// The set has no such hardware queue.
    NoSuchHwQueue,
}

impl fmt::Display for DrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Active => "the hardware queue is in service",
            Self::TimedOut => "the hardware queue was not drained in time",
            Self::NoSuchHwQueue => "the tag set has no such hardware queue",
        })
    }
}

impl Error for DrainError {}

/// Why a token was not turned back into its tag.
///
/// ```
/// use inflight_tags::{AllocOptions, RedeemError, TagSet};
/// let set = TagSet::builder().depth(1).build(|_, _| ())?;
/// let dev = set.add_queue("nvme0n1");
/// let token = dev.try_alloc(AllocOptions::new())?.into_token();
/// let tag = set.redeem(token)?;
/// assert_eq!(set.redeem(token).unwrap_err(), RedeemError::NotInFlight, "a second completion");
/// drop(tag);
/// assert_eq!(set.redeem(token).unwrap_err(), RedeemError::Stale, "its slot has been freed");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedeemError {
    /// The slot has been freed or issued again since the token was made, or the token is damaged.
    Stale,
    /// The tag is not in flight: somebody has redeemed this token before.
    NotInFlight,
    /// The set has no slot of that number: the token is damaged.
    OutOfRange,
    /// Another set made the token. Numbers that never were tokens, 0 and `u64::MAX` among them,
    /// mostly look like that too.
    Foreign,
    /// The tag was marked as timed out; it belongs to whoever handles the timeout.
    TimedOut,
    /// [`redeem_timed_out`](crate::TagSet::redeem_timed_out) was called for a tag that is in flight
    /// and has not been marked.
    NotTimedOut,
}

impl fmt::Display for RedeemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stale => {
                "the tag of this token has been freed or submitted again since, or the token is \
                 damaged"
            }
            Self::NotInFlight => "the tag of this token is not in flight: somebody has redeemed it",
            Self::OutOfRange => "the tag set has no slot of this token's number: it is damaged",
            Self::Foreign => "another tag set made this token, or it is damaged",
            Self::TimedOut => {
                "the request of this token has timed out: its tag is for who handles that, by \
                 redeem_timed_out"
            }
            Self::NotTimedOut => "the tag of this token is in flight and has not timed out",
        })
    }
}

impl Error for RedeemError {}
