//! Wakers that panic: the panic comes out where it was met, and nobody else is harmed.

#![cfg(not(any(loom, shuttle)))]

mod completions;

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, block_on, cpu, thread};
use inflight_tags::{
    Admission, AllocError, AllocOptions, HwQueueOptions, NoPreempt, SharePolicy, TagSet, Tenant,
};
use inflight_topology::Topology;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const PLAIN: AllocOptions = AllocOptions::new();

const POLICIES: [fn() -> Admission; 4] = [
    || Admission::WholeIo,
    || Admission::preempt(),
    || Admission::NoPreempt(NoPreempt::default().threshold(0)),
    || Admission::elastic_overcommit(2),
];

/// Runs a test under every policy. A tag that comes back is its waiter's under `WholeIo`, and free
/// under the others, until the waiter is polled.
fn for_each_policy(test: impl Fn(Admission)) {
    POLICIES.iter().for_each(|policy| test(policy()));
}

fn queue(policy: Admission, hw_queues: usize, depth: usize) -> Tenant<()> {
    let set = TagSet::builder().hw_queues(hw_queues).depth(depth);
    let set = set.admission(policy);
    set.build(|_, _| ()).unwrap().add_tenant("q").unwrap()
}

/// Nothing is in use, and as many tags as the depth can be had.
fn assert_whole(dev: &Tenant<()>, depth: usize) {
    assert_eq!(dev.set().in_use(), 0);
    let all: Vec<_> = std::iter::from_fn(|| dev.try_alloc().ok()).collect();
    assert_eq!(all.len(), depth);
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("the waker's panic");
    }
}

#[derive(Default)]
struct Counts(AtomicUsize);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll<F: Future>(
    future: Pin<&mut F>,
    waker: Arc<impl Wake + Send + Sync + 'static>,
) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&Waker::from(waker)))
}

fn assert_panics<R>(f: impl FnOnce() -> R) {
    let message = catch_unwind(AssertUnwindSafe(f)).map(drop).unwrap_err();
    assert_eq!(message.downcast_ref(), Some(&"the waker's panic"));
}

/// The freezer is told although the waker of a submitter panics first.
#[test]
fn h24_a_freezing_task_is_told() {
    for_each_policy(|policy| {
        let dev = queue(policy, 1, 1);
        let set = dev.set();
        let held = dev.try_alloc().unwrap();
        let mut waiter = pin!(dev.alloc());
        assert!(poll(waiter.as_mut(), Arc::new(Panics)).is_pending());
        let told = Arc::new(Counts::default());
        let mut freeze = pin!(set.freeze());
        assert!(poll(freeze.as_mut(), told.clone()).is_pending());
        assert_panics(|| drop(held));
        assert_eq!(told.0.load(Ordering::Relaxed), 1);
        // It gives back what it may have been granted.
        assert!(poll(waiter.as_mut(), told.clone()).is_pending());
        let Poll::Ready(frozen) = poll(freeze.as_mut(), told) else {
            panic!("no tag is in use");
        };
        drop(frozen);
        assert!(block_on(waiter).is_ok());
    });
}

/// The same with a thread that sleeps. Without the telling this test never ends.
#[test]
fn h24_a_freezing_thread_is_told() {
    for_each_policy(|policy| {
        let dev = queue(policy, 1, 1);
        let set = dev.set();
        let held = dev.try_alloc().unwrap();
        let mut waiter = Box::pin(dev.alloc());
        assert!(poll(waiter.as_mut(), Arc::new(Panics)).is_pending());
        let freezer = thread::spawn({
            let set = set.clone();
            move || drop(set.freeze_blocking())
        });
        while !set.is_frozen() {
            thread::yield_now();
        }
        assert_panics(|| drop(held));
        // The freezer waits for what it was granted, and may be through before it is polled out.
        let polled = poll(waiter.as_mut(), Arc::new(Counts::default()));
        freezer.join().unwrap();
        drop(match polled {
            Poll::Ready(tag) => tag.unwrap(),
            Poll::Pending => block_on(waiter).unwrap(),
        });
        assert_whole(&dev, 1);
    });
}

/// A growth, a weight and a tenant that leaves reach all hardware queues.
#[test]
fn all_hardware_queues_change_although_a_waker_panics() {
    let on = |n| PLAIN.hw_queue(n);
    let set = TagSet::builder().hw_queues(2).depth(2).max_depth(4);
    let set = set.share(SharePolicy::Weighted { min: 0 });
    let set: TagSet<()> = set.clock(Clock::manual()).build(|_, _| ()).unwrap();
    for change in 0..3 {
        let (dev, mut others) = (
            set.add_tenant("dev").unwrap(),
            vec![set.add_tenant("other").unwrap()],
        );
        // Both active, one at its limit, with a waiter on each hardware queue.
        drop([0, 1].map(|n| (dev.try_alloc_with(on(n)), others[0].try_alloc_with(on(n)))));
        let held = [0, 1].map(|n| dev.try_alloc_with(on(n)).unwrap());
        let mut waits = [0, 1].map(|n| Box::pin(dev.alloc_with(on(n))));
        let told = Arc::new(Counts::default());
        assert!(poll(waits[0].as_mut(), Arc::new(Panics)).is_pending());
        assert!(poll(waits[1].as_mut(), told.clone()).is_pending());
        assert_panics(|| match change {
            0 => others.clear(),
            1 => dev.set_weight(9).unwrap(),
            _ => set.resize(4).unwrap(),
        });
        assert_eq!(told.0.load(Ordering::Relaxed), 1, "change {change}");
        drop((waits, held));
    }
    assert_eq!((set.depth(), set.in_use()), (4, 0));
    let last = set.add_tenant("last").unwrap();
    let all = [0, 1].map(|n| last.try_alloc_batch_with(9, on(n)).unwrap().len());
    assert_eq!(all, [4; 2]);
}

/// A second tenant makes the first one look again, whose waker panics: all are told, and the tenant
/// is not there.
#[test]
fn a_tenant_does_not_come_if_a_waker_panics() {
    let dev = queue(Admission::preempt(), 2, 1);
    let (set, on) = (dev.set(), |n| PLAIN.hw_queue(n));
    let _held = [0, 1].map(|n| dev.try_alloc_with(on(n)).unwrap());
    let mut waits = [0, 1].map(|n| Box::pin(dev.alloc_with(on(n))));
    let told = Arc::new(Counts::default());
    assert!(poll(waits[0].as_mut(), Arc::new(Panics)).is_pending());
    assert!(poll(waits[1].as_mut(), told.clone()).is_pending());
    assert_panics(|| set.add_tenant("second"));
    assert_eq!(told.0.load(Ordering::Relaxed), 1);
    assert!(set.add_tenant("second").is_ok(), "the name is free");
}

/// A tag that is dropped while its thread unwinds: one panic, and everybody is told.
#[test]
fn a_tag_dropped_by_a_panic_is_freed() {
    for_each_policy(|policy| {
        let dev = queue(policy, 1, 1);
        let held = dev.try_alloc().unwrap();
        let mut waiter = pin!(dev.alloc());
        assert!(poll(waiter.as_mut(), Arc::new(Panics)).is_pending());
        let engine = catch_unwind(AssertUnwindSafe(|| {
            let _held = held;
            panic!("the engine's panic");
        }));
        let message = engine.unwrap_err();
        assert_eq!(message.downcast_ref(), Some(&"the engine's panic"));
        assert!(block_on(waiter).is_ok());
    });
}

/// Many tags dropped at once: all are freed, whichever waker panics, and all others are told.
#[test]
fn a_dropped_batch_is_freed_whole() {
    for_each_policy(|policy| {
        let dev = queue(policy, 1, 4);
        let batch = dev.try_alloc_batch(4);
        let told = Arc::new(Counts::default());
        let mut waiters: Vec<_> = (0..4).map(|_| Box::pin(dev.alloc())).collect();
        for (n, waiter) in waiters.iter_mut().enumerate() {
            let polled = match n {
                0 | 2 => poll(waiter.as_mut(), Arc::new(Panics)),
                _ => poll(waiter.as_mut(), told.clone()),
            };
            assert!(polled.is_pending());
        }
        assert_panics(|| drop(batch));
        assert_eq!(told.0.load(Ordering::Relaxed), 2, "{policy:?}");
        let tags: Vec<_> = waiters.into_iter().map(|w| block_on(w).unwrap()).collect();
        drop(tags);
        assert_whole(&dev, 4);
        let stats = dev.set().stats();
        assert_eq!(stats.allocs, stats.frees);
    });
}

/// A split whose waker panics has its tags all the same, and so has who stands behind it.
#[test]
fn d25_a_split_whose_waker_panics() {
    for_each_policy(|policy| {
        let dev = queue(policy, 1, 4);
        let held = dev.try_alloc_batch(4);
        let mut split = dev.split(6);
        let mut next = Box::pin(split.next());
        assert!(poll(next.as_mut(), Arc::new(Panics)).is_pending());
        let told = Arc::new(Counts::default());
        let mut behind = pin!(dev.alloc());
        assert!(poll(behind.as_mut(), told.clone()).is_pending());
        assert_panics(|| drop(held));
        let mut got = usize::from(block_on(next).unwrap().is_some());
        while block_on(split.next()).unwrap().is_some() {
            got += 1;
        }
        assert_eq!(got, 6, "{policy:?}");
        drop(split);
        assert!(poll(behind.as_mut(), told.clone()).is_ready(), "{policy:?}");
        assert!(told.0.load(Ordering::Relaxed) > 0, "{policy:?}");
        assert_whole(&dev, 4);
    });
}

/// Threads that wait beside a task whose waker panics again and again.
#[test]
fn threads_are_served_beside_wakers_that_panic() {
    for_each_policy(|policy| {
        let dev = queue(policy, 1, 2);
        let rounds = if cfg!(miri) { 5 } else { 200 };
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let dev = dev.clone();
                thread::spawn(move || {
                    for _ in 0..rounds {
                        let tag = dev.alloc_blocking().unwrap();
                        // Its own panic is another's waker's.
                        let _ = catch_unwind(AssertUnwindSafe(|| drop(tag)));
                    }
                })
            })
            .collect();
        for _ in 0..rounds {
            let mut task = Box::pin(dev.alloc());
            // What it is granted goes to others when it is dropped, who may panic too.
            let polled = catch_unwind(AssertUnwindSafe(|| {
                poll(task.as_mut(), Arc::new(Panics)).map(drop)
            }));
            assert!(polled.is_ok(), "nobody else's waker panics");
            drop(task);
        }
        for thread in threads {
            thread.join().unwrap();
        }
        assert_whole(&dev, 2);
    });
}

/// A waiter that moved puts its first bit back, and that waker panics: the second bit goes back
/// too.
#[test]
fn h25_a_waiter_that_moved_loses_no_tag() {
    for_each_policy(|policy| {
        let dev = queue(policy, 2, 1);
        cpu::set_current_for_thread(Some(0));
        let held = dev.try_alloc().unwrap();
        let mut moves = Box::pin(dev.alloc());
        let mut waits = pin!(dev.alloc());
        let woken = Arc::new(Counts::default());
        assert!(poll(moves.as_mut(), woken.clone()).is_pending());
        assert!(poll(waits.as_mut(), Arc::new(Panics)).is_pending());
        drop(held);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        cpu::set_current_for_thread(Some(1));
        assert_panics(|| poll(moves.as_mut(), woken));
        drop(moves);
        drop(block_on(waits).unwrap());
        cpu::set_current_for_thread(None);
        for hwq in 0..2 {
            assert!(dev.try_alloc_with(PLAIN.hw_queue(hwq)).is_ok());
        }
    });
}

/// The waker of a submitter who waits for the thaw.
#[test]
fn a_guard_thaws_although_a_waker_panics() {
    for_each_policy(|policy| {
        let dev = queue(policy, 1, 1);
        let frozen = dev.set().freeze_blocking();
        let mut waiter = pin!(dev.alloc());
        assert!(poll(waiter.as_mut(), Arc::new(Panics)).is_pending());
        assert_panics(|| drop(frozen));
        assert!(!dev.set().is_frozen());
        assert!(block_on(waiter).is_ok());
    });
}

/// An allocation beside the drain of another hardware queue, whose waker panics: both share their
/// tags, so the drain looks again.
#[test]
fn an_allocation_loses_no_tag_if_the_waker_of_a_drain_panics() {
    let topology = Topology::synthetic("core:2").unwrap();
    for_each_policy(|policy| {
        let queues = HwQueueOptions::new(2).shared_tags(true);
        let set = TagSet::builder().hw_queues(queues).topology(&topology);
        let set = set.depth(4).admission(policy).build(|_, _| ()).unwrap();
        let dev = set.add_tenant("q").unwrap();
        let held = dev.try_alloc_with(PLAIN.hw_queue(1)).unwrap();
        assert_eq!(set.cpus().offline(1), [1]);
        let here = PLAIN.hw_queue(0);
        cpu::set_current_for_thread(Some(0));
        let calls: [&dyn Fn(); 5] = [
            &|| drop(dev.try_alloc()),
            &|| drop(dev.try_alloc_with(here)),
            &|| drop(dev.try_alloc_batch(2)),
            &|| drop(dev.alloc_blocking()),
            &|| drop(block_on(dev.alloc_with(here))),
        ];
        for call in calls {
            let mut drain = Box::pin(set.hw_queues().drain(1));
            assert!(poll(drain.as_mut(), Arc::new(Panics)).is_pending());
            assert_panics(call);
            drop(drain);
            let free = dev.try_alloc_batch_with(9, here).unwrap();
            assert_eq!(free.len(), 3, "{policy:?}");
        }
        cpu::set_current_for_thread(None);
        drop(held);
        assert_whole(&dev, 4);
    });
}

/// A freeze that comes too late ends, and wakes the submitter that came meanwhile.
#[test]
fn a_freeze_that_fails_thaws_although_a_waker_panics() {
    for_each_policy(|policy| {
        let (clock, limit) = (Clock::manual(), Duration::from_secs(1));
        let set = TagSet::builder()
            .depth(2)
            .admission(policy)
            .clock(clock.clone());
        let set = set.build(|_, _| ()).unwrap();
        let dev = set.add_tenant("q").unwrap();
        let held = dev.try_alloc().unwrap();
        let freezer = thread::spawn({
            let set = set.clone();
            move || assert_panics(|| set.freeze_timeout(limit))
        });
        while !set.is_frozen() {
            thread::yield_now();
        }
        let mut waiter = Box::pin(dev.alloc());
        assert!(poll(waiter.as_mut(), Arc::new(Panics)).is_pending());
        clock.advance(limit);
        freezer.join().unwrap();
        assert!(!set.is_frozen());
        drop(block_on(waiter).unwrap());
        drop(held);
        assert_whole(&dev, 2);
    });
}

/// The waker of a freezer.
#[test]
fn a_tag_is_freed_although_the_freezers_waker_panics() {
    for_each_policy(|policy| {
        let dev = queue(policy, 1, 2);
        let set = dev.set();
        let tags = dev.try_alloc_batch(2);
        let mut freeze = Box::pin(set.freeze());
        assert!(poll(freeze.as_mut(), Arc::new(Panics)).is_pending());
        assert_panics(|| drop(tags));
        drop(freeze);
        assert!(!set.is_frozen());
        assert_eq!(dev.try_alloc_batch(3).len(), 2);
    });
}

/// An allocation ends its wait, and wakes a freezer whose waker panics. The tag goes back, and the
/// allocation can be polled again.
#[test]
fn an_allocation_goes_on_after_the_freezers_waker_has_panicked() {
    let dev = queue(Admission::WholeIo, 1, 1);
    let set = dev.set();
    let held = dev.try_alloc().unwrap();
    let mut waiter = dev.alloc_owned();
    let told = Arc::new(Counts::default());
    assert!(poll(Pin::new(&mut waiter), told.clone()).is_pending());
    let mut freeze = pin!(set.freeze());
    assert!(poll(freeze.as_mut(), told.clone()).is_pending());
    drop(held);
    assert!(poll(freeze.as_mut(), Arc::new(Panics)).is_pending());
    assert_panics(|| poll(Pin::new(&mut waiter), told.clone()));
    assert!(poll(Pin::new(&mut waiter), told.clone()).is_pending());
    let Poll::Ready(frozen) = poll(freeze.as_mut(), told) else {
        panic!("no tag is in use");
    };
    drop(frozen);
    drop(block_on(waiter).unwrap());
    assert_whole(&dev, 1);
}

/// A waiter for the thaw has a waker that panics; one for a tag of the same set is woken all the
/// same.
#[test]
fn a_close_wakes_all_although_a_waker_panics() {
    for_each_policy(|policy| {
        let dev = queue(policy, 1, 1);
        let _held = dev.try_alloc().unwrap();
        let counts = Arc::new(Counts::default());
        let mut waits = pin!(dev.alloc());
        let waker = Waker::from(counts.clone());
        assert!(
            waits
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        let quiesced = dev.set().quiesce();
        let mut behind = pin!(dev.alloc());
        let panics = Waker::from(Arc::new(Panics));
        assert!(
            behind
                .as_mut()
                .poll(&mut Context::from_waker(&panics))
                .is_pending()
        );
        assert!(catch_unwind(AssertUnwindSafe(|| dev.set().close())).is_err());
        assert!(counts.0.load(Ordering::Relaxed) > 0, "it is told");
        let ended = waits.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(matches!(ended, Poll::Ready(Err(AllocError::Closed))));
        drop(quiesced);
    });
}

/// A split is dropped when a wake worth three tags has chosen it. Others get all three, although
/// the waker of the first of them panics.
#[test]
fn a_dropped_split_passes_its_wakes_on_although_a_waker_panics() {
    // Three tags a wake.
    let dev = queue(POLICIES[2](), 1, 24);
    let mut held = dev.try_alloc_batch(24);
    let told = Arc::new(Counts::default());
    let mut split = dev.split(3);
    let waker = Waker::from(told.clone());
    assert!(
        split
            .poll_next(&mut Context::from_waker(&waker))
            .is_pending()
    );
    let mut first = pin!(dev.alloc());
    assert!(poll(first.as_mut(), Arc::new(Panics)).is_pending());
    let mut others = [(); 2].map(|()| Box::pin(dev.alloc()));
    for other in &mut others {
        assert!(poll(other.as_mut(), told.clone()).is_pending());
    }
    held.truncate(21);
    assert_eq!(told.0.load(Ordering::Relaxed), 1, "the split is chosen");
    assert_panics(|| drop(split));
    assert_eq!(told.0.load(Ordering::Relaxed), 3, "both others are told");
}

/// A join has a tag, and a wake has chosen it for the next one. It is dropped, and keeps none,
/// although the waker to which the wake goes panics.
#[test]
fn a_dropped_join_keeps_no_tag_although_a_waker_panics() {
    let dev = queue(Admission::preempt(), 1, 3);
    let mut held = dev.try_alloc_batch(2);
    let mut split = dev.split(3);
    let told = Arc::new(Counts::default());
    let mut join = Box::pin(split.join());
    let waker = Waker::from(told.clone());
    let polled = join.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    let mut behind = pin!(dev.alloc());
    assert!(poll(behind.as_mut(), Arc::new(Panics)).is_pending());
    held.truncate(1);
    assert_eq!(told.0.load(Ordering::Relaxed), 1, "the join is chosen");
    assert_panics(|| drop(join));
    assert_eq!((dev.set().in_use(), split.remaining()), (1, 3));
}
