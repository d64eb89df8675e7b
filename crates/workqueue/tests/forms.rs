//! The further ways to queue and to run: refused functions that come back, names, handles that are
//! let go, queues without concurrency management, a function on each CPU.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::fault::Faults;
use inflight_sync::{Arc, Mutex, block_on, thread};
use inflight_topology::Scope;
use inflight_workqueue::{
    Attrs, Concurrency, JoinError, QueueError, Work, Workqueue, WorkqueueSystem, current_item,
    current_work,
};
use std::time::Duration;
use support::{Inside, LOOKS, Level, Log, bound, builder, one_cpu, rigged, system, until};

/// A function that is refused comes back whole, with the reason, and can be run or queued again.
#[test]
fn a_refused_function_comes_back() {
    let faults = Faults::new();
    let sys = builder().faults(&faults).build().unwrap();
    let wq = sys.workqueue("high").bound().highpri().build().unwrap();
    let closed = bound(&sys);
    closed.destroy_blocking().unwrap();
    let held = Arc::new(7);
    let add = {
        let held = held.clone();
        move || *held + 1
    };
    let refused = closed.try_spawn(add).unwrap_err();
    assert_eq!(refused.error(), QueueError::Destroyed);
    assert_eq!(Arc::strong_count(&held), 2, "it holds what it held");
    // The first item of the pool that needs a thread: refused, and the queue is as it was.
    faults.refuse_spawns(true);
    let refused = wq.try_spawn(refused.into_inner()).unwrap_err();
    assert!(matches!(refused.error(), QueueError::NoWorker(_)));
    assert_eq!((wq.stats().in_flight(), wq.stats().completed), (0, 0));
    faults.refuse_spawns(false);
    let handle = wq.try_spawn(refused.into_inner()).unwrap();
    assert_eq!(handle.wait().unwrap(), 8);
    wq.flush_blocking().unwrap();
    assert_eq!(Arc::strong_count(&held), 1, "it ran once and has gone");
    drop(sys);
    let refused = wq.try_spawn(|| "here, then").unwrap_err();
    assert_eq!(refused.error(), QueueError::ShutDown);
    assert_eq!(refused.into_inner()(), "here, then");
}

/// While a queue is drained, a stranger's function comes back, and one of its own items' does not.
#[test]
fn a_draining_queue_gives_functions_back() {
    let sys = system();
    let wq = bound(&sys);
    let (go, begun) = (Level::new(), Level::new());
    let own = wq.spawn({
        let (wq, go, begun) = (wq.clone(), go.clone(), begun.clone());
        move || {
            begun.raise();
            go.wait(1);
            wq.try_spawn(|| 7).map(|handle| handle.wait().unwrap()).ok()
        }
    });
    begun.wait(1);
    let drainer = thread::spawn({
        let wq = wq.clone();
        move || wq.drain_blocking()
    });
    let is_draining = || {
        let refused = wq.try_spawn(|| ()).err();
        refused.is_some_and(|refused| refused.error() == QueueError::Draining)
    };
    until(is_draining, || "it is not drained".to_owned());
    go.raise();
    assert_eq!(own.wait().unwrap(), Some(7));
    drainer.join().unwrap().unwrap();
}

/// The name given is that of the panic and of the traces.
#[test]
fn a_function_has_the_name_it_was_given() {
    let names = Log::new();
    let sys = builder().trace({
        let names = names.clone();
        move |event| names.push(event.item.to_owned())
    });
    let sys = sys.build().unwrap();
    let wq = bound(&sys);
    let number = 3;
    assert_eq!(
        wq.spawn_named(format!("scan {number}"), || 7)
            .wait()
            .unwrap(),
        7
    );
    let failed = wq.spawn_named("rescan", || panic!("no disk")).wait();
    let Err(JoinError::Panicked(panic)) = failed else {
        panic!("it panics");
    };
    assert_eq!((panic.item(), panic.message()), ("rescan", Some("no disk")));
    wq.flush_blocking().unwrap();
    let names = names.entries();
    assert!(
        names
            .iter()
            .all(|name| name == "scan 3" || name == "rescan")
    );
    assert!(names.contains(&"scan 3".to_owned()), "{names:?}");
}

/// A handle that is let go cancels nothing, whenever that is; the result is dropped.
#[test]
fn a_detached_function_runs() {
    let sys = one_cpu().sampling(false).build().unwrap();
    let wq = bound(&sys);
    let (ran, result) = (Level::new(), Arc::new(()));
    let spawn = || {
        let (ran, result) = (ran.clone(), result.clone());
        wq.spawn_on(0, move || {
            ran.raise();
            result
        })
    };
    let open = support::plug(&wq);
    spawn().detach();
    open.raise();
    ran.wait(1);
    let ended = spawn();
    wq.flush_blocking().unwrap();
    ended.detach();
    spawn().detach();
    wq.flush_blocking().unwrap();
    assert_eq!((ran.get(), Arc::strong_count(&result)), (3, 1));
    wq.spawn_future(async move { drop(result) }).detach();
    wq.flush_blocking().unwrap();
    assert_eq!(wq.stats().completed, 5);
}

/// Waits until so many have begun, and says nothing of that to the pool. `false`: they do not.
fn meet(begun: &Level, so_many: usize) -> bool {
    let mut looks = 0..LOOKS;
    begun.get() >= so_many
        || looks.any(|_| {
            thread::yield_now();
            begun.get() >= so_many
        })
}

fn unmanaged(sys: &WorkqueueSystem, max_active: usize, attrs: Attrs) -> Workqueue {
    let attrs = attrs.concurrency(Concurrency::Unmanaged);
    let wq = sys.workqueue("unmanaged").unbound(attrs);
    wq.max_active(max_active).build().unwrap()
}

/// As many run at once as `max_active` lets, though none says that it waits and there is one CPU;
/// and never more.
#[test]
fn an_unmanaged_queue_runs_all_that_its_limit_lets() {
    const LIMIT: usize = 5;
    let strict = Attrs::new().scope(Scope::Cpu).strict(true);
    for attrs in [Attrs::new(), strict] {
        let sys = one_cpu().sampling(false).build().unwrap();
        let wq = unmanaged(&sys, LIMIT, attrs);
        let (begun, inside) = (Level::new(), Inside::new());
        let handles: Vec<_> = (0..4 * LIMIT)
            .map(|_| {
                let (begun, inside) = (begun.clone(), inside.clone());
                wq.spawn(move || {
                    inside.enter();
                    begun.raise();
                    // The first ones end when so many have begun.
                    let have_met = meet(&begun, LIMIT);
                    inside.leave();
                    have_met
                })
            })
            .collect();
        assert!(handles.into_iter().all(|handle| handle.wait().unwrap()));
        assert_eq!(inside.most(), LIMIT);
    }
}

/// They hold nobody of the same pool back, who does not run beside others of his kind.
#[test]
fn unmanaged_items_hold_managed_ones_not_back() {
    let sys = one_cpu().sampling(false).build().unwrap();
    let many = unmanaged(&sys, 8, Attrs::new());
    let wq = sys.workqueue("managed").unbound(Attrs::new());
    let wq = wq.build().unwrap();
    let (begun, open, inside) = (Level::new(), Level::new(), Inside::new());
    let held: Vec<_> = (0..3)
        .map(|_| {
            let (begun, open) = (begun.clone(), open.clone());
            many.spawn(move || {
                begun.raise();
                open.wait_silently(1);
            })
        })
        .collect();
    begun.wait(3);
    let managed: Vec<_> = (0..20)
        .map(|_| {
            let inside = inside.clone();
            wq.spawn(move || {
                inside.enter();
                thread::yield_now();
                inside.leave();
            })
        })
        .collect();
    managed
        .into_iter()
        .for_each(|handle| handle.wait().unwrap());
    assert_eq!(inside.most(), 1, "one CPU");
    open.raise();
    held.into_iter().for_each(|handle| handle.wait().unwrap());
}

/// The attribute is changed in use.
#[test]
fn concurrency_changes_in_use() {
    let sys = one_cpu().sampling(false).build().unwrap();
    let wq = sys.workqueue("w").unbound(Attrs::new()).build().unwrap();
    let both = || {
        let begun = Level::new();
        let [a, b] = [(); 2].map(|()| {
            let begun = begun.clone();
            wq.spawn(move || {
                begun.raise();
                meet(&begun, 2)
            })
        });
        a.wait().unwrap() && b.wait().unwrap()
    };
    let managed = Attrs::new();
    wq.set_attrs(managed.clone().concurrency(Concurrency::Unmanaged))
        .unwrap();
    assert!(both(), "they run at once");
    wq.set_attrs(managed).unwrap();
    let inside = Inside::new();
    let handles: Vec<_> = (0..10)
        .map(|_| {
            let inside = inside.clone();
            wq.spawn(move || {
                inside.enter();
                thread::yield_now();
                inside.leave();
            })
        })
        .collect();
    handles
        .into_iter()
        .for_each(|handle| handle.wait().unwrap());
    assert_eq!(inside.most(), 1);
}

/// The work that runs, and nothing where none does.
#[test]
fn a_work_finds_itself() {
    let sys = system();
    let wq = bound(&sys);
    let found = Log::new();
    let work = Work::named("finds itself", {
        let found = found.clone();
        move || {
            let me = current_work().unwrap();
            let item = current_item().unwrap();
            found.push((me.name().to_owned(), item.queue, item.pool, me.is_running()));
        }
    });
    assert!(wq.queue_on(3, &work).unwrap().is_queued());
    work.flush_blocking().unwrap();
    let is = |s: &str| s.to_owned();
    assert_eq!(
        found.entries(),
        [(is("finds itself"), is("bound"), is("cpu 3"), true)]
    );
    // In a function there is an item, and no work; on its caller's thread, which is no worker,
    // neither.
    let in_function = || {
        (
            current_work().is_some(),
            current_item().map(|item| item.queue),
        )
    };
    assert_eq!(
        wq.spawn(in_function).wait().unwrap(),
        (false, Some(is("bound")))
    );
    let wide = sys.workqueue("wide").unbound(Attrs::new()).build().unwrap();
    assert_eq!(wide.call_blocking(in_function).unwrap(), (false, None));
    assert!(current_work().is_none() && current_item().is_none());
    let polled = wq
        .spawn_future(async move { in_function() })
        .wait()
        .unwrap();
    assert_eq!(polled, (false, Some(is("bound"))));
}

/// A handle that a work has got of itself keeps it, and the work does not keep itself.
#[test]
fn a_work_that_finds_itself_goes_with_its_last_handle() {
    let sys = system();
    let wq = bound(&sys);
    let (held, handles) = (Arc::new(()), Arc::new(Mutex::new(Vec::new())));
    let work = Work::new({
        let (held, handles) = (held.clone(), handles.clone());
        move || {
            let _held = &held;
            handles.lock().push(current_work().unwrap());
        }
    });
    assert!(wq.queue(&work).unwrap().is_queued());
    wq.flush_blocking().unwrap();
    drop(work);
    assert_eq!(Arc::strong_count(&held), 2, "the list has a handle");
    let again = handles.lock().remove(0);
    assert!(wq.queue(&again).unwrap().is_queued());
    again.flush_blocking().unwrap();
    drop(again);
    // The list is the work's, and holds it.
    assert_eq!(std::mem::take(&mut *handles.lock()).len(), 1);
    wq.flush_blocking().unwrap();
    assert_eq!(Arc::strong_count(&held), 1);
}

/// One function on a CPU, and one on each, in the CPUs' order; each is there.
#[test]
fn functions_run_on_the_cpus_named() {
    let sys = system();
    let here = || current_item().unwrap().pool;
    assert_eq!(sys.work_on_cpu(2, here).wait().unwrap(), "cpu 2");
    assert_eq!(block_on(sys.work_on_cpu(3, here)).unwrap(), "cpu 3");
    let no_cpu = sys.work_on_cpu(99, here).wait().unwrap_err();
    let no_such = |e: &JoinError| matches!(e, JoinError::Rejected(QueueError::NoSuchCpu(99)));
    assert!(no_such(&no_cpu), "{no_cpu}");
    // All are there at once: each waits for the others.
    let begun = Level::new();
    let meet = {
        let begun = begun.clone();
        move |cpu| {
            begun.raise();
            begun.wait(4);
            (cpu, here())
        }
    };
    let expected: Vec<_> = (0..4).map(|cpu| (cpu, format!("cpu {cpu}"))).collect();
    type Wait<F> = fn(&WorkqueueSystem, F) -> Result<Vec<(usize, String)>, JoinError>;
    let waits: [Wait<_>; 3] = [
        |sys, f| block_on(sys.schedule_on_each_cpu(f)),
        |sys, f| sys.schedule_on_each_cpu_blocking(f),
        |sys, f| sys.schedule_on_each_cpu_timeout(f, Duration::from_secs(3_600)),
    ];
    for wait in waits {
        assert_eq!(wait(&sys, meet.clone()).unwrap(), expected);
    }
    // One that fails does not keep the others from running.
    let ran = Level::new();
    let failed = sys.schedule_on_each_cpu_blocking({
        let ran = ran.clone();
        move |cpu| {
            assert_ne!(cpu, 1, "not here");
            ran.raise();
        }
    });
    let Err(JoinError::Panicked(panic)) = failed else {
        panic!("it panics on CPU 1");
    };
    assert!(panic.message().unwrap().contains("not here"));
    assert_eq!(ran.get(), 3);
    drop(sys);
}

/// The functions are queued with the call, and run although nobody waits for them any more.
#[test]
fn functions_on_each_cpu_run_if_nobody_waits() {
    let (sys, _faults, clock) = rigged(builder().sampling(false));
    let (open, ran) = (Level::new(), Level::new());
    let function = {
        let (open, ran) = (open.clone(), ran.clone());
        move |_| {
            open.wait(1);
            ran.raise();
        }
    };
    drop(sys.schedule_on_each_cpu(function.clone()));
    let waiter = thread::spawn({
        let sys = sys.clone();
        move || sys.schedule_on_each_cpu_timeout(function, Duration::from_secs(1))
    });
    until(
        || {
            clock.advance(Duration::from_millis(100));
            waiter.is_finished()
        },
        || sys.dump(),
    );
    let late = waiter.join().unwrap();
    assert!(matches!(late, Err(JoinError::TimedOut)), "{late:?}");
    assert_eq!(ran.get(), 0);
    open.raise();
    ran.wait(8);
}

/// An item of a BH queue is told so, and does not sleep.
#[test]
fn a_bh_item_does_not_wait_for_functions_on_each_cpu() {
    let sys = system();
    let bh = sys.workqueue("bh").bh().build().unwrap();
    let (inner, open) = (sys.clone(), Level::new());
    let function = {
        let open = open.clone();
        move |_| open.wait(1)
    };
    let told = bh.spawn(move || {
        [
            inner.schedule_on_each_cpu_blocking(function.clone()),
            inner.schedule_on_each_cpu_timeout(function, Duration::from_secs(1)),
        ]
    });
    let told = told.wait().unwrap();
    open.raise();
    for told in told {
        assert!(matches!(told, Err(JoinError::WouldDeadlock)), "{told:?}");
    }
}

/// A name is that of panics, of a function that may come back too and of a future.
#[test]
fn functions_and_futures_have_names() {
    let sys = system();
    let wq = bound(&sys);
    let named = |failed: Result<(), JoinError>| match failed {
        Err(JoinError::Panicked(panic)) => panic.item().to_owned(),
        other => panic!("{other:?}"),
    };
    let spawned = wq
        .try_spawn_named("rescan", || panic!("on purpose"))
        .unwrap();
    assert_eq!(named(spawned.wait()), "rescan");
    let polled = wq.spawn_future_named(format!("reader {}", 3), async { panic!("on purpose") });
    assert_eq!(named(polled.wait()), "reader 3");
    wq.flush_blocking().unwrap();
    assert!(sys.dump().contains("reader 3"), "{}", sys.dump());
    wq.destroy_blocking().unwrap();
    let rejected = wq.try_spawn_named("rescan", || 7).unwrap_err();
    assert_eq!(
        (rejected.error(), rejected.into_inner()()),
        (QueueError::Destroyed, 7)
    );
    let late = wq.spawn_future_named("late", async {}).wait();
    assert!(matches!(
        late,
        Err(JoinError::Rejected(QueueError::Destroyed))
    ));
}

/// The attribute does not touch the order of a queue that has one.
#[test]
fn an_unmanaged_ordered_queue_keeps_its_order() {
    let sys = system();
    let attrs = Attrs::new().concurrency(Concurrency::Unmanaged);
    let wq = sys.workqueue("o").ordered_with(attrs).build().unwrap();
    let log = Log::new();
    for n in 0..50 {
        let log = log.clone();
        drop(wq.spawn_on(n % 4, move || log.push(n)));
    }
    wq.flush_blocking().unwrap();
    assert_eq!(log.entries(), (0..50).collect::<Vec<_>>());
}
