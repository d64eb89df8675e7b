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
use inflight_sync::{Arc, Mutex, thread};
use std::io;
use std::time::Duration;

const BOUND: Bound = Bound {
    quick: Some(2),
    deep: None,
};

/// How long the flush takes that the log learns from.
const FLUSH: Duration = Duration::from_millis(1);

/// A device whose first write waits until the first flush has ended, and whose first flush until
/// that write has begun. So two commits are under way when the flush ends, and the log expects both
/// to come back.
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
    /// The next write belongs to the one who flushes.
    pub(super) const FIRST: usize = 1;
    /// The next write is held.
    pub(super) const SECOND: usize = 2;
    pub(super) const HELD: usize = 3;
    pub(super) const OVER: usize = 4;
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
        if (step::SECOND..step::OVER).contains(&self.step()) {
            self.wait_for(step::HELD);
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
        match self.step() {
            step::FIRST => self.set(step::SECOND),
            step::SECOND => {
                self.set(step::HELD);
                self.wait_for(step::OVER);
            }
            _ => {}
        }
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

fn commit(log: &Log, durability: Durability) {
    let lsn = log.try_append(b"x").unwrap();
    log.commit_blocking(lsn, durability).unwrap();
}

/// A log that has seen a flush of 1 ms with two commits under way; who made the second of them does
/// something more, on a thread of its own.
fn lesson(then: impl FnOnce(&Log, &Disk) + Send + 'static) -> (Log, Disk, thread::JoinHandle<()>) {
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
    disk.set(step::FIRST);
    let other = thread::spawn({
        let (log, disk) = (log.clone(), disk.clone());
        move || {
            disk.wait_for(step::SECOND);
            commit(&log, Durability::Buffered);
            then(&log, &disk);
        }
    });
    commit(&log, Durability::Flushed);
    disk.set(step::OVER);
    (log, disk, other)
}

/// FL.22. Whoever leads waits for the other one, however late that is, and both share a flush. The
/// clock stands still, so only the other one ends the wait.
#[test]
fn fl22_the_leader_waits_for_the_other() {
    check("fl22_the_leader_waits_for_the_other", BOUND, || {
        let (log, disk, other) = lesson(|log, _| commit(log, Durability::Flushed));
        let before = disk.0.flushes.load(Ordering::Relaxed);
        commit(&log, Durability::Flushed);
        other.join().unwrap();
        let flushes = disk.0.flushes.load(Ordering::Relaxed);
        assert_eq!(flushes - before, 1, "one for both: {:?}", log.counters());
    });
}

/// FL.22. The other one does not come: the leader goes on when half of a flush has passed.
#[test]
fn fl22_the_other_does_not_come() {
    check("fl22_the_other_does_not_come", BOUND, || {
        let over = Arc::new(AtomicUsize::new(0));
        let is_over = over.clone();
        let (log, _, other) = lesson(move |_, disk| {
            while disk.0.clock.sleepers() == 0 && is_over.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            disk.0.clock.advance(FLUSH / 2);
        });
        commit(&log, Durability::Flushed);
        over.store(1, Ordering::Release);
        other.join().unwrap();
        assert_eq!(log.counters().delays, 1, "it waited: {:?}", log.counters());
    });
}
