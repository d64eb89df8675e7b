//! What tests beside the code have in common.

use crate::{SystemBuilder, WorkqueueSystem};
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, thread};
use inflight_topology::Topology;

/// A system of which a test that has failed does not wait for what does not come.
pub(crate) struct Rigged(pub(crate) WorkqueueSystem);

impl Rigged {
    /// Time stands there, so nobody looks but the test.
    pub(crate) fn new(machine: &str, more: impl FnOnce(SystemBuilder) -> SystemBuilder) -> Self {
        let builder = WorkqueueSystem::builder().clock(Clock::manual());
        let builder = builder.topology(Topology::synthetic(machine).unwrap());
        Self(more(builder).build().unwrap())
    }
}

impl Drop for Rigged {
    fn drop(&mut self) {
        if thread::panicking() {
            std::mem::forget(self.0.clone());
        }
    }
}

/// A number that threads wait for, and do not say so. Relaxed: a signal.
#[derive(Clone, Default)]
pub(crate) struct Signal(Arc<AtomicUsize>);

impl Signal {
    pub(crate) fn raise(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn wait(&self, at_least: usize) {
        while self.get() < at_least {
            thread::yield_now();
        }
    }
}
