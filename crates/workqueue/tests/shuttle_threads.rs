//! Random schedules of systems that cannot have the threads they ask for, and of threads that
//! leave: rescuers, idle workers, the one who runs BH items for a late poller.
#![cfg(shuttle)]

mod shuttle_support;

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, thread};
use inflight_topology::Scope;
use inflight_workqueue::{Attrs, QueueError, Queued, Work, Workqueue};
use shuttle_support::{Act, IDLE, MS, Mode, RunCounts, Threads, World, assert_settled, check};

/// Spawns on both CPUs, and waits for each that is taken. Returns how many were.
fn submit(wq: &Workqueue, run_counts: &RunCounts, cpus: usize, first: usize) -> usize {
    let spawn = |number| match run_counts.spawn(wq, number % cpus, number) {
        Ok(handle) => Some((number, handle)),
        Err(QueueError::NoWorker(_)) => None,
        Err(error) => panic!("{error:?}"),
    };
    let handles: Vec<_> = (first..first + 3).filter_map(spawn).collect();
    let taken = handles.len();
    for (number, handle) in handles {
        assert_eq!(handle.wait().unwrap(), number);
    }
    taken
}

/// Threads are refused for a while, once and again. A queue with a rescuer takes and runs all; what
/// another one takes runs too.
fn threads_are_refused(mode: Mode) {
    let world = World::new(mode);
    let cpus = world.sys.topology().cpus().len();
    let wq = |name| world.sys.workqueue(name);
    let safe = wq("safe")
        .bound()
        .mem_reclaim()
        .max_active(2)
        .build()
        .unwrap();
    let far = wq("far").unbound(Attrs::new()).mem_reclaim().max_active(1);
    let far = far.build().unwrap();
    let other = wq("other").bound().build().unwrap();
    let all_counts = [
        RunCounts::new(2 * cpus),
        RunCounts::new(1),
        RunCounts::new(64),
    ];
    let mut threads = Threads::default();
    for (n, (wq, run_counts)) in [&safe, &far, &other]
        .into_iter()
        .zip(&all_counts)
        .enumerate()
    {
        let (wq, run_counts) = (wq.clone(), run_counts.clone());
        threads.spawn(move || {
            let taken = submit(&wq, &run_counts, cpus, 100 * n);
            assert!(taken == 3 || !wq.is_mem_reclaim());
            let known = run_counts.known();
            wq.flush_blocking().unwrap();
            run_counts.assert_ended(&known);
        });
    }
    let faults = world.faults.clone();
    threads.spawn(move || {
        faults.refuse_spawns(true);
        thread::yield_now();
        faults.refuse_spawns(false);
        faults.fail_next_spawns(2);
        thread::yield_now();
        faults.refuse_spawns(true);
        thread::yield_now();
        faults.refuse_spawns(false);
    });
    threads.join_ticking(&world.clock, 10 * MS);
    drop(world);
    all_counts.iter().for_each(RunCounts::assert_all_ran);
    [safe, far, other].iter().for_each(assert_settled);
}

/// Items of one pod take long, so that others help, while threads are refused and the queue moves.
fn pods_are_refused_threads(Mode(_, batches): Mode) {
    let world = World::new(Mode("cache:2 core:1", batches));
    let attrs = || Attrs::new().scope(Scope::Cache);
    let wq = world.sys.workqueue("pods").unbound(attrs()).mem_reclaim();
    let wq = wq.max_active(2).build().unwrap();
    let run_counts = RunCounts::new(2);
    let mut threads = Threads::default();
    for n in 0..2 {
        let (wq, run_counts, clock) = (wq.clone(), run_counts.clone(), world.clock.clone());
        threads.spawn(move || {
            for number in 100 * n..100 * n + 3 {
                let clock = clock.clone();
                let takes_long = move || clock.advance(MS);
                let item = run_counts.spawn_with(&wq, number % 2, number, takes_long);
                item.unwrap().detach();
            }
            let known = run_counts.known();
            wq.flush_blocking().unwrap();
            run_counts.assert_ended(&known);
        });
    }
    let moved = wq.clone();
    threads.spawn(move || {
        moved.set_attrs(attrs().nice(1)).unwrap();
        moved.set_attrs(attrs()).unwrap();
    });
    let faults = world.faults.clone();
    threads.spawn(move || {
        for _ in 0..2 {
            faults.refuse_spawns(true);
            thread::yield_now();
            faults.refuse_spawns(false);
            faults.fail_next_spawns(1);
            thread::yield_now();
        }
    });
    threads.join_ticking(&world.clock, 10 * MS);
    drop(world);
    run_counts.assert_all_ran();
    assert_settled(&wq);
}

/// Idle workers leave when their time is over, while items come that bring new ones.
fn idle_workers_leave(mode: Mode) {
    let world = World::new(mode);
    let cpus = world.sys.topology().cpus().len();
    let wq = world.sys.workqueue("any").unbound(Attrs::new());
    let wq = wq.build().unwrap();
    let run_counts = RunCounts::new(64);
    let mut threads = Threads::default();
    for n in 0..3 {
        let (wq, run_counts, clock) = (wq.clone(), run_counts.clone(), world.clock.clone());
        threads.spawn(move || {
            submit(&wq, &run_counts, cpus, 100 * n);
            clock.advance(IDLE);
            submit(&wq, &run_counts, cpus, 100 * n + 50);
        });
    }
    world.clock.advance(IDLE);
    threads.join();
    drop(world);
    run_counts.assert_all_ran();
    assert_settled(&wq);
}

/// A poller polls, is late and goes, while BH items come and are flushed.
fn a_poller_comes_and_goes(mode: Mode) {
    let world = World::new(mode);
    let wq = world.sys.workqueue("done").bh().build().unwrap();
    let run_counts = RunCounts::new(1);
    let mut threads = Threads::default();
    for n in 0..2 {
        let (wq, run_counts) = (wq.clone(), run_counts.clone());
        threads.spawn(move || {
            for number in 3 * n..3 * n + 3 {
                let (runs, inner) = (run_counts.clone(), wq.clone());
                // No item may sleep.
                wq.spawn_on(0, move || {
                    runs.run(number, Act::Yield);
                    let again = runs.clone();
                    let spawned = inner.spawn_on(0, move || {
                        again.run(number + 50, Act::Nothing);
                    });
                    spawned.detach();
                    runs.queued(number + 50);
                })
                .detach();
                run_counts.queued(number);
            }
            let known = run_counts.known();
            wq.flush_blocking().unwrap();
            run_counts.assert_ended(&known);
        });
    }
    let sys = world.sys.observer();
    threads.spawn(move || {
        for _ in 0..2 {
            let told = Arc::new(AtomicUsize::new(0));
            let notify = told.clone();
            let notify = move || _ = notify.fetch_add(1, Ordering::Relaxed);
            let mut poller = sys.bh_poller(0, notify).unwrap();
            for polls in 1..4 {
                // What is left, the thread runs when the poller is late or has gone.
                _ = poller.poll(2);
                assert!(told.load(Ordering::Relaxed) <= polls + 1, "told again");
                thread::yield_now();
            }
        }
    });
    threads.join_ticking(&world.clock, 10 * MS);
    drop(world);
    run_counts.assert_all_ran();
    assert_settled(&wq);
}

/// A system ends while its poller polls, is called and is kept. A work runs on one queue while it
/// waits in the poller's. The time stands still: nobody is late.
fn a_system_ends_under_a_poller(mode: Mode) {
    let world = World::new(mode);
    let done = world.sys.workqueue("done").bh().build().unwrap();
    let other = world.sys.workqueue("other").bound().build().unwrap();
    let run_counts = RunCounts::new(1);
    let work = Work::new({
        let run_counts = run_counts.clone();
        move || run_counts.run(0, Act::Yield)
    });
    let mut poller = world.sys.bh_poller(0, || ()).unwrap();
    let mut threads = Threads::default();
    for n in 0..2 {
        let queues = [done.clone(), other.clone()];
        let (work, run_counts) = (work.clone(), run_counts.clone());
        threads.spawn(move || {
            for wq in [&queues[1 - n], &queues[n]] {
                match wq.queue_on(0, &work) {
                    Ok(Queued::Queued) => run_counts.queued(0),
                    Ok(_) | Err(QueueError::ShutDown) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
        });
    }
    let sys = world.sys.observer();
    threads.spawn(move || sys.shutdown_blocking().unwrap());
    for _ in 0..3 {
        _ = poller.poll(1);
        thread::yield_now();
    }
    threads.join();
    drop(poller);
    drop(world);
    run_counts.assert_all_ran();
    [done, other].iter().for_each(assert_settled);
}

#[test]
fn ends_under_a_poller() {
    check("ends_under_a_poller", a_system_ends_under_a_poller);
}

#[test]
fn refused_pods() {
    check("refused_pods", pods_are_refused_threads);
}

#[test]
fn refused_threads() {
    check("refused_threads", threads_are_refused);
}

#[test]
fn leaving_workers() {
    check("leaving_workers", idle_workers_leave);
}

#[test]
fn late_pollers() {
    check("late_pollers", a_poller_comes_and_goes);
}
