//! Models of the done lists of completions (`PROTOCOL.md` of `inflight-steering`, M1 to M5, W1,
//! R1), driving the shipped set. CPU 0 sees every completion, CPU 1 has submitted them.
//!
//! | weaken | fails |
//! |---|---|
//! | M2, the Release of the push | `p4_two_pushes_*`, `p5_*` |
//! | M3, the Acquire of the take | `p4_two_pushes_*`, `p5_push_take_close` |
//! | M4, the Acquire of the close | `p5_*` |
//! | M2, a load and a store for the exchange | `p4_two_pushes_*`, `p5_*` |
//! | M3, the same | `p4_two_pushes_*`, `p5_push_take_close` |
//! | M4, the same | `p5_*` |
//! | a push takes a closed done list for a filled one | `p5_*` |
//! | M3 a swap, with the closed mark put back | `p5_push_take_close` |
//! | W1 left out | `p4_*` |
//! | W1 for `Joined` in place of `WasEmpty` | `p4_push_against_take` |
//! | a new shard of a closed router is closed after its map is published | `p6_*` |
//!
//! With one push the wake orders what the push should, so `p4_push_against_take` passes without M2
//! and M3.

#![cfg(loom)]

use inflight_sync::atomic::{AtomicU32, Ordering};
use inflight_sync::model::{Bound, check};
use inflight_sync::wait::Event;
use inflight_sync::{Arc, Mutex, cpu, thread};
use inflight_tags::steering::{CompletionSink, Completions, DoneListHandle, Runner};
use inflight_tags::{Steering, Tag, TagSet};
use inflight_topology::{CpuSet, Topology};

const UNBOUNDED: Bound = Bound {
    quick: None,
    deep: None,
};
/// For the model in which three threads wake each other.
const ONE: Bound = Bound {
    quick: Some(1),
    deep: Some(2),
};
const TWO: Bound = Bound {
    quick: Some(2),
    deep: Some(3),
};

/// The worker of CPU 1: its wakeups, and its done list.
#[derive(Clone)]
struct Worker(Arc<Wakeups>);

struct Wakeups {
    woken: AtomicU32,
    event: Event,
    list: Mutex<Option<DoneListHandle>>,
}

struct WakesWorker(Worker);

impl CompletionSink for Worker {
    fn runner(&self, cpus: &CpuSet, list: DoneListHandle) -> Option<Box<dyn Runner>> {
        cpus.contains(1).then(|| {
            *self.0.list.lock() = Some(list);
            Box::new(WakesWorker(self.clone())) as Box<dyn Runner>
        })
    }
}

impl Runner for WakesWorker {
    fn wake(&self, cpu: usize) -> bool {
        assert_eq!(cpu, 1);
        let Worker(wakeups) = &self.0;
        // Ordering: pairs with the loads in `work`, as the contract of `wake` asks.
        wakeups.woken.fetch_add(1, Ordering::Release);
        wakeups.event.notify_all();
        true
    }
}

impl Worker {
    fn new() -> Self {
        Self(Arc::new(Wakeups {
            woken: AtomicU32::new(0),
            event: Event::new(),
            list: Mutex::new(None),
        }))
    }

    fn list(&self) -> DoneListHandle {
        self.0.list.lock().clone().unwrap()
    }

    /// R1 for each W1, until `done`.
    fn work(&self, done: impl Fn() -> bool) {
        let list = self.list();
        let mut heard = 0;
        while !done() {
            // Ordering: pairs with the Release in `wake`.
            let woken = || self.0.woken.load(Ordering::Acquire);
            self.0.event.wait_while(|| woken() == heard);
            heard = woken();
            list.run();
        }
    }
}

/// What the callbacks saw, in their order.
#[derive(Clone)]
struct Log(Arc<Mutex<Vec<u32>>>);

impl Log {
    fn len(&self) -> usize {
        self.0.lock().len()
    }

    fn sorted(&self) -> Vec<u32> {
        let mut seen = self.0.lock().clone();
        seen.sort_unstable();
        seen
    }
}

struct Model {
    completions: Completions<u32>,
    tokens: Vec<u64>,
    worker: Worker,
    log: Log,
}

/// `requests` in flight, submitted on CPU 1.
fn model(requests: usize) -> Model {
    model_on("core:2", requests)
}

fn model_on(machine: &str, requests: usize) -> Model {
    let set = TagSet::builder()
        .depth(requests)
        .ages(false)
        .steering(Steering::Force)
        .build(|_, _| 0)
        .unwrap();
    let dev = set.add_tenant("q").unwrap();
    let worker = Worker::new();
    let log = Log(Arc::new(Mutex::new(Vec::new())));
    let topology = Topology::synthetic(machine).unwrap();
    let completions = set.completions(&topology).sink(worker.clone()).build({
        let log = log.clone();
        // The payload is a cell that loom watches: reading it here is the check that the push
        // published it.
        move |mut tag: Tag<u32>| {
            *tag += 10;
            let seen = *tag;
            log.0.lock().push(seen);
        }
    });
    cpu::set_current_for_thread(Some(1));
    let tokens = (0..requests)
        .map(|_| dev.try_alloc().unwrap().into_token())
        .collect();
    cpu::set_current_for_thread(None);
    Model {
        completions,
        tokens,
        worker,
        log,
    }
}

/// M2 and W1 against M3: the worker sleeps until it is woken, and runs what was pushed.
#[test]
fn p4_push_against_take() {
    check("p4_push_against_take", UNBOUNDED, || {
        let m = model(1);
        let pusher = thread::spawn({
            let (completions, token) = (m.completions.clone(), m.tokens[0]);
            move || {
                completions.complete(token, |req| *req = 1).unwrap();
            }
        });
        m.worker.work(|| m.log.len() == 1);
        assert_eq!(m.log.sorted(), [11]);
        pusher.join().unwrap();
        assert_eq!(m.completions.set().in_use(), 0);
    });
}

/// Two pushers, of whom the second may find the done list filled and wake nobody.
#[test]
fn p4_two_pushes_against_take() {
    check("p4_two_pushes_against_take", ONE, || {
        let m = model(2);
        let pushers = [0, 1].map(|n| {
            let (completions, token) = (m.completions.clone(), m.tokens[n]);
            thread::spawn(move || {
                completions.complete(token, |req| *req = n as u32).unwrap();
            })
        });
        m.worker.work(|| m.log.len() == 2);
        assert_eq!(m.log.sorted(), [10, 11]);
        for pusher in pushers {
            pusher.join().unwrap();
        }
        let stats = m.completions.stats();
        assert_eq!((stats.redirected, stats.batched), (2, 2));
        assert!(stats.redirect_wakeups <= stats.redirected);
    });
}

/// Two pushes of one thread against the worker: they run in their order, and each wake finds
/// something or what it was for has been taken.
#[test]
fn p4_two_pushes_one_wake() {
    check("p4_two_pushes_one_wake", TWO, || {
        let m = model(2);
        let worker = thread::spawn({
            let (worker, log) = (m.worker.clone(), m.log.clone());
            move || worker.work(|| log.len() == 2)
        });
        for n in 0..2 {
            m.completions
                .complete(m.tokens[n], |req| *req = n as u32)
                .unwrap();
        }
        worker.join().unwrap();
        assert_eq!(*m.log.0.lock(), [10, 11], "in the order of the pushes");
    });
}

/// M2 against M4: the closer runs it, or the pusher finds it closed and runs it.
#[test]
fn p5_push_against_close() {
    check("p5_push_against_close", UNBOUNDED, || {
        let m = model(1);
        let pusher = thread::spawn({
            let (completions, token) = (m.completions.clone(), m.tokens[0]);
            move || {
                completions
                    .complete(token, |req| *req = 1)
                    .unwrap()
                    .is_inline()
            }
        });
        m.completions.close();
        let closer_ran = m.log.len() == 1;
        let inline = pusher.join().unwrap();
        assert!(inline || closer_ran, "it is in no list");
        assert_eq!(m.log.sorted(), [11], "once");
        assert_eq!(m.completions.set().in_use(), 0);
    });
}

/// M2, M3 and M4 at once: whoever it is, one of them runs it, and the done list stays closed.
#[test]
fn p5_push_take_close() {
    check("p5_push_take_close", TWO, || {
        let m = model(2);
        let pusher = thread::spawn({
            let (completions, tokens) = (m.completions.clone(), m.tokens.clone());
            move || {
                for (n, token) in tokens.into_iter().enumerate() {
                    completions.complete(token, |req| *req = n as u32).unwrap();
                }
            }
        });
        let taker = thread::spawn({
            let list = m.worker.list();
            move || list.run()
        });
        m.completions.close();
        taker.join().unwrap();
        pusher.join().unwrap();
        assert_eq!(m.log.sorted(), [10, 11], "each once");
        assert_eq!(m.completions.set().in_use(), 0);
    });
}

/// M2 against M4 by a machine that loses the CPU: the refresher runs it, or the pusher does.
#[test]
fn p4_push_against_refresh() {
    check("p4_push_against_refresh", TWO, || {
        let m = model(1);
        let pusher = thread::spawn({
            let (completions, token) = (m.completions.clone(), m.tokens[0]);
            move || {
                completions.complete(token, |req| *req = 1).unwrap();
            }
        });
        let smaller = Topology::synthetic("core:2 offline:1").unwrap();
        m.completions.set().cpus().refresh(&smaller);
        pusher.join().unwrap();
        assert_eq!(m.log.sorted(), [11]);
        assert_eq!(m.completions.stats().completed(), 1);
        assert_eq!(m.completions.set().in_use(), 0);
    });
}

/// M2 against a machine that gets the CPU when all is closed: the new done list takes nothing.
#[test]
fn p6_push_against_new_cpu_of_closed() {
    check("p6_push_against_new_cpu_of_closed", TWO, || {
        let m = model_on("core:2 offline:1", 1);
        m.completions.close();
        let pusher = thread::spawn({
            let (completions, token) = (m.completions.clone(), m.tokens[0]);
            move || {
                completions.complete(token, |req| *req = 1).unwrap();
            }
        });
        let larger = Topology::synthetic("core:2").unwrap();
        m.completions.set().cpus().refresh(&larger);
        pusher.join().unwrap();
        assert_eq!(m.log.sorted(), [11]);
        assert_eq!(m.completions.set().in_use(), 0);
    });
}
