//! Requests that the device refused for now, sent again by a workqueue.

use inflight_sync::time::{Clock, Instant};
use inflight_sync::{Arc, Mutex, Weak};
use inflight_tags::Tag;
use inflight_workqueue::{DelayedWork, Workqueue};
use std::fmt;
use std::time::Duration;

/// Keeps requests that are to be sent again later, oldest first, and sends them by a work of a
/// queue: what a requeue list is to a block device. A clone is a handle to the same.
///
/// A request that waits here keeps its tag. So a freeze waits for it, a resize counts it, and it
/// needs no tag when it is sent again. It is not in flight, so no timeout is about it.
///
/// No request is lost: if the queue takes no more work (it drains, was destroyed, its system has
/// gone) requests are sent by whoever hands the next one in, at once; and when the last handle is
/// dropped, what waits is sent by the one who drops it. Drop it before the system: a system that
/// ends takes back what is not due yet.
///
/// # Fairness
///
/// Of those whose time has come, the one that was handed in first is sent first.
///
/// # Panics
///
/// If `send` panics, that is the work's panic; the other requests are sent later.
///
/// ```
/// use inflight::Requeue;
/// use inflight::prelude::*;
/// use std::sync::mpsc;
/// use std::time::Duration;
///
/// struct Request { offset: u64 }
/// let system = WorkqueueSystem::builder().build()?;
/// let queue = system.workqueue("requeue").bound().highpri().build()?;
/// let set = TagSet::builder().depth(8).build(|_, _| Request { offset: 0 })?;
/// let disk = set.add_tenant("disk0")?;
///
/// let (device, sent) = mpsc::channel();
/// let requeue = Requeue::new(&queue, move |tag: Tag<Request>| device.send(tag).unwrap());
/// let mut tag = disk.alloc_blocking()?;
/// tag.offset = 4096;
/// requeue.requeue(tag, Duration::from_millis(1)); // the device said: not now
/// assert_eq!(sent.recv()?.offset, 4096); // and it is sent again
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Requeue<T: Send + 'static> {
    inner: Arc<Inner<T>>,
}

struct Inner<T: Send + 'static> {
    queue: Workqueue,
    work: DelayedWork,
    clock: Clock,
    send: Box<dyn Fn(Tag<T>) + Send + Sync>,
    /// In the order in which they were handed in.
    waiting: Mutex<Vec<(Instant, Tag<T>)>>,
}

impl<T: Send + 'static> Requeue<T> {
    /// Sends by works of `queue`; a bound one sends on the CPU of whoever handed the request in.
    #[must_use]
    pub fn new(queue: &Workqueue, send: impl Fn(Tag<T>) + Send + Sync + 'static) -> Self {
        Self::with_clock(queue, &Clock::system(), send)
    }

    /// The same by another clock, which has to be that of the queue's system.
    #[must_use]
    pub fn with_clock(
        queue: &Workqueue,
        clock: &Clock,
        send: impl Fn(Tag<T>) + Send + Sync + 'static,
    ) -> Self {
        let inner = Arc::new_cyclic(|inner: &Weak<Inner<T>>| {
            let inner = inner.clone();
            Inner {
                queue: queue.clone(),
                work: DelayedWork::new(move || {
                    if let Some(inner) = inner.upgrade() {
                        inner.send_due();
                    }
                }),
                clock: clock.clone(),
                send: Box::new(send),
                waiting: Mutex::new(Vec::new()),
            }
        });
        Self { inner }
    }

    /// Sends the request again after `delay`; not before those that were handed in earlier and
    /// whose time has come, too.
    pub fn requeue(&self, tag: Tag<T>, delay: Duration) {
        let inner = &self.inner;
        let due = inner.clock.now() + delay;
        let refused = {
            let mut waiting = inner.waiting.lock();
            waiting.push((due, tag));
            inner.arm(&mut waiting)
        };
        refused.into_iter().for_each(|(_, tag)| (inner.send)(tag));
    }

    /// How many requests wait here.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.inner.waiting.lock().len()
    }
}

impl<T: Send + 'static> Inner<T> {
    /// Has the work run when the first request is due. Under the lock, so that of two who arm it
    /// the later one knows of both requests. Gives back what has to be sent at once, since there is
    /// no queue to do it.
    fn arm(&self, waiting: &mut Vec<(Instant, Tag<T>)>) -> Vec<(Instant, Tag<T>)> {
        let Some(first) = waiting.iter().map(|(due, _)| *due).min() else {
            return Vec::new();
        };
        let delay = first.saturating_duration_since(self.clock.now());
        match self.queue.mod_delayed(&self.work, delay) {
            Ok(_) => Vec::new(),
            Err(_) => std::mem::take(waiting),
        }
    }

    fn send_due(&self) {
        let due = {
            let now = self.clock.now();
            let mut waiting = self.waiting.lock();
            let all = std::mem::take(&mut *waiting);
            let (mut due, later): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|(at, _)| *at <= now);
            *waiting = later;
            // Before they are sent: whatever happens then, the others have their turn.
            due.extend(self.arm(&mut waiting));
            due
        };
        due.into_iter().for_each(|(_, tag)| (self.send)(tag));
    }
}

impl<T: Send + 'static> Drop for Inner<T> {
    fn drop(&mut self) {
        let waiting = std::mem::take(self.waiting.get_mut());
        waiting.into_iter().for_each(|(_, tag)| (self.send)(tag));
    }
}

impl<T: Send + 'static> Clone for Requeue<T> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

impl<T: Send + 'static> fmt::Debug for Requeue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requeue")
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}
