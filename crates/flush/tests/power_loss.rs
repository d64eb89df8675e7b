//! The power is cut at every step of random runs: what was acknowledged as durable is there.
#![cfg(not(any(loom, shuttle)))]

use inflight_flush::log::{Durability, GroupMode, LogOptions, Lsn, MemoryStorage, RecoveredRecord};
use inflight_flush::{Caps, Device, Flags, FlushDomain, MemoryDevice, Power};

const SECTORS: u64 = 16;
const SECTOR: u64 = 512;

/// What each sector may hold after a loss of power: what was durable, or anything written since.
struct Oracle {
    durable: Vec<u64>,
    /// Written since, oldest first.
    since: Vec<Vec<u64>>,
}

impl Oracle {
    fn new() -> Self {
        Self {
            durable: vec![0; SECTORS as usize],
            since: vec![Vec::new(); SECTORS as usize],
        }
    }

    fn flushed(&mut self) {
        for (durable, since) in self.durable.iter_mut().zip(&mut self.since) {
            if let Some(last) = since.drain(..).next_back() {
                *durable = last;
            }
        }
    }

    fn check(&self, device: &MemoryDevice, context: &str) {
        for sector in 0..SECTORS {
            let mut bytes = [0; 8];
            device.read_at(&mut bytes, sector * SECTOR).unwrap();
            let found = u64::from_le_bytes(bytes);
            let at = sector as usize;
            let allowed = found == self.durable[at] || self.since[at].contains(&found);
            assert!(allowed, "{context}: sector {sector} holds {found}");
        }
    }
}

/// One run of writes, flushes and durable writes, up to the cut. How many steps it made.
fn writes(seed: u64, caps: Caps, cut: Option<u64>) -> u64 {
    let power = Power::new();
    if let Some(cut) = cut {
        power.cut_at(cut);
    }
    let device = MemoryDevice::on(&power, (SECTORS * SECTOR) as usize).with_caps(caps);
    let domain = FlushDomain::new(device.clone());
    let mut oracle = Oracle::new();
    let mut rng = fastrand::Rng::with_seed(seed);
    for number in 1..=24 {
        let (from, count) = (rng.u64(..SECTORS), rng.u64(1..=3));
        let count = count.min(SECTORS - from);
        let mut bytes = vec![0; (count * SECTOR) as usize];
        for sector in bytes.chunks_mut(SECTOR as usize) {
            sector[..8].copy_from_slice(&u64::to_le_bytes(number));
        }
        let kind = rng.u8(..6);
        if kind == 0 {
            if domain.flush_blocking().is_err() {
                break;
            }
            oracle.flushed();
            continue;
        }
        let flags = match kind {
            1 => Flags::write().fua(),
            2 => Flags::write().preflush(),
            3 => Flags::write().preflush().fua(),
            _ => Flags::write(),
        };
        let Ok(sequence) = domain.begin_blocking(flags) else {
            break;
        };
        if flags.preflush {
            oracle.flushed();
        }
        // From here on some of it may be on the device.
        let sectors = from as usize..(from + count) as usize;
        for since in &mut oracle.since[sectors.clone()] {
            since.push(number);
        }
        let written = if sequence.writes_fua() {
            device.write_fua_at(&bytes, from * SECTOR)
        } else {
            device.write_at(&bytes, from * SECTOR)
        };
        if sequence.finish_blocking(written).is_err() {
            break;
        }
        if flags.fua || !caps.volatile_cache {
            for at in sectors {
                oracle.since[at].clear();
                oracle.durable[at] = number;
            }
        }
    }
    let context = format!("seed {seed}, {caps:?}, cut at {cut:?}");
    for restart in 0..3 {
        oracle.check(&device.restart(&Power::new(), restart), &context);
    }
    power.steps()
}

#[test]
fn no_acknowledged_write_is_lost() {
    let mut cuts = 0;
    for seed in 0..70 {
        for caps in [Caps::volatile(), Caps::volatile_with_fua(), Caps::durable()] {
            let steps = writes(seed, caps, None);
            for cut in 0..steps {
                writes(seed, caps, Some(cut));
                cuts += 1;
            }
        }
    }
    assert!(cuts > 10_000, "{cuts}");
}

fn record(number: u32, len: usize) -> Vec<u8> {
    let mut record = vec![number as u8; len.max(4)];
    record[..4].copy_from_slice(&number.to_le_bytes());
    record
}

fn number(record: &RecoveredRecord) -> u32 {
    u32::from_le_bytes(record.payload[..4].try_into().unwrap())
}

/// What the user of a log knows when the power goes.
#[derive(Default)]
struct Known {
    /// Records appended, and those that were acknowledged as durable: the first so many.
    appended: Vec<Vec<u8>>,
    durable: usize,
    /// Records of each checkpoint, with whether it was acknowledged.
    checkpoints: Vec<(Vec<Vec<u8>>, bool)>,
    tail: usize,
    positions: Vec<Lsn>,
}

/// One run of a log, twice: after the first loss of power it goes on, until the second.
fn log_run(seed: u64, mode: GroupMode, caps: Caps, cuts: [Option<u64>; 2]) -> u64 {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut storage = MemoryStorage::new(&Power::new()).with_caps(caps);
    let mut known = Known::default();
    let mut steps = 0;
    for (life, cut) in cuts.into_iter().enumerate() {
        let power = Power::new();
        storage = storage.restart(&power, seed.wrapping_add(life as u64));
        if let Some(cut) = cut {
            power.cut_at(cut);
        }
        let options = LogOptions::new()
            .group_mode(mode)
            .segment_size(4096)
            .buffer_size(1024)
            .max_buffered(4096)
            .max_group(2048);
        live(&mut known, &mut rng, storage.clone(), options);
        steps = power.steps();
        check(
            &known,
            &storage,
            &format!("seed {seed}, {mode:?}, {caps:?}, cuts {cuts:?}"),
        );
    }
    steps
}

/// Appends, commits and checkpoints until the power goes or enough was done.
fn live(known: &mut Known, rng: &mut fastrand::Rng, storage: MemoryStorage, options: LogOptions) {
    let Ok((log, found)) = options.open(storage) else {
        return;
    };
    // What was found is durable now, and what was not found never was.
    forget_lost(known, &found.records);
    for _ in 0..12 {
        match rng.u8(..8) {
            0 => {
                let mut checkpoint = log.checkpoint();
                let mut records = Vec::new();
                for _ in 0..rng.usize(1..4) {
                    let next = known.appended.len() + known.checkpoints.len() * 1000;
                    let record = record(1_000_000 + next as u32 + records.len() as u32, 600);
                    if checkpoint.append_blocking(&record).is_err() {
                        return known.checkpoints.push((records, false));
                    }
                    records.push(record);
                }
                let committed = checkpoint.commit_blocking().is_ok();
                known.checkpoints.push((records, committed));
                if !committed {
                    return;
                }
                known.durable = known.appended.len();
            }
            1 if known.durable > known.tail => {
                known.tail = rng.usize(known.tail..known.durable);
                log.set_tail(known.positions[known.tail]);
                known.tail += 1;
            }
            kind => {
                let number = known.appended.len() as u32;
                let record = record(number, rng.usize(4..900));
                let Ok(lsn) = log.append_blocking(&record) else {
                    return;
                };
                known.appended.push(record);
                known.positions.push(lsn);
                let durability = match kind {
                    2..=4 => Durability::Flushed,
                    5 => Durability::Buffered,
                    _ => continue,
                };
                if log.commit_blocking(lsn, durability).is_err() {
                    return;
                }
                if durability == Durability::Flushed {
                    known.durable = known.appended.len();
                }
            }
        }
    }
}

/// Takes back what the user never heard was durable, and is not there.
fn forget_lost(known: &mut Known, found: &[RecoveredRecord]) {
    let last = found.iter().map(number).filter(|&n| n < 1_000_000).max();
    let kept = last
        .map_or(known.tail, |n| n as usize + 1)
        .max(known.durable);
    known.appended.truncate(kept);
    known.positions.truncate(kept);
    known.durable = known.appended.len();
    let numbers: Vec<u32> = found.iter().map(number).collect();
    known.checkpoints.retain_mut(|(records, committed)| {
        let first = u32::from_le_bytes(records[0][..4].try_into().unwrap());
        *committed |= numbers.contains(&first);
        *committed
    });
}

fn check(known: &Known, storage: &MemoryStorage, context: &str) {
    for seed in 0..2 {
        let options = LogOptions::new().segment_size(4096).buffer_size(1024);
        let opened = options.open(storage.restart(&Power::new(), seed));
        let (_, found) = opened.unwrap_or_else(|error| panic!("{context}: {error}"));
        let plain: Vec<_> = found
            .records
            .iter()
            .filter(|r| number(r) < 1_000_000)
            .collect();
        let first = plain.first().map_or(known.durable, |r| number(r) as usize);
        let needed = known.tail.min(known.durable);
        assert!(
            first <= needed || first == known.durable && first <= known.tail,
            "{context}: begins at {first}, needed from {needed}"
        );
        for (at, record) in plain.iter().enumerate() {
            let expected = known.appended.get(first + at);
            assert_eq!(
                Some(&record.payload),
                expected,
                "{context}: record {}",
                first + at
            );
        }
        let end = first + plain.len();
        assert!(
            end >= known.durable,
            "{context}: {end} of {} are left",
            known.durable
        );
        for (records, committed) in &known.checkpoints {
            let there = |record: &Vec<u8>| found.records.iter().any(|r| r.payload == *record);
            let count = records.iter().filter(|r| there(r)).count();
            let whole = count == records.len() && count > 0;
            // Behind the tail all of it is there; a part of it never is, unless the tail has cut
            // it.
            assert!(
                whole || count == 0 || known.tail > 0,
                "{context}: {count} of {} records of a checkpoint",
                records.len()
            );
            assert!(
                whole || !committed || known.tail > 0,
                "{context}: a checkpoint is lost"
            );
        }
    }
}

#[test]
fn no_committed_record_is_lost() {
    let mut cuts = 0;
    for seed in 0..24 {
        for mode in [GroupMode::Off, GroupMode::Leader] {
            for caps in [Caps::volatile(), Caps::volatile_with_fua()] {
                let steps = log_run(seed, mode, caps, [None, None]);
                for cut in 0..steps {
                    log_run(seed, mode, caps, [Some(cut), None]);
                    log_run(seed, mode, caps, [Some(cut), Some(cut / 2)]);
                    cuts += 3;
                }
            }
        }
    }
    assert!(cuts > 10_000, "{cuts}");
}
