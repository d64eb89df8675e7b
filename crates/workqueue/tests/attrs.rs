//! Attributes that change while a queue is in use, and pools that come and go with them.
#![cfg(all(target_os = "linux", not(any(loom, shuttle))))]

mod support;

use inflight_sync::fault::Faults;
use inflight_sync::{Arc, Mutex};
use inflight_topology::{CpuSet, Scope, Topology};
use inflight_workqueue::{
    Attrs, AttrsError, BuildError, JoinError, Kind, MaxActiveError, WaitError, Work, Workqueue,
    WorkqueueSystem,
};
use proptest::prelude::*;
use std::io;
use std::time::Duration;
use support::{Inside, Level, Log, bound, builder, held_work, system, until};

fn unbound(sys: &WorkqueueSystem, attrs: Attrs) -> Workqueue {
    sys.workqueue("unbound").unbound(attrs).build().unwrap()
}

fn cache() -> Attrs {
    Attrs::new().scope(Scope::Cache)
}

/// The name of the pool whose worker asks: `u0` of `inflight/u0:0`.
fn pool_here() -> String {
    let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
    let pool = name.strip_prefix("inflight/").unwrap();
    pool.split(':').next().unwrap().to_owned()
}

/// The pools of groups of CPUs, as the dump has them: "u0 cpus 0-1".
fn pools(sys: &WorkqueueSystem) -> Vec<String> {
    let dump = sys.dump();
    let lines = dump.lines().filter_map(|line| line.strip_prefix("pool u"));
    let place = |line: &str| line.split(':').next().unwrap().to_owned();
    lines.map(place).collect()
}

/// Waits until these pools are left: the last worker of a pool goes after its item.
fn await_pools(sys: &WorkqueueSystem, expected: &[&str]) {
    let or = || format!("expected {expected:?}: {}", sys.dump());
    until(|| pools(sys) == expected, or);
}

fn pool_of(wq: &Workqueue, cpu: usize) -> String {
    wq.spawn_on(cpu, pool_here).wait().unwrap()
}

#[test]
fn pools_go_with_the_last_queue_that_uses_them() {
    let sys = system();
    let queues = [unbound(&sys, cache()), unbound(&sys, cache())];
    for wq in &queues {
        assert_eq!(pool_of(wq, 0), "u0");
    }
    let [first, second] = queues;
    drop(first);
    assert_eq!(pool_of(&second, 1), "u0", "somebody uses it");
    drop(second);
    await_pools(&sys, &[]);
    let third = unbound(&sys, cache());
    third.spawn_on(0, || ()).wait().unwrap();
    let irq = bound(&sys);
    irq.spawn_on(3, || ()).wait().unwrap();
    drop((irq, third));
    await_pools(&sys, &[]);
    until(|| !sys.dump().contains("pool cpu 3"), || sys.dump());
}

/// What is queued when the last handle goes runs, and then its pool goes.
#[test]
fn a_pool_lives_as_long_as_its_items() {
    let sys = system();
    let wq = unbound(&sys, cache());
    let (work, release, begun) = held_work();
    assert!(wq.queue_on(0, &work).unwrap().is_queued());
    drop(wq);
    begun.wait(1);
    assert_eq!(pools(&sys).len(), 2);
    release.raise();
    await_pools(&sys, &[]);
}

/// A drain keeps what is left of a queue without handles: no change of settings gives it pools.
#[test]
fn a_queue_that_has_gone_gets_no_pools() {
    let sys = system();
    let wq = unbound(&sys, cache());
    let drain = wq.drain();
    drop(wq);
    await_pools(&sys, &[]);
    sys.set_unbound_cpumask(&CpuSet::from_iter([0])).unwrap();
    sys.set_default_scope(Scope::Numa).unwrap();
    await_pools(&sys, &[]);
    drop(drain);
    await_pools(&sys, &[]);
    let wq = unbound(&sys, Attrs::new());
    assert_eq!(wq.spawn(|| 7).wait().unwrap(), 7, "others do");
}

#[test]
fn attributes_change_while_items_run() {
    let sys = system();
    let wq = unbound(&sys, cache());
    let (begun, open) = (Level::new(), Level::new());
    let old = wq.spawn_on(0, {
        let (begun, open) = (begun.clone(), open.clone());
        move || {
            begun.raise();
            open.wait(1);
            pool_here()
        }
    });
    begun.wait(1);
    let strict = cache().strict(true);
    wq.set_attrs(strict.clone()).unwrap();
    assert_eq!(wq.kind(), Kind::Unbound(strict));
    let strict_pool = pool_of(&wq, 0);
    assert_eq!(
        pools(&sys),
        ["0 cpus 0-1", "2 cpus 0-1 strict", "3 cpus 2-3 strict"]
    );
    wq.set_attrs(Attrs::new().scope(Scope::System)).unwrap();
    assert_eq!(pool_of(&wq, 3), pool_of(&wq, 0), "one group now");
    open.raise();
    assert_eq!(
        (old.wait().unwrap(), strict_pool),
        ("u0".into(), "u2".into())
    );
    await_pools(&sys, &["4 cpus 0-3"]);
    wq.flush_blocking().unwrap();
    assert_eq!(wq.stats().completed, 4);
}

/// An ordered queue moves while its item runs. What is queued after that waits for the item, in
/// another pool: the item may not wait for it.
#[test]
fn an_ordered_item_is_told_that_it_waits_for_itself_after_a_move() {
    let sys = system();
    let wq = sys.workqueue("line").ordered_with(cache()).build().unwrap();
    let work = Work::new(|| ());
    let told = wq.spawn_on(0, {
        let (wq, work) = (wq.clone(), work.clone());
        move || {
            wq.set_attrs(cache().strict(true)).unwrap();
            assert!(wq.queue_on(0, &work).unwrap().is_queued());
            let flushed = work.flush_timeout(Duration::from_secs(5));
            flushed == Err(WaitError::WouldDeadlock) && {
                let waited = wq.spawn_on(0, || ()).wait();
                matches!(waited, Err(JoinError::WouldDeadlock))
            }
        }
    });
    assert!(told.wait().unwrap());
    wq.flush_blocking().unwrap();
    assert_eq!(wq.stats().completed, 3);
}

/// What waits for a slot when the attributes change goes where it was to go; what comes later goes
/// the new way, behind it.
#[test]
fn inactive_items_end_where_they_were_queued() {
    let sys = system();
    let builder = sys.workqueue("one").unbound(cache());
    let wq = builder.max_active(1).build().unwrap();
    let log = Log::new();
    let (work, release, begun) = held_work();
    assert!(wq.queue_on(0, &work).unwrap().is_queued());
    begun.wait(1);
    let item = |n: u32| {
        let log = log.clone();
        drop(wq.spawn_on(0, move || log.push((n, pool_here()))));
    };
    item(1);
    wq.set_attrs(cache().strict(true)).unwrap();
    item(2);
    release.raise();
    wq.flush_blocking().unwrap();
    assert_eq!(log.entries(), [(1, "u0".into()), (2, "u2".into())]);
    await_pools(&sys, &["2 cpus 0-1 strict", "3 cpus 2-3 strict"]);
}

/// A20: an item that queues itself goes where its queue's items go now, and waits there until it
/// has ended here.
#[test]
fn a20_an_item_that_queues_itself_follows_its_queue() {
    let sys = system();
    let wq = unbound(&sys, cache());
    let log = Log::new();
    let (begun, open) = (Level::new(), Level::new());
    let own: Arc<Mutex<Option<Work>>> = Arc::default();
    let work = Work::new({
        let (log, begun, open) = (log.clone(), begun.clone(), open.clone());
        let (wq, own) = (wq.clone(), own.clone());
        move || {
            log.push(pool_here());
            begun.raise();
            open.wait(1);
            if log.entries().len() < 3 {
                let me = own.lock().clone().unwrap();
                assert!(wq.queue(&me).unwrap().is_queued());
            }
        }
    });
    *own.lock() = Some(work.clone());
    assert!(wq.queue_on(0, &work).unwrap().is_queued());
    begun.wait(1);
    wq.set_attrs(cache().strict(true)).unwrap();
    open.raise();
    begun.wait(3);
    work.flush_blocking().unwrap();
    assert_eq!(log.entries(), ["u0", "u2", "u2"]);
    own.lock().take();
}

#[test]
fn all_or_nothing() {
    let faults = Faults::new();
    let builder = builder();
    let sys = builder.sampling(false).faults(&faults).build().unwrap();
    let wq = unbound(&sys, cache());
    assert_eq!(pool_of(&wq, 0), "u0");
    assert_eq!(pool_of(&wq, 2), "u1");
    let before = pools(&sys);
    let (work, release, begun) = held_work();
    assert!(wq.queue_on(0, &work).unwrap().is_queued());
    begun.wait(1);
    faults.refuse_spawns(true);
    let refused = Err(AttrsError::NoWorker(io::ErrorKind::WouldBlock));
    assert_eq!(wq.set_attrs(cache().strict(true)), refused);
    assert_eq!(sys.set_unbound_cpumask(&CpuSet::from([1, 2])), refused);
    assert_eq!(
        sys.set_default_scope(Scope::Cpu),
        Ok(()),
        "nobody follows it"
    );
    assert_eq!(wq.kind(), Kind::Unbound(cache()));
    assert_eq!(sys.unbound_cpumask().to_string(), "0-3");
    assert_eq!(pools(&sys), before, "nothing is left of the attempt");
    assert_eq!(pool_of(&wq, 3), "u1", "and it goes on as before");
    // A queue without items needs nothing yet.
    release.raise();
    wq.flush_blocking().unwrap();
    assert_eq!(wq.set_attrs(cache().strict(true)), Ok(()));
}

#[test]
fn wrong_attributes_are_refused() {
    let sys = system();
    let attrs = Attrs::new().nice(20);
    let refused = AttrsError::Nice { asked: 20 };
    let built = sys.workqueue("n").unbound(attrs.clone()).build();
    assert_eq!(built.unwrap_err(), BuildError::Attrs(refused.clone()));
    assert_eq!(unbound(&sys, cache()).set_attrs(attrs), Err(refused));
    assert_eq!(bound(&sys).set_attrs(cache()), Err(AttrsError::NotUnbound));
}

/// D6: who names no scope follows the default, whatever it becomes; others do not.
#[test]
fn d6_the_default_scope_is_followed() {
    let sys = system();
    let (follows, own) = (unbound(&sys, Attrs::new()), unbound(&sys, cache()));
    let same = |wq| pool_of(wq, 0) == pool_of(wq, 3);
    assert!(!same(&follows) && !same(&own));
    sys.set_default_scope(Scope::System).unwrap();
    assert!(same(&follows) && !same(&own));
    assert_eq!(follows.kind(), Kind::Unbound(Attrs::new()));
}

/// D2, D15, D17: the mask of the system is changed under all unbound queues, ordered ones included.
#[test]
fn d17_the_unbound_mask_reaches_every_queue() {
    let sys = system();
    let strict = cache().strict(true);
    let plain = unbound(&sys, strict.clone());
    let masked = unbound(&sys, strict.clone().cpumask(CpuSet::from([0])));
    let ordered = sys.workqueue("o").ordered_with(strict).build().unwrap();
    for wq in [&plain, &masked, &ordered] {
        wq.spawn_on(1, || ()).wait().unwrap();
    }
    assert_eq!(
        pools(&sys),
        [
            "0 cpus 0-1 strict",
            "1 cpus 2-3 strict",
            "2 cpus 0 strict",
            "3 cpus 0-3 strict"
        ]
    );
    sys.set_unbound_cpumask(&CpuSet::from([2, 3])).unwrap();
    await_pools(&sys, &["1 cpus 2-3 strict"]);
    for wq in [&plain, &masked, &ordered] {
        assert_eq!(pool_of(wq, 0), "u1");
    }
    let cpus = CpuSet::from([7]);
    let nothing = sys.set_unbound_cpumask(&cpus).unwrap_err();
    assert_eq!(nothing.to_string(), "none of these CPUs can be used: \"7\"");
    assert_eq!(nothing, AttrsError::NoCpu { cpus });
    let nothing = sys.set_unbound_cpumask(&CpuSet::new()).unwrap_err();
    let text = "none of these CPUs can be used: the set is empty";
    assert_eq!(nothing.to_string(), text);
    assert_eq!(sys.unbound_cpumask().to_string(), "2-3");
    // Queues that are made later are born under it.
    assert_eq!(pool_of(&unbound(&sys, cache().strict(true)), 1), "u1");
}

/// B33: a CPU leaves and comes back; the pools of its pod follow. Bound queues go on all the time,
/// also on the CPU that has gone.
#[test]
fn b33_a_cpu_leaves_and_returns() {
    let sys = system();
    let (wq, irq) = (unbound(&sys, cache().strict(true)), bound(&sys));
    for cpu in 0..4 {
        irq.spawn_on(cpu, || ()).wait().unwrap();
        wq.spawn_on(cpu, || ()).wait().unwrap();
    }
    assert_eq!(pools(&sys), ["0 cpus 0-1 strict", "1 cpus 2-3 strict"]);
    let now = |machine: &str| sys.refresh(&Topology::synthetic(machine).unwrap());
    now("cache:2 core:2 offline:3").unwrap();
    await_pools(
        &sys,
        &["0 cpus 0-1 strict", "6 cpus 2 strict", "7 cpus 0-2 strict"],
    );
    // The CPU that has gone is in no pod: what is queued there runs anywhere.
    assert_eq!(
        (pool_of(&wq, 2), pool_of(&wq, 3)),
        ("u6".into(), "u7".into())
    );
    assert_eq!(pool_of(&irq, 3), "3", "its bound pool goes on");
    now("cache:2 core:2").unwrap();
    await_pools(&sys, &["0 cpus 0-1 strict", "1 cpus 2-3 strict"]);
    assert_eq!(pool_of(&wq, 3), "u1");
    assert!(irq.queue_on(4, &Work::new(|| ())).is_err());
}

/// A CPU that was not there when the system was made can be named once it has come.
#[test]
fn a_machine_that_grows() {
    let sys = system();
    let old = bound(&sys);
    assert!(old.queue_on(4, &Work::new(|| ())).is_err());
    let now = Topology::synthetic("cache:2 core:3").unwrap();
    sys.refresh(&now).unwrap();
    assert_eq!(pool_of(&bound(&sys), 4), "4");
    assert_eq!(pool_of(&old, 4), "0", "another one stands in");
    let wq = unbound(&sys, cache());
    assert_eq!(pool_of(&wq, 5), pool_of(&wq, 3));
    assert!(old.queue_on(6, &Work::new(|| ())).is_err());
}

#[test]
fn after_the_end_nothing_moves() {
    let sys = system();
    let wq = unbound(&sys, cache());
    wq.spawn_on(0, || ()).wait().unwrap();
    sys.shutdown_timeout(Duration::MAX).unwrap();
    let refused = Err(AttrsError::ShutDown);
    assert_eq!(wq.set_attrs(cache().strict(true)), refused);
    assert_eq!(sys.set_unbound_cpumask(&CpuSet::from([1])), refused);
}

/// Ordering cannot be taken away by any call.
#[test]
fn ordered_stays_ordered() {
    let sys = system();
    let log = sys.workqueue("log").ordered().build().unwrap();
    assert_eq!(log.set_max_active(2), Err(MaxActiveError::Ordered));
    log.set_attrs(Attrs::new().scope(Scope::Cpu)).unwrap();
    assert!(matches!(log.kind(), Kind::Ordered(_)));
    assert_eq!(log.set_max_active(2), Err(MaxActiveError::Ordered));
    assert_eq!(log.set_max_active(1), Ok(()));
    let builder = sys.workqueue("two").ordered().max_active(2);
    assert!(matches!(builder.build(), Err(BuildError::MaxActive(_))));
}

/// I.27: the old pool holds an item of an ordered queue, and the new one is to get three. They
/// wait until the old one's has ended, and then run one after the other, in order.
#[test]
fn i27_the_new_pool_waits_for_the_old_one() {
    let sys = system();
    let wq = sys.workqueue("log").ordered_with(cache()).build().unwrap();
    let (log, inside) = (Log::new(), Inside::new());
    let (work, release, begun) = held_work();
    assert!(wq.queue_on(0, &work).unwrap().is_queued());
    begun.wait(1);
    wq.set_attrs(Attrs::new().scope(Scope::Cpu)).unwrap();
    for cpu in [3, 1, 2] {
        let (log, inside) = (log.clone(), inside.clone());
        drop(wq.spawn_on(cpu, move || {
            inside.enter();
            log.push(cpu);
            inside.leave();
        }));
    }
    assert_eq!((wq.stats().active, wq.stats().inactive), (1, 3));
    release.raise();
    wq.flush_blocking().unwrap();
    assert_eq!((log.entries(), inside.most()), (vec![3, 1, 2], 1));
}

/// Attributes to change to, by number.
fn some_attrs(n: u8) -> Attrs {
    let scope = Scope::ALL[usize::from(n) % 6];
    let cpus = (0..4).filter(|cpu| n >> 4 & 1 << cpu != 0).collect();
    Attrs::new().scope(scope).strict(n % 4 == 0).cpumask(cpus)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// P4: first in, first out over all CPUs and one at a time, across random changes of attributes
    /// and of the unbound mask. And no pool is left in the end.
    #[test]
    fn p4_ordered_across_changes(steps in prop::collection::vec((0u8..4, any::<u8>()), 1..60)) {
        let sys = system();
        let wq = sys.workqueue("log").ordered().build().unwrap();
        let (log, inside) = (Log::new(), Inside::new());
        let mut queued = 0u32;
        for (what, n) in steps {
            match what {
                0 => wq.set_attrs(some_attrs(n)).unwrap(),
                1 if n % 16 != 0 => {
                    let cpus = (0..4).filter(|cpu| n & 1 << cpu != 0).collect();
                    sys.set_unbound_cpumask(&cpus).unwrap();
                }
                _ => {
                    let (log, inside, me) = (log.clone(), inside.clone(), queued);
                    queued += 1;
                    drop(wq.spawn_on(usize::from(n % 4), move || {
                        inside.enter();
                        log.push(me);
                        inside.leave();
                    }));
                }
            }
        }
        wq.flush_blocking().unwrap();
        prop_assert_eq!(log.entries(), (0..queued).collect::<Vec<_>>());
        prop_assert!(inside.most() <= 1);
        drop(wq);
        await_pools(&sys, &[]);
    }

    /// P1, P3 for any queue: whatever changes, each item runs once, and the limit holds.
    #[test]
    fn p1_unbound_across_changes(steps in prop::collection::vec((0u8..4, any::<u8>()), 1..80)) {
        let sys = system();
        let wq = sys.workqueue("w").unbound(cache()).max_active(3).build().unwrap();
        let (runs, inside) = (Level::new(), Inside::new());
        let mut queued = 0;
        for (what, n) in steps {
            if what == 0 {
                wq.set_attrs(some_attrs(n)).unwrap();
                continue;
            }
            let (runs, inside) = (runs.clone(), inside.clone());
            queued += 1;
            drop(wq.spawn_on(usize::from(n % 4), move || {
                inside.enter();
                inside.leave();
                runs.raise();
            }));
        }
        wq.flush_blocking().unwrap();
        prop_assert_eq!(runs.get(), queued);
        prop_assert!(inside.most() <= 3);
        drop(wq);
        await_pools(&sys, &[]);
    }
}
