//! Helpers for the tests beside the code.

use crate::{JoinHandle, SystemBuilder, Workqueue, WorkqueueSystem};
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, thread};
use inflight_topology::Topology;

/// A system whose drop does not wait if the test has failed.
pub(crate) struct Rigged(pub(crate) WorkqueueSystem);

impl Rigged {
    /// Its clock stands still, so only the test looks at the pools.
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

/// A number that threads wait for without saying so. Relaxed: a signal.
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

/// A function that signals that it has begun, and ends when `open` has been raised so often.
pub(crate) fn until(
    begun: &Signal,
    open: &Signal,
    raised: usize,
) -> impl Fn() + Send + Sync + use<> {
    let (begun, open) = (begun.clone(), open.clone());
    move || {
        begun.raise();
        open.wait(raised);
    }
}

/// An item that runs on that CPU until it is told to end.
pub(crate) fn hold(wq: &Workqueue, cpu: usize) -> (JoinHandle<()>, Signal) {
    let (begun, end) = (Signal::default(), Signal::default());
    let item = wq.spawn_on(cpu, until(&begun, &end, 1));
    begun.wait(1);
    (item, end)
}

/// Ends it.
pub(crate) fn end((item, end): (JoinHandle<()>, Signal)) {
    end.raise();
    item.wait().unwrap();
}
