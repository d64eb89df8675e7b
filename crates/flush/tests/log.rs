//! What users of the log rely on, without a loss of power (see `power_loss.rs`).
#![cfg(not(any(loom, shuttle)))]

use inflight_flush::log::{
    DirStorage, Durability, GroupMode, Log, LogError, LogOptions, Lsn, MemoryStorage, OpenError,
    Recovery, Storage,
};
use inflight_flush::{Caps, Device, FlushDomain, MemoryDevice, Power};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, block_on, thread};
use std::time::Duration;

fn storage() -> MemoryStorage {
    MemoryStorage::new(&Power::new())
}

fn open(storage: &MemoryStorage, options: LogOptions) -> Log {
    options.open(storage.clone()).unwrap().0
}

/// What is found after the power was lost.
fn after_power_loss(storage: &MemoryStorage, seed: u64) -> Recovery {
    let restarted = storage.restart(&Power::new(), seed);
    LogOptions::new().open(restarted).unwrap().1
}

fn payloads(recovery: &Recovery) -> Vec<Vec<u8>> {
    recovery.records.iter().map(|r| r.payload.clone()).collect()
}

/// The time of each flush of the device is told, whatever it was for. Failed ones do not count.
#[test]
fn the_time_of_each_flush_is_told() {
    let storage = storage();
    let log = open(
        &storage,
        LogOptions::new().segment_size(4096).buffer_size(1024),
    );
    for n in 0..10_u8 {
        let lsn = log.append_blocking(&[n; 900]).unwrap();
        log.set_tail(log.durable());
        log.commit_blocking(lsn, Durability::Buffered).unwrap();
    }
    log.commit_blocking(log.end(), Durability::Flushed).unwrap();
    log.set_tail(log.durable());
    let before = log.counters();
    assert!(before.flushes_before > 0 && before.flushes_of_full_segments > 0);
    let flushes = before.flushes
        + before.flushes_alone
        + before.flushes_before
        + before.flushes_of_full_segments;
    assert_eq!(before.flush_time.count(), flushes);
    let device = storage.devices().pop().unwrap();
    device.fail_flushes(1);
    let lsn = log.append_blocking(b"behind a flush that fails").unwrap();
    log.commit_blocking(lsn, Durability::Flushed).unwrap_err();
    assert_eq!(log.counters().flushes_before, before.flushes_before);
}

#[test]
fn one_committer_pays_one_flush_for_each_forced_commit() {
    for mode in [GroupMode::Off, GroupMode::Leader, GroupMode::Auto] {
        let storage = storage();
        let log = open(&storage, LogOptions::new().group_mode(mode));
        let before = storage.flushes();
        for n in 0..200_usize {
            let lsn = log.try_append(&vec![7; 300 + n * 3]).unwrap();
            log.commit_blocking(lsn, Durability::Flushed).unwrap();
        }
        assert_eq!(storage.flushes() - before, 200, "{mode:?}");
    }
}

#[test]
fn with_durable_writes_one_committer_needs_no_flush() {
    let storage = storage().with_caps(Caps::volatile_with_fua());
    let log = open(&storage, LogOptions::new());
    let before = storage.flushes();
    for n in 0..50_u8 {
        let lsn = log.try_append(&[n; 400]).unwrap();
        log.commit_blocking(lsn, Durability::Flushed).unwrap();
    }
    assert_eq!((storage.flushes() - before, storage.fua_writes()), (0, 50));
    assert_eq!(after_power_loss(&storage, 1).records.len(), 50);
}

#[test]
fn a_checkpoint_of_many_buffers_costs_two_flushes() {
    for caps in [Caps::volatile(), Caps::volatile_with_fua()] {
        let storage = storage().with_caps(caps);
        let log = open(&storage, LogOptions::new().segment_size(64 << 20));
        let lsn = log.try_append(b"before").unwrap();
        log.commit_blocking(lsn, Durability::Flushed).unwrap();
        let (flushes, buffers) = (storage.flushes(), log.counters().buffers);
        let mut checkpoint = log.checkpoint();
        for _ in 0..8_000 {
            checkpoint.append_blocking(&[1; 4_000]).unwrap();
        }
        let range = checkpoint.commit_blocking().unwrap();
        assert!(log.durable() >= range.end && range.start < range.end);
        let buffers = log.counters().buffers - buffers;
        assert!(buffers >= 1_000, "{buffers}");
        assert_eq!(storage.flushes() - flushes, 2, "{caps:?}");
    }
}

/// A log elsewhere than the data: the data's device is flushed, once, before the first buffer.
#[test]
fn a_tail_that_moves_flushes_the_data_first() {
    let data = MemoryDevice::new(4096);
    let data_domain = FlushDomain::new(data.clone());
    let storage = storage();
    let log = open(&storage, LogOptions::new().data_domain(&data_domain));
    let flushes = storage.flushes();
    let first = log.try_append(b"first").unwrap();
    log.commit_blocking(first, Durability::Flushed).unwrap();
    assert_eq!((data.flushes(), storage.flushes() - flushes), (0, 1));
    data.write_at(&[1; 512], 0).unwrap();
    log.set_tail(first);
    for _ in 0..3 {
        let lsn = log.try_append(b"next").unwrap();
        log.commit_blocking(lsn, Durability::Flushed).unwrap();
    }
    assert_eq!((data.flushes(), storage.flushes() - flushes), (1, 4));
    let found = after_power_loss(&storage, 3);
    assert_eq!((found.tail, found.records.len()), (first, 3));
}

#[test]
fn buffered_is_less_than_flushed() {
    let storage = storage();
    let log = open(&storage, LogOptions::new());
    let flushes = storage.flushes();
    let lsn = log.try_append(b"record").unwrap();
    log.commit_blocking(lsn, Durability::Buffered).unwrap();
    assert!(log.durable() < lsn);
    assert_eq!(storage.flushes(), flushes);
    log.commit_blocking(lsn, Durability::Flushed).unwrap();
    assert_eq!(log.durable(), lsn);
    assert_eq!(storage.flushes(), flushes + 1);
}

#[test]
fn a_failed_flush_fails_the_log_until_it_is_opened_again() {
    for mode in [GroupMode::Off, GroupMode::Leader] {
        let storage = storage();
        let log = open(&storage, LogOptions::new().group_mode(mode));
        let good = log.try_append(b"good").unwrap();
        log.commit_blocking(good, Durability::Flushed).unwrap();
        let bad = log.try_append(b"bad").unwrap();
        storage.devices()[0].fail_flushes(1);
        let failed = log.commit_blocking(bad, Durability::Flushed);
        assert!(matches!(failed, Err(LogError::Poisoned(_))), "{failed:?}");
        assert!(log.is_poisoned());
        assert_eq!(log.commit_blocking(bad, Durability::Flushed), failed);
        assert_eq!(log.commit_blocking(good, Durability::Flushed), failed);
        assert_eq!(log.try_append(b"more").map(drop), failed);
        assert!(log.durable() < bad, "what was lost is not called durable");
        let found = after_power_loss(&storage, 1);
        assert_eq!(payloads(&found), [b"good"]);
    }
}

/// What was written in place may be lost: the records that describe it stay.
#[test]
fn the_tail_does_not_move_while_the_data_is_poisoned() {
    let data = MemoryDevice::new(4096);
    let data_domain = FlushDomain::new(data.clone());
    let storage = storage();
    let log = open(&storage, LogOptions::new().data_domain(&data_domain));
    let first = log.try_append(b"first").unwrap();
    log.commit_blocking(first, Durability::Flushed).unwrap();
    data.write_at(&[1; 512], 0).unwrap();
    data.fail_flushes(1);
    data_domain.flush_blocking().unwrap_err();
    log.set_tail(first);
    let next = log.try_append(b"next").unwrap();
    let failed = log.commit_blocking(next, Durability::Flushed);
    assert!(matches!(failed, Err(LogError::Poisoned(_))), "{failed:?}");
    let found = after_power_loss(&storage, 1);
    assert_eq!(found.records[0].payload, b"first");
}

/// One who has applied its own records does not know that a checkpoint of another one began before.
#[test]
fn a_tail_does_not_cut_a_checkpoint_that_has_not_ended() {
    let storage = storage();
    let log = open(&storage, LogOptions::new());
    let mut checkpoint = log.checkpoint();
    checkpoint.append_blocking(b"one").unwrap();
    let other = log.try_append(b"of another").unwrap();
    log.commit_blocking(other, Durability::Flushed).unwrap();
    log.set_tail(other);
    checkpoint.append_blocking(b"two").unwrap();
    checkpoint.commit_blocking().unwrap();
    let found = after_power_loss(&storage, 1);
    let found = payloads(&found);
    assert!(found.contains(&b"one".to_vec()) && found.contains(&b"two".to_vec()));

    // Its owner has applied it: now the tail passes, and one that was given up is in nobody's way.
    let mut given_up = log.checkpoint();
    given_up.append_blocking(b"never").unwrap();
    drop(given_up);
    log.set_tail(log.end());
    let last = log.try_append(b"last").unwrap();
    log.commit_blocking(last, Durability::Flushed).unwrap();
    assert_eq!(payloads(&after_power_loss(&storage, 2)), [b"last"]);
}

#[test]
fn a_full_disk_fails_the_log() {
    let storage = storage();
    let log = open(&storage, LogOptions::new());
    let lsn = log.try_append(b"record").unwrap();
    storage.devices()[0].fail_writes(1);
    let failed = log.commit_blocking(lsn, Durability::Flushed);
    assert!(matches!(failed, Err(LogError::Poisoned(_))), "{failed:?}");
}

#[test]
fn appending_waits_for_room_and_says_when_there_is_none() {
    let storage = storage();
    let options = LogOptions::new()
        .buffer_size(1024)
        .max_buffered(4096)
        .max_group(4096);
    let log = open(&storage, options);
    let mut appended = 0;
    while log.try_append(&[1; 500]).is_ok() {
        appended += 1;
    }
    assert_eq!(appended, 7);
    assert_eq!(log.try_append(&[1; 500]), Err(LogError::Full));
    log.append_timeout(&[1; 500], Duration::from_secs(9))
        .unwrap();
    let flushes = storage.flushes();
    for _ in 0..100 {
        block_on(log.append(&[2; 500])).unwrap();
    }
    assert_eq!(storage.flushes(), flushes, "room needs no flush");
    let too_long = log.try_append(&[0; 5000]);
    assert_eq!(
        too_long,
        Err(LogError::TooLong {
            len: 5000,
            max: 4080
        })
    );
}

#[test]
fn a_checkpoint_appends_in_each_form() {
    let storage = storage();
    let options = LogOptions::new()
        .buffer_size(1024)
        .max_buffered(4096)
        .max_group(4096);
    let log = open(&storage, options);
    let mut checkpoint = log.checkpoint();
    let mut appended = 0_u8;
    while checkpoint.try_append(&[appended; 500]).is_ok() {
        appended += 1;
    }
    assert_eq!(appended, 7);
    assert_eq!(checkpoint.try_append(&[7; 500]), Err(LogError::Full));
    let limit = Duration::from_secs(9);
    checkpoint.append_timeout(&[7; 500], limit).unwrap();
    checkpoint.append_blocking(&[8; 500]).unwrap();
    block_on(checkpoint.append(&[9; 500])).unwrap();
    let range = checkpoint.commit_timeout(limit).unwrap();
    assert_eq!(log.try_commit(range.end, Durability::Flushed), Ok(()));
    let found = after_power_loss(&storage, 1);
    let firsts: Vec<u8> = found.records.iter().map(|r| r.payload[0]).collect();
    assert_eq!(firsts, Vec::from_iter(0..10));
}

#[test]
fn positions_that_do_not_exist_are_refused() {
    let log = open(&storage(), LogOptions::new());
    let lsn = log.try_append(b"x").unwrap();
    let beyond = Lsn::from(u64::from(lsn) + 1);
    let refused = log.commit_blocking(beyond, Durability::Flushed);
    assert_eq!(
        refused,
        Err(LogError::NotAppended {
            lsn: beyond,
            end: lsn
        })
    );
    assert!(LogOptions::new().segment_size(100).open(storage()).is_err());
    assert!(LogOptions::new().buffer_size(1).open(storage()).is_err());
    assert!(LogOptions::new().max_group(1).open(storage()).is_err());
}

#[test]
fn a_wait_with_a_limit_gives_up_and_its_record_is_committed_by_the_next() {
    let clock = Clock::manual();
    let storage = storage().with_flush_time(Duration::from_millis(100));
    let options = LogOptions::new()
        .group_mode(GroupMode::Leader)
        .clock(&clock);
    let log = open(&storage, options);
    let leader = thread::spawn({
        let log = log.clone();
        move || {
            let lsn = log.try_append(b"leader").unwrap();
            log.commit_blocking(lsn, Durability::Flushed).unwrap();
        }
    });
    while storage.flushes() < 2 {
        thread::yield_now();
    }
    let lsn = log.try_append(b"late").unwrap();
    let waiter = thread::spawn({
        let log = log.clone();
        move || log.commit_timeout(lsn, Durability::Flushed, Duration::from_secs(1))
    });
    while clock.sleepers() == 0 && !waiter_is_done(&log, lsn) {
        thread::yield_now();
    }
    clock.advance(Duration::from_secs(1));
    let ended = waiter.join().unwrap();
    assert!(
        matches!(ended, Err(LogError::TimedOut) | Ok(())),
        "{ended:?}"
    );
    leader.join().unwrap();
    log.commit_blocking(lsn, Durability::Flushed).unwrap();
}

fn waiter_is_done(log: &Log, lsn: Lsn) -> bool {
    log.durable() >= lsn
}

#[test]
fn old_segments_go_when_the_tail_has_passed_them() {
    let storage = storage();
    let options = || LogOptions::new().segment_size(8 << 10).buffer_size(1 << 10);
    let log = open(&storage, options());
    let mut lsn = Lsn::default();
    for n in 0..100_u8 {
        lsn = log.append_blocking(&[n; 500]).unwrap();
        log.commit_blocking(lsn, Durability::Flushed).unwrap();
    }
    let segments = log.segments();
    assert!(segments >= 6, "{segments}");
    log.set_tail(lsn);
    let last = log.append_blocking(b"last").unwrap();
    log.commit_blocking(last, Durability::Flushed).unwrap();
    assert_eq!((log.segments(), storage.segments().unwrap().len()), (1, 1));
    let found = after_power_loss(&storage, 1);
    assert_eq!(payloads(&found), [b"last"]);
    assert_eq!(found.end, last);
}

/// The process ends and the power stays; then the power goes.
#[test]
fn what_is_found_again_is_durable() {
    let storage = storage();
    let log = open(&storage, LogOptions::new().segment_size(64 << 10));
    let lsn = log.try_append(b"record").unwrap();
    log.commit_blocking(lsn, Durability::Buffered).unwrap();
    drop(log);
    let log = open(&storage, LogOptions::new().segment_size(64 << 10));
    assert_eq!(log.durable(), lsn);
    for seed in 0..20 {
        assert_eq!(payloads(&after_power_loss(&storage, seed)), [b"record"]);
    }
}

#[test]
fn a_log_on_files_goes_on_where_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for round in 0..4_u8 {
        let options = LogOptions::new().segment_size(64 << 10);
        let (log, found) = options
            .open(DirStorage::new(folder.path()).unwrap())
            .unwrap();
        assert_eq!(payloads(&found), expected);
        assert!(!found.torn);
        let other = DirStorage::new(folder.path()).map(drop).unwrap_err();
        assert_eq!(
            other.kind(),
            std::io::ErrorKind::WouldBlock,
            "one at a time"
        );
        let text = other.to_string();
        let said = format!("the log in {} is open already", folder.path().display());
        assert_eq!(text, said);
        for n in 0..40_u8 {
            let record = vec![round * 64 + n; 1000];
            let lsn = log.append_blocking(&record).unwrap();
            expected.push(record);
            if n % 7 == 0 {
                log.commit_blocking(lsn, Durability::Flushed).unwrap();
            }
        }
        log.commit_blocking(log.end(), Durability::Flushed).unwrap();
    }
}

/// Damage is corruption if something says that the damaged record was durable, and a torn write if
/// nothing does.
#[test]
fn corruption_and_torn_writes_are_told_apart() {
    let storage = storage();
    let options = LogOptions::new().buffer_size(1024).segment_size(64 << 10);
    let log = open(&storage, options);
    let mut ends = Vec::new();
    for n in 0..20_u8 {
        let lsn = log.try_append(&[n + 1; 600]).unwrap();
        log.commit_blocking(lsn, Durability::Flushed).unwrap();
        ends.push(lsn);
    }
    let damaged = |offset: u64| {
        let copy = storage.restart(&Power::new(), 0);
        let device = copy.devices()[0].clone();
        let mut byte = [0];
        device.read_at(&mut byte, offset).unwrap();
        device.write_at(&[byte[0] ^ 4], offset).unwrap();
        LogOptions::new().open(copy).map(|(_, found)| found)
    };
    // Header 64; each frame has 56 + 16 + 600 bytes.
    let frame = |n: u64| 64 + n * 672;
    for n in 0..19 {
        for offset in [frame(n) + 20, frame(n) + 60, frame(n) + 300] {
            let found = damaged(offset);
            let good = n
                .checked_sub(1)
                .map_or(Lsn::default(), |n| ends[n as usize]);
            assert!(
                matches!(found, Err(OpenError::Corrupt(at)) if at == good),
                "{n} {offset}: {found:?}"
            );
        }
    }
    // Nothing is behind the last one.
    let found = damaged(frame(19) + 300).unwrap();
    assert_eq!((found.torn, found.end), (true, ends[18]));
    assert!(
        matches!(damaged(10), Err(OpenError::Corrupt(_))),
        "the segment's header"
    );
}

#[test]
fn a_device_that_panics_fails_the_log_and_keeps_nobody_waiting() {
    #[derive(Debug)]
    struct Panics(MemoryStorage, bool);
    struct Device_(MemoryDevice, bool, Arc<inflight_sync::atomic::AtomicBool>);
    impl inflight_flush::Flusher for Device_ {
        fn flush(&self) -> std::io::Result<()> {
            if self.2.load(inflight_sync::atomic::Ordering::Relaxed) {
                panic!("the driver");
            }
            self.0.flush()
        }
    }
    impl Device for Device_ {
        fn len(&self) -> std::io::Result<u64> {
            self.0.len()
        }
        fn read_at(&self, bytes: &mut [u8], offset: u64) -> std::io::Result<()> {
            self.0.read_at(bytes, offset)
        }
        fn write_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
            assert!(!self.1 || offset < 64, "the driver");
            self.2
                .store(offset >= 64, inflight_sync::atomic::Ordering::Relaxed);
            self.0.write_at(bytes, offset)
        }
    }
    impl Storage for Panics {
        fn segments(&self) -> std::io::Result<Vec<u64>> {
            self.0.segments()
        }
        fn create(&self, number: u64, len: u64) -> std::io::Result<Arc<dyn Device>> {
            self.0.create(number, len)?;
            Ok(Arc::new(Device_(
                self.0.devices()[0].clone(),
                self.1,
                Arc::default(),
            )))
        }
        fn open(&self, number: u64) -> std::io::Result<Arc<dyn Device>> {
            self.0.open(number)
        }
        fn remove(&self, number: u64) -> std::io::Result<()> {
            self.0.remove(number)
        }
    }
    let modes = [GroupMode::Off, GroupMode::Leader];
    for (mode, in_write) in modes.into_iter().flat_map(|m| [(m, false), (m, true)]) {
        let options = LogOptions::new().group_mode(mode);
        let (log, _) = options.open(Panics(storage(), in_write)).unwrap();
        let lsn = log.try_append(b"x").unwrap();
        let leader = thread::spawn({
            let log = log.clone();
            move || log.commit_blocking(lsn, Durability::Flushed)
        });
        assert!(leader.join().is_err(), "the leader's own panic");
        assert!(log.try_append(b"behind what may be a hole").is_err());
        let failed = log.commit_blocking(lsn, Durability::Flushed);
        assert!(matches!(failed, Err(LogError::Poisoned(_))), "{failed:?}");
    }
}
