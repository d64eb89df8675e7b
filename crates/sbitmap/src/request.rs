//! What a crate above asks of a queue, and the rules that it gives it: plain data, and one trait.

use crate::error::GetManyError;
use inflight_sync::cpu;
use inflight_sync::time::Instant;
use std::fmt::Debug;
use std::time::Duration;

/// Which tenant of a queue: its waiters have lists of their own.
pub type TenantIndex = u32;

/// Which tenants may be served. Asked with the queue's lock held, so it must not call the queue.
pub trait ShareLimiter: Debug + Send + Sync {
    /// Whether the tenant may take one more bit now.
    ///
    /// A tenant that may not is passed over. Whoever makes this true for a tenant that waits (other
    /// than by a put, before which it is looked at anew) calls
    /// `shares_changed` afterwards.
    fn may_take(&self, tenant: TenantIndex) -> bool;

    /// The tenant has taken this bit, which waits for nobody else.
    fn took(&self, tenant: TenantIndex, bit: usize);

    /// The bit is about to be put without having been handed out.
    fn gives(&self, bit: usize);

    /// The smallest share of any tenant that counts: what `Batched` makes its wake batch from.
    /// `None`: there are no limits.
    fn least_share(&self) -> Option<usize> {
        None
    }

    /// How often a thread of this tenant that sleeps now is to [look](ShareLimiter::look_for_idle).
    /// `None`: it waits for a put, which wakes it.
    fn look_every(&self, tenant: TenantIndex) -> Option<Duration> {
        let _ = tenant;
        None
    }

    /// Finds tenants that have not used their share for a while. Whether there were any: then the
    /// others may take more, and the caller sees to it that they are served.
    fn look_for_idle(&self, now: Instant) -> bool {
        let _ = now;
        false
    }
}

/// `None`: nobody is kept to a share.
impl ShareLimiter for Option<Box<dyn ShareLimiter>> {
    fn may_take(&self, tenant: TenantIndex) -> bool {
        self.as_ref().is_none_or(|shares| shares.may_take(tenant))
    }

    fn took(&self, tenant: TenantIndex, bit: usize) {
        if let Some(shares) = self {
            shares.took(tenant, bit);
        }
    }

    fn gives(&self, bit: usize) {
        if let Some(shares) = self {
            shares.gives(bit);
        }
    }

    fn least_share(&self) -> Option<usize> {
        self.as_ref()?.least_share()
    }

    fn look_every(&self, tenant: TenantIndex) -> Option<Duration> {
        self.as_ref()?.look_every(tenant)
    }

    fn look_for_idle(&self, now: Instant) -> bool {
        self.as_ref()
            .is_some_and(|shares| shares.look_for_idle(now))
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// How many bits.
    pub want: usize,
    /// How many of them come at once, at least; the last ones may be fewer.
    pub part: usize,
    /// Whose request it is.
    pub tenant: TenantIndex,
    /// Whether it waits in its tenant's list of large requests, which is served by turns with the
    /// other.
    pub large: bool,
    /// Whether it may try although others wait.
    pub privileged: bool,
    /// How many bits its wake is worth: those of requests that follow it are counted too.
    pub weight: u32,
}

impl Request {
    /// One bit.
    #[must_use]
    pub const fn one(tenant: TenantIndex) -> Self {
        Self {
            want: 1,
            part: 1,
            tenant,
            large: false,
            privileged: false,
            weight: 1,
        }
    }

    /// Several bits that come together.
    pub(crate) const fn together(n: usize) -> Self {
        Self {
            want: n,
            part: n,
            ..Self::one(0)
        }
    }
}

/// What a wait ends with.
pub(crate) type Outcome = Result<Ids, GetManyError>;

/// The ids of a waiter: one, without an allocation, or several in the caller's buffer.
#[derive(Debug)]
pub(crate) enum Ids {
    One(Option<usize>),
    Many(Vec<usize>),
}

impl Ids {
    /// Room for `n` ids.
    pub(crate) fn for_many(n: usize) -> Self {
        Self::Many(Vec::with_capacity(n))
    }

    pub(crate) fn push(&mut self, id: usize) {
        match self {
            Self::One(one) => *one = Some(id),
            Self::Many(ids) => ids.push(id),
        }
    }

    pub(crate) const fn one(id: usize) -> Self {
        Self::One(Some(id))
    }

    /// Of a wait for one.
    pub(crate) fn only(self) -> usize {
        self.as_slice()[0]
    }

    pub(crate) fn into_vec(self) -> Vec<usize> {
        match self {
            Self::One(one) => one.into_iter().collect(),
            Self::Many(ids) => ids,
        }
    }

    pub(crate) fn as_slice(&self) -> &[usize] {
        match self {
            Self::One(one) => one.as_slice(),
            Self::Many(ids) => ids,
        }
    }
}

/// When newcomers may try although more than the threshold wait: when tags are plenty.
///
/// Looked at with each batch of wakes, by the number of free tags and the size `B` of the batch.
/// With a batch of one, newcomers are never let past.
///
/// ```
/// # use inflight_sbitmap::tenancy::Force;
/// assert_eq!(Force::default(), Force::Hysteresis);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Force {
    /// From more than `2 * B` free tags on, until at most `B` are.
    #[default]
    Hysteresis,
    /// While at least `2 * B` are free: what the patch series did as posted.
    AsPosted,
    /// Never: only the threshold counts.
    Never,
}

/// Rules for [`Fairness::Batched`](crate::Fairness::Batched): who may try past those who wait.
#[derive(Clone, Copy, Debug)]
pub struct NewcomerPolicy {
    /// While at most so many wait, newcomers try at once.
    pub threshold: usize,
    /// And also then.
    pub force: Force,
    /// Whether a wake is worth the waiter's [`weight`](Request::weight), and not one bit.
    pub per_tag: bool,
}

/// The CPUs that use a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Users {
    /// How many share the free bits: each may keep a part of them.
    pub count: usize,
    /// One more than the largest number of a CPU that may keep any; stays as it was at first.
    pub of: usize,
}

impl Users {
    /// All that the process may use.
    pub(crate) fn all() -> Self {
        Self {
            count: cpu::usable(),
            of: cpu::online(),
        }
    }
}

/// What a queue is given from above.
#[derive(Debug, Default)]
pub struct Rules {
    /// How tenants share the bits.
    pub shares: Option<Box<dyn ShareLimiter>>,
    /// Who may try past those who wait, for `Batched`.
    pub newcomers: Option<NewcomerPolicy>,
    /// Which CPUs use it. `None`: all that the process may use.
    pub users: Option<Users>,
}
