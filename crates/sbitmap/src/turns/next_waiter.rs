//! The choice of the next waiter: tenants are served round robin, and the two lists of a tenant
//! alternate.
//!
//! A tenant's small requests and its large ones have separate lists, which are served alternately,
//! so that neither waits for all of the other. While the first of one list has a part that its
//! owner has not fetched, or waits for more ids together than there can be now, the other list is
//! served (F2). A queue whose users name no tenant has one tenant with one list: first come, first
//! served.

use super::list::{List, NIL, NodeKey};
use crate::share_limiter::TenantIndex;
use smallvec::SmallVec;

/// The first and the last of a list, by slot.
#[derive(Debug)]
pub(super) struct ListEnds {
    pub(super) head: u32,
    pub(super) tail: u32,
    /// The slot of a request that has had some of its parts, or `NIL`: no other of its list is
    /// served before its end.
    goes_on: u32,
    /// The slot of the thread that checks from time to time whether a token is lost, or `NIL`.
    pub(super) watchdog: u32,
}

impl ListEnds {
    /// The slot of the next to be served.
    const fn first(&self) -> u32 {
        if self.goes_on() {
            self.goes_on
        } else {
            self.head
        }
    }

    const fn goes_on(&self) -> bool {
        self.goes_on != NIL
    }
}

#[derive(Debug)]
struct TenantQueue {
    /// Of the small requests, and of the large ones.
    lists: [ListEnds; 2],
    /// Whether a large one is served next.
    large_next: bool,
}

impl TenantQueue {
    const fn new() -> Self {
        const NOBODY: ListEnds = ListEnds {
            head: NIL,
            tail: NIL,
            goes_on: NIL,
            watchdog: NIL,
        };
        Self {
            lists: [NOBODY; 2],
            large_next: false,
        }
    }

    const fn ends(&self, large: bool) -> &ListEnds {
        &self.lists[large as usize]
    }

    /// The slot of the next to be served: of the request that continues, else of the list whose
    /// turn it is. F2: not of a list whose first `is_passed`.
    fn first(&self, is_passed: impl Fn(u32) -> bool) -> Option<u32> {
        let goes_on = |large| self.ends(large).goes_on();
        let large = goes_on(true) || (!goes_on(false) && self.large_next);
        let lists = [large, !large].map(|large| (large, self.ends(large)));
        let first = lists.into_iter().find(|(large, ends)| {
            let first = ends.first();
            // Only a request that continues can have a part, and only a large one can be too large.
            first != NIL && ((!large && !ends.goes_on()) || !is_passed(first))
        });
        first.map(|(_, ends)| ends.first())
    }
}

/// The ends of all lists, and which is next.
#[derive(Debug)]
pub(super) struct TenantQueues {
    /// The first is in place: most queues have only one.
    all: SmallVec<[TenantQueue; 1]>,
    /// The tenant that is served next, if it can be.
    turn: u32,
    /// The slot of a waiter that has some ids and must get more before any other is served, or
    /// `NIL`.
    pub(super) collecting: u32,
}

impl TenantQueues {
    pub(super) const fn new() -> Self {
        Self {
            all: SmallVec::new_const(),
            turn: 0,
            collecting: NIL,
        }
    }

    fn queue(&mut self, tenant: TenantIndex) -> &mut TenantQueue {
        let tenant = tenant as usize;
        if tenant >= self.all.len() {
            self.all.resize_with(tenant + 1, TenantQueue::new);
        }
        &mut self.all[tenant]
    }

    pub(super) fn ends(&mut self, tenant: TenantIndex, large: bool) -> &mut ListEnds {
        &mut self.queue(tenant).lists[usize::from(large)]
    }

    /// A waiter has left: nothing continues with it, and it watches no more.
    pub(super) fn left(&mut self, tenant: TenantIndex, large: bool, index: u32) {
        let ends = self.ends(tenant, large);
        if ends.goes_on == index {
            ends.goes_on = NIL;
        }
        if ends.watchdog == index {
            ends.watchdog = NIL;
        }
        if self.collecting == index {
            self.collecting = NIL;
        }
    }

    /// Returns whether a waiter of a tenant is in this list.
    pub(super) fn has(&self, tenant: TenantIndex, large: bool) -> bool {
        let queue = self.all.get(tenant as usize);
        queue.is_some_and(|queue| queue.ends(large).head != NIL)
    }

    /// Whether there is only one list: no tenant but the first has ever waited, and there is no
    /// waiter with a large request.
    pub(super) fn has_one_list(&self) -> bool {
        self.all.len() <= 1
            && self
                .all
                .first()
                .is_none_or(|queue| queue.ends(true).head == NIL)
    }

    /// A waiter has been given all it wants.
    pub(super) fn served(&mut self, tenant: TenantIndex, large: bool) {
        self.queue(tenant).large_next = !large;
        self.pass(tenant);
    }

    /// A waiter has been given a part. It continues when its owner has fetched it and its tenant's
    /// turn comes again.
    pub(super) fn served_in_part(&mut self, tenant: TenantIndex, large: bool, index: u32) {
        self.ends(tenant, large).goes_on = index;
        self.pass(tenant);
    }

    fn pass(&mut self, tenant: TenantIndex) {
        self.collecting = NIL;
        self.turn = tenant + 1;
    }

    pub(super) fn heads_and_tails(&self) -> impl Iterator<Item = (u32, u32)> {
        let lists = self.all.iter().flat_map(|queue| &queue.lists);
        lists.map(|ends| (ends.head, ends.tail))
    }
}

impl List {
    /// The next waiter among the tenants that `may` be served. `None` if there is none. A request
    /// whose ids come together is passed over unless so many ids `fit`.
    ///
    /// A collecting waiter is the next although its tenant may not be served any more.
    pub(super) fn next(
        &self,
        may: impl Fn(TenantIndex) -> bool,
        fit: impl Fn(TenantIndex, usize) -> bool,
    ) -> Option<NodeKey> {
        let index = self.next_slot(may, fit)?;
        let serial = self.slots[index as usize].serial;
        Some(NodeKey { index, serial })
    }

    /// Its slot, which is not accessed if the request is small: its cache line is cold.
    pub(super) fn next_slot(
        &self,
        may: impl Fn(TenantIndex) -> bool,
        fit: impl Fn(TenantIndex, usize) -> bool,
    ) -> Option<u32> {
        let tenants = &self.tenants;
        if self.is_empty() || tenants.collecting != NIL {
            return Some(tenants.collecting).filter(|index| *index != NIL);
        }
        let n = tenants.all.len();
        (0..n).find_map(|i| {
            let tenant = match tenants.turn as usize + i {
                tenant if tenant < n => tenant,
                wrapped => wrapped % n,
            };
            let is_passed = |index: u32| {
                let node = self.slots[index as usize].node.as_ref();
                node.is_some_and(|node| {
                    let begins = node.comes_together() && !node.has_some();
                    node.full || (begins && !fit(node.tenant, node.want))
                })
            };
            let index = tenants.all[tenant].first(is_passed)?;
            may(tenant as TenantIndex).then_some(index)
        })
    }
}
