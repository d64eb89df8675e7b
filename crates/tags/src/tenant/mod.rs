//! Tenants: who has how many tags, and how many of them each may have.

mod ledger;

pub(crate) use ledger::{Ledger, Shares};

use crate::freeze::Gate;
use inflight_sbitmap::tenancy::Class;
use inflight_sync::Mutex;

/// How the tenants of a set share its tags, per hardware queue.
///
/// Shares count only while two or more tenants are active at the hardware queue: a lone one has the
/// whole depth. A tenant is active from its first allocation on, until it has used none and waited
/// for none for some time (at most 3 s, found out when another one is at its limit) or its last
/// handle is dropped. An active tenant may have a tag while it has fewer than its share. The tags
/// of one that was dropped are on nobody's account.
///
/// No timer finds idle tenants out: it takes somebody who allocates, comes to wait or gives a tag
/// back. While nobody does, those who wait at their limit sleep on beside an idle tenant's tags.
///
/// The idea is blk-mq's fair sharing of tags; weights and the switch were asked for there and are
/// not part of it.
///
/// # Fairness
///
/// Shares are rounded up and may add up to more than the depth; free tags go round the tenants that
/// wait and are below their share, a request each. Threads that allocate at once may overshoot a
/// share, each by one tag. What a tenant had before others became active is not counted.
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
    /// Each the same: the depth divided by the number of active tenants, at least `min`.
    Fair {
        /// The least share.
        min: usize,
    },
    /// By the weights of the active tenants ([`Queue::set_weight`](crate::Tenant::set_weight)), at
    /// least `min` each, and never less than one tag.
    Weighted {
        /// The least share.
        min: usize,
    },
    /// No limits: who comes first is served first.
    None,
}

impl Default for SharePolicy {
    fn default() -> Self {
        Self::Fair { min: 4 }
    }
}

/// So many tenants are told apart; more share accounts.
pub(crate) const CLASSES: usize = if cfg!(loom) { 3 } else { 256 };

/// An account for a new tenant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) class: Class,
    /// It is the first ever.
    pub(crate) first: bool,
    /// With it two tenants are there at once, for the first time: from now on tags are counted.
    pub(crate) second: bool,
    /// The account was another tenant's, who has left.
    pub(crate) left: bool,
}

/// Which tenant has which account.
#[derive(Debug)]
pub(crate) struct Accounts {
    /// How many tenants each has.
    users: Mutex<Vec<u32>>,
}

impl Accounts {
    pub(crate) fn new() -> Self {
        Self {
            users: Mutex::new(Vec::new()),
        }
    }

    /// An account without tenants and tags, or else a new one, or else the one with the fewest
    /// tenants. From the second tenant on the gate says that there are many, before that tenant can
    /// do anything.
    pub(crate) fn open(&self, gate: &Gate, has_tags: impl Fn(Class) -> bool) -> Opened {
        let mut users = self.users.lock();
        let known = users.len();
        // Who has left counts no more tags, and what its handles did comes before. That a tag is
        // off the account is seen by a Relaxed load: one that is late is a newcomer's.
        let clear = (0..users.len()).find(|&class| users[class] == 0 && !has_tags(class as Class));
        let class = clear.unwrap_or_else(|| {
            if users.len() < CLASSES {
                users.push(0);
                return users.len() - 1;
            }
            let all = users.iter().enumerate();
            all.min_by_key(|&(_, n)| n).map_or(0, |(class, _)| class)
        });
        let left = class < known && users[class] == 0;
        users[class] += 1;
        let first = known == 0;
        let second = users.len() > 1 && !gate.is_many();
        if !first {
            gate.set_many();
        }
        Opened {
            class: class as Class,
            first,
            second,
            left,
        }
    }

    /// Calls `leave` if nobody uses the account any more, and before anybody can again.
    pub(crate) fn close<R>(&self, class: Class, leave: impl FnOnce() -> R) -> Option<R> {
        let mut users = self.users.lock();
        users[class as usize] -= 1;
        (users[class as usize] == 0).then(leave)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn an_account_comes_back_when_neither_handle_nor_tag_is_left() {
        let (accounts, gate) = (Accounts::new(), Gate::new());
        let open = |busy: &[Class]| {
            let opened = accounts.open(&gate, |class| busy.contains(&class));
            (opened.class, opened.left)
        };
        assert_eq!(
            (open(&[]), open(&[]), open(&[])),
            ((0, false), (1, false), (2, false))
        );
        let close = |class| accounts.close(class, || ()).is_some();
        assert!(close(1) && close(2));
        assert_eq!(open(&[0, 1]), (2, true), "1 has tags");
        assert_eq!(open(&[0, 1, 2]), (3, false), "still");
        assert_eq!(open(&[0]), (1, true));
        for class in 4..CLASSES as Class {
            assert_eq!(open(&[]), (class, false));
        }
        assert_eq!(open(&[]), (0, false), "shared, for there are no more");
        assert!(close(5));
        assert_eq!(open(&[5]), (5, true), "rather than with another tenant");
    }
}
