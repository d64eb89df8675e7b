//! A waker that calls the test when it is cloned and dropped, as a user's waker may call anything.

use inflight_sync::time::Clock;
use inflight_sync::{Arc, thread};
use std::mem::ManuallyDrop;
use std::task::{RawWaker, RawWakerVTable, Waker};
use std::time::Duration;

type Call = Box<dyn Fn() + Send + Sync>;

static TABLE: RawWakerVTable = RawWakerVTable::new(clone, drop_waker, |_| {}, drop_waker);

/// Makes the waker.
pub(crate) fn calling(call: impl Fn() + Send + Sync + 'static) -> Waker {
    let call: Arc<Call> = Arc::new(Box::new(call));
    // SAFETY: the data is one handle to the `Call`, as the functions of the table expect, and the
    // `Call` is thread-safe.
    unsafe { Waker::from_raw(RawWaker::new(Arc::into_raw(call).cast(), &TABLE)) }
}

fn clone(data: *const ()) -> RawWaker {
    // SAFETY: the waker that is cloned has a handle, which is not dropped here.
    let call = ManuallyDrop::new(unsafe { Arc::from_raw(data.cast::<Call>()) });
    call();
    let clone = ManuallyDrop::into_inner(call.clone());
    RawWaker::new(Arc::into_raw(clone).cast(), &TABLE)
}

fn drop_waker(data: *const ()) {
    // SAFETY: the waker's handle, which it gives up.
    let call = unsafe { Arc::from_raw(data.cast::<Call>()) };
    call();
}

/// Runs a test on a thread of its own, and fails if a lock stops it.
pub(crate) fn ends(test: impl FnOnce() + Send + 'static) {
    let clock = Clock::system();
    let limit = clock.now() + Duration::from_secs(30);
    let thread = thread::spawn(test);
    while !thread.is_finished() {
        assert!(clock.now() < limit, "it hangs");
        thread::yield_now();
    }
    thread.join().unwrap();
}
