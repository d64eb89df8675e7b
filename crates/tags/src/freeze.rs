//! Freezing: no tag is held or in flight, and none is given out until the thaw.
//!
//! There is no counter of users. That a tag is in use is read off the bitmaps, and the allocation
//! pays for the freeze with one light fence and one load of a word that hardly ever changes:
//!
//! ```text
//! submitter: A1 take the bit          A2 light fence    A3 depth == 0 -> a tag, else put it back
//! freezer:   F1 depth += 1            F2 heavy fence    F3 wait on `drained` until no bit is set
//! put:       P1 clear the bit         P2 light fence    P3 depth != 0 -> notify `drained`
//! thaw:      T1 depth -= 1            T2 it was the last -> notify `thawed`
//! refused:   B1 put the bit back      B2 wait on `thawed` while depth != 0
//! ```
//!
//! PROTOCOL-freeze.md has the proof. The word is in `gate`.

use crate::drain::DrainPass;
use crate::error::FreezeError;
use crate::freeze_gate::FREEZE;
use crate::tag_maps::TagMaps;
use inflight_sync::Arc;
use inflight_sync::time::{Clock, Instant};
use inflight_sync::wait::WaiterKey;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Keeps a set frozen until it is dropped.
///
/// Guards nest: the set thaws when the last is dropped. Everything done to the data of the
/// set's requests by earlier owners has happened before the guard exists, and what is done
/// while it exists happens before any later tag is given out.
///
/// The idea is the frozen request queue of blk-mq.
///
/// # Panics
///
/// Its drop, with the panic of a waiting submitter's waker, after the set is thawed and all
/// waiters are told.
///
/// ```
/// use inflight_tags::{AllocError, AllocOptions, TagSet};
/// let set = TagSet::builder().depth(4).build(|_, _| ())?;
/// let dev = set.add_tenant("nvme0n1")?;
/// let outer = set.freeze_blocking();
/// let inner = set.freeze_blocking();
/// drop(outer);
/// assert_eq!(dev.try_alloc().unwrap_err(), AllocError::Frozen);
/// drop(inner);
/// assert!(dev.try_alloc().is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the set thaws when the guard is dropped"]
pub struct FrozenGuard {
    bitmaps: Arc<TagMaps>,
}

impl FrozenGuard {
    /// F1 and F2. The caller still has to wait.
    pub(crate) fn close(bitmaps: &Arc<TagMaps>) -> Self {
        // Built before F2, which can panic: then its drop thaws.
        bitmaps.gate().close(FREEZE, || Self {
            bitmaps: bitmaps.clone(),
        })
    }

    /// F3 without waiting.
    pub(crate) fn drained_now(self) -> Result<Self, FreezeError> {
        let busy = DrainPass::of_all(&self.bitmaps).is_busy(&self.bitmaps);
        if busy {
            Err(FreezeError::InUse)
        } else {
            Ok(self)
        }
    }

    /// F3 for a thread.
    pub(crate) fn wait_drained(self) -> Self {
        let mut pass = DrainPass::of_all(&self.bitmaps);
        let drained = self.bitmaps.gate().drained();
        drained.wait_while(|| pass.is_busy(&self.bitmaps));
        self
    }

    /// F3 for a thread in a hurry. Gives up the guard if the time is up.
    pub(crate) fn wait_drained_until(
        self,
        clock: &Clock,
        deadline: Instant,
    ) -> Result<Self, FreezeError> {
        let mut pass = DrainPass::of_all(&self.bitmaps);
        let drained = self.bitmaps.gate().drained();
        let in_time = drained.wait_while_until(clock, deadline, || pass.is_busy(&self.bitmaps));
        if in_time {
            Ok(self)
        } else {
            Err(FreezeError::TimedOut)
        }
    }
}

/// The future of [`TagSet::freeze`](crate::TagSet::freeze). The freeze begins at its first poll,
/// and ends when it is dropped before it was ready.
///
/// ```
/// use inflight_tags::{Freeze, TagSet};
/// let set = TagSet::builder().build(|_, _| ())?;
/// let freeze: Freeze = set.freeze();
/// assert!(!set.is_frozen(), "not polled yet");
/// let frozen = inflight_sync::block_on(freeze);
/// assert!(set.is_frozen());
/// # drop(frozen);
/// # Ok::<(), inflight_tags::BuildError>(())
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct Freeze {
    bitmaps: Arc<TagMaps>,
    /// Once it has begun.
    guard: Option<FrozenGuard>,
    pass: DrainPass,
    place: Option<WaiterKey>,
}

impl Freeze {
    pub(crate) fn new(bitmaps: &Arc<TagMaps>) -> Self {
        Self {
            guard: None,
            pass: DrainPass::of_all(bitmaps),
            place: None,
            bitmaps: bitmaps.clone(),
        }
    }
}

impl Future for Freeze {
    type Output = FrozenGuard;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<FrozenGuard> {
        let Self {
            bitmaps,
            guard,
            pass,
            place,
        } = &mut *self;
        if guard.is_none() {
            *pass = DrainPass::of_all(bitmaps);
            *guard = Some(FrozenGuard::close(bitmaps));
        }
        let drained = bitmaps.gate().drained();
        match drained.poll_while(place, cx, || pass.is_busy(bitmaps)) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => guard.take().map_or(Poll::Pending, Poll::Ready),
        }
    }
}

impl Drop for Freeze {
    fn drop(&mut self) {
        self.bitmaps.gate().drained().leave(&mut self.place);
    }
}

impl fmt::Debug for Freeze {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Freeze")
            .field("begun", &self.guard.is_some())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for FrozenGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrozenGuard").finish_non_exhaustive()
    }
}

impl Drop for FrozenGuard {
    fn drop(&mut self) {
        self.bitmaps.gate().open(FREEZE);
    }
}
