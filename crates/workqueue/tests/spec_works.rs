//! What the specification says of single works, tried with everything at once.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, Mutex, thread};
use inflight_topology::{Scope, Topology};
use inflight_workqueue::{
    Attrs, DelayedWork, DisableError, EnableError, Modified, QueueError, Queued, WaitError, Work,
    Workqueue, WorkqueueSystem, current_work,
};
use std::time::Duration;
use support::{
    Inside, Level, Log, bound, builder, counting, every_kind, held_work, one_cpu, system,
};

fn totals(queues: &[Workqueue]) -> (u64, u64, u64) {
    queues.iter().fold((0, 0, 0), |sum, wq| {
        let stats = wq.stats();
        (
            sum.0 + stats.queued,
            sum.1 + stats.completed,
            sum.2 + stats.cancelled,
        )
    })
}

#[test]
fn a_work_never_runs_twice_at_once_whatever_is_done_to_it() {
    for sampling in [false, true] {
        let systems = [
            builder().sampling(sampling).build().unwrap(),
            one_cpu().sampling(sampling).build().unwrap(),
        ];
        let queues: Vec<_> = systems.iter().flat_map(every_kind).collect();
        let runs = Level::new();
        let works: Vec<Work> = (0..3)
            .map(|_| {
                let (inside, runs) = (Inside::new(), runs.clone());
                Work::new(move || {
                    inside.enter();
                    for _ in 0..fastrand::usize(..200) {
                        std::hint::spin_loop();
                    }
                    assert_eq!(inside.most(), 1, "twice at once");
                    runs.raise();
                    inside.leave();
                })
            })
            .collect();
        thread::scope(|scope| {
            for seed in 0..4 {
                let (works, queues, systems) = (&works, &queues, &systems);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed);
                    for _ in 0..400 {
                        let work = &works[rng.usize(..works.len())];
                        let wq = &queues[rng.usize(..queues.len())];
                        match rng.usize(..16) {
                            0..=6 => {
                                wq.queue(work).unwrap();
                            }
                            7 => match wq.queue_on(rng.usize(..4), work) {
                                Ok(_) | Err(QueueError::NoSuchCpu(_)) => {}
                                other => panic!("{other:?}"),
                            },
                            8 | 9 => {
                                work.cancel();
                            }
                            10 => {
                                work.cancel_sync_blocking().unwrap();
                            }
                            11 => {
                                work.disable_sync_blocking().unwrap();
                                work.enable().unwrap();
                            }
                            12 => {
                                work.flush_timeout(Duration::from_micros(50)).ok();
                            }
                            13 => {
                                let scope = [Scope::Cpu, Scope::Cache, Scope::System];
                                let _ = wq.set_attrs(Attrs::new().scope(scope[rng.usize(..3)]));
                            }
                            14 => {
                                let frozen = systems[rng.usize(..2)].freeze();
                                thread::yield_now();
                                drop(frozen);
                            }
                            _ => {
                                wq.flush_timeout(Duration::from_micros(100)).ok();
                            }
                        }
                    }
                });
            }
        });
        for wq in &queues {
            wq.flush_blocking().unwrap();
            assert_eq!(wq.stats().panicked, 0);
        }
        for work in &works {
            work.flush_blocking().unwrap();
            assert!(!work.is_pending() && !work.is_running());
        }
        for wq in &queues {
            wq.drain_blocking().unwrap();
        }
        let (queued, completed, cancelled) = totals(&queues);
        assert_eq!(queued, completed + cancelled);
        assert_eq!(completed as usize, runs.get());
    }
}

/// A5, also through several queues at once.
#[test]
fn who_hears_already_pending_is_seen_by_the_pending_run() {
    let sys = builder().build().unwrap();
    let queues = Arc::new(every_kind(&sys));
    let (news, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let work = Work::new({
        let (news, seen) = (news.clone(), seen.clone());
        move || {
            let now = news.load(Ordering::Relaxed);
            seen.fetch_max(now, Ordering::Relaxed);
        }
    });
    thread::scope(|scope| {
        for seed in 0..3 {
            let (queues, news, seen, work) = (&queues, &news, &seen, &work);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                for _ in 0..1000 {
                    let mine = news.fetch_add(1, Ordering::Relaxed) + 1;
                    let wq = &queues[rng.usize(..queues.len())];
                    wq.queue(work).unwrap();
                    work.flush_blocking().unwrap();
                    assert!(seen.load(Ordering::Relaxed) >= mine);
                }
            });
        }
    });
}

#[test]
fn after_cancel_sync_nothing_runs_though_the_work_queues_itself_elsewhere() {
    let sys = builder().build().unwrap();
    let queues = Arc::new(every_kind(&sys));
    for round in 0..60 {
        let runs = Level::new();
        let work = Work::new({
            let (runs, queues) = (runs.clone(), queues.clone());
            move || {
                runs.raise();
                let next = &queues[runs.get() % queues.len()];
                next.queue(&current_work().unwrap()).unwrap();
            }
        });
        queues[round % queues.len()].queue(&work).unwrap();
        runs.wait(1 + round % 5);
        work.cancel_sync_blocking().unwrap();
        let then = runs.get();
        assert!(!work.is_pending() && !work.is_running());
        for wq in queues.iter() {
            wq.flush_blocking().unwrap();
        }
        assert_eq!(runs.get(), then);
        assert!(queues[0].queue(&work).unwrap().is_queued(), "usable");
        runs.wait(then + 3);
        work.disable_sync_blocking().unwrap();
        let then = runs.get();
        assert_eq!(queues[1].queue(&work), Ok(Queued::Disabled));
        for wq in queues.iter() {
            wq.flush_blocking().unwrap();
        }
        assert_eq!(runs.get(), then);
    }
}

#[test]
fn waits_for_oneself_through_a_nested_call_are_errors() {
    let sys = system();
    let other = system();
    let outer = sys.workqueue("outer").ordered().build().unwrap();
    let inner = sys
        .workqueue("inner")
        .unbound(Attrs::new())
        .build()
        .unwrap();
    let far = other
        .workqueue("far")
        .unbound(Attrs::new())
        .build()
        .unwrap();
    let log = Log::new();
    let this: Arc<Mutex<Option<Work>>> = Arc::default();
    let work = Work::new({
        let (this, log, outer, inner, far) = (
            this.clone(),
            log.clone(),
            outer.clone(),
            inner.clone(),
            far.clone(),
        );
        move || {
            let work = this.lock().clone().unwrap();
            let (log, outer, far) = (log.clone(), outer.clone(), far.clone());
            inner
                .call_blocking(move || {
                    far.call_blocking(move || {
                        log.push(work.flush_blocking().map(|_| ()));
                        log.push(work.cancel_sync_blocking().map(|_| ()));
                        log.push(work.disable_sync_blocking().map(|_| ()).map_err(|e| {
                            assert_eq!(e, DisableError::WouldDeadlock);
                            WaitError::WouldDeadlock
                        }));
                        log.push(outer.flush_blocking());
                        log.push(outer.drain_blocking());
                        log.push(outer.destroy_blocking());
                        let later = Work::new(|| ());
                        assert!(outer.queue(&later).unwrap().is_queued());
                        log.push(later.flush_blocking().map(|_| ()));
                        assert!(current_work().is_none());
                    })
                    .unwrap();
                })
                .unwrap();
        }
    });
    *this.lock() = Some(work.clone());
    outer.queue(&work).unwrap();
    outer.flush_blocking().unwrap();
    assert_eq!(log.entries(), vec![Err(WaitError::WouldDeadlock); 7]);
    assert_eq!(outer.queue(&work), Ok(Queued::Queued));
    outer.flush_blocking().unwrap();
}

#[test]
fn cancel_sync_of_a_neighbour_in_an_ordered_queue_ends() {
    let sys = system();
    let wq = sys.workqueue("ordered").ordered().build().unwrap();
    let log = Log::new();
    let runs = Level::new();
    let next = counting(&runs);
    let first = {
        let (wq, next, log) = (wq.clone(), next.clone(), log.clone());
        Work::new(move || {
            assert!(wq.queue(&next).unwrap().is_queued());
            log.push(next.cancel_sync_blocking());
            assert!(wq.queue(&next).unwrap().is_queued());
            log.push(
                next.disable_sync_blocking()
                    .map_err(|_| WaitError::TimedOut),
            );
            log.push(next.enable().map_err(|_| WaitError::TimedOut));
            assert!(wq.queue(&next).unwrap().is_queued());
            log.push(next.flush_blocking());
            log.push(next.flush_timeout(Duration::MAX));
        })
    };
    wq.queue(&first).unwrap();
    wq.flush_blocking().unwrap();
    wq.drain_blocking().unwrap();
    assert_eq!(
        log.entries(),
        [
            Ok(true),
            Ok(true),
            Ok(true),
            Err(WaitError::WouldDeadlock),
            Err(WaitError::WouldDeadlock)
        ]
    );
    assert_eq!(runs.get(), 1);
}

#[test]
fn disable_counts_to_65535_and_back() {
    let sys = system();
    let wq = bound(&sys);
    let runs = Level::new();
    let work = counting(&runs);
    assert!(work.enable().is_err());
    assert_eq!(wq.enable_and_queue(&work), Err(EnableError::NotDisabled));
    for _ in 0..65_535 {
        assert_eq!(work.disable(), Ok(false));
    }
    assert_eq!(work.disable(), Err(DisableError::DepthOverflow));
    assert_eq!(
        work.disable_sync_blocking(),
        Err(DisableError::DepthOverflow)
    );
    assert_eq!(
        work.disable_sync_timeout(Duration::ZERO),
        Err(DisableError::DepthOverflow)
    );
    // There is no level left for it.
    assert_eq!(work.cancel_sync_blocking(), Ok(false));
    assert_eq!(work.cancel_sync_timeout(Duration::ZERO), Ok(false));
    assert_eq!(wq.queue(&work), Ok(Queued::Disabled));
    for _ in 0..65_534 {
        assert_eq!(work.enable(), Ok(false));
    }
    assert_eq!(wq.enable_and_queue(&work), Ok(Queued::Queued));
    work.flush_blocking().unwrap();
    assert_eq!(runs.get(), 1);
    assert!(work.enable().is_err());
}

#[test]
fn a_work_that_disables_itself_runs_no_more_until_enabled() {
    let sys = system();
    for wq in every_kind(&sys) {
        let runs = Level::new();
        let work = Work::new({
            let (runs, wq) = (runs.clone(), wq.clone());
            move || {
                let me = current_work().unwrap();
                assert!(wq.queue(&me).unwrap().is_queued());
                assert_eq!(me.disable(), Ok(true), "takes back what is pending");
                assert_eq!(wq.queue(&me), Ok(Queued::Disabled));
                runs.raise();
            }
        });
        wq.queue(&work).unwrap();
        wq.drain_blocking().unwrap();
        assert_eq!((runs.get(), wq.stats().panicked), (1, 0), "{}", wq.name());
        assert_eq!(wq.enable_and_queue(&work), Ok(Queued::Queued));
        wq.drain_blocking().unwrap();
        assert_eq!((runs.get(), wq.stats().panicked), (2, 0), "{}", wq.name());
    }
}

#[test]
fn delays_of_any_length_can_be_set_moved_and_taken_back() {
    let sys = system();
    for wq in every_kind(&sys) {
        let runs = Level::new();
        let work = DelayedWork::new({
            let runs = runs.clone();
            move || runs.raise()
        });
        let lengths = [
            Duration::MAX,
            Duration::from_secs(u64::MAX),
            Duration::from_secs(u64::MAX / 2),
            Duration::from_secs(i64::MAX as u64 + 1),
            Duration::from_nanos(u64::MAX),
            Duration::from_secs(1 << 40),
        ];
        for length in lengths {
            assert_eq!(wq.queue_delayed(&work, length), Ok(Queued::Queued));
            assert_eq!(
                wq.queue_delayed(&work, Duration::ZERO),
                Ok(Queued::AlreadyPending)
            );
            assert_eq!(wq.mod_delayed(&work, length), Ok(Modified::Moved));
            assert!(work.is_pending());
            assert!(work.cancel());
            assert_eq!(wq.mod_delayed(&work, length), Ok(Modified::Queued));
            assert_eq!(work.cancel_sync_blocking(), Ok(true));
            assert_eq!(wq.mod_delayed(&work, length), Ok(Modified::Queued));
            assert_eq!(work.disable(), Ok(true));
            assert_eq!(wq.mod_delayed(&work, length), Ok(Modified::Disabled));
            assert_eq!(work.enable(), Ok(true));
            assert!(!work.is_pending());
        }
        assert_eq!(runs.get(), 0);
        wq.queue_delayed(&work, Duration::MAX).unwrap();
        assert_eq!(work.flush_blocking(), Ok(true));
        assert_eq!(runs.get(), 1);
        wq.queue_delayed(&work, Duration::MAX).unwrap();
        assert_eq!(wq.mod_delayed(&work, Duration::ZERO), Ok(Modified::Moved));
        work.flush_blocking().unwrap();
        assert_eq!(runs.get(), 2);
        wq.queue_delayed(&work, Duration::MAX).unwrap();
        assert_eq!(work.flush_timeout(Duration::MAX), Ok(true));
    }
}

/// At the end each set time was run or taken back, once.
#[test]
fn moved_times_lose_and_double_nothing() {
    let sys = builder().build().unwrap();
    let queues = every_kind(&sys);
    let runs = Level::new();
    let inside = Inside::new();
    let work = DelayedWork::new({
        let (runs, inside) = (runs.clone(), inside.clone());
        move || {
            inside.enter();
            runs.raise();
            thread::yield_now();
            inside.leave();
        }
    });
    let begun = AtomicUsize::new(0);
    let ended_early = AtomicUsize::new(0);
    thread::scope(|scope| {
        for seed in 0..3 {
            let (queues, work, begun, ended_early) = (&queues, &work, &begun, &ended_early);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                for _ in 0..1500 {
                    let wq = &queues[rng.usize(..queues.len())];
                    let delay = Duration::from_micros([0, 1, 20, 100, 3000][rng.usize(..5)]);
                    match rng.usize(..10) {
                        0..=3 => match wq.mod_delayed(work, delay).unwrap() {
                            Modified::Queued => {
                                begun.fetch_add(1, Ordering::Relaxed);
                            }
                            Modified::Moved | Modified::Disabled => {}
                        },
                        4..=6 => {
                            if wq.queue_delayed(work, delay).unwrap().is_queued() {
                                begun.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        7 => {
                            if work.cancel() {
                                ended_early.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        8 => {
                            if work.cancel_sync_blocking().unwrap() {
                                ended_early.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        _ => {
                            work.flush_blocking().unwrap();
                        }
                    }
                }
            });
        }
    });
    work.flush_blocking().unwrap();
    for wq in &queues {
        wq.drain_blocking().unwrap();
    }
    assert!(!work.is_pending());
    assert_eq!(inside.most(), 1);
    assert_eq!(
        begun.load(Ordering::Relaxed),
        ended_early.load(Ordering::Relaxed) + runs.get()
    );
    assert_eq!(queues.iter().map(|wq| wq.stats().refused).sum::<u64>(), 0);
}

#[test]
fn numbers_of_no_cpu_and_no_node_are_named_and_lose_nothing() {
    let sys = WorkqueueSystem::builder()
        .topology(Topology::synthetic("numa:2 core:2 offline:3").unwrap())
        .sampling(false)
        .build()
        .unwrap();
    for wq in every_kind(&sys) {
        let runs = Level::new();
        let work = counting(&runs);
        let delayed = DelayedWork::new({
            let runs = runs.clone();
            move || runs.raise()
        });
        for cpu in [4, 64, 1 << 20, usize::MAX] {
            assert_eq!(wq.queue_on(cpu, &work), Err(QueueError::NoSuchCpu(cpu)));
            assert_eq!(
                wq.queue_delayed_on(cpu, &delayed, Duration::ZERO),
                Err(QueueError::NoSuchCpu(cpu))
            );
            assert_eq!(
                wq.queue_delayed_on(cpu, &delayed, Duration::MAX),
                Err(QueueError::NoSuchCpu(cpu))
            );
            assert_eq!(
                wq.mod_delayed_on(cpu, &delayed, Duration::MAX),
                Err(QueueError::NoSuchCpu(cpu))
            );
            assert_eq!(wq.queue_node(cpu, &work), Err(QueueError::NoSuchNode(cpu)));
            assert!(!wq.is_congested(cpu));
            let handle = wq.spawn_on(cpu, || ());
            let text = format!("{:?}", handle.wait());
            assert!(text.contains("NoSuchCpu"), "{text}");
            assert!(sys.work_on_cpu(cpu, || ()).wait().is_err());
        }
        assert!(!work.is_pending() && !delayed.is_pending());
        assert!(wq.queue_on(3, &work).unwrap().is_queued(), "offline");
        assert_eq!(work.flush_blocking().map(|_| runs.get()), Ok(1));
        wq.queue_delayed_on(3, &delayed, Duration::MAX).unwrap();
        assert_eq!(
            wq.mod_delayed_on(usize::MAX, &delayed, Duration::ZERO),
            Err(QueueError::NoSuchCpu(usize::MAX))
        );
        assert!(delayed.is_pending(), "nothing has changed");
        assert_eq!(delayed.flush_blocking(), Ok(true));
        assert_eq!(runs.get(), 2);
    }
}

/// The second system ends while a work that it runs waits in the first, and the other way round.
#[test]
fn a_system_ends_while_its_work_waits_for_the_end_of_a_run_elsewhere() {
    for _ in 0..50 {
        let (a, b) = (system(), system());
        let (wa, wb) = (bound(&a), bound(&b));
        let (work, release, begun) = held_work();
        wb.queue(&work).unwrap();
        begun.wait(1);
        assert!(wa.queue(&work).unwrap().is_queued());
        let runs = Level::new();
        wa.queue(&counting(&runs)).unwrap();
        runs.wait(1);
        let ends = thread::spawn(move || drop(a));
        release.raise();
        release.raise();
        ends.join().unwrap();
        assert_eq!(begun.get(), 2, "what was queued has run");
        assert_eq!(wa.queue(&work), Err(QueueError::ShutDown));
        drop(b);
    }
}
