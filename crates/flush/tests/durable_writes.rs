//! What users of durable writes rely on: a loss that a system tells one call is told all whom it
//! concerns.
#![cfg(not(any(loom, shuttle)))]

use inflight_flush::machine::{Action, Left, Machine};
use inflight_flush::{
    Caps, Deferral, Device, Flags, FlushDomain, Flusher, MemoryDevice, WriteError,
};
use inflight_sync::time::Instant;
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A durable write of a file is a flush, too: the system may have told it of others' loss.
#[test]
fn a_durable_write_that_fails_counts_as_a_failed_flush() {
    let device = MemoryDevice::new(4096).with_caps(Caps::volatile_with_fua());
    let domain = FlushDomain::builder()
        .exclusive(true)
        .device(device.clone());
    domain.flush_blocking().unwrap();
    let failed = domain.write_fua_blocking(|| Err::<(), _>(io::Error::other("lost")));
    assert!(matches!(failed, Err(WriteError::Write(_))), "{failed:?}");
    assert_eq!((domain.failed_flushes(), domain.is_poisoned()), (1, true));
    domain.flush_blocking().unwrap();
    assert_eq!(device.flushes(), 2, "what is clean is not known any more");
}

/// The other way round: the flush was told of what the durable write has lost.
#[test]
fn a_durable_write_fails_if_a_flush_beside_it_has_failed() {
    let device = MemoryDevice::new(4096).with_caps(Caps::volatile_with_fua());
    let domain = FlushDomain::new(device.clone());
    let sequence = domain.begin_blocking(Flags::write().fua()).unwrap();
    assert!(sequence.writes_fua());
    device.fail_flushes(1);
    domain.flush_blocking().unwrap_err();
    let ended = sequence.finish_blocking(device.write_fua_at(&[1; 512], 0));
    let Err(WriteError::Flush(error)) = ended else {
        panic!("{ended:?}")
    };
    assert_eq!((domain.failed_flushes(), domain.poison()), (1, Some(error)));
    // One that begins later is not concerned.
    let later = domain.write_fua_blocking(|| device.write_fua_at(&[1; 512], 0));
    later.unwrap();
}

/// A file's device whose durable writes are told of others' loss.
fn cached_file() -> MemoryDevice {
    MemoryDevice::new(4096)
        .with_caps(Caps::volatile_with_fua())
        .with_lost_writes_readable()
}

/// The flush was told, and its call has not returned yet: the durable write waits for it.
#[test]
fn a_durable_write_is_reported_after_a_flush_that_was_told_of_its_loss() {
    let device = cached_file();
    let domain = FlushDomain::new(device.clone());
    let sequence = domain.begin_blocking(Flags::write().fua()).unwrap();
    device.write_at(&[1; 512], 0).unwrap(); // the first half of the durable write
    device.lose_cache();
    let told = Cell::new(None);
    let mut flush = pin!(domain.flush_with(|| {
        let result = device.flush();
        let told = &told;
        std::future::poll_fn(move |_| match told.get() {
            Some(()) => Poll::Ready(result.as_ref().copied().map_err(|e| e.kind().into())),
            None => Poll::Pending,
        })
    }));
    assert!(poll_once(flush.as_mut()).is_pending());
    device.flush().unwrap(); // the second half: it is told of nothing
    let mut finish = pin!(sequence.finish(Ok(())));
    assert!(poll_once(finish.as_mut()).is_pending());
    told.set(Some(()));
    assert!(matches!(poll_once(flush), Poll::Ready(Err(_))));
    let Poll::Ready(Err(WriteError::Flush(error))) = poll_once(finish) else {
        panic!("the data is lost")
    };
    assert_eq!((domain.failed_flushes(), domain.poison()), (1, Some(error)));
}

/// The other way round, and between two durable writes.
#[test]
fn a_flush_and_a_durable_write_are_reported_after_the_durable_write_that_was_told() {
    let device = cached_file();
    let domain = FlushDomain::new(device.clone());
    device.write_at(&[1; 512], 0).unwrap();
    device.lose_cache();
    let told = domain.begin_blocking(Flags::write().fua()).unwrap();
    let beside = domain.begin_blocking(Flags::write().fua()).unwrap();
    let loss = device.write_fua_at(&[2; 512], 512);
    loss.as_ref().unwrap_err();
    let mut flush = pin!(domain.flush());
    assert!(
        poll_once(flush.as_mut()).is_pending(),
        "it has succeeded, and waits"
    );
    let mut finish = pin!(beside.finish(device.write_fua_at(&[3; 512], 1024)));
    assert!(poll_once(finish.as_mut()).is_pending());
    let ended = told.finish_blocking(loss);
    assert!(matches!(ended, Err(WriteError::Write(_))), "{ended:?}");
    assert!(matches!(poll_once(flush), Poll::Ready(Err(_))));
    assert!(matches!(poll_once(finish), Poll::Ready(Err(_))));
    assert_eq!(domain.failed_flushes(), 1, "one call was told");
    domain.flush_blocking().unwrap();
}

/// It waits for those that were under way when it ended, and for nobody who comes later; nor does
/// somebody who does not want to know hold others up.
#[test]
fn a_durable_write_waits_for_those_beside_it_only() {
    let domain = FlushDomain::new(cached_file());
    let begin = || domain.begin_blocking(Flags::write().fua()).unwrap();
    let (first, second, third) = (begin(), begin(), begin());
    let mut finish = pin!(second.finish(Ok(())));
    let mut left = Box::pin(third.finish(Ok(())));
    assert!(poll_once(finish.as_mut()).is_pending());
    assert!(poll_once(left.as_mut()).is_pending());
    drop(left);
    let later = begin();
    assert!(poll_once(finish.as_mut()).is_pending());
    let mut first = pin!(first.finish(Ok(())));
    assert!(matches!(poll_once(finish), Poll::Ready(Ok(()))));
    assert!(poll_once(first.as_mut()).is_pending());
    let refused = domain.try_write_fua(|| -> io::Result<()> { unreachable!("it does not run") });
    assert!(
        matches!(refused, Err(WriteError::WouldBlock)),
        "{refused:?}"
    );
    later.finish_blocking(Ok(())).unwrap();
    assert!(matches!(poll_once(first), Poll::Ready(Ok(()))));
    domain.try_write_fua(|| Ok(())).unwrap();
    assert!(!domain.is_poisoned());
}

/// A flush that fails may have been told of the loss of data that waits for the flush behind it.
#[test]
fn data_is_not_durable_if_a_flush_beside_it_has_failed() {
    let device = MemoryDevice::new(4096);
    let domain = FlushDomain::builder()
        .deferral(Deferral::Off)
        .device(device.clone());
    let sequence = domain.begin_blocking(Flags::write().fua()).unwrap();
    device.write_at(&[1; 512], 0).unwrap();
    device.fail_flushes(1);
    domain.flush_blocking().unwrap_err();
    let ended = sequence.finish_blocking(Ok(()));
    assert!(matches!(ended, Err(WriteError::Flush(_))), "{ended:?}");
}

/// What the system tells a durable write that nobody hears, it tells nobody else.
#[test]
fn a_durable_write_that_is_given_up_counts_as_failed() {
    let device = MemoryDevice::new(4096).with_caps(Caps::volatile_with_fua());
    let domain = FlushDomain::new(device.clone());
    let sequence = domain.begin_blocking(Flags::write().fua()).unwrap();
    device.write_fua_at(&[1; 512], 0).unwrap();
    drop(sequence);
    assert_eq!(domain.failed_flushes(), 1);
    assert!(domain.is_poisoned());
    let panics = || domain.write_fua_blocking(|| -> io::Result<()> { panic!("amid the write") });
    catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
    assert_eq!(domain.failed_flushes(), 2);
    // One that is told how it ended does not count twice.
    domain.clear_poison();
    let sequence = domain.begin_blocking(Flags::write().fua()).unwrap();
    drop(sequence.finish(Ok(())));
    assert_eq!((domain.failed_flushes(), domain.is_poisoned()), (2, false));
    // Plain data makes nothing durable.
    drop(domain.begin_blocking(Flags::write()).unwrap());
    assert!(!domain.is_poisoned());
}

/// Where nothing can be lost nobody waits for another one's report.
#[test]
fn durable_writes_of_a_device_without_a_cache_end_each_for_itself() {
    let domain = FlushDomain::builder()
        .caps(Caps {
            volatile_cache: false,
            native_fua: true,
        })
        .build();
    let begin = || domain.begin_blocking(Flags::write().fua()).unwrap();
    let (one, other) = (begin(), begin());
    one.finish_blocking(Ok(())).unwrap();
    domain.try_write_fua(|| Ok(())).unwrap();
    other.finish_blocking(Ok(())).unwrap();
}

/// A flush that has ended, and is not reported yet, cannot be withdrawn.
#[test]
fn a_flush_that_is_held_stays_in_flight() {
    let now = Instant::default();
    let mut machine: Machine<()> =
        Machine::new(Caps::volatile_with_fua(), Deferral::Off).tells_once(true);
    let mut actions = Vec::new();
    let write = machine
        .submit(now, Flags::write().fua(), &mut actions)
        .unwrap();
    machine.data_begun(write);
    let leaves = machine.submit(now, Flags::flush(), &mut actions).unwrap();
    machine.flush_done(now, 0, Ok(()), &mut actions);
    let next = machine.submit(now, Flags::flush(), &mut actions).unwrap();
    assert_eq!(machine.leave(leaves), Left::Running);
    actions.clear();
    machine.withdraw(now, 0, &mut actions);
    assert_eq!(actions, [], "it is held behind the write");
    machine.data_done(now, write, Ok(()), &mut actions);
    let issued = Action::IssueFlush {
        generation: 1,
        first: next,
    };
    assert_eq!(actions, [Action::Complete(write, Ok(())), issued]);
}
