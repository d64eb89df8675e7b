//! A user's own concurrent code on top of `SbitmapQueue`, model-checked with loom.
//!
//! [`Ring`] hands requests from producers to one consumer. Slots come from a `SbitmapQueue`; which
//! requests are ready, and waking the consumer, is the user's own code, and that is where a bug can
//! be. `Ring<true>` has one planted on purpose: it goes to sleep without looking again.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p loom-downstream --target-dir target/loom
//! ```
//!
//! explores `Ring<false>` without finding anything, and finds the sleeping consumer of
//! `Ring<true>`.

use inflight::sbitmap::SbitmapQueue;
// The library's own switch between std and loom; a shim of your own works as well.
use inflight::sync::atomic::{AtomicBool, Ordering, fence};
use inflight::sync::{Mutex, Parker, Unparker};
use std::collections::VecDeque;

/// Requests on their way to one consumer; `PLANTED` leaves out the second look before sleeping.
#[derive(Debug)]
pub struct Ring<const PLANTED: bool> {
    slots: SbitmapQueue,
    requests: Box<[Mutex<u32>]>,
    ready: Mutex<VecDeque<usize>>,
    /// The consumer sleeps, or is about to.
    sleeping: AtomicBool,
    consumer: Mutex<Option<Unparker>>,
}

impl<const PLANTED: bool> Ring<PLANTED> {
    /// A ring with room for `depth` requests.
    ///
    /// # Panics
    ///
    /// If `depth` is larger than a bitmap can be.
    #[must_use]
    pub fn new(depth: usize) -> Self {
        Self {
            slots: SbitmapQueue::builder(depth)
                .build()
                .expect("the depth is valid"),
            requests: (0..depth).map(|_| Mutex::new(0)).collect(),
            ready: Mutex::new(VecDeque::new()),
            sleeping: AtomicBool::new(false),
            consumer: Mutex::new(None),
        }
    }

    /// Hands a request to the consumer; waits while all slots are taken.
    pub fn submit(&self, request: u32) {
        let slot = self.slots.get_blocking().expect("never closed");
        *self.requests[slot].lock() = request;
        self.ready.lock().push_back(slot);
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) {
            let consumer = self.consumer.lock().clone();
            consumer
                .expect("a sleeping consumer has left its handle")
                .unpark();
        }
    }

    /// Takes the next request; sleeps while there is none. For one thread.
    #[must_use]
    pub fn next(&self) -> u32 {
        let parker = Parker::current();
        *self.consumer.lock() = Some(parker.unparker());
        loop {
            if let Some(request) = self.take() {
                return request;
            }
            self.sleeping.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let request = if PLANTED { None } else { self.take() };
            if request.is_none() {
                parker.park();
            }
            self.sleeping.store(false, Ordering::Relaxed);
            if let Some(request) = request {
                return request;
            }
        }
    }

    fn take(&self) -> Option<u32> {
        let slot = self.ready.lock().pop_front()?;
        let request = *self.requests[slot].lock();
        self.slots.put(slot).expect("the slot was in flight");
        Some(request)
    }
}
