//! How many waiters are served and woken: by a put as many as it has ids for, by other calls as
//! many as there are ids and tokens. Events V1 to V4.
//!
//! A waiter that is chosen under the lock is woken without it.

use super::Turns;
use super::list::{NodeKey, WaiterState};
use super::wait_queue::WaitQueue;
use crate::share_limiter::{ShareLimiter as _, TenantIndex};
use crate::store::Store;
use inflight_sync::MutexGuard;
use inflight_sync::atomic::{Ordering, fence};
use inflight_sync::wait::Wakers;

/// The most waiters that one locked section wakes; the caller repeats for more.
const CAP: usize = if cfg!(loom) { 2 } else { 8 };

pub(super) type WakeSet = crate::wake_set::WakeSet<CAP>;

impl<S: Store> Turns<S> {
    /// V1 and V4: publishes what puts have to know. The holder of the token serves when it runs.
    /// Returns the slot of the next.
    pub(super) fn announce(&self, queue: &mut WaitQueue) -> Option<u32> {
        let somebody_waits = queue.closing || !queue.list.is_empty();
        if self.is_announced() != somebody_waits {
            self.store.set_waiters(usize::from(somebody_waits));
        }
        let may = |tenant| self.shares.may_take(tenant);
        let next = queue.list.next_slot(may, |tenant, n| self.fit(tenant, n));
        // Tasks need no token.
        self.unlocked
            .set_awaits_token(next.is_some_and(|next| queue.needs_token(next, self.rules.tokens)));
        self.unlocked
            .hold_up(!queue.list.is_empty() && next.is_none());
        next
    }

    /// The waiter that is served next, if one may be served.
    pub(super) fn next(&self, queue: &WaitQueue) -> Option<NodeKey> {
        let may = |tenant| self.shares.may_take(tenant);
        queue.list.next(may, |tenant, n| self.fit(tenant, n))
    }

    /// Whether a tenant can have `n` ids together: within its share, or because so many are free.
    /// Otherwise a request for them would keep ids from others for an unknown time.
    fn fit(&self, tenant: TenantIndex, n: usize) -> bool {
        self.shares.room(tenant) >= n || (self.store.is_drained() && self.store.free() >= n)
    }

    /// Whether puts and gets know that there are waiters.
    pub(super) fn is_announced(&self) -> bool {
        self.store.waiters() != 0
    }

    /// V1 to V4: grants the heads of the list while there are ids and tokens.
    ///
    /// `me` is a waiter of the calling thread, which needs neither a token nor a wake. If `chosen`
    /// is full afterwards, the caller wakes those and serves again.
    pub(super) fn serve(&self, queue: &mut WaitQueue, me: Option<NodeKey>, chosen: &mut WakeSet) {
        self.announce(queue);
        if !self.is_announced() {
            return;
        }
        // Ordering: V2, pairs with P2 in `Store::put`.
        fence(Ordering::SeqCst);
        self.hand_out(queue, usize::MAX, me, chosen);
    }

    /// V3 and V4, for at most `n` ids: all that a put has to do, because it has changed neither the
    /// list nor the tokens.
    pub(super) fn hand_out(
        &self,
        queue: &mut WaitQueue,
        n: usize,
        me: Option<NodeKey>,
        chosen: &mut WakeSet,
    ) {
        let before = chosen.len();
        let mut first = true;
        for _ in 0..n {
            if chosen.is_full() {
                break;
            }
            if std::mem::take(&mut first) {
                self.end_turns_for_collector(queue);
            }
            let Some(key) = self.next(queue) else {
                break;
            };
            if me != Some(key) && queue.needs_token(key.index, self.rules.tokens) {
                break;
            }
            let node = queue.list.node(key).expect("the waiter is in the list");
            let tenant = node.tenant;
            // F0: with a part of them it could do nothing.
            let goes_on = node.comes_together() && node.has_some();
            if !node.has_part() && (goes_on || self.shares.may_take(tenant)) {
                let Some(id) = self.store.take() else { break };
                self.shares.took(tenant, id);
                node.push_id(id);
            }
            // Others get what they have, if their tenant is at its limit.
            let ends = !node.comes_together() && !self.shares.may_take(tenant);
            if node.has_part() || (node.has_some() && ends) {
                self.grant(queue, key, me, chosen);
                self.end_turns_for_collector(queue);
            } else if node.has_some() {
                queue.list.tenants.collecting = key.index;
            }
        }
        if let Some(next) = self.announce(queue) {
            queue.list.prefetch_next(next);
        }
        // The count for the stall limit begins again with each token.
        if chosen.len() != before && self.unlocked.awaits_token() {
            // Relaxed: puts write it too, and at worst lose a step.
            self.skipped.store(0, Ordering::Relaxed);
        }
    }

    fn grant(
        &self,
        queue: &mut WaitQueue,
        key: NodeKey,
        me: Option<NodeKey>,
        chosen: &mut WakeSet,
    ) {
        let (serial, wake_epoch) = (self.unlocked.add_grants(1), queue.wake_epoch);
        let node = queue.list.node(key).expect("the waiter is in the list");
        let (tenant, large) = (node.tenant, node.large);
        // Unlimited tokens need no counting.
        let limited = self.rules.tokens != u32::MAX;
        if limited && me != Some(key) && node.sleeps() {
            node.token = Some(wake_epoch);
            queue.tokens += 1;
        }
        let node = if node.has_all() {
            queue.list.tenants.served(tenant, large);
            let node = queue.list.unlink(key);
            node.state = WaiterState::Granted { serial };
            node
        } else {
            node.full = true;
            queue.list.tenants.served_in_part(tenant, large, key.index);
            queue.list.node(key).expect("the waiter is in the list")
        };
        if me != Some(key) {
            if let Some(notify) = node.notify.take() {
                chosen.push(notify);
                self.unlocked.add_wakeup();
            }
        }
    }

    pub(super) fn serve_and_wake(&self, mut queue: MutexGuard<'_, WaitQueue>, wakers: Wakers) {
        let mut chosen = WakeSet::default();
        self.serve(&mut queue, None, &mut chosen);
        self.wake(queue, &mut chosen, wakers);
    }

    /// Wakes the chosen waiters, and serves until no more can be granted.
    ///
    /// # Panics
    ///
    /// Panics with the first panic of a waker, after all are woken.
    pub(super) fn wake<'a>(
        &'a self,
        mut queue: MutexGuard<'a, WaitQueue>,
        chosen: &mut WakeSet,
        mut wakers: Wakers,
    ) {
        loop {
            let again = chosen.is_full();
            drop(queue);
            wakers.wake(chosen.drain());
            if !again {
                break;
            }
            queue = self.wait_queue.lock();
            self.serve(&mut queue, None, chosen);
        }
        wakers.finish();
    }

    /// Serves the waiters that may be served now.
    pub(crate) fn serve_all(&self) {
        // Ordering: M4, pairs with V2 in `Turns::serve`: either this sees a waiter, or a waiter
        // that has joined the list sees what lets it be served.
        fence(Ordering::SeqCst);
        if self.store.waiters() > 0 {
            self.serve_and_wake(self.wait_queue.lock(), Wakers::default());
        }
    }

    /// Makes every waiter look again, and gives up woken threads that do not run. All keep their
    /// positions.
    pub(crate) fn wake_all(&self) {
        let all = self.wait_queue.lock().list.notify_all();
        let mut wakers = Wakers::default();
        wakers.wake(all);
        let mut queue = self.wait_queue.lock();
        queue.give_up_tokens();
        self.serve_and_wake(queue, wakers);
    }
}
