//! A log whose disk is full, and one whose files others have removed, added or cut.
#![cfg(not(any(loom, shuttle)))]

use inflight_flush::log::{
    DirStorage, Durability, Log, LogError, LogOptions, Lsn, MemoryStorage, OpenError, Recovery,
    Storage,
};
use inflight_flush::{Device, Power};
use inflight_sync::Arc;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

fn small() -> LogOptions {
    LogOptions::new().segment_size(8 << 10).buffer_size(1 << 10)
}

fn append_and_commit(log: &Log) -> Result<Lsn, LogError> {
    let lsn = log.append_blocking(&[1; 500])?;
    log.commit_blocking(lsn, Durability::Flushed)?;
    Ok(lsn)
}

/// A disk with room for so many bytes.
#[derive(Clone, Debug)]
struct Disk(MemoryStorage, u64);

impl Disk {
    fn new(room: u64) -> Self {
        Self(MemoryStorage::new(&Power::new()), room)
    }
}

impl Storage for Disk {
    fn segments(&self) -> io::Result<Vec<u64>> {
        self.0.segments()
    }

    fn create(&self, number: u64, len: u64) -> io::Result<Arc<dyn Device>> {
        let devices = self.0.devices();
        let used: io::Result<u64> = devices.iter().map(Device::len).sum();
        if used? + len > self.1 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.create(number, len)
    }

    fn open(&self, number: u64) -> io::Result<Arc<dyn Device>> {
        self.0.open(number)
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        self.0.remove(number)
    }
}

/// The counter rises while the last segment still has room for the new tail.
#[test]
fn a_full_disk_is_seen_before_commits_fail() {
    let (log, _) = small().open(Disk::new(30 << 10)).unwrap();
    for failed in 1..10 {
        let mut last = Lsn::default();
        while log.counters().failed_creations < failed {
            last = append_and_commit(&log).unwrap();
        }
        assert_eq!(log.segments(), 3);
        log.set_tail(last);
        append_and_commit(&log).unwrap();
        assert_eq!(log.segments(), 1);
    }
}

/// The record with the tail needs a segment, and the disk has room only for a small one.
#[test]
fn a_log_that_has_filled_the_disk_goes_on_in_a_smaller_segment() {
    let disk = Disk::new(30 << 10);
    let (log, _) = small().open(disk.clone()).unwrap();
    while append_and_commit(&log).is_ok() {}
    assert_eq!(log.counters().failed_creations, 2, "ahead, and when needed");
    drop(log);
    let move_tail = |options: LogOptions| {
        let (log, found) = options.open(disk.clone()).unwrap();
        assert!(!found.records.is_empty());
        log.set_tail(found.end);
        append_and_commit(&log).map(|_| log.segments())
    };
    let refused = move_tail(small());
    assert!(matches!(refused, Err(LogError::Poisoned(_))), "{refused:?}");
    assert_eq!(move_tail(small().segment_size(4 << 10)), Ok(1));
    let (log, found) = small().open(disk).unwrap();
    assert_eq!(found.records.len(), 1);
    while log.segments() < 3 {
        append_and_commit(&log).unwrap();
    }
}

/// The files of a log of three segments and of the one that was made ahead, and where it ends.
fn files(folder: &Path) -> (Vec<PathBuf>, Lsn) {
    let storage = DirStorage::new(folder).unwrap();
    let (log, _) = small().open(storage).unwrap();
    let path = |number| folder.join(format!("{number:016x}.log"));
    let mut end = Lsn::default();
    while !path(3).exists() {
        end = append_and_commit(&log).unwrap();
    }
    assert_eq!(log.segments(), 3);
    ((0..4).map(path).collect(), end)
}

fn open(folder: &Path) -> Result<Recovery, OpenError> {
    let opened = small().open(DirStorage::new(folder)?);
    opened.map(|(_, found)| found)
}

#[track_caller]
fn is_corrupt(found: &Result<Recovery, OpenError>) -> Lsn {
    match found {
        Err(OpenError::Corrupt(at)) => *at,
        other => panic!("{other:?}"),
    }
}

/// The last one holds nothing, and tells all the same that there were others.
#[test]
fn a_segment_that_is_missing_before_an_empty_one_is_an_error() {
    for missing in [&[2][..], &[1, 2], &[1], &[0, 1, 2], &[0]] {
        let folder = tempfile::tempdir().unwrap();
        let (files, end) = files(folder.path());
        for &number in missing {
            fs::remove_file(&files[number]).unwrap();
        }
        let at = is_corrupt(&open(folder.path()));
        assert!(at < end, "{missing:?}: {at}");
        assert_eq!(at == Lsn::default(), missing[0] == 0, "{missing:?}: {at}");
    }
}

#[test]
fn a_file_behind_a_gap_is_an_error_whatever_is_in_it() {
    for content in [&[][..], &[0; 8 << 10], &[7; 100], &[7; 8 << 10]] {
        for begin in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            if begin {
                open(folder.path()).unwrap();
            } else {
                fs::write(folder.path().join("0000000000000000.log"), b"").unwrap();
            }
            fs::write(folder.path().join("0000000000000009.log"), content).unwrap();
            is_corrupt(&open(folder.path()));
        }
    }
}

/// A frame is never written beyond the end of its segment. What is left of the head of one looks
/// torn, and a cut between two looks like the end of the log.
#[test]
fn a_file_that_ends_within_the_records_of_a_frame_was_cut() {
    // Header 64; each frame has 56 + 16 + 500 bytes.
    let frame = |n: u64| 64 + n * 572;
    for follows in [true, false] {
        let cut = |len| {
            let folder = tempfile::tempdir().unwrap();
            let (files, _) = files(folder.path());
            let file = fs::File::options().write(true).open(&files[2]).unwrap();
            file.set_len(len).unwrap();
            if !follows {
                fs::remove_file(&files[3]).unwrap();
            }
            open(folder.path())
        };
        // Two segments of 14 records each, and three records.
        for len in [frame(3) + 56, frame(3) + 571] {
            assert_eq!(is_corrupt(&cut(len)), Lsn::from(31 * 516));
        }
        for (len, is_torn) in [(frame(3), false), (frame(3) + 55, true)] {
            let found = cut(len).unwrap();
            assert_eq!((found.records.len(), found.torn), (31, is_torn));
        }
    }
}
