//! The errors of this crate, one small enum per operation.
//!
//! An error contains the values that its operation got and its reader may not know: numbers that
//! were computed or came from a ring, the hardware queue, the token. As in the other crates of the
//! family, `TimedOut` has no duration: it is the argument of the call that failed, and a
//! [`Duration`](std::time::Duration) would make `Result<Tag<T>, AllocError>` half as large again,
//! in each allocation. The text says what did not happen in time.

use crate::shares::SharePolicy;
use crate::token::TokenTail;
use std::time::Duration;

/// The most bytes of a tenant's name.
pub(crate) const NAME_LIMIT: usize = 8192;

/// The error of building a [`TagSet`](crate::TagSet).
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
    /// `max_depth` is below the depth, or above 10,240.
    MaxDepth {
        /// The largest depth asked for.
        max_depth: usize,
        /// The initial depth.
        depth: usize,
    },
    /// The largest number of hardware queues is below the number to begin with, or above 65,536.
    MaxHwQueues {
        /// The largest number asked for.
        max_hw_queues: usize,
        /// The initial number.
        hw_queues: usize,
    },
    /// [`Engine::Local`](crate::Engine::Local) was chosen together with an
    /// [`Admission`](crate::Admission) other than [`WholeIo`](crate::Admission::WholeIo), which
    /// needs [`Engine::Shared`](crate::Engine::Shared).
    BatchedNeedsShared,
    /// The reserved tags leave no normal one.
    Reserved {
        /// The number of reserved tags asked for.
        reserved: usize,
        /// The depth, which includes them.
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
        /// The number for reads.
        read: usize,
        /// The number for polled requests.
        poll: usize,
        /// The total number.
        hw_queues: usize,
    },
    /// A [`timeout`](crate::TagSetBuilder::timeout) together with
    /// [`ages(false)`](crate::TagSetBuilder::ages): without the times no request expires.
    TimeoutNeedsAges {
        /// The timeout asked for.
        timeout: Duration,
    },
    /// All hardware queues together have more than 2^24 tags.
    TooLarge {
        /// The number of their tags.
        tags: usize,
    },
}

inflight_sync::error_text!(BuildError {
    Self::HwQueues { hw_queues } =>
        "the number of hardware queues, {hw_queues}, is not in 1 to 65536",
    Self::Depth { depth } => "depth {depth} is not in 1 to 10240",
    Self::MaxDepth { max_depth, depth } =>
        "max_depth {max_depth} is not in {depth} (the depth) to 10240",
    Self::MaxHwQueues { max_hw_queues, hw_queues } =>
        "the largest number of hardware queues, {max_hw_queues}, is not in {hw_queues} (the first \
         number) to 65536",
    Self::BatchedNeedsShared => "Engine::Local supports only Admission::WholeIo",
    Self::Reserved { reserved, depth } =>
        "{reserved} reserved tags leave no normal one at depth {depth}",
    Self::Extra { extra } => "{extra} tags beyond the depth are more than 10240",
    Self::Kinds { read, poll, hw_queues } =>
        "{read} read and {poll} poll queues leave no default one of {hw_queues}",
    Self::TimeoutNeedsAges { timeout } =>
        "the timeout {timeout:?} would never pass: with ages(false) no request expires",
    Self::TooLarge { tags } => "{tags} tags are more than 16777216",
});

/// The error of a change of size. The size is unchanged.
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
    /// The number of hardware queues is outside the set's limits.
    HwQueues {
        /// The number asked for.
        hw_queues: usize,
        /// The builder's [`max`](crate::HwQueueOptions::max).
        most: usize,
    },
    /// A tag is held or in flight now, granted to a waiter or collected by a split (see
    /// [`freeze`](crate::TagSet::freeze)), or is just about to be refused to another caller. Only
    /// the try form returns this.
    InUse,
    /// The time was up before there was no such tag.
    TimedOut,
}

inflight_sync::error_text!(ResizeError {
    Self::Depth { depth, least, most } =>
        "depth {depth} is not in {least} (one more than reserved) to {most} (the builder's \
         max_depth)",
    Self::HwQueues { hw_queues, most } =>
        "the number of hardware queues, {hw_queues}, is not in 1 to {most} (the set's \
         HwQueueOptions::max)",
    Self::InUse => "a tag is held, in flight, granted to a waiter or collected by a split",
    Self::TimedOut =>
        "timed out while tags were held, in flight, granted to waiters or collected by splits",
});

impl From<FreezeError> for ResizeError {
    fn from(error: FreezeError) -> Self {
        match error {
            FreezeError::InUse => Self::InUse,
            FreezeError::TimedOut => Self::TimedOut,
        }
    }
}

/// The error of adding a tenant.
///
/// ```
/// use inflight_tags::{TagSet, TenantError};
/// let set = TagSet::builder().build(|_, _| ())?;
/// let disk = set.add_tenant("sda")?;
/// let error = set.add_tenant("sda").unwrap_err();
/// assert_eq!(error, TenantError::NameTaken { name: "sda".into() });
/// drop(disk);
/// assert!(set.add_tenant("sda").is_ok(), "its last handle is gone");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TenantError {
    /// Another tenant of the set has the name: their counters could not be told apart.
    NameTaken {
        /// The name asked for.
        name: String,
    },
    /// The name is empty.
    EmptyName,
    /// The name has more than 8,192 bytes.
    NameTooLong {
        /// The length of the name.
        bytes: usize,
    },
    /// The set is [closed](crate::TagSet::close).
    Closed,
}

inflight_sync::error_text!(TenantError {
    Self::NameTaken { name } => "the tag set already has a tenant named {name:?}",
    Self::EmptyName => "the name of the tenant is empty",
    Self::NameTooLong { bytes } =>
        "the name of the tenant has {bytes} bytes, more than {NAME_LIMIT}",
    Self::Closed => "the tag set is closed",
});

/// The error of setting a tenant's weight. The weight is unchanged.
///
/// ```
/// use inflight_tags::{SharePolicy, TagSet, WeightError};
/// let set = TagSet::builder().build(|_, _| ())?;
/// let policy = SharePolicy::default();
/// let error = WeightError::NotWeighted { weight: 3, policy };
/// assert_eq!(set.add_tenant("sda")?.set_weight(3), Err(error));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WeightError {
    /// The set does not share by weights, but by another policy.
    NotWeighted {
        /// The weight asked for.
        weight: u32,
        /// The policy of the set.
        policy: SharePolicy,
    },
}

inflight_sync::error_text!(WeightError {
    Self::NotWeighted { weight, policy } =>
        "weight {weight} would have no effect: the set shares by {policy:?}, not \
         SharePolicy::Weighted",
});

/// The error of freezing a set, or of draining a quiesced one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FreezeError {
    /// A tag is held or in flight now, granted to a waiter or collected by a split (see
    /// [`freeze`](crate::TagSet::freeze)), or is just about to be refused to another caller. Only
    /// the try forms return this.
    InUse,
    /// The time was up before the last of these tags was freed.
    TimedOut,
}

inflight_sync::error_text!(FreezeError {
    Self::InUse => "a tag is held, in flight, granted to a waiter or collected by a split",
    Self::TimedOut =>
        "timed out while tags were held, in flight, granted to waiters or collected by splits",
});

/// The error of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocError {
    /// There is no tag for this caller now: on this hardware queue all tags of the kind asked for
    /// are in use, or its tenant has its [share](crate::SharePolicy), or others wait and are before
    /// it. Only the try forms return this.
    Exhausted,
    /// The set is frozen. Only the try forms return this.
    Frozen,
    /// The set is [quiesced](crate::TagSet::quiesce). Only the try forms return this.
    Quiesced,
    /// The time was up before a tag was free, or before the set was thawed.
    TimedOut,
    /// A reserved tag was asked for and the set has none.
    NoReserved,
    /// The options name a hardware queue that the set does not have.
    NoSuchHwQueue {
        /// Its number; 2^32 - 2 for all larger numbers.
        hw_queue: u32,
    },
    /// [`mapped_hw_queue`](crate::AllocOptions::mapped_hw_queue) asks for a hardware queue that
    /// serves no CPU.
    Unmapped {
        /// Its number.
        hw_queue: u32,
    },
    /// The options name a hardware queue whose CPUs are all [offline](crate::Cpus::offline).
    InactiveHwQueue {
        /// Its number.
        hw_queue: u32,
    },
    /// All tags of a [`Split`](crate::Split) were asked for at once, and there are not so many.
    TooMany {
        /// The number of its pieces; 2^32 - 1 for all larger numbers.
        pieces: u32,
        /// The number of tags of the kind on the hardware queue.
        depth: u16,
    },
    /// The set is [closed](crate::TagSet::close).
    Closed,
}

inflight_sync::error_text!(AllocError {
    Self::Exhausted =>
        "no tag for this tenant now: all tags of this hardware queue are in use, its share is \
         used up, or others wait",
    Self::Frozen => "the tag set is frozen",
    Self::Quiesced => "the tag set is quiesced",
    Self::TimedOut => "timed out before a tag was available",
    Self::NoReserved => "the tag set has no reserved tags",
    Self::NoSuchHwQueue { hw_queue: 4_294_967_294 } =>
        "the tag set has no hardware queue 4294967294 or above",
    Self::NoSuchHwQueue { hw_queue } => "the tag set has no hardware queue {hw_queue}",
    Self::Unmapped { hw_queue } => "hardware queue {hw_queue} serves no CPU",
    Self::InactiveHwQueue { hw_queue } => "all CPUs of hardware queue {hw_queue} are offline",
    Self::TooMany { pieces: u32::MAX, depth } =>
        "4294967295 or more tags at once are more than the {depth} of the hardware queue",
    Self::TooMany { pieces, depth } =>
        "{pieces} tags at once are more than the {depth} of the hardware queue",
    Self::Closed => "the tag set is closed",
});

/// The error of draining a hardware queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DrainError {
    /// The hardware queue serves CPUs, or did so meanwhile.
    Active {
        /// Its number.
        hw_queue: usize,
    },
    /// One of its tags is held or in flight now, granted to a waiter or collected by a split, or is
    /// just about to be refused to another caller. Only the try form returns this.
    InUse {
        /// Its number.
        hw_queue: usize,
    },
    /// The time was up before its last tag was freed.
    TimedOut {
        /// Its number.
        hw_queue: usize,
    },
    /// The set has no such hardware queue.
    NoSuchHwQueue {
        /// The number asked for.
        hw_queue: usize,
    },
}

inflight_sync::error_text!(DrainError {
    Self::Active { hw_queue } => "hardware queue {hw_queue} serves CPUs",
    Self::InUse { hw_queue } =>
        "a tag of hardware queue {hw_queue} is held, in flight, granted to a waiter or collected \
         by a split",
    Self::TimedOut { hw_queue } =>
        "timed out while tags of hardware queue {hw_queue} were held, in flight, granted to \
         waiters or collected by splits",
    Self::NoSuchHwQueue { hw_queue } => "the tag set has no hardware queue {hw_queue}",
});

/// The error of waiting for a late request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExpireError {
    /// The time to wait was up before the time of any request was.
    TimedOut,
}

inflight_sync::error_text!(ExpireError {
    Self::TimedOut => "the wait timed out before a request did",
});

/// The error of redeeming a token. Each variant has the token's [lower 56 bits](TokenTail).
///
/// ```
/// use inflight_tags::{AllocOptions, RedeemError, TagSet};
/// let set = TagSet::builder().depth(1).build(|_, _| ())?;
/// let dev = set.add_tenant("nvme0n1")?;
/// let token = dev.try_alloc()?.into_token();
/// let tag = set.redeem(token)?;
/// let again = set.redeem(token).unwrap_err();
/// assert_eq!(again, RedeemError::NotInFlight { token: token.into() }, "a second completion");
/// drop(tag);
/// let stale = set.redeem(token).unwrap_err();
/// assert_eq!(stale, RedeemError::Stale { token: token.into() }, "its slot has been freed");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RedeemError {
    /// The slot has been freed or issued again since the token was made, or the token is damaged.
    Stale {
        /// The token.
        token: TokenTail,
    },
    /// The tag is not in flight: this token has been redeemed before.
    NotInFlight {
        /// The token.
        token: TokenTail,
    },
    /// An owner held the tag and [tracked](crate::Tag::track) it when its time was up:
    /// [`Expired`](crate::Expired) tells of it, and there is nothing to redeem.
    Held {
        /// The slot and its generation, in the form of a token.
        token: TokenTail,
    },
    /// The set has no slot of that number: the token is damaged.
    OutOfRange {
        /// The token.
        token: TokenTail,
    },
    /// Another set made the token. A number that never was a token mostly gets this error too.
    Foreign {
        /// The token.
        token: TokenTail,
    },
    /// The number is 0 or `u64::MAX`, which no token is; for example a ring's user data that was
    /// never set.
    NoToken {
        /// The number.
        token: TokenTail,
    },
    /// The request was marked as timed out: its completion is late. Its tag goes to the handler of
    /// the timeout ([`redeem_timed_out`](crate::TagSet::redeem_timed_out)), or the handler has had
    /// it. When the slot's next owner submits, [tracks](crate::Tag::track) or frees its tag, the
    /// token is `Stale` instead.
    TimedOut {
        /// The token.
        token: TokenTail,
    },
    /// [`redeem_timed_out`](crate::TagSet::redeem_timed_out) was called for a tag that is in flight
    /// and has not been marked.
    NotTimedOut {
        /// The token.
        token: TokenTail,
    },
}

inflight_sync::error_text!(RedeemError {
    Self::Stale { token } =>
        "the tag of token {token} has been freed or submitted again since, or the token is \
         damaged",
    Self::NotInFlight { token } =>
        "the tag of token {token} is not in flight: the token has been redeemed",
    Self::Held { token } =>
        "the tag is held by its owner, who tracks it: there is nothing to redeem (slot and \
         generation: {token})",
    Self::OutOfRange { token } =>
        "token {token} names a slot that the tag set does not have: it is damaged",
    Self::Foreign { token } => "another tag set made token {token}, or it is damaged",
    Self::NoToken { token } => "0 and u64::MAX are no tokens: was the user data ({token}) set?",
    Self::TimedOut { token } =>
        "the request of token {token} has timed out: its completion is late, and the handler of \
         the timeout gets or has had its tag",
    Self::NotTimedOut { token } => "the tag of token {token} is in flight and has not timed out",
});
