//! The thread that calls [`FlushDomain::tick`] for tasks whose event loop does not.
//!
//! It holds the domain only during its checks, so the last handle ends it.

use super::request::Core;
use super::{FlushDomain, Inner};
use inflight_sync::panics::dispose;
use inflight_sync::time::Instant;
use inflight_sync::wait::Notify;
use inflight_sync::{Arc, Parker, Unparker, Weak, thread};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The thread, as the domain knows it.
#[derive(Debug, Default)]
pub(super) struct Ticker {
    /// Once it runs.
    unparker: Option<Unparker>,
    /// Until when it sleeps, or is about to.
    until: Option<Instant>,
}

impl Core {
    /// The thread, if it sleeps beyond the time when the next delayed flush is due.
    pub(super) fn late_ticker(&mut self) -> Option<Notify> {
        let ticker = self.ticker.as_mut()?;
        let unparker = ticker.unparker.as_ref()?;
        let deadline = self.machine.next_deadline()?;
        if ticker.until.is_some_and(|until| until <= deadline) {
            return None;
        }
        ticker.until = Some(deadline);
        Some(Notify::Thread(unparker.clone()))
    }
}

impl Inner {
    /// Returns when the thread is to tick, and notes it. A flush that is delayed before this is
    /// seen here. A thread that delays one afterwards finds the note and unparks this thread, whose
    /// park then ends at once, even if it begins later.
    fn look(&self, parker: &Parker) -> Option<Instant> {
        let mut core = self.core.lock();
        let until = core.machine.next_deadline();
        let unparker = Some(parker.unparker());
        core.ticker = Some(Ticker { unparker, until });
        until
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let ticker = self.core.lock().ticker.take();
        if let Some(unparker) = ticker.and_then(|ticker| ticker.unparker) {
            unparker.unpark();
        }
    }
}

fn run(domain: &Weak<Inner>) {
    let parker = Parker::current();
    loop {
        let Some(inner) = domain.upgrade() else {
            return;
        };
        let (until, clock) = (inner.look(&parker), inner.clock.clone());
        // If this is the last handle by now, its drop unparks this thread.
        drop(inner);
        match until {
            None => parker.park(),
            Some(until) if parker.park_until(&clock, until) => {}
            Some(_) => {
                if let Some(inner) = domain.upgrade() {
                    let domain = FlushDomain { inner };
                    // Wakers are users' code. A panic of one has no caller here to go to.
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| domain.tick())) {
                        dispose(panic);
                    }
                }
            }
        }
    }
}

impl FlushDomain {
    /// Starts a thread that calls [`tick`](FlushDomain::tick) when it is due, so that a waiter for
    /// a delayed flush is chosen in time to carry it out. For domains with waiting tasks and
    /// without an event loop that has a timer. While the thread runs, another call does nothing.
    ///
    /// The thread ends after the last handle to the domain is gone. It may drop the device, a
    /// moment after that.
    ///
    /// # Errors
    ///
    /// If the system refuses the thread.
    ///
    /// ```
    /// # use inflight_flush::{FlushDomain, MemoryDevice};
    /// let domain = FlushDomain::new(MemoryDevice::new(4096));
    /// domain.tick_in_background()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn tick_in_background(&self) -> io::Result<()> {
        let mut core = self.inner.core.lock();
        if core.ticker.is_none() {
            let domain = Arc::downgrade(&self.inner);
            let thread = thread::Builder::new().name("inflight/flush".into());
            thread.spawn(move || run(&domain))?;
            core.ticker = Some(Ticker::default());
        }
        Ok(())
    }
}
