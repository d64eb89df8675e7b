//! Random writes, flushes and durable writes of a domain.

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
