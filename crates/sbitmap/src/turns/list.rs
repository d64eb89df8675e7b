//! The waiters: their order, and the node of each.
//!
//! Plain data under a lock: doubly linked lists over the indices of a `Vec`, two for each tenant
//! (`next_waiter.rs`). Nothing is allocated once the list has had its largest size, and a waiter
//! leaves in constant time. A granted node is no longer linked; it stays in its slot until its
//! owner fetches it.

#![allow(
    clippy::inline_always,
    reason = "a node is made in its slot: a copy would wait for the stores of its fields"
)]

use super::next_waiter::TenantQueues;
use crate::request::{Ids, Request};
use crate::share_limiter::TenantIndex;
use inflight_sync::prefetch_to_write;
use inflight_sync::wait::Notify;
use std::num::NonZeroU32;

pub(super) const NIL: u32 = u32::MAX;

/// Identifies one wait of one waiter. A key of a waiter that has left matches nothing, until the
/// serials have come round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeKey {
    pub(super) index: u32,
    pub(super) serial: NonZeroU32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaiterState {
    Waiting,
    /// Has all its ids.
    Granted {
        /// The serial of the grant.
        serial: u32,
    },
    /// Will never have as many ids as it wants: that is the depth, or the queue is closed.
    Refused {
        depth: usize,
    },
}

/// One waiter.
#[derive(Debug)]
pub(super) struct Node {
    /// Whether its owner waits as a thread now, timed or not; else it is a task.
    pub(super) is_thread: bool,
    pub(super) tenant: TenantIndex,
    /// Which of its tenant's two lists it waits in.
    pub(super) large: bool,
    /// How many ids it waits for.
    pub(super) want: usize,
    /// How many of them are granted at once: all, or the parts of a request that continues.
    pub(super) part: usize,
    /// With a smaller depth it is refused.
    pub(super) least_depth: usize,
    /// Whether it has a part that its owner has to fetch; it keeps its position meanwhile.
    pub(super) full: bool,
    /// The wake epoch in which its token was taken, if it took one.
    pub(super) token: Option<u32>,
    pub(super) ids: Ids,
    /// The credits of the turn that its grant begins or continues.
    pub(super) credits: u32,
    pub(super) state: WaiterState,
    /// `None` while another thread is about to notify it, or has.
    pub(super) notify: Option<Notify>,
    /// Whether it must get several ids without others in between. The last id of a request that
    /// came in parts is one of several.
    pub(super) several: bool,
    /// Whether earlier turns have been ended for it.
    pub(super) collects: bool,
}

pub(super) const fn is_thread(notify: &Notify) -> bool {
    matches!(notify, Notify::Thread(_))
}

impl Node {
    #[inline(always)]
    pub(super) fn new(notify: Notify, of: Request, ids: Ids, credits: u32) -> Self {
        Self {
            is_thread: is_thread(&notify),
            tenant: of.tenant,
            large: of.large,
            want: of.want,
            part: of.part,
            least_depth: of.least_depth,
            full: false,
            token: None,
            ids,
            credits,
            state: WaiterState::Waiting,
            notify: Some(notify),
            several: of.want > 1 || of.large,
            collects: false,
        }
    }

    pub(super) fn push_id(&mut self, id: usize) {
        self.ids.push(id);
    }

    pub(super) fn has_all(&self) -> bool {
        self.ids.as_slice().len() == self.want
    }

    /// Whether it has as many as are granted at once.
    pub(super) fn has_part(&self) -> bool {
        self.ids.as_slice().len() >= self.part.min(self.want)
    }

    /// Whether some of its ids are of no use to it without the others.
    pub(super) const fn comes_together(&self) -> bool {
        self.least_depth > 1
    }

    pub(super) fn has_some(&self) -> bool {
        !self.ids.as_slice().is_empty()
    }

    /// Whether it must be woken when it is served. A waiter whose owner is not asleep finds out by
    /// itself.
    pub(super) const fn sleeps(&self) -> bool {
        self.is_thread && self.notify.is_some()
    }
}

/// Two cache lines: the granter and the owner may be on two CPUs.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct ListSlot {
    /// `None` while the slot is free.
    pub(super) node: Option<Node>,
    /// Of the wait that the slot holds or held last.
    pub(super) serial: NonZeroU32,
    /// Meaningless for the first of a list.
    prev: u32,
    /// The next waiter, or the next free slot.
    next: u32,
}

#[cfg(all(target_pointer_width = "64", not(any(loom, shuttle))))]
const _: () = assert!(size_of::<ListSlot>() <= 128);

#[derive(Debug)]
pub(super) struct List {
    pub(super) slots: Vec<ListSlot>,
    pub(super) tenants: TenantQueues,
    free: u32,
    len: u32,
    /// The number of waiters for several ids.
    several: u32,
    last_serial: NonZeroU32,
}

impl List {
    pub(super) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            tenants: TenantQueues::new(),
            free: NIL,
            len: 0,
            several: 0,
            last_serial: NonZeroU32::MAX,
        }
    }

    /// The number of waiters that have not been granted.
    pub(super) const fn len(&self) -> usize {
        self.len as usize
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether there is no waiter for several ids.
    pub(super) const fn all_want_one(&self) -> bool {
        self.several == 0
    }

    /// Adds a node at the back of its list, or at the front.
    #[inline(always)]
    pub(super) fn push(&mut self, node: Node, front: bool) -> NodeKey {
        let (tenant, large) = (node.tenant, node.large);
        self.several += u32::from(node.several);
        let key = self.place(node);
        let index = key.index;
        let ends = self.tenants.ends(tenant, large);
        let (head, tail) = (ends.head, ends.tail);
        if front || head == NIL {
            ends.head = index;
        }
        if !front || tail == NIL {
            ends.tail = index;
        }
        if front {
            self.slot(index).next = head;
            if head != NIL {
                self.slot(head).prev = index;
            }
        } else {
            self.slot(index).prev = tail;
            if tail != NIL {
                self.slot(tail).next = index;
            }
        }
        key
    }

    /// Returns a slot for the node, without links.
    #[inline(always)]
    fn place(&mut self, node: Node) -> NodeKey {
        let serial = self.last_serial.checked_add(1).unwrap_or(NonZeroU32::MIN);
        self.last_serial = serial;
        self.len += 1;
        let new = ListSlot {
            node: Some(node),
            serial,
            prev: NIL,
            next: NIL,
        };
        let index = self.free;
        if let Some(slot) = self.slots.get_mut(index as usize) {
            self.free = slot.next;
            *slot = new;
            return NodeKey { index, serial };
        }
        let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 waiters");
        self.slots.push(new);
        NodeKey { index, serial }
    }

    fn slot(&mut self, index: u32) -> &mut ListSlot {
        &mut self.slots[index as usize]
    }

    /// The node of a waiter that has not left, granted or not.
    pub(super) fn node(&mut self, key: NodeKey) -> Option<&mut Node> {
        let slot = self.slots.get_mut(key.index as usize)?;
        slot.node.as_mut().filter(|_| slot.serial == key.serial)
    }

    pub(super) fn is_waiting(&self, key: NodeKey) -> bool {
        self.peek(key)
            .is_some_and(|n| n.state == WaiterState::Waiting)
    }

    pub(super) fn peek(&self, key: NodeKey) -> Option<&Node> {
        let slot = self.slots.get(key.index as usize)?;
        slot.node.as_ref().filter(|_| slot.serial == key.serial)
    }

    /// Whether its owner has something to fetch.
    pub(super) fn is_served(&self, key: NodeKey) -> bool {
        let node = self.peek(key);
        node.is_some_and(|node| node.full || node.state != WaiterState::Waiting)
    }

    /// Takes the part that a node has, its token, and how its owner was to be told. The node
    /// continues, in its position; until its owner is back, nobody is to be told.
    pub(super) fn take_part(&mut self, key: NodeKey) -> Option<(Ids, Option<u32>, Option<Notify>)> {
        let node = self.node(key).filter(|node| node.full)?;
        node.full = false;
        // When it is next again, turns that have begun meanwhile have to end.
        node.collects = false;
        let ids = std::mem::replace(&mut node.ids, Ids::Many(Vec::new()));
        node.want -= ids.as_slice().len();
        Some((ids, node.token.take(), node.notify.take()))
    }

    /// Ends a waiter's wait; its node stays for its owner. The caller says how it ended.
    pub(super) fn unlink(&mut self, key: NodeKey) -> &mut Node {
        debug_assert!(self.is_waiting(key));
        let slot = self.slot(key.index);
        let (prev, next) = (slot.prev, slot.next);
        let node = slot.node.as_ref().expect("the waiter is in the list");
        let (tenant, large) = (node.tenant, node.large);
        self.several -= u32::from(node.several);
        let ends = self.tenants.ends(tenant, large);
        if ends.head == key.index {
            // The new head is not accessed: its cache line is cold.
            ends.head = next;
            if next == NIL {
                ends.tail = NIL;
            }
        } else {
            if next == NIL {
                ends.tail = prev;
            } else {
                self.slot(next).prev = prev;
            }
            self.slot(prev).next = next;
        }
        self.len -= 1;
        self.tenants.left(tenant, large, key.index);
        self.node(key).expect("the waiter is in the list")
    }

    /// The waiter in this slot is served next, and then the one behind it: prefetches what both
    /// need, which is cold if there are thousands.
    pub(super) fn prefetch_next(&self, index: u32) {
        let Some(slot) = self.slots.get(index as usize) else {
            return;
        };
        if let Some(notify) = slot.node.as_ref().and_then(|node| node.notify.as_ref()) {
            notify.prefetch();
        }
        if let Some(behind) = self.slots.get(slot.next as usize) {
            // Two cache lines.
            prefetch_to_write(behind);
            prefetch_to_write(&behind.serial);
        }
    }

    /// Takes a waiter's node out, as it is, and frees its slot. `None` if it has left before.
    pub(super) fn remove(&mut self, key: NodeKey) -> Option<Node> {
        if self.is_waiting(key) {
            self.unlink(key);
        }
        self.node(key)?;
        let free = self.free;
        self.free = key.index;
        let slot = self.slot(key.index);
        slot.next = free;
        slot.node.take()
    }

    /// The number of ids that waiters have and have not fetched: of those that have all they want,
    /// and of those that have not.
    pub(super) fn unfetched(&self) -> (usize, usize) {
        let nodes = self.slots.iter().filter_map(|slot| slot.node.as_ref());
        nodes.fold((0, 0), |(granted, collected), node| {
            let ids = node.ids.as_slice().len();
            match node.state {
                WaiterState::Granted { .. } => (granted + ids, collected),
                WaiterState::Waiting | WaiterState::Refused { .. } => (granted, collected + ids),
            }
        })
    }

    /// Returns all waiters, from the newest to the oldest.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = NodeKey> {
        // Serials come round.
        let age = |slot: &ListSlot| self.last_serial.get().wrapping_sub(slot.serial.get());
        let mut at: Vec<(u32, u32)> = self.tenants.heads_and_tails().collect();
        std::iter::from_fn(move || {
            let slot = |index: u32| self.slots.get(index as usize);
            let (head, newest) = at
                .iter_mut()
                .filter(|(_, index)| *index != NIL)
                .min_by_key(|(_, index)| slot(*index).map(age))?;
            let index = *newest;
            let slot = slot(index)?;
            *newest = if index == *head { NIL } else { slot.prev };
            Some(NodeKey {
                index,
                serial: slot.serial,
            })
        })
    }

    /// How to wake all waiters. Threads stay as they are; tasks register their wakers again.
    pub(super) fn notify_all(&mut self) -> Vec<Notify> {
        let keys: Vec<NodeKey> = self.newest_first().collect();
        let mut all = Vec::with_capacity(keys.len());
        for key in keys.into_iter().rev() {
            let node = self.node(key).expect("the waiter is in the list");
            all.extend(match &node.notify {
                // Not for a task's waker: cloning it may run anything.
                Some(Notify::Thread(unparker)) => Some(Notify::Thread(unparker.clone())),
                _ => node.notify.take(),
            });
        }
        all
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::task::Waker;

    /// Of different tenants, so that the serials alone say who is newer.
    #[test]
    fn the_newest_are_found_when_the_serials_come_round() {
        let mut list = List::new();
        list.last_serial = NonZeroU32::new(u32::MAX - 2).unwrap();
        let mut wait = |tenant| {
            let notify = Notify::Task(Waker::noop().clone());
            let node = Node::new(notify, Request::one(tenant), Ids::One(None), 0);
            list.push(node, false)
        };
        let mut keys: Vec<NodeKey> = [2, 0, 3, 1].map(&mut wait).into();
        keys.reverse();
        assert_eq!(list.newest_first().collect::<Vec<_>>(), keys);
    }
}
