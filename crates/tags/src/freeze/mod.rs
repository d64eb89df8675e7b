//! Freezing: no tag is held or in flight, and none is allocated until the thaw.
//!
//! There is no counter of users. The freezer reads the tags in use from the bitmaps. The freeze
//! costs an allocation one light fence and one load of a word that seldom changes.
//!
//! PROTOCOL-freeze.md has the steps (A1 to T2) and the proof. The word is in `gate`, F3 in
//! `wait_until_unused`.

mod gate;
mod wait_until_unused;

pub(crate) use gate::{FREEZE, FreezeGate, QUIESCE};
pub(crate) use wait_until_unused::{UnusedPass, UnusedWait, is_unused, wait_until_unused};

use crate::error::FreezeError;
use crate::set::TagSet;
use crate::tag_maps::TagMaps;
use inflight_sync::Arc;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Keeps a set frozen until it is dropped.
///
/// Guards nest: the set thaws when the last is dropped. All accesses of earlier owners to the data
/// of the set's requests happen before the guard exists, and accesses while it exists happen before
/// any later tag is given out.
///
/// # Panics
///
/// The drop panics with the panic of a waiting submitter's waker, after the set is thawed and all
/// waiters are woken.
#[must_use = "the set thaws when the guard is dropped"]
pub struct FrozenGuard {
    bitmaps: Arc<TagMaps>,
}

impl FrozenGuard {
    /// F1 and F2. The caller still has to wait.
    fn begin(bitmaps: &Arc<TagMaps>) -> Self {
        // Built before F2, which can panic: its drop then thaws.
        bitmaps.gate.close(FREEZE, || Self {
            bitmaps: bitmaps.clone(),
        })
    }
}

/// The future of [`TagSet::freeze`](crate::TagSet::freeze). The freeze begins at its first poll.
/// Dropping it before it was ready ends the freeze.
#[must_use = "futures do nothing unless polled"]
pub struct Freeze {
    drain: UnusedWait,
    /// `Some` once the freeze has begun.
    guard: Option<FrozenGuard>,
}

impl Freeze {
    pub(crate) fn new(bitmaps: &Arc<TagMaps>) -> Self {
        Self {
            drain: UnusedWait::new(bitmaps.clone()),
            guard: None,
        }
    }
}

impl Future for Freeze {
    type Output = FrozenGuard;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<FrozenGuard> {
        let Self { drain, guard } = &mut *self;
        if guard.is_none() {
            *guard = Some(FrozenGuard::begin(&drain.bitmaps));
        }
        ready!(Pin::new(drain).poll(cx));
        guard.take().map_or(Poll::Pending, Poll::Ready)
    }
}

inflight_sync::debug_fields!(Freeze: |this| begun = this.guard.is_some());

inflight_sync::debug_fields!(FrozenGuard);

impl Drop for FrozenGuard {
    fn drop(&mut self) {
        self.bitmaps.gate.open(FREEZE);
    }
}

impl<T: Send + 'static> TagSet<T> {
    /// Freezes the set if no tag is in use, granted or collected now (see
    /// [`freeze`](TagSet::freeze)). Other callers may find the set frozen during the check.
    ///
    /// # Errors
    ///
    /// [`FreezeError::InUse`].
    ///
    /// # Panics
    ///
    /// If it fails, it panics as dropping a [`FrozenGuard`] does.
    pub fn try_freeze(&self) -> Result<FrozenGuard, FreezeError> {
        let frozen = FrozenGuard::begin(&self.shared.bitmaps);
        is_unused(&frozen.bitmaps).map(|()| frozen)
    }

    /// Freezes the set: no tag is given out from the future's first poll on, and the future is
    /// ready when none is held or in flight. Freezes nest; the set thaws when the last guard is
    /// dropped.
    ///
    /// It waits also for tags that are *granted* to futures or threads that have not taken them,
    /// and for tags that a [`Split`](crate::Split) has *collected* for its next pieces. These give
    /// them back when they go on, or are dropped. [`in_use`](TagSet::in_use) counts neither; the
    /// [dump](TagSet::dump) shows both. A future or a `Split` that is kept and not used holds up
    /// the freeze for ever.
    ///
    /// While the set is frozen, or a caller waits for a freeze, the try forms of a
    /// [`Tenant`](crate::Tenant) return [`Frozen`](crate::AllocError::Frozen) and the waiting forms
    /// wait for the thaw.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the freeze: the set is as it was. The drop panics as that of a
    /// [`FrozenGuard`].
    ///
    /// ```
    /// # use inflight_tags::{FreezeError, TagSet};
    /// use std::time::Duration;
    /// let set = TagSet::builder().depth(4).build(|_, _| ())?;
    /// let held = set.add_tenant("nvme0n1")?.try_alloc()?;
    /// assert_eq!(set.try_freeze().unwrap_err(), FreezeError::InUse);
    /// let short = Duration::from_millis(1);
    /// assert_eq!(set.freeze_timeout(short).unwrap_err(), FreezeError::TimedOut);
    /// assert!(!set.is_frozen());
    /// drop(held);
    /// let frozen = inflight_sync::block_on(set.freeze());
    /// assert!(set.is_frozen());
    /// # drop(frozen);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn freeze(&self) -> Freeze {
        Freeze::new(&self.shared.bitmaps)
    }

    /// Freezes the set as [`freeze`](TagSet::freeze); the thread sleeps.
    ///
    /// A thread that holds a tag itself, or keeps such a future or `Split`, or is the one that
    /// redeems, waits for itself here, for ever: the effect is that of a slow device. If that may
    /// be, take [`freeze_timeout`](TagSet::freeze_timeout) or [`try_freeze`](TagSet::try_freeze).
    pub fn freeze_blocking(&self) -> FrozenGuard {
        let frozen = FrozenGuard::begin(&self.shared.bitmaps);
        let _always = wait_until_unused(&frozen.bitmaps, None);
        frozen
    }

    /// Freezes the set as [`freeze`](TagSet::freeze); the thread sleeps at most `timeout`. After a
    /// timeout the set is as it was.
    ///
    /// # Errors
    ///
    /// [`FreezeError::TimedOut`].
    ///
    /// # Panics
    ///
    /// If it fails, it panics as dropping a [`FrozenGuard`] does.
    pub fn freeze_timeout(&self, timeout: Duration) -> Result<FrozenGuard, FreezeError> {
        let deadline = self.shared.bitmaps.clock.now() + timeout;
        let frozen = FrozenGuard::begin(&self.shared.bitmaps);
        wait_until_unused(&frozen.bitmaps, Some(deadline)).map(|()| frozen)
    }

    /// Returns whether the set is frozen, or a caller waits for a freeze.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.shared.bitmaps.gate.state().is_frozen()
    }
}
