//! Models of a flush domain: threads and tasks that flush, write, leave and fail at the same time.
//!
//! | what is weakened | model that fails |
//! |---|---|
//! | no flush is considered when data has ended | `fl1_data_ends_while_somebody_joins` |
//! | who comes during a flush joins it | `fl2_a_flush_does_not_absorb_who_comes_later` |
//! | the leader does not hand its flush on when it leaves | `fl7_the_leader_leaves` |
//! | the leader hands its flush on when it leaves amid it | `fl18_the_leader_leaves_amid_its_flush` |
//! | a success is not held until the calls beside it have ended | `fl25_a_call_that_was_told_ends_beside_one_that_was_not` |
//! | the thread that ticks is not told of an earlier deadline | `fl24_a_flush_that_was_put_off_starts_by_its_deadline` |
//! | the last handle does not unpark the thread that ticks | `fl24_the_thread_ends_with_the_last_handle` |
#![cfg(loom)]

use inflight_flush::{Caps, Deferral, Flags, FlushDomain, FlushError, Flusher};
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::model::{Bound, check};
use inflight_sync::time::Clock;
use inflight_sync::wait::Event;
use inflight_sync::{Arc, block_on, thread};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const BOUND: Bound = Bound {
    quick: Some(3),
    deep: None,
};

/// What was written and what is durable, in Relaxed words: only the domain orders them.
#[derive(Clone, Default)]
struct Disk(Arc<Words>);

#[derive(Default)]
struct Words {
    written: AtomicUsize,
    durable: AtomicUsize,
    in_flight: AtomicUsize,
    failing: AtomicUsize,
    flushes: AtomicUsize,
}

impl Disk {
    fn write(&self, bit: usize) {
        self.0.written.fetch_or(bit, Ordering::Relaxed);
    }

    fn is_durable(&self, bit: usize) -> bool {
        self.0.durable.load(Ordering::Relaxed) & bit != 0
    }

    fn fail_once(&self) {
        self.0.failing.store(1, Ordering::Relaxed);
    }
}

impl Flusher for Disk {
    fn flush(&self) -> io::Result<()> {
        let words = &*self.0;
        // H3: one flush at a time.
        assert_eq!(words.in_flight.fetch_add(1, Ordering::Relaxed), 0);
        words.flushes.fetch_add(1, Ordering::Relaxed);
        let covered = words.written.load(Ordering::Relaxed);
        let fails = words.failing.swap(0, Ordering::Relaxed) == 1;
        if !fails {
            words.durable.fetch_or(covered, Ordering::Relaxed);
        }
        words.in_flight.fetch_sub(1, Ordering::Relaxed);
        if fails {
            return Err(io::ErrorKind::Other.into());
        }
        Ok(())
    }
}

fn domain(disk: &Disk, deferral: Deferral) -> FlushDomain {
    FlushDomain::builder()
        .deferral(deferral)
        .device(disk.clone())
}

fn deferring() -> Deferral {
    Deferral::for_caps(Caps::volatile())
}

/// Writes, flushes, and finds it durable.
fn write_and_flush(domain: &FlushDomain, disk: &Disk, bit: usize) {
    disk.write(bit);
    domain.flush_blocking().unwrap();
    assert!(disk.is_durable(bit));
}

/// FL.1. DataDone looks whether to issue while another one joins: one of them issues.
#[test]
fn fl1_data_ends_while_somebody_joins() {
    check("fl1_data_ends_while_somebody_joins", BOUND, || {
        let disk = Disk::default();
        let domain = domain(&disk, deferring());
        let data = domain.begin_blocking(Flags::write().fua()).unwrap();
        let joiner = thread::spawn({
            let (domain, disk) = (domain.clone(), disk.clone());
            move || write_and_flush(&domain, &disk, 1)
        });
        disk.write(2);
        data.finish_blocking(Ok(())).unwrap();
        assert!(disk.is_durable(2));
        joiner.join().unwrap();
    });
}

/// FL.2. A flush is in flight while a write completes and its writer asks.
#[test]
fn fl2_a_flush_does_not_absorb_who_comes_later() {
    check("fl2_a_flush_does_not_absorb_who_comes_later", BOUND, || {
        let disk = Disk::default();
        let domain = domain(&disk, Deferral::Off);
        let other = thread::spawn({
            let (domain, disk) = (domain.clone(), disk.clone());
            move || write_and_flush(&domain, &disk, 1)
        });
        write_and_flush(&domain, &disk, 2);
        other.join().unwrap();
    });
}

/// FL.3. Data and a flush end at the same time: one flush is issued (the disk counts).
#[test]
fn fl3_two_ends_issue_one_flush() {
    check("fl3_two_ends_issue_one_flush", BOUND, || {
        let disk = Disk::default();
        let domain = domain(&disk, deferring());
        let first = domain.begin_blocking(Flags::write().fua()).unwrap();
        let second = domain.begin_blocking(Flags::write().fua()).unwrap();
        let other = thread::spawn({
            let disk = disk.clone();
            move || {
                disk.write(1);
                second.finish_blocking(Ok(())).unwrap();
                assert!(disk.is_durable(1));
            }
        });
        disk.write(2);
        first.finish_blocking(Ok(())).unwrap();
        assert!(disk.is_durable(2));
        other.join().unwrap();
    });
}

/// Asks the domain when it is woken, as a callback may.
struct Asks(FlushDomain);

impl Wake for Asks {
    fn wake(self: Arc<Self>) {
        let asked = self.0.try_flush();
        assert_eq!(asked, Err(FlushError::WouldBlock));
    }
}

/// FL.4. Who is woken enters the domain again, from inside of the wake.
#[test]
fn fl4_a_wake_asks_the_domain() {
    check("fl4_a_wake_asks_the_domain", BOUND, || {
        let disk = Disk::default();
        let domain = domain(&disk, deferring());
        let data = domain.begin_blocking(Flags::write().fua()).unwrap();
        let waker = Waker::from(Arc::new(Asks(domain.clone())));
        let mut waiting = pin!(domain.flush());
        let polled = waiting.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        let finisher = thread::spawn(move || data.finish_blocking(Ok(())).unwrap());
        block_on(waiting).unwrap();
        finisher.join().unwrap();
    });
}

/// FL.5. Data is given up while another request's data ends: each is counted down once, and nobody
/// waits for data that is gone.
#[test]
fn fl5_data_is_given_up_against_data_that_ends() {
    check("fl5_data_is_given_up_against_data_that_ends", BOUND, || {
        let disk = Disk::default();
        let domain = domain(&disk, deferring());
        let kept = domain.begin_blocking(Flags::write().fua()).unwrap();
        let dropped = domain.begin_blocking(Flags::write().fua()).unwrap();
        let dropper = thread::spawn(move || drop(dropped));
        disk.write(1);
        kept.finish_blocking(Ok(())).unwrap();
        assert!(disk.is_durable(1));
        dropper.join().unwrap();
        write_and_flush(&domain, &disk, 2);
    });
}

/// FL.6. A flush fails: who shared it is told, who came later is served by the next one.
#[test]
fn fl6_a_failed_flush_and_a_joiner() {
    check("fl6_a_failed_flush_and_a_joiner", BOUND, || {
        let disk = Disk::default();
        let domain = domain(&disk, Deferral::Off);
        disk.fail_once();
        let failed = Arc::new(AtomicUsize::new(0));
        let flush = |bit| {
            let (domain, disk, failed) = (domain.clone(), disk.clone(), failed.clone());
            move || {
                disk.write(bit);
                match domain.flush_blocking() {
                    Ok(()) => assert!(disk.is_durable(bit)),
                    Err(_) => drop(failed.fetch_add(1, Ordering::Relaxed)),
                }
            }
        };
        let other = thread::spawn(flush(1));
        flush(2)();
        other.join().unwrap();
        assert_eq!(
            failed.load(Ordering::Relaxed),
            1,
            "the flush had one member"
        );
        assert!(domain.is_poisoned());
    });
}

/// FL.7. A task that waits leaves while the flush that it waits for ends, or is handed to it.
#[test]
fn fl7_the_leader_leaves() {
    check("fl7_the_leader_leaves", BOUND, || {
        let disk = Disk::default();
        let domain = domain(&disk, deferring());
        let data = domain.begin_blocking(Flags::write().fua()).unwrap();
        let mut leaving = Box::pin(domain.flush());
        let polled = leaving
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        let stays = thread::spawn({
            let disk = disk.clone();
            move || {
                disk.write(1);
                // Chooses the first waiter, which is about to leave.
                data.finish_blocking(Ok(())).unwrap();
                assert!(disk.is_durable(1));
            }
        });
        drop(leaving);
        stays.join().unwrap();
        write_and_flush(&domain, &disk, 2);
    });
}

/// FL.7. The same with two flushes in a row, and an id that is used again at once.
#[test]
fn fl7_a_waiter_leaves_while_its_flush_runs() {
    check("fl7_a_waiter_leaves_while_its_flush_runs", BOUND, || {
        let disk = Disk::default();
        let domain = domain(&disk, Deferral::Off);
        let other = thread::spawn({
            let (domain, disk) = (domain.clone(), disk.clone());
            move || write_and_flush(&domain, &disk, 1)
        });
        let leaves = Waker::noop();
        {
            let mut leaving = pin!(domain.flush());
            let _ = leaving.as_mut().poll(&mut Context::from_waker(leaves));
        }
        write_and_flush(&domain, &disk, 2);
        other.join().unwrap();
    });
}

/// A system's cache whose content is lost before anybody asks. Who asks first is told.
#[derive(Clone, Default)]
struct TellsOnce(Arc<AtomicUsize>);

impl TellsOnce {
    fn lose(&self) {
        self.0.store(1, Ordering::Relaxed);
    }
}

impl Flusher for TellsOnce {
    fn caps(&self) -> Caps {
        Caps::volatile_with_fua()
    }

    fn flush(&self) -> io::Result<()> {
        match self.0.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            _ => Err(io::ErrorKind::Other.into()),
        }
    }
}

/// FL.25. A durable write and a flush, or two durable writes, end at the same time; one of them is
/// told of the loss of what both have written.
#[test]
fn fl25_a_call_that_was_told_ends_beside_one_that_was_not() {
    check(
        "fl25_a_call_that_was_told_ends_beside_one_that_was_not",
        BOUND,
        || {
            let device = TellsOnce::default();
            let domain = FlushDomain::new(device.clone());
            let write = || domain.begin_blocking(Flags::write().fua()).unwrap();
            let (one, other) = (write(), write());
            device.lose();
            let flushes = thread::spawn({
                let domain = domain.clone();
                move || domain.flush_blocking().is_err()
            });
            let ends = thread::spawn({
                let device = device.clone();
                move || other.finish_blocking(device.flush()).is_err()
            });
            assert!(
                one.finish_blocking(device.flush()).is_err(),
                "its data is lost"
            );
            assert!(ends.join().unwrap(), "its data is lost");
            let flush_failed = flushes.join().unwrap();
            assert!(flush_failed || domain.failed_flushes() == 1);
            domain.flush_blocking().unwrap();
        },
    );
}

/// FL.18. A task begins a flush that the system tells of a loss, and is dropped before it hears of
/// it. The flush of another one succeeds, with nothing left to write. Both were written before.
#[test]
fn fl18_the_leader_leaves_amid_its_flush() {
    check("fl18_the_leader_leaves_amid_its_flush", BOUND, || {
        let disk = Disk::default();
        let domain = domain(&disk, Deferral::Off);
        let before = domain.failed_flushes();
        disk.write(1);
        let other = thread::spawn({
            let (domain, disk) = (domain.clone(), disk.clone());
            move || {
                let flushed = domain.flush_blocking();
                let knows = flushed.is_err() || domain.failed_flushes() > before;
                assert!(knows || disk.is_durable(1));
            }
        });
        {
            let mut leaving = pin!(domain.flush_with(|| {
                // The system drops what it could not write, and tells this flush only.
                disk.0.written.store(0, Ordering::Relaxed);
                std::future::pending()
            }));
            let _ = leaving
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
        }
        other.join().unwrap();
        write_and_flush(&domain, &disk, 2);
    });
}

/// A task and a thread share flushes, in one list.
#[test]
fn fl1_a_task_and_a_thread() {
    check("fl1_a_task_and_a_thread", BOUND, || {
        let disk = Disk::default();
        let domain = domain(&disk, Deferral::Off);
        let task = thread::spawn({
            let (domain, disk) = (domain.clone(), disk.clone());
            move || {
                disk.write(1);
                block_on(domain.flush()).unwrap();
                assert!(disk.is_durable(1));
            }
        });
        write_and_flush(&domain, &disk, 2);
        task.join().unwrap();
    });
}

/// Counts that it was told, and tells the thread that polls.
struct Told(AtomicUsize, Event);

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Release);
        self.1.notify_all();
    }
}

/// FL.24. A flush is put off while the thread that ticks begins to sleep: it wakes in time. The
/// clock moves when it sleeps towards the deadline, and nobody else calls.
#[test]
fn fl24_a_flush_that_was_put_off_starts_by_its_deadline() {
    let name = "fl24_a_flush_that_was_put_off_starts_by_its_deadline";
    check(name, BOUND, || {
        let (disk, clock) = (Disk::default(), Clock::manual());
        let domain = FlushDomain::builder()
            .deferral(deferring())
            .clock(&clock)
            .device(disk.clone());
        let data = domain.begin_blocking(Flags::write().fua()).unwrap();
        domain.tick_in_background().unwrap();
        let told = Arc::new(Told(AtomicUsize::new(0), Event::new()));
        let waker = Waker::from(told.clone());
        let mut flush = Box::pin(domain.flush());
        let mut poll = || flush.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(poll().is_pending());
        while clock.sleepers() == 0 {
            thread::yield_now();
        }
        clock.advance(Duration::from_millis(10));
        told.1.wait_while(|| told.0.load(Ordering::Acquire) == 0);
        assert_eq!(poll(), Poll::Ready(Ok(())));
        drop(data);
    });
}

/// FL.24. The last handle is dropped while the thread that ticks begins to sleep: it ends.
#[test]
fn fl24_the_thread_ends_with_the_last_handle() {
    check("fl24_the_thread_ends_with_the_last_handle", BOUND, || {
        let domain = domain(&Disk::default(), deferring());
        domain.tick_in_background().unwrap();
        // Loom does not see the counts of an `Arc`: without this the thread would never look.
        thread::yield_now();
        drop(domain);
    });
}
