//! Quiescing: no tag is allocated, while the tags in use stay valid.
//!
//! F1 and F2 of a freeze, without F3; the end is T1 and T2. PROTOCOL-freeze.md has the proof.

use crate::error::FreezeError;
use crate::freeze::QUIESCE;
use crate::freeze::{UnusedWait, is_unused, wait_until_unused};
use crate::set::TagSet;
use crate::tag_maps::TagMaps;
use inflight_sync::Arc;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Keeps a set quiesced until it is dropped: no tag is given out, and tags in use stay valid.
///
/// Guards nest, also with [`FrozenGuard`](crate::FrozenGuard): tags are given out again, also to
/// waiters, when the last of both kinds is dropped.
///
/// # Panics
///
/// The drop panics with the panic of a waiting submitter's waker, after all waiters are woken.
///
/// ```
/// use inflight_tags::{AllocError, AllocOptions, TagSet};
/// let set = TagSet::builder().depth(4).build(|_, _| ())?;
/// let dev = set.add_tenant("nvme0n1")?;
/// let token = dev.try_alloc()?.into_token();
/// let quiesced = set.quiesce(); // although a request is in flight
/// assert_eq!(dev.try_alloc().unwrap_err(), AllocError::Quiesced);
/// drop(set.redeem(token)?); // which completes meanwhile
/// quiesced.drain_blocking(); // none is left
/// drop(quiesced);
/// assert!(dev.try_alloc().is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "tags are given out again when the guard is dropped"]
pub struct QuiesceGuard {
    bitmaps: Arc<TagMaps>,
}

impl QuiesceGuard {
    fn close(bitmaps: &Arc<TagMaps>) -> Self {
        bitmaps.gate.close(QUIESCE, || Self {
            bitmaps: bitmaps.clone(),
        })
    }

    /// Checks that no tag is held or in flight now, and none granted or collected (see
    /// [`freeze`](TagSet::freeze)). The set is then as if frozen.
    ///
    /// # Errors
    ///
    /// [`FreezeError::InUse`] if there is such a tag.
    pub fn try_drain(&self) -> Result<(), FreezeError> {
        is_unused(&self.bitmaps)
    }

    /// Waits until no tag is held or in flight, and none granted or collected (see
    /// [`freeze`](TagSet::freeze)), as a task. The future may be dropped at any time.
    pub fn drain(&self) -> Drain<'_> {
        Drain {
            wait: UnusedWait::new(self.bitmaps.clone()),
            guard: PhantomData,
        }
    }

    /// Waits as [`drain`](Self::drain); the thread sleeps.
    ///
    /// A thread that holds a tag itself waits for itself here, for ever.
    pub fn drain_blocking(&self) {
        let _always = wait_until_unused(&self.bitmaps, None);
    }

    /// Waits as [`drain`](Self::drain); the thread sleeps at most `timeout`. The set stays
    /// quiesced.
    ///
    /// # Errors
    ///
    /// [`FreezeError::TimedOut`].
    pub fn drain_timeout(&self, timeout: Duration) -> Result<(), FreezeError> {
        let deadline = self.bitmaps.clock.now() + timeout;
        wait_until_unused(&self.bitmaps, Some(deadline))
    }
}

/// The future of [`QuiesceGuard::drain`], which may be dropped at any time. It borrows the guard:
/// in a set that is not quiesced nobody would wake it.
///
/// ```
/// use inflight_tags::{Drain, TagSet};
/// let set = TagSet::builder().build(|_, _| ())?;
/// let quiesced = set.quiesce();
/// let drain: Drain<'_> = quiesced.drain();
/// inflight_sync::block_on(drain);
/// # Ok::<(), inflight_tags::BuildError>(())
/// ```
///
/// ```compile_fail,E0505
/// # let set = inflight_tags::TagSet::<()>::builder().build(|_, _| ()).unwrap();
/// let quiesced = set.quiesce();
/// let drain = quiesced.drain();
/// drop(quiesced); // an error: it is borrowed
/// inflight_sync::block_on(drain);
/// ```
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Drain<'a> {
    wait: UnusedWait,
    guard: PhantomData<&'a QuiesceGuard>,
}

impl Future for Drain<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.wait).poll(cx)
    }
}

impl Drop for QuiesceGuard {
    fn drop(&mut self) {
        self.bitmaps.gate.open(QUIESCE);
    }
}

impl<T: Send + 'static> TagSet<T> {
    /// Quiesces the set: no tag is given out, on any hardware queue to any tenant, until the guard
    /// is dropped. Does not wait.
    ///
    /// The try forms of a [`Tenant`](crate::Tenant) return
    /// [`Quiesced`](crate::AllocError::Quiesced) and the waiting forms wait for the end. Tags that
    /// are held can be put in flight, and tags in flight complete. An allocation that was admitted
    /// before may return its tag after this call has returned. [`QuiesceGuard::drain`] waits until
    /// no tag is in use; a [freeze](TagSet::freeze) does both at once.
    ///
    /// # Panics
    ///
    /// Panics if the system refuses its part of the fence; the set is then as it was.
    pub fn quiesce(&self) -> QuiesceGuard {
        QuiesceGuard::close(&self.shared.bitmaps)
    }

    /// Returns whether the set is quiesced. A frozen set does not count as quiesced.
    #[must_use]
    pub fn is_quiesced(&self) -> bool {
        self.shared.bitmaps.gate.state().is_quiesced()
    }
}
