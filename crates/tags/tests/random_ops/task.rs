//! Tasks that are polled only when they have been woken.

use crate::plan::Payload;
use inflight_sync::Arc;
use inflight_sync::atomic::{AtomicBool, Ordering};
use inflight_tags::{AllocError, FrozenGuard, Split, Tag};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Wake, Waker};

pub(crate) struct Woken(pub(crate) AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Where a split is while nobody waits in it.
pub(crate) type Home = Rc<RefCell<Option<Split<Payload>>>>;

/// A split that goes home also when its future is dropped half way.
pub(crate) struct Lent {
    pub(crate) split: Option<Split<Payload>>,
    pub(crate) home: Home,
}

impl Lent {
    pub(crate) fn from(home: &Home) -> Self {
        let split = home.borrow_mut().take();
        let home = home.clone();
        Self { split, home }
    }

    pub(crate) async fn next(mut self) -> Next {
        self.split.as_mut().expect("it was at home").next().await
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        *self.home.borrow_mut() = self.split.take();
    }
}

pub(crate) type Next = Result<Option<Tag<Payload>>, AllocError>;

pub(crate) enum Outcome {
    Tag(Result<Tag<Payload>, AllocError>),
    Next(Next),
    Frozen(FrozenGuard),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Alloc,
    Split(u64),
    Freeze,
}

pub(crate) struct Task {
    pub(crate) future: Pin<Box<dyn Future<Output = Outcome>>>,
    pub(crate) woken: Arc<Woken>,
    pub(crate) kind: Kind,
    /// It named a hardware queue, which may be gone.
    pub(crate) bound: bool,
}

impl Task {
    pub(crate) fn new(
        kind: Kind,
        bound: bool,
        future: impl Future<Output = Outcome> + 'static,
    ) -> Self {
        Self {
            future: Box::pin(future),
            // The first poll needs no waker.
            woken: Arc::new(Woken(AtomicBool::new(true))),
            kind,
            bound,
        }
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.woken.0.load(Ordering::Relaxed)
    }

    pub(crate) fn poll_if_woken(&mut self) -> Poll<Outcome> {
        if !self.woken.0.swap(false, Ordering::Relaxed) {
            return Poll::Pending;
        }
        let waker = Waker::from(self.woken.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }
}
