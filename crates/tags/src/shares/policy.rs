//! The size of a tenant's share.

/// How the tenants of a set share its tags, per hardware queue.
///
/// Shares count only while two or more tenants are active at the hardware queue: a single one has
/// the whole depth. A tenant is active from its first allocation on, until it has used no tag and
/// waited for none for some time (at most 3 s, noticed when another tenant is at its limit) or its
/// last handle is dropped. An active tenant may take a tag while it has fewer than its share. The
/// tags of a dropped tenant count for no tenant.
///
/// Threads that wait at their limit search for idle tenants every second, and so does a caller that
/// allocates, begins to wait or gives a tag back. Tasks have no timer: see
/// [`TagSet::reclaim_idle_shares`](crate::TagSet::reclaim_idle_shares).
///
/// The idea is blk-mq's fair sharing of tags; weights and the switch were asked for there and are
/// not part of it.
///
/// # Fairness
///
/// Shares are rounded up and may add up to more than the depth. None is above the depth, whatever
/// `min` is. Free tags go round robin to the tenants that wait and are below their share, a request
/// each. Threads that allocate at once may overshoot a share, each by one tag, and a
/// [join](crate::Split::join) that finds all its tags free by as many as it wants. Tags that a
/// tenant took before others became active are not counted.
///
/// ```
/// use inflight_tags::{SharePolicy, TagSet};
/// let set = TagSet::builder().depth(32).share(SharePolicy::Fair { min: 4 }).build(|_, _| ())?;
/// let (a, b) = (set.add_tenant("a")?, set.add_tenant("b")?);
/// assert_eq!(a.try_alloc_batch(32).len(), 32, "alone");
/// drop(b.try_alloc_batch(1));
/// assert_eq!(a.share(0), Some(16));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SharePolicy {
    /// Equal shares: the depth divided by the number of active tenants, at least `min`.
    Fair {
        /// The smallest share.
        min: usize,
    },
    /// By the weights of the active tenants ([`Tenant::set_weight`](crate::Tenant::set_weight)), at
    /// least `min` each, and never less than one tag.
    Weighted {
        /// The smallest share.
        min: usize,
    },
    /// No limits: first come, first served.
    None,
}

impl Default for SharePolicy {
    fn default() -> Self {
        Self::Fair { min: 4 }
    }
}

impl SharePolicy {
    /// Returns how many of `depth` tags a tenant may have at once, if this many active tenants
    /// share them. `None` for all. `weights` returns its weight, and the sum of all weights.
    pub(super) fn share(
        self,
        depth: usize,
        tenants: usize,
        weights: impl FnOnce() -> (usize, usize),
    ) -> Option<usize> {
        let share = match self {
            Self::None => return None,
            Self::Fair { min } => depth.div_ceil(tenants).max(min),
            Self::Weighted { min } => {
                let (own, all) = weights();
                // At least 1: a tenant of weight 0 would wait for ever.
                (depth * own).div_ceil(all.max(1)).max(min).max(1)
            }
        };
        // The smallest share may be above the depth, which may change.
        Some(share.min(depth))
    }
}
