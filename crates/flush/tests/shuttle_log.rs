//! Random schedules of a log: users that append, commit, make checkpoints and move the tail, in
//! every form and mode, give up, and fail, until the power goes at any step.
//!
//! What is found after that is what was appended, up to what was acknowledged at least; everybody
//! ends; and the log goes on.
#![cfg(shuttle)]

#[path = "power_loss/history.rs"]
#[allow(dead_code, reason = "each file uses its part")]
mod history;
mod shuttle_support;

use history::{Checkpoint, End, History};
use inflight_flush::log::{
    Durability, GroupMode, Log, LogError, LogOptions, Lsn, MemoryStorage, Recovery,
};
use inflight_flush::{Caps, Device, FlushDomain, MemoryDevice, Power};
use inflight_sync::time::Clock;
use inflight_sync::{block_on, thread};
use shuttle_support::{Threads, check, polled};
use std::time::Duration;

const USERS: u64 = 3;
const MS: Duration = Duration::from_millis(1);
const MODES: [GroupMode; 3] = [GroupMode::Leader, GroupMode::Off, GroupMode::Auto];

fn options(seed: u64, clock: &Clock) -> LogOptions {
    let options = LogOptions::new()
        .group_mode(MODES[seed as usize % 3])
        .segment_size(4096)
        .buffer_size(1024)
        .max_buffered(2048)
        .max_group(if seed % 4 == 0 { 1024 } else { 2048 })
        .clock(clock);
    match seed / 3 % 3 {
        0 => options,
        1 => options.max_delay(MS).min_siblings(1),
        _ => options.max_members(1),
    }
}

fn storage(seed: u64, power: &Power) -> MemoryStorage {
    let caps = [Caps::volatile(), Caps::volatile_with_fua()][seed as usize / 2 % 2];
    let storage = MemoryStorage::new(power).with_caps(caps);
    if seed % 5 < 2 {
        storage.with_lost_writes_readable()
    } else {
        storage
    }
}

/// Commits in one of the forms. `None`: given up.
fn commit(log: &Log, form: u8, lsn: Lsn, durability: Durability) -> Option<Result<(), LogError>> {
    match form {
        0 | 1 => Some(log.commit_blocking(lsn, durability)),
        2 => Some(block_on(log.commit(lsn, durability))),
        3 => polled(log.commit(lsn, durability), 1),
        4 => match log.try_commit(lsn, durability) {
            Err(LogError::WouldBlock) => None,
            result => Some(result),
        },
        _ => match log.commit_timeout(lsn, durability, MS) {
            Err(LogError::TimedOut) => None,
            result => Some(result),
        },
    }
}

fn append(log: &Log, form: u8, record: &[u8]) -> Option<Result<Lsn, LogError>> {
    match form {
        0 => match log.try_append(record) {
            Err(LogError::Full) => None,
            result => Some(result),
        },
        1 => Some(block_on(log.append(record))),
        2 => match log.append_timeout(record, MS) {
            Err(LogError::TimedOut) => None,
            result => Some(result),
        },
        _ => Some(log.append_blocking(record)),
    }
}

/// What one user does, until the power goes, the log fails or enough was done.
fn user(log: &Log, id: u64, seed: u64) -> History {
    let mut rng = fastrand::Rng::with_seed(seed * USERS + id);
    let mut known = History::default();
    for n in 0..5 {
        let mut record = |len: usize| {
            let mut record = vec![id as u8; rng.usize(8..len)];
            record[..8].copy_from_slice(&(id * 1000 + n).to_le_bytes());
            record
        };
        let payload = record(600);
        let (more, kind, form) = (record(900), rng.u8(..8), rng.u8(..6));
        match kind {
            0 => {
                let mut checkpoint = log.checkpoint();
                let mut records = Vec::new();
                for payload in [payload, more] {
                    let Ok(lsn) = checkpoint.append_blocking(&payload) else {
                        let end = End::Never;
                        known.checkpoints.push(Checkpoint { records, end });
                        return known;
                    };
                    records.push((lsn, payload));
                }
                let committed = match form {
                    0 => {
                        drop(checkpoint);
                        None
                    }
                    1 => Some(block_on(checkpoint.commit())),
                    2 => Some(checkpoint.commit_timeout(MS)),
                    _ => Some(checkpoint.commit_blocking()),
                };
                let end = match committed {
                    None => End::Never,
                    Some(Ok(range)) => End::At(range.end),
                    Some(Err(_)) => End::Unknown,
                };
                known.checkpoints.push(Checkpoint { records, end });
                match end {
                    End::At(end) => known.acknowledge(end),
                    End::Unknown if form != 2 => return known,
                    _ => {}
                }
            }
            1 => {
                // Its own records; others are behind.
                let durable = |(lsn, _): &&(Lsn, Vec<u8>)| *lsn <= known.durable;
                if let Some(&(tail, _)) = known.plain.iter().rfind(durable) {
                    known.tail = tail;
                    log.set_tail(tail);
                }
            }
            _ => {
                let lsn = match append(log, form % 4, &payload) {
                    None => continue,
                    Some(Err(_)) => return known,
                    Some(Ok(lsn)) => lsn,
                };
                known.plain.push((lsn, payload));
                let durability = match kind {
                    2..=5 => Durability::Flushed,
                    6 => Durability::Buffered,
                    _ => continue,
                };
                match commit(log, form, lsn, durability) {
                    None => {}
                    Some(Err(_)) => return known,
                    Some(Ok(())) if durability == Durability::Flushed => {
                        assert!(log.durable() >= lsn);
                        known.acknowledge(lsn);
                        // Late commits take no lock, and say the same unless the log has failed.
                        let again = log.try_commit(lsn, durability);
                        assert!(again == Ok(()) || log.is_poisoned(), "{again:?}");
                    }
                    Some(Ok(())) => {}
                }
            }
        }
    }
    known
}

fn merged(all: Vec<History>) -> History {
    let mut merged = History::default();
    for known in all {
        merged.plain.extend(known.plain);
        merged.checkpoints.extend(known.checkpoints);
        merged.durable = merged.durable.max(known.durable);
        merged.tail = merged.tail.max(known.tail);
    }
    merged
}

fn reopened(storage: &MemoryStorage, restart: u64) -> (Log, Recovery, MemoryStorage) {
    let after = storage.restart(&Power::new(), restart);
    let opened = LogOptions::new()
        .segment_size(4096)
        .buffer_size(1024)
        .open(after.clone());
    let (log, found) = opened.unwrap_or_else(|error| panic!("it is not found: {error}"));
    (log, found, after)
}

/// Users of one log, until the power goes or they are done; a flush or a write may fail, or the
/// system's cache is lost. Then the log is opened again, and goes on.
fn users_until_the_power_goes(seed: u64) {
    let (power, clock) = (Power::new(), Clock::manual());
    let storage = storage(seed, &power);
    let (log, _) = options(seed, &clock).open(storage.clone()).unwrap();
    let mut rng = fastrand::Rng::with_seed(seed);
    if seed % 4 != 3 {
        power.cut_at(power.steps() + rng.u64(..50));
    }
    let mut threads = Threads::default();
    for id in 0..USERS {
        let log = log.clone();
        threads.spawn(move || user(&log, id, seed));
    }
    let (disks, yields) = (storage.clone(), rng.u8(..30));
    threads.spawn(move || {
        for _ in 0..yields {
            thread::yield_now();
        }
        if let Some(disk) = disks.devices().last() {
            match seed % 6 {
                0 => disk.fail_flushes(1),
                1 => disk.fail_writes(1),
                2 => disk.lose_cache(),
                _ => {}
            }
        }
        History::default()
    });
    let all = merged(threads.join_ticking(&clock, MS / 4));
    let context = format!("seed {seed}");
    for restart in 0..2 {
        let (next, found, after) = reopened(&storage, restart);
        all.check(&found, &context);
        // It goes on: what was found is durable, and what comes behind it, too.
        let lsn = next.append_blocking(b"and on").unwrap();
        next.commit_blocking(lsn, Durability::Flushed).unwrap();
        drop(next);
        let (_, again, _) = reopened(&after, restart + 2);
        assert_eq!(again.records.len(), found.records.len() + 1, "{context}");
        assert_eq!(again.records.last().unwrap().payload, b"and on");
    }
}

/// What is about to be written in place is on a disk of its own. A block is written there after its
/// record is durable, and then the tail moves past the record: whatever the power does, a block is
/// there, or its record is.
fn blocks_and_records(seed: u64) {
    const BLOCKS: u64 = 4;
    let (power, clock) = (Power::new(), Clock::manual());
    let storage = storage(seed, &power);
    let data = MemoryDevice::on(&power, (USERS * BLOCKS * 512) as usize);
    let domain = FlushDomain::builder().clock(&clock).device(data.clone());
    let options = options(seed, &clock).data_domain(&domain);
    let (log, _) = options.open(storage.clone()).unwrap();
    let mut rng = fastrand::Rng::with_seed(seed);
    power.cut_at(power.steps() + rng.u64(..60));
    let mut threads = Threads::default();
    // One moves the tail, over what all have written in place: those before the first that is not.
    for id in 0..USERS {
        let (log, data) = (log.clone(), data.clone());
        threads.spawn(move || {
            let mut acknowledged = Vec::new();
            for block in 0..BLOCKS {
                let number = id * BLOCKS + block;
                let Ok(lsn) = log.append_blocking(&number.to_le_bytes()) else {
                    break;
                };
                if log.commit_blocking(lsn, Durability::Flushed).is_err() {
                    break;
                }
                acknowledged.push(number);
                if data
                    .write_at(&(number + 1).to_le_bytes(), number * 512)
                    .is_err()
                {
                    break;
                }
                if id == 0 && block > 0 {
                    // Nobody else's record is before it, as the others have not begun or are in
                    // their first: theirs are found, or they are behind.
                    move_tail(&log, &data, lsn);
                }
            }
            acknowledged
        });
    }
    let told = threads.join_ticking(&clock, MS / 4);
    for restart in 0..2 {
        let after = data.restart(&Power::new(), restart);
        let (_, found, _) = reopened(&storage, restart);
        for number in told.iter().flatten() {
            let mut bytes = [0; 8];
            after.read_at(&mut bytes, number * 512).unwrap();
            let is_there = u64::from_le_bytes(bytes) == number + 1;
            let record = number.to_le_bytes();
            let is_found = found.records.iter().any(|found| found.payload == record);
            assert!(is_there || is_found, "seed {seed}: block {number}");
        }
    }
}

/// Writes all records' blocks before the tail moves past them: those of others, too.
fn move_tail(log: &Log, data: &MemoryDevice, tail: Lsn) {
    // What the others have appended may be before the tail: it is written in place for them, as
    // whoever moves a tail has to see to.
    for number in 0..USERS * 4 {
        if data
            .write_at(&(number + 1).to_le_bytes(), number * 512)
            .is_err()
        {
            return;
        }
    }
    log.set_tail(tail);
}

/// Commits of one group, some of which leave, one of which has asked for less, while a flush fails
/// now and then: nobody is told "durable" of what is not, and all hear of the failure.
fn a_failure_reaches_all(seed: u64) {
    let (power, clock) = (Power::new(), Clock::manual());
    let storage = storage(seed, &power);
    let (log, _) = options(seed, &clock).open(storage.clone()).unwrap();
    let mut threads = Threads::default();
    for id in 0..4_u8 {
        let (log, disks) = (log.clone(), storage.clone());
        threads.spawn(move || {
            let lsn = match log.append_blocking(&[id]) {
                Ok(lsn) => lsn,
                Err(error) => {
                    assert_eq!(error, log.try_append(b"").unwrap_err());
                    return None;
                }
            };
            if u64::from(id) == seed % 5 {
                disks.devices()[0].fail_flushes(1);
            }
            let durability = if u64::from(id) == seed / 5 % 4 {
                Durability::Buffered
            } else {
                Durability::Flushed
            };
            let result = commit(&log, (seed as u8 + id) % 6, lsn, durability);
            (result == Some(Ok(())) && durability == Durability::Flushed).then_some(id)
        });
    }
    let told: Vec<u8> = threads
        .join_ticking(&clock, MS / 4)
        .into_iter()
        .flatten()
        .collect();
    // One more of each: a log that has failed tells everybody.
    let mut threads = Threads::default();
    let last = log.clone();
    threads.spawn(move || {
        let lsn = last.append_blocking(b"last")?;
        last.commit_blocking(lsn, Durability::Flushed)
    });
    // It may wait once for those who have gone.
    let committed = threads.join_ticking(&clock, MS / 4);
    assert_eq!(committed[0].is_err(), log.is_poisoned());
    let (_, found, _) = reopened(&storage, seed);
    for id in told {
        let is_found = found.records.iter().any(|record| record.payload == [id]);
        assert!(is_found, "seed {seed}: the record of {id}");
    }
}

#[test]
fn power_goes() {
    check("log_power_goes", 120, users_until_the_power_goes);
}

#[test]
fn data_in_place() {
    check("log_data_in_place", 60, blocks_and_records);
}

#[test]
fn failures_of_a_group() {
    check("log_failures_of_a_group", 120, a_failure_reaches_all);
}
