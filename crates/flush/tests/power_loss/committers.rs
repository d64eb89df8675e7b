//! Several users of one log, and of one domain, on threads of their own.

use crate::history::{Checkpoint, End, History};
use inflight_flush::log::{Durability, GroupMode, Log, LogOptions, Lsn, MemoryStorage};
use inflight_flush::{Caps, Device, Flags, FlushDomain, MemoryDevice, Power};
use inflight_sync::thread;
use std::time::Duration;

const THREADS: u64 = 3;

/// What one user does, until the power goes or enough was done.
fn user(log: &Log, id: u64, seed: u64) -> History {
    let mut rng = fastrand::Rng::with_seed(seed * THREADS + id);
    let mut known = History::default();
    for n in 0..8 {
        let mut record = |len: usize| {
            let mut record = vec![id as u8; rng.usize(8..len)];
            record[..8].copy_from_slice(&(id * 1000 + n).to_le_bytes());
            record
        };
        let payload = record(600);
        match fastrand::Rng::with_seed(seed + id * 31 + n).u8(..8) {
            0 => {
                let mut checkpoint = log.checkpoint();
                let mut records = Vec::new();
                for payload in [payload, record(900)] {
                    let Ok(lsn) = checkpoint.append_blocking(&payload) else {
                        let end = End::Never;
                        known.checkpoints.push(Checkpoint { records, end });
                        return known;
                    };
                    records.push((lsn, payload));
                }
                let committed = checkpoint.commit_blocking();
                let end = committed.map_or(End::Unknown, |range| End::At(range.end));
                known.checkpoints.push(Checkpoint { records, end });
                let End::At(end) = end else { return known };
                known.acknowledge(end);
            }
            1 => {
                // Its own records; others are behind.
                let durable = |(lsn, _): &&(Lsn, Vec<u8>)| *lsn <= known.durable;
                if let Some(&(tail, _)) = known.plain.iter().rfind(durable) {
                    known.tail = tail;
                    log.set_tail(tail);
                }
            }
            kind => {
                let Ok(lsn) = log.append_blocking(&payload) else {
                    return known;
                };
                known.plain.push((lsn, payload));
                let durability = match kind {
                    2..=5 => Durability::Flushed,
                    6 => Durability::Buffered,
                    _ => continue,
                };
                if log.commit_blocking(lsn, durability).is_err() {
                    return known;
                }
                if durability == Durability::Flushed {
                    known.acknowledge(lsn);
                }
            }
        }
    }
    known
}

/// All users, up to the cut. How many steps the disks made.
fn run(seed: u64, mode: GroupMode, caps: Caps, cut: Option<u64>, fails: bool) -> u64 {
    let power = Power::new();
    let storage = MemoryStorage::new(&power)
        .with_caps(caps)
        .with_flush_time(Duration::from_micros(seed % 2 * 20));
    let options = LogOptions::new()
        .group_mode(mode)
        .segment_size(4096)
        .buffer_size(1024)
        .max_buffered(4096)
        .max_group(2048);
    let (log, _) = options.open(storage.clone()).unwrap();
    if let Some(cut) = cut {
        power.cut_at(power.steps() + cut);
    }
    if fails {
        let devices = storage.devices();
        devices[0].fail_flushes(1);
    }
    let users: Vec<_> = (0..THREADS)
        .map(|id| {
            let log = log.clone();
            thread::spawn(move || user(&log, id, seed))
        })
        .collect();
    let mut all = History::default();
    for known in users.into_iter().map(|user| user.join().unwrap()) {
        all.plain.extend(known.plain);
        all.checkpoints.extend(known.checkpoints);
        all.durable = all.durable.max(known.durable);
        all.tail = all.tail.max(known.tail);
    }
    let context = format!("seed {seed}, {mode:?}, {caps:?}, cut at {cut:?}, fails: {fails}");
    for restart in 0..2 {
        let storage = storage.restart(&Power::new(), restart);
        let opened = LogOptions::new().open(storage);
        let (_, found) = opened.unwrap_or_else(|error| panic!("{context}: {error}"));
        all.check(&found, &context);
    }
    power.steps()
}

#[test]
fn no_committed_record_of_several_users_is_lost() {
    for seed in 0..100 {
        for mode in [GroupMode::Off, GroupMode::Leader, GroupMode::Auto] {
            for caps in [Caps::volatile(), Caps::volatile_with_fua()] {
                let steps = run(seed, mode, caps, None, seed % 7 == 6);
                let mut rng = fastrand::Rng::with_seed(seed);
                for _ in 0..4 {
                    run(seed, mode, caps, Some(rng.u64(..steps)), seed % 7 == 5);
                }
            }
        }
    }
}

const WRITES: u64 = 12;

/// Each writes sectors of its own, one after the other, and flushes, through one domain. What it
/// was told is durable is there; what a failed flush may have lost, of its own or of another one,
/// is not called so. Some of the disks are behind a system's cache, which loses its content once,
/// at any time, and tells one of those who ask then.
#[test]
fn no_acknowledged_write_of_several_users_is_lost() {
    for seed in 0..1500 {
        let caps = [Caps::volatile(), Caps::volatile_with_fua()][seed as usize % 2];
        let power = Power::new();
        let mut device = MemoryDevice::on(&power, (THREADS * WRITES * 512) as usize)
            .with_caps(caps)
            .with_flush_time(Duration::from_micros(10));
        let loses = seed % 3 == 0;
        if loses {
            device = device.with_lost_writes_readable();
        }
        let domain = FlushDomain::new(device.clone());
        let mut rng = fastrand::Rng::with_seed(seed);
        power.cut_at(rng.u64(..80));
        if seed % 5 == 4 {
            device.fail_flushes(1);
        }
        let users: Vec<_> = (0..THREADS)
            .map(|id| {
                let (domain, device) = (domain.clone(), device.clone());
                thread::spawn(move || writer(&domain, &device, id, seed))
            })
            .collect();
        if loses {
            let at = rng.u64(1..40);
            let is_over = || users.iter().all(|user| user.is_finished());
            while power.steps() < at && !is_over() {
                thread::yield_now();
            }
            device.lose_cache();
        }
        let told: Vec<u64> = users.into_iter().map(|u| u.join().unwrap()).collect();
        let after = device.restart(&Power::new(), seed);
        for (id, told) in (0..).zip(told) {
            for number in 0..told {
                let mut bytes = [0; 8];
                after.read_at(&mut bytes, sector(id, number)).unwrap();
                let is_there = u64::from_le_bytes(bytes) == number + 1;
                assert!(is_there, "seed {seed}: {number} of user {id} is not there");
            }
        }
    }
}

fn sector(user: u64, number: u64) -> u64 {
    (user * WRITES + number) * 512
}

/// Writes its sectors. How many of them it was told are durable.
fn writer(domain: &FlushDomain, device: &MemoryDevice, id: u64, seed: u64) -> u64 {
    let mut rng = fastrand::Rng::with_seed(seed * THREADS + id);
    let before = domain.failed_flushes();
    let mut told = 0;
    for number in 0..WRITES {
        let bytes = (number + 1).to_le_bytes();
        let write = || device.write_at(&bytes, sector(id, number));
        let durable = match rng.u8(..4) {
            0 | 1 => write().is_ok() && domain.flush_blocking().is_ok(),
            2 => {
                let Ok(sequence) = domain.begin_blocking(Flags::write().preflush().fua()) else {
                    return told;
                };
                let written = if sequence.writes_fua() {
                    device.write_fua_at(&bytes, sector(id, number))
                } else {
                    write()
                };
                // Another one ends meanwhile.
                thread::yield_now();
                sequence.finish_blocking(written).is_ok()
            }
            _ => {
                if write().is_err() {
                    return told;
                }
                continue;
            }
        };
        if !durable || domain.failed_flushes() != before {
            return told;
        }
        told = number + 1;
    }
    told
}
