//! The future of a bit, whatever the mode.

use crate::batched;
use crate::local::Local;
use crate::store::Shared;
use crate::turns;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The future of [`SbitmapQueue::get`](crate::SbitmapQueue::get).
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
pub struct Get<'a>(pub(crate) Inner<'a>);

#[derive(Debug)]
pub(crate) enum Inner<'a> {
    Batched(batched::Get<'a>),
    Shared(turns::WaitOne<'a, Shared>),
    Local(turns::WaitOne<'a, Local>),
}

impl Future for Get<'_> {
    type Output = usize;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<usize> {
        match &mut self.0 {
            Inner::Batched(get) => Pin::new(get).poll(cx),
            Inner::Shared(get) => get.poll(cx),
            Inner::Local(get) => get.poll(cx),
        }
    }
}
