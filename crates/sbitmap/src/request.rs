//! The request of a waiter, and the result of its wait: plain data.

use crate::error::GetManyError;
use crate::share_limiter::TenantIndex;

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
    /// With a smaller depth it is refused: it is for so many together. If this is above 1, its bits
    /// are of no use one by one, so it is given all of them, also above its tenant's limit.
    /// Otherwise parts become as small as the depth.
    pub least_depth: usize,
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
            least_depth: 1,
            privileged: false,
            weight: 1,
        }
    }

    /// Whether the depth has enough bits.
    pub(crate) const fn check(&self, depth: usize) -> Result<(), GetManyError> {
        let n = self.least_depth;
        if n > depth {
            return Err(GetManyError::TooMany { n, depth });
        }
        Ok(())
    }

    /// Several bits that are granted together.
    pub(crate) const fn together(n: usize) -> Self {
        Self {
            want: n,
            part: n,
            least_depth: n,
            ..Self::one(0)
        }
    }
}

/// The result of a wait.
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

    /// The id of a wait for one.
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
