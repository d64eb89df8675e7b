//! Sets that change while they are used, and sets whose hardware queues share their tags.

#![cfg(not(any(loom, shuttle)))]

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, Mutex, block_on, cpu, thread};
use inflight_tags::{
    Admission, AllocError, AllocOptions, DrainError, HwQueueOptions, RedeemError, ResizeError,
    TagSet, Tenant,
};
use inflight_topology::Topology;
use std::collections::BTreeSet;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

const POLICIES: [Admission; 2] = [Admission::WholeIo, Admission::preempt()];

fn on(hw_queue: usize) -> AllocOptions {
    AllocOptions::new().hw_queue(hw_queue)
}

/// The hang of those who let each queue wait for its own frees.
#[test]
fn a_tag_freed_on_one_queue_wakes_a_waiter_on_another() {
    for admission in POLICIES {
        let set = TagSet::builder()
            .depth(1)
            .hw_queues(HwQueueOptions::new(2).shared_tags(true));
        let set = set.admission(admission).build(|_, _| ()).unwrap();
        let (a, b) = (set.add_tenant("a").unwrap(), set.add_tenant("b").unwrap());
        let held = a.try_alloc_with(on(0)).unwrap();
        // A task waits on B; nothing else runs.
        let mut waiter = pin!(b.alloc_with(on(1)));
        let polled = waiter
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        drop(held);
        let tag = block_on(waiter).unwrap();
        assert_eq!((tag.hw_queue(), tag.index()), (1, 0));
        // And a thread.
        let sleeper = thread::spawn(move || a.alloc_blocking_with(on(0)).unwrap().hw_queue());
        while set.stats().waits < 2 {
            thread::yield_now();
        }
        drop(tag);
        assert_eq!(sleeper.join().unwrap(), 0);
    }
}

#[test]
fn shared_tags_are_unique_and_seen_once() {
    let set = TagSet::builder().depth(6).reserved(2);
    let set = set
        .hw_queues(HwQueueOptions::new(3).shared_tags(true))
        .build(|hwq, tag| (hwq, tag))
        .unwrap();
    assert_eq!(
        (set.depth(), set.capacity(), set.hw_queues().len()),
        (6, 6, 3)
    );
    let dev = set.add_tenant("q").unwrap();
    let mut tags: Vec<_> = (0..4)
        .map(|i| dev.try_alloc_with(on(i % 3)).unwrap())
        .collect();
    assert_eq!(
        dev.try_alloc_with(on(2)).unwrap_err(),
        AllocError::Exhausted
    );
    tags.extend((1..3).map(|i| dev.try_alloc_with(on(i).reserved()).unwrap()));
    let numbers: BTreeSet<_> = tags.iter().map(|tag| tag.index()).collect();
    assert_eq!(numbers, (0..6).collect());
    let expected: BTreeSet<_> = tags.iter().map(|tag| tag.unique()).collect();
    let tokens: Vec<_> = tags.into_iter().map(|tag| tag.into_token()).collect();
    let mut seen = BTreeSet::new();
    set.for_each_in_flight(|t| {
        assert!(seen.insert((t.hw_queue() << 16 | t.index()) as u32), "once");
    });
    assert_eq!(seen, expected);
    for token in tokens {
        let tag = set.redeem(token).unwrap();
        assert_eq!(*tag, (0, tag.index()), "one table of slots");
    }
}

/// A waiter whose CPU has changed keeps its shared tag, which now counts for the new queue.
#[test]
fn a_shared_tag_moves_with_its_waiter() {
    let set = TagSet::builder()
        .depth(1)
        .hw_queues(HwQueueOptions::new(2).shared_tags(true));
    let set = set.build(|_, _| ()).unwrap();
    let dev = set.add_tenant("q").unwrap();
    let held = dev.try_alloc_with(on(0)).unwrap();
    cpu::set_current_for_thread(Some(0));
    let mut waiter = pin!(dev.alloc());
    let polled = waiter
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
    cpu::set_current_for_thread(Some(1));
    drop(held);
    assert_eq!(block_on(waiter).unwrap().hw_queue(), 1);
    cpu::set_current_for_thread(None);
}

/// Without the check these calls wait for their own caller.
#[test]
fn a_build_closure_that_changes_its_own_set_panics_and_one_that_changes_another_does_not() {
    type Change = fn(&TagSet<()>) -> bool;
    let changes: [Change; 4] = [
        |set| set.resize(2).is_ok(),
        |set| set.set_hw_queues_blocking(2).is_ok(),
        |set| set.cpus().offline(0).is_empty(),
        |set| {
            set.cpus()
                .refresh(&Topology::synthetic("core:2").unwrap())
                .is_empty()
        },
    ];
    for change in changes {
        let own = Arc::new(Mutex::new(None::<TagSet<()>>));
        let other = TagSet::builder()
            .depth(1)
            .max_depth(2)
            .hw_queues(HwQueueOptions::new(1).max(2));
        let other = other.build(|_, _| ()).unwrap();
        let set = TagSet::builder()
            .depth(1)
            .max_depth(3)
            .hw_queues(HwQueueOptions::new(1).max(2));
        let set = set.build({
            let own = own.clone();
            move |_, tag| {
                change(&other);
                let own = own.lock().clone();
                if let (1, Some(own)) = (tag, own) {
                    change(&own);
                }
            }
        });
        let set = set.unwrap();
        let held = set.add_tenant("q").unwrap().try_alloc_with(on(0)).unwrap();
        *own.lock() = Some(set.clone());
        let grown = catch_unwind(AssertUnwindSafe(|| set.resize(3)));
        let message = grown.unwrap_err();
        let message = message.downcast_ref::<&str>().unwrap();
        assert!(message.contains("its own set"), "{message}");
        assert_eq!((set.depth(), set.hw_queues().len()), (1, 1), "as it was");
        assert!(!set.is_frozen());
        *own.lock() = None;
        set.resize(3).unwrap();
        drop(held);
        set.set_hw_queues_blocking(2).unwrap();
    }
}

/// The same through the build closure of another set.
#[test]
fn a_build_closure_that_changes_its_own_set_by_way_of_another_panics() {
    let own = Arc::new(Mutex::new(None::<TagSet<()>>));
    let growing = |build: Box<dyn Fn(usize) + Send + Sync>| {
        let set = TagSet::builder().depth(1).max_depth(2);
        set.build(move |_, tag| build(tag)).unwrap()
    };
    let other = growing({
        let own = own.clone();
        Box::new(move |tag| {
            let own = own.lock().clone();
            if let (1, Some(own)) = (tag, own) {
                let _ = own.resize(2);
            }
        })
    });
    let set = growing(Box::new(move |tag| {
        if tag == 1 {
            let _ = other.resize(2);
        }
    }));
    *own.lock() = Some(set.clone());
    let message = catch_unwind(AssertUnwindSafe(|| set.resize(2))).unwrap_err();
    let message = message.downcast_ref::<&str>().unwrap();
    assert!(message.contains("its own set"), "{message}");
    *own.lock() = None;
}

/// The tags beyond the depth of a hardware queue that comes later have data too.
#[test]
fn d9_a_new_hardware_queue_has_its_extra_tags() {
    for shared in [false, true] {
        let set = TagSet::builder()
            .depth(1)
            .max_depth(3)
            .hw_queues(HwQueueOptions::new(1).max(4).shared_tags(shared));
        let set = set.admission(Admission::elastic_overcommit(2));
        let set = set.build(|_, tag| Arc::new(tag)).unwrap();
        let dev = set.add_tenant("q").unwrap();
        set.set_hw_queues_blocking(4).unwrap();
        let mut split = dev.split_with(3, on(3));
        let mut tags = Vec::new();
        for tag in [0, 3, 4] {
            let piece = split.try_next().unwrap().expect("it has three pieces");
            assert_eq!((**piece, piece.index()), (tag, tag));
            assert_eq!(Arc::strong_count(&piece), 1);
            tags.push(piece);
        }
    }
}

#[test]
fn hardware_queues_come_and_go() {
    let set = TagSet::builder()
        .hw_queues(HwQueueOptions::new(1).max(4))
        .depth(2);
    let set = set.build(|hwq, _| hwq).unwrap();
    let dev = set.add_tenant("q").unwrap();
    set.set_hw_queues_blocking(4).unwrap();
    let cpus: BTreeSet<_> = (0..8).map(|cpu| set.hw_queues().of_cpu(cpu)).collect();
    assert_eq!(cpus, (0..4).collect());
    assert_eq!((set.hw_queues().len(), set.capacity()), (4, 8));
    let token = dev.try_alloc_with(on(3)).unwrap().into_token();
    // The change waits for what is in flight.
    let changer = thread::spawn({
        let set = set.clone();
        move || set.set_hw_queues_blocking(2)
    });
    while !set.is_frozen() {
        thread::yield_now();
    }
    assert_eq!(set.hw_queues().len(), 4);
    // A waiter for a queue that goes away is told so.
    let waiter = thread::spawn({
        let dev = dev.clone();
        move || dev.alloc_blocking_with(on(3)).map(|tag| tag.hw_queue())
    });
    drop(set.redeem(token).unwrap());
    changer.join().unwrap().unwrap();
    assert!(matches!(
        waiter.join().unwrap(),
        Ok(3) | Err(AllocError::NoSuchHwQueue { .. })
    ));
    assert!((0..8).all(|cpu| set.hw_queues().of_cpu(cpu) < 2));
    assert_eq!(
        set.redeem(token).unwrap_err(),
        RedeemError::Stale {
            token: token.into()
        }
    );
    assert!(matches!(
        dev.try_alloc_with(on(2)).unwrap_err(),
        AllocError::NoSuchHwQueue { .. }
    ));
    let error = ResizeError::HwQueues {
        hw_queues: 5,
        most: 4,
    };
    assert_eq!(set.set_hw_queues_blocking(5), Err(error));
    assert!(set.set_hw_queues_blocking(0).is_err());
}

/// A set that says nothing of its limits may double its hardware queues, if it has several.
#[test]
fn hardware_queues_may_double_if_nothing_else_is_said() {
    let most = |first: usize, depth: usize| {
        let set = TagSet::builder().hw_queues(first).depth(depth);
        let set = set.build(|_, _| ()).unwrap();
        match set.set_hw_queues_blocking(usize::MAX).unwrap_err() {
            ResizeError::HwQueues { most, .. } => most,
            other => panic!("{other}"),
        }
    };
    assert_eq!((most(1, 1), most(2, 1), most(5, 3)), (1, 4, 10));
    if !cfg!(miri) {
        // For Miri that is too many slots.
        let most = (most(8, 4096), most(9, 4096));
        assert_eq!(most, (16, 9), "no more than 65,536 tags");
    }
    let set = TagSet::builder().hw_queues(HwQueueOptions::new(4).max(4));
    assert!(
        set.build(|_, _| ())
            .unwrap()
            .set_hw_queues_blocking(5)
            .is_err()
    );

    // It is the same set afterwards, with tags on the new ones, made by the closure.
    let set = TagSet::builder().hw_queues(2).depth(2);
    let set = set.build(|hwq, tag| (hwq, tag)).unwrap();
    set.set_hw_queues_blocking(4).unwrap();
    let dev = set.add_tenant("q").unwrap();
    let last = dev.try_alloc_with(AllocOptions::new().hw_queue(3)).unwrap();
    assert_eq!((last.0, set.capacity()), (3, 8));
}

/// A set shows what it is, not only what it may become.
#[test]
fn debug_shows_the_present_size() {
    let set = TagSet::builder()
        .depth(7)
        .max_depth(90)
        .hw_queues(HwQueueOptions::new(1).max(5));
    let set = set.build(|_, _| ()).unwrap();
    let shown = format!("{set:?}");
    assert!(
        shown.contains("TagSet { hw_queues: 1, depth: 7,"),
        "{shown}"
    );
}

/// The hook runs before a submitter waits, and what it frees is had without a wait.
#[test]
fn the_hook_runs_before_a_wait() {
    let calls = Arc::new(AtomicUsize::new(0));
    let held = Arc::new(Mutex::new(Vec::new()));
    let set = TagSet::builder().hw_queues(2).depth(1).before_wait({
        let (calls, held) = (calls.clone(), held.clone());
        move |hwq| {
            assert_eq!(hwq, 1);
            calls.fetch_add(1, Ordering::Relaxed);
            held.lock().pop();
        }
    });
    let set = set.build(|_, _| ()).unwrap();
    let dev = set.add_tenant("q").unwrap();
    held.lock().push(dev.alloc_blocking_with(on(1)).unwrap());
    assert_eq!(
        dev.try_alloc_with(on(1)).unwrap_err(),
        AllocError::Exhausted
    );
    assert_eq!(calls.load(Ordering::Relaxed), 0, "a try does not wait");
    let tag = dev.alloc_blocking_with(on(1)).unwrap();
    held.lock().push(tag);
    let tag = block_on(dev.alloc_with(on(1))).unwrap();
    assert_eq!((calls.load(Ordering::Relaxed), dev.stats().waits), (2, 0));
    // It frees nothing: the submitter waits.
    let waiter = thread::spawn(move || drop(dev.alloc_blocking_with(on(1)).unwrap()));
    while set.stats().waits == 0 {
        thread::yield_now();
    }
    drop(tag);
    waiter.join().unwrap();
}

/// A wait in the hook does not call the hook of its set again, but that of another set.
#[test]
fn a_wait_in_the_hook() {
    let calls = Arc::new(AtomicUsize::new(0));
    let other: Arc<Mutex<Option<Tenant<()>>>> = Arc::default();
    let hooked = |within: Arc<Mutex<Option<Tenant<()>>>>| {
        let calls = calls.clone();
        let set = TagSet::builder().depth(1).before_wait(move |_| {
            calls.fetch_add(1, Ordering::Relaxed);
            let within = within.lock().clone();
            if let Some(tenant) = within {
                let forms = [
                    tenant.alloc_timeout(Duration::ZERO).map(drop),
                    tenant.split(1).next_timeout(Duration::ZERO).map(drop),
                ];
                assert_eq!(forms, [Err(AllocError::TimedOut); 2]);
            }
        });
        set.build(|_, _| ()).unwrap().add_tenant("q").unwrap()
    };
    let first: Arc<Mutex<Option<Tenant<()>>>> = Arc::default();
    let (a, b) = (hooked(other.clone()), hooked(first.clone()));
    let _held = (a.try_alloc().unwrap(), b.try_alloc().unwrap());
    // A's hook waits for a tag of A.
    *other.lock() = Some(a.clone());
    for calls_so_far in 1..=3 {
        let late = a.alloc_timeout(Duration::ZERO).map(drop);
        assert_eq!(late, Err(AllocError::TimedOut));
        assert_eq!(calls.load(Ordering::Relaxed), calls_so_far);
    }
    // A's hook waits for tags of B, twice, and B's for tags of A.
    (*other.lock(), *first.lock()) = (Some(b.clone()), Some(a.clone()));
    calls.store(0, Ordering::Relaxed);
    assert!(a.alloc_timeout(Duration::ZERO).is_err());
    assert_eq!(calls.load(Ordering::Relaxed), 3);
    // The sets would keep each other.
    (*other.lock(), *first.lock()) = (None, None);
}

/// After a panic of the hook the next wait calls it.
#[test]
fn a_hook_that_panics_is_called_again() {
    let set = TagSet::builder().depth(1).before_wait(|_| panic!("hook"));
    let dev = set.build(|_, _| ()).unwrap().add_tenant("q").unwrap();
    let _held = dev.try_alloc().unwrap();
    for _ in 0..2 {
        let wait = || dev.alloc_timeout(Duration::ZERO).map(drop);
        let panic = catch_unwind(AssertUnwindSafe(wait)).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"hook"));
    }
}

/// A submitter that meets a freeze holds requests that it has collected: it submits them before it
/// waits for the thaw, which else would wait for it.
#[test]
fn the_hook_runs_before_a_wait_for_the_thaw() {
    let held = Arc::new(Mutex::new(Vec::new()));
    let set = TagSet::builder().depth(4).reserved(1).before_wait({
        let held = held.clone();
        move |hwq| {
            assert_eq!(hwq, 0);
            held.lock().clear();
        }
    });
    let set = set.build(|_, _| ()).unwrap();
    let dev = set.add_tenant("q").unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    for form in 0..5 {
        held.lock().push(dev.alloc_blocking().unwrap());
        let mut freeze = pin!(set.freeze());
        assert!(freeze.as_mut().poll(&mut cx).is_pending(), "one is held");
        let mut split = dev.split(2);
        match form {
            0 => assert!(pin!(dev.alloc()).poll(&mut cx).is_pending()),
            1 => assert!(pin!(split.next()).poll(&mut cx).is_pending()),
            2 => assert!(pin!(split.join()).poll(&mut cx).is_pending()),
            3 => {
                let late = dev.alloc_timeout_with(Duration::ZERO, AllocOptions::new().reserved());
                assert_eq!(late.unwrap_err(), AllocError::TimedOut);
            }
            _ => {
                let late = split.next_timeout(Duration::ZERO);
                assert_eq!(late.unwrap_err(), AllocError::TimedOut);
            }
        }
        assert!(held.lock().is_empty(), "form {form}");
        assert!(freeze.as_mut().poll(&mut cx).is_ready());
    }
}

/// The recipe of docs/tags.md: requests whose completion submits another, which has a reserved tag.
#[test]
fn an_io_that_needs_tags_to_finish_an_io() {
    let set = TagSet::builder().depth(5).reserved(1);
    let set = set.build(|_, _| ()).unwrap();
    let dev = set.add_tenant("q").unwrap();
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let (set, dev) = (set.clone(), dev.clone());
            thread::spawn(move || {
                for _ in 0..50 {
                    let outer = dev.alloc_blocking().unwrap();
                    let inner = AllocOptions::new().reserved();
                    let inner = dev.alloc_blocking_with(inner).unwrap().into_token();
                    drop(set.redeem(inner).unwrap());
                    drop(outer);
                }
            })
        })
        .collect();
    workers
        .into_iter()
        .for_each(|worker| worker.join().unwrap());
    assert_eq!((set.in_use(), dev.stats().allocs), (0, 800));
}

/// One waits for the requests that are out; the others need not.
#[test]
fn whoever_changes_something_else_does_not_wait_for_requests() {
    let topology = Topology::synthetic("core:4").unwrap();
    let set = TagSet::builder()
        .hw_queues(HwQueueOptions::new(2).max(4))
        .depth(2);
    let set = set.topology(&topology).build(|_, _| ()).unwrap();
    let dev = set.add_tenant("q").unwrap();
    let held = dev.try_alloc().unwrap();
    let changer = thread::spawn({
        let set = set.clone();
        move || set.set_hw_queues_blocking(4)
    });
    while !set.is_frozen() {
        thread::yield_now();
    }
    set.resize(1).unwrap();
    assert_eq!(
        (set.cpus().offline(0), set.cpus().offline(1)),
        (vec![], vec![0])
    );
    assert_eq!(
        set.cpus().refresh(&Topology::synthetic("core:6").unwrap()),
        [0]
    );
    assert_eq!(set.hw_queues().len(), 2);
    drop(held);
    changer.join().unwrap().unwrap();
    assert_eq!((set.hw_queues().len(), set.depth()), (4, 1));
    assert_eq!(set.hw_queues().of_cpu(5), 3);
}

#[test]
fn a_timed_change_gives_up_and_leaves_everything_as_it_was() {
    let set = TagSet::builder().hw_queues(2).depth(2);
    let set = set.build(|_, _| ()).unwrap();
    let dev = set.add_tenant("q").unwrap();
    let token = dev.try_alloc().unwrap().into_token();
    let refused = set.set_hw_queues_timeout(1, Duration::ZERO);
    assert_eq!(refused, Err(ResizeError::TimedOut));
    assert_eq!((set.hw_queues().len(), set.is_frozen()), (2, false));
    assert!(set.set_hw_queues_timeout(9, Duration::ZERO).is_err());
    assert_eq!(
        set.set_hw_queues_timeout(2, Duration::ZERO),
        Ok(()),
        "it is so"
    );
    drop(set.redeem(token).unwrap());
    assert_eq!(set.set_hw_queues_timeout(1, Duration::ZERO), Ok(()));
}

/// A drain that is overtaken by a change that takes the queue away does not call it active.
#[test]
fn a_queue_that_vanishes_under_its_drain_is_drained_or_gone() {
    for _ in 0..20 {
        let topology = Topology::synthetic("core:2").unwrap();
        let set = TagSet::builder().hw_queues(2).depth(1).topology(&topology);
        let set = set.build(|_, _| ()).unwrap();
        let dev = set.add_tenant("q").unwrap();
        let held = dev.try_alloc_with(AllocOptions::new().hw_queue(1)).unwrap();
        set.cpus().offline(1);
        let drains = thread::spawn({
            let set = set.clone();
            move || set.hw_queues().drain_blocking(1)
        });
        drop(held);
        set.set_hw_queues_blocking(1).unwrap();
        let drained = drains.join().unwrap();
        assert!(
            matches!(drained, Ok(()) | Err(DrainError::NoSuchHwQueue { .. })),
            "{drained:?}"
        );
    }
}
