//! When a log makes segments and when it removes them, and what that costs its users.
#![cfg(not(any(loom, shuttle)))]

use inflight_flush::log::{
    DirStorage, Durability, GroupMode, Log, LogError, LogOptions, Lsn, MemoryStorage, OpenError,
    OptionsError, Storage,
};
use inflight_flush::{Device, FlushDomain, Power};
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, Condvar, Mutex, thread};
use std::fmt;
use std::io;

type Hook = Box<dyn Fn(u64) -> io::Result<()> + Send + Sync>;

/// A storage that asks the test before it makes or removes a segment.
struct Hooked {
    storage: MemoryStorage,
    create: Hook,
    remove: Hook,
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.storage.fmt(f)
    }
}

impl Storage for Hooked {
    fn segments(&self) -> io::Result<Vec<u64>> {
        self.storage.segments()
    }

    fn create(&self, number: u64, len: u64) -> io::Result<Arc<dyn Device>> {
        (self.create)(number)?;
        self.storage.create(number, len)
    }

    fn open(&self, number: u64) -> io::Result<Arc<dyn Device>> {
        self.storage.open(number)
    }

    fn remove(&self, number: u64) -> io::Result<()> {
        (self.remove)(number)?;
        self.storage.remove(number)
    }
}

fn storage() -> MemoryStorage {
    MemoryStorage::new(&Power::new())
}

fn small() -> LogOptions {
    LogOptions::new().segment_size(8 << 10).buffer_size(1 << 10)
}

fn hooked(
    storage: &MemoryStorage,
    create: impl Fn(u64) -> io::Result<()> + Send + Sync + 'static,
    remove: impl Fn(u64) -> io::Result<()> + Send + Sync + 'static,
) -> Log {
    let hooked = Hooked {
        storage: storage.clone(),
        create: Box::new(create),
        remove: Box::new(remove),
    };
    small().open(hooked).unwrap().0
}

fn append_and_commit(log: &Log, record: &[u8]) -> Result<Lsn, LogError> {
    let lsn = log.append_blocking(record)?;
    log.commit_blocking(lsn, Durability::Flushed)?;
    Ok(lsn)
}

/// Commits until so many segments were begun.
fn fill(log: &Log, segments: usize) -> Lsn {
    let mut lsn = Lsn::default();
    while log.segments() < segments {
        lsn = append_and_commit(log, &[1; 500]).unwrap();
    }
    lsn
}

#[test]
fn a_change_of_segment_costs_one_flush_and_none_if_all_is_durable() {
    for mode in [GroupMode::Off, GroupMode::Leader, GroupMode::Auto] {
        let storage = storage();
        let (log, _) = small().group_mode(mode).open(storage.clone()).unwrap();
        let before = storage.flushes();
        for _ in 0..100 {
            append_and_commit(&log, &[1; 500]).unwrap();
        }
        assert!(log.segments() >= 6);
        assert_eq!(storage.flushes() - before, 100, "{mode:?}: one each");

        let (before, segments) = (storage.flushes(), log.segments());
        let mut checkpoint = log.checkpoint();
        for _ in 0..100 {
            checkpoint.append_blocking(&[1; 500]).unwrap();
        }
        checkpoint.commit_blocking().unwrap();
        let filled = (log.segments() - segments) as u64;
        assert!(filled >= 6, "{filled}");
        let flushes = storage.flushes() - before;
        assert!(
            flushes <= 2 + filled,
            "{mode:?}: {flushes}, {filled} segments"
        );
        let counters = log.counters();
        let of_full = counters.flushes_of_full_segments;
        assert_eq!(flushes, 2 + of_full, "{mode:?}: {counters:?}");
    }
}

/// Stops who comes, until the test lets it go.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<(bool, bool)>, Condvar)>);

impl Gate {
    fn pass(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock();
        state.0 = true;
        changed.notify_all();
        while !state.1 {
            changed.wait(&mut state);
        }
    }

    fn wait_for_somebody(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock();
        while !state.0 {
            changed.wait(&mut state);
        }
    }

    fn open(&self) {
        self.0.0.lock().1 = true;
        self.0.1.notify_all();
    }
}

/// One commit makes the next segment; the others go on, to the end of the one that is written, and
/// wait there.
#[test]
fn commits_go_on_while_the_next_segment_is_made() {
    for mode in [GroupMode::Off, GroupMode::Leader, GroupMode::Auto] {
        let storage = storage();
        let gate = Gate::default();
        let at_gate = gate.clone();
        let create = move |number| {
            if number == 1 {
                at_gate.pass();
            }
            Ok(())
        };
        let hooked = Hooked {
            storage: storage.clone(),
            create: Box::new(create),
            remove: Box::new(|_| Ok(())),
        };
        let (log, _) = small().group_mode(mode).open(hooked).unwrap();
        let maker = thread::spawn({
            let log = log.clone();
            move || fill(&log, 2)
        });
        gate.wait_for_somebody();
        for _ in 0..4 {
            append_and_commit(&log, &[2; 500]).unwrap();
        }
        assert_eq!(log.segments(), 1, "there is room for four more");
        let other = thread::spawn({
            let log = log.clone();
            move || fill(&log, 3)
        });
        gate.open();
        let (first, second) = (maker.join().unwrap(), other.join().unwrap());
        let (_, found) = LogOptions::new()
            .open(storage.restart(&Power::new(), 1))
            .unwrap();
        assert!(found.end >= first.max(second));
        assert!(found.records.len() > 16);
    }
}

#[test]
fn a_disk_that_is_full_fails_the_log_only_when_the_segment_is_needed() {
    let storage = storage();
    let failing = Arc::new(AtomicUsize::new(usize::MAX));
    let tried = Arc::new(AtomicUsize::new(0));
    let create = {
        let (failing, tried) = (failing.clone(), tried.clone());
        move |number| {
            tried.fetch_add(1, Ordering::Relaxed);
            if number == 0 || number as usize >= failing.load(Ordering::Relaxed) {
                return Ok(());
            }
            Err(io::ErrorKind::StorageFull.into())
        }
    };
    let log = hooked(&storage, create, |_| Ok(()));
    for _ in 0..13 {
        append_and_commit(&log, &[1; 500]).unwrap();
    }
    // Not with each commit again: that would fill the disk with zeros each time.
    assert_eq!(tried.load(Ordering::Relaxed), 2, "the first, and one try");
    assert_eq!(log.counters().failed_creations, 1);
    assert!(!log.is_poisoned() && log.segments() == 1);
    // There is room again when it is needed.
    failing.store(0, Ordering::Relaxed);
    fill(&log, 2);
    failing.store(usize::MAX, Ordering::Relaxed);
    let mut durable = Lsn::default();
    let failed = loop {
        match append_and_commit(&log, &[1; 500]) {
            Ok(lsn) => durable = lsn,
            Err(error) => break error,
        }
    };
    assert!(matches!(failed, LogError::Poisoned(_)), "{failed}");
    let (_, found) = LogOptions::new()
        .open(storage.restart(&Power::new(), 1))
        .unwrap();
    assert!(found.end >= durable);
}

/// Others who share the domain are never beside such a flush, and hear of its failure.
#[test]
fn a_full_segment_is_flushed_through_the_domain() {
    let storage = storage();
    let shared = FlushDomain::builder().build();
    let options = small().log_domain(&shared);
    let (log, _) = options.open(storage.clone()).unwrap();
    let buffered = || {
        let lsn = log.append_blocking(&[1; 500])?;
        log.commit_blocking(lsn, Durability::Buffered)
    };
    let at_open = shared.counters().issued;
    while log.segments() < 3 {
        buffered().unwrap();
    }
    assert_eq!(log.counters().flushes_of_full_segments, 2);
    assert_eq!(shared.counters().issued, at_open + 2);
    storage.devices()[2].fail_flushes(1);
    let failed = loop {
        if let Err(error) = buffered() {
            break error;
        }
    };
    assert!(matches!(failed, LogError::Poisoned(_)), "{failed}");
    assert_eq!(shared.failed_flushes(), 1);
}

/// If recovery began behind a segment that was removed, and did not know the tail, it would begin
/// in the midst of a checkpoint.
#[test]
fn a_segment_stays_until_the_tail_behind_it_is_durable() {
    let storage = storage();
    let log = hooked(&storage, |_| Ok(()), |_| Ok(()));
    let lsn = fill(&log, 3);
    log.set_tail(lsn);
    for _ in 0..2 {
        let lsn = log.append_blocking(b"buffered").unwrap();
        log.commit_blocking(lsn, Durability::Buffered).unwrap();
        assert_eq!(log.segments(), 3);
    }
    append_and_commit(&log, b"flushed").unwrap();
    assert_eq!(log.segments(), 1);
}

/// The frame with the tail is the first of the next segment, and nobody has flushed that.
#[test]
fn a_tail_that_no_durable_frame_bears_removes_nothing() {
    let storage = storage();
    let log = hooked(&storage, |_| Ok(()), |_| Ok(()));
    fill(&log, 2);
    let mut in_a_segment = 0;
    while log.segments() < 3 {
        append_and_commit(&log, &[1; 500]).unwrap();
        in_a_segment += 1;
    }
    // One is in the third segment already, and one more is not to be durable.
    for _ in 0..in_a_segment - 2 {
        append_and_commit(&log, &[1; 500]).unwrap();
    }
    let last = log.append_blocking(&[1; 500]).unwrap();
    log.commit_blocking(last, Durability::Buffered).unwrap();
    assert_eq!(log.segments(), 3, "the third is full");
    log.set_tail(last);
    let next = log.append_blocking(&[1; 500]).unwrap();
    log.commit_blocking(next, Durability::Buffered).unwrap();
    assert_eq!(log.segments(), 4);
    append_and_commit(&log, b"flushed").unwrap();
    assert_eq!(log.segments(), 1, "that of what came last");
}

#[test]
fn a_segment_that_could_not_be_removed_is_removed_later() {
    let storage = storage();
    let failures = Arc::new(AtomicUsize::new(2));
    let remove = move |_| match failures.load(Ordering::Relaxed) {
        0 => Ok(()),
        left => {
            failures.store(left - 1, Ordering::Relaxed);
            Err(io::ErrorKind::Other.into())
        }
    };
    let log = hooked(&storage, |_| Ok(()), remove);
    let lsn = fill(&log, 4);
    log.set_tail(lsn);
    let segments: Vec<usize> = (0..3)
        .map(|_| {
            append_and_commit(&log, b"x").unwrap();
            log.segments()
        })
        .collect();
    assert_eq!(segments, [4, 4, 1]);
    assert_eq!(log.counters().failed_removals, 2);
}

/// The name may be gone and the folder not flushed: then it is removed once more.
#[test]
fn a_file_is_removed_twice() {
    let folder = tempfile::tempdir().unwrap();
    let storage = DirStorage::new(folder.path()).unwrap();
    storage.create(3, 4096).unwrap();
    storage.remove(3).unwrap();
    storage.remove(3).unwrap();
    assert!(storage.segments().unwrap().is_empty());
}

/// What was made ahead is used by the next life, whether the log ends well or not.
#[test]
fn a_segment_that_was_made_ahead_is_used_after_a_restart() {
    let storage = storage();
    let created = Arc::new(AtomicUsize::new(0));
    let count = |storage: &MemoryStorage| {
        let created = created.clone();
        let create = move |_| {
            created.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        hooked(storage, create, |_| Ok(()))
    };
    let log = count(&storage);
    while storage.segments().unwrap().len() < 2 {
        append_and_commit(&log, &[1; 500]).unwrap();
    }
    assert_eq!((log.segments(), created.load(Ordering::Relaxed)), (1, 2));
    drop(log);
    for seed in 0..4 {
        let storage = storage.restart(&Power::new(), seed);
        let log = count(&storage);
        fill(&log, 2);
        assert_eq!(created.load(Ordering::Relaxed), 2);
        assert_eq!(storage.segments().unwrap(), [0, 1]);
    }
}

/// A size without sense is refused before a segment is made, and the error names the option.
#[test]
fn sizes_have_limits() {
    const GIB: u64 = 1 << 30;
    let refusal = |options: LogOptions| {
        let no_disk = Hooked {
            storage: storage(),
            create: Box::new(|_| Err(io::ErrorKind::StorageFull.into())),
            remove: Box::new(|_| Ok(())),
        };
        match options.open(no_disk).unwrap_err() {
            OpenError::Options(refusal) => Some((refusal, refusal.to_string())),
            _ => None,
        }
    };
    let new = LogOptions::new;
    assert_eq!(refusal(new().segment_size(GIB)), None);
    for size in [GIB + 1, u64::MAX] {
        let (error, text) = refusal(new().segment_size(size)).unwrap();
        assert_eq!(error, OptionsError::SegmentTooLarge(size));
        assert_eq!(text, format!("segment_size {size} is more than 1 GiB"));
    }
    let huge = usize::MAX;
    let text = |options| refusal(options).unwrap().1;
    let buffered = format!("max_buffered 4194304 is less than buffer_size {huge}");
    assert_eq!(text(new().buffer_size(huge)), buffered);
    let buffered = format!("max_buffered {huge} is more than 1 GiB");
    assert_eq!(text(new().buffer_size(huge).max_buffered(huge)), buffered);
    let group = "max_group 1048576 is less than buffer_size 1048577";
    assert_eq!(text(new().buffer_size((1 << 20) + 1)), group);
    let segment = "segment_size 32887 is less than 32888, which one buffer needs";
    assert_eq!(text(new().segment_size(32_887)), segment);
}

/// Writes three segments into a folder.
fn three_segments(folder: &tempfile::TempDir) {
    let storage = DirStorage::new(folder.path()).unwrap();
    fill(&small().open(storage).unwrap().0, 3);
}

/// The tail has never passed the first segments: their records were durable and cannot be read.
#[test]
fn first_segments_that_are_missing_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    three_segments(&folder);
    for number in 0..2 {
        std::fs::remove_file(folder.path().join(format!("{number:016x}.log"))).unwrap();
        let opened = small().open(DirStorage::new(folder.path()).unwrap());
        let is_found = matches!(opened, Err(OpenError::Corrupt(at)) if at == Lsn::default());
        assert!(is_found, "{:?}", opened.map(|(_, found)| found.end));
    }
}

/// Only the segment is left that was made ahead: the records were in the one before.
#[test]
fn a_segment_that_was_only_made_ahead_is_no_empty_log() {
    let storage = storage();
    let (log, _) = small().open(storage.clone()).unwrap();
    while storage.segments().unwrap().len() < 2 {
        append_and_commit(&log, &[1; 500]).unwrap();
    }
    drop(log);
    storage.remove(0).unwrap();
    let opened = small().open(storage);
    assert!(matches!(opened, Err(OpenError::Corrupt(at)) if at == Lsn::default()));
}

/// Its write has failed after some bytes. No record was ever in this log.
#[test]
fn a_part_of_the_first_head_is_an_empty_log() -> Result<(), Box<dyn std::error::Error>> {
    let whole = storage();
    small().open(whole.clone())?;
    let mut head = [0; 64];
    whole.open(0)?.read_at(&mut head, 0)?;
    for len in 1..head.len() {
        let part = storage();
        part.create(0, 8 << 10)?.write_at(&head[..len], 0)?;
        let (log, found) = small().open(part.clone())?;
        assert!(found.records.is_empty(), "{len} bytes");
        append_and_commit(&log, b"record")?;
        let (_, found) = small().open(part)?;
        assert_eq!(found.records[0].payload, b"record", "{len} bytes");
    }
    Ok(())
}

/// Its records are there, so its head was durable once.
#[test]
fn a_first_head_that_is_damaged_is_no_empty_log() -> Result<(), Box<dyn std::error::Error>> {
    let storage = storage();
    append_and_commit(&small().open(storage.clone())?.0, b"record")?;
    let head = storage.open(0)?;
    let mut byte = [0];
    head.read_at(&mut byte, 0)?;
    head.write_at(&[!byte[0]], 0)?;
    let opened = small().open(storage);
    assert!(matches!(opened, Err(OpenError::Corrupt(at)) if at == Lsn::default()));
    Ok(())
}

/// A second segment was begun, so the first was full once, and its records were durable.
#[test]
fn a_part_of_a_later_head_is_no_empty_log() -> Result<(), Box<dyn std::error::Error>> {
    let storage = storage();
    for number in 0..2 {
        storage.create(number, 8 << 10)?;
    }
    storage.open(1)?.write_at(&[1; 20], 0)?;
    let opened = small().open(storage);
    assert!(matches!(opened, Err(OpenError::Corrupt(at)) if at == Lsn::default()));
    Ok(())
}

#[test]
fn a_storage_that_cannot_be_made_names_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let error = DirStorage::new(&file).map(drop).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    let said = format!("{}: not a directory", file.display());
    assert_eq!(error.to_string(), said);
}

#[test]
fn other_files_in_the_folder_do_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    three_segments(&folder);
    for name in [
        "1.log",
        "00ff.log",
        "000000000000000A.log",
        "0000000000000009.log.bak",
    ] {
        std::fs::write(folder.path().join(name), b"").unwrap();
    }
    let (log, _) = small()
        .open(DirStorage::new(folder.path()).unwrap())
        .unwrap();
    assert_eq!(log.segments(), 3);
}

#[test]
fn a_log_of_another_version_of_the_format_says_so() {
    let storage = MemoryStorage::new(&Power::new());
    drop(LogOptions::new().open(storage.clone()).unwrap());
    let device = storage.devices()[0].clone();
    let mut head = [0; 64];
    device.read_at(&mut head, 0).unwrap();
    head[8] += 1; // the version, behind magic and checksum
    let sum = crc32c::crc32c(&head[8..]);
    head[4..8].copy_from_slice(&sum.to_le_bytes());
    device.write_at(&head, 0).unwrap();
    let opened = LogOptions::new().open(storage);
    assert!(
        matches!(opened, Err(OpenError::OtherVersion { segment: 0 })),
        "{opened:?}"
    );
}

/// A first record that is longer than a segment leaves the first one empty. It stays until the head
/// of the second one is durable.
#[test]
fn an_empty_segment_stays_until_the_next_one_has_a_durable_head() {
    for seed in 0..20 {
        let storage = storage();
        let (log, _) = small().open(storage.clone()).unwrap();
        let long = log.append_blocking(&[7; 20_000]).unwrap();
        log.commit_blocking(long, Durability::Buffered).unwrap();
        let restarted = storage.restart(&Power::new(), seed);
        let opened = small().open(restarted);
        assert!(opened.is_ok(), "seed {seed}: {opened:?}");
        append_and_commit(&log, b"short").unwrap();
        let numbers = storage.segments().unwrap();
        assert!(!numbers.contains(&0), "it is removed then: {numbers:?}");
        let found = small()
            .open(storage.restart(&Power::new(), seed))
            .unwrap()
            .1;
        assert_eq!(found.records.len(), 2);
    }
}
