//! Wakers that panic: the panic comes out of the call that woke, and leaves nothing behind.
#![cfg(not(any(loom, shuttle)))]

use inflight_flush::{Deferral, Flags, FlushDomain, MemoryDevice};
use inflight_sync::Arc;
use inflight_sync::time::Clock;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("the waker's panic");
    }
}

fn poll<F: Future>(future: &mut Pin<Box<F>>, waker: &Waker) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(waker))
}

/// Calls `submit` when the waker of another flush, put off until then, is woken by it, and panics.
/// Then nothing of the call is left: flushes are not put off for its data.
fn check_submission(name: &str, submit: impl FnOnce(&FlushDomain)) {
    let (clock, limit) = (Clock::manual(), Duration::from_millis(1));
    let builder = FlushDomain::builder().clock(&clock);
    let builder = builder.deferral(Deferral::Bounded(limit));
    let domain = builder.device(MemoryDevice::new(4096));
    let under_way = domain.begin_blocking(Flags::write().fua()).unwrap();
    let mut put_off = Box::pin(domain.flush());
    assert!(poll(&mut put_off, &Waker::from(Arc::new(Panics))).is_pending());
    // The flush is due: the next submission issues it.
    clock.advance(limit);
    let panicked = catch_unwind(AssertUnwindSafe(|| submit(&domain))).unwrap_err();
    let message = panicked.downcast_ref();
    assert_eq!(message, Some(&"the waker's panic"), "{name}");
    drop(put_off);
    let mut end = Box::pin(under_way.finish(Ok(())));
    assert!(poll(&mut end, Waker::noop()).is_ready(), "{name}");
    let mut flush = Box::pin(domain.flush());
    assert_eq!(
        poll(&mut flush, Waker::noop()),
        Poll::Ready(Ok(())),
        "{name}"
    );
    assert!(!domain.is_poisoned(), "{name}");
    assert_eq!(domain.next_deadline(), None, "{name}");
}

/// A waker that panics in the submission of another request takes that request back.
#[test]
fn a_request_is_gone_whose_submission_panicked() {
    let flags = Flags::write().fua();
    check_submission("begin", |domain| {
        let _ = poll(&mut Box::pin(domain.begin(flags)), Waker::noop());
    });
    check_submission("preflush", |domain| {
        let begun = domain.begin(flags.preflush());
        let _ = poll(&mut Box::pin(begun), Waker::noop());
    });
    check_submission("try_begin", |domain| {
        let _ = domain.try_begin(flags);
    });
    check_submission("write_fua_blocking", |domain| {
        let _ = domain.write_fua_blocking(|| -> io::Result<()> { unreachable!("not begun") });
    });
    check_submission("flush_blocking", |domain| {
        let _ = domain.flush_blocking();
    });
    check_submission("try_flush", |domain| {
        let _ = domain.try_flush();
    });
}
