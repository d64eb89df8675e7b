//! The futures of ids.

use crate::error::{GetError, GetManyError};
use crate::id::{IdGuard, OwnedIdGuard};
use crate::queue::{Inner, SbitmapQueue};
use crate::request::Request;
use crate::waiter::Waiter;
use inflight_sync::Arc;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The future of [`SbitmapQueue::get`].
///
/// # Cancel safety
///
/// A dropped future leaves the queue. What it had been given and had not yet fetched goes to the
/// next waiter. Polled again after it was ready, it waits for another bit.
///
/// One that is kept and not polled any more keeps what it was granted, out of everybody's reach
/// ([`Fairness::Fair`](crate::Fairness::Fair) and [`Fifo`](crate::Fairness::Fifo)): drop it, or
/// put a timeout around it.
///
/// ```
/// use inflight_sbitmap::{Get, SbitmapQueue};
/// let queue = SbitmapQueue::builder(1).build().unwrap();
/// let get: Get<'_> = queue.get();
/// drop(get);
/// ```
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Get<'a> {
    queue: &'a SbitmapQueue,
    waiter: Waiter,
}

impl<'a> Get<'a> {
    pub(crate) fn new(queue: &'a SbitmapQueue) -> Self {
        Self {
            waiter: Waiter::new(queue, Request::one(0)),
            queue,
        }
    }
}

impl Future for Get<'_> {
    type Output = Result<usize, GetError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.waiter.poll_first(this.queue, cx)
    }
}

impl Drop for Get<'_> {
    fn drop(&mut self) {
        self.waiter.leave(self.queue);
    }
}

/// The future of [`SbitmapQueue::id`]: a bit that puts itself back.
///
/// # Cancel safety
///
/// As [`Get`].
///
/// ```
/// use inflight_sbitmap::{GetId, SbitmapQueue};
/// let queue = SbitmapQueue::builder(1).build()?;
/// let id: GetId<'_> = queue.id();
/// drop(inflight_sbitmap::block_on(id)?);
/// assert_eq!(queue.weight(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct GetId<'a>(pub(crate) Get<'a>);

impl<'a> Future for GetId<'a> {
    type Output = Result<IdGuard<'a>, GetError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let queue = self.0.queue;
        let bit = Pin::new(&mut self.0).poll(cx);
        bit.map(|bit| bit.map(|bit| IdGuard::adopt(queue, bit)))
    }
}

/// The future of [`SbitmapQueue::id_owned`]: `'static`, and good for one id after the other.
///
/// # Cancel safety
///
/// As [`Get`].
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
pub struct GetOwned {
    queue: Arc<SbitmapQueue>,
    waiter: Waiter,
}

impl GetOwned {
    pub(crate) fn new(queue: Arc<SbitmapQueue>) -> Self {
        Self {
            waiter: Waiter::new(&queue, Request::one(0)),
            queue,
        }
    }

    /// Waits for the next id: for those who keep it and poll by hand, as a service's readiness.
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
        let bit = self.waiter.poll_first(&self.queue, cx);
        bit.map(|bit| bit.map(|bit| OwnedIdGuard::adopt(self.queue.clone(), bit)))
    }
}

impl Future for GetOwned {
    type Output = Result<OwnedIdGuard, GetError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_get(cx)
    }
}

impl Drop for GetOwned {
    fn drop(&mut self) {
        self.waiter.leave(&self.queue);
    }
}

/// The future of [`SbitmapQueue::get_many`].
///
/// # Cancel safety
///
/// A dropped future gives back what it had collected, and leaves the queue. One that is kept and
/// not polled keeps it, and everybody else waiting: drop it, or put a timeout around it. Do not
/// poll it again after it was ready: it may wait for as many again, or panic.
///
/// ```
/// use inflight_sbitmap::{GetMany, SbitmapQueue};
/// let queue = SbitmapQueue::builder(4).build().unwrap();
/// let many: GetMany<'_> = queue.get_many(2);
/// assert_eq!(inflight_sbitmap::block_on(many)?.len(), 2);
/// # Ok::<(), inflight_sbitmap::GetManyError>(())
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct GetMany<'a>(Many<'a>);

type Batch<'a> = Pin<Box<dyn Future<Output = Result<Vec<usize>, GetManyError>> + Send + 'a>>;

enum Many<'a> {
    /// None is wanted.
    Nothing,
    Batched(Batch<'a>),
    InTurns(&'a SbitmapQueue, Waiter),
}

impl<'a> GetMany<'a> {
    pub(crate) fn new(queue: &'a SbitmapQueue, n: usize) -> Self {
        Self(match &queue.inner {
            _ if n == 0 => Many::Nothing,
            Inner::Batched(batched) => Many::Batched(Box::pin(batched.get_many(n))),
            _ => Many::InTurns(queue, Waiter::new(queue, Request::together(n))),
        })
    }
}

impl Future for GetMany<'_> {
    type Output = Result<Vec<usize>, GetManyError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Many::Nothing => Poll::Ready(Ok(Vec::new())),
            Many::Batched(many) => many.as_mut().poll(cx),
            Many::InTurns(queue, waiter) => waiter.poll_all(queue, cx),
        }
    }
}

impl Drop for GetMany<'_> {
    fn drop(&mut self) {
        if let Many::InTurns(queue, waiter) = &mut self.0 {
            waiter.leave(queue);
        }
    }
}

impl fmt::Debug for GetMany<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetMany").finish_non_exhaustive()
    }
}
