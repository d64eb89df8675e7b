//! `max_active` of a whole queue, on machines with one to eight nodes, as its user sees it.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::thread;
use inflight_topology::{CpuSet, Scope, Topology};
use inflight_workqueue::{
    Attrs, DEFAULT_MAX_ACTIVE, JoinHandle, MaxActiveError, MinActiveError, Share, Work, Workqueue,
    WorkqueueSystem, blocking,
};
use support::{Inside, LOOKS, Level, Log, until};

fn system(machine: &str) -> WorkqueueSystem {
    let builder = WorkqueueSystem::builder().sampling(false);
    let builder = builder.topology(Topology::synthetic(machine).unwrap());
    builder.build().unwrap()
}

/// With a pool for each node.
fn queue(sys: &WorkqueueSystem, share: Share, max: usize, min: Option<usize>) -> Workqueue {
    let attrs = Attrs::new().scope(Scope::Numa);
    let builder = sys.workqueue("jobs").unbound(attrs).max_active(max);
    let builder = builder.share(share);
    let builder = match min {
        Some(min) => builder.min_active(min),
        None => builder,
    };
    builder.build().unwrap()
}

/// By node, and for none: active items, and how many there may be; as `dump` shows them.
fn nodes(sys: &WorkqueueSystem) -> Vec<(usize, usize)> {
    let dump = sys.dump();
    let section = dump.split("node_nr/max_active").nth(1).unwrap();
    let line = section.lines().find(|l| l.starts_with("jobs ")).unwrap();
    let pair = |word: &str| {
        let (active, max) = word.split_once('/')?;
        Some((active.parse().ok()?, max.parse().ok()?))
    };
    line.split_whitespace().filter_map(pair).collect()
}

/// How many items run; as `dump` shows them.
fn running(sys: &WorkqueueSystem) -> usize {
    let dump = sys.dump();
    let line = dump.lines().find(|l| l.starts_with("queue jobs ")).unwrap();
    let count = |what: &str| -> usize {
        let words: Vec<_> = line.split([' ', ',']).collect();
        let at = words.iter().position(|word| *word == what).unwrap();
        words[at - 1].parse().unwrap()
    };
    count("started") - count("completed")
}

/// Workers come for what may run: then it is like this, and each slot in use is that of an item
/// that runs. One that has a slot and has not begun would wait again for a part that becomes
/// smaller.
fn become_active(sys: &WorkqueueSystem, expected: &[(usize, usize)]) {
    let is_so = || {
        let seen = nodes(sys);
        let used: usize = seen.iter().map(|(used, _)| used).sum();
        seen[..expected.len()] == *expected && running(sys) == used
    };
    until(is_so, || {
        let (nodes, runs) = (nodes(sys), running(sys));
        format!("{nodes:?}, {runs} run, not {expected:?}")
    });
}

fn become_inactive(wq: &Workqueue, expected: usize) {
    let seen = || wq.stats().inactive;
    until(
        || seen() == expected,
        || format!("{}, not {expected}", seen()),
    );
}

/// An item that ends when it is told to.
fn waiting(wq: &Workqueue, cpu: usize) -> (Level, JoinHandle<()>) {
    let end = Level::new();
    let item = wq.spawn_on(cpu, {
        let end = end.clone();
        move || end.wait(1)
    });
    (end, item)
}

/// It has ended, and who has its slot is active.
fn end(wq: &Workqueue, (end, item): (Level, JoinHandle<()>)) {
    let before = wq.stats().completed;
    end.raise();
    item.wait().unwrap();
    while wq.stats().completed == before {
        thread::yield_now();
    }
}

#[test]
fn c2_the_parts_of_nodes_in_a_queue() {
    let rows: [(usize, &str, Option<usize>, &[usize]); 15] = [
        (16, "numa:2 core:8", None, &[8, 8]),
        (8, "numa:2 core:8", None, &[8, 8]),
        (4, "numa:2 core:8", None, &[4, 4]),
        (1, "numa:2 core:8", None, &[1, 1]),
        (64, "numa:2 core:8", None, &[32, 32]),
        (16, "numa:2 core:12,4", None, &[12, 8]),
        (32, "numa:2 core:12,4", None, &[24, 8]),
        (10, "numa:2 core:3,5", None, &[8, 8]),
        (10, "numa:2 core:3,5", Some(1), &[4, 7]),
        (96, "numa:2 core:1,95", None, &[8, 95]),
        (96, "numa:2 core:48", Some(16), &[48, 48]),
        (16, "numa:3 core:1", Some(1), &[6, 6, 6]),
        (512, "numa:3 core:1", None, &[171, 171, 171]),
        (2048, "numa:4 core:24", None, &[512; 4]),
        (768, "numa:8 core:32", None, &[96; 8]),
    ];
    for (max, machine, min, parts) in rows {
        let sys = system(machine);
        let wq = queue(&sys, Share::PerNode, max, min);
        let seen: Vec<_> = nodes(&sys).into_iter().map(|(_, part)| part).collect();
        let nodeless = max;
        let expected: Vec<_> = parts.iter().copied().chain([nodeless]).collect();
        assert_eq!(seen, expected, "{max} on {machine}");
        if parts.iter().sum::<usize>() > 20 {
            continue;
        }
        // And so many run, whatever is offered.
        let topology = Topology::synthetic(machine).unwrap();
        let offered = topology.pods(Scope::Numa).iter().flat_map(|pod| {
            let cpu = pod.cpus().first().unwrap();
            (0..=max).map(move |_| cpu)
        });
        let items: Vec<_> = offered.map(|cpu| waiting(&wq, cpu)).collect();
        let full: Vec<_> = parts.iter().map(|part| (*part, *part)).collect();
        become_active(&sys, &full);
        items.iter().for_each(|(end, _)| end.raise());
        wq.flush_blocking().unwrap();
        assert_eq!(wq.stats().completed, items.len() as u64);
    }
}

/// C22, in both directions, while items wait.
#[test]
fn c22_min_active_changes_both_ways() {
    let sys = system("numa:2 core:8");
    let wq = queue(&sys, Share::PerNode, 16, Some(1));
    let mut items: Vec<_> = (0..14).map(|_| waiting(&wq, 3)).collect();
    become_active(&sys, &[(8, 8), (0, 8)]);
    wq.set_min_active(12).unwrap();
    become_active(&sys, &[(12, 12), (0, 12)]); // at once
    become_inactive(&wq, 2);
    wq.set_min_active(9).unwrap();
    become_active(&sys, &[(12, 9), (0, 9)]); // nothing is stopped
    (0..3).for_each(|_| end(&wq, items.remove(0)));
    become_active(&sys, &[(9, 9), (0, 9)]);
    become_inactive(&wq, 2); // nobody came for those three
    end(&wq, items.remove(0));
    become_active(&sys, &[(9, 9)]);
    become_inactive(&wq, 1);
    // A lower limit takes it along, and a higher one does not bring it back.
    wq.set_max_active(4).unwrap();
    wq.set_max_active(16).unwrap();
    become_active(&sys, &[(9, 8), (0, 8)]);
    items.iter().for_each(|(end, _)| end.raise());
    wq.drain_blocking().unwrap();
    assert_eq!(wq.stats().completed, 14);
}

#[test]
fn a_bad_min_active_is_an_error_and_changes_nothing() {
    let sys = system("numa:2 core:8");
    let wq = queue(&sys, Share::PerNode, 16, Some(3));
    for asked in [0, 17, usize::MAX] {
        let max_active = 16;
        let error = MinActiveError::OutOfRange { asked, max_active };
        assert_eq!(wq.set_min_active(asked), Err(error));
    }
    become_active(&sys, &[(0, 8), (0, 8)]);
    wq.set_min_active(16).unwrap();
    become_active(&sys, &[(0, 16), (0, 16)]);
    let others = [
        sys.workqueue("lend").unbound(Attrs::new()).build(),
        sys.workqueue("one").ordered().build(),
        sys.workqueue("bound").bound().build(),
    ];
    for other in others {
        let refused = other.unwrap().set_min_active(1);
        assert_eq!(refused, Err(MinActiveError::NotPerNode));
    }
}

/// 0 asks for the default.
#[test]
fn an_ordered_queue_has_the_limit_1() {
    let sys = WorkqueueSystem::builder().build().unwrap();
    for asked in [0, 1] {
        let wq = sys.workqueue("one").ordered().max_active(asked);
        let wq = wq.build().unwrap();
        assert_eq!(wq.max_active(), Some(1));
        wq.set_max_active(asked).unwrap();
        assert_eq!(wq.max_active(), Some(1));
        assert_eq!(wq.set_max_active(2), Err(MaxActiveError::Ordered));
    }
}

/// Against the rule as it is written down (C7): any order of changes leaves the parts that the last
/// ones give, on nodes of any size.
#[test]
fn parts_follow_every_change_of_both_limits() {
    let sys = system("numa:3 core:4");
    // Of 4, 2 and 1 CPUs.
    let cpus = CpuSet::from([0, 1, 2, 3, 4, 5, 8]);
    let attrs = Attrs::new().scope(Scope::Numa).cpumask(cpus);
    let builder = sys.workqueue("jobs").unbound(attrs).share(Share::PerNode);
    let wq = builder.max_active(16).min_active(1).build().unwrap();
    let (mut max, mut min) = (16_usize, 1_usize);
    let mut random = 1_u64;
    for _ in 0..500 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let number = (random >> 40) as usize % 40;
        if random >> 63 == 0 {
            wq.set_max_active(number).unwrap();
            max = if number > 0 {
                number
            } else {
                DEFAULT_MAX_ACTIVE
            };
            min = min.min(max);
        } else {
            let done = wq.set_min_active(number);
            assert_eq!(done.is_ok(), (1..=max).contains(&number));
            if done.is_ok() {
                min = number;
            }
        }
        let part = |cpus: usize| (0, (max * cpus).div_ceil(7).clamp(min, max));
        assert_eq!(nodes(&sys)[..3], [4, 2, 1].map(part), "{max}, {min}");
    }
}

#[test]
fn one_node_has_one_exact_count() {
    for share in [Share::PerNode, Share::Lend] {
        let sys = system("core:4");
        let wq = queue(&sys, share, 3, None);
        let items: Vec<_> = (0..8).map(|n| waiting(&wq, n % 4)).collect();
        become_active(&sys, &[(3, 3)]);
        become_inactive(&wq, 5);
        assert_eq!((nodes(&sys).len(), wq.stats().active), (1, 3), "{share:?}");
        items.iter().for_each(|(end, _)| end.raise());
        wq.flush_blocking().unwrap();
    }
}

#[test]
fn c9_the_worked_example_in_a_queue() {
    let sys = system("numa:2 core:8");
    let wq = queue(&sys, Share::PerNode, 16, None);
    let mut items: Vec<_> = (0..10).map(|_| waiting(&wq, 3)).collect();
    become_active(&sys, &[(8, 8), (0, 8)]);
    items.push(waiting(&wq, 5));
    become_inactive(&wq, 3);
    items.extend((0..4).map(|_| waiting(&wq, 9)));
    become_active(&sys, &[(8, 8), (4, 8)]);
    end(&wq, items.remove(0));
    become_active(&sys, &[(8, 8), (4, 8)]);
    end(&wq, items.remove(0));
    become_inactive(&wq, 1);
    wq.set_max_active(32).unwrap();
    become_active(&sys, &[(9, 16), (4, 16)]);
    wq.set_max_active(8).unwrap();
    become_active(&sys, &[(9, 8), (4, 8)]);
    let last = waiting(&wq, 3);
    end(&wq, items.remove(0));
    become_active(&sys, &[(8, 8), (4, 8)]); // nobody comes for it
    become_inactive(&wq, 1);
    end(&wq, items.remove(0));
    become_active(&sys, &[(8, 8), (4, 8)]); // now the last one does
    become_inactive(&wq, 0);
    items.push(last);
    items.iter().for_each(|(end, _)| end.raise());
    wq.drain_blocking().unwrap();
    assert_eq!(wq.stats().completed, 16);
}

#[test]
fn c9_with_lending_all_sixteen_run_on_one_node() {
    let sys = system("numa:2 core:8");
    let wq = queue(&sys, Share::Lend, 16, None);
    let mut items: Vec<_> = (0..20).map(|_| waiting(&wq, 3)).collect();
    become_active(&sys, &[(16, 16)]);
    let begun = Level::new();
    items.extend((0..4).map(|_| {
        let (begun, end) = (begun.clone(), Level::new());
        let item = wq.spawn_on(9, {
            let end = end.clone();
            move || {
                begun.raise();
                end.wait(1);
            }
        });
        (end, item)
    }));
    for _ in 0..4 {
        end(&wq, items.remove(0));
    }
    begun.wait(1); // The other node is served as items end.
    become_active(&sys, &[(16, 16)]);
    items.iter().for_each(|(end, _)| end.raise());
    wq.flush_blocking().unwrap();
    assert_eq!(wq.stats().completed, 24);
}

#[test]
fn c21_turn_by_turn_in_a_queue() {
    for share in [Share::PerNode, Share::Lend] {
        let sys = system("core:4");
        let attrs = Attrs::new().scope(Scope::Cpu);
        let wq = sys.workqueue("jobs").unbound(attrs).max_active(1);
        let wq = wq.share(share).build().unwrap();
        let plug = waiting(&wq, 3);
        let order = Log::new();
        let queued = [
            (0, "a1"),
            (0, "a2"),
            (0, "a3"),
            (1, "b1"),
            (1, "b2"),
            (2, "c1"),
        ];
        let items = queued.map(|(cpu, name)| {
            let order = order.clone();
            wq.spawn_on(cpu, move || order.push(name))
        });
        end(&wq, plug);
        items.into_iter().for_each(|item| item.wait().unwrap());
        let expected = ["a1", "b1", "c1", "a2", "b2", "a3"];
        assert_eq!(order.entries(), expected, "{share:?}");
    }
}

#[test]
fn an_inactive_item_is_taken_back() {
    let sys = system("numa:2 core:2");
    let wq = queue(&sys, Share::Lend, 1, None);
    let plug = waiting(&wq, 0);
    let works = [1, 2, 3].map(|cpu| {
        let work = Work::new(|| ());
        assert!(wq.queue_on(cpu, &work).unwrap().is_queued());
        work
    });
    become_inactive(&wq, 3);
    assert!(wq.is_congested(1));
    assert!(works[1].cancel());
    assert!(!works[1].is_pending());
    become_inactive(&wq, 2);
    end(&wq, plug);
    wq.flush_blocking().unwrap();
    let stats = wq.stats();
    assert_eq!((stats.completed, stats.cancelled, stats.active), (3, 1, 0));
    assert!(!wq.is_congested(1));
}

/// An item that waits for one which waits for its slot: on whatever CPU that one was queued.
#[test]
fn waiting_for_what_waits_for_the_own_slot_is_an_error_across_cpus() {
    let sys = system("numa:2 core:2");
    let wq = queue(&sys, Share::Lend, 1, None);
    let work = Work::new(|| ());
    let refused = wq.spawn_on(0, {
        let (wq, work) = (wq.clone(), work.clone());
        move || {
            assert!(wq.queue_on(3, &work).unwrap().is_queued());
            work.flush_blocking().is_err()
        }
    });
    assert!(refused.wait().unwrap());
    wq.flush_blocking().unwrap();
    assert_eq!(wq.stats().completed, 2);
}

/// Submitters that move from CPU to CPU, items that are cancelled, a limit that changes.
#[test]
fn the_limit_holds_while_submitters_move() {
    const MOST: usize = 7;
    for (machine, share) in [
        ("numa:4 core:2", Share::Lend),
        ("numa:8 core:12", Share::Lend),
        ("core:4", Share::PerNode),
    ] {
        let topology = Topology::synthetic(machine).unwrap();
        let cpus = topology.cpus().len();
        let builder = WorkqueueSystem::builder().sampling(false);
        let sys = builder.topology(topology).build().unwrap();
        let wq = queue(&sys, share, MOST, None);
        let (inside, done) = (Inside::new(), Level::new());
        let submitters: Vec<_> = (0..3)
            .map(|seed| {
                let (wq, inside) = (wq.clone(), inside.clone());
                thread::spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed);
                    let mut cpu = 0;
                    for _ in 0..2_000 {
                        if rng.u8(..16) == 0 {
                            cpu = rng.usize(..cpus);
                        }
                        let inside = inside.clone();
                        drop(wq.spawn_on(cpu, move || {
                            inside.enter();
                            inside.leave();
                        }));
                        let work = Work::new(|| ());
                        if rng.u8(..8) == 0 && wq.queue_on(cpu, &work).unwrap().is_queued() {
                            work.cancel();
                        }
                    }
                })
            })
            .collect();
        let changes = thread::spawn({
            let (wq, done) = (wq.clone(), done.clone());
            move || {
                let mut limits = [1, MOST, 3].into_iter().cycle();
                while done.get() == 0 {
                    wq.set_max_active(limits.next().unwrap()).unwrap();
                    thread::yield_now();
                }
            }
        });
        submitters.into_iter().for_each(|s| s.join().unwrap());
        wq.flush_blocking().unwrap();
        done.raise();
        changes.join().unwrap();
        wq.drain_blocking().unwrap();
        let stats = wq.stats();
        assert!(inside.most() <= MOST, "{} on {machine}", inside.most());
        assert_eq!((stats.active, stats.inactive), (0, 0));
        assert_eq!(stats.queued, stats.completed + stats.cancelled);
    }
}

/// C7, C11: a part is reckoned from the CPUs that the queue uses, and again whenever they change.
/// Who waited for a part that grows goes on.
#[test]
fn c7_parts_follow_the_cpus_a_queue_uses() {
    let sys = system("numa:2 core:8");
    let numa = || Attrs::new().scope(Scope::Numa);
    let node = |node: usize| (node * 8..node * 8 + 8).collect();
    let builder = sys.workqueue("jobs").unbound(numa().cpumask(node(0)));
    let wq = builder
        .max_active(16)
        .share(Share::PerNode)
        .build()
        .unwrap();
    let parts = || {
        nodes(&sys)[..2]
            .iter()
            .map(|part| part.1)
            .collect::<Vec<_>>()
    };
    assert_eq!(parts(), [16, 8], "the other node has the least there is");
    wq.set_attrs(numa()).unwrap();
    assert_eq!(parts(), [8, 8]);
    sys.refresh(&Topology::synthetic("numa:2 core:8 offline:7").unwrap())
        .unwrap();
    assert_eq!(parts(), [8, 9]);
    let items: Vec<_> = (0..12).map(|_| waiting(&wq, 0)).collect();
    become_active(&sys, &[(8, 8)]);
    become_inactive(&wq, 4);
    sys.set_unbound_cpumask(&node(0)).unwrap();
    assert_eq!(parts(), [16, 8]);
    become_active(&sys, &[(12, 16)]);
    assert_eq!((wq.stats().active, wq.stats().inactive), (12, 0));
    sys.set_unbound_cpumask(&node(1)).unwrap();
    assert_eq!(
        (parts(), wq.stats().active),
        (vec![8, 16], 12),
        "nobody is stopped"
    );
    items.into_iter().for_each(|item| end(&wq, item));
    assert_eq!((wq.stats().active, wq.stats().inactive), (0, 0));
}

/// C7, C9: an item is counted with the node of the pool it goes to, also after the queue has gone
/// over to other pools. Who was there before is counted where he was, and so is who waits there.
#[test]
fn c9_pwqs_follow_the_pools() {
    let sys = system("numa:2 core:2");
    let whole = Attrs::new().scope(Scope::System);
    let builder = sys.workqueue("jobs").unbound(whole.clone()).min_active(1);
    let wq = builder.max_active(4).share(Share::PerNode).build().unwrap();
    let mut old: Vec<_> = [0, 2, 3].map(|cpu| waiting(&wq, cpu)).into();
    become_active(&sys, &[(0, 2), (0, 2), (3, 4)]);

    wq.set_attrs(Attrs::new().scope(Scope::Numa)).unwrap();
    let mut new: Vec<_> = [0, 1, 2, 0].map(|cpu| waiting(&wq, cpu)).into();
    let held = Work::new(|| ());
    assert!(wq.queue_on(1, &held).unwrap().is_queued());
    become_active(&sys, &[(2, 2), (1, 2), (3, 4)]);
    become_inactive(&wq, 2);
    end(&wq, old.remove(0));
    become_active(&sys, &[(2, 2), (1, 2), (2, 4)]); // it was of no node

    wq.set_attrs(whole).unwrap();
    old.extend([0, 1, 2].map(|cpu| waiting(&wq, cpu)));
    become_active(&sys, &[(2, 2), (1, 2), (4, 4)]);
    become_inactive(&wq, 3);
    assert!(wq.is_congested(0) && held.cancel());
    become_inactive(&wq, 2);
    end(&wq, new.remove(0));
    become_active(&sys, &[(2, 2), (1, 2), (4, 4)]); // who waits there comes
    for item in old.into_iter().chain(new) {
        end(&wq, item);
    }
    wq.flush_blocking().unwrap();
    become_active(&sys, &[(0, 2), (0, 2), (0, 4)]);
    assert_eq!((wq.stats().completed, wq.stats().inactive), (10, 0));
}

/// With lending it is one limit, wherever the queue goes over to; and no slot is lost on the way.
#[test]
fn lending_stays_exact_while_pools_change() {
    for max in [5, 70] {
        let sys = system("numa:2 core:2");
        let wq = queue(&sys, Share::Lend, max, None);
        let inside = Inside::new();
        for round in 0..30 {
            let scope = [Scope::System, Scope::Numa, Scope::Cpu][round % 3];
            wq.set_attrs(Attrs::new().scope(scope)).unwrap();
            for n in 0..2 * max {
                let inside = inside.clone();
                drop(wq.spawn_on(n % 4, move || {
                    inside.enter();
                    blocking(thread::yield_now);
                    inside.leave();
                }));
            }
        }
        wq.flush_blocking().unwrap();
        assert!(inside.most() <= max, "{} of {max}", inside.most());
        let (begun, ends) = (Level::new(), Level::new());
        for n in 0..2 * max {
            let (begun, ends) = (begun.clone(), ends.clone());
            drop(wq.spawn_on(n % 4, move || {
                begun.raise();
                ends.wait(1);
            }));
        }
        // A slot may still be on its way: all come, each to an item that runs, and no other. Who
        // looks in vain lets them end all the same, or the system would wait for them.
        let mut looks = 0;
        while begun.get() < max && looks < LOOKS / 10 {
            looks += 1;
            thread::yield_now();
        }
        let stats = wq.stats();
        let seen = (begun.get(), stats.active, stats.inactive);
        ends.raise();
        wq.flush_blocking().unwrap();
        assert_eq!(seen, (max, max, max), "that run, active, inactive");
        assert_eq!((wq.stats().active, wq.stats().inactive), (0, 0));
    }
}

/// An item that waits for one behind its own slot is told so, whatever node its CPU led to when.
#[test]
fn who_waits_behind_oneself_is_told_after_a_move() {
    for (scope, told) in [(Scope::Numa, true), (Scope::System, false)] {
        let sys = system("numa:2 core:2");
        let wq = queue(&sys, Share::PerNode, 1, None);
        let (first, second) = (Work::new(|| ()), Level::new());
        let refused = wq.spawn_on(0, {
            let (wq, first, second) = (wq.clone(), first.clone(), second.clone());
            move || {
                wq.set_attrs(Attrs::new().scope(scope)).unwrap();
                assert!(wq.queue_on(1, &first).unwrap().is_queued());
                second.raise();
                first.flush_blocking().is_err()
            }
        });
        second.wait(1);
        assert_eq!(refused.wait().unwrap(), told);
        wq.flush_blocking().unwrap();
    }
}
