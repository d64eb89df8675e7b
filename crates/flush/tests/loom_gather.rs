//! Models of the leader that waits for those whom the last flush has released, as `max_delay` says.
//!
//! | what is weakened | model that fails |
//! |---|---|
//! | the commit that completes them does not unpark the leader | `fl22_the_leader_waits_for_the_other` |
//! | the leader counts under the lock, and leaves its unparker under it a second time | the same |
//! | a commit looks whether all are back, and takes the unparker, before it has counted itself | the same |
//! | the leader waits without an end | `fl22_the_other_does_not_come` |
#![cfg(loom)]

use inflight_flush::log::{Durability, GroupMode, Log, LogOptions, Storage};
use inflight_flush::{Caps, Device, Flusher};
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::model::{Bound, check};
use inflight_sync::time::Clock;
use inflight_sync::wait::Event;
use inflight_sync::{Arc, Mutex, block_on, thread};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

const BOUND: Bound = Bound {
    quick: Some(2),
    deep: None,
};

/// How long the flush takes that the log learns from.
const FLUSH: Duration = Duration::from_millis(1);

/// A device whose first flush waits until another commit has joined. So two are under way when the
/// flush ends, and the log expects both to come back.
#[derive(Clone, Debug)]
struct Disk(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Clock,
    /// How far the lesson is.
    step: AtomicUsize,
    moved: Event,
    flushes: AtomicUsize,
    len: Mutex<u64>,
}

/// Steps of the lesson.
mod step {
    /// The log is being made.
    pub(super) const OPENING: usize = 0;
    /// The next flush is the first.
    pub(super) const OPEN: usize = 1;
    /// It is in flight, until the other one has joined.
    pub(super) const FLUSHING: usize = 2;
    pub(super) const JOINED: usize = 3;
}

impl Disk {
    fn step(&self) -> usize {
        self.0.step.load(Ordering::Acquire)
    }

    fn set(&self, step: usize) {
        self.0.step.store(step, Ordering::Release);
        self.0.moved.notify_all();
    }

    fn wait_for(&self, step: usize) {
        self.0.moved.wait_while(|| self.step() < step);
    }
}

impl Flusher for Disk {
    fn caps(&self) -> Caps {
        Caps::volatile()
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flushes.fetch_add(1, Ordering::Relaxed);
        if self.step() == step::OPEN {
            self.set(step::FLUSHING);
            self.wait_for(step::JOINED);
            self.0.clock.advance(FLUSH);
        }
        Ok(())
    }
}

impl Device for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(*self.0.len.lock())
    }

    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
        unreachable!("nothing is recovered")
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Ok(())
    }
}

impl Storage for Disk {
    fn segments(&self) -> io::Result<Vec<u64>> {
        Ok(Vec::new())
    }

    fn create(&self, _: u64, len: u64) -> io::Result<Arc<dyn Device>> {
        *self.0.len.lock() = len;
        Ok(Arc::new(self.clone()))
    }

    fn open(&self, _: u64) -> io::Result<Arc<dyn Device>> {
        unreachable!("there is no segment to open")
    }

    fn remove(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// A log that has seen a flush of 1 ms, which has released this thread. The other one has joined
/// meanwhile, leads, and waits for this one.
fn lesson() -> (Log, Disk, thread::JoinHandle<()>) {
    let clock = Clock::manual();
    let disk = Disk(Arc::new(Shared {
        clock: clock.clone(),
        step: AtomicUsize::new(step::OPENING),
        moved: Event::new(),
        flushes: AtomicUsize::new(0),
        len: Mutex::new(0),
    }));
    let options = LogOptions::new()
        .group_mode(GroupMode::Leader)
        .max_delay(FLUSH)
        .min_siblings(1)
        .clock(&clock);
    let (log, _) = options.open(disk.clone()).unwrap();
    disk.set(step::OPEN);
    let other = thread::spawn({
        let (log, disk) = (log.clone(), disk.clone());
        move || {
            disk.wait_for(step::FLUSHING);
            let lsn = log.try_append(b"other").unwrap();
            let mut commit = pin!(log.commit(lsn, Durability::Flushed));
            let mut nobody = Context::from_waker(Waker::noop());
            assert!(commit.as_mut().poll(&mut nobody).is_pending());
            disk.set(step::JOINED);
            block_on(commit).unwrap();
        }
    });
    commit(&log);
    (log, disk, other)
}

fn commit(log: &Log) {
    let lsn = log.try_append(b"x").unwrap();
    log.commit_blocking(lsn, Durability::Flushed).unwrap();
}

/// FL.22. Whoever leads waits for the other one, however late that is, and both share a flush. The
/// clock stands still, so only the other one ends the wait.
#[test]
fn fl22_the_leader_waits_for_the_other() {
    check("fl22_the_leader_waits_for_the_other", BOUND, || {
        let (log, disk, other) = lesson();
        let before = disk.0.flushes.load(Ordering::Relaxed);
        commit(&log);
        other.join().unwrap();
        let flushes = disk.0.flushes.load(Ordering::Relaxed);
        assert_eq!(flushes - before, 1, "one for both: {:?}", log.counters());
    });
}

/// FL.22. The other one does not come: the leader goes on when half of a flush has passed.
#[test]
fn fl22_the_other_does_not_come() {
    check("fl22_the_other_does_not_come", BOUND, || {
        let (log, disk, other) = lesson();
        while disk.0.clock.sleepers() == 0 {
            thread::yield_now();
        }
        disk.0.clock.advance(FLUSH / 2);
        other.join().unwrap();
        assert_eq!(log.counters().delays, 1, "it waited: {:?}", log.counters());
    });
}
