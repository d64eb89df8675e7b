//! All tags of a split at once.

use super::Split;
use crate::admission::Admission;
use crate::error::AllocError;
use crate::tag::Tag;
use inflight_sbitmap::tenancy::Tenancy as _;
use inflight_sync::panics::FirstPanic;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// The future of [`Split::join`]: a dropped one waits no longer, and has taken no tag.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Join<'a, T: Send + 'static>(&'a mut Split<T>);

impl<T: Send + 'static> Future for Join<'_, T> {
    type Output = Result<Vec<Tag<T>>, AllocError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let split = &mut *self.0;
        split.begin_join();
        while split.remaining > 0 {
            match split.poll_piece(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(tag)) => split.joined.extend(tag),
                Poll::Ready(Err(why)) => {
                    split.end_join();
                    return Poll::Ready(Err(why));
                }
            }
        }
        Poll::Ready(Ok(split.end_join()))
    }
}

impl<T: Send + 'static> Drop for Join<'_, T> {
    fn drop(&mut self) {
        self.0.end_join();
    }
}

impl<T: Send + 'static> Split<T> {
    /// Waits as a task for the tags of all pieces that have none yet: for a request that needs all
    /// of them to begin.
    ///
    /// Under [`WholeIo`](crate::Admission::WholeIo) they are granted together, so two joins do not
    /// keep each other's tags. They come when that many tags are free at once: large joins keep
    /// tags idle, which [`next`](Split::next) does not. Under the other policies they come one by
    /// one, and two joins may each hold tags that the other needs.
    ///
    /// Under `WholeIo` a join of more tags than its tenant's [share](crate::SharePolicy) leaves
    /// gets them when so many are free at one moment; until then it keeps none, and others are
    /// served. Under the other policies it ends when the other tenants are idle. A join does not
    /// delay a freeze: the tags that it has go back, and come again after the thaw.
    ///
    /// Do not hold tags while you join: the join may wait for them, and others for the join.
    ///
    /// # Errors
    ///
    /// [`TooMany`](AllocError::TooMany) if there are more pieces than tags, at once or when the set
    /// shrinks; the errors of [`Tenant::alloc_with`](crate::Tenant::alloc_with). Then it has taken
    /// none.
    ///
    /// ```
    /// # use inflight_tags::{AllocError, TagSet};
    /// use std::time::Duration;
    /// let set = TagSet::builder().depth(8).build(|_, _| ())?;
    /// let dev = set.add_tenant("sda")?;
    /// let stripe = inflight_sync::block_on(dev.split(6).join())?;
    /// assert_eq!(stripe.len(), 6);
    /// let mut split = dev.split(3);
    /// assert_eq!(split.try_join().unwrap_err(), AllocError::Exhausted);
    /// let late = split.join_timeout(Duration::from_millis(1)).unwrap_err();
    /// assert_eq!((late, set.in_use()), (AllocError::TimedOut, stripe.len()));
    /// drop(stripe);
    /// assert_eq!(split.join_timeout(Duration::from_secs(1))?.len(), 3);
    /// let error = dev.split(9).join_blocking().unwrap_err();
    /// assert_eq!(error, AllocError::TooMany { pieces: 9, depth: 8 });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn join(&mut self) -> Join<'_, T> {
        Join(self)
    }

    /// Takes the tags of [`join`](Split::join), if all are free and within the tenant's share. The
    /// errors are those of `join` and of [`Tenant::try_alloc`](crate::Tenant::try_alloc).
    pub fn try_join(&mut self) -> Result<Vec<Tag<T>>, AllocError> {
        self.join_by(Self::try_next)
    }

    /// Waits as [`join`](Split::join); the thread sleeps. The errors are the same.
    pub fn join_blocking(&mut self) -> Result<Vec<Tag<T>>, AllocError> {
        self.join_by(|split| split.next_sleeping(None))
    }

    /// Waits as [`join`](Split::join); the thread sleeps at most `timeout`. The `Split` can be
    /// asked again after a timeout. The errors are the same; also
    /// [`TimedOut`](AllocError::TimedOut).
    pub fn join_timeout(&mut self, timeout: Duration) -> Result<Vec<Tag<T>>, AllocError> {
        let deadline = self.tenant.bitmaps().clock.now() + timeout;
        self.join_by(|split| split.next_sleeping(Some(deadline)))
    }

    fn join_by(
        &mut self,
        mut next: impl FnMut(&mut Self) -> Result<Option<Tag<T>>, AllocError>,
    ) -> Result<Vec<Tag<T>>, AllocError> {
        self.begin_join();
        while self.remaining > 0 {
            match next(self) {
                Ok(tag) => self.joined.extend(tag),
                Err(why) => {
                    self.end_join();
                    return Err(why);
                }
            }
        }
        Ok(self.end_join())
    }

    /// Puts the tags collected for later pieces, and leaves the wait queue, because both are for
    /// parts.
    fn begin_join(&mut self) {
        if !self.joins_all {
            self.stop_waiting();
            self.give_back();
            self.joins_all = true;
        }
    }

    /// Checks that there can be as many tags as it needs at once: the set may have been resized.
    pub(super) fn check_join(&self) -> Result<(), AllocError> {
        if !self.joins_all {
            return Ok(());
        }
        let tag_map = self.tenant.choose_tag_map(self.options);
        let depth = self.tenant.bitmaps().bitmap(tag_map).depth();
        let pieces = self.pieces();
        if pieces <= depth {
            return Ok(());
        }
        Err(AllocError::TooMany {
            pieces: u32::try_from(pieces).unwrap_or(u32::MAX),
            depth: depth as u16, // at most 10,240
        })
    }

    /// Returns how many tags are asked for at once.
    pub(super) fn pieces(&self) -> usize {
        self.remaining + self.joined.len()
    }

    /// Returns the tags, if all are there; otherwise puts them and leaves the wait queue. Each step
    /// wakes others, and comes also if a waker panics in the one before.
    fn end_join(&mut self) -> Vec<Tag<T>> {
        self.joins_all = false;
        let mut panic = FirstPanic::default();
        if self.remaining > 0 {
            panic.run(|| self.stop_waiting());
            panic.run(|| self.give_back());
        }
        panic.run(|| self.end_collecting());
        panic.finish();
        std::mem::take(&mut self.joined)
    }

    /// Before it waits for the first time: if its tags come one by one, it keeps those that it has,
    /// so each one that is freed has to wake a waiter.
    pub(super) fn begin_collecting(&mut self) {
        let one_by_one = self.tenant.bitmaps().admission != Admission::WholeIo;
        if one_by_one && self.joins_all && !self.collects {
            self.collects = true;
            self.set_collecting(true);
        }
    }

    /// After it has its tags, or waits no longer.
    pub(super) fn end_collecting(&mut self) {
        if std::mem::take(&mut self.collects) {
            self.set_collecting(false);
        }
    }

    /// For all bitmaps: its tags may be of several.
    fn set_collecting(&self, begins: bool) {
        let bitmaps = self.tenant.bitmaps();
        let mut panic = FirstPanic::default();
        for tag_map in bitmaps.layout.tag_map_ids() {
            panic.run(|| bitmaps.bitmap(tag_map).set_collecting(begins));
        }
        panic.finish();
    }
}
