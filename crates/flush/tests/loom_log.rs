//! Models of group commit: appends, commits and failures at the same time.
//!
//! | what is weakened | model that fails |
//! |---|---|
//! | the cover is read after the flush | `fl19_a_record_appended_during_a_flush` |
//! | a member is told when its record is written, whatever it asked for | `fl13_buffered_and_flushed_join` |
//! | the leader steps down without choosing the next | `fl18_the_leader_leaves`, `fl21_the_tail_moves` |
//! | Release or Acquire of the word of late commits | `fl20_a_late_commit` |
#![cfg(loom)]

use inflight_flush::log::{Durability, GroupMode, Log, LogError, LogOptions, Storage};
use inflight_flush::{Caps, Device, FlushDomain, Flusher};
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::model::{Bound, check};
use inflight_sync::{Arc, Mutex, thread};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Waker};

const BOUND: Bound = Bound {
    quick: Some(3),
    deep: None,
};

/// Counts bytes instead of keeping them. What is durable is a Relaxed word: only the log orders it.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<Words>);

#[derive(Debug, Default)]
struct Words {
    written: AtomicUsize,
    durable: AtomicUsize,
    failing: AtomicUsize,
    failing_writes: AtomicUsize,
    len: Mutex<u64>,
}

impl Disk {
    fn fail_once(&self) {
        self.0.failing.store(1, Ordering::Relaxed);
    }

    /// The next write behind the header of the segment fails.
    fn fail_a_write(&self) {
        self.0.failing_writes.store(1, Ordering::Relaxed);
    }

    fn durable(&self) -> usize {
        self.0.durable.load(Ordering::Relaxed)
    }
}

impl Flusher for Disk {
    fn caps(&self) -> Caps {
        Caps::volatile()
    }

    fn flush(&self) -> io::Result<()> {
        let covered = self.0.written.load(Ordering::Relaxed);
        if self.0.failing.swap(0, Ordering::Relaxed) == 1 {
            return Err(io::ErrorKind::Other.into());
        }
        self.0.durable.fetch_max(covered, Ordering::Relaxed);
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

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = offset as usize + bytes.len();
        if self.0.failing_writes.swap(0, Ordering::Relaxed) == 1 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.written.fetch_max(end, Ordering::Relaxed);
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

fn open(mode: GroupMode) -> (Log, Disk) {
    let disk = Disk::default();
    let options = LogOptions::new().group_mode(mode);
    let (log, _) = options.open(disk.clone()).unwrap();
    (log, disk)
}

/// The end of a frame of one record of one byte, after `n` such frames.
const fn frame_end(n: usize) -> usize {
    64 + n * (56 + 16 + 1)
}

fn append_and_commit(log: &Log, disk: &Disk) {
    let lsn = log.try_append(b"x").unwrap();
    log.commit_blocking(lsn, Durability::Flushed).unwrap();
    // In one frame or more: `lsn` counts records, and the first frame takes 56 bytes beside them.
    assert!(disk.durable() >= 64 + 56 + u64::from(lsn) as usize);
    assert!(log.durable() >= lsn);
}

/// FL.11, FL.19. Two commit; one appends while the other flushes.
#[test]
fn fl19_a_record_appended_during_a_flush() {
    check("fl19_a_record_appended_during_a_flush", BOUND, || {
        let (log, disk) = open(GroupMode::Leader);
        let other = thread::spawn({
            let (log, disk) = (log.clone(), disk.clone());
            move || append_and_commit(&log, &disk)
        });
        append_and_commit(&log, &disk);
        other.join().unwrap();
        // All that was written is durable.
        assert_eq!(disk.durable(), disk.0.written.load(Ordering::Relaxed));
    });
}

/// FL.19 without a leader: each for itself, and the other's record is not called durable.
#[test]
fn fl19_each_for_itself() {
    check("fl19_each_for_itself", BOUND, || {
        let (log, disk) = open(GroupMode::Off);
        let other = thread::spawn({
            let (log, disk) = (log.clone(), disk.clone());
            move || append_and_commit(&log, &disk)
        });
        append_and_commit(&log, &disk);
        other.join().unwrap();
        assert_eq!(disk.durable(), disk.0.written.load(Ordering::Relaxed));
    });
}

/// FL.13. One asks for "buffered" and leads, another one asks for "flushed" and joins.
#[test]
fn fl13_buffered_and_flushed_join() {
    check("fl13_buffered_and_flushed_join", BOUND, || {
        let (log, disk) = open(GroupMode::Leader);
        let lsn = log.try_append(b"x").unwrap();
        let other = thread::spawn({
            let (log, disk) = (log.clone(), disk.clone());
            move || {
                log.commit_blocking(lsn, Durability::Flushed).unwrap();
                assert!(disk.durable() >= frame_end(1));
            }
        });
        log.commit_blocking(lsn, Durability::Buffered).unwrap();
        other.join().unwrap();
        assert_eq!(log.durable(), lsn);
    });
}

/// FL.18. A commit that is to lead is dropped before it does.
#[test]
fn fl18_the_leader_leaves() {
    check("fl18_the_leader_leaves", BOUND, || {
        let (log, disk) = open(GroupMode::Leader);
        let lsn = log.try_append(b"x").unwrap();
        let other = thread::spawn({
            let (log, disk) = (log.clone(), disk.clone());
            move || append_and_commit(&log, &disk)
        });
        {
            let mut leaving = pin!(log.commit(lsn, Durability::Flushed));
            let _ = leaving
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
        }
        other.join().unwrap();
        append_and_commit(&log, &disk);
    });
}

/// FL.6, FL.18. A flush fails: of two commits at least one is told so, none hangs, and what the
/// flush has lost is not called durable.
#[test]
fn fl18_a_flush_fails() {
    check("fl18_a_flush_fails", BOUND, || {
        let (log, disk) = open(GroupMode::Leader);
        disk.fail_once();
        all_are_told(&log);
        assert!(log.is_poisoned());
    });
}

/// FL.18. The same, each for itself: the flush of one fails, and that of the other one succeeds,
/// with nothing left to flush. Nobody's record is called durable.
#[test]
fn fl18_a_flush_fails_each_for_itself() {
    check("fl18_a_flush_fails_each_for_itself", BOUND, || {
        let (log, disk) = open(GroupMode::Off);
        disk.fail_once();
        all_are_told(&log);
    });
}

/// FL.18. The first write fails. What is written behind it would not be found again.
#[test]
fn fl18_a_write_fails_each_for_itself() {
    check("fl18_a_write_fails_each_for_itself", BOUND, || {
        let (log, disk) = open(GroupMode::Off);
        disk.fail_a_write();
        all_are_told(&log);
    });
}

/// Two commit on a device that fails the first time.
fn all_are_told(log: &Log) {
    let commit = |log: &Log| {
        let lsn = log.try_append(b"x");
        lsn.and_then(|lsn| log.commit_blocking(lsn, Durability::Flushed))
    };
    let other = thread::spawn({
        let log = log.clone();
        move || commit(&log)
    });
    for ended in [commit(log), other.join().unwrap()] {
        assert!(matches!(ended, Err(LogError::Poisoned(_))), "{ended:?}");
    }
    assert_eq!(u64::from(log.durable()), 0);
}

/// FL.20. Who comes late finds its record durable without a lock, and sees what the flush has done.
#[test]
fn fl20_a_late_commit() {
    check("fl20_a_late_commit", BOUND, || {
        let (log, disk) = open(GroupMode::Leader);
        let lsn = log.try_append(b"x").unwrap();
        let commit = |log: Log, disk: Disk| {
            move || {
                log.commit_blocking(lsn, Durability::Flushed).unwrap();
                assert!(disk.durable() >= frame_end(1));
            }
        };
        let other = thread::spawn(commit(log.clone(), disk.clone()));
        commit(log, disk)();
        other.join().unwrap();
    });
}

/// FL.21. The tail moves while a buffer is on its way: the buffer that says so comes after a flush
/// of the data.
#[test]
fn fl21_the_tail_moves() {
    check("fl21_the_tail_moves", BOUND, || {
        let data = Disk::default();
        let disk = Disk::default();
        let domain = FlushDomain::new(data.clone());
        let options = LogOptions::new()
            .group_mode(GroupMode::Leader)
            .data_domain(&domain);
        let (log, _) = options.open(disk.clone()).unwrap();
        let old = log.try_append(b"x").unwrap();
        let mover = thread::spawn({
            let (log, data) = (log.clone(), data.clone());
            move || {
                data.write_at(&[1; 8], 0).unwrap();
                log.set_tail(old);
                let lsn = log.try_append(b"x").unwrap();
                log.commit_blocking(lsn, Durability::Flushed).unwrap();
                assert_eq!(data.durable(), 8);
            }
        });
        log.commit_blocking(old, Durability::Flushed).unwrap();
        mover.join().unwrap();
    });
}
