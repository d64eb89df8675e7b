//! Requests that the device refused for now, sent again by a workqueue.

use inflight_sync::panics::FirstPanic;
use inflight_sync::thread::{self, ThreadId};
use inflight_sync::time::{Clock, Instant};
use inflight_sync::{Arc, Mutex, Weak};
use inflight_tags::Tag;
use inflight_workqueue::{DelayedWork, QueueError, Workqueue};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The shortest delay.
const SOON: Duration = Duration::from_nanos(1);

/// Keeps requests that are to be sent again later, oldest first, and sends them by a work of a
/// queue, as the requeue list of a block device. A clone is a handle to the same list.
///
/// A request that waits here keeps its tag. So a freeze waits for it, a resize counts it, and it
/// needs no tag when it is sent again. It is not in flight, so it has no timeout meanwhile.
///
/// # Refused again
///
/// `send` returns a request that was refused once more, with the delay after which it is sent
/// again, so `send` needs no handle of its `Requeue`. Requeueing the request by such a handle has
/// the same effect.
///
/// # When the queue takes no work
///
/// Requests that are due while the queue drains are sent when the drain ends. So are those that
/// `send` refuses meanwhile, also with a delay of zero: the drain ends, however often it refuses.
///
/// If the queue was destroyed or its system has ended, the next call of `requeue` sends all waiting
/// requests, at once. That call sends each once: one that is refused again waits, until the next is
/// requeued from outside of `send`, a caller [kicks](Requeue::kick), or the last handle is dropped.
/// So a request that the device always refuses makes no endless loop.
///
/// Dropping the last handle sends the waiting requests. A request that `send` then returns is
/// dropped, and its tag is free; at the end of an engine `send` should complete a request with an
/// error instead. Kick, or drop the last handle, before or after the system ends: a system that
/// ends takes back the requests that are not due yet, and they are not sent until one of the two
/// happens.
///
/// # Steering
///
/// A request that is sent again is a new submission:
/// [`submitted_on`](inflight_tags::Tag::submitted_on) is the CPU of the worker that sent it, and
/// steering runs the completion there.
///
/// # Fairness
///
/// Of the requests that are due, the one that was requeued first is sent first.
///
/// # Panics
///
/// If `send` panics, the other requests are still sent, and then the work panics, or the caller
/// that requeued, kicked or dropped.
///
/// ```
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
/// let requeue = Requeue::new(&queue, move |tag: Tag<Request>| {
///     device.send(tag).unwrap();
///     Ok(()) // or Err((tag, delay)): the device has refused it again
/// });
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
    send: Box<dyn Fn(Tag<T>) -> Sent<T> + Send + Sync>,
    list: Mutex<List<T>>,
}

/// The result of `send`: a request that was refused again, with its delay.
type Sent<T> = Result<(), (Tag<T>, Duration)>;

type Waiting<T> = BTreeMap<(Instant, u64), Tag<T>>;

/// The waiting requests, by the time at which they are due and the order in which they were
/// requeued.
struct List<T: Send + 'static> {
    waiting: Waiting<T>,
    /// Threads that call `send`. A request that such a thread requeues was refused again.
    senders: Vec<ThreadId>,
    requeued: u64,
    sent_early: u64,
}

/// The counters of a [`Requeue`] since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequeueStats {
    /// Requests that were requeued.
    pub requeued: u64,
    /// Requests that wait.
    pub waiting: usize,
    /// Requests that were sent before their time, because the queue took no more work, or by
    /// [`kick`](Requeue::kick).
    pub sent_early: u64,
}

impl<T: Send + 'static> Requeue<T> {
    /// Makes a list that sends by works of `queue`. A bound queue sends all due requests on the CPU
    /// of the caller that requeued last. `send` returns a request that was refused again, with its
    /// new delay.
    #[must_use]
    pub fn new(
        queue: &Workqueue,
        send: impl Fn(Tag<T>) -> Result<(), (Tag<T>, Duration)> + Send + Sync + 'static,
    ) -> Self {
        Self::with_clock(queue, &Clock::system(), send)
    }

    /// Makes a list with another clock, which has to be that of the queue's system.
    #[must_use]
    pub fn with_clock(
        queue: &Workqueue,
        clock: &Clock,
        send: impl Fn(Tag<T>) -> Result<(), (Tag<T>, Duration)> + Send + Sync + 'static,
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
                    senders: Vec::new(),
                    requeued: 0,
                    sent_early: 0,
                }),
            }
        });
        Self { inner }
    }

    /// Sends the request again after `delay`, and after the due requests that were requeued before
    /// it.
    pub fn requeue(&self, tag: Tag<T>, delay: Duration) {
        let refused = self.inner.hand_in(tag, delay);
        self.inner.send_each(refused);
    }

    /// Sends all waiting requests now, whatever their delay: by the queue's work, if the queue
    /// drains at the end of the drain, or, if it takes no more works, in this call. A request that
    /// is refused again waits anew. A call from within `send` leaves them to the queue.
    ///
    /// For a device that accepts requests again, and at the end of an engine. It is
    /// `blk_mq_kick_requeue_list`.
    ///
    /// ```
    /// use inflight::prelude::*;
    /// use std::time::Duration;
    /// let system = WorkqueueSystem::builder().build()?;
    /// let queue = system.workqueue("requeue").bound().build()?;
    /// let set = TagSet::builder().depth(1).build(|_, _| ())?;
    /// let requeue = Requeue::new(&queue, |tag: Tag<()>| {
    ///     drop(tag); // sent, and completed at once
    ///     Ok(())
    /// });
    /// requeue.requeue(set.add_tenant("disk0")?.alloc_blocking()?, Duration::from_secs(3600));
    /// requeue.kick();
    /// queue.flush_blocking()?;
    /// assert_eq!(set.in_use(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn kick(&self) {
        let refused = self.inner.hurry();
        self.inner.send_each(refused);
    }

    /// Returns how many requests wait here.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.inner.list.lock().waiting.len()
    }

    /// Returns the counters.
    ///
    /// ```
    /// # use inflight::prelude::*;
    /// let system = WorkqueueSystem::builder().build()?;
    /// let queue = system.workqueue("requeue").bound().build()?;
    /// let requeue = Requeue::new(&queue, |_: Tag<u32>| Ok(()));
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
    /// Adds a request. Returns the requests that the caller has to send.
    fn hand_in(&self, tag: Tag<T>, delay: Duration) -> Waiting<T> {
        let due = self.clock.now() + delay;
        let mut list = self.list.lock();
        let number = list.requeued;
        list.requeued += 1;
        list.waiting.insert((due, number), tag);
        self.arm(&mut list)
    }

    /// Makes all requests due. Returns the requests that the caller has to send.
    fn hurry(&self) -> Waiting<T> {
        let now = self.clock.now();
        let mut list = self.list.lock();
        let later = list.waiting.split_off(&(now, u64::MAX));
        list.sent_early += later.len() as u64;
        let due = later.into_iter().map(|((_, n), tag)| ((now, n), tag));
        list.waiting.extend(due);
        self.arm(&mut list)
    }

    /// Queues the work for the time when the first request is due. Under the lock, so that of two
    /// callers that do so the later one sees both requests. Returns the requests that the caller
    /// has to send, because there is no queue to do it: none, if `send` is the caller.
    fn arm(&self, list: &mut List<T>) -> Waiting<T> {
        let Some((&(first, _), _)) = list.waiting.first_key_value() else {
            return BTreeMap::new();
        };
        let now = self.clock.now();
        let mut delay = first.saturating_duration_since(now);
        if !self.queue.is_open() {
            // Without a delay a queue that ends takes the work from its own items. It would not end
            // while `send` refuses.
            delay = delay.max(SOON);
        }
        let armed = match self.queue.mod_delayed(&self.work, delay) {
            // A drain has begun since. What comes due during a drain is queued when that ends.
            Err(QueueError::Draining) => self.queue.mod_delayed(&self.work, SOON),
            armed => armed,
        };
        if armed.is_ok() {
            return BTreeMap::new();
        }
        let me = thread::current_id();
        if list.senders.contains(&me) {
            return BTreeMap::new();
        }
        list.senders.push(me);
        let early = list.waiting.keys().filter(|(due, _)| *due > now).count();
        list.sent_early += early as u64;
        std::mem::take(&mut list.waiting)
    }

    fn send_due(&self) {
        let due = {
            let now = self.clock.now();
            let mut list = self.list.lock();
            let later = list.waiting.split_off(&(now, u64::MAX));
            let mut due = std::mem::replace(&mut list.waiting, later);
            // Before they are sent: whatever happens then, the others have their turn.
            let refused = self.arm(&mut list);
            if refused.is_empty() && !due.is_empty() {
                list.senders.push(thread::current_id());
            }
            due.extend(refused);
            due
        };
        self.send_each(due);
    }

    /// Sends requests by a thread that is one of the senders, unless there is nothing to send.
    fn send_each(&self, due: Waiting<T>) {
        if due.is_empty() {
            return;
        }
        let panicked = send_in_order(due, |tag| {
            if let Err((tag, delay)) = (self.send)(tag) {
                let none = self.hand_in(tag, delay);
                debug_assert!(none.is_empty(), "it is this thread that sends");
            }
        });
        let me = thread::current_id();
        let mut list = self.list.lock();
        let at = list.senders.iter().position(|sender| *sender == me);
        list.senders
            .swap_remove(at.expect("the sender is in the list"));
        drop(list);
        panicked.finish();
    }
}

/// Sends in the order of requeueing.
fn send_in_order<T>(due: Waiting<T>, send: impl Fn(Tag<T>)) -> FirstPanic
where
    T: Send + 'static,
{
    let mut due = Vec::from_iter(due);
    due.sort_unstable_by_key(|((_, number), _)| *number);
    // The others are sent all the same.
    let mut panic = FirstPanic::default();
    due.into_iter().for_each(|(_, tag)| {
        panic.run(|| send(tag));
    });
    panic
}

impl<T: Send + 'static> Drop for Inner<T> {
    fn drop(&mut self) {
        let waiting = std::mem::take(&mut self.list.get_mut().waiting);
        // What is refused again has nobody who keeps it.
        send_in_order(waiting, |tag| drop((self.send)(tag))).finish();
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
