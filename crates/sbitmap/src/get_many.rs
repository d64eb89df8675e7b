//! Several ids that come together.

use crate::local::Local;
use crate::store::Shared;
use crate::turns;
use inflight_sync::time::{Clock, Instant};
use inflight_sync::{Arc, Parker, Unparker};
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

/// Why several ids cannot be had together. None of them was taken.
///
/// ```
/// use inflight_sbitmap::{GetManyError, SbitmapQueue};
/// let queue = SbitmapQueue::builder(4).build().unwrap();
/// assert_eq!(queue.get_many_blocking(5), Err(GetManyError::TooMany));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GetManyError {
    /// More than the queue's depth, at the time of the call or since a resize.
    TooMany,
    /// The deadline has passed.
    TimedOut,
}

impl fmt::Display for GetManyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooMany => "more ids than the queue has",
            Self::TimedOut => "not enough ids came before the deadline",
        })
    }
}

impl Error for GetManyError {}

/// The future of [`SbitmapQueue::get_many`](crate::SbitmapQueue::get_many).
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
/// assert_eq!(inflight_sync::block_on(many)?.len(), 2);
/// # Ok::<(), inflight_sbitmap::GetManyError>(())
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct GetMany<'a>(pub(crate) Inner<'a>);

pub(crate) type Many = Result<Vec<usize>, GetManyError>;

pub(crate) enum Inner<'a> {
    Batched(Pin<Box<dyn Future<Output = Many> + Send + 'a>>),
    Shared(turns::WaitMany<'a, Shared>),
    Local(turns::WaitMany<'a, Local>),
}

impl Future for GetMany<'_> {
    type Output = Result<Vec<usize>, GetManyError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Inner::Batched(many) => many.as_mut().poll(cx),
            Inner::Shared(many) => many.poll(cx),
            Inner::Local(many) => many.poll(cx),
        }
    }
}

impl fmt::Debug for GetMany<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetMany").finish_non_exhaustive()
    }
}

struct Bell(Unparker);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future on the calling thread until it is ready or the deadline has passed. The future
/// must not itself sleep on this thread.
pub(crate) fn poll_until<T>(
    clock: &Clock,
    deadline: Instant,
    mut future: Pin<&mut (dyn Future<Output = T> + '_)>,
) -> Option<T> {
    let parker = Parker::current();
    let waker = Waker::from(Arc::new(Bell(parker.unparker())));
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return Some(value);
        }
        if !parker.park_until(clock, deadline) {
            return None;
        }
    }
}
