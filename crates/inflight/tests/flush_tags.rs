//! Flushes of a device with one tag: who carries a flush out lends it his own.
#![cfg(not(any(loom, shuttle)))]

use inflight::flush::{Caps, Deferral, Device, Flags, FlushDomain, Flusher, MemoryDevice};
use inflight::prelude::*;
use inflight::sync::time::Clock;
use inflight::sync::{block_on, thread};
use std::future::{Future, ready};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What the device does, it does for a tag.
fn flush(device: &MemoryDevice, _: &Tag<()>) -> impl Future<Output = io::Result<()>> + use<> {
    ready(device.flush())
}

fn write(device: &MemoryDevice, _: &Tag<()>, sector: u64) -> io::Result<()> {
    device.write_at(&[1; 512], sector * 512)
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// The only tag is held by a request that waits for a flush, which is put off for the data of
/// another one, which waits for the tag.
#[test]
fn a_flush_that_is_put_off_for_data_without_a_tag_takes_that_of_who_waits() {
    let clock = Clock::manual();
    let limit = Duration::from_millis(10);
    let domain = FlushDomain::builder()
        .caps(Caps::volatile())
        .deferral(Deferral::Bounded(limit))
        .clock(&clock)
        .build();
    let device = MemoryDevice::new(4096);
    let set = TagSet::builder().depth(1).build(|_, _| ()).unwrap();
    let disk = set.add_tenant("disk").unwrap();
    let held = disk.try_alloc().unwrap();

    // Its data may start, and it waits for a tag.
    let mut data = pin!(async {
        let never = || ready(Err(io::ErrorKind::Unsupported.into()));
        let begun = domain.begin_with(Flags::write().fua(), never).await;
        let tag = disk.alloc().await.unwrap();
        let written = write(&device, &tag, 0);
        let finished = begun.unwrap().finish_with(written, || flush(&device, &tag));
        finished.await.unwrap();
    });
    assert!(poll_once(data.as_mut()).is_pending());
    let mut waits = Box::pin(async {
        let tag = held;
        let begun = domain.begin_with(Flags::write().preflush(), || flush(&device, &tag));
        let begun = begun.await.unwrap();
        let written = write(&device, &tag, 1);
        begun.finish(written).await.unwrap();
    });
    assert!(poll_once(waits.as_mut()).is_pending());
    assert!(poll_once(data.as_mut()).is_pending());
    assert_eq!((device.flushes(), set.in_use()), (0, 1));

    clock.advance(limit);
    assert!(domain.next_deadline().unwrap() <= clock.now());
    domain.tick();
    block_on(waits);
    block_on(data);
    assert_eq!((device.flushes(), set.in_use()), (2, 0));
    assert_eq!(domain.counters().forced_by_timeout, 1);
}

/// Requests of every kind share one tag, each from its start to its end. None waits for a tag that
/// a flush has.
#[test]
fn requests_of_every_kind_end_on_a_device_with_one_tag() {
    let domain = FlushDomain::builder().caps(Caps::volatile()).build();
    let device = MemoryDevice::new(4096);
    let set = TagSet::builder().depth(1).build(|_, _| ()).unwrap();
    let kinds = [
        Flags::write(),
        Flags::write().preflush(),
        Flags::write().fua(),
        Flags::write().preflush().fua(),
    ];
    let threads: Vec<_> = (0..4_usize)
        .map(|id| {
            let (domain, device, set) = (domain.clone(), device.clone(), set.clone());
            thread::spawn(move || {
                let disk = set.add_tenant(format!("disk{id}")).unwrap();
                for n in 0..50 {
                    let tag = disk.alloc_blocking().unwrap();
                    let lead = || flush(&device, &tag);
                    let begun = block_on(domain.begin_with(kinds[(id + n) % 4], lead));
                    let written = write(&device, &tag, id as u64);
                    let finished = begun.unwrap().finish_with(written, lead);
                    block_on(finished).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let counters = domain.counters();
    assert_eq!(counters.issued, device.flushes());
    assert_eq!((counters.merged, set.in_use()), (200, 0));
}
