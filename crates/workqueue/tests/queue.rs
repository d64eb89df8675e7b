//! Workqueues and pools: placement, limits, order, blocking, flush, drain, destroy, threads.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::fault::Faults;
use inflight_sync::{cpu, thread};
use inflight_topology::{CpuSet, Scope, Topology};
use inflight_workqueue::{
    Attrs, BuildError, DEFAULT_MAX_ACTIVE, JoinError, MaxActiveError, MinActiveError, QueueError,
    Share, Work, Workqueue, WorkqueueSystem, blocking,
};
use support::{Inside, Level, Log, bound, builder, plug, system};

#[test]
fn names_and_limits_are_checked() {
    let sys = system();
    let build = |name: &str, max| sys.workqueue(name).bound().max_active(max).build();
    assert_eq!(build("", 1).unwrap_err(), BuildError::EmptyName);
    assert_eq!(build("a\nb", 1).unwrap_err(), BuildError::ControlCharacter);
    assert_eq!(
        build(&"x".repeat(32), 1).unwrap_err(),
        BuildError::NameTooLong { bytes: 32 }
    );
    let out_of_range = |asked| BuildError::MaxActive(MaxActiveError::OutOfRange { asked });
    assert!(build("x", 0).is_ok(), "the default");
    assert_eq!(build("x", 2049).unwrap_err(), out_of_range(2049));
    assert_eq!(build(&"x".repeat(31), 2048).unwrap().name().len(), 31);
    let build = |asked| {
        let draft = sys.workqueue("x").unbound(Attrs::new()).max_active(4);
        draft.share(Share::PerNode).min_active(asked).build()
    };
    for asked in [0, 5] {
        let out_of_range = MinActiveError::OutOfRange {
            asked,
            max_active: 4,
        };
        let refused = build(asked).unwrap_err();
        assert_eq!(refused, BuildError::MinActive(out_of_range));
    }
    assert_eq!(build(4).unwrap().min_active(), Some(4));
}

#[test]
fn no_thread_until_work_comes() {
    let faults = Faults::new();
    let sys = builder().faults(&faults).build().unwrap();
    let wq = bound(&sys);
    assert_eq!(faults.spawn_attempts(), 0);
    wq.spawn(|| ()).wait().unwrap();
    assert_eq!(
        faults.spawn_attempts(),
        2,
        "a worker, and the timer that looks after it"
    );
}

#[test]
fn a_bound_item_runs_as_its_cpu() {
    let sys = system();
    let wq = bound(&sys);
    let seen = Log::new();
    for cpu in [3, 0, 2] {
        let seen = seen.clone();
        let work = Work::new(move || seen.push(cpu::current()));
        assert!(wq.queue_on(cpu, &work).unwrap().is_queued());
        work.flush_blocking().unwrap();
    }
    assert_eq!(seen.entries(), [3, 0, 2]);
    let missing = wq.queue_on(4, &Work::new(|| ()));
    assert_eq!(missing, Err(QueueError::NoSuchCpu(4)));
}

#[test]
fn an_item_goes_to_the_cpu_it_is_queued_on() {
    let sys = system();
    let wq = bound(&sys);
    let on_two = thread::spawn({
        let wq = wq.clone();
        move || {
            cpu::set_current_for_thread(Some(2));
            wq.spawn(cpu::current).wait().unwrap()
        }
    });
    assert_eq!(on_two.join().unwrap(), 2);
}

#[test]
fn workers_are_pinned_where_the_machine_allows() {
    let topo = Topology::discover().unwrap();
    let last = topo.cpus().last().unwrap();
    let sys = WorkqueueSystem::builder().topology(&topo).build().unwrap();
    let wq = bound(&sys);
    let seen = Log::new();
    let work = Work::new({
        let seen = seen.clone();
        move || seen.push(Topology::discover().unwrap().cpus().clone())
    });
    assert!(wq.queue_on(last, &work).unwrap().is_queued());
    work.flush_blocking().unwrap();
    if cfg!(target_os = "linux") {
        assert_eq!(seen.entries(), [inflight_topology::CpuSet::from([last])]);
    }
}

#[test]
fn a_node_is_served_by_its_cpus() {
    let topo = Topology::synthetic("numa:2 core:2").unwrap();
    let sys = WorkqueueSystem::builder().topology(&topo).build().unwrap();
    let wq = bound(&sys);
    let seen = Log::new();
    let work = Work::new({
        let seen = seen.clone();
        move || seen.push(cpu::current())
    });
    let elsewhere = thread::spawn({
        let (wq, work) = (wq.clone(), work.clone());
        move || {
            cpu::set_current_for_thread(Some(0));
            assert!(wq.queue_node(1, &work).unwrap().is_queued());
            work.flush_blocking().unwrap();
            cpu::set_current_for_thread(Some(3));
            assert!(wq.queue_node(1, &work).unwrap().is_queued());
            work.flush_blocking().unwrap();
        }
    });
    elsewhere.join().unwrap();
    assert_eq!(
        seen.entries(),
        [2, 3],
        "the node's first, or the caller's own"
    );
    assert_eq!(wq.queue_node(2, &work), Err(QueueError::NoSuchNode(2)));
}

#[cfg(target_os = "linux")]
#[test]
fn threads_carry_their_pool_in_the_name() {
    let sys = system();
    let wq = sys.workqueue("u").unbound(Attrs::new()).build().unwrap();
    let name = || std::fs::read_to_string("/proc/thread-self/comm").unwrap();
    assert_eq!(wq.spawn(name).wait().unwrap(), "inflight/u0:0\n");
    let seen = Log::new();
    let work = Work::new({
        let seen = seen.clone();
        move || seen.push(name())
    });
    assert!(bound(&sys).queue_on(3, &work).unwrap().is_queued());
    work.flush_blocking().unwrap();
    assert_eq!(seen.entries(), ["inflight/3:0\n"]);
}

#[test]
fn items_of_one_cpu_start_in_the_order_they_came() {
    let sys = system();
    let wq = sys.workqueue("fifo").bound().max_active(2).build().unwrap();
    let starts = Log::new();
    let release = Level::new();
    for n in 0..50 {
        let (starts, release) = (starts.clone(), release.clone());
        let work = Work::new(move || {
            starts.push(n);
            release.wait(1);
        });
        assert!(wq.queue_on(1, &work).unwrap().is_queued());
    }
    release.raise();
    wq.flush_blocking().unwrap();
    assert_eq!(starts.entries(), (0..50).collect::<Vec<_>>());
}

/// One running worker for a CPU; when it blocks the next item runs, told or noticed.
#[test]
fn a_blocked_item_lets_the_next_one_run() {
    let sys = system();
    let wq = bound(&sys);
    for told in [true, false] {
        let released = Level::new();
        let waiter = Work::new({
            let released = released.clone();
            move || {
                if told {
                    blocking(|| released.wait_silently(1));
                } else {
                    released.wait(1); // parks: the observer notices
                }
            }
        });
        let releaser = Work::new(move || released.raise());
        assert!(wq.queue_on(0, &waiter).unwrap().is_queued());
        assert!(wq.queue_on(0, &releaser).unwrap().is_queued());
        waiter.flush_blocking().unwrap();
        releaser.flush_blocking().unwrap();
    }
    assert!(
        sys.dump().contains("pool cpu 0: 2 workers"),
        "{}",
        sys.dump()
    );
}

/// At most one item of a CPU is past its last block at a time, and never two that do not block.
#[test]
fn items_that_do_not_block_never_overlap_on_one_cpu() {
    let sys = system();
    let queues = [bound(&sys), bound(&sys)];
    let inside = Inside::new();
    for n in 0..100 {
        let inside = inside.clone();
        let work = Work::new(move || {
            inside.enter();
            thread::yield_now();
            inside.leave();
        });
        assert!(queues[n % 2].queue_on(0, &work).unwrap().is_queued());
    }
    queues.iter().for_each(|wq| wq.flush_blocking().unwrap());
    assert_eq!(inside.most(), 1);
    assert!(
        sys.dump().contains("pool cpu 0: 1 workers"),
        "{}",
        sys.dump()
    );
}

#[test]
fn nested_and_panicking_blocking_sections_leave_the_count_right() {
    let sys = system();
    let wq = bound(&sys);
    wq.spawn(|| {
        let caught = std::panic::catch_unwind(|| blocking(|| blocking(|| panic!("on purpose"))));
        assert!(caught.is_err());
        blocking(|| blocking(|| ()));
    })
    .wait()
    .unwrap();
    wq.flush_blocking().unwrap();
    items_do_not_overlap(&wq);
    assert_eq!(blocking(|| 7), 7, "on a thread that is no worker");
}

fn items_do_not_overlap(wq: &inflight_workqueue::Workqueue) {
    let inside = Inside::new();
    for _ in 0..20 {
        let inside = inside.clone();
        let work = Work::new(move || {
            inside.enter();
            thread::yield_now();
            inside.leave();
        });
        assert!(wq.queue_on(0, &work).unwrap().is_queued());
    }
    wq.flush_blocking().unwrap();
    assert_eq!(inside.most(), 1);
}

/// Queues items from so many CPUs in turn. All of them block, so the limit is all that holds them
/// back; it is reached, and never exceeded.
fn is_the_limit_of(wq: &Workqueue, cpus: usize, items: usize, limit: usize) {
    let (inside, release, begun) = (Inside::new(), Level::new(), Level::new());
    for n in 0..items {
        let (inside, release, begun) = (inside.clone(), release.clone(), begun.clone());
        let work = Work::new(move || {
            inside.enter();
            begun.raise();
            release.wait(1);
            inside.leave();
        });
        assert!(wq.queue_on(n % cpus, &work).unwrap().is_queued());
    }
    begun.wait(limit);
    let counts = (wq.stats().active, wq.stats().inactive);
    assert_eq!(counts, (limit, items - limit));
    release.raise();
    wq.flush_blocking().unwrap();
    assert_eq!(inside.most(), limit);
}

#[test]
fn max_active_holds_for_the_whole_unbound_queue() {
    let sys = system();
    let wq = sys
        .workqueue("u")
        .unbound(Attrs::new())
        .max_active(3)
        .build()
        .unwrap();
    is_the_limit_of(&wq, 4, 24, 3);
}

#[test]
fn max_active_counts_for_each_cpu_of_a_bound_queue() {
    let sys = system();
    let wq = sys.workqueue("b").bound().max_active(2).build().unwrap();
    is_the_limit_of(&wq, 2, 12, 4);
}

#[test]
fn the_limit_changes_while_items_wait() {
    let sys = system();
    let wq = sys
        .workqueue("u")
        .unbound(Attrs::new())
        .max_active(1)
        .build()
        .unwrap();
    let (release, begun) = (Level::new(), Level::new());
    for n in 0..6 {
        let (release, begun) = (release.clone(), begun.clone());
        let work = Work::new(move || {
            begun.raise();
            release.wait(1 + n / 4);
        });
        assert!(wq.queue_on(0, &work).unwrap().is_queued());
    }
    begun.wait(1);
    wq.set_max_active(4).unwrap();
    begun.wait(4);
    assert_eq!((wq.stats().active, wq.stats().inactive), (4, 2));
    wq.set_max_active(1).unwrap();
    release.raise();
    begun.wait(5);
    assert_eq!(wq.stats().inactive, 1, "only one at a time again");
    release.raise();
    wq.flush_blocking().unwrap();
    assert_eq!(
        wq.set_max_active(4_000),
        Err(MaxActiveError::OutOfRange { asked: 4_000 })
    );
}

/// Where a limit is built and where it is changed.
#[test]
fn a_limit_of_0_is_the_default() {
    let sys = system();
    let built = sys.workqueue("built").bound().max_active(0);
    let built = built.build().unwrap();
    let changed = sys.workqueue("changed").bound().max_active(7);
    let changed = changed.build().unwrap();
    changed.set_max_active(0).unwrap();
    for wq in [built, changed] {
        let open = plug(&wq);
        for _ in 0..DEFAULT_MAX_ACTIVE {
            wq.spawn_on(0, || ()).detach();
        }
        let stats = wq.stats();
        open.raise();
        assert_eq!((stats.active, stats.inactive), (DEFAULT_MAX_ACTIVE, 1));
        wq.flush_blocking().unwrap();
    }
}

/// High priority has pools of its own, with a name and, where the system permits it, nice -20.
#[test]
fn high_priority_has_workers_of_its_own() {
    let sys = system();
    let (normal, open) = (bound(&sys), Level::new());
    let held = normal.spawn_on(0, {
        let open = open.clone();
        move || open.wait_silently(1)
    });
    let urgent = sys.workqueue("urgent").bound().highpri().build().unwrap();
    let nice = urgent.spawn_on(0, own_nice).wait().unwrap();
    open.raise();
    held.wait().unwrap();
    assert!(sys.dump().contains("pool cpu 0 highpri:"));
    assert!(sys.dump().contains("queue urgent bound highpri:"));
    if let Some((name, nice)) = nice {
        assert_eq!(name, "inflight/0:0H");
        assert_eq!(
            nice == -20,
            sys.nice_refused().is_none(),
            "granted or reported"
        );
    }
}

/// The calling thread's name and nice value, where they can be read.
fn own_nice() -> Option<(String, i32)> {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").ok()?;
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    // The 19th field, and the rest begins with the third.
    Some((
        name.to_owned(),
        rest.split_whitespace().nth(16)?.parse().ok()?,
    ))
}

/// While the workers of one group of CPUs are busy, an item that is queued to another group behind
/// one of theirs is run by the workers of that group.
#[test]
fn a_group_of_cpus_does_not_wait_for_another() {
    let topo = Topology::synthetic("cache:2 core:1").unwrap();
    let builder = WorkqueueSystem::builder().topology(topo);
    let sys = builder.sampling(false).build().unwrap();
    let wq = sys
        .workqueue("groups")
        .unbound(Attrs::new())
        .build()
        .unwrap();
    // Both groups have a worker.
    (0..2).for_each(|cpu| wq.spawn_on(cpu, || ()).wait().unwrap());
    let (begun, let_go) = (Level::new(), Level::new());
    let busy = wq.spawn_on(0, {
        let (begun, let_go) = (begun.clone(), let_go.clone());
        move || {
            begun.raise();
            let_go.wait_silently(1);
        }
    });
    begun.wait(1);
    let behind = wq.spawn_on(0, || ());
    let other = wq.spawn_on(1, move || let_go.raise());
    other.wait().unwrap();
    busy.wait().unwrap();
    behind.wait().unwrap();
}

/// Items from all CPUs, one after the other, in the order of their queueing, and no way to change
/// that.
#[test]
fn an_ordered_queue_keeps_order_over_all_cpus() {
    let sys = system();
    let wq = sys.workqueue("journal").ordered().build().unwrap();
    let (log, inside) = (Log::new(), Inside::new());
    for n in 0..40 {
        let (log, inside) = (log.clone(), inside.clone());
        drop(wq.spawn_on(n % 4, move || {
            inside.enter();
            log.push(n);
            blocking(thread::yield_now);
            inside.leave();
        }));
    }
    wq.flush_blocking().unwrap();
    assert_eq!(log.entries(), (0..40).collect::<Vec<_>>());
    assert_eq!(inside.most(), 1);
    assert_eq!(wq.set_max_active(2), Err(MaxActiveError::Ordered));
    let two = sys.workqueue("two").ordered().max_active(2);
    assert_eq!(
        two.build().unwrap_err(),
        BuildError::MaxActive(MaxActiveError::Ordered)
    );
    assert!(sys.dump().contains("queue journal ordered"));
}

/// Congested is who would have to wait; disabled works are queued by the last enable.
#[test]
fn congestion_is_told_for_each_cpu() {
    let sys = system();
    let wq = sys.workqueue("one").bound().max_active(1).build().unwrap();
    let open = plug(&wq);
    assert!(wq.is_congested(0) && !wq.is_congested(1));
    open.raise();
    wq.flush_blocking().unwrap();
    assert!(!wq.is_congested(0));
}

/// Where each node has a part of the limit, that part is what counts; pools that span nodes have
/// the whole limit beside it, also such as have had no item.
#[test]
fn congestion_is_told_for_each_node() {
    let topology = Topology::synthetic("numa:2 core:2").unwrap();
    let builder = WorkqueueSystem::builder().topology(topology);
    let sys = builder.build().unwrap();
    let attrs = Attrs::new()
        .scope(Scope::Cpu)
        .cpumask(CpuSet::from([0, 1, 2]));
    let wq = sys.workqueue("parts").unbound(attrs).share(Share::PerNode);
    let wq = wq.max_active(4).min_active(1).build().unwrap();
    let open = Level::new();
    let hold = |cpu: usize| {
        let open = open.clone();
        wq.spawn_on(cpu, move || open.wait(1))
    };
    let congested = || [0, 1, 2, 3].map(|cpu| wq.is_congested(cpu));
    // The parts are three and two.
    let mut held = vec![hold(0), hold(1)];
    let mut seen = vec![congested()];
    held.push(hold(0));
    seen.push(congested());
    held.extend([hold(1), hold(0), hold(2)]);
    seen.push(congested());
    wq.spawn_on(2, || ()).wait().unwrap();
    held.push(hold(2));
    seen.push(congested());
    wq.spawn_on(3, || ()).wait().unwrap();
    open.raise();
    held.into_iter().for_each(|item| item.wait().unwrap());
    wq.flush_blocking().unwrap();
    seen.push(congested());
    let full = |one, other| [one, one, other, false];
    let (none, one) = (full(false, false), full(true, false));
    assert_eq!(seen, [none, one, one, full(true, true), none]);
}

/// An unbound pool runs as many items as it has CPUs; what blocks does not count.
#[test]
fn an_unbound_pool_runs_one_item_for_each_cpu() {
    let sys = system();
    let wq = sys.workqueue("u").unbound(Attrs::new()).build().unwrap();
    let (inside, together) = (Inside::new(), Level::new());
    for _ in 0..30 {
        let (inside, together) = (inside.clone(), together.clone());
        let work = Work::new(move || {
            inside.enter();
            together.raise();
            together.wait_silently(2); // the first two need each other
            inside.leave();
        });
        assert!(wq.queue_on(0, &work).unwrap().is_queued());
    }
    wq.flush_blocking().unwrap();
    assert_eq!(inside.most(), 2);
}

#[test]
fn equal_attributes_share_pools_and_others_do_not() {
    let sys = system();
    let mut queues = Vec::new();
    for (name, attrs) in [
        ("a", Attrs::new()),
        ("b", Attrs::new()),
        ("c", Attrs::new().strict(true)),
        ("d", Attrs::new().scope(Scope::System)),
    ] {
        let wq = sys.workqueue(name).unbound(attrs).build().unwrap();
        let work = Work::new(|| ());
        assert!(wq.queue_on(0, &work).unwrap().is_queued());
        wq.flush_blocking().unwrap();
        queues.push(wq);
    }
    let dump = sys.dump();
    assert_eq!(
        dump.lines()
            .filter(|line| line.starts_with("pool u"))
            .count(),
        5,
        "{dump}"
    );
    assert!(
        dump.contains("pool u2 cpus 0-1 strict: 1 workers"),
        "{dump}"
    );
    assert!(dump.contains("pool u4 cpus 0-3: 1 workers"), "{dump}");
}

/// A refused work is idle: it is not pending somewhere for ever.
#[test]
fn i38_a_refused_work_is_idle() {
    let sys = system();
    let (gone, wq) = (bound(&sys), bound(&sys));
    gone.destroy_blocking().unwrap();
    let work = Work::new(|| ());
    assert_eq!(gone.queue(&work), Err(QueueError::Destroyed));
    assert_eq!(work.flush_blocking(), Ok(false));
    assert!(wq.queue(&work).unwrap().is_queued());
    assert!(matches!(
        gone.spawn(|| ()).wait(),
        Err(JoinError::Rejected(QueueError::Destroyed))
    ));
    gone.destroy_blocking().unwrap();
}

#[test]
fn the_dump_names_pools_and_queues() {
    let sys = system();
    let wq = sys
        .workqueue("kcryptd")
        .unbound(Attrs::new().scope(Scope::Numa))
        .build()
        .unwrap();
    wq.spawn(|| ()).wait().unwrap();
    wq.flush_blocking().unwrap();
    let dump = sys.dump();
    assert!(dump.contains("pool u0 cpus 0-3: 1 workers"), "{dump}");
    assert!(
        dump.contains("queue kcryptd unbound numa: 0 active, 0 inactive; 1 queued"),
        "{dump}"
    );
}

/// The one who detaches is not told; the figures are.
#[test]
fn what_is_refused_and_detached_is_counted() {
    let sys = system();
    let wq = bound(&sys);
    wq.clone().destroy_blocking().unwrap();
    wq.spawn(|| ()).detach();
    wq.spawn_on(0, || ()).detach();
    wq.spawn_named("named", || ()).detach();
    wq.spawn_future(async {}).detach();
    assert_eq!(wq.stats().refused, 4);
    assert!(wq.try_spawn(|| ()).is_err());
    assert!(wq.queue(&Work::new(|| ())).is_err());
    assert_eq!(wq.stats().refused, 4, "those callers have been told");
}
