//! The futures of a drain: of a quiesced set, and of a hardware queue.

use crate::drain::DrainPass;
use crate::error::DrainError;
use crate::hotplug::HwQueueDrain;
use crate::set::TagSet;
use crate::tag_maps::TagMaps;
use inflight_sync::Arc;
use inflight_sync::wait::WaiterKey;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The future of [`QuiesceGuard::drain`](crate::QuiesceGuard::drain). `'static`; may be dropped at
/// any time.
///
/// ```
/// use inflight_tags::{Drain, TagSet};
/// let set = TagSet::builder().build(|_, _| ())?;
/// let quiesced = set.quiesce();
/// let drain: Drain = quiesced.drain();
/// inflight_sync::block_on(drain);
/// # Ok::<(), inflight_tags::BuildError>(())
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct Drain {
    bitmaps: Arc<TagMaps>,
    /// Once it has begun.
    pass: Option<DrainPass>,
    place: Option<WaiterKey>,
}

impl Drain {
    pub(crate) const fn new(bitmaps: Arc<TagMaps>) -> Self {
        Self {
            bitmaps,
            pass: None,
            place: None,
        }
    }
}

impl Future for Drain {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self {
            bitmaps,
            pass,
            place,
        } = &mut *self;
        let looking = pass.get_or_insert_with(|| DrainPass::of_all(bitmaps));
        let drained = bitmaps.gate().drained();
        ready!(drained.poll_while(place, cx, || looking.is_busy(bitmaps)));
        *pass = None;
        Poll::Ready(())
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.bitmaps.gate().drained().leave(&mut self.place);
    }
}

impl fmt::Debug for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain")
            .field("begun", &self.pass.is_some())
            .finish_non_exhaustive()
    }
}

/// The future of [`HwQueues::drain`](crate::HwQueues::drain). `'static`; may be dropped at any
/// time.
///
/// ```
/// use inflight_tags::{DrainError, DrainHwQueue, TagSet};
/// let set = TagSet::builder().build(|_, _| ())?;
/// let drain: DrainHwQueue<()> = set.hw_queues().drain(1);
/// let none = DrainError::NoSuchHwQueue { hw_queue: 1 };
/// assert_eq!(inflight_sync::block_on(drain), Err(none));
/// # Ok::<(), inflight_tags::BuildError>(())
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct DrainHwQueue<T: Send + 'static> {
    set: TagSet<T>,
    hw_queue: usize,
    /// Once it has begun.
    drain: Option<HwQueueDrain>,
    place: Option<WaiterKey>,
}

impl<T: Send + 'static> DrainHwQueue<T> {
    pub(crate) const fn new(set: TagSet<T>, hw_queue: usize) -> Self {
        Self {
            set,
            hw_queue,
            drain: None,
            place: None,
        }
    }
}

impl<T: Send + 'static> Future for DrainHwQueue<T> {
    type Output = Result<(), DrainError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let shared = this.set.shared();
        let drain = match &mut this.drain {
            Some(drain) => drain,
            none => none.insert(shared.begin_drain(this.hw_queue)?),
        };
        let mut end = None;
        let drained = shared.bitmaps.gate().drained();
        ready!(drained.poll_while(&mut this.place, cx, || {
            end = shared.end_drain(drain);
            end.is_none()
        }));
        this.drain = None;
        Poll::Ready(end.expect("the wait is over when there is an end"))
    }
}

impl<T: Send + 'static> Drop for DrainHwQueue<T> {
    fn drop(&mut self) {
        let drained = self.set.shared().bitmaps.gate().drained();
        drained.leave(&mut self.place);
    }
}

impl<T: Send + 'static> fmt::Debug for DrainHwQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DrainHwQueue")
            .field("hw_queue", &self.hw_queue)
            .field("begun", &self.drain.is_some())
            .finish_non_exhaustive()
    }
}
