//! The gate before all bitmaps: one word that says whether allocations are stopped, and why.
//!
//! It counts freezes and quiesces. It also says whether some hardware queue is inactive, the set is
//! closed, or there are several tenants. So one load finds out whether everything is plain.
//! PROTOCOL-freeze.md has the events and the proof.

use crate::error::AllocError;
use inflight_sync::CachePadded;
use inflight_sync::asym::AsymFence;
use inflight_sync::atomic::{AtomicU64, Ordering, fence};
use inflight_sync::wait::{Event, WaiterKey};
use std::task::{Context, Poll};

/// One freeze in the gate's word, which has room for 2^31 - 1.
pub(crate) const FREEZE: u64 = 1;
/// One quiesce. There is room for 2^30 - 1.
pub(crate) const QUIESCE: u64 = 1 << 31;
/// Some hardware queue is inactive.
const INACTIVE: u64 = 1 << 62;
/// The set is closed, for good.
const CLOSED: u64 = 1 << 61;
/// The bits of all freezes and quiesces: while any are set, no caller is admitted.
const STOPPED: u64 = CLOSED - 1;
/// There has been a second tenant. Set once, for good.
const SEVERAL_TENANTS: u64 = 1 << 63;

/// A value of the gate's word.
#[derive(Clone, Copy)]
pub(crate) struct GateState(u64);

impl GateState {
    /// Whether every caller is admitted, and no tag is counted.
    #[inline]
    pub(crate) const fn is_plain(self) -> bool {
        self.0 == 0
    }

    /// Whether no caller is stopped.
    #[inline]
    pub(crate) const fn is_open(self) -> bool {
        self.0 & !SEVERAL_TENANTS == 0
    }

    pub(crate) const fn is_set_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    /// Whether there is an end to wait for.
    const fn is_stopped(self) -> bool {
        self.0 & STOPPED != 0 && !self.is_set_closed()
    }

    /// Returns why no caller is admitted, if so.
    pub(crate) const fn refuses(self) -> Option<AllocError> {
        if self.is_set_closed() {
            Some(AllocError::Closed)
        } else if self.is_frozen() {
            Some(AllocError::Frozen)
        } else if self.is_quiesced() {
            Some(AllocError::Quiesced)
        } else {
            None
        }
    }

    pub(crate) const fn is_frozen(self) -> bool {
        self.0 & (QUIESCE - 1) != 0
    }

    pub(crate) const fn is_quiesced(self) -> bool {
        self.0 & STOPPED >= QUIESCE
    }

    /// Whether there has been a second tenant. Until then no tags are counted.
    #[inline]
    pub(crate) const fn has_several_tenants(self) -> bool {
        self.0 & SEVERAL_TENANTS != 0
    }

    /// Returns whether a thread may wait on `drained`.
    #[inline]
    const fn is_watched(self) -> bool {
        self.0 & !(SEVERAL_TENANTS | CLOSED) != 0
    }

    /// Whether some hardware queue is inactive.
    #[inline]
    pub(crate) const fn has_inactive_queue(self) -> bool {
        self.0 & INACTIVE != 0
    }
}

inflight_sync::debug_fields!(GateState: |this|
    freezes = this.0 & (QUIESCE - 1), quiesces = (this.0 & STOPPED) / QUIESCE,
    closed = this.is_set_closed(), some_inactive = this.has_inactive_queue(),
    many_tenants = this.has_several_tenants());

/// The gate's word and the two events.
#[derive(Debug, Default)]
pub(crate) struct FreezeGate {
    /// On its own cache line: every allocation and every put reads it.
    word: CachePadded<GateWord>,
    /// Drains wait here for bits to be cleared.
    pub(crate) drained: Event,
    /// Submitters wait here for the thaw, or the close.
    pub(crate) thawed: Event,
}

#[derive(Debug, Default)]
struct GateWord {
    /// See `GateState`.
    state: AtomicU64,
    fence: AsymFence,
}

impl FreezeGate {
    /// A hint before A1, the condition in B2.
    #[inline]
    pub(crate) fn state(&self) -> GateState {
        // Ordering: pairs with T1 and E1: a waiter for the thaw sees the writes before it.
        GateState(self.word.state.load(Ordering::Acquire))
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.state().is_stopped()
    }

    /// Whether a bitmap that gave no bit may have been closed.
    pub(crate) fn is_set_closed_by_now(&self) -> bool {
        // Ordering: pairs with the fence of `notify_all` in `close_set`, after which bitmaps are
        // closed.
        fence(Ordering::Acquire);
        self.state().is_set_closed()
    }

    /// Admits no more callers, and ends all waits for the end of a freeze.
    pub(crate) fn close_set(&self) {
        // Relaxed: a caller that is still admitted came before.
        self.word.state.fetch_or(CLOSED, Ordering::Relaxed);
        // Its fence pairs with the one in `is_set_closed_by_now` too.
        self.thawed.notify_all();
    }

    /// A2 and A3, after A1. If the state is plain, the bit may become a tag.
    #[inline]
    pub(crate) fn state_after_get(&self) -> GateState {
        // Ordering: A2, pairs with F2 in `close`, and with D2 and R2 in `publish`.
        self.word.fence.light();
        self.state()
    }

    /// F1 and F2, for one more freeze or quiesce. `between` runs between them, because F2 can
    /// panic.
    pub(crate) fn close<R>(&self, unit: u64, between: impl FnOnce() -> R) -> R {
        // Relaxed: F2 orders it before the scan.
        self.word.state.fetch_add(unit, Ordering::Relaxed);
        let guard = between();
        // Ordering: F2, pairs with A2 in `state_after_get` and P2 in
        // `is_watched_after_put`.
        self.word.fence.heavy();
        guard
    }

    /// The beginning of D1, and the end of E1: sets whether some hardware queue is inactive.
    pub(crate) fn set_inactive_queue(&self, any: bool) {
        if any {
            // Relaxed: the word of the queue publishes it, and D2 orders it before the scan.
            self.word.state.fetch_or(INACTIVE, Ordering::Relaxed);
        } else {
            // Ordering: E1, pairs with the Acquire load in `state`.
            self.word.state.fetch_and(!INACTIVE, Ordering::Release);
        }
    }

    /// R2 and D2. Earlier writes are visible to a caller that is admitted with a bit freed
    /// afterwards.
    pub(crate) fn publish(&self) {
        // Ordering: R2 and D2, pair with A2 in `state_after_get`; D2 also with P2 in
        // `is_watched_after_put`.
        self.word.fence.heavy();
    }

    /// Does P2 and P3 when it is dropped, so also if a waker panics in P1.
    #[inline]
    pub(crate) const fn wake_at_end(&self) -> WakeAtEnd<'_> {
        WakeAtEnd(self)
    }

    /// P2 and the check of P3, after P1: whether to [wake freezers](Self::wake_freezers).
    #[inline]
    pub(crate) fn is_watched_after_put(&self) -> bool {
        // Ordering: P2, pairs with F2 in `close` and D2 in `publish`.
        self.word.fence.light();
        // Relaxed: no other data is read because of it.
        let state = GateState(self.word.state.load(Ordering::Relaxed));
        !state.is_plain() && state.is_watched()
    }

    /// P3.
    #[cold]
    #[inline(never)]
    pub(crate) fn wake_freezers(&self) {
        self.drained.notify_all();
    }

    /// Whether there has been a second tenant, as `GateState::has_several_tenants`.
    #[inline]
    pub(crate) fn has_several_tenants(&self) -> bool {
        // Relaxed: a caller that takes a counted tag comes after one that has read `true` (the
        // Acquire in `ShareAccounts::is_shared`), and so does the thread that puts it.
        let state = GateState(self.word.state.load(Ordering::Relaxed));
        !state.is_plain() && state.has_several_tenants()
    }

    /// Records that there is a second tenant.
    pub(crate) fn set_several_tenants(&self) {
        // Relaxed: see `has_several_tenants`.
        self.word.state.fetch_or(SEVERAL_TENANTS, Ordering::Relaxed);
    }

    /// Ends one freeze or quiesce.
    pub(crate) fn open(&self, unit: u64) {
        // Ordering: T1, pairs with the Acquire load in `state`.
        if self.word.state.fetch_sub(unit, Ordering::Release) & STOPPED == unit {
            self.thawed.notify_all();
        }
    }

    /// B2 for a task, which keeps its key and leaves by `thawed.leave`.
    pub(crate) fn poll_thaw(&self, key: &mut Option<WaiterKey>, cx: &Context<'_>) -> Poll<()> {
        self.thawed.poll_while(key, cx, || self.is_stopped())
    }
}

/// Made before a put, dropped after it.
#[derive(Debug)]
#[must_use = "freezers are told when it is dropped"]
pub(crate) struct WakeAtEnd<'a>(&'a FreezeGate);

impl Drop for WakeAtEnd<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.is_watched_after_put() {
            self.0.wake_freezers();
        }
    }
}
