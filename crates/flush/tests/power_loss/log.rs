//! Random appends, commits, checkpoints and tails of one user of a log, in two lives.

use crate::history::{Checkpoint, End, History};
use inflight_flush::log::{Durability, GroupMode, Log, LogOptions, Lsn, MemoryStorage, Recovery};
use inflight_flush::{Caps, Device, FlushDomain, MemoryDevice, Power};

const SECTOR: u64 = 512;
const SECTORS: u64 = 8;

/// What a run is like.
#[derive(Clone, Copy, Debug)]
struct Run {
    seed: u64,
    mode: GroupMode,
    caps: Caps,
    /// What the records are about is written in place, on a device of its own.
    in_place: bool,
    /// A flush fails in the first life: the log is opened again, and the power stays.
    fails: bool,
    /// What that flush did not write can be read in the second life, while the power stays.
    lost_is_readable: bool,
    /// When the power is cut, in the first life and in the second.
    cuts: [Option<u64>; 2],
}

fn options(mode: GroupMode) -> LogOptions {
    LogOptions::new()
        .group_mode(mode)
        .segment_size(4096)
        .buffer_size(1024)
        .max_buffered(4096)
        .max_group(2048)
}

/// What was written in place: where, which value, and the end of the record that says so.
type InPlace = Vec<(u64, u64, Lsn)>;

struct World {
    storage: MemoryStorage,
    data: MemoryDevice,
    history: History,
    in_place: InPlace,
    rng: fastrand::Rng,
    /// The number of the last record.
    last: u64,
}

impl Run {
    /// How many steps each of the two lives had.
    fn go(self) -> [u64; 2] {
        let power = Power::new();
        let mut storage = MemoryStorage::new(&power).with_caps(self.caps);
        if self.lost_is_readable {
            storage = storage.with_lost_writes_readable();
        }
        let mut world = World {
            storage,
            data: MemoryDevice::on(&power, (SECTORS * SECTOR) as usize),
            history: History::default(),
            in_place: Vec::new(),
            rng: fastrand::Rng::with_seed(self.seed),
            last: 0,
        };
        let mut power_stays = false;
        let mut steps = [0; 2];
        for (life, cut) in self.cuts.into_iter().enumerate() {
            let power = Power::new();
            if !power_stays {
                let seed = self.seed.wrapping_add(life as u64);
                world.storage = world.storage.restart(&power, seed);
                world.data = world.data.restart(&power, seed);
            }
            if let Some(cut) = cut {
                power.cut_at(cut);
            }
            let fails = self.fails && life == 0;
            world.live(&self, fails);
            steps[life] = power.steps();
            world.check(&format!("{self:?}, life {life}"));
            power_stays = fails && cut.is_none();
        }
        steps
    }
}

impl World {
    /// Appends, commits and checkpoints until the power goes, a flush fails, or enough was done.
    fn live(&mut self, run: &Run, fails: bool) {
        let mut options = options(run.mode);
        let data = FlushDomain::new(self.data.clone());
        if run.in_place {
            options = options.data_domain(&data);
        }
        let Ok((log, found)) = options.open(self.storage.clone()) else {
            return;
        };
        self.history.check(&found, "going on");
        self.history.go_on(&found);
        // The rest is for the user to do again.
        self.in_place.retain(|(_, _, tail)| *tail <= found.tail);
        let fails_at = if fails { self.rng.u8(..12) } else { u8::MAX };
        for step in 0..12 {
            if step == fails_at {
                let devices = self.storage.devices();
                devices.last().expect("a segment").fail_flushes(1);
            }
            let kind = self.rng.u8(..8);
            let went_well = match kind {
                0 => self.checkpoint(&log),
                1 => self.move_tail(&log, run.in_place),
                _ => self.append(&log, kind),
            };
            if !went_well {
                let more = log.try_append(b"more");
                assert!(more.is_err(), "{run:?}: it goes on after a failure");
                return;
            }
        }
    }

    fn record(&mut self, len: usize) -> Vec<u8> {
        self.last += 1;
        let mut record = vec![self.last as u8; len];
        record[..8].copy_from_slice(&self.last.to_le_bytes());
        record
    }

    fn checkpoint(&mut self, log: &Log) -> bool {
        let mut checkpoint = log.checkpoint();
        let mut records = Vec::new();
        for _ in 0..self.rng.usize(1..4) {
            let record = self.record(600);
            let Ok(lsn) = checkpoint.append_blocking(&record) else {
                let end = End::Never;
                self.history.checkpoints.push(Checkpoint { records, end });
                return false;
            };
            records.push((lsn, record));
        }
        let committed = checkpoint.commit_blocking();
        let end = committed.map_or(End::Unknown, |range| End::At(range.end));
        if let End::At(end) = end {
            self.history.acknowledge(end);
        }
        self.history.checkpoints.push(Checkpoint { records, end });
        end != End::Unknown
    }

    fn move_tail(&mut self, log: &Log, in_place: bool) -> bool {
        let ends = self.history.checkpoints.iter().map(|c| c.end);
        let ends = ends.filter_map(|end| match end {
            End::At(at) => Some(at),
            _ => None,
        });
        let plain = self.history.plain.iter().map(|(lsn, _)| *lsn);
        let new = |lsn: &Lsn| *lsn > self.history.tail && *lsn <= self.history.durable;
        let durable: Vec<Lsn> = plain.chain(ends).filter(new).collect();
        let Some(&tail) = self.rng.choice(&durable) else {
            return true;
        };
        if in_place {
            let (sector, value) = (self.rng.u64(..SECTORS), self.last);
            let written = self.data.write_at(&value.to_le_bytes(), sector * SECTOR);
            if written.is_err() {
                // The log does not know yet that there is no power.
                let _ = log.commit_blocking(log.end(), Durability::Flushed);
                let _ = log
                    .try_append(b"x")
                    .map(|lsn| log.commit_blocking(lsn, Durability::Flushed));
                return false;
            }
            self.in_place.push((sector, value, tail));
        }
        log.set_tail(tail);
        self.history.tail = tail;
        true
    }

    fn append(&mut self, log: &Log, kind: u8) -> bool {
        let len = self.rng.usize(8..900);
        let record = self.record(len);
        let Ok(lsn) = log.append_blocking(&record) else {
            return false;
        };
        self.history.plain.push((lsn, record));
        let durability = match kind {
            2..=4 => Durability::Flushed,
            5 => Durability::Buffered,
            _ => return true,
        };
        if log.commit_blocking(lsn, durability).is_err() {
            return false;
        }
        if durability == Durability::Flushed {
            self.history.acknowledge(lsn);
        }
        true
    }

    fn check(&self, context: &str) {
        for seed in 0..2 {
            let storage = self.storage.restart(&Power::new(), seed);
            let opened = options(GroupMode::Off).open(storage);
            let (_, found) = opened.unwrap_or_else(|error| panic!("{context}: {error}"));
            self.history.check(&found, context);
            self.check_in_place(&found, seed, context);
        }
    }

    /// What the tail says was written in place is durable there.
    fn check_in_place(&self, found: &Recovery, seed: u64, context: &str) {
        let data = self.data.restart(&Power::new(), seed);
        for &(sector, value, tail) in &self.in_place {
            let mut bytes = [0; 8];
            data.read_at(&mut bytes, sector * SECTOR).unwrap();
            let holds = u64::from_le_bytes(bytes);
            let tail_is_there = tail <= found.tail;
            assert!(
                !tail_is_there || holds >= value,
                "{context}: {sector} holds {holds}"
            );
        }
    }
}

#[test]
fn no_committed_record_is_lost() {
    let mut cuts = 0;
    for seed in 0..16 {
        for mode in [GroupMode::Off, GroupMode::Leader, GroupMode::Auto] {
            for caps in [Caps::volatile(), Caps::volatile_with_fua()] {
                let run = Run {
                    seed,
                    mode,
                    caps,
                    in_place: seed % 2 == 1,
                    fails: seed % 3 == 2,
                    lost_is_readable: seed % 4 >= 2,
                    cuts: [None, None],
                };
                let [steps, more] = run.go();
                cuts += cut_at_each_step(run, steps, more);
            }
        }
    }
    assert!(cuts > 10_000, "{cuts}");
}

fn cut_at_each_step(run: Run, steps: u64, more: u64) -> usize {
    let mut cuts = 0;
    for cut in 0..steps {
        let cuts_of_both = [Some(cut), None];
        let [_, second] = Run {
            cuts: cuts_of_both,
            ..run
        }
        .go();
        let cuts_of_both = [Some(cut), Some(fastrand::Rng::with_seed(cut).u64(..second))];
        Run {
            cuts: cuts_of_both,
            ..run
        }
        .go();
        cuts += 3;
    }
    if run.fails {
        for cut in 0..more {
            Run {
                cuts: [None, Some(cut)],
                ..run
            }
            .go();
            cuts += 1;
        }
    }
    cuts
}
