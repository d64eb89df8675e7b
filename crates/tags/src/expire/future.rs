//! The futures of requests whose timeout has passed.

use super::{Expired, LookAgain, Seen};
use crate::expirers::Interval;
use crate::set::TagSet;
use inflight_sync::time::Sleep;
use inflight_sync::wait::WaiterKey;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The future of [`TagSet::expired`], which may be dropped at any time. A poll after it was ready
/// asks for another request.
#[must_use = "futures do nothing unless polled"]
pub struct NextExpired<'a, T: Send + 'static> {
    pub(super) set: &'a TagSet<T>,
    pub(super) sleeping: Sleeping,
}

/// The requests of a set whose time is up, one after the other: see
/// [`TagSet::expired_owned`]. `'static`; with the feature `futures` a `Stream`.
///
/// It ends when the set is [closed](TagSet::close) and no tag is in use. Until then it keeps the
/// set. May be dropped at any time.
///
/// ```
/// use inflight_tags::{ExpiredOwned, TagSet};
/// use std::future::poll_fn;
/// struct Engine { timeouts: ExpiredOwned<()> }
/// let set = TagSet::builder().build(|_, _| ())?;
/// let mut engine = Engine { timeouts: set.expired_owned() };
/// set.close();
/// assert!(inflight_sync::block_on(poll_fn(|cx| engine.timeouts.poll_expired(cx))).is_none());
/// # Ok::<(), inflight_tags::BuildError>(())
/// ```
#[must_use = "it does nothing unless polled"]
pub struct ExpiredOwned<T: Send + 'static> {
    /// `None` after the end.
    pub(super) set: Option<TagSet<T>>,
    pub(super) sleeping: Sleeping,
}

/// What a task waits for until its next check.
#[derive(Debug, Default)]
pub(super) struct Sleeping {
    /// A time, or a change of this.
    sleep: Option<(Sleep, LookAgain)>,
    /// The key while it waits for that change.
    key: Option<WaiterKey>,
}

impl Sleeping {
    /// Ready with the interval that it has slept for.
    fn poll<T: Send + 'static>(
        &mut self,
        set: &TagSet<T>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Interval>> {
        let Some((sleep, again)) = &mut self.sleep else {
            return Poll::Ready(None);
        };
        let bitmaps = &set.shared.bitmaps;
        let unchanged = || Seen::now(bitmaps) == again.seen;
        let changed = &bitmaps.expirers.changed;
        let changed = changed.poll_while(&mut self.key, cx, unchanged).is_ready();
        if !changed {
            ready!(Pin::new(sleep).poll(cx));
        }
        let slept = again.slept().filter(|_| !changed);
        self.end(set);
        Poll::Ready(slept)
    }

    fn end<T: Send + 'static>(&mut self, set: &TagSet<T>) {
        self.sleep = None;
        set.shared.bitmaps.expirers.changed.leave(&mut self.key);
    }
}

fn poll<T: Send + 'static>(
    set: &TagSet<T>,
    sleeping: &mut Sleeping,
    cx: &mut Context<'_>,
) -> Poll<Option<Expired<T>>> {
    loop {
        let slept = ready!(sleeping.poll(set, cx));
        match set.look_for_expired(slept) {
            Ok(late) => return Poll::Ready(late),
            Err(again) => {
                let sleep = set.shared.timer.sleep_until(again.at);
                sleeping.sleep = Some((sleep, again));
            }
        }
    }
}

impl<T: Send + 'static> Drop for NextExpired<'_, T> {
    fn drop(&mut self) {
        self.sleeping.end(self.set);
    }
}

impl<T: Send + 'static> Future for NextExpired<'_, T> {
    type Output = Option<Expired<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        poll(this.set, &mut this.sleeping, cx)
    }
}

impl<T: Send + 'static> ExpiredOwned<T> {
    /// Waits for the next one, as [`TagSet::expired`]; `None` at the end, and from then on.
    pub fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<Option<Expired<T>>> {
        let Some(set) = &self.set else {
            return Poll::Ready(None);
        };
        let next = ready!(poll(set, &mut self.sleeping, cx));
        if next.is_none() {
            self.set = None;
        }
        Poll::Ready(next)
    }
}

impl<T: Send + 'static> Drop for ExpiredOwned<T> {
    fn drop(&mut self) {
        if let Some(set) = &self.set {
            self.sleeping.end(set);
        }
    }
}

#[cfg(feature = "futures")]
impl<T: Send + 'static> futures_core::Stream for ExpiredOwned<T> {
    type Item = Expired<T>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_expired(cx)
    }
}

#[cfg(feature = "futures")]
impl<T: Send + 'static> futures_core::stream::FusedStream for ExpiredOwned<T> {
    fn is_terminated(&self) -> bool {
        self.set.is_none()
    }
}

inflight_sync::debug_fields!([T: Send + 'static] NextExpired<'_, T>: |this|
    sleep = this.sleeping.sleep);

inflight_sync::debug_fields!([T: Send + 'static] ExpiredOwned<T>: |this|
    has_ended = this.set.is_none());
