//! A worker that waits for a device does not count as running.
#![cfg(not(any(loom, shuttle)))]

use inflight::flush::log::{Durability, LogOptions, MemoryStorage, Storage};
use inflight::flush::{Device, FlushDomain, Flusher, Power};
use inflight::sync::atomic::{AtomicUsize, Ordering};
use inflight::sync::time::Clock;
use inflight::sync::{Arc, thread};
use inflight::topology::Topology;
use inflight::workqueue::{Attrs, Workqueue, WorkqueueSystem};
use std::io;
use std::time::Duration;

/// A device whose flushes end when they are told to, without the library's means to wait.
#[derive(Debug, Default)]
struct Waits {
    begun: AtomicUsize,
    to_end: AtomicUsize,
}

impl Flusher for Waits {
    fn flush(&self) -> io::Result<()> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        self.wait_for(&self.to_end, number)
    }
}

impl Waits {
    /// An error after a minute.
    fn wait_for(&self, count: &AtomicUsize, least: usize) -> io::Result<()> {
        let clock = Clock::system();
        let end = clock.now() + Duration::from_secs(60);
        while count.load(Ordering::Acquire) < least {
            if clock.now() > end {
                return Err(io::ErrorKind::TimedOut.into());
            }
            thread::yield_now();
        }
        Ok(())
    }

    fn end_one(&self) {
        self.to_end.fetch_add(1, Ordering::Release);
    }
}

/// Its pool has one CPU, and nothing looks for workers that sleep.
fn queue() -> (WorkqueueSystem, Workqueue) {
    let one = Topology::synthetic("core:1").unwrap();
    let sys = WorkqueueSystem::builder().topology(one).sampling(false);
    let sys = sys.build().unwrap();
    let wq = sys.workqueue("jobs").unbound(Attrs::new()).build().unwrap();
    (sys, wq)
}

/// Runs `flush` as an item, and while its device waits another item, which ends that.
fn flush_on_a_worker(device: &Arc<Waits>, flush: impl FnOnce() + Send + 'static) {
    let (_sys, wq) = queue();
    let next = device.begun.load(Ordering::Relaxed) + 1;
    let flush = wq.spawn(flush);
    device.wait_for(&device.begun, next).unwrap();
    let device = device.clone();
    wq.spawn(move || device.end_one()).detach();
    flush.wait().unwrap();
}

#[test]
fn another_item_runs_while_a_flush_sleeps() {
    let device = Arc::<Waits>::default();
    let domain = FlushDomain::new(device.clone());
    flush_on_a_worker(&device, move || domain.flush_blocking().unwrap());
}

/// Its segments are in memory, and their flushes wait.
#[derive(Debug)]
struct Slow(MemoryStorage, Arc<Waits>);

struct Segment(Arc<dyn Device>, Arc<Waits>);

impl Flusher for Segment {
    fn flush(&self) -> io::Result<()> {
        self.1.flush()?;
        self.0.flush()
    }
}

impl Device for Segment {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_at(bytes, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(bytes, offset)
    }
}

impl Storage for Slow {
    fn segments(&self) -> io::Result<Vec<u64>> {
        self.0.segments()
    }
    fn create(&self, number: u64, len: u64) -> io::Result<Arc<dyn Device>> {
        let segment = self.0.create(number, len)?;
        Ok(Arc::new(Segment(segment, self.1.clone())))
    }
    fn open(&self, number: u64) -> io::Result<Arc<dyn Device>> {
        let segment = self.0.open(number)?;
        Ok(Arc::new(Segment(segment, self.1.clone())))
    }
    fn remove(&self, number: u64) -> io::Result<()> {
        self.0.remove(number)
    }
}

#[test]
fn another_item_runs_while_a_commit_sleeps() {
    let device = Arc::<Waits>::default();
    device.end_one(); // the flush of `open`
    let storage = Slow(MemoryStorage::new(&Power::new()), device.clone());
    let (log, _) = LogOptions::new().open(storage).unwrap();
    flush_on_a_worker(&device, move || {
        let lsn = log.append_blocking(b"record").unwrap();
        log.commit_blocking(lsn, Durability::Flushed).unwrap();
    });
}
