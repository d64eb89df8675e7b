//! Completions on the workers of a workqueue.

use inflight::WorkqueueSink;
use inflight::prelude::*;
use inflight::sync::atomic::{AtomicBool, Ordering};
use inflight::sync::thread::{self, ThreadId};
use inflight::sync::{Arc, Condvar, Mutex};
use inflight::tags::Steering;
use inflight::tags::steering::{Completions, Decision, InlineReason};
use inflight::topology::wake::{Reach, WakeRules};
use inflight::topology::{current_cpu, set_current_cpu_for_thread};

/// What a callback saw: its thread, the CPU that ran it, and the slot.
type Seen = (ThreadId, usize, u64);

/// What all callbacks saw, in their order.
#[derive(Clone, Default)]
struct Log(Arc<(Mutex<Vec<Seen>>, Condvar)>);

impl Log {
    fn add(&self, slot: u64) {
        let seen = (thread::current_id(), current_cpu(), slot);
        self.0.0.lock().push(seen);
        self.0.1.notify_all();
    }

    /// Waits until there are `n`.
    fn wait(&self, n: usize) -> Vec<Seen> {
        let mut seen = self.0.0.lock();
        while seen.len() < n {
            self.0.1.wait(&mut seen);
        }
        seen.clone()
    }

    fn slots(&self, n: usize) -> Vec<u64> {
        self.wait(n).iter().map(|seen| seen.2).collect()
    }
}

struct Machine {
    topo: Topology,
    system: WorkqueueSystem,
    done: Workqueue,
    set: TagSet<u64>,
    disk: Tenant<u64>,
    completions: Completions<u64>,
    log: Log,
}

fn machine(steering: Steering, depth: usize) -> Machine {
    machine_of(Topology::discover().unwrap(), steering, depth, None)
}

fn machine_of(
    topo: Topology,
    steering: Steering,
    depth: usize,
    rules: Option<WakeRules>,
) -> Machine {
    // Nobody is taken for asleep.
    let builder = WorkqueueSystem::builder().sampling(false);
    let system = builder.topology(topo.clone()).build().unwrap();
    let done = system.workqueue("complete").bound();
    let done = match rules {
        Some(rules) => done.wake_rules(rules),
        None => done,
    };
    let done = done.build().unwrap();
    let set = TagSet::builder()
        .depth(depth)
        .steering(steering)
        .build(|_, _| 0)
        .unwrap();
    let log = Log::default();
    let completions = set
        .completions(&topo)
        .sink(WorkqueueSink::new(&done))
        .build({
            let log = log.clone();
            move |tag: Tag<u64>| {
                let slot = *tag;
                drop(tag);
                log.add(slot);
                assert_ne!(slot, u64::MAX, "asked to panic");
            }
        });
    Machine {
        disk: set.add_tenant("disk0").unwrap(),
        topo,
        system,
        done,
        set,
        completions,
        log,
    }
}

impl Machine {
    fn submit_on(&self, cpu: usize) -> u64 {
        set_current_cpu_for_thread(Some(cpu));
        let token = self.disk.alloc_blocking().unwrap().into_token();
        set_current_cpu_for_thread(None);
        token
    }
}

#[test]
fn a_completion_runs_on_a_worker_of_the_cpu_that_submitted() {
    let m = machine(Steering::Force, 8);
    for cpu in m.topo.cpus() {
        for n in 0..3 {
            let token = m.submit_on(cpu);
            let decision = m.completions.complete(token, |slot| *slot = n).unwrap();
            assert_eq!(decision.redirect(), Some(cpu));
            let seen = m.log.wait(m.completions.stats().redirected as usize);
            let (thread, ran_on, slot) = *seen.last().unwrap();
            assert_eq!((ran_on, slot), (cpu, n));
            assert_ne!(thread, thread::current_id());
        }
    }
    m.done.flush_blocking().unwrap();
    assert_eq!(m.set.in_use(), 0);
    let stats = m.completions.stats();
    assert_eq!(stats.redirected, 3 * m.topo.cpus().len() as u64);
    assert_eq!(
        (stats.batched, stats.refused_wakeups),
        (stats.redirected, 0)
    );
}

/// The CPU that runs a completion which CPU 1 has submitted and `seen_on` sees; `busy` runs
/// something else.
fn placed(rules: Option<WakeRules>, seen_on: usize, busy: Option<usize>) -> usize {
    let topo = Topology::synthetic("cache:2 core:2").unwrap();
    let m = machine_of(topo, Steering::Force, 8, rules);
    // Of the hog: it has begun, and is to end.
    let flags = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
    // Ordering, here and below: Release and Acquire, of one flag each.
    let until = |flags: &[AtomicBool; 2], which: usize| {
        while !flags[which].load(Ordering::Acquire) {
            thread::yield_now();
        }
    };
    let hog = busy.map(|cpu| {
        let hog = m.done.spawn_on(cpu, {
            let flags = flags.clone();
            move || {
                flags[0].store(true, Ordering::Release);
                until(&flags, 1);
            }
        });
        until(&flags, 0);
        hog
    });
    let token = m.submit_on(1);
    set_current_cpu_for_thread(Some(seen_on));
    m.completions.complete(token, |slot| *slot = 1).unwrap();
    set_current_cpu_for_thread(None);
    if rules.is_none() {
        flags[1].store(true, Ordering::Release);
    }
    let ran_on = m.log.wait(1)[0].1;
    flags[1].store(true, Ordering::Release);
    if let Some(hog) = hog {
        hog.wait().unwrap();
    }
    ran_on
}

#[test]
fn wake_rules_of_the_queue_place_completions() {
    let stay = WakeRules {
        pull: Reach::Nowhere,
        ..WakeRules::default()
    };
    let pull = WakeRules::default();
    // As submitted, whatever else.
    assert_eq!(placed(None, 0, None), 1);
    assert_eq!(placed(None, 0, Some(1)), 1);
    assert_eq!(placed(Some(stay), 0, None), 1);
    assert_eq!(
        placed(Some(stay), 3, Some(1)),
        0,
        "an idle one of its cache"
    );
    assert_eq!(placed(Some(pull), 0, None), 0);
    assert_eq!(placed(Some(pull), 3, None), 1, "not to another cache");
}

#[test]
fn completions_of_one_cpu_keep_their_order() {
    let m = machine(Steering::Force, 64);
    let cpu = m.topo.cpus().first().unwrap();
    for n in 0..1000 {
        let token = m.submit_on(cpu);
        m.completions.complete(token, |slot| *slot = n).unwrap();
    }
    let order = m.log.slots(1000);
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn when_the_queue_is_gone_completions_run_where_they_are_seen() {
    for whole_system in [false, true] {
        let mut m = machine(Steering::Force, 2);
        let cpu = m.topo.cpus().first().unwrap();
        let token = m.submit_on(cpu);
        if whole_system {
            // The last handle shuts it down.
            let other = WorkqueueSystem::builder().build().unwrap();
            drop(std::mem::replace(&mut m.system, other));
        } else {
            m.done.destroy_blocking().unwrap();
        }
        m.completions.complete(token, |slot| *slot = 5).unwrap();
        let seen = m.log.wait(1);
        assert_eq!((seen[0].0, seen[0].2), (thread::current_id(), 5));
        let stats = m.completions.stats();
        assert_eq!((stats.refused_wakeups, stats.completed()), (1, 1));
        assert_eq!(m.set.in_use(), 0);
    }
}

#[test]
fn a_panic_is_the_works_and_the_others_run() {
    let m = machine(Steering::Force, 8);
    let cpu = m.topo.cpus().first().unwrap();
    let tokens: Vec<u64> = (0..4).map(|_| m.submit_on(cpu)).collect();
    for (n, token) in tokens.into_iter().enumerate() {
        let value = if n == 1 { u64::MAX } else { n as u64 };
        m.completions.complete(token, |slot| *slot = value).unwrap();
    }
    let mut seen = m.log.slots(4);
    seen.sort_unstable();
    assert_eq!(seen, [0, 2, 3, u64::MAX]);
    m.done.flush_blocking().unwrap();
    assert_eq!((m.done.stats().panicked, m.set.in_use()), (1, 0));
    let token = m.submit_on(cpu);
    m.completions.complete(token, |slot| *slot = 9).unwrap();
    assert_eq!(m.log.slots(5)[4], 9);
}

#[test]
fn closing_leaves_nothing_behind() {
    let m = machine(Steering::Force, 64);
    let cpu = m.topo.cpus().first().unwrap();
    for n in 0..50 {
        let token = m.submit_on(cpu);
        m.completions.complete(token, |slot| *slot = n).unwrap();
    }
    let last = m.submit_on(cpu);
    m.completions.close();
    let decision = m.completions.complete(last, |slot| *slot = 50).unwrap();
    assert_eq!(decision, Decision::Inline(InlineReason::Closed));
    m.done.flush_blocking().unwrap();
    assert_eq!(m.log.slots(51).len(), 51);
    assert_eq!(m.set.in_use(), 0);
}

/// Callbacks on workers submit the next request themselves, and another thread reaps it.
#[test]
fn callbacks_submit_and_nothing_is_lost() {
    const ROUNDS: usize = 2000;
    const DEPTH: usize = 16;
    #[derive(Default)]
    struct Ring {
        tokens: Mutex<Vec<u64>>,
        changed: Condvar,
    }
    impl Ring {
        fn put(&self, token: u64) {
            self.tokens.lock().push(token);
            self.changed.notify_one();
        }
        fn reap(&self) -> Vec<u64> {
            let mut tokens = self.tokens.lock();
            while tokens.is_empty() {
                self.changed.wait(&mut tokens);
            }
            std::mem::take(&mut *tokens)
        }
    }
    for steering in Steering::ALL {
        let m = machine(steering, DEPTH);
        let ring = Arc::new(Ring::default());
        let submitted = Arc::new(Mutex::new(DEPTH));
        let completions = m
            .set
            .completions(&m.topo)
            .sink(WorkqueueSink::from(m.done.clone()))
            .build({
                let (disk, ring, submitted) = (m.disk.clone(), ring.clone(), submitted.clone());
                move |tag: Tag<u64>| {
                    drop(tag);
                    let mut submitted = submitted.lock();
                    if *submitted < ROUNDS {
                        *submitted += 1;
                        ring.put(disk.alloc_blocking().unwrap().into_token());
                    }
                }
            });
        for _ in 0..DEPTH {
            ring.put(m.disk.alloc_blocking().unwrap().into_token());
        }
        let mut completed = 0;
        while completed < ROUNDS {
            for token in ring.reap() {
                completions.complete(token, |slot| *slot = 1).unwrap();
                completed += 1;
            }
        }
        completions.close();
        m.done.flush_blocking().unwrap();
        let stats = completions.stats();
        assert_eq!(stats.completed(), ROUNDS as u64, "{steering} {stats:?}");
        assert_eq!(stats.batched, stats.redirected);
        assert_eq!(m.set.in_use(), 0);
    }
}
