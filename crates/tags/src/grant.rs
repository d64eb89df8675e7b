//! Bits in somebody's hand: taken and no tags yet, or on their way back.
//!
//! Why not bare numbers: wherever a bit is given back a waker may panic, and then what the caller
//! still has in hand must go back too, and the freezers must be told.

mod ending;

pub(crate) use ending::EndingWait;

use crate::tag_maps::{TagMap, TagMapId, TagMaps};
use crate::tenant::{ShareAccounts, account_of};
use inflight_sbitmap::GetError;
use inflight_sbitmap::SbitmapQueue;
use inflight_sbitmap::tenancy::{Request, Tenancy as _, TenantIndex as Class, Waiter};
use inflight_steering::{TenantId, first_of};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::{Context, Poll};

/// A bit that is no tag yet. Dropping it gives it back: P1 to P3.
///
/// Invariant: it was taken from the target's bitmap for this value alone (A1).
#[derive(Debug)]
#[must_use = "the bit is given back when it is dropped"]
pub(crate) struct PendingTag<'a> {
    bitmaps: &'a TagMaps,
    target: TagMapId,
    bit: usize,
}

impl PendingTag<'_> {
    #[inline]
    pub(crate) const fn target(&self) -> TagMapId {
        self.target
    }

    /// The same bit for another hardware queue, if its table is theirs too.
    pub(crate) fn moved(mut self, to: TagMapId) -> Result<Self, Self> {
        let geometry = self.bitmaps.geometry();
        if geometry.table(to.hw_queue) == geometry.table(self.target.hw_queue) {
            self.target.hw_queue = to.hw_queue;
            Ok(self)
        } else {
            Err(self)
        }
    }

    /// The bare bit, for who makes it a tag.
    #[inline]
    pub(crate) fn keep(self) -> (TagMapId, usize) {
        let this = ManuallyDrop::new(self);
        (this.target, this.bit)
    }
}

impl Drop for PendingTag<'_> {
    fn drop(&mut self) {
        let (bitmaps, target) = (self.bitmaps, self.target);
        let place = (target.hw_queue, bitmaps.tag_of(target, self.bit));
        bitmaps.put(bitmaps.bitmap(target), self.bit, place);
    }
}

/// Several bits of one bitmap. Dropping them gives them back together.
///
/// Invariant: as for [`PendingTag`].
#[derive(Debug)]
#[must_use = "the bits are given back when they are dropped"]
pub(crate) struct PendingTags<'a> {
    bitmaps: &'a TagMaps,
    target: TagMapId,
    bits: Vec<usize>,
}

impl PendingTags<'_> {
    pub(crate) fn len(&self) -> usize {
        self.bits.len()
    }

    pub(crate) fn bits(&self) -> impl Iterator<Item = usize> {
        self.bits.iter().copied()
    }

    /// The bare bits.
    pub(crate) fn keep(mut self) -> Vec<usize> {
        std::mem::take(&mut self.bits)
    }
}

impl Drop for PendingTags<'_> {
    fn drop(&mut self) {
        if !self.bits.is_empty() {
            let _freezers = self.bitmaps.gate().wake_at_end();
            if self.target.kind == TagMap::Normal {
                let accounts = self.bitmaps.accounts(self.target.hw_queue);
                accounts.gives_all(&self.bits);
            }
            let put = self.bitmaps.bitmap(self.target).put_batch(&self.bits);
            debug_assert!(put.is_ok(), "the bits came from this bitmap");
        }
    }
}

/// A wait for bits of one bitmap, kept apart from the set. Whoever drops it ends it first.
#[derive(Debug)]
pub(crate) struct TagWait {
    target: TagMapId,
    waiter: Waiter,
    /// Whose account says that it waits.
    counted: Option<Class>,
}

impl TagWait {
    /// Goes on with a waiter that was begun before.
    pub(crate) fn resume(
        bitmaps: &TagMaps,
        target: TagMapId,
        waiter: Waiter,
        class: Class,
    ) -> Self {
        let shares = target.kind == TagMap::Normal && bitmaps.gate().is_many();
        let counted = shares.then_some(class);
        if let Some(class) = counted {
            bitmaps.accounts(target.hw_queue).waits(class, true);
        }
        Self {
            target,
            waiter,
            counted,
        }
    }

    pub(crate) const fn target(&self) -> TagMapId {
        self.target
    }

    /// Whether it has its place in the line, as if it waits or is to have more.
    pub(crate) const fn is_in_line(&self) -> bool {
        self.waiter.is_in_list()
    }

    /// Keeps its place, and does not count as one that waits until it goes on.
    pub(crate) fn rest(mut self, bitmaps: &TagMaps) -> Self {
        self.uncount(bitmaps);
        self
    }

    /// Waits again after a [`rest`](Self::rest).
    pub(crate) fn go_on(self, bitmaps: &TagMaps, class: Class) -> Self {
        Self::resume(bitmaps, self.target, self.waiter, class)
    }

    fn uncount(&mut self, bitmaps: &TagMaps) {
        if let Some(class) = self.counted.take() {
            bitmaps.accounts(self.target.hw_queue).waits(class, false);
        }
    }

    /// As a task, for one bit.
    pub(crate) fn poll_one<'a>(
        &mut self,
        bitmaps: &'a TagMaps,
        cx: &Context<'_>,
    ) -> Poll<Result<PendingTag<'a>, GetError>> {
        let bit = bitmaps.bitmap(self.target).poll_one(&mut self.waiter, cx);
        bit.map(|bit| bit.map(|bit| bitmaps.in_hand(self.target, bit)))
    }

    /// Leaves the line. What had been granted and not fetched goes to others, and freezers are
    /// told.
    pub(crate) fn end(&mut self, bitmaps: &TagMaps) {
        let _freezers = bitmaps.gate().wake_at_end();
        self.uncount(bitmaps);
        bitmaps.bitmap(self.target).leave(&mut self.waiter);
    }

    /// Ends when it is dropped.
    pub(crate) const fn ending(self, bitmaps: &TagMaps) -> EndingWait<'_> {
        EndingWait::new(bitmaps, self)
    }
}

impl TagMaps {
    #[inline]
    pub(crate) const fn in_hand(&self, target: TagMapId, bit: usize) -> PendingTag<'_> {
        PendingTag {
            bitmaps: self,
            target,
            bit,
        }
    }

    /// B1 for a bit that was taken and never in anybody's hand.
    #[cold]
    #[inline(never)]
    pub(crate) fn refused(&self, target: TagMapId, bit: usize) {
        drop(self.in_hand(target, bit));
    }

    /// A1 if a bit is free now and the class may have it.
    #[inline]
    pub(crate) fn try_get(&self, target: TagMapId, class: Class) -> Option<PendingTag<'_>> {
        let bitmap = self.bitmap(target);
        let bit = match self.limits(target, class) {
            None => bitmap.try_get().or_else(|| bitmap.try_get_held_up(class))?,
            Some(accounts) => self.try_get_shared(target, class, accounts)?,
        };
        Some(self.in_hand(target, bit))
    }

    /// The accounts, if the target is shared among tenants at present. M1 comes before any try, so
    /// that others give way although this one may fail.
    #[inline]
    pub(crate) fn limits(&self, target: TagMapId, class: Class) -> Option<&ShareAccounts> {
        if !self.gate().is_many() || target.kind != TagMap::Normal {
            return None;
        }
        let accounts = self.accounts(target.hw_queue);
        if !accounts.is_marked(class) {
            self.mark(target, class);
        }
        accounts.is_shared().then_some(accounts)
    }

    #[cold]
    fn mark(&self, target: TagMapId, class: Class) {
        if self.accounts(target.hw_queue).mark(class, true) {
            self.shares_changed(target.hw_queue);
        }
    }

    #[cold]
    #[inline(never)]
    fn try_get_shared(
        &self,
        target: TagMapId,
        class: Class,
        accounts: &ShareAccounts,
    ) -> Option<usize> {
        let bitmap = self.bitmap(target);
        if !accounts.may_take(class) {
            self.look_for_idle(target.hw_queue);
            if !accounts.may_take(class) {
                return None;
            }
        }
        let bit = bitmap
            .try_get()
            .or_else(|| bitmap.try_get_past(class, false))?;
        accounts.took(class, bit);
        Some(bit)
    }

    /// Somebody is at its limit: another tenant may have gone idle.
    fn look_for_idle(&self, hw_queue: usize) {
        if self.accounts(hw_queue).find_idle(self.clock().now()) > 0 {
            self.shares_changed(hw_queue);
        }
    }

    /// M2, after the mark, and M3: the shares are others now, or the depth is.
    pub(crate) fn shares_changed(&self, hw_queue: usize) {
        let bitmap = self.bitmap(TagMapId {
            hw_queue,
            kind: TagMap::Normal,
        });
        let _freezers = self.gate().wake_at_end();
        bitmap.shares_changed();
    }

    /// Tenants that have no tag and wait for none are idle from now on. How many there were, of
    /// all hardware queues.
    pub(crate) fn reclaim_idle(&self) -> usize {
        let tables = 0..self.geometry().tables();
        let idle = tables.filter(|&n| self.accounts(n).forget_idle());
        let idle: Vec<usize> = idle.collect();
        let n = idle.len();
        self.each_of(idle, |hw_queue| self.shares_changed(hw_queue));
        n
    }

    /// Calls `f` for each hardware queue, also if a waker panics; the first panic comes out then.
    pub(crate) fn each_of(&self, hw_queues: impl IntoIterator<Item = usize>, f: impl Fn(usize)) {
        let call = |hw_queue| catch_unwind(AssertUnwindSafe(|| f(hw_queue)));
        let called = first_of(hw_queues.into_iter().map(call));
        called.unwrap_or_else(|panic| resume_unwind(panic));
    }

    /// In all hardware queues. Shares may grow by it.
    pub(crate) fn set_weight(&self, class: Class, weight: u32) {
        self.each_of(0..self.geometry().hw_queues, |hw_queue| {
            self.accounts(hw_queue).set_weight(class, weight);
            self.shares_changed(hw_queue);
        });
    }

    /// A second tenant is there. Until then nobody counts anything, so the first is marked by what
    /// it has in use now.
    pub(crate) fn mark_first(&self) {
        for hw_queue in 0..self.geometry().hw_queues {
            let target = TagMapId {
                hw_queue,
                kind: TagMap::Normal,
            };
            if self.bitmap(target).is_any_set() {
                self.mark(target, account_of(TenantId::FIRST));
            }
        }
    }

    /// A number comes back whose tenant is gone: nobody inherits a weight. Whether its account has
    /// no tag any more.
    pub(crate) fn clear_account(&self, id: TenantId) -> bool {
        let mut accounts = (0..self.geometry().tables()).map(|n| self.accounts(n));
        if accounts.any(|accounts| accounts.active(account_of(id)) > 0) {
            return false;
        }
        for hw_queue in 0..self.geometry().tables() {
            self.accounts(hw_queue).set_weight(account_of(id), 1);
        }
        true
    }

    /// The tenant's last handle is gone. The hardware queues whose shares have changed.
    pub(crate) fn unmark(&self, class: Class) -> Vec<usize> {
        let hw_queues = 0..self.geometry().hw_queues;
        hw_queues
            .filter(|&n| self.accounts(n).mark(class, false))
            .collect()
    }

    /// A1 for up to `n` bits, each a request of its own.
    pub(crate) fn try_get_batch(
        &self,
        target: TagMapId,
        n: usize,
        class: Class,
    ) -> PendingTags<'_> {
        self.try_get_some(target, n, class, false)
    }

    fn try_get_some(
        &self,
        target: TagMapId,
        n: usize,
        class: Class,
        large: bool,
    ) -> PendingTags<'_> {
        let limits = self.limits(target, class);
        let n = limits.map_or(n, |accounts| n.min(accounts.room(class)));
        let bitmap = self.bitmap(target);
        let mut bits = Vec::new();
        if n > 0 {
            bitmap.try_get_batch(n, &mut bits);
        }
        // One of several would be of no use to a large request.
        if bits.is_empty() && (n == 1 || !large) {
            let past = || match limits {
                Some(_) => bitmap.try_get_past(class, large),
                None if large => None,
                None => bitmap.try_get_held_up(class),
            };
            bits.extend(std::iter::from_fn(past).take(n));
        }
        if let Some(accounts) = limits {
            bits.iter().for_each(|&bit| accounts.took(class, bit));
        }
        PendingTags {
            bitmaps: self,
            target,
            bits,
        }
    }

    /// A1 for the `n` bits of a large request at once, or none.
    pub(crate) fn try_get_all(
        &self,
        target: TagMapId,
        n: usize,
        class: Class,
    ) -> Option<Vec<usize>> {
        let batch = self.try_get_some(target, n, class, true);
        (batch.len() == n).then(|| batch.keep())
    }

    /// A wait for bits of a target.
    pub(crate) fn wait_for(&self, target: TagMapId, request: Request) -> TagWait {
        if let Some(accounts) = self.limits(target, request.tenant) {
            if accounts.is_limited() {
                self.look_for_idle(target.hw_queue);
            }
        }
        let waiter = self.bitmap(target).waiter(request);
        TagWait::resume(self, target, waiter, request.tenant)
    }

    /// Bits that came from `try_get_all` or a wait.
    #[inline]
    pub(crate) const fn several_in_hand(
        &self,
        target: TagMapId,
        bits: Vec<usize>,
    ) -> PendingTags<'_> {
        PendingTags {
            bitmaps: self,
            target,
            bits,
        }
    }

    /// Gives a tag's bit back, whose slot its owner has freed: P1 to P3. The place is its
    /// hardware queue and tag number.
    pub(crate) fn put(&self, bitmap: &SbitmapQueue, bit: usize, place: (usize, usize)) {
        // P2 and P3 follow P1 also if a waker panics in P1.
        let _freezers = self.gate().wake_at_end();
        let many = self.gate().is_many();
        if many {
            // Why first: who is woken by the bit finds the share as it is without it.
            self.uncount(place);
        }
        let put = bitmap.put(bit);
        debug_assert!(put.is_ok(), "the bit came from this bitmap");
        if many && self.accounts(place.0).is_limited() {
            self.look_for_idle(place.0);
        }
    }

    /// [`put`](Self::put) for several bits of one bitmap, with one look at the waiters. The place
    /// is that of one of them.
    pub(crate) fn put_all(&self, bitmap: &SbitmapQueue, bits: &[usize], place: (usize, usize)) {
        // As in `put`.
        let _freezers = self.gate().wake_at_end();
        let many = self.gate().is_many();
        if many && self.bit_of(place.0, place.1).0.kind == TagMap::Normal {
            self.accounts(place.0).gives_all(bits);
        }
        let put = bitmap.put_batch(bits);
        debug_assert!(put.is_ok(), "the bits came from this bitmap");
        if many && self.accounts(place.0).is_limited() {
            self.look_for_idle(place.0);
        }
    }

    /// C3.
    fn uncount(&self, (hw_queue, tag): (usize, usize)) {
        let (target, bit) = self.bit_of(hw_queue, tag);
        if target.kind == TagMap::Normal {
            self.accounts(hw_queue).gives(bit);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::admission::Admission;
    use crate::drain::DrainPass;
    use crate::freeze::Freeze;
    use crate::tag_maps::{Geometry, Setup};
    use inflight_sync::Arc;
    use inflight_sync::atomic::{AtomicUsize, Ordering};
    use inflight_sync::time::Clock;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Wake, Waker};

    const PLACE: TagMapId = TagMapId {
        hw_queue: 0,
        kind: TagMap::Normal,
    };

    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("the waker's panic");
        }
    }

    #[derive(Default)]
    struct Counts(AtomicUsize);
    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A refused batch whose put wakes a waker that panics: no bit is lost, and the freezer is
    /// told.
    #[test]
    fn h24_a_batch_goes_back_although_a_waker_panics() {
        let geometry = Geometry {
            hw_queues: 1,
            depth: 3,
            reserved: 0,
            shared: false,
            extra: 0,
        };
        let preempt = Setup {
            admission: Admission::preempt(), // a bit that is put is free, whoever waits
            ..Setup::default()
        };
        let bitmaps = Arc::new(TagMaps::new(geometry, Clock::system(), false, preempt));
        let batch = bitmaps.try_get_batch(PLACE, 9, 0);
        assert_eq!(batch.len(), 3);
        let mut waiter = bitmaps.wait_for(PLACE, Request::one(0));
        let panics = Waker::from(Arc::new(Panics));
        let polled = waiter.poll_one(&bitmaps, &Context::from_waker(&panics));
        assert!(polled.is_pending());

        let counts = Arc::new(Counts::default());
        let waker = Waker::from(counts.clone());
        let mut cx = Context::from_waker(&waker);
        let mut freeze = pin!(Freeze::new(&bitmaps));
        assert!(freeze.as_mut().poll(&mut cx).is_pending());
        let put = catch_unwind(AssertUnwindSafe(|| drop(batch)));
        let message = put.unwrap_err();
        assert_eq!(message.downcast_ref(), Some(&"the waker's panic"));
        assert_eq!(counts.0.load(Ordering::Relaxed), 1, "the freezer is told");
        assert!(!DrainPass::of_all(&bitmaps).is_busy(&bitmaps));
        waiter.end(&bitmaps);
        assert!(matches!(freeze.as_mut().poll(&mut cx), Poll::Ready(_)));
    }
}
