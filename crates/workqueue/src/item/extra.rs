//! What few reusable items need: made when it is.

use super::Header;
use super::timer::Armed;
use inflight_sync::Mutex;
use inflight_sync::atomic::Ordering;
use inflight_sync::wait::Event;
use std::ptr;

/// Cancels under way, levels of disabling, the timer, and those who wait.
#[derive(Default)]
pub(crate) struct Extra {
    pub(crate) state: Mutex<State>,
    /// A run has ended, or a queueing was cancelled.
    pub(crate) ended: Event,
}

#[derive(Default)]
pub(crate) struct State {
    /// Levels of disabling. DISABLED is set while it is not 0.
    pub(crate) depth: u16,
    /// Cancels that wait. CANCELLING is set while it is not 0.
    pub(crate) cancels: usize,
    /// The timer of the queueing with TIMER.
    pub(crate) timer: Option<Armed>,
}

impl Header {
    /// The item's, made if there is none. The item is a reusable one.
    pub(super) fn extra(&self) -> &Extra {
        if let Some(extra) = self.known_extra() {
            return extra;
        }
        let new = Box::into_raw(Box::<Extra>::default());
        // Ordering: Release, pairs with the Acquire of whoever finds it; Acquire, if another one
        // was faster: its own is there.
        let set = self.extra.compare_exchange(
            ptr::null_mut(),
            new.cast(),
            Ordering::Release,
            Ordering::Acquire,
        );
        let extra = match set {
            Ok(_) => new,
            Err(other) => {
                // SAFETY: it has just been made and nobody knows it.
                drop(unsafe { Box::from_raw(new) });
                other.cast()
            }
        };
        // SAFETY: it lives until the item is freed.
        unsafe { &*extra }
    }

    /// The item's, if it has been made.
    pub(super) fn known_extra(&self) -> Option<&Extra> {
        // Ordering: Acquire, pairs with the Release above.
        let extra = self.extra.load(Ordering::Acquire).cast::<Extra>();
        // SAFETY: it lives until the item is freed.
        unsafe { extra.as_ref() }
    }

    /// The item is being freed.
    pub(super) fn drop_extra(&mut self) {
        let extra = self.extra.load(Ordering::Relaxed).cast::<Extra>();
        if !extra.is_null() {
            // SAFETY: from `Box::into_raw` above; nobody uses the item any more.
            drop(unsafe { Box::from_raw(extra) });
        }
    }
}
