//! Getting one id or several, with waiting: as a future, as a thread, with a timeout, as a guard.

use crate::close;
use crate::error::{GetError, GetManyError};
use crate::id_guard::{IdGuard, OwnedIdGuard};
use crate::queue::{Inner, SbitmapQueue};
use crate::request::{Ids, Request};
use crate::waiter::Waiter;
use inflight_sync::time::Instant;
use inflight_sync::{Arc, poll_until};
use std::future::Future;
use std::ops::Deref;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

impl SbitmapQueue {
    /// Takes a bit; the task waits until there is one. The future is a named type, and can be
    /// polled again for another bit.
    ///
    /// # Errors
    ///
    /// [`GetError::Closed`] if the queue [is closed](SbitmapQueue::close).
    ///
    /// # Cancel safety
    ///
    /// A dropped future loses neither a bit nor a wakeup: a bit that it had been given and had not
    /// yet fetched goes to the next waiter. The future loses its place in the queue.
    ///
    /// Do not *keep* a future that you no longer poll: with [`Fair`](crate::Fairness::Fair) and
    /// [`Fifo`](crate::Fairness::Fifo) it keeps the bit that it is
    /// [granted](crate::Fairness#a-bit-that-is-granted). A timeout around it
    /// (`tokio::time::timeout`) drops it. A bit that a task has got and does not put, because the
    /// task was cancelled, is lost: take an [`id`](SbitmapQueue::id) instead.
    ///
    /// ```
    /// use inflight_sbitmap::{Get, GetError, SbitmapQueue};
    /// use std::time::Duration;
    /// let queue = SbitmapQueue::builder(1).build()?;
    /// let get: Get<'_> = queue.get();
    /// assert_eq!(inflight_sbitmap::block_on(get)?, 0);
    /// assert_eq!(queue.get_timeout(Duration::from_millis(1)), Err(GetError::TimedOut));
    /// queue.put(0)?;
    /// assert_eq!(queue.get_blocking()?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get(&self) -> Get<'_> {
        Get(QueuedWait::new(self, Request::one(0)))
    }

    /// Takes a bit; the thread sleeps until there is one. The errors are those of
    /// [`get`](SbitmapQueue::get).
    pub fn get_blocking(&self) -> Result<usize, GetError> {
        self.get_until(None)
    }

    /// Takes a bit; the thread sleeps at most `timeout`, by the queue's clock. A timeout of zero
    /// makes one attempt.
    ///
    /// # Errors
    ///
    /// [`GetError::TimedOut`] if the time passed first; [`GetError::Closed`].
    pub fn get_timeout(&self, timeout: Duration) -> Result<usize, GetError> {
        self.get_until(Some(self.clock.now() + timeout))
    }

    fn get_until(&self, deadline: Option<Instant>) -> Result<usize, GetError> {
        let bit = match &self.inner {
            Inner::Batched(queue) => queue.try_get(),
            Inner::Shared(queue) => queue.try_get_or_linger(),
            Inner::Local(queue) | Inner::Rseq(queue, _) => queue.try_get_or_linger(),
        };
        if let Some(bit) = bit {
            return Ok(bit);
        }
        Waiter::new(self, Request::one(0)).block_one(self, deadline)
    }

    /// Takes a bit as [`try_get`](SbitmapQueue::try_get), in a guard that puts the bit back. `None`
    /// once the queue is closed.
    pub fn try_id(&self) -> Option<IdGuard<'_>> {
        self.try_get().map(|bit| IdGuard::adopt(self, bit))
    }

    /// Takes a bit as [`get`](SbitmapQueue::get), in a guard that puts the bit back, also if the
    /// task of the guard is cancelled. The errors are the same.
    ///
    /// ```
    /// use inflight_sbitmap::{GetId, SbitmapQueue, block_on};
    /// use std::time::Duration;
    /// let queue = SbitmapQueue::builder(1).build()?;
    /// let id: GetId<'_> = queue.id();
    /// let id = block_on(id)?;
    /// assert!(id.id() == 0 && queue.try_id().is_none());
    /// assert!(queue.id_timeout(Duration::from_millis(1)).is_err());
    /// drop(id);
    /// drop(queue.id_blocking()?);
    /// assert_eq!(queue.weight(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn id(&self) -> GetId<'_> {
        GetId(self.get())
    }

    /// Takes a bit as [`id`](SbitmapQueue::id); the thread sleeps. The errors are the same.
    pub fn id_blocking(&self) -> Result<IdGuard<'_>, GetError> {
        self.get_blocking().map(|bit| IdGuard::adopt(self, bit))
    }

    /// Takes a bit as [`id`](SbitmapQueue::id); the thread sleeps at most `timeout`. The errors are
    /// the same; also [`GetError::TimedOut`].
    pub fn id_timeout(&self, timeout: Duration) -> Result<IdGuard<'_>, GetError> {
        self.get_timeout(timeout)
            .map(|bit| IdGuard::adopt(self, bit))
    }

    /// Takes a bit as [`id`](SbitmapQueue::id), from a queue in an `Arc`: the future and its guards
    /// are `'static`, and it can be [polled by hand](GetOwned::poll_get) for one id after the
    /// other.
    pub fn id_owned(self: &Arc<Self>) -> GetOwned {
        GetOwned(QueuedWait::new(self.clone(), Request::one(0)))
    }

    /// Takes `n` bits together if there are so many now, and none otherwise.
    ///
    /// # Errors
    ///
    /// [`GetManyError::TooMany`] if `n` is above the depth, [`GetManyError::Exhausted`] if there
    /// are not so many for this caller now, [`GetManyError::Closed`].
    pub fn try_get_many(&self, n: usize) -> Result<Vec<usize>, GetManyError> {
        Request::together(n).check(self.depth())?;
        let mut bits = Vec::with_capacity(n);
        if self.try_get_batch(n, &mut bits) == n && (n > 0 || !self.is_closed()) {
            return Ok(bits);
        }
        // Too few, or closed. An error: a user has put one of them a second time. The others are
        // back.
        let _ = self.put_batch(&bits);
        close::check(self.is_closed())?;
        Err(GetManyError::Exhausted { n })
    }

    /// Takes `n` bits, in no particular order; the task waits until it has them all.
    ///
    /// One waiter at a time collects, and no other caller takes a bit past it (with
    /// [`Batched`](crate::Fairness::Batched) others do). So two waiters never wait for each other's
    /// bits. For the same reason do not hold bits of this queue while you wait for several.
    ///
    /// **All other waiters wait until it has all its bits**, also those for one bit: if the missing
    /// bits never come back, no caller gets any. In such a case use a
    /// [timeout](SbitmapQueue::get_many_timeout). Collected bits count as in use, for example in
    /// [`weight`](SbitmapQueue::weight); [`collected`](crate::QueueSnapshot::collected) of the
    /// snapshot is their number.
    ///
    /// # Errors
    ///
    /// [`GetManyError::TooMany`] if `n` is above the depth, at once or when the queue is resized;
    /// [`GetManyError::Closed`].
    ///
    /// # Cancel safety
    ///
    /// A dropped future gives back the bits that it had collected. A future that is kept and not
    /// polled keeps them, and all others wait.
    ///
    /// ```
    /// use inflight_sbitmap::{GetMany, GetManyError, SbitmapQueue, block_on};
    /// use std::time::Duration;
    /// let queue = SbitmapQueue::builder(8).build()?;
    /// let many: GetMany<'_> = queue.get_many(4);
    /// let four = block_on(many)?;
    /// assert_eq!(queue.try_get_many(5), Err(GetManyError::Exhausted { n: 5 }));
    /// let late = queue.get_many_timeout(5, Duration::from_millis(1));
    /// assert_eq!(late, Err(GetManyError::TimedOut));
    /// assert_eq!(queue.weight(), 4, "nothing was kept");
    /// queue.put_batch(&four)?;
    /// assert_eq!(queue.get_many_blocking(8)?.len(), 8);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_many(&self, n: usize) -> GetMany<'_> {
        GetMany(match &self.inner {
            _ if n == 0 => Many::Nothing(self),
            Inner::Batched(batched) => Many::Batched(Box::pin(batched.get_many(n))),
            _ => Many::InTurns(QueuedWait::new(self, Request::together(n))),
        })
    }

    /// Takes `n` bits as [`get_many`](SbitmapQueue::get_many); the thread sleeps. The errors are
    /// the same.
    pub fn get_many_blocking(&self, n: usize) -> Result<Vec<usize>, GetManyError> {
        self.get_many_until(n, None)
    }

    /// Takes `n` bits as [`get_many`](SbitmapQueue::get_many); the thread sleeps at most `timeout`.
    /// The errors are the same; also [`GetManyError::TimedOut`].
    pub fn get_many_timeout(
        &self,
        n: usize,
        timeout: Duration,
    ) -> Result<Vec<usize>, GetManyError> {
        self.get_many_until(n, Some(self.clock.now() + timeout))
    }

    fn get_many_until(
        &self,
        n: usize,
        deadline: Option<Instant>,
    ) -> Result<Vec<usize>, GetManyError> {
        match &self.inner {
            _ if n == 0 => close::check(self.is_closed()).map(|()| Vec::new()),
            Inner::Batched(queue) => {
                let many = poll_until(&self.clock, deadline, pin!(queue.get_many(n)));
                many.unwrap_or(Err(GetManyError::TimedOut))
            }
            _ => {
                let bits = Waiter::new(self, Request::together(n)).block(self, deadline);
                bits.map(Ids::into_vec)
            }
        }
    }
}

/// A wait and its queue, which it leaves when it is dropped.
#[derive(Debug)]
struct QueuedWait<Q: Deref<Target = SbitmapQueue>> {
    queue: Q,
    waiter: Waiter,
}

impl<Q: Deref<Target = SbitmapQueue>> QueuedWait<Q> {
    fn new(queue: Q, request: Request) -> Self {
        Self {
            waiter: Waiter::new(&queue, request),
            queue,
        }
    }

    fn poll_first(&mut self, cx: &Context<'_>) -> Poll<Result<usize, GetError>> {
        self.waiter.poll_first(&self.queue, cx)
    }
}

impl<Q: Deref<Target = SbitmapQueue>> Drop for QueuedWait<Q> {
    fn drop(&mut self) {
        self.waiter.leave(&self.queue);
    }
}

/// The future of [`SbitmapQueue::get`], which describes the effect of dropping it, or of keeping it
/// unpolled. A poll after it was ready waits for another bit.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Get<'a>(QueuedWait<&'a SbitmapQueue>);

impl Future for Get<'_> {
    type Output = Result<usize, GetError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_first(cx)
    }
}

/// The future of [`SbitmapQueue::id`], whose bit puts itself back. Otherwise as [`Get`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct GetId<'a>(Get<'a>);

impl<'a> Future for GetId<'a> {
    type Output = Result<IdGuard<'a>, GetError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self(Get(wait)) = &mut *self;
        let bit = wait.poll_first(cx);
        bit.map(|bit| bit.map(|bit| IdGuard::adopt(wait.queue, bit)))
    }
}

/// The future of [`SbitmapQueue::id_owned`]: `'static`, for one id after the other. Otherwise as
/// [`Get`].
///
/// ```
/// use inflight_sbitmap::{GetOwned, SbitmapQueue, block_on};
/// use std::{future::poll_fn, sync::Arc};
/// let queue = Arc::new(SbitmapQueue::builder(2).build()?);
/// let mut ids: GetOwned = queue.id_owned();
/// let first = block_on(poll_fn(|cx| ids.poll_get(cx)))?;
/// let second = block_on(ids)?; // or as a future
/// assert_ne!(first.id(), second.id());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct GetOwned(QueuedWait<Arc<SbitmapQueue>>);

impl GetOwned {
    /// Waits for the next id: for callers that keep the future and poll by hand, as a service's
    /// readiness.
    ///
    /// ```
    /// use inflight_sbitmap::{GetOwned, OwnedIdGuard, SbitmapQueue};
    /// use std::{sync::Arc, task::{Context, Poll, Waker}};
    /// /// A service that takes a request when it has an id for it.
    /// struct Service { ids: GetOwned, ready: Option<OwnedIdGuard> }
    /// impl Service {
    ///     fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
    ///         if self.ready.is_none() {
    ///             let Poll::Ready(id) = self.ids.poll_get(cx) else { return Poll::Pending };
    ///             self.ready = id.ok();
    ///         }
    ///         Poll::Ready(())
    ///     }
    /// }
    /// let queue = Arc::new(SbitmapQueue::builder(1).build().unwrap());
    /// let mut service = Service { ids: queue.id_owned(), ready: None };
    /// let mut cx = Context::from_waker(Waker::noop());
    /// assert!(service.poll_ready(&mut cx).is_ready());
    /// ```
    pub fn poll_get(&mut self, cx: &mut Context<'_>) -> Poll<Result<OwnedIdGuard, GetError>> {
        let bit = self.0.poll_first(cx);
        bit.map(|bit| bit.map(|bit| OwnedIdGuard::adopt(self.0.queue.clone(), bit)))
    }
}

impl Future for GetOwned {
    type Output = Result<OwnedIdGuard, GetError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_get(cx)
    }
}

/// The future of [`SbitmapQueue::get_many`], which describes the effect of dropping it, or of
/// keeping it unpolled. Do not poll it again after it was ready, or a poll panicked with another
/// task's waker: it may wait for as many bits again, or panic.
#[must_use = "futures do nothing unless polled"]
pub struct GetMany<'a>(Many<'a>);

type BoxedGetMany<'a> = Pin<Box<dyn Future<Output = Result<Vec<usize>, GetManyError>> + Send + 'a>>;

enum Many<'a> {
    /// None is wanted.
    Nothing(&'a SbitmapQueue),
    Batched(BoxedGetMany<'a>),
    InTurns(QueuedWait<&'a SbitmapQueue>),
}

impl Future for GetMany<'_> {
    type Output = Result<Vec<usize>, GetManyError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Many::Nothing(queue) => {
                Poll::Ready(close::check(queue.is_closed()).map(|()| Vec::new()))
            }
            Many::Batched(many) => many.as_mut().poll(cx),
            Many::InTurns(QueuedWait { queue, waiter }) => {
                waiter.poll(queue, cx).map(|bits| bits.map(Ids::into_vec))
            }
        }
    }
}

inflight_sync::debug_fields!(GetMany<'_>);
