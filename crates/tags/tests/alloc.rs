//! Taking and freeing tags, in all forms.

#![cfg(not(any(loom, shuttle)))]

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, block_on, cpu, thread};
use inflight_tags::{AllocError, AllocOptions, BuildError, TagSet, Tenant};
use inflight_topology::Topology;
use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const PLAIN: AllocOptions = AllocOptions::new();

fn queue(depth: usize, reserved: usize) -> Tenant<()> {
    let set = TagSet::builder().depth(depth).reserved(reserved);
    set.build(|_, _| ()).unwrap().add_tenant("q").unwrap()
}

/// Sleeps in no other way than giving the other thread time to go to sleep.
fn wait_until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

fn assert_send_sync<T: Send + Sync + 'static>(_: &T) {}
fn assert_send<T: Send>(_: &T) {}

#[test]
fn handles_tags_and_futures_move_between_threads() {
    let dev = queue(1, 0);
    assert_send_sync(&dev);
    assert_send_sync(&dev.set());
    assert_send_sync(&dev.set().freeze_blocking());
    assert_send(&dev.alloc());
    let set = dev.set();
    assert_send(&set.freeze());
    // A payload that is Send and not Sync is enough.
    let cells = TagSet::builder().build(|_, _| std::cell::Cell::new(1));
    let cells = cells.unwrap();
    assert_send_sync(&cells);
    let mut tag = cells.add_tenant("q").unwrap().alloc_blocking().unwrap();
    assert_send(&tag);
    *tag.get_mut() = 2;
}

#[test]
fn slots_are_made_once_with_their_numbers() {
    let made = Arc::new(AtomicUsize::new(0));
    let set = TagSet::builder().hw_queues(3).depth(5).reserved(2);
    let set = set
        .build({
            let made = made.clone();
            move |hwq, tag| {
                made.fetch_add(1, Ordering::Relaxed);
                (hwq, tag, 0u32)
            }
        })
        .unwrap();
    let dev = set.add_tenant("q").unwrap();
    for round in 0..4 {
        for hwq in 0..3 {
            let tags: Vec<_> = (0..3)
                .map(|_| dev.try_alloc_with(PLAIN.hw_queue(hwq)).unwrap())
                .collect();
            for mut tag in tags {
                assert_eq!(*tag, (tag.hw_queue(), tag.index(), round));
                assert_eq!(tag.unique(), ((hwq as u32) << 16) | tag.index() as u32);
                tag.2 += 1;
            }
        }
    }
    assert_eq!(made.load(Ordering::Relaxed), 15);
    assert_eq!(set.capacity(), 15);
}

#[test]
fn the_number_17_of_hardware_queue_3() {
    let set = TagSet::builder().hw_queues(4).depth(18).build(|_, _| ());
    let dev = set.unwrap().add_tenant("q").unwrap();
    let tags: Vec<_> = (0..18)
        .map(|_| dev.try_alloc_with(PLAIN.hw_queue(3)).unwrap())
        .collect();
    let last = tags.iter().find(|tag| tag.index() == 17).unwrap();
    assert_eq!(last.unique(), 0x0003_0011);
}

#[test]
fn limits_of_the_builder() {
    let build = |hwq, depth, reserved| {
        let builder = TagSet::builder().hw_queues(hwq).depth(depth);
        builder.reserved(reserved).build(|_, _| ()).map(drop)
    };
    assert_eq!(build(0, 1, 0), Err(BuildError::HwQueues { hw_queues: 0 }));
    assert_eq!(
        build(65_537, 1, 0),
        Err(BuildError::HwQueues { hw_queues: 65_537 })
    );
    assert_eq!(build(1, 0, 0), Err(BuildError::Depth { depth: 0 }));
    assert_eq!(
        build(1, 10_241, 0),
        Err(BuildError::Depth { depth: 10_241 })
    );
    assert_eq!(
        build(1, 4, 4),
        Err(BuildError::Reserved {
            reserved: 4,
            depth: 4
        })
    );
    assert_eq!(
        build(2000, 10_000, 0),
        Err(BuildError::TooLarge { tags: 20_000_000 })
    );
    assert_eq!(build(1, 1, 0), Ok(()));
    // 20,480 slots take Miri half an hour.
    let depth = if cfg!(miri) { 100 } else { 10_240 };
    assert_eq!(build(2, depth, depth - 1), Ok(()));
}

#[test]
fn every_tag_once_then_exhausted() {
    let dev = queue(100, 10);
    let mut seen = HashSet::new();
    let mut tags = Vec::new();
    for _ in 0..90 {
        let tag = dev.try_alloc().unwrap();
        assert!((10..100).contains(&tag.index()));
        assert!(seen.insert(tag.index()));
        tags.push(tag);
    }
    assert_eq!(dev.try_alloc().unwrap_err(), AllocError::Exhausted);
    for _ in 0..10 {
        let tag = dev.try_alloc_with(PLAIN.reserved()).unwrap();
        assert!(tag.index() < 10);
        assert!(seen.insert(tag.index()));
        tags.push(tag);
    }
    let refused = dev.try_alloc_with(PLAIN.reserved()).unwrap_err();
    assert_eq!(refused, AllocError::Exhausted);
    assert_eq!(dev.set().in_use(), 100);
    drop(tags);
    assert_eq!(dev.set().in_use(), 0);
    assert_eq!(dev.try_alloc_batch(200).len(), 90);
}

#[test]
fn wrong_options_are_refused_by_every_form() {
    let dev = queue(4, 0);
    for (options, error) in [
        (PLAIN.reserved(), AllocError::NoReserved),
        (PLAIN.hw_queue(1), AllocError::NoSuchHwQueue { hw_queue: 1 }),
    ] {
        let second = Duration::from_secs(1);
        assert_eq!(dev.try_alloc_with(options).unwrap_err(), error);
        assert_eq!(dev.alloc_blocking_with(options).unwrap_err(), error);
        assert_eq!(dev.alloc_timeout_with(second, options).unwrap_err(), error);
        assert_eq!(block_on(dev.alloc_with(options)).unwrap_err(), error);
        assert_eq!(dev.try_alloc_batch_with(1, options).unwrap_err(), error);
        let _frozen = dev.set().freeze_blocking();
        assert_eq!(dev.alloc_blocking_with(options).unwrap_err(), error);
    }
    assert_eq!(dev.set().in_use(), 0);
}

#[test]
fn the_cpu_chooses_the_hardware_queue() {
    let topology = Topology::synthetic("cache:2 core:4").unwrap();
    let set = TagSet::builder().hw_queues(2).depth(2).topology(&topology);
    let dev = set.build(|_, _| ()).unwrap().add_tenant("q").unwrap();
    for (cpu, hwq) in [(0, 0), (3, 0), (4, 1), (7, 1), (9, 0)] {
        cpu::set_current_for_thread(Some(cpu));
        assert_eq!(dev.set().hw_queues().of_cpu(cpu), hwq);
        assert_eq!(dev.try_alloc().unwrap().hw_queue(), hwq);
        assert_eq!(dev.alloc_blocking().unwrap().hw_queue(), hwq);
        let batch = dev.try_alloc_batch(9);
        assert_eq!(batch.len(), 2);
        assert!(batch.iter().all(|tag| tag.hw_queue() == hwq));
        // Its own queue is empty now; the other's tags are not for it.
        assert_eq!(dev.try_alloc().unwrap_err(), AllocError::Exhausted);
    }
    cpu::set_current_for_thread(None);
}

#[test]
fn a_batch_takes_what_is_free() {
    let dev = queue(8, 2);
    assert!(dev.try_alloc_batch(0).is_empty());
    let held = dev.try_alloc_batch(4);
    assert_eq!(held.len(), 4);
    let rest = dev.try_alloc_batch(4);
    assert_eq!(rest.len(), 2, "reserved tags are not taken");
    let numbers: HashSet<usize> = held.iter().chain(&rest).map(|t| t.index()).collect();
    assert_eq!(numbers, (2..8).collect());
    assert!(dev.try_alloc_batch(1).is_empty());
    drop(held);
    assert_eq!(dev.stats().allocs, 6);
    assert_eq!(dev.set().in_use(), 2);
}

#[test]
fn a_batch_comes_from_where_it_is_asked_for() {
    let set = TagSet::builder().hw_queues(3).depth(4).reserved(2);
    let dev = set.build(|_, _| ()).unwrap().add_tenant("q").unwrap();
    cpu::set_current_for_thread(Some(0));
    let normal = dev.try_alloc_batch_with(9, PLAIN.hw_queue(2)).unwrap();
    let places: HashSet<_> = normal.iter().map(|t| (t.hw_queue(), t.index())).collect();
    assert_eq!(places, HashSet::from([(2, 2), (2, 3)]));
    let options = PLAIN.hw_queue(1).reserved();
    let reserved = dev.try_alloc_batch_with(9, options).unwrap();
    let places: HashSet<_> = reserved.iter().map(|t| (t.hw_queue(), t.index())).collect();
    assert_eq!(places, HashSet::from([(1, 0), (1, 1)]));
    cpu::set_current_for_thread(None);
}

#[test]
fn a_batch_that_gets_nothing_is_counted() {
    let dev = queue(2, 0);
    let held = dev.try_alloc_batch(2);
    assert!(dev.try_alloc_batch_with(0, PLAIN).unwrap().is_empty());
    assert_eq!(dev.stats().exhausted, 0, "nothing was asked for");
    let refused = dev.try_alloc_batch_with(1, PLAIN).unwrap_err();
    assert_eq!(refused, AllocError::Exhausted);
    assert!(dev.try_alloc_batch(1).is_empty());
    drop(held);
    let frozen = dev.set().freeze_blocking();
    let refused = dev.try_alloc_batch_with(1, PLAIN).unwrap_err();
    assert_eq!(refused, AllocError::Frozen);
    drop(frozen);
    let stats = dev.stats();
    assert_eq!((stats.allocs, stats.exhausted, stats.frozen), (2, 2, 1));
}

#[test]
fn a_timed_wait_ends_with_the_clock() {
    let clock = Clock::manual();
    let set = TagSet::builder().depth(1).clock(clock.clone());
    let dev = set.build(|_, _| ()).unwrap().add_tenant("q").unwrap();
    let held = dev.try_alloc().unwrap();
    let zero = dev.alloc_timeout(Duration::ZERO).unwrap_err();
    assert_eq!(zero, AllocError::TimedOut);

    let waiter = thread::spawn({
        let dev = dev.clone();
        move || dev.alloc_timeout(Duration::from_secs(5)).map(drop)
    });
    wait_until(|| clock.sleepers() == 1);
    clock.advance(Duration::from_secs(5));
    assert_eq!(waiter.join().unwrap(), Err(AllocError::TimedOut));

    let waiter = thread::spawn({
        let dev = dev.clone();
        move || dev.alloc_timeout(Duration::from_secs(5)).map(drop)
    });
    wait_until(|| clock.sleepers() == 1);
    drop(held);
    assert_eq!(waiter.join().unwrap(), Ok(()));
    assert_eq!((dev.stats().waits, dev.stats().timeouts), (3, 2));
    let stats = dev.set().stats();
    assert!(stats.waits >= 2 && stats.wakeups >= 1, "{stats:?}");
}

/// Who needs a reserved tag waits for reserved tags, and is not served by a normal one (nor the
/// reverse).
#[test]
fn h16_waiters_of_the_two_kinds_do_not_mix() {
    let dev = queue(2, 1);
    let normal = dev.try_alloc().unwrap();
    let reserved = dev.try_alloc_with(PLAIN.reserved()).unwrap();
    let mut wants_reserved = pin!(dev.alloc_with(PLAIN.reserved()));
    let mut wants_normal = pin!(dev.alloc());
    let (a, b) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
    assert!(a.poll(wants_reserved.as_mut()).is_pending());
    assert!(b.poll(wants_normal.as_mut()).is_pending());
    drop(normal);
    assert_eq!((a.times(), b.times()), (0, 1));
    assert!(a.poll(wants_reserved.as_mut()).is_pending());
    let Poll::Ready(Ok(tag)) = b.poll(wants_normal.as_mut()) else {
        panic!("a normal tag was free");
    };
    assert_eq!(tag.index(), 1);
    drop(reserved);
    assert_eq!((a.times(), b.times()), (1, 1));
    assert!(a.poll(wants_reserved.as_mut()).is_ready());
}

/// Counts its wakeups, and polls by hand.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Woken {
    fn times(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn poll<F: Future>(self: &Arc<Self>, future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        let waker = Waker::from(self.clone());
        future.poll(&mut Context::from_waker(&waker))
    }
}

#[test]
fn a_dropped_future_loses_no_wakeup() {
    let dev = queue(1, 0);
    let held = dev.try_alloc().unwrap();
    let (first, second) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
    let mut alloc_first = Box::pin(dev.alloc());
    let mut alloc_second = Box::pin(dev.alloc());
    assert!(first.poll(alloc_first.as_mut()).is_pending());
    assert!(second.poll(alloc_second.as_mut()).is_pending());
    drop(held);
    // The first was woken and never looks: its wakeup goes to the second.
    assert_eq!(first.times(), 1);
    drop(alloc_first);
    assert_eq!(second.times(), 1);
    assert!(second.poll(alloc_second.as_mut()).is_ready());
    assert_eq!(dev.set().in_use(), 0);
}

#[test]
fn a_dropped_future_loses_no_tag() {
    let dev = queue(1, 0);
    for _ in 0..10 {
        drop(dev.alloc());
        let held = dev.try_alloc().unwrap();
        let mut alloc = Box::pin(dev.alloc());
        assert!(Arc::new(Woken::default()).poll(alloc.as_mut()).is_pending());
        drop(held);
        drop(alloc);
    }
    assert!(dev.try_alloc().is_ok());
}

/// A waiter that has moved to the CPU of another hardware queue takes a tag there; the one it was
/// woken for goes to the waiter behind it.
#[test]
fn h25_a_waiter_that_moved_passes_its_wakeup_on() {
    let set = TagSet::builder().hw_queues(2).depth(1).build(|_, _| ());
    let dev = set.unwrap().add_tenant("q").unwrap();
    cpu::set_current_for_thread(Some(0));
    let held = dev.try_alloc().unwrap();
    let (first, second) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
    let mut alloc_first = pin!(dev.alloc());
    let mut alloc_second = pin!(dev.alloc());
    assert!(first.poll(alloc_first.as_mut()).is_pending());
    assert!(second.poll(alloc_second.as_mut()).is_pending());
    drop(held);
    assert_eq!((first.times(), second.times()), (1, 0));
    cpu::set_current_for_thread(Some(1));
    let Poll::Ready(Ok(tag)) = first.poll(alloc_first.as_mut()) else {
        panic!("a tag was free");
    };
    assert_eq!(tag.hw_queue(), 1);
    assert_eq!(second.times(), 1);
    let Poll::Ready(Ok(tag)) = second.poll(alloc_second.as_mut()) else {
        panic!("a tag was free");
    };
    assert_eq!(tag.hw_queue(), 0, "none was free where it runs");
    cpu::set_current_for_thread(None);
}

#[test]
fn counters_add_up() {
    let set = TagSet::builder().depth(2).build(|_, _| ()).unwrap();
    let (a, b) = (set.add_tenant("a").unwrap(), set.add_tenant("b").unwrap());
    let held = a.try_alloc().unwrap();
    let token = b.try_alloc().unwrap().into_token();
    assert!(a.try_alloc().is_err());
    assert!(set.redeem(!token).is_err());
    let stats = set.stats();
    assert_eq!((stats.allocs, stats.frees, stats.redeem_errors), (2, 0, 1));
    assert_eq!((stats.in_use, stats.in_flight, set.held()), (2, 1, 1));
    drop(held);
    drop(set.redeem(token).unwrap());
    let stats = set.stats();
    assert_eq!((stats.allocs, stats.frees, stats.in_use), (2, 2, 0));
    assert_eq!((a.stats().allocs, a.stats().exhausted), (1, 1));
    assert_eq!((b.stats().allocs, b.stats().exhausted), (1, 0));
}

#[test]
fn everything_prints() {
    let dev = queue(2, 1);
    let tag = dev.try_alloc().unwrap();
    let builder = TagSet::<()>::builder();
    let text = format!("{:?} {:?} {:?} {:?}", dev, dev.set(), tag, builder);
    for part in ["Tenant", "TagSet", "Tag {", "TagSetBuilder", "in_use: 1"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

/// Others take what is free before each look of those who wait: by the bound of ids they are served
/// all the same.
#[test]
fn waiters_are_overtaken_by_a_bounded_number() {
    const WAITERS: usize = 5;
    let set: TagSet<()> = TagSet::builder().depth(2).build(|_, _| ()).unwrap();
    let dev = set.add_tenant("q").unwrap();
    let mut held: VecDeque<_> = dev.try_alloc_batch(2).into_iter().collect();
    let mut nobody = Context::from_waker(Waker::noop());
    let mut waiters: Vec<_> = (0..WAITERS).map(|_| Box::pin(dev.alloc())).collect();
    for waiter in &mut waiters {
        assert!(waiter.as_mut().poll(&mut nobody).is_pending());
    }
    let mut given = 0;
    while !waiters.is_empty() {
        drop(held.pop_front());
        if let Ok(tag) = dev.try_alloc() {
            given += 1;
            held.push_back(tag);
        }
        // The last one has the others before it, which count too.
        assert!(given <= (WAITERS - 1 + 11) * 13);
        waiters.retain_mut(|waiter| match waiter.as_mut().poll(&mut nobody) {
            Poll::Ready(tag) => {
                given += 1;
                held.push_back(tag.unwrap());
                false
            }
            Poll::Pending => true,
        });
    }
}
