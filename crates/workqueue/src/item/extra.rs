//! State that few reusable items need; allocated on first use.

use super::Header;
use super::timer::Armed;
use inflight_sync::Mutex;
use inflight_sync::atomic::Ordering;
use inflight_sync::wait::Event;
use std::ptr;

#[derive(Default)]
pub(crate) struct Extra {
    pub(crate) state: Mutex<State>,
    /// Notified when a run has ended, or a queueing was cancelled or its timer has moved it.
    pub(crate) ended: Event,
}

#[derive(Default)]
pub(crate) struct State {
    /// Levels of disabling. DISABLED is set while it is not 0.
    pub(crate) depth: u16,
    /// Cancels in progress. CANCELLING is set while it is not 0.
    pub(crate) cancels: usize,
    /// The timer of the queueing with TIMER.
    pub(crate) timer: Option<Armed>,
}

impl Header {
    /// The item's `Extra`; makes it if there is none. The item is a reusable one.
    pub(super) fn extra(&self) -> &Extra {
        if let Some(extra) = self.known_extra() {
            return extra;
        }
        let new = Box::into_raw(Box::<Extra>::default());
        // Ordering: Release, pairs with the Acquire of the threads that find it; Acquire, if
        // another thread was faster: its `Extra` is initialised.
        let set = self.extra.compare_exchange(
            ptr::null_mut(),
            new.cast(),
            Ordering::Release,
            Ordering::Acquire,
        );
        let extra = match set {
            Ok(_) => new,
            Err(other) => {
                // SAFETY: it has just been made and is not shared.
                drop(unsafe { Box::from_raw(new) });
                other.cast()
            }
        };
        // SAFETY: it lives until the item is freed.
        unsafe { &*extra }
    }

    pub(super) fn known_extra(&self) -> Option<&Extra> {
        // Ordering: Acquire, pairs with the Release above.
        let extra = self.extra.load(Ordering::Acquire).cast::<Extra>();
        // SAFETY: it lives until the item is freed.
        unsafe { extra.as_ref() }
    }

    pub(super) fn drop_extra(&mut self) {
        let extra = self.extra.load(Ordering::Relaxed).cast::<Extra>();
        if !extra.is_null() {
            // SAFETY: from `Box::into_raw` above; nothing uses the item any more.
            drop(unsafe { Box::from_raw(extra) });
        }
    }
}
