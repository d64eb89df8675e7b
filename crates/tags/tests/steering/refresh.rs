//! CPUs that come and go under a set in use: the map, and where completions run.

use crate::support::{Ran, Recorder, on};
use inflight_steering::Router;
use inflight_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use inflight_sync::{Arc, thread};
use inflight_tags::steering::{CompletionSink, Decision, DoneListHandle, InlineReason, Runner};
use inflight_tags::{
    AllocError, AllocOptions, DrainError, HwQueueOptions, QueueKind, Steering, Tag, TagSet,
};
use inflight_topology::{CpuSet, Scope, Topology};
use proptest::prelude::*;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

fn machine(text: &str) -> Topology {
    Topology::synthetic(text).unwrap()
}

fn set_of(topology: Option<&Topology>, hw_queues: usize, polled: usize) -> TagSet<u64> {
    let mut builder = TagSet::builder().hw_queues(HwQueueOptions::new(hw_queues).poll(polled));
    if let Some(topology) = topology {
        builder = builder.topology(topology);
    }
    builder.depth(4).build(|_, _| 0).unwrap()
}

/// What a user can ask of the map.
fn map_of(set: &TagSet<u64>) -> Vec<usize> {
    let kinds = QueueKind::ALL;
    let asked = (0..70).chain([1000, usize::MAX]);
    asked
        .flat_map(|cpu| kinds.map(|kind| set.hw_queues().for_kind(kind, cpu)))
        .chain((0..set.hw_queues().len()).map(|n| usize::from(set.hw_queues().is_active(n))))
        .collect()
}

/// Which hardware queues refuse who wants one that serves a CPU.
fn unmapped(set: &TagSet<u64>) -> Vec<usize> {
    let dev = set.add_tenant("q").unwrap();
    let refused = |&n: &usize| {
        let asked = dev.try_alloc_with(AllocOptions::new().mapped_hw_queue(n));
        matches!(asked, Err(AllocError::Unmapped { .. }))
    };
    (0..set.hw_queues().len()).filter(refused).collect()
}

fn any_machine() -> impl Strategy<Value = Topology> {
    let parts = (1usize..4, 1usize..3, 1usize..5, 1usize..3);
    (parts, prop::collection::vec(any::<bool>(), 70)).prop_map(
        |((nodes, caches, cores, smt), gone)| {
            let cpus = nodes * caches * cores * smt;
            let gone: Vec<_> = (1..cpus)
                .filter(|&n| gone[n])
                .map(|n| n.to_string())
                .collect();
            let mut text = format!("numa:{nodes} cache:{caches} core:{cores} smt:{smt}");
            if !gone.is_empty() {
                text += &format!(" offline:{}", gone.join(","));
            }
            machine(&text)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 200 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever it has been through, the map is that of a set that is built now.
    #[test]
    fn c51_after_a_refresh_the_map_is_that_of_a_new_set(
        first in prop::option::of(any_machine()),
        machines in prop::collection::vec((any_machine(), 2usize..6), 1..5),
        left in prop::collection::vec(0usize..12, 0..4),
    ) {
        let set = TagSet::builder().hw_queues(HwQueueOptions::new(3).max(6).poll(1)).depth(4);
        let set = match &first {
            Some(topology) => set.topology(topology),
            None => set,
        };
        let set = set.build(|_, _| 0u64).unwrap();
        for (topology, hw_queues) in machines {
            set.cpus().refresh(&topology);
            set.set_hw_queues_blocking(hw_queues).unwrap();
            let new = set_of(Some(&topology), hw_queues, 1);
            prop_assert_eq!(map_of(&set), map_of(&new));
            prop_assert_eq!(unmapped(&set), unmapped(&new));
            // Those that leave by hand are told of nothing else.
            for &cpu in &left {
                prop_assert_eq!(set.cpus().offline(cpu), new.cpus().offline(cpu));
                prop_assert_eq!(map_of(&set), map_of(&new));
            }
            for &cpu in &left {
                set.cpus().online(cpu);
            }
        }
    }

    /// Who left by hand stays away.
    #[test]
    fn c48_a_cpu_that_left_by_hand_stays_away(
        topology in any_machine(),
        left in prop::collection::vec(0usize..12, 0..4),
    ) {
        let set = set_of(Some(&machine("core:12")), 4, 0);
        left.iter().for_each(|&cpu| drop(set.cpus().offline(cpu)));
        let (before, turned) = (active(&set), set.cpus().refresh(&topology));
        let after = active(&set);
        let differ: Vec<_> = (0..4).filter(|&n| before[n] != after[n]).collect();
        prop_assert_eq!(turned, differ);
        let new = set_of(Some(&topology), 4, 0);
        left.iter().for_each(|&cpu| drop(new.cpus().offline(cpu)));
        // The last CPU does not leave; here others had left before.
        if (0..4).any(|n| after[n]) && topology.cpus().iter().any(|cpu| !left.contains(&cpu)) {
            prop_assert_eq!(map_of(&set), map_of(&new));
        }
        left.iter().for_each(|&cpu| drop(set.cpus().online(cpu)));
        prop_assert_eq!(map_of(&set), map_of(&set_of(Some(&topology), 4, 0)));
    }
}

fn active(set: &TagSet<u64>) -> Vec<bool> {
    (0..set.hw_queues().len())
        .map(|n| set.hw_queues().is_active(n))
        .collect()
}

#[test]
fn a_set_that_knew_no_machine_gets_one_and_more_cpus_than_it_knew() {
    let set = set_of(None, 2, 0);
    assert_eq!(
        (set.hw_queues().of_cpu(2), set.hw_queues().of_cpu(3)),
        (0, 1)
    );
    assert_eq!(set.cpus().refresh(&machine("core:4")), []);
    assert_eq!(
        [0, 1, 2, 3].map(|cpu| set.hw_queues().of_cpu(cpu)),
        [0, 0, 1, 1]
    );
    set.cpus().refresh(&machine("core:64"));
    assert_eq!(
        [0, 31, 32, 63, 64].map(|cpu| set.hw_queues().of_cpu(cpu)),
        [0, 0, 1, 1, 0]
    );
}

/// A refresh ends the drain of a hardware queue that serves again.
#[test]
fn c49_a_queue_that_gets_other_cpus_serves_again() {
    let set = set_of(Some(&machine("core:4")), 2, 0);
    let dev = set.add_tenant("q").unwrap();
    let held = dev.try_alloc_with(AllocOptions::new().hw_queue(1)).unwrap();
    assert_eq!(
        (set.cpus().offline(2), set.cpus().offline(3)),
        (vec![], vec![1])
    );
    let short = Duration::from_millis(1);
    let drained = set.hw_queues().drain_timeout(1, short);
    assert_eq!(drained, Err(DrainError::TimedOut { hw_queue: 1 }));
    let waits = thread::spawn({
        let set = set.clone();
        move || set.hw_queues().drain_blocking(1)
    });
    assert_eq!(set.cpus().refresh(&machine("core:6")), [1]);
    // It may have come too late to wait at all; the answer is the same.
    assert!(matches!(
        waits.join().unwrap(),
        Err(DrainError::Active { .. })
    ));
    assert!(dev.try_alloc_with(AllocOptions::new().hw_queue(1)).is_ok());
    drop(held);
}

/// The waker of a drain panics: the refresh finishes all the same, and passes the panic on.
#[test]
fn a_refresh_finishes_although_a_waker_panics() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("the waker's panic");
        }
    }
    let before = machine("cache:2 core:2");
    let set = set_of(Some(&before), 2, 0);
    set.set_steering(Steering::SameCpu);
    let dev = set.add_tenant("q").unwrap();
    let ran = Ran::new();
    let completions = set.completions(&before).sink(Recorder::new());
    let completions = completions.build(ran.callback());
    let left = on(0, || dev.try_alloc().unwrap().into_token());
    let left = on(2, || completions.complete(left, |_| ()).unwrap());
    assert_eq!((left.redirect(), ran.count()), (Some(0), 0));
    let _held = dev.try_alloc_with(AllocOptions::new().hw_queue(1)).unwrap();
    let _ = set.cpus().offline(2);
    assert_eq!(set.cpus().offline(3), [1]);
    let mut drain = pin!(set.hw_queues().drain(1));
    let waker = Waker::from(Arc::new(Panics));
    let drained = drain.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(drained.is_pending());
    let refresh = || set.cpus().refresh(&machine("cache:3 core:2 offline:0"));
    let caught = catch_unwind(AssertUnwindSafe(refresh)).unwrap_err();
    assert_eq!(caught.downcast_ref(), Some(&"the waker's panic"));
    assert_eq!(ran.count(), 1, "what was left on the CPU that is gone");
    assert_eq!(set.hw_queues().of_cpu(5), 1);
}

/// The waker of a drain changes the CPUs of its set: no lock is held.
#[test]
fn a_waker_of_a_drain_changes_cpus() {
    struct Changes(TagSet<u64>);
    impl Wake for Changes {
        fn wake(self: Arc<Self>) {
            assert_eq!(self.0.cpus().offline(0), [0]);
        }
    }
    let set = set_of(Some(&machine("core:2")), 2, 0);
    let dev = set.add_tenant("q").unwrap();
    let _held = dev.try_alloc_with(AllocOptions::new().hw_queue(1)).unwrap();
    assert_eq!(set.cpus().offline(1), [1]);
    let mut drain = pin!(set.hw_queues().drain(1));
    let waker = Waker::from(Arc::new(Changes(set.clone())));
    let drained = drain.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(drained.is_pending());
    assert_eq!(set.cpus().online(1), [1]);
    assert!(!set.hw_queues().is_active(0));
}

/// Who waits for the end of a change of the hardware queues changes the CPUs when it is woken: no
/// lock is held.
#[test]
fn a_waiter_changes_cpus_when_the_hardware_queues_have_changed() {
    struct Changes(TagSet<u64>, AtomicBool);
    impl Wake for Changes {
        fn wake(self: Arc<Self>) {
            assert!(self.0.cpus().offline(1).is_empty(), "CPU 0 is left");
            self.1.store(true, Ordering::Relaxed);
        }
    }
    let set = set_of(Some(&machine("core:2")), 2, 0);
    let dev = set.add_tenant("q").unwrap();
    let held = dev.try_alloc().unwrap();
    let mut nobody = Context::from_waker(Waker::noop());
    let mut change = pin!(set.set_hw_queues(1));
    assert!(change.as_mut().poll(&mut nobody).is_pending());
    let changes = Arc::new(Changes(set.clone(), AtomicBool::new(false)));
    let waker = Waker::from(changes.clone());
    let mut alloc = pin!(dev.alloc());
    let waits = alloc.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(waits.is_pending(), "the set is frozen");
    drop(held);
    assert_eq!(change.as_mut().poll(&mut nobody), Poll::Ready(Ok(())));
    assert!(changes.1.load(Ordering::Relaxed));
}

/// Submitters that wait stay in line, and what is out stays where it is.
#[test]
fn who_waits_gets_a_tag_of_the_old_queue_or_of_the_new_one() {
    let set = TagSet::builder()
        .hw_queues(2)
        .depth(1)
        .topology(&machine("core:2"));
    let set = set.build(|_, _| 0u64).unwrap();
    let dev = set.add_tenant("q").unwrap();
    let held = on(1, || dev.try_alloc().unwrap());
    assert_eq!(held.hw_queue(), 1);
    let waiter = thread::spawn({
        let dev = dev.clone();
        move || on(1, || dev.alloc_blocking().unwrap().hw_queue())
    });
    while dev.stats().waits == 0 {
        thread::yield_now();
    }
    set.cpus().refresh(&machine("core:2 offline:0"));
    assert_eq!(set.hw_queues().of_cpu(1), 0);
    let token = held.into_token();
    let tag = set.redeem(token).unwrap();
    assert_eq!(tag.hw_queue(), 1);
    drop(tag);
    // It moves to the queue that serves its CPU now, where a tag is free.
    assert_eq!(waiter.join().unwrap(), 0);
}

#[test]
fn completions_follow_the_cpus_that_are_there() {
    let set = set_of(None, 1, 0);
    set.set_steering(Steering::SameCpu);
    let dev = set.add_tenant("q").unwrap();
    let ran = Ran::new();
    let recorder = Recorder::new();
    let both = machine("cache:2 core:2");
    let completions = set
        .completions(&both)
        .sink(recorder.clone())
        .build(ran.callback());
    let submit = |cpu| on(cpu, || dev.try_alloc().unwrap().into_token());
    let complete = |token| on(0, || completions.complete(token, |_| ()).unwrap());
    let first = complete(submit(2));
    assert_eq!((first.redirect(), ran.count()), (Some(2), 0));
    let late = submit(3);
    set.cpus().refresh(&machine("cache:2 core:2 offline:2-3"));
    assert_eq!(ran.count(), 1, "whoever refreshes runs what was left");
    assert_eq!(complete(late), Decision::Inline(InlineReason::UnknownCpu));
    completions.open_cpu(2); // changes nothing: it is not there
    assert!(complete(submit(2)).is_inline());
    // Back, with the worker it had; and one that nobody knew.
    set.cpus().refresh(&both);
    assert_eq!(complete(submit(2)).redirect(), Some(2));
    set.cpus().refresh(&machine("cache:3 core:2"));
    assert_eq!(complete(submit(5)).redirect(), Some(5));
    recorder.run_all();
    assert_eq!(ran.count(), 5);
    assert_eq!(completions.shard_stats().len(), 6);
    assert_eq!(completions.stats().batched, completions.stats().redirected);
    // Those that are closed for good stay so.
    completions.close();
    set.cpus().refresh(&machine("cache:4 core:2"));
    set.cpus().refresh(&both);
    for cpu in [2, 5, 7] {
        assert!(complete(submit(cpu)).is_inline(), "CPU {cpu}");
    }
}

/// A sink that counts whom it was asked for.
struct Asked(Arc<AtomicUsize>);

struct Nobody;

impl CompletionSink for Asked {
    fn runner(&self, _: &CpuSet, _: DoneListHandle) -> Option<Box<dyn Runner>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Some(Box::new(Nobody))
    }
}

impl Runner for Nobody {
    fn wake(&self, _: usize) -> bool {
        false
    }
}

#[test]
fn a_shard_keeps_its_runner_while_some_of_its_cpus_are_there() {
    let asked = Arc::new(AtomicUsize::new(0));
    let set = set_of(None, 1, 0);
    let completions = set
        .completions(&machine("cache:2 core:4"))
        .scope(Scope::Cache)
        .sink(Asked(asked.clone()))
        .build(drop::<Tag<u64>>);
    let cpus = || {
        let shards = completions.shard_stats().into_iter();
        shards
            .map(|shard| shard.cpus.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (asked.load(Ordering::Relaxed), cpus().join(" ")),
        (2, "0-3 4-7".into())
    );
    for (text, shards, runners) in [
        ("cache:2 core:4 offline:0,5-7", "1-3 4", 2),
        ("cache:2 core:4 offline:4-7", "0-3 4", 2),
        ("cache:3 core:4", "0-3 4-7 8-11", 3),
        ("cache:2 core:4", "0-3 4-7 8-11", 3),
        ("core:8", "0-7 4-7 8-11", 3),
    ] {
        set.cpus().refresh(&machine(text));
        assert_eq!(cpus().join(" "), shards, "{text}");
        assert_eq!(asked.load(Ordering::Relaxed), runners, "{text}");
    }
    // Once the completions are gone nobody is asked any more.
    drop(completions);
    set.cpus().refresh(&machine("cache:9 core:1"));
    assert_eq!(asked.load(Ordering::Relaxed), 3);
}

/// Threads submit and complete while CPUs come and go in every way, and sizes change.
#[test]
fn c50_nothing_is_lost_while_everything_changes() {
    let rounds = if cfg!(miri) { 30 } else { 20_000 };
    let machines = ["core:4", "core:4 offline:1-2", "cache:4 core:2", "core:1"].map(machine);
    let set = TagSet::builder()
        .hw_queues(HwQueueOptions::new(2).max(4))
        .depth(2)
        .max_depth(4);
    let set = set.topology(&machines[0]).build(|_, _| 0u64).unwrap();
    let ran = Ran::new();
    let completions = set.completions(&machines[0]).build(ran.callback());
    let ended = Arc::new(AtomicBool::new(false));
    let submitters: Vec<_> = (0..3)
        .map(|n| {
            let (dev, completions) = (set.add_tenant(format!("{n}")).unwrap(), completions.clone());
            thread::spawn(move || {
                for round in 0..rounds {
                    let cpu = (n + round) % 5;
                    let token = on(cpu, || dev.alloc_blocking().unwrap().into_token());
                    on(n, || completions.complete(token, |_| ()).unwrap());
                }
                completions.tenant_stats(&dev).completed()
            })
        })
        .collect();
    let changer = thread::spawn({
        let (set, ended) = (set.clone(), ended.clone());
        move || {
            for n in 0.. {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                set.cpus().refresh(&machines[n % machines.len()]);
                set.cpus().offline(n % 3);
                set.resize(1 + n % 4).unwrap();
                if n % 3 == 0 {
                    set.set_hw_queues_blocking(1 + n % 4).unwrap();
                }
                set.cpus().online(n % 3);
            }
        }
    });
    for submitter in submitters {
        assert_eq!(submitter.join().unwrap(), rounds as u64);
    }
    ended.store(true, Ordering::Relaxed);
    changer.join().unwrap();
    assert_eq!((ran.count(), set.in_use()), (3 * rounds, 0));
    assert_eq!(completions.stats().completed(), 3 * rounds as u64);
}

/// What nobody runs is freed, all of it, although the waker of one who waits panics.
#[test]
fn completions_that_are_given_up_are_all_freed() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("as the test wants it");
        }
    }
    let set = set_of(None, 1, 0);
    set.set_steering(Steering::Force);
    let dev = set.add_tenant("q").unwrap();
    let old = machine("cache:2 core:1");
    let ran = Ran::new();
    let router = Router::new(old, Scope::Cpu, Recorder::new(), ran.callback());
    let tokens = on(1, || {
        [(); 4].map(|()| dev.try_alloc().unwrap().into_token())
    });
    for token in tokens {
        on(0, || router.complete(set.redeem(token).unwrap()));
    }
    let waker = Waker::from(Arc::new(Panics));
    let mut waits = Box::pin(dev.alloc());
    let polled = waits.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    let left = router.refresh(&machine("cache:2 core:1 offline:1"));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(left))).is_err());
    drop(waits);
    assert_eq!((ran.count(), set.in_use()), (0, 0));
}
