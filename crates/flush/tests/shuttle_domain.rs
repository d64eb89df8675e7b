//! Random schedules of a domain: users that write and flush in every form, give up, fail and lose
//! what the system's cache had, until the power goes at any step.
//!
//! What a user was told is durable is there after the power is back; everybody ends; the counters
//! add up.
#![cfg(shuttle)]

mod shuttle_support;

use inflight_flush::{
    Caps, Deferral, Device, Flags, FlushDomain, FlushError, Flusher, MemoryDevice, Power, Sequence,
    WriteError,
};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, block_on, thread};
use shuttle_support::{Threads, check, polled, yield_once};
use std::io;
use std::time::Duration;

const USERS: u64 = 3;
const WRITES: u64 = 5;
const MS: Duration = Duration::from_millis(1);

/// What a model is made of.
struct World {
    power: Power,
    device: MemoryDevice,
    domain: FlushDomain,
    clock: Clock,
    seed: u64,
    /// Flushes are carried out by futures that can be given up.
    by_future: bool,
}

impl World {
    /// All writes go through the domain, if it is `exclusive`.
    fn new(seed: u64, exclusive: bool) -> Arc<Self> {
        let caps = [Caps::volatile(), Caps::volatile_with_fua()][seed as usize % 2];
        let power = Power::new();
        let clock = Clock::manual();
        let mut device = MemoryDevice::on(&power, (USERS * WRITES * 512) as usize).with_caps(caps);
        if seed % 3 == 0 {
            device = device.with_lost_writes_readable();
        }
        let mut builder = FlushDomain::builder().clock(&clock);
        match seed / 2 % 3 {
            0 => {}
            1 => builder = builder.deferral(Deferral::Off),
            _ => builder = builder.deferral(Deferral::Bounded(2 * MS)),
        }
        builder = builder.exclusive(exclusive);
        Arc::new(Self {
            domain: builder.device(device.clone()),
            power,
            device,
            clock,
            seed,
            by_future: seed % 4 == 2,
        })
    }

    async fn lead(device: MemoryDevice) -> io::Result<()> {
        yield_once().await;
        device.flush()
    }

    /// Flushes in one of the forms. `None`: it was given up, and may have happened.
    fn flush(&self, form: u8) -> Option<Result<(), FlushError>> {
        let domain = &self.domain;
        if self.by_future {
            let device = self.device.clone();
            let flush = domain.flush_with(move || Self::lead(device.clone()));
            return if form < 3 {
                Some(block_on(flush))
            } else {
                polled(flush, form as usize - 2)
            };
        }
        match form {
            0 | 1 => Some(domain.flush_blocking()),
            2 => Some(block_on(domain.flush())),
            3 => polled(domain.flush(), 1),
            _ => match domain.flush_timeout(MS) {
                Err(FlushError::TimedOut) => None,
                result => Some(result),
            },
        }
    }

    fn begin(&self, form: u8, flags: Flags) -> Option<Result<Sequence, FlushError>> {
        match form {
            0 | 1 => Some(self.domain.begin_blocking(flags)),
            2 => Some(block_on(self.domain.begin(flags))),
            3 => polled(self.domain.begin(flags), 2),
            _ => match self.domain.begin_timeout(flags, MS) {
                Err(FlushError::TimedOut) => None,
                result => Some(result),
            },
        }
    }

    fn finish(
        form: u8,
        sequence: Sequence,
        written: io::Result<()>,
    ) -> Option<Result<(), WriteError>> {
        match form {
            0 | 1 => Some(sequence.finish_blocking(written)),
            2 => Some(block_on(sequence.finish(written))),
            3 => polled(sequence.finish(written), 2),
            _ => match sequence.finish_timeout(written, MS) {
                Err(WriteError::TimedOut) => None,
                result => Some(result),
            },
        }
    }

    fn write(&self, user: u64, number: u64, durably: bool) -> io::Result<()> {
        let bytes = (number + 1).to_le_bytes();
        let at = sector(user, number);
        if durably {
            self.device.write_fua_at(&bytes, at)
        } else {
            self.device.write_at(&bytes, at)
        }
    }
}

fn sector(user: u64, number: u64) -> u64 {
    (user * WRITES + number) * 512
}

/// Writes its sectors one after the other. How many of them it was told are durable: by a flush
/// after them, or each by itself.
fn user(world: &World, id: u64) -> Vec<u64> {
    let mut rng = fastrand::Rng::with_seed(world.seed * USERS + id);
    let domain = &world.domain;
    let before = domain.failed_flushes();
    let mut durable = Vec::new();
    let mut written = Vec::new();
    for number in 0..WRITES {
        let form = rng.u8(..5);
        let flags = match rng.u8(..5) {
            0 => Flags::write().fua(),
            1 => Flags::write().preflush().fua(),
            2 => Flags::write().preflush(),
            _ => Flags::write(),
        };
        // What was told is durable now, if no loss was told to others meanwhile.
        let mut now = Vec::new();
        match world.begin(form, flags) {
            Some(Ok(sequence)) => {
                if flags.preflush {
                    now.append(&mut written.clone());
                }
                let result = world.write(id, number, sequence.writes_fua());
                let went = result.is_ok();
                if rng.u8(..8) == 0 {
                    drop(sequence);
                } else {
                    match World::finish(rng.u8(..5), sequence, result) {
                        Some(Ok(())) if flags.fua => now.push(number),
                        Some(Err(_)) => return durable,
                        _ => {}
                    }
                }
                if went {
                    written.push(number);
                }
            }
            Some(Err(_)) => return durable,
            None => {}
        }
        if rng.u8(..2) == 0 {
            match world.flush(rng.u8(..5)) {
                Some(Ok(())) => now.append(&mut written),
                Some(Err(_)) => return durable,
                None => {}
            }
        }
        if domain.failed_flushes() != before {
            return durable;
        }
        durable.append(&mut now);
    }
    durable
}

/// Users write until the power goes, or they are done.
fn users_until_the_power_goes(seed: u64) {
    let world = World::new(seed, seed % 7 == 3);
    let mut rng = fastrand::Rng::with_seed(seed);
    world.power.cut_at(rng.u64(..60));
    if seed % 5 == 4 {
        world.device.fail_flushes(1);
    }
    let mut threads = Threads::default();
    for id in 0..USERS {
        let world = world.clone();
        threads.spawn(move || user(&world, id));
    }
    let lost = world.clone();
    threads.spawn(move || {
        if lost.seed % 3 == 0 {
            for _ in 0..rng.u8(..20) {
                thread::yield_now();
            }
            lost.device.lose_cache();
        }
        Vec::new()
    });
    let told = threads.join_ticking(&world.clock, MS);
    let counters = world.domain.counters();
    let left = counters.requested() - counters.elided - counters.failed_before - counters.cancelled;
    assert_eq!(counters.merged, left, "{counters:?}");
    for restart in 0..2 {
        let after = world.device.restart(&Power::new(), restart);
        for (id, told) in (0..USERS).zip(&told) {
            for &number in told {
                let mut bytes = [0; 8];
                after.read_at(&mut bytes, sector(id, number)).unwrap();
                let found = u64::from_le_bytes(bytes);
                assert_eq!(found, number + 1, "sector {number} of user {id}");
            }
        }
    }
}

/// Each second flush fails. Everybody whose data it was told of hears of it: no write that was lost
/// is called durable, and none is lost that nobody was told of.
fn every_second_flush_fails(seed: u64) {
    let world = World::new(seed, false);
    let mut threads = Threads::default();
    for id in 0..USERS {
        let world = world.clone();
        threads.spawn(move || {
            let mut rng = fastrand::Rng::with_seed(seed * USERS + id);
            let (mut durable, mut failures) = (Vec::new(), 0);
            for number in 0..WRITES {
                let before = world.domain.failed_flushes();
                world.write(id, number, false).unwrap();
                if rng.bool() {
                    world.device.fail_flushes(1);
                }
                let flushed = world.flush(rng.u8(..3)).expect("it waits until the end");
                let risen = world.domain.failed_flushes() != before;
                match flushed {
                    Ok(()) if !risen => durable.push(number),
                    Ok(()) => {}
                    Err(_) => {
                        assert!(risen && world.domain.poison().is_some());
                        failures += 1;
                    }
                }
            }
            (durable, failures)
        });
    }
    let told = threads.join_ticking(&world.clock, MS);
    let failed = world.domain.failed_flushes();
    let errors: u64 = told.iter().map(|(_, failures)| failures).sum();
    // Each failed flush has had one at least to tell.
    assert!(errors >= failed && (failed > 0) == world.domain.is_poisoned());
    let after = world.device.restart(&Power::new(), seed);
    for (id, (durable, _)) in (0..).zip(told) {
        for number in durable {
            let mut bytes = [0; 8];
            after.read_at(&mut bytes, sector(id, number)).unwrap();
            assert_eq!(u64::from_le_bytes(bytes), number + 1);
        }
    }
}

/// A loss is told to one call: a durable write, or the flush beside it, whose data it was. Whoever
/// succeeds beside it has lost nothing, or knows.
fn a_loss_is_told_once(seed: u64) {
    let device = MemoryDevice::new(8192).with_caps(Caps::volatile_with_fua());
    let device = device.with_lost_writes_readable();
    let domain = FlushDomain::new(device.clone());
    let before = domain.failed_flushes();
    let mut threads = Threads::default();
    for id in 0..2 {
        let (domain, device) = (domain.clone(), device.clone());
        threads.spawn(move || {
            let sequence = domain.begin_blocking(Flags::write().fua()).unwrap();
            let written = device.write_fua_at(&[1; 512], 512 * (8 + id));
            thread::yield_now();
            let _ = sequence.finish_blocking(written);
            false
        });
    }
    let (flushes, disk) = (domain.clone(), device.clone());
    threads.spawn(move || {
        disk.write_at(&[1; 512], 0).unwrap();
        if seed % 2 == 0 {
            disk.lose_cache();
        }
        let flushed = flushes.flush_blocking();
        flushed.is_ok() && flushes.failed_flushes() == before
    });
    if seed % 2 == 1 {
        device.lose_cache();
    }
    let durable = threads.join()[2];
    if durable {
        let mut bytes = [0; 512];
        let after = device.restart(&Power::new(), seed);
        after.read_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [1; 512]);
    }
}

/// Flushes are put off for data under way; tasks and threads wait for them, also for a while only,
/// and the domain's own thread ticks. Some of the data is given up.
fn flushes_are_put_off(seed: u64) {
    let clock = Clock::manual();
    let device = MemoryDevice::new(4096);
    let domain = FlushDomain::builder()
        .clock(&clock)
        .deferral(Deferral::Bounded(2 * MS))
        .device(device.clone());
    if seed % 2 == 0 {
        domain.tick_in_background().unwrap();
    }
    let slow = domain.begin_blocking(Flags::write().fua()).unwrap();
    let mut threads = Threads::default();
    let waits = domain.clone();
    threads.spawn(move || match seed % 3 {
        0 => waits.flush_blocking().unwrap(),
        1 => block_on(waits.flush()).unwrap(),
        _ => match waits.flush_timeout(5 * MS) {
            Ok(()) | Err(FlushError::TimedOut) => {}
            Err(error) => panic!("{error}"),
        },
    });
    let (other, gives_up) = (domain.clone(), domain.clone());
    threads.spawn(move || {
        let flags = Flags::write().preflush().fua();
        let sequence = block_on(other.begin(flags)).unwrap();
        thread::yield_now();
        if seed % 5 == 0 {
            drop(sequence);
        } else {
            block_on(sequence.finish(Ok(()))).unwrap();
        }
    });
    threads.spawn(move || {
        let _ = polled(gives_up.flush(), 1);
        let _ = polled(gives_up.begin(Flags::write().preflush()), 2);
    });
    if seed % 2 == 1 {
        // Where tasks wait somebody ticks: an event loop.
        let (ticks, time) = (domain.clone(), clock.clone());
        threads.spawn(move || {
            for _ in 0..6 {
                time.advance(MS);
                ticks.tick();
                thread::yield_now();
            }
        });
    }
    // The slow one ends at last; nobody has to wait for it longer than the limit.
    for _ in 0..3 {
        clock.advance(MS);
        thread::yield_now();
    }
    if seed % 7 == 0 {
        drop(slow);
    } else {
        slow.finish_blocking(Ok(())).unwrap();
    }
    threads.join_ticking(&clock, MS);
    let counters = domain.counters();
    let left = counters.requested() - counters.elided - counters.failed_before - counters.cancelled;
    assert_eq!(counters.merged, left, "{counters:?}");
    assert_eq!(
        device.flushes(),
        counters.issued - counters.withdrawn,
        "{counters:?}"
    );
    assert!(domain.next_deadline().is_none());
}

#[test]
fn power_goes() {
    check("power_goes", 240, users_until_the_power_goes);
}

#[test]
fn flushes_that_fail() {
    check("flushes_that_fail", 120, every_second_flush_fails);
}

#[test]
fn losses_told_once() {
    check("losses_told_once", 60, a_loss_is_told_once);
}

#[test]
fn flushes_put_off() {
    check("flushes_put_off", 105, flushes_are_put_off);
}
