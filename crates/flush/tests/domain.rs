//! What users of a flush domain rely on, on real threads and as tasks.
#![cfg(not(any(loom, shuttle)))]

#[path = "common/calling_waker.rs"]
mod calling_waker;

use calling_waker::{calling, ends};
use inflight_flush::{
    Caps, Deferral, Device, Flags, FlushDomain, FlushError, Flusher, MemoryDevice, Power,
    WriteError,
};
use inflight_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Condvar, Mutex, block_on, thread};
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// A device whose flushes wait until the test lets them go.
#[derive(Clone, Default)]
struct Gated(Arc<(Mutex<Gate>, Condvar)>);

#[derive(Default)]
struct Gate {
    started: u32,
    allowed: u32,
}

impl Flusher for Gated {
    fn flush(&self) -> io::Result<()> {
        let (gate, changed) = &*self.0;
        let mut gate = gate.lock();
        gate.started += 1;
        let number = gate.started;
        changed.notify_all();
        while gate.allowed < number {
            changed.wait(&mut gate);
        }
        Ok(())
    }
}

impl Gated {
    fn allow(&self, more: u32) {
        self.0.0.lock().allowed += more;
        self.0.1.notify_all();
    }

    /// Waits until this many flushes were started.
    fn wait_started(&self, count: u32) {
        let mut gate = self.0.0.lock();
        while gate.started < count {
            self.0.1.wait(&mut gate);
        }
    }
}

fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn the_third_merges_into_the_second() {
    let device = Gated::default();
    let domain = FlushDomain::new(device.clone());
    let flush = || {
        let domain = domain.clone();
        thread::spawn(move || domain.flush_blocking())
    };
    let first = flush();
    device.wait_started(1);
    let (second, third) = (flush(), flush());
    wait_until(|| domain.counters().joined_behind_running == 2);
    device.allow(1);
    first.join().unwrap().unwrap();
    device.wait_started(2);
    device.allow(1);
    second.join().unwrap().unwrap();
    third.join().unwrap().unwrap();
    let counters = domain.counters();
    assert_eq!((counters.requested_empty, counters.issued), (3, 2));
    assert_eq!((counters.merged, counters.max_merged), (3, 2));
    assert_eq!(counters.flush_time.count(), 2);
    assert_eq!(counters.wait_time.count(), 3);
}

#[test]
fn a_flush_in_flight_does_not_serve_who_comes_later() {
    let device = Gated::default();
    let domain = FlushDomain::new(device.clone());
    let first = thread::spawn({
        let domain = domain.clone();
        move || domain.flush_blocking()
    });
    device.wait_started(1);
    let mut late = pin!(domain.flush());
    assert!(poll_once(late.as_mut()).is_pending());
    device.allow(1);
    first.join().unwrap().unwrap();
    // The first flush has ended, and the late one still has to be carried out.
    assert_eq!(domain.counters().issued, 2);
    device.allow(1);
    block_on(late).unwrap();
    device.wait_started(2);
}

#[test]
fn a_device_without_a_cache_is_never_flushed() {
    let device = MemoryDevice::new(4096).with_caps(Caps::durable());
    let domain = FlushDomain::new(device.clone());
    domain.flush_blocking().unwrap();
    domain
        .write_fua_blocking(|| device.write_at(&[1; 512], 0))
        .unwrap();
    assert_eq!((device.flushes(), domain.counters().issued), (0, 0));
}

#[test]
fn what_each_kind_of_write_costs() {
    for (caps, flags, flushes, fua_writes) in [
        (Caps::volatile(), Flags::write(), 0, 0),
        (Caps::volatile(), Flags::write().preflush(), 1, 0),
        (Caps::volatile(), Flags::write().fua(), 1, 0),
        (Caps::volatile(), Flags::write().preflush().fua(), 2, 0),
        (Caps::volatile_with_fua(), Flags::write().fua(), 0, 1),
        (
            Caps::volatile_with_fua(),
            Flags::write().preflush().fua(),
            1,
            1,
        ),
    ] {
        let device = MemoryDevice::new(4096).with_caps(caps);
        let domain = FlushDomain::new(device.clone());
        let sequence = domain.begin_blocking(flags).unwrap();
        let written = if sequence.writes_fua() {
            device.write_fua_at(&[1; 512], 0)
        } else {
            device.write_at(&[1; 512], 0)
        };
        sequence.finish_blocking(written).unwrap();
        let cost = (device.flushes(), device.fua_writes());
        assert_eq!(cost, (flushes, fua_writes), "{caps:?} {flags:?}");
    }
}

#[test]
fn a_failed_flush_fails_all_that_shared_it_and_none_that_came_later() {
    let device = MemoryDevice::new(4096);
    let domain = FlushDomain::new(device.clone());
    device.fail_flushes(1);
    let mut first = pin!(domain.flush());
    let mut second = pin!(domain.flush());
    // The first becomes the leader when it is polled; polled again it would flush. So both are made
    // to share by data under way.
    let data = domain.begin_blocking(Flags::write().fua()).unwrap();
    assert!(poll_once(first.as_mut()).is_pending());
    assert!(poll_once(second.as_mut()).is_pending());
    let mut data = pin!(data.finish(Ok(())));
    let failed = block_on(first.as_mut());
    assert!(matches!(failed, Err(FlushError::Device(_))), "{failed:?}");
    assert_eq!(block_on(second.as_mut()), failed);
    assert!(matches!(block_on(data.as_mut()), Err(WriteError::Flush(_))));
    assert!(domain.is_poisoned());
    domain.flush_blocking().unwrap();
    assert!(domain.is_poisoned(), "until the owner says otherwise");
    domain.clear_poison();
    assert!(!domain.is_poisoned());
    assert_eq!(domain.counters().errors, 1);
}

#[test]
fn a_dropped_leader_leaves_the_flush_to_another() {
    let device = MemoryDevice::new(4096);
    let domain = FlushDomain::new(device.clone());
    let data = domain.begin_blocking(Flags::write().fua()).unwrap();
    let mut first = Box::pin(domain.flush());
    let mut second = Box::pin(domain.flush());
    assert!(poll_once(first.as_mut()).is_pending());
    assert!(poll_once(second.as_mut()).is_pending());
    let finish = Box::pin(data.finish(Ok(()))); // issues the flush: `first` is to carry it out
    assert_eq!((domain.counters().issued, device.flushes()), (1, 0));
    drop(first);
    block_on(second).unwrap();
    block_on(finish).unwrap();
    assert_eq!((domain.counters().issued, device.flushes()), (1, 1));
}

#[test]
fn a_flush_that_nobody_waits_for_is_withdrawn() {
    let device = MemoryDevice::new(4096);
    let domain = FlushDomain::new(device.clone());
    let data = domain.begin_blocking(Flags::write().fua()).unwrap();
    let mut waiting = Box::pin(domain.flush());
    assert!(poll_once(waiting.as_mut()).is_pending());
    drop(data);
    assert_eq!(domain.counters().issued, 1);
    drop(waiting);
    assert_eq!((domain.counters().withdrawn, device.flushes()), (1, 0));
    domain.flush_blocking().unwrap();
    assert_eq!(device.flushes(), 1);
}

#[test]
fn a_panicking_leader_leaves_the_flush_to_another() {
    let domain = FlushDomain::builder().build();
    let mut second = Box::pin(domain.flush_with(|| async { Ok(()) }));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        block_on(domain.flush_with(|| {
            // In flight: the second one waits for the next.
            assert!(poll_once(second.as_mut()).is_pending());
            if true {
                panic!("the device's driver");
            }
            std::future::ready(Ok(()))
        }))
    }));
    assert!(panicked.is_err());
    block_on(second).unwrap();
    assert_eq!(domain.failed_flushes(), 1, "nobody knows how it went");
}

/// The system may have told of a loss to the flush that nobody heard the end of, and to no other.
#[test]
fn a_flush_whose_end_nobody_hears_counts_as_failed() {
    let domain = FlushDomain::builder().build();
    let flushes = Cell::new(0);
    let flush = |ends: bool| {
        let flushes = &flushes;
        domain.flush_with(move || {
            flushes.set(flushes.get() + 1);
            std::future::poll_fn(move |_| {
                if ends {
                    Poll::Ready(Ok(()))
                } else {
                    Poll::Pending
                }
            })
        })
    };
    let data = domain.begin_blocking(Flags::write().fua()).unwrap();
    let mut first = Box::pin(flush(false));
    let mut second = Box::pin(flush(true));
    assert!(poll_once(first.as_mut()).is_pending());
    assert!(poll_once(second.as_mut()).is_pending());
    let data = Box::pin(data.finish(Ok(()))); // issues the flush: `first` is to carry it out
    assert!(poll_once(first.as_mut()).is_pending());
    assert_eq!(flushes.get(), 1, "it is at it");
    drop(first);
    let unheard = block_on(second.as_mut());
    let Err(FlushError::Device(error)) = unheard else {
        panic!("{unheard:?}")
    };
    assert_ne!(
        error.kind(),
        io::ErrorKind::Interrupted,
        "not to be asked again blindly"
    );
    assert!(matches!(block_on(data), Err(WriteError::Flush(_))));
    assert_eq!((domain.failed_flushes(), domain.poison()), (1, Some(error)));
    assert_eq!(flushes.get(), 1);

    // Also if nobody else waits.
    let mut alone = Box::pin(flush(false));
    assert!(poll_once(alone.as_mut()).is_pending());
    drop(alone);
    assert_eq!(
        (domain.failed_flushes(), domain.counters().withdrawn),
        (2, 0)
    );
    block_on(flush(true)).unwrap();
}

#[test]
fn data_that_is_given_up_keeps_nobody_waiting() {
    let domain = FlushDomain::new(MemoryDevice::new(4096));
    let data = domain.begin_blocking(Flags::write().fua()).unwrap();
    let mut waiting = pin!(domain.flush());
    assert!(poll_once(waiting.as_mut()).is_pending());
    drop(data);
    block_on(waiting).unwrap();
}

#[test]
fn a_failed_write_is_the_writers_own() {
    let device = MemoryDevice::new(4096);
    let domain = FlushDomain::new(device.clone());
    let failed = domain.write_fua_blocking(|| device.write_at(&[1; 512], 4000));
    let Err(WriteError::Write(error)) = failed else {
        panic!("{failed:?}")
    };
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(!domain.is_poisoned());
    assert_eq!(domain.counters().failed_before, 1);
    domain.flush_blocking().unwrap();
}

#[test]
fn a_thread_that_waits_forces_a_flush_that_was_put_off_too_long() {
    let clock = Clock::manual();
    let limit = Duration::from_millis(10);
    let domain = FlushDomain::builder()
        .clock(&clock)
        .deferral(Deferral::Bounded(limit))
        .device(MemoryDevice::new(4096));
    let data = domain.begin_blocking(Flags::write().fua()).unwrap();
    let waiting = thread::spawn({
        let domain = domain.clone();
        move || domain.flush_blocking()
    });
    wait_until(|| clock.sleepers() == 1);
    clock.advance(limit);
    waiting.join().unwrap().unwrap();
    let counters = domain.counters();
    assert_eq!((counters.forced_by_timeout, counters.issued), (1, 1));
    data.finish_blocking(Ok(())).unwrap();
}

/// It joins while a flush is in flight, when nothing is put off yet, and sleeps without an end.
#[test]
fn a_thread_behind_a_flush_in_flight_forces_the_next_one_that_is_put_off() {
    let clock = Clock::manual();
    let limit = Duration::from_millis(10);
    let domain = FlushDomain::builder()
        .clock(&clock)
        .deferral(Deferral::Bounded(limit))
        .device(MemoryDevice::new(4096));
    let ends = Cell::new(false);
    let mut in_flight = pin!(domain.flush_with(|| {
        let ends = &ends;
        std::future::poll_fn(move |_| match ends.get() {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        })
    }));
    assert!(poll_once(in_flight.as_mut()).is_pending());
    let data = domain.begin_blocking(Flags::write().fua()).unwrap();
    let waiting = thread::spawn({
        let domain = domain.clone();
        move || domain.flush_blocking()
    });
    wait_until(|| domain.counters().joined_behind_running == 1);
    ends.set(true);
    assert!(poll_once(in_flight).is_ready());
    wait_until(|| clock.sleepers() == 1);
    clock.advance(limit);
    waiting.join().unwrap().unwrap();
    data.finish_blocking(Ok(())).unwrap();
}

/// Remembers that it was told.
#[derive(Default)]
struct Told(AtomicBool);

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// A domain that puts flushes off, and has a thread that ticks.
fn ticking(clock: &Clock, limit: Duration) -> FlushDomain {
    let domain = FlushDomain::builder()
        .clock(clock)
        .deferral(Deferral::Bounded(limit))
        .device(MemoryDevice::new(4096));
    domain.tick_in_background().unwrap();
    domain
}

/// A task waits, which nobody polls and for which nobody calls `tick`.
#[test]
fn a_flush_that_was_put_off_starts_by_its_deadline_without_a_call() {
    let (clock, limit) = (Clock::manual(), Duration::from_millis(10));
    let domain = ticking(&clock, limit);
    domain.tick_in_background().unwrap();
    for round in 1..=3 {
        let data = domain.begin_blocking(Flags::write().fua()).unwrap();
        let told = Arc::new(Told::default());
        let waker = Waker::from(told.clone());
        let mut flush = pin!(domain.flush());
        let mut poll = || flush.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(poll().is_pending());
        wait_until(|| clock.sleepers() > 0);
        clock.advance(limit - Duration::from_nanos(1));
        let is_told = || told.0.load(Ordering::Acquire);
        assert_eq!(clock.sleepers(), 1, "one thread, which sleeps on");
        assert!(!is_told(), "not yet");
        clock.advance(Duration::from_nanos(1));
        wait_until(is_told);
        assert_eq!(poll(), Poll::Ready(Ok(())));
        assert_eq!(domain.counters().forced_by_timeout, round);
        data.finish_blocking(Ok(())).unwrap();
    }
}

/// Each waker panics in the thread, which goes on. What it throws panics, too, when it is dropped.
#[test]
fn a_panicking_waker_does_not_end_the_thread_that_ticks() {
    struct Thrown;
    impl Drop for Thrown {
        fn drop(&mut self) {
            panic!("what a waker has thrown");
        }
    }
    struct Panicking;
    impl Wake for Panicking {
        fn wake(self: Arc<Self>) {
            std::panic::panic_any(Thrown);
        }
    }
    let (clock, limit) = (Clock::manual(), Duration::from_millis(10));
    let domain = ticking(&clock, limit);
    let waker = Waker::from(Arc::new(Panicking));
    for round in 1..=2 {
        let data = domain.begin_blocking(Flags::write().fua()).unwrap();
        let mut flush = pin!(domain.flush());
        let mut poll = || flush.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(poll().is_pending());
        wait_until(|| clock.sleepers() > 0);
        clock.advance(limit);
        wait_until(|| domain.counters().forced_by_timeout == round);
        assert_eq!(poll(), Poll::Ready(Ok(())));
        data.finish_blocking(Ok(())).unwrap();
    }
}

#[test]
fn a_wait_with_a_limit_ends_and_the_flush_goes_on_without_it() {
    let clock = Clock::manual();
    let device = Gated::default();
    let domain = FlushDomain::builder().clock(&clock).device(device.clone());
    let first = thread::spawn({
        let domain = domain.clone();
        move || domain.flush_blocking()
    });
    device.wait_started(1);
    let second = thread::spawn({
        let domain = domain.clone();
        move || domain.flush_timeout(Duration::from_secs(1))
    });
    wait_until(|| clock.sleepers() == 1);
    clock.advance(Duration::from_secs(1));
    assert_eq!(second.join().unwrap(), Err(FlushError::TimedOut));
    device.allow(1);
    first.join().unwrap().unwrap();
    assert_eq!(domain.counters().cancelled, 1);
}

/// Data that was given up, or failed, may be on the device in part or whole: its owner, who has
/// seen the device's answer, flushes it.
#[test]
fn an_exclusive_domain_flushes_data_that_was_given_up() {
    for fails in [false, true] {
        let power = Power::new();
        let device = MemoryDevice::on(&power, 4096);
        let domain = FlushDomain::builder()
            .exclusive(true)
            .device(device.clone());
        domain.flush_blocking().unwrap();
        let sequence = domain.begin_blocking(Flags::write()).unwrap();
        device.write_at(&[1; 512], 0).unwrap();
        if fails {
            let short = Err::<(), _>(io::ErrorKind::WriteZero.into());
            sequence.finish_blocking(short).unwrap_err();
        } else {
            drop(sequence);
        }
        assert_eq!(domain.try_flush(), Err(FlushError::WouldBlock));
        domain.flush_blocking().unwrap();
        for seed in 0..8 {
            let mut bytes = [0; 512];
            let after = device.restart(&Power::new(), seed);
            after.read_at(&mut bytes, 0).unwrap();
            assert_eq!(bytes, [1; 512]);
        }
    }
}

#[test]
fn an_exclusive_domain_flushes_only_what_was_written() {
    let device = MemoryDevice::new(4096);
    let domain = FlushDomain::builder()
        .exclusive(true)
        .device(device.clone());
    let write = || {
        let sequence = domain.begin_blocking(Flags::write()).unwrap();
        let written = device.write_at(&[1; 512], 0);
        sequence.finish_blocking(written).unwrap();
    };
    domain.flush_blocking().unwrap();
    assert_eq!(
        device.flushes(),
        1,
        "what came before the domain is not known"
    );
    domain.flush_blocking().unwrap();
    assert_eq!((device.flushes(), domain.counters().elided), (1, 1));
    write();
    assert_eq!(domain.try_flush(), Err(FlushError::WouldBlock));
    domain.flush_blocking().unwrap();
    assert_eq!(domain.try_flush(), Ok(()));
    assert_eq!(device.flushes(), 2);
    write();
    device.fail_flushes(1);
    domain.flush_blocking().unwrap_err();
    domain.flush_blocking().unwrap();
    assert_eq!(device.flushes(), 4, "a failed flush has flushed nothing");
}

/// Flushes asked for by many threads: each is served, by far fewer flushes of the device.
#[test]
fn many_threads_share_flushes() {
    let device = MemoryDevice::new(4096);
    let domain = FlushDomain::new(device.clone());
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let domain = domain.clone();
            thread::spawn(move || {
                for n in 0..500 {
                    if n % 3 == 0 {
                        domain.write_fua_blocking(|| Ok(())).unwrap();
                    } else {
                        domain.flush_blocking().unwrap();
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let counters = domain.counters();
    assert_eq!(counters.requested(), 2000);
    assert_eq!(counters.merged, 2000);
    assert_eq!(counters.issued, device.flushes());
    assert!(counters.issued <= 2000 && counters.issued >= 500);
}

/// A clone of a waker may run anything, and so may its drop: no lock is held.
#[test]
fn a_waker_may_call_the_domain_when_it_is_cloned_and_dropped() {
    ends(|| {
        let domain = FlushDomain::new(MemoryDevice::new(4096));
        let calls = Arc::new(AtomicU64::new(0));
        let waker = || {
            let (domain, calls) = (domain.clone(), calls.clone());
            calling(move || {
                let _ = domain.counters();
                calls.fetch_add(1, Ordering::Relaxed);
            })
        };
        let go = Cell::new(false);
        let mut leader = pin!(
            domain.flush_with(|| std::future::poll_fn(|_| match go.get() {
                true => Poll::Ready(Ok(())),
                false => Poll::Pending,
            }))
        );
        assert!(poll_once(leader.as_mut()).is_pending());
        let mut flush = pin!(domain.flush());
        let mut poll = |waker: Waker| flush.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(poll(waker()).is_pending(), "the waker is cloned");
        assert!(poll(waker()).is_pending(), "and its clone is replaced");
        go.set(true);
        assert!(poll_once(leader.as_mut()).is_ready());
        assert!(poll(waker()).is_ready());
        assert!(calls.load(Ordering::Relaxed) >= 6);
    });
}
