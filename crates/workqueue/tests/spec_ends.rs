//! Panics, destructors, and ends of systems in odd places.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use inflight_sync::{Arc, Mutex, thread};
use inflight_topology::Scope;
use inflight_workqueue::{
    Attrs, DelayedWork, JoinError, QueueError, Stall, Work, WorkqueueSystem, blocking, current_work,
};
use std::any::Any;
use std::cell::RefCell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::task::Poll;
use std::time::Duration;
use support::{Level, bound, builder, counting, every_kind, one_cpu, system, until};

/// Panics when it is dropped, and counts that.
struct Bomb(Level);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.raise();
        panic!("a destructor panics");
    }
}

#[test]
fn destructors_that_panic_cost_no_slot_and_no_worker() {
    let sys = system();
    for wq in every_kind(&sys) {
        let drops = Level::new();
        for _ in 0..8 {
            // The closure's.
            let bomb = Bomb(drops.clone());
            wq.spawn(move || {
                let _keep = &bomb;
            })
            .detach();
            // The result's, which nobody wants.
            let level = drops.clone();
            wq.spawn(move || Bomb(level)).detach();
            // The panic's payload, which nobody wants.
            let level = drops.clone();
            wq.spawn(move || -> () { panic_any(Bomb(level)) }).detach();
            // A reusable work's payload and its own, when its last handle goes.
            let (level, bomb) = (drops.clone(), Bomb(drops.clone()));
            let work = Work::new(move || {
                let _keep = &bomb;
                panic_any(Bomb(level.clone()))
            });
            wq.queue(&work).unwrap();
            let _ = work_dropped(work);
            // A future's.
            let bomb = Bomb(drops.clone());
            wq.spawn_future(async move { drop(bomb) }).detach();
            // Its output, which nobody wants.
            let level = drops.clone();
            wq.spawn_future(async move { Bomb(level) }).detach();
        }
        wq.drain_blocking().unwrap();
        wq.spawn(|| ()).wait().unwrap();
        wq.drain_blocking().unwrap();
        let stats = wq.stats();
        assert_eq!(stats.queued, stats.completed + stats.cancelled, "{stats:?}");
        assert_eq!((stats.active, stats.inactive), (0, 0));
        assert!(drops.get() >= 8 * 7, "{} {}", wq.name(), drops.get());
        wq.destroy_blocking().unwrap();
    }
    sys.shutdown_blocking().unwrap();
}

/// What a handle drops, a result that nobody has taken, may panic: that is nobody's.
#[test]
fn a_result_that_panics_when_its_handle_goes_is_contained() {
    let sys = system();
    let wq = bound(&sys);
    let drops = Level::new();
    let [of_function, of_future] = [drops.clone(), drops.clone()];
    let handles = [
        wq.spawn(move || Bomb(of_function)),
        wq.spawn_future(async move { Bomb(of_future) }),
    ];
    for handle in handles {
        until(|| handle.is_finished(), || sys.dump());
        wq.flush_blocking().unwrap();
        handle.detach();
    }
    drops.wait(2);
}

/// Its drop may run the closure's destructor here if the run is over.
fn work_dropped(work: Work) -> Result<(), ()> {
    catch_unwind(AssertUnwindSafe(|| drop(work))).map_err(drop)
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// The system's last handle goes in every odd place; nothing hangs, and what was queued runs.
#[test]
fn the_last_handle_of_a_system_may_go_anywhere() {
    for place in [1, 2, 4, 5, 6, 7, 8] {
        for _ in 0..10 {
            let sys = system();
            let wq = every_kind(&sys).swap_remove(2);
            let other = bound(&sys);
            let runs = Level::new();
            let (r, o) = (runs.clone(), other.clone());
            match place {
                1 => {
                    // In a result nobody wants.
                    wq.spawn(move || sys).detach();
                    until(
                        || wq.queue(&Work::new(|| ())) == Err(QueueError::ShutDown),
                        || "goes on".into(),
                    );
                }
                2 => {
                    // In a function that is cancelled.
                    let frozen = sys.freeze();
                    let handle = wq.spawn(move || drop(sys));
                    o.spawn(move || r.raise()).detach();
                    assert!(handle.try_cancel());
                    assert!(matches!(handle.wait(), Err(JoinError::Cancelled)));
                    drop(frozen);
                    assert_eq!(runs.get(), 1);
                }
                4 => {
                    // In a future that ends.
                    let handle = wq.spawn_future(async move {
                        r.raise();
                        drop(sys);
                        7
                    });
                    assert_eq!(handle.wait().unwrap(), 7);
                }
                5 => {
                    // In a future that never ends, and wakes itself.
                    let handle = wq.spawn_future(poll_fn(move |cx| {
                        let _keep = &sys;
                        cx.waker().wake_by_ref();
                        if r.get() < 3 {
                            r.raise();
                            Poll::Pending
                        } else {
                            Poll::Ready(())
                        }
                    }));
                    assert_eq!(handle.wait().map_err(|e| e.to_string()), Ok(()));
                }
                6 => {
                    // In a future that nobody can wake.
                    let handle = wq.spawn_future(async move {
                        let _sys = sys;
                        std::future::pending::<()>().await;
                    });
                    assert!(matches!(handle.wait(), Err(JoinError::Cancelled)));
                }
                7 => {
                    // In a call, on this thread.
                    let queue = wq.clone();
                    queue
                        .call_blocking(move || {
                            o.spawn(move || r.raise()).detach();
                            drop(sys);
                        })
                        .unwrap();
                    runs.wait(1);
                }
                _ => {
                    // In a result that is taken out of a handle by an item of another system.
                    let second = system();
                    let handle = wq.spawn(move || sys);
                    bound(&second)
                        .spawn(move || drop(handle.wait().unwrap()))
                        .wait()
                        .unwrap();
                    assert_eq!(wq.queue(&Work::new(|| ())), Err(QueueError::ShutDown));
                }
            }
            until(
                || {
                    let refused = wq.spawn(|| ()).wait();
                    matches!(refused, Err(JoinError::Rejected(QueueError::ShutDown)))
                },
                || format!("{place}: the system goes on"),
            );
        }
    }
}

/// An item of one system that ends another one waits as others do: its pool goes on.
#[test]
fn the_end_of_a_second_system_counts_as_blocking_in_the_first() {
    for how in 0..3 {
        let a = one_cpu().sampling(false).build().unwrap();
        let b = one_cpu().sampling(false).build().unwrap();
        let (wa, wb) = (bound(&a), bound(&b));
        let (inner, release) = (wa.clone(), Level::new());
        let g = release.clone();
        wb.spawn(move || {
            g.wait(1);
            inner.spawn(|| ()).wait().unwrap();
        })
        .detach();
        wa.spawn(move || {
            release.raise();
            match how {
                0 => drop(b),
                1 => b.shutdown_blocking().unwrap(),
                _ => b.shutdown_timeout(Duration::MAX).unwrap(),
            }
        })
        .wait()
        .unwrap();
    }
}

/// Threads that queue, end, freeze, move and make queues while the system ends.
#[test]
fn everything_at_once_with_the_end_of_the_system_resolves() {
    for round in 0..20 {
        let sys = builder().sampling(round % 2 == 0).build().unwrap();
        let queues = every_kind(&sys);
        let (accepted, ran) = (AtomicUsize::new(0), Level::new());
        thread::scope(|scope| {
            for seed in 0..3 {
                let (sys, queues, accepted, ran) = (&sys, &queues, &accepted, &ran);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed + round * 3);
                    loop {
                        let wq = &queues[rng.usize(..queues.len())];
                        match rng.usize(..8) {
                            0..=3 => {
                                let ran = ran.clone();
                                match wq.try_spawn(move || ran.raise()) {
                                    Ok(handle) => {
                                        accepted.fetch_add(1, Ordering::Relaxed);
                                        if rng.bool() {
                                            handle.wait().unwrap();
                                        }
                                    }
                                    Err(no) => {
                                        assert_eq!(no.error(), QueueError::ShutDown);
                                        break;
                                    }
                                }
                            }
                            4 => {
                                let _ = wq.set_attrs(Attrs::new().scope(Scope::Cpu));
                                let _ = wq.set_attrs(Attrs::new().scope(Scope::System));
                            }
                            5 => drop(sys.freeze()),
                            6 => {
                                let _ = sys.workqueue("more").bound().mem_reclaim().build();
                            }
                            _ => {
                                let delayed = DelayedWork::new(|| ());
                                let _ = wq.queue_delayed(&delayed, Duration::from_micros(30));
                                let handle = wq.spawn_future(async {});
                                let _ = handle.wait();
                                wq.flush_blocking().unwrap();
                            }
                        }
                    }
                });
            }
            for _ in 0..fastrand::usize(..200) {
                thread::yield_now();
            }
            if round % 3 == 0 {
                sys.shutdown_blocking().unwrap();
            } else {
                let left = sys.shutdown_timeout(Duration::from_micros(10));
                drop(left);
                sys.shutdown_blocking().unwrap();
            }
        });
        assert_eq!(ran.get(), accepted.load(Ordering::Relaxed));
    }
}

/// A BH item's rules hold inside a call that it makes too.
#[test]
fn inside_a_call_of_a_bh_item_nothing_sleeps_either() {
    let sys = system();
    let bh = sys.workqueue("bh").bh().build().unwrap();
    let wq = sys.workqueue("u").unbound(Attrs::new()).build().unwrap();
    let inner = wq.clone();
    let said = bh.spawn(move || {
        inner
            .call_blocking(|| blocking(|| 1))
            .map_err(|e| e.to_string())
    });
    let said = said.wait().unwrap();
    assert!(said.is_err(), "{said:?}");
    let inner = wq.clone();
    let again = wq.clone();
    let said = bh.spawn(move || inner.call_blocking(move || again.flush_blocking()));
    let said = said.wait().unwrap();
    assert!(said.is_err() || said.unwrap().is_err());
}

/// A tracer, watchdog or notify that panics.
#[test]
fn callbacks_that_panic_are_ignored() {
    let seen = Level::new();
    let s = seen.clone();
    let sys = one_cpu()
        .trace(move |_| {
            s.raise();
            panic!("a tracer");
        })
        .watchdog(Duration::from_micros(100), |_| panic!("a watchdog"))
        .hog_reports(1, |_| panic!("a report"))
        .intensive_threshold(Duration::ZERO)
        .build()
        .unwrap();
    for wq in every_kind(&sys) {
        let runs = Level::new();
        for _ in 0..50 {
            wq.queue(&counting(&runs)).unwrap();
        }
        wq.drain_blocking().unwrap();
        assert_eq!((runs.get(), wq.stats().panicked), (50, 0));
        let work = DelayedWork::new(|| ());
        wq.queue_delayed(&work, Duration::from_micros(1)).unwrap();
        work.flush_blocking().unwrap();
    }
    assert!(seen.get() > 0);
    let mut poller = sys.bh_poller(0, || panic!("notify")).unwrap();
    let bh = sys.workqueue("bh2").bh().build().unwrap();
    let handle = bh.spawn(|| 1);
    while !handle.is_finished() {
        let _ = poller.poll(1);
    }
    drop(poller);
    sys.shutdown_blocking().unwrap();
}

/// Works that queue each other over two systems, until both end.
#[test]
fn two_systems_that_feed_each_other_both_end() {
    for _ in 0..30 {
        let (a, b) = (system(), builder().build().unwrap());
        let (wa, wb) = (bound(&a), bound(&b));
        let stop = Arc::new(AtomicBool::new(false));
        let works: Vec<Work> = (0..8)
            .map(|_| {
                let (wa, wb, stop) = (wa.clone(), wb.clone(), stop.clone());
                let turns = AtomicUsize::new(0);
                Work::new(move || {
                    let turn = turns.fetch_add(1, Ordering::Relaxed);
                    if !stop.load(Ordering::Relaxed) {
                        let me = current_work().unwrap();
                        let wq = if turn % 2 == 0 { &wb } else { &wa };
                        match wq.queue(&me) {
                            Ok(_) | Err(QueueError::ShutDown) => {}
                            Err(other) => panic!("{other}"),
                        }
                    }
                })
            })
            .collect();
        for (i, work) in works.iter().enumerate() {
            [&wa, &wb][i % 2].queue(work).unwrap();
        }
        for _ in 0..20 {
            wa.flush_blocking().unwrap();
        }
        let other = thread::spawn(move || drop(a));
        drop(b);
        other.join().unwrap();
        for work in &works {
            work.flush_blocking().unwrap();
            assert!(!work.is_pending() && !work.is_running());
        }
        for wq in [&wa, &wb] {
            let stats = wq.stats();
            assert_eq!(stats.queued, stats.completed + stats.cancelled);
            assert_eq!(stats.panicked, 0);
        }
        stop.store(true, Ordering::Relaxed);
    }
}

inflight_sync::thread_local! {
    static OWN: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

/// What a user's thread keeps may use everything when the thread ends: before the locals that this
/// needs are destroyed, and after.
#[test]
fn what_a_thread_keeps_may_use_the_system_when_it_ends() {
    for stored_first in [true, false] {
        let sys = system();
        for wq in every_kind(&sys) {
            let gone = Level::new();
            let (last, told) = (sys.clone(), gone.clone());
            let uses = move || {
                assert_eq!(wq.call_blocking(|| 1).unwrap(), 1);
                assert_eq!(wq.spawn(|| 2).wait().unwrap(), 2);
                assert_eq!(wq.spawn_future(async { 3 }).wait().unwrap(), 3);
                let work = Work::new(|| assert!(current_work().is_some()));
                assert!(wq.queue(&work).unwrap().is_queued());
                work.flush_blocking().unwrap();
                wq.drain_blocking().unwrap();
                drop(last.freeze());
                told.raise();
            };
            let own = OnDrop(uses.clone());
            let store = move || OWN.with(|cell| *cell.borrow_mut() = Some(Box::new(own)));
            let ends = thread::spawn(move || {
                if stored_first {
                    store();
                    uses();
                } else {
                    uses();
                    store();
                }
            });
            ends.join().unwrap();
            assert_eq!(gone.get(), 2);
        }
    }
}

/// The destructor of a thread's local is the last of its thread: nobody can wait for that there.
#[test]
fn what_a_worker_keeps_in_its_thread_may_end_the_system() {
    for how in 0..3 {
        let sys = system();
        let (wq, other) = (bound(&sys), every_kind(&sys).swap_remove(2));
        let gone = Level::new();
        let (last, queue, told) = (sys.clone(), other.clone(), gone.clone());
        let mut last = Some(last);
        let own = OnDrop(move || {
            match how {
                0 => drop(last.take()),
                1 => assert!(last.take().unwrap().shutdown_blocking().is_err()),
                _ => {
                    assert_eq!(queue.call_blocking(|| 1).unwrap(), 1);
                    queue.spawn(|| ()).wait().unwrap();
                    queue.flush_blocking().unwrap();
                }
            }
            told.raise();
        });
        let own = move || OWN.with(|cell| *cell.borrow_mut() = Some(Box::new(own)));
        wq.spawn(own).wait().unwrap();
        drop(sys);
        drop(wq); // Its workers leave.
        gone.wait(1);
        if how < 2 {
            let refused = || other.queue(&Work::new(|| ())) == Err(QueueError::ShutDown);
            until(refused, || "the system goes on".into());
        }
    }
}

#[test]
fn a_poller_may_drop_the_system_in_an_item_and_in_its_call() {
    for in_item in [true, false] {
        let sys = one_cpu().build().unwrap();
        let bh = sys.workqueue("bh").bh().build().unwrap();
        let held = Arc::new(Mutex::new(None));
        let called = held.clone();
        let call = move || drop(called.lock().take());
        let mut poller = sys.bh_poller(0, call).unwrap();
        let handle = if in_item {
            bh.spawn(move || drop(sys))
        } else {
            *held.lock() = Some(sys);
            bh.spawn(|| ())
        };
        while !handle.is_finished() {
            let _ = poller.poll(1);
        }
        handle.wait().unwrap();
        assert_eq!(bh.queue(&Work::new(|| ())), Err(QueueError::ShutDown));
    }
}

#[test]
fn a_report_may_drop_the_last_handle() {
    let held: Arc<Mutex<Option<WorkqueueSystem>>> = Arc::default();
    let told = Level::new();
    let (last, tell) = (held.clone(), told.clone());
    let on_stall = move |_: &Stall| {
        drop(last.lock().take());
        tell.raise();
    };
    // The sampler could find the first item asleep in a page fault: then the second one runs.
    let builder = one_cpu().sampling(false);
    let builder = builder.watchdog(Duration::from_micros(200), on_stall);
    let sys = builder.build().unwrap();
    let wq = bound(&sys);
    *held.lock() = Some(sys);
    let stalls = told.clone();
    wq.spawn(move || stalls.wait_silently(1)).detach();
    wq.spawn(|| ()).detach();
    told.wait(1);
    let refused = || wq.queue(&Work::new(|| ())) == Err(QueueError::ShutDown);
    until(refused, || "the system goes on".into());
}

/// A destructor of what the function owns runs after the end: there is no handle on the work then.
#[test]
fn a_work_that_is_freed_has_no_handle_on_itself() {
    struct Asks(Arc<Mutex<Vec<bool>>>);
    impl Drop for Asks {
        fn drop(&mut self) {
            self.0.lock().push(current_work().is_some());
        }
    }
    let sys = WorkqueueSystem::builder().build().unwrap();
    let wq = sys.workqueue("frees").bound().build().unwrap();
    let answers = Arc::new(Mutex::new(Vec::new()));
    let (asks, seen) = (Asks(answers.clone()), answers.clone());
    let (begun, open) = (Level::new(), Level::new());
    let work = Work::new({
        let (begun, open) = (begun.clone(), open.clone());
        move || {
            let _owned = &asks;
            seen.lock().push(current_work().is_some());
            begun.raise();
            open.wait(1);
        }
    });
    wq.queue(&work).unwrap();
    begun.wait(1);
    drop(work);
    open.raise();
    wq.flush_blocking().unwrap();
    assert_eq!(*answers.lock(), [true, false]);
}
