//! The handles that keep a set, and what the last of them leaves to the set's tags.
//!
//! K3 to K5 of [`teardown`](crate::teardown). PROTOCOL.md, "Memory", has the proof.

use crate::shared::Shared;
use inflight_sync::Arc;
use std::ops::Deref;
use std::ptr::NonNull;

/// A handle: while there is one, the set is not orphaned.
pub(crate) struct Handle<T> {
    /// Beside the count, not behind it: every operation uses this pointer.
    shared: NonNull<Shared<T>>,
    alive: Arc<LastHandle<T>>,
}

/// What the handles count. Its drop orphans the set.
struct LastHandle<T>(NonNull<Shared<T>>);

// SAFETY: a handle gives shared references to what all threads may use (a `Slot` justifies that for
// its payload), and the last handle drops payloads, on any thread: hence T: Send.
unsafe impl<T: Send> Send for Handle<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Handle<T> {}
// SAFETY: as for `Handle`.
unsafe impl<T: Send> Send for LastHandle<T> {}
// SAFETY: as for `Handle`.
unsafe impl<T: Send> Sync for LastHandle<T> {}

impl<T> Handle<T> {
    /// The first handle.
    pub(crate) fn new(shared: Shared<T>) -> Self {
        let shared = NonNull::from(Box::leak(Box::new(shared)));
        // SAFETY: it was made just now.
        unsafe { shared.as_ref() }.bitmaps.set_owner(shared.cast());
        Self {
            shared,
            alive: Arc::new(LastHandle(shared)),
        }
    }
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared,
            alive: self.alive.clone(),
        }
    }
}

impl<T> Deref for Handle<T> {
    type Target = Shared<T>;

    #[inline]
    fn deref(&self) -> &Shared<T> {
        // SAFETY: it is freed only after all handles are gone (PROTOCOL.md, "Memory").
        unsafe { self.shared.as_ref() }
    }
}

impl<T> Drop for LastHandle<T> {
    fn drop(&mut self) {
        /// Does the remaining work also if a payload's drop panics.
        struct DropPayloads<T> {
            shared: NonNull<Shared<T>>,
            next: usize,
            ended: u64,
        }
        impl<T> DropPayloads<T> {
            /// K4.
            fn run(&mut self) {
                // SAFETY: K5 has not happened yet.
                let slots = &unsafe { self.shared.as_ref() }.slots;
                while let Some(slot) = slots.get(self.next) {
                    self.next += 1;
                    slot.drop_payload();
                }
            }

            /// K5. Whether no tag is left.
            fn is_last(&self) -> bool {
                // SAFETY: the bias keeps the memory until K5 has subtracted it.
                let shared = unsafe { self.shared.as_ref() };
                let given_out = shared.slots.iter().map(|s| s.record.allocs_and_frees().0);
                shared.bitmaps.teardown.is_last(given_out.sum(), self.ended)
            }
        }
        impl<T> Drop for DropPayloads<T> {
            fn drop(&mut self) {
                self.run();
                if self.is_last() {
                    // SAFETY: no handle and no tag is left, and only this caller knows.
                    drop(unsafe { Box::from_raw(self.shared.as_ptr()) });
                }
            }
        }
        // SAFETY: K5 has not happened yet.
        let ended = unsafe { self.0.as_ref() }.bitmaps.teardown.close();
        let mut payloads = DropPayloads {
            shared: self.0,
            next: 0,
            ended,
        };
        payloads.run();
    }
}
