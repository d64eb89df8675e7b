//! Who is served next: the state under the list's lock, and the service. Events V1 to V4.

use super::list::{Kind, List, Node, NodeKey, WaiterState};
use super::order::{ListEnds, RequestSize};
use super::wake_set::WakeSet;
use super::{Policy, Turns};
use crate::request::ShareLimiter as _;
use crate::store::Store;
use inflight_sync::atomic::{Ordering, fence};
use inflight_sync::wait::Notify;

#[derive(Debug)]
pub(super) struct WaitQueue {
    pub(super) list: List,
    /// Of the last grant. [`UnlockedState::grants`] follows it.
    pub(super) serial: u32,
    /// Threads that were granted and woken in this wake_epoch and have not yet run.
    tokens: u32,
    /// Ends when a token is given up for lost: it no longer counts.
    wake_epoch: u32,
    /// Whether puts and gets know that somebody waits.
    announced: bool,
    /// Whether the queue is closed: for good.
    pub(super) closed: bool,
    /// Whether gets know that nobody who waits can be served.
    held_up: bool,
    pub(super) waits: u64,
    pub(super) wakeups: u64,
}

impl WaitQueue {
    pub(super) const fn new(serial: u32) -> Self {
        Self {
            list: List::new(),
            serial,
            tokens: 0,
            wake_epoch: 0,
            announced: false,
            closed: false,
            held_up: false,
            waits: 0,
            wakeups: 0,
        }
    }

    fn needs_token(&self, next: u32, rules: &Policy) -> bool {
        let node = || self.list.slots[next as usize].node.as_ref();
        self.tokens >= rules.tokens && node().is_some_and(Node::sleeps)
    }

    /// A1: the token of a granted waiter comes back, unless it was given up before. Returns whether
    /// it did: the next head may have waited for it.
    pub(super) fn return_token(&mut self, token: Option<u32>) -> bool {
        let counts = token == Some(self.wake_epoch);
        self.tokens -= u32::from(counts);
        counts
    }

    /// Gives all tokens up for lost. Returns whether there were any.
    pub(super) fn give_up_tokens(&mut self) -> bool {
        self.wake_epoch = self.wake_epoch.wrapping_add(1);
        std::mem::take(&mut self.tokens) > 0
    }

    /// The list that this waiter is in.
    fn ends_of(&mut self, waiter: NodeKey) -> Option<&mut ListEnds> {
        let (tenant, size) = self
            .list
            .peek(waiter)
            .map(|node| (node.tenant, node.size))?;
        Some(self.list.tenants.ends(tenant, size))
    }

    /// Makes a thread the watchdog of its list: the newest of those who came to the back.
    pub(super) fn set_watchdog(&mut self, key: NodeKey, front: bool) {
        let watchdog = self.ends_of(key).and_then(|ends| ends.watchdog);
        let watched = watchdog.is_some_and(|w| self.list.is_waiting(w));
        if let Some(ends) = self.ends_of(key).filter(|_| !front || !watched) {
            ends.watchdog = Some(key);
        }
    }

    pub(super) fn is_watchdog(&mut self, key: NodeKey) -> bool {
        self.ends_of(key)
            .is_some_and(|ends| ends.watchdog == Some(key))
    }

    /// The watchdog leaves before its turn: another thread takes over, and must be told. Its node
    /// is still here.
    ///
    /// One that leaves by its turn was behind all other threads of its list but those at the front,
    /// of which none is left by then.
    pub(super) fn replace_watchdog(&mut self, leaves: NodeKey) -> Option<Notify> {
        if !self.is_watchdog(leaves) {
            return None;
        }
        self.choose_watchdog(leaves, Some(leaves))
    }

    /// A waiter is a thread now and was a task, or the other way round. Returns who is to be told
    /// that it is the watchdog.
    pub(super) fn change_watchdog(&mut self, changed: NodeKey) -> Option<Notify> {
        let before = self.ends_of(changed)?.watchdog;
        let notify = self.choose_watchdog(changed, None);
        let after = self.ends_of(changed)?.watchdog;
        notify.filter(|_| after != before && after != Some(changed))
    }

    /// The newest thread of a waiter's list that stays is its watchdog.
    fn choose_watchdog(&mut self, of: NodeKey, leaves: Option<NodeKey>) -> Option<Notify> {
        let (tenant, size) = self.list.peek(of).map(|node| (node.tenant, node.size))?;
        let is_thread = |key: &NodeKey| {
            let node = self.list.peek(*key);
            let here = |n: &Node| n.kind == Kind::Thread && (n.tenant, n.size) == (tenant, size);
            Some(*key) != leaves && node.is_some_and(here)
        };
        let next = self.list.newest_first().find(is_thread);
        self.ends_of(of)?.watchdog = next;
        match &self.list.peek(next?)?.notify {
            Some(Notify::Thread(unparker)) => Some(Notify::Thread(unparker.clone())),
            _ => None,
        }
    }

    /// Those who wait for more than `depth` ids end their wait. Returns whom to tell.
    pub(super) fn refuse_above(&mut self, depth: usize) -> Vec<Notify> {
        let keys: Vec<NodeKey> = self.list.newest_first().collect();
        let mut refused = Vec::new();
        for key in keys {
            let Some(node) = self.list.node(key) else {
                continue;
            };
            if node.size == RequestSize::Large {
                // It takes what there is, and goes on.
                node.part = node.part.min(depth.max(1));
            } else if node.want > depth.max(1) {
                let node = self.list.unlink(key);
                node.state = WaiterState::Refused;
                refused.extend(node.notify.take());
                refused.extend(self.replace_watchdog(key));
            }
        }
        refused
    }

    /// All who wait end their wait. Returns whom to tell.
    pub(super) fn refuse_all(&mut self) -> Vec<Notify> {
        let keys: Vec<NodeKey> = self.list.newest_first().collect();
        let refuse = |key| {
            let node = self.list.unlink(key);
            node.state = WaiterState::Refused;
            node.notify.take()
        };
        keys.into_iter().rev().filter_map(refuse).collect()
    }
}

impl<S: Store> Turns<S> {
    /// No turn that has begun goes on.
    pub(super) fn end_turns(&self, queue: &mut WaitQueue) {
        queue.serial = queue.serial.wrapping_add(self.rules.life);
        self.gate.set_grants(queue.serial);
    }

    /// V1 and V4: what puts have to know. Whoever holds the token serves when it arrives. Returns
    /// the slot of the next.
    fn announce(&self, queue: &mut WaitQueue) -> Option<u32> {
        let somebody_waits = queue.closed || !queue.list.is_empty();
        if queue.announced != somebody_waits {
            queue.announced = somebody_waits;
            self.store.set_waiters(usize::from(somebody_waits));
        }
        let next = queue
            .list
            .next_slot(|tenant| self.rules.shares.may_take(tenant));
        // Tasks need no token.
        self.gate
            .close(next.is_some_and(|next| queue.needs_token(next, &self.rules)));
        let held_up = !queue.list.is_empty() && next.is_none();
        if queue.held_up != held_up {
            queue.held_up = held_up;
            self.gate.hold_up(held_up);
        }
        next
    }

    /// V1 to V4: grants the heads of the list as long as there are ids and tokens.
    ///
    /// `me` is a waiter of the calling thread, which needs neither token nor news. If `chosen` is
    /// full afterwards, the caller tells it and serves again.
    pub(super) fn serve(&self, queue: &mut WaitQueue, me: Option<NodeKey>, chosen: &mut WakeSet) {
        self.announce(queue);
        if !queue.announced {
            return;
        }
        // Ordering: V2, pairs with P2 in `Store::put`.
        fence(Ordering::SeqCst);
        self.hand_out(queue, usize::MAX, me, chosen);
    }

    /// V3 and V4, for `n` ids at most: all that a put has to do, which has changed neither the list
    /// nor the tokens.
    pub(super) fn hand_out(
        &self,
        queue: &mut WaitQueue,
        n: usize,
        me: Option<NodeKey>,
        chosen: &mut WakeSet,
    ) {
        let wakeups = queue.wakeups;
        let mut first = true;
        for _ in 0..n {
            if chosen.is_full() {
                break;
            }
            if std::mem::take(&mut first) {
                self.end_turns_for_collector(queue);
            }
            let Some(key) = queue.list.next(|tenant| self.rules.shares.may_take(tenant)) else {
                break;
            };
            if me != Some(key) && queue.needs_token(key.index, &self.rules) {
                break;
            }
            let node = queue.list.node(key).expect("it waits");
            let tenant = node.tenant;
            if !node.has_part() && self.rules.shares.may_take(tenant) {
                let Some(id) = self.store.take() else { break };
                self.rules.shares.took(tenant, id);
                node.feed(id);
            }
            // What it has it gets, should its tenant be at its limit.
            if node.has_part() || (node.has_some() && !self.rules.shares.may_take(tenant)) {
                self.grant(queue, key, me, chosen);
                self.end_turns_for_collector(queue);
            } else if node.has_some() {
                queue.list.tenants.collecting = Some(key);
            }
        }
        if let Some(next) = self.announce(queue) {
            queue.list.prefetch_next(next);
        }
        // The stall limit begins anew with each token.
        if queue.wakeups != wakeups && self.gate.is_closed() {
            // Relaxed: written by puts too, which at worst lose a step.
            self.skipped.store(0, Ordering::Relaxed);
        }
    }

    /// While the next collects several ids nobody takes any past it.
    fn end_turns_for_collector(&self, queue: &mut WaitQueue) {
        if queue.list.all_want_one() {
            return;
        }
        let next = queue.list.next(|tenant| self.rules.shares.may_take(tenant));
        let Some(next) = next.and_then(|next| queue.list.node(next)) else {
            return;
        };
        if next.several && !next.collects {
            next.collects = true;
            self.end_turns(queue);
        }
    }

    fn grant(
        &self,
        queue: &mut WaitQueue,
        key: NodeKey,
        me: Option<NodeKey>,
        chosen: &mut WakeSet,
    ) {
        queue.serial = queue.serial.wrapping_add(1);
        self.gate.set_grants(queue.serial);
        let (serial, wake_epoch) = (queue.serial, queue.wake_epoch);
        let node = queue.list.node(key).expect("it waits");
        let (tenant, size) = (node.tenant, node.size);
        // Tokens without a limit need no counting.
        let limited = self.rules.tokens != u32::MAX;
        if limited && me != Some(key) && node.sleeps() {
            node.token = Some(wake_epoch);
            queue.tokens += 1;
        }
        let node = if node.has_all() {
            queue.list.tenants.served(tenant, size);
            let node = queue.list.unlink(key);
            node.state = WaiterState::Granted { serial };
            node
        } else {
            node.full = true;
            queue.list.tenants.served_in_part(tenant, size, key);
            queue.list.node(key).expect("it stays")
        };
        if me != Some(key) {
            if let Some(notify) = node.notify.take() {
                chosen.push(Some(notify));
                queue.wakeups += 1;
            }
        }
    }
}
