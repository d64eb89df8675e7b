//! The tags of a large request that is split into pieces.

mod collect;
mod join;
#[cfg(feature = "futures")]
mod stream;

pub use join::Join;

use crate::alloc::{AllocOptions, WaitRecord};
use crate::error::AllocError;
use crate::tag::Tag;
use crate::tag_layout::TagMapId;
use crate::tag_wait::{EndingWait, TagWait};
use crate::tenant::Tenant;
use inflight_sbitmap::GetError;
use inflight_sbitmap::tenancy::{Request, Tenancy as _};
use inflight_sync::panics::FirstPanic;
use inflight_sync::time::Instant;
use inflight_sync::wait::WaiterKey;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// The tags of one large request, one for each piece: they come one after the other, as fast as the
/// set's [`Admission`](crate::Admission) gives them. Made by [`Tenant::split`].
///
/// Under [`WholeIo`](crate::Admission::WholeIo) all of them come before those of later callers.
/// Submit each piece before you ask for the next tag: a request of more pieces than there are tags
/// gets the next tag when its first pieces complete. A caller that keeps the pieces back until it
/// has all of them can wait for ever: alone, for more than the depth or its tenant's share; and for
/// another request that does the same and waits for this one. [`join`](Split::join) gets all of
/// them together.
///
/// # Cancel safety
///
/// A future that is dropped, a wait that times out and a `Split` that is dropped give back the tags
/// collected for later pieces. No tag and no wakeup is lost. The tags handed out are the caller's.
///
/// # Fairness
///
/// [`Admission`](crate::Admission) describes the order. Others do not get the tags that a `Split`
/// has collected, and a freeze waits for them, until they are asked for or the `Split` is dropped.
/// [`in_use`](crate::TagSet::in_use) does not count them; the [dump](crate::TagSet::dump) has their
/// number. A `Split` that gets its tags in parts (more pieces than a quarter of the
/// depth) stays first of its tenant until its last part. While a part waits to be asked for, the
/// tenant's small requests get other free tags, and its other splits wait, even if tags are free.
/// So ask for the next tags without waiting for another `Split` in between, and drop a `Split` that
/// is no longer wanted.
///
/// ```
/// use inflight_tags::TagSet;
/// let set = TagSet::builder().depth(64).build(|_, _| 0u64)?;
/// let dev = set.add_tenant("sda")?;
/// let mut split = dev.split(8);
/// let mut offset = 0;
/// while let Some(mut tag) = split.next_blocking()? {
///     *tag = offset; // fill in the piece and submit it
///     offset += 128 << 10;
/// }
/// assert_eq!((offset, split.remaining()), (1 << 20, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "it asks for nothing until it is called"]
pub struct Split<T: Send + 'static> {
    tenant: Tenant<T>,
    options: AllocOptions,
    /// Pieces that have no tag yet.
    remaining: usize,
    /// Whether a piece has got its tag.
    begun: bool,
    at: SplitAt,
    record: WaitRecord,
    /// Whether an error has ended the stream.
    ended: bool,
    /// Where it has waited: it may have been woken for more tags than it took.
    waited_in: Option<TagMapId>,
    /// Bits collected for later pieces, the next one last. Empty while it waits.
    collected: Vec<usize>,
    /// The tag map that they are from.
    from: TagMapId,
    /// Asks for all pieces together: see [`join`](Split::join).
    joins_all: bool,
    /// The tags that it has of these.
    joined: Vec<Tag<T>>,
    /// Whether the bitmaps know that it may keep tags while it waits for more.
    collects: bool,
}

/// The state of its wait.
#[derive(Debug)]
enum SplitAt {
    Nowhere,
    /// It waits as a task for the end of freezes and quiesces.
    Thaw(Option<WaiterKey>),
    /// It waits for a part.
    Waits(TagWait),
    /// It has had some of its parts, is to have more, and keeps its place until it asks.
    Paused(TagWait),
}

/// The future of [`Split::next`]: a dropped one waits no longer.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct NextPiece<'a, T: Send + 'static>(&'a mut Split<T>);

impl<T: Send + 'static> Future for NextPiece<'_, T> {
    type Output = Result<Option<Tag<T>>, AllocError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_piece(cx)
    }
}

impl<T: Send + 'static> Drop for NextPiece<'_, T> {
    fn drop(&mut self) {
        self.0.stop_waiting();
    }
}

/// What the next piece needs.
enum SplitStep<T> {
    Done(Result<Option<Tag<T>>, AllocError>),
    WaitForThaw(AllocError),
    /// Bits of this tag map.
    WaitForBits(TagMapId, Request),
}

impl<T: Send + 'static> Tenant<T> {
    /// Returns a request that is split into `n` pieces, each with a normal tag of its own; see
    /// [`Split`]. It asks for no tag before its first call. With no pieces it ends at once, also if
    /// the set is closed.
    #[must_use = "it asks for nothing until it is called"]
    pub fn split(&self, n: usize) -> Split<T> {
        self.split_with(n, AllocOptions::new())
    }

    /// Returns a [`split`](Tenant::split) with tags of the kind asked for.
    #[must_use = "it asks for nothing until it is called"]
    pub fn split_with(&self, n: usize, options: AllocOptions) -> Split<T> {
        Split {
            tenant: self.clone(),
            options,
            remaining: n,
            begun: false,
            at: SplitAt::Nowhere,
            record: WaitRecord::new(),
            ended: false,
            waited_in: None,
            collected: Vec::new(),
            from: TagMapId::normal(0),
            joins_all: false,
            joined: Vec::new(),
            collects: false,
        }
    }
}

impl<T: Send + 'static> Split<T> {
    /// Returns how many pieces have no tag yet.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.remaining
    }

    /// Waits as a task for the tag of the next piece; `None` after the last one. The errors are
    /// those of [`Tenant::alloc_with`].
    ///
    /// ```
    /// # use inflight_tags::{AllocError, TagSet};
    /// use std::time::Duration;
    /// let set = TagSet::builder().depth(1).build(|_, _| ())?;
    /// let mut split = set.add_tenant("sda")?.split(3);
    /// let first = split.try_next()?;
    /// assert_eq!(split.try_next().unwrap_err(), AllocError::Exhausted);
    /// let late = split.next_timeout(Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(late, AllocError::TimedOut);
    /// drop(first);
    /// inflight_sync::block_on(async {
    ///     while let Some(tag) = split.next().await? {
    ///         drop(tag);
    ///     }
    ///     Ok::<(), AllocError>(())
    /// })?;
    /// assert!(split.try_next()?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    // Not an iterator's `next`: it waits.
    #[allow(clippy::should_implement_trait)]
    pub const fn next(&mut self) -> NextPiece<'_, T> {
        NextPiece(self)
    }

    /// Polls [`next`](Split::next) by hand, in the form of a stream: `None` after the last piece,
    /// and after an error. The errors are the same.
    ///
    /// Between two polls it keeps its place in the wait queue. If you do not poll it again, wait in
    /// another form, or drop it. With the feature `futures` it is a `Stream`.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// use std::future::poll_fn;
    /// let set = TagSet::builder().depth(4).build(|_, _| ())?;
    /// let mut split = set.add_tenant("sda")?.split(9);
    /// inflight_sync::block_on(async {
    ///     let mut pieces = 0;
    ///     while let Some(tag) = poll_fn(|cx| split.poll_next(cx)).await {
    ///         drop(set.redeem(tag?.into_token())?); // submitted, and completed at once
    ///         pieces += 1;
    ///     }
    ///     assert_eq!(pieces, 9);
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Tag<T>, AllocError>>> {
        if self.has_ended() {
            return Poll::Ready(None);
        }
        self.poll_piece(cx).map(|piece| {
            self.ended = piece.is_err();
            piece.transpose()
        })
    }

    /// Whether the stream has ended.
    const fn has_ended(&self) -> bool {
        self.ended || self.remaining == 0
    }

    fn poll_piece(&mut self, cx: &Context<'_>) -> Poll<Result<Option<Tag<T>>, AllocError>> {
        let piece = loop {
            match &mut self.at {
                // A try has collected them meanwhile: the next freeze must not wait for them.
                SplitAt::Thaw(_) if !self.collected.is_empty() => self.leave(),
                SplitAt::Thaw(key) => {
                    ready!(self.tenant.bitmaps().gate.poll_thaw(key, cx));
                    self.at = SplitAt::Nowhere;
                }
                SplitAt::Waits(_) => {
                    let part = self.fetch_part(|wait, bits| wait.poll(cx, bits));
                    // The queue is closed: the next step finds the set closed.
                    let _ = ready!(part);
                }
                SplitAt::Nowhere | SplitAt::Paused(_) => {
                    if let Some(piece) = self.begin() {
                        break piece;
                    }
                }
            }
        };
        self.record.end(&self.tenant);
        Poll::Ready(piece)
    }

    /// Tries, or begins to wait; neither if the hook asks for another try.
    fn begin(&mut self) -> Option<Result<Option<Tag<T>>, AllocError>> {
        let (tag_map, request) = match self.step(true) {
            SplitStep::Done(piece) => return Some(piece),
            // The freeze may wait for what the hook submits.
            SplitStep::WaitForThaw(_) => (self.tenant.choose_tag_map(self.options), None),
            SplitStep::WaitForBits(tag_map, request) => (tag_map, Some(request)),
        };
        if self.record.call_hook(&self.tenant, tag_map.hw_queue) {
            return None;
        }
        self.record.begin(&self.tenant);
        self.begin_collecting();
        self.at = match request {
            None => SplitAt::Thaw(None),
            Some(request) => {
                self.waited_in = Some(tag_map);
                let bitmaps = self.tenant.bitmaps();
                SplitAt::Waits(match std::mem::replace(&mut self.at, SplitAt::Nowhere) {
                    SplitAt::Paused(wait) => wait.resume(bitmaps, request.tenant),
                    _ => bitmaps.wait_for(tag_map, request),
                })
            }
        };
        None
    }

    /// Waits in its position, or looks for what is there. Keeps what has come, and the position
    /// while there is more to come. If a waker panics meanwhile, leaves the wait queue.
    fn fetch_part<R>(&mut self, look: impl FnOnce(&mut EndingWait<'_>, &mut Vec<usize>) -> R) -> R {
        let (waits, wait) = match std::mem::replace(&mut self.at, SplitAt::Nowhere) {
            SplitAt::Waits(wait) => (true, wait),
            SplitAt::Paused(wait) => (false, wait),
            other => unreachable!("{other:?} does not wait in a queue"),
        };
        let (tag_map, bitmaps) = (wait.tag_map, self.tenant.bitmaps());
        let (mut wait, mut bits) = (wait.ending(bitmaps), Vec::new());
        let result = look(&mut wait, &mut bits);
        // The user's code runs only after what has come is kept.
        let wait = wait.into_wait();
        let queued = wait.is_queued();
        self.at = if queued && waits && bits.is_empty() {
            SplitAt::Waits(wait)
        } else {
            let paused = wait.pause(bitmaps);
            if queued {
                SplitAt::Paused(paused)
            } else {
                SplitAt::Nowhere
            }
        };
        if !bits.is_empty() {
            self.set_collected(tag_map, bits);
        } else if !queued {
            // What had been collected for it may have been put.
            drop(bitmaps.gate.wake_at_end());
        }
        result
    }

    /// Waits as [`next`](Split::next); the thread sleeps. The errors are the same.
    pub fn next_blocking(&mut self) -> Result<Option<Tag<T>>, AllocError> {
        self.next_sleeping(None)
    }

    /// Waits as [`next`](Split::next); the thread sleeps at most `timeout`. The `Split` can be
    /// asked again after a timeout. The errors are the same; also
    /// [`TimedOut`](AllocError::TimedOut).
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Tag<T>>, AllocError> {
        let deadline = self.tenant.bitmaps().clock.now() + timeout;
        self.next_sleeping(Some(deadline))
    }

    /// Returns the tag of [`next`](Split::next), if it can be had without waiting. If not, a wait
    /// of [`poll_next`](Split::poll_next) continues. After a tag by a try, poll again without a
    /// wake: the wait may have ended without one. The errors are those of [`Tenant::try_alloc`].
    pub fn try_next(&mut self) -> Result<Option<Tag<T>>, AllocError> {
        match self.step(false) {
            SplitStep::Done(done) => done,
            SplitStep::WaitForThaw(why) => Err(self.tenant.refuse(why)),
            SplitStep::WaitForBits(..) => Err(self.tenant.refuse(AllocError::Exhausted)),
        }
    }

    fn next_sleeping(&mut self, deadline: Option<Instant>) -> Result<Option<Tag<T>>, AllocError> {
        let result = self.next_as_thread(deadline);
        self.record.end(&self.tenant);
        result
    }

    fn next_as_thread(&mut self, deadline: Option<Instant>) -> Result<Option<Tag<T>>, AllocError> {
        if matches!(self.at, SplitAt::Thaw(_)) {
            // It waits as a thread now.
            self.leave();
        }
        loop {
            let in_time = match &self.at {
                SplitAt::Waits(_) => {
                    let part = self.fetch_part(|wait, bits| wait.block(deadline, bits));
                    part != Err(GetError::TimedOut)
                }
                SplitAt::Thaw(_) => {
                    self.at = SplitAt::Nowhere;
                    self.tenant.bitmaps().wait_thaw(deadline)
                }
                SplitAt::Nowhere | SplitAt::Paused(_) => {
                    if let Some(piece) = self.begin() {
                        return piece;
                    }
                    true
                }
            };
            if !in_time {
                return Err(self.tenant.refuse(AllocError::TimedOut));
            }
        }
    }
}

impl<T: Send + 'static> Drop for Split<T> {
    /// Each step wakes others, and comes also if a waker panics in the one before.
    fn drop(&mut self) {
        let mut panic = FirstPanic::default();
        panic.run(|| self.stop_waiting());
        panic.run(|| self.give_back());
        panic.run(|| self.end_collecting());
        if let Some(tag_map) = self.waited_in.filter(|_| self.remaining > 0) {
            // It was woken for more tags than it took.
            let bitmap = self.tenant.bitmaps().bitmap(tag_map);
            panic.run(|| bitmap.pass_on(self.remaining));
        }
        panic.finish();
    }
}

inflight_sync::debug_fields!([T: Send + 'static] Split<T>: |this|
    remaining = this.remaining, collected = this.collected.len());
