//! What the specification says of whole queues: flush, drain, destroy, limits, order, moves.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use inflight_sync::{Arc, Mutex, thread};
use inflight_topology::{CpuSet, Scope, Topology};
use inflight_workqueue::{
    Attrs, DelayedWork, QueueError, Queued, Share, Wait, WaitError, Work, Workqueue,
    WorkqueueSystem, blocking, current_work,
};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use support::{
    Inside, Level, Log, bound, builder, counting, held_work, one_cpu, rigged, system, until,
};

fn poll_now<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn unbound(sys: &WorkqueueSystem, max_active: usize) -> Workqueue {
    sys.workqueue("unbound")
        .unbound(Attrs::new().scope(Scope::Cache))
        .max_active(max_active)
        .build()
        .unwrap()
}

/// A44: as many flushes as there are colours wait each for what was before them and no more; those
/// beyond may wait for what comes until one ends, and all end.
#[test]
fn hundreds_of_flushes_wait_for_what_was_before_them() {
    let sys = system();
    for wq in [bound(&sys), unbound(&sys, 1000)] {
        let mut releases = Vec::new();
        let mut flushes = Vec::new();
        for i in 0..300 {
            let (work, release, begun) = held_work();
            wq.queue_on(0, &work).unwrap();
            begun.wait(1);
            releases.push(release);
            let mut flush = wq.flush();
            assert!(poll_now(&mut flush).is_pending());
            flushes.push(RefCell::new(Some(flush)));
            if i % 3 == 0 {
                drop(wq.flush());
            }
        }
        let is_over = |i: usize| {
            let flush: &RefCell<Option<Wait<'_, _>>> = &flushes[i];
            let mut flush = flush.borrow_mut();
            match flush.as_mut().map(poll_now) {
                Some(Poll::Ready(result)) => {
                    assert_eq!(result, Ok(()));
                    *flush = None;
                    true
                }
                Some(Poll::Pending) => false,
                None => true,
            }
        };
        for (i, release) in releases.iter().enumerate() {
            assert!((i..300).all(|later| !is_over(later)), "too early: {i}");
            release.raise();
            if i < 15 {
                until(
                    || is_over(i),
                    || format!("flush {i} waits for what is later"),
                );
            }
        }
        until(|| (0..300).all(is_over), || "not all end".into());
    }
}

#[test]
fn a_flush_ends_though_others_stream_and_chains_go_on() {
    let sys = builder().build().unwrap();
    for wq in [
        bound(&sys),
        unbound(&sys, 2),
        sys.workqueue("o").ordered().build().unwrap(),
    ] {
        let stop = Arc::new(AtomicBool::new(false));
        let chain = Work::new({
            let (stop, wq) = (stop.clone(), wq.clone());
            move || {
                if !stop.load(Ordering::Relaxed) {
                    wq.queue(&current_work().unwrap()).unwrap();
                }
            }
        });
        wq.queue(&chain).unwrap();
        thread::scope(|scope| {
            for _ in 0..2 {
                let (stop, wq) = (&stop, &wq);
                scope.spawn(move || {
                    let flood: Vec<_> = (0..64).map(|_| Work::new(std::hint::spin_loop)).collect();
                    while !stop.load(Ordering::Relaxed) {
                        for work in &flood {
                            wq.queue(work).unwrap();
                        }
                    }
                });
            }
            for _ in 0..50 {
                let runs = Level::new();
                wq.queue(&counting(&runs)).unwrap();
                wq.flush_blocking().unwrap();
                assert_eq!(runs.get(), 1);
            }
            stop.store(true, Ordering::Relaxed);
        });
        wq.drain_blocking().unwrap();
    }
}

#[test]
fn drains_that_overlap_and_are_dropped_count_each_for_itself() {
    let sys = system();
    let wq = bound(&sys);
    let (work, release, begun) = held_work();
    wq.queue(&work).unwrap();
    begun.wait(1);
    let other = Work::new(|| ());
    let (one, mut two) = (wq.drain(), wq.drain());
    assert!(poll_now(&mut two).is_pending());
    assert_eq!(wq.queue(&other), Err(QueueError::Draining));
    assert!(!other.is_pending());
    drop(one);
    assert_eq!(wq.queue(&other), Err(QueueError::Draining));
    assert_eq!(wq.drain_timeout(Duration::ZERO), Err(WaitError::TimedOut));
    assert_eq!(wq.queue(&other), Err(QueueError::Draining));
    drop(two);
    assert!(wq.queue(&other).unwrap().is_queued());
    release.raise();
    wq.flush_blocking().unwrap();
    // A drain that has ended and is not dropped does not close the queue.
    let mut three = wq.drain();
    assert_eq!(poll_now(&mut three), Poll::Ready(Ok(())));
    assert!(wq.queue(&other).unwrap().is_queued(), "{three:?}");
    wq.flush_blocking().unwrap();
}

#[test]
fn destroying_with_times_set_leaves_the_works_idle_and_counted() {
    let (sys, _, clock) = rigged(builder());
    let (gone, stays) = (unbound(&sys, 8), bound(&sys));
    let runs = Level::new();
    let works: Vec<_> = (0..20)
        .map(|_| {
            let runs = runs.clone();
            DelayedWork::new(move || runs.raise())
        })
        .collect();
    for (i, work) in works.iter().enumerate() {
        gone.queue_delayed_on(i % 4, work, Duration::from_secs(1))
            .unwrap();
    }
    gone.destroy_blocking().unwrap();
    assert_eq!(
        gone.queue_delayed(&works[0], Duration::ZERO),
        Err(QueueError::Destroyed).or_else(|e| if works[0].is_pending() {
            Ok(Queued::AlreadyPending)
        } else {
            Err(e)
        })
    );
    assert!(works[1].is_pending());
    assert!(matches!(
        works[1].flush_blocking(),
        Err(inflight_workqueue::FlushError::Rejected(
            QueueError::Destroyed
        ))
    ));
    assert!(works[1].is_pending());
    stays
        .mod_delayed(&works[2], Duration::from_secs(2))
        .unwrap();
    assert!(works[3].cancel());
    drop(gone.clone());
    clock.advance(Duration::from_secs(1));
    until(
        || gone.stats().refused == 18,
        || format!("{:?}", gone.stats()),
    );
    assert!(!works[1].is_pending() && works[2].is_pending());
    clock.advance(Duration::from_secs(1));
    runs.wait(1);
    stays.flush_blocking().unwrap();
    assert_eq!((runs.get(), gone.stats().queued), (1, 0));
    stays.queue_delayed(&works[1], Duration::ZERO).unwrap();
    stays.flush_blocking().unwrap();
    assert_eq!(runs.get(), 2);
}

#[test]
fn destroys_from_many_sides_all_return_after_the_last_item() {
    let sys = builder().build().unwrap();
    for _ in 0..100 {
        let wq = unbound(&sys, 2);
        let ran = Arc::new(AtomicUsize::new(0));
        for cpu in 0..8 {
            let ran = ran.clone();
            wq.spawn_on(cpu % 4, move || {
                thread::yield_now();
                ran.fetch_add(1, Ordering::Relaxed);
            })
            .detach();
        }
        thread::scope(|scope| {
            for i in 0..4 {
                let (wq, ran) = (wq.clone(), ran.clone());
                scope.spawn(move || {
                    match i {
                        0 => drop(wq.destroy()),
                        1 => wq.flush_blocking().unwrap(),
                        2 => wq.drain_blocking().unwrap(),
                        _ => wq.destroy_blocking().unwrap(),
                    }
                    if i > 0 {
                        assert_eq!(ran.load(Ordering::Relaxed), 8);
                    }
                });
            }
        });
        assert_eq!(wq.stats().completed, 8);
    }
}

/// Orders of several queuers, with cancels, freezes and moves among them.
#[test]
fn an_ordered_queue_stays_in_order_and_alone_through_everything() {
    for sampling in [true, false] {
        let sys = builder().sampling(sampling).build().unwrap();
        let wq = sys.workqueue("log").ordered().freezable().build().unwrap();
        let log: Log<(usize, usize)> = Log::new();
        let inside = Inside::new();
        let busy = AtomicUsize::new(3);
        let cancelled = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for by in 0..3 {
                let (wq, log, inside, busy, cancelled) = (&wq, &log, &inside, &busy, &cancelled);
                scope.spawn(move || {
                    let mut recent: Vec<(usize, Work)> = Vec::new();
                    for i in 0..400 {
                        let work = Work::new({
                            let (log, inside) = (log.clone(), inside.clone());
                            move || {
                                inside.enter();
                                log.push((by, i));
                                if i % 7 == 0 {
                                    blocking(thread::yield_now);
                                }
                                inside.leave();
                            }
                        });
                        wq.queue_on(i % 4, &work).unwrap();
                        recent.push((i, work));
                        if i % 5 == 0 {
                            let (which, work) = &recent[fastrand::usize(..recent.len())];
                            if work.cancel() {
                                cancelled.lock().push((by, *which));
                            }
                        }
                    }
                    busy.fetch_sub(1, Ordering::Relaxed);
                });
            }
            let scopes = [Scope::Cpu, Scope::System, Scope::Numa, Scope::Cache];
            let mut turn = 0;
            while busy.load(Ordering::Relaxed) > 0 {
                turn += 1;
                let frozen = (turn % 3 == 0).then(|| sys.freeze());
                let attrs = Attrs::new().scope(scopes[turn % 4]).nice((turn % 2) as i32);
                let mask = CpuSet::from_iter([turn % 4]);
                wq.set_attrs(attrs.cpumask(mask)).unwrap();
                drop(frozen);
                if turn % 5 == 0 {
                    sys.set_default_scope(scopes[turn % 4]).unwrap();
                }
            }
        });
        wq.drain_blocking().unwrap();
        assert_eq!(inside.most(), 1);
        let entries = log.entries();
        let cancelled = cancelled.lock();
        for by in 0..3 {
            let ran: Vec<_> = entries.iter().filter(|e| e.0 == by).map(|e| e.1).collect();
            let wanted: Vec<_> = (0..400)
                .filter(|i| !cancelled.contains(&(by, *i)))
                .collect();
            assert_eq!(ran, wanted);
        }
    }
}

/// P6: a raise reaches what waits in each pool, also in those left by a move.
#[test]
fn a_raise_lets_all_go_that_wait_also_in_pools_that_were_left() {
    let sys = system();
    let wq = unbound(&sys, 1);
    let (open, begun) = (Level::new(), Level::new());
    let item = |cpu: usize| {
        let (open, begun) = (open.clone(), begun.clone());
        wq.spawn_on(cpu, move || {
            begun.raise();
            open.wait(1);
        })
        .detach();
    };
    for round in 0..4 {
        for cpu in 0..4 {
            item(cpu);
        }
        let scope = [Scope::Cpu, Scope::System, Scope::Cache, Scope::Cpu][round];
        wq.set_attrs(Attrs::new().scope(scope)).unwrap();
    }
    begun.wait(1);
    assert_eq!(begun.get(), 1);
    wq.set_max_active(5).unwrap();
    begun.wait(5);
    wq.set_max_active(16).unwrap();
    begun.wait(16);
    wq.set_max_active(2).unwrap();
    for cpu in 0..4 {
        item(cpu);
    }
    assert_eq!(begun.get(), 16);
    open.raise();
    wq.flush_blocking().unwrap();
    assert_eq!(begun.get(), 20);
}

/// C10: `min_active` items that wait for each other make progress on any node.
#[test]
fn min_active_lets_chains_go_on_on_a_small_node() {
    let machine = Topology::synthetic("numa:2 core:4").unwrap();
    let sys = WorkqueueSystem::builder()
        .topology(&machine)
        .sampling(false)
        .build()
        .unwrap();
    let wq = sys
        .workqueue("chained")
        .unbound(Attrs::new().scope(Scope::Numa))
        .share(Share::PerNode)
        .max_active(16)
        .min_active(12)
        .build()
        .unwrap();
    let step = Level::new();
    for i in (0..12_usize).rev() {
        let step = step.clone();
        wq.spawn_on(i % 4, move || {
            step.wait(11 - i);
            step.raise();
        })
        .detach();
    }
    wq.flush_blocking().unwrap();
    assert_eq!(step.get(), 12);
    assert!(wq.set_min_active(0).is_err());
    assert!(wq.set_min_active(17).is_err());
    wq.set_max_active(1).unwrap();
    wq.set_max_active(2048).unwrap();
    assert!(wq.set_min_active(2048).is_ok());
}

/// A caller that helps computes until somebody else has run: the pool has to notice.
#[test]
fn items_run_beside_a_call_that_computes_for_long() {
    let sys = one_cpu().build().unwrap();
    for max_active in [1024, 2] {
        let wq = unbound(&sys, max_active);
        let (begun, done) = (Level::new(), Level::new());
        thread::scope(|scope| {
            let (inner, b, d) = (wq.clone(), begun.clone(), done.clone());
            scope.spawn(move || {
                inner
                    .call_blocking(move || {
                        b.raise();
                        d.wait_silently(3);
                    })
                    .unwrap();
            });
            begun.wait(1);
            for _ in 0..3 {
                let done = done.clone();
                wq.spawn(move || done.raise()).detach();
            }
            done.wait(3);
        });
        wq.flush_blocking().unwrap();
    }
}

/// As before, when the call waits in `blocking` or by the library's means, without sampling.
#[test]
fn items_run_beside_a_call_that_waits() {
    let sys = one_cpu().sampling(false).build().unwrap();
    for limit in [1024, 2] {
        let wq = unbound(&sys, limit);
        let (begun, done) = (Level::new(), Level::new());
        thread::scope(|scope| {
            let (inner, b, d) = (wq.clone(), begun.clone(), done.clone());
            scope.spawn(move || {
                inner
                    .call_blocking(move || {
                        b.raise();
                        d.wait(3);
                    })
                    .unwrap();
            });
            begun.wait(1);
            for _ in 0..3 {
                let done = done.clone();
                wq.spawn(move || done.raise()).detach();
            }
            done.wait(3);
        });
        wq.flush_blocking().unwrap();
    }
}

/// A destroyed freezable queue waits for the thaw, and a cancel empties it before.
#[test]
fn frozen_items_hold_a_drain_until_the_thaw() {
    let sys = system();
    for wq in [
        sys.workqueue("b").bound().freezable().build().unwrap(),
        sys.workqueue("o").ordered().freezable().build().unwrap(),
    ] {
        let runs = Level::new();
        let (work, other) = (counting(&runs), counting(&runs));
        let frozen = sys.freeze();
        wq.queue(&work).unwrap();
        wq.queue(&other).unwrap();
        assert_eq!(wq.drain_timeout(Duration::ZERO), Err(WaitError::TimedOut));
        let mut destroy = wq.destroy();
        assert!(poll_now(&mut destroy).is_pending());
        assert_eq!(work.cancel_sync_blocking(), Ok(true));
        assert!(poll_now(&mut destroy).is_pending());
        assert_eq!(runs.get(), 0);
        drop(frozen);
        wq.destroy_blocking().unwrap();
        assert_eq!(runs.get(), 1);
        assert_eq!(poll_now(&mut destroy), Poll::Ready(Ok(())));
    }
    let wq = sys.workqueue("c").bound().freezable().build().unwrap();
    let frozen = sys.freeze();
    let work = Work::new(|| ());
    wq.queue(&work).unwrap();
    let mut drain = wq.drain();
    assert!(poll_now(&mut drain).is_pending());
    assert!(work.cancel());
    assert_eq!(poll_now(&mut drain), Poll::Ready(Ok(())), "nothing is left");
    drop(frozen);
}
