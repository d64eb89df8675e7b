//! A flush fails, and what it was to write can still be read: the system counts it as clean, and no
//! flush writes it any more. The log is opened again by a process that knows nothing of that.

use inflight_flush::log::{Durability, GroupMode, LogOptions, MemoryStorage, Recovery};
use inflight_flush::{Caps, Device, Flusher, MemoryDevice, Power};

fn options(mode: GroupMode) -> LogOptions {
    LogOptions::new()
        .group_mode(mode)
        .segment_size(4096)
        .buffer_size(1024)
        .max_buffered(4096)
        .max_group(2048)
}

#[test]
fn what_a_failed_flush_has_left_is_read_and_is_lost_with_the_power() {
    let device = MemoryDevice::new(4096).with_lost_writes_readable();
    let first = |device: &MemoryDevice| {
        let mut bytes = [0; 3];
        device.read_at(&mut bytes, 600).unwrap();
        bytes
    };
    device.write_at(b"old", 600).unwrap();
    device.flush().unwrap();
    device.write_at(b"new", 600).unwrap();
    device.fail_flushes(1);
    device.flush().unwrap_err();
    device.flush().unwrap();
    assert_eq!(&first(&device), b"new");
    assert_eq!(&first(&device.restart(&Power::new(), 1)), b"old");
    // What is written again is written.
    device.write_at(b"n", 600).unwrap();
    device.flush().unwrap();
    assert_eq!(&first(&device.restart(&Power::new(), 1)), b"new");
}

/// The records that are found, up to the last of `known`.
fn are_found(known: &[(u64, Vec<u8>)], found: &Recovery, context: &str) {
    let records = found.records.iter();
    let records: Vec<_> = records
        .map(|r| (u64::from(r.lsn), r.payload.clone()))
        .collect();
    assert!(records.starts_with(known), "{context}: {records:?}");
}

/// Commits, a flush that fails, the log opened again, commits, and a loss of power: what was found
/// when it was opened again, and what was committed since, is there.
fn life(seed: u64, mode: GroupMode, caps: Caps, cut: Option<u64>) -> u64 {
    let context = format!("seed {seed}, {mode:?}, {caps:?}, cut at {cut:?}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let power = Power::new();
    let storage = MemoryStorage::new(&power)
        .with_caps(caps)
        .with_lost_writes_readable();
    let (log, _) = options(mode).open(storage.clone()).unwrap();
    let fails_at = rng.u8(0..8);
    for step in 0..8 {
        if step == fails_at {
            let devices = storage.devices();
            devices.last().expect("a segment").fail_flushes(1);
        }
        let record = vec![step; rng.usize(8..900)];
        let Ok(lsn) = log.append_blocking(&record) else {
            break;
        };
        if rng.bool() && log.commit_blocking(lsn, Durability::Flushed).is_err() {
            break;
        }
    }
    drop(log);
    // The process has ended, and the power stays.
    let mut known = Vec::new();
    if let Some(cut) = cut {
        power.cut_at(power.steps() + cut);
    }
    let before = power.steps();
    if let Ok((log, found)) = options(mode).open(storage.clone()) {
        let records = found.records.iter();
        known.extend(records.map(|r| (u64::from(r.lsn), r.payload.clone())));
        for step in 100..104 {
            let record = vec![step; rng.usize(8..900)];
            let Ok(lsn) = log.append_blocking(&record) else {
                break;
            };
            if log.commit_blocking(lsn, Durability::Flushed).is_err() {
                break;
            }
            known.push((u64::from(lsn), record));
        }
    }
    let steps = power.steps() - before;
    for restart in 0..3 {
        let after = storage.restart(&Power::new(), restart);
        let opened = options(GroupMode::Off).open(after);
        let (_, found) = opened.unwrap_or_else(|error| panic!("{context}: {error}"));
        are_found(&known, &found, &context);
    }
    steps
}

#[test]
fn what_is_found_after_a_failed_flush_is_durable() {
    let mut cuts = 0;
    for seed in 0..60 {
        for mode in [GroupMode::Off, GroupMode::Leader, GroupMode::Auto] {
            for caps in [Caps::volatile(), Caps::volatile_with_fua()] {
                let steps = life(seed, mode, caps, None);
                for cut in 0..steps {
                    life(seed, mode, caps, Some(cut));
                    cuts += 1;
                }
            }
        }
    }
    assert!(cuts > 1_000, "{cuts}");
}

/// The last of three records of one frame is torn. The two before it are found, and stay.
#[test]
fn the_whole_records_of_a_torn_frame_are_durable_when_they_are_found() {
    let storage = MemoryStorage::new(&Power::new()).with_lost_writes_readable();
    let open = |storage: &MemoryStorage| {
        let options = LogOptions::new()
            .segment_size(16 << 10)
            .buffer_size(8 << 10);
        options.open(storage.clone()).unwrap()
    };
    let (log, _) = open(&storage);
    let ends = [1, 2, 3].map(|n| log.append_blocking(&[n; 1500]).unwrap());
    let device = storage.devices().pop().unwrap();
    device.fail_flushes(1);
    log.commit_blocking(ends[2], Durability::Flushed)
        .unwrap_err();
    drop(log);
    let mut bytes = vec![0; 16 << 10];
    device.read_at(&mut bytes, 0).unwrap();
    let last = bytes.iter().rposition(|&byte| byte == 3).unwrap();
    device.write_at(&[4], last as u64).unwrap();
    let found = |storage: &MemoryStorage| {
        let (_, found) = open(storage);
        let records = found.records.iter();
        (records.map(|r| r.payload[0]).collect::<Vec<_>>(), found.end)
    };
    let expected = (vec![1, 2], ends[1]);
    assert_eq!(found(&storage), expected);
    for seed in 0..10 {
        assert_eq!(found(&storage.restart(&Power::new(), seed)), expected);
    }
}
