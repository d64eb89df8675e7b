//! Which worker of another pod is woken, and which one steals.

use super::*;
use crate::steal_policy::Load;
use crate::test_support::{Rigged, Signal, end, hold, until};
use crate::{Attrs, Workqueue, blocking};
use inflight_sync::fault::Faults;
use inflight_sync::{Arc, Mutex, thread};
use inflight_topology::Scope;

/// Pods of one CPU each. The clock stands still: no ticks; a woken worker arrives at once.
fn pods(machine: &str) -> (Rigged, Workqueue) {
    pods_with(machine, &Faults::none())
}

fn pods_with(machine: &str, faults: &Faults) -> (Rigged, Workqueue) {
    let sys = Rigged::new(machine, |builder| builder.faults(faults));
    let attrs = Attrs::new().scope(Scope::Cpu);
    let wq = sys.0.workqueue("pods").unbound(attrs).build().unwrap();
    (sys, wq)
}

fn pool(wq: &Workqueue, cpu: usize) -> Arc<WorkerPool> {
    wq.inner().pwq_of(cpu).unwrap().pool.clone()
}

/// Makes items of that CPU's pod take long: if one waits, any pod that can should help.
fn take_long(wq: &Workqueue, cpu: usize) {
    let pool = pool(wq, cpu);
    let mut state = pool.lock();
    state.core.note_service(1 << 40);
    pool.unlock(state, false);
}

/// How many run, how many are idle, and how many there are.
fn workers(pool: &WorkerPool) -> [usize; 3] {
    let state = pool.lock();
    let workers = &state.core.workers;
    [
        workers.nr_running(),
        workers.nr_idle(),
        workers.nr_workers(),
    ]
}

/// A queue that is made later may have pools on other CPUs: the older pools learn of them.
#[test]
fn an_old_pool_meets_new_siblings() {
    let (sys, wq) = pods("cache:2 core:2");
    let met = || {
        let pool = pool(&wq, 0);
        let state = pool.lock();
        let all = state.siblings.iter().flat_map(|siblings| &siblings.all);
        let cpus = all.map(|sibling| sibling.pool.upgrade().unwrap().attrs.cpus.len());
        cpus.collect::<Vec<_>>()
    };
    assert_eq!(met(), [1, 1, 1, 1]);
    let attrs = Attrs::new().scope(Scope::Cache);
    let _wide = sys.0.workqueue("wide").unbound(attrs).build().unwrap();
    let mut all = met();
    all.sort_unstable();
    assert_eq!(all, [1, 1, 1, 1, 2], "the cache of which it is no part");
}

/// A pool is asked for help because of an outdated hint: it has no room for another running worker,
/// so none is woken. The next pool is asked.
#[test]
fn an_invite_brings_nobody_beyond_the_target() {
    let (_sys, wq) = pods("core:3");
    let held = [0, 1].map(|cpu| hold(&wq, cpu));
    let waits = wq.spawn_on(0, || ());
    let other = pool(&wq, 1);
    other.hint.tell(&Load::default());
    take_long(&wq, 0);
    assert_eq!(wq.stats().remote_wakeups, 1);
    waits.wait().unwrap();
    assert_eq!((workers(&other), wq.stats().stolen), ([1, 0, 1], 1));
    held.into_iter().for_each(end);
}

/// Siblings are told that something waits, and then only when one of them could help.
#[test]
fn siblings_are_told_when_they_could_help() {
    let (_sys, wq) = pods("core:2");
    let held = [0, 1].map(|cpu| hold(&wq, cpu));
    let own = pool(&wq, 0);
    let help_from = {
        let mut state = own.lock();
        state.watched = true;
        state.core.note_service(20_000);
        let siblings = state.siblings.clone().unwrap();
        let load = state.load(&own);
        own.unlock(state, false);
        siblings.policy.needs_help_from(siblings.me, &load)
    };
    assert!((3..100).contains(&help_from), "{help_from}");
    let told = || (own.hint.load().waiting, own.lock().overloaded);
    let push = || wq.spawn_on(0, || ());
    let mut items: Vec<_> = (1..help_from).map(|_| push()).collect();
    assert_eq!(told(), (1, false));
    items.push(push());
    assert_eq!(told(), (help_from, true));
    held.into_iter().for_each(end);
    items.into_iter().for_each(|item| item.wait().unwrap());
}

/// Siblings are also told when something else that they know has changed.
#[test]
fn siblings_are_told_when_something_else_has_changed() {
    type Change = fn(&mut PoolState, &WorkerPool);
    let changes: [Change; 2] = [
        |state, _| state.core.note_service(1 << 40),
        |_, pool| pool.hint.set_submitters(1),
    ];
    for change in changes {
        let (_sys, wq) = pods("core:2");
        let held = [0, 1].map(|cpu| hold(&wq, cpu));
        let own = pool(&wq, 0);
        own.lock().watched = true;
        let mut items: Vec<_> = (0..3).map(|_| wq.spawn_on(0, || ())).collect();
        assert!(!own.lock().overloaded);
        change(&mut own.lock(), &own);
        items.push(wq.spawn_on(0, || ()));
        assert!(own.lock().overloaded);
        held.into_iter().for_each(end);
        items.into_iter().for_each(|item| item.wait().unwrap());
    }
}

/// A pod's own items come first, however many another one has.
#[test]
fn a_worker_with_something_at_home_does_not_steal() {
    let (_sys, wq) = pods("core:2");
    let (busy, held) = (hold(&wq, 0), hold(&wq, 1));
    let log = Arc::new(Mutex::new(Vec::new()));
    let items = [(0, "other"), (0, "another"), (1, "own")].map(|(cpu, name)| {
        let log = log.clone();
        wq.spawn_on(cpu, move || log.lock().push(name))
    });
    take_long(&wq, 0);
    assert_eq!(wq.stats().stolen, 0);
    end(held);
    items.into_iter().for_each(|item| item.wait().unwrap());
    assert_eq!(*log.lock(), ["own", "other", "another"]);
    assert_eq!(wq.stats().stolen, 2, "their own worker is occupied");
    end(busy);
}

/// An item returns from a blocking section while another one runs in its place: the first worker to
/// end its item is one too many, and sleeps.
#[test]
fn a_worker_that_is_one_too_many_does_not_steal() {
    let (_sys, wq) = pods("core:2");
    let busy = hold(&wq, 0);
    let [blocked, unblock, back, over] = [(); 4].map(|()| Signal::default());
    let sleeps = until(&blocked, &unblock, 1);
    let goes_on = until(&back, &over, 1);
    let first = wq.spawn_on(1, move || {
        blocking(sleeps);
        goes_on();
    });
    blocked.wait(1);
    let second = hold(&wq, 1);
    unblock.raise();
    back.wait(1);
    let beside = second.1.clone();
    let waits = wq.spawn_on(0, move || beside.get() > 0);
    take_long(&wq, 0);
    let thief = pool(&wq, 1);
    assert_eq!(workers(&thief), [2, 0, 2]);
    over.raise();
    first.wait().unwrap();
    while workers(&thief) != [1, 1, 2] {
        assert_eq!(wq.stats().stolen, 0);
        thread::yield_now();
    }
    assert_eq!((wq.stats().stolen, waits.is_finished()), (0, false));
    end(second);
    assert!(waits.wait().unwrap(), "the second one has ended");
    assert_eq!(wq.stats().stolen, 1);
    end(busy);
}

/// A pod is asked for help and is refused the thread for it: no worker was woken there.
#[test]
fn an_invite_whose_thread_is_refused_brings_nobody() {
    let faults = Faults::new();
    let (_sys, wq) = pods_with("core:2", &faults);
    let held = hold(&wq, 0);
    let waits = wq.spawn_on(0, || ());
    faults.refuse_spawns(true);
    take_long(&wq, 0);
    faults.refuse_spawns(false);
    let refused = pool(&wq, 1).lock().is_refused();
    end(held);
    waits.wait().unwrap();
    assert!(refused, "it was asked");
    assert_eq!(wq.stats().remote_wakeups, 0);
}

/// A pool without queues, or that is gone, does not help, and holds nobody up who does.
#[test]
fn a_pool_that_nobody_uses_is_no_helper() {
    for has_gone in [false, true] {
        let sys = Rigged::new("cache:2 core:2", |builder| builder);
        let make = |name, scope| {
            let attrs = Attrs::new().scope(scope);
            sys.0.workqueue(name).unbound(attrs).build().unwrap()
        };
        let small = make("small", Scope::Cpu);
        let left = Arc::downgrade(&pool(&small, 2));
        let wq = make("moves", Scope::Cache);
        if has_gone {
            drop(small);
        } else {
            small.set_attrs(Attrs::new().scope(Scope::Cache)).unwrap();
        }
        assert_eq!(left.upgrade().is_none(), has_gone);
        let held = [0, 0].map(|cpu| hold(&wq, cpu));
        let waits = wq.spawn_on(0, || ());
        take_long(&wq, 0);
        assert_eq!(wq.stats().remote_wakeups, 1);
        waits.wait().unwrap();
        held.into_iter().for_each(end);
    }
}

/// Each queue counts its own stolen items, also beside others in one batch.
#[test]
fn each_queue_counts_what_was_stolen_of_it() {
    let (sys, wq) = pods("core:2");
    let few = sys
        .0
        .workqueue("few")
        .unbound(wq.inner().attrs())
        .build()
        .unwrap();
    let held = hold(&wq, 0);
    {
        let own = pool(&wq, 0);
        let mut state = own.lock();
        state.watched = true;
        state.core.set_batching(true);
    }
    let first = few.spawn_on(0, || ());
    let items = [(); 300].map(|()| wq.spawn_on(0, || ()));
    first.wait().unwrap();
    assert!(wq.stats().stolen > 0);
    assert_eq!(few.stats().stolen, 1);
    end(held);
    items.into_iter().for_each(|item| item.wait().unwrap());
}
