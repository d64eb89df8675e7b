//! The user's code and its panics.
//!
//! The payload of a panic is the user's too: see [`dispose`].

pub(crate) use inflight_sync::panics::dispose;
use inflight_sync::wait::Event;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) type Payload = Box<dyn Any + Send>;

pub(crate) fn caught<R>(f: impl FnOnce() -> R) -> Result<R, Payload> {
    catch_unwind(AssertUnwindSafe(f))
}

/// Calls `f`; `None` if it panicked. Never panics.
pub(crate) fn contained<R>(f: impl FnOnce() -> R) -> Option<R> {
    caught(f).map_err(dispose).ok()
}

/// Notifies all waiters. Never panics, whatever their wakers do.
pub(crate) fn notify_all(event: &Event) {
    contained(|| event.notify_all());
}

/// The message of a panic, if it is a text, as with `panic!`.
pub(crate) fn message(payload: &Payload) -> Option<String> {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
}
