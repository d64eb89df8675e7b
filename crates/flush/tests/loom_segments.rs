//! Models of the segment that comes next: one commit makes it while another one needs it.
//!
//! | what is weakened | model that fails |
//! |---|---|
//! | who needs the segment does not wait for the one that makes it | `fl23_the_next_segment_is_made_once` |
//! | who has made it wakes nobody | the same |
//! | the full segment is not flushed before the next one begins | the same |
#![cfg(loom)]

use inflight_flush::log::{Durability, GroupMode, Log, LogOptions, Storage};
use inflight_flush::{Caps, Device, Flusher};
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::model::{Bound, check};
use inflight_sync::{Arc, Mutex, thread};
use std::io;

const BOUND: Bound = Bound {
    quick: Some(2),
    deep: Some(3),
};

/// A segment of a head and room for one frame of one byte, which is more than half of it.
const SEGMENT: u64 = 64 + 56 + 64;

/// Counts bytes instead of keeping them, in Relaxed words: only the log orders them.
#[derive(Clone, Debug, Default)]
struct Segment(Arc<(AtomicUsize, AtomicUsize)>);

impl Segment {
    fn is_durable(&self) -> bool {
        let (written, durable) = &*self.0;
        durable.load(Ordering::Relaxed) == written.load(Ordering::Relaxed)
    }
}

impl Flusher for Segment {
    fn caps(&self) -> Caps {
        Caps::volatile()
    }

    fn flush(&self) -> io::Result<()> {
        let covered = self.0.0.load(Ordering::Relaxed);
        self.0.1.fetch_max(covered, Ordering::Relaxed);
        Ok(())
    }
}

impl Device for Segment {
    fn len(&self) -> io::Result<u64> {
        Ok(SEGMENT)
    }

    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
        unreachable!("nothing is recovered")
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = offset as usize + bytes.len();
        self.0.0.fetch_max(end, Ordering::Relaxed);
        Ok(())
    }
}

/// The segments that were made, by their numbers.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<Mutex<Vec<Segment>>>);

impl Storage for Disk {
    fn segments(&self) -> io::Result<Vec<u64>> {
        Ok(Vec::new())
    }

    fn create(&self, number: u64, _: u64) -> io::Result<Arc<dyn Device>> {
        let segment = Segment::default();
        let mut segments = self.0.lock();
        assert_eq!(segments.len() as u64, number, "each is made once, in order");
        segments.push(segment.clone());
        Ok(Arc::new(segment))
    }

    fn open(&self, _: u64) -> io::Result<Arc<dyn Device>> {
        unreachable!("there is no segment to open")
    }

    fn remove(&self, _: u64) -> io::Result<()> {
        unreachable!("the tail does not move")
    }
}

fn append_and_commit(log: &Log) {
    let lsn = log.try_append(b"x").unwrap();
    log.commit_blocking(lsn, Durability::Flushed).unwrap();
}

/// FL.23. Each commit fills a segment: it makes the next one when it has ended, while the other
/// one may need it already.
#[test]
fn fl23_the_next_segment_is_made_once() {
    check("fl23_the_next_segment_is_made_once", BOUND, || {
        let disk = Disk::default();
        let options = LogOptions::new()
            .group_mode(GroupMode::Off)
            .segment_size(SEGMENT)
            .buffer_size(64);
        let (log, _) = options.open(disk.clone()).unwrap();
        let other = thread::spawn({
            let log = log.clone();
            move || append_and_commit(&log)
        });
        append_and_commit(&log);
        other.join().unwrap();
        let segments = disk.0.lock();
        assert!(segments.iter().all(Segment::is_durable));
    });
}
