//! Requests that the device refused for now, sent again by a workqueue.

use inflight_sync::time::{Clock, Instant};
use inflight_sync::{Arc, Mutex, Weak};
use inflight_tags::Tag;
use inflight_workqueue::{DelayedWork, Workqueue};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
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
/// ends takes back what is not due yet, and nobody sends it until one of the two happens.
///
/// # Fairness
///
/// Of those whose time has come, the one that was handed in first is sent first.
///
/// # Panics
///
/// If `send` panics, the other requests are sent all the same, and then it is the panic of the
/// work, or of who handed in or dropped.
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
    list: Mutex<List<T>>,
}

type Waiting<T> = BTreeMap<(Instant, u64), Tag<T>>;

/// What waits, by the time at which it is due and the order in which it was handed in.
struct List<T: Send + 'static> {
    waiting: Waiting<T>,
    requeued: u64,
    sent_early: u64,
}

/// What a [`Requeue`] has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequeueStats {
    /// Requests handed in.
    pub requeued: u64,
    /// Those that wait.
    pub waiting: usize,
    /// Those that were sent before their time, because the queue took no more work.
    pub sent_early: u64,
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
                list: Mutex::new(List {
                    waiting: BTreeMap::new(),
                    requeued: 0,
                    sent_early: 0,
                }),
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
            let mut list = inner.list.lock();
            let number = list.requeued;
            list.requeued += 1;
            list.waiting.insert((due, number), tag);
            inner.arm(&mut list)
        };
        inner.send_each(refused);
    }

    /// How many requests wait here.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.inner.list.lock().waiting.len()
    }

    /// What was done so far.
    ///
    /// ```
    /// # use inflight::{Requeue, prelude::*};
    /// let system = WorkqueueSystem::builder().build()?;
    /// let queue = system.workqueue("requeue").bound().build()?;
    /// let requeue = Requeue::new(&queue, |tag: Tag<u32>| drop(tag));
    /// assert_eq!((requeue.stats().requeued, requeue.stats().waiting), (0, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> RequeueStats {
        let list = self.inner.list.lock();
        RequeueStats {
            requeued: list.requeued,
            waiting: list.waiting.len(),
            sent_early: list.sent_early,
        }
    }
}

impl<T: Send + 'static> Inner<T> {
    /// Has the work run when the first request is due. Under the lock, so that of two who arm it
    /// the later one knows of both requests. Gives back what has to be sent at once, since there is
    /// no queue to do it.
    fn arm(&self, list: &mut List<T>) -> Waiting<T> {
        let Some((&(first, _), _)) = list.waiting.first_key_value() else {
            return BTreeMap::new();
        };
        let now = self.clock.now();
        let delay = first.saturating_duration_since(now);
        match self.queue.mod_delayed(&self.work, delay) {
            Ok(_) => BTreeMap::new(),
            Err(_) => {
                let early = list.waiting.keys().filter(|(due, _)| *due > now).count();
                list.sent_early += early as u64;
                std::mem::take(&mut list.waiting)
            }
        }
    }

    fn send_due(&self) {
        let due = {
            let now = self.clock.now();
            let mut list = self.list.lock();
            let later = list.waiting.split_off(&(now, u64::MAX));
            let mut due = std::mem::replace(&mut list.waiting, later);
            // Before they are sent: whatever happens then, the others have their turn.
            due.extend(self.arm(&mut list));
            due
        };
        self.send_each(due);
    }

    /// In the order in which they were handed in.
    fn send_each(&self, due: Waiting<T>) {
        let mut due = Vec::from_iter(due);
        due.sort_unstable_by_key(|((_, number), _)| *number);
        let mut panicked = None;
        for (_, tag) in due {
            // The others are sent all the same.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.send)(tag))) {
                panicked.get_or_insert(panic);
            }
        }
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
    }
}

impl<T: Send + 'static> Drop for Inner<T> {
    fn drop(&mut self) {
        let waiting = std::mem::take(&mut self.list.get_mut().waiting);
        self.send_each(waiting);
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
