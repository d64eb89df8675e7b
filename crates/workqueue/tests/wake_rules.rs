//! Where work goes on that something has woken, if its queue has wake rules. The rules themselves
//! are tested in `inflight-topology`.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::{Arc, Mutex};
use inflight_topology::wake::{Reach, ShardLoad, WakeRules};
use inflight_topology::{Scope, current_cpu, set_current_cpu_for_thread};
use inflight_workqueue::{
    Attrs, BuildError, JoinHandle, QueueError, TraceStep, Work, Workqueue, WorkqueueSystem,
};
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;
use support::{Level, builder, system, until};

fn stay() -> WakeRules {
    WakeRules {
        pull: Reach::Nowhere,
        ..WakeRules::default()
    }
}

fn pull() -> WakeRules {
    WakeRules {
        stack: false,
        ..WakeRules::default()
    }
}

fn bound(sys: &WorkqueueSystem, rules: WakeRules) -> Workqueue {
    let wq = sys.workqueue("rules").bound().wake_rules(rules);
    wq.build().unwrap()
}

/// Runs `f` as if on that CPU.
fn on<R>(cpu: usize, f: impl FnOnce() -> R) -> R {
    set_current_cpu_for_thread(Some(cpu));
    let result = f();
    set_current_cpu_for_thread(None);
    result
}

/// Until that is what is to be done on that CPU.
fn until_load(wq: &Workqueue, cpu: usize, load: ShardLoad) {
    let now = || wq.load_on(cpu).expect("its pools tell");
    until(|| now() == load, || format!("{:?} on CPU {cpu}", now()));
}

fn until_idle(wq: &Workqueue) {
    (0..4).for_each(|cpu| until_load(wq, cpu, ShardLoad::default()));
}

/// Workers of those CPUs run until this ends.
struct Busy(Level, Vec<JoinHandle<()>>);

impl Busy {
    fn on(wq: &Workqueue, cpus: &[usize]) -> Self {
        let (begun, release) = (Level::new(), Level::new());
        let hog = |cpu: &usize| {
            let (begun, release) = (begun.clone(), release.clone());
            wq.spawn_on(*cpu, move || {
                begun.raise();
                release.wait_silently(1);
            })
        };
        let hogs = cpus.iter().map(hog).collect();
        begun.wait(cpus.len());
        Self(release, hogs)
    }

    fn end(mut self) {
        self.0.raise();
        self.1.drain(..).for_each(|hog| hog.wait().unwrap());
    }
}

impl Drop for Busy {
    /// A test that has failed does not wait for them.
    fn drop(&mut self) {
        self.0.raise();
    }
}

/// A system, and the CPUs for which items with that name were queued.
fn traced(name: &'static str) -> (WorkqueueSystem, Arc<Mutex<Vec<usize>>>) {
    let queued = Arc::new(Mutex::new(Vec::new()));
    let builder = builder().sampling(false).trace({
        let queued = queued.clone();
        move |event| {
            if (event.item, event.step) == (name, TraceStep::Queued) {
                queued.lock().push(event.cpu);
            }
        }
    });
    (builder.build().unwrap(), queued)
}

/// For which CPU work is queued that is to be near CPU 1, on a queue with these rules: from that
/// CPU, with workers that run on those.
fn near(rules: WakeRules, from: usize, busy: &[usize]) -> usize {
    let (sys, queued) = traced("woken");
    let wq = bound(&sys, rules);
    let busy = Busy::on(&wq, busy);
    let work = Work::named("woken", || ());
    assert!(on(from, || wq.queue_near(1, &work)).unwrap().is_queued());
    busy.end();
    work.flush_blocking().unwrap();
    let queued = queued.lock();
    assert_eq!(queued.len(), 1);
    assert_eq!(wq.stats().placed, u64::from(queued[0] != 1));
    queued[0]
}

#[test]
fn without_rules_it_is_the_cpu_that_was_named() {
    let (sys, queued) = traced("woken");
    let wq = support::bound(&sys);
    let busy = Busy::on(&wq, &[1]);
    let work = Work::named("woken", || ());
    on(0, || wq.queue_near(1, &work)).unwrap();
    busy.end();
    assert_eq!(*queued.lock(), [1]);
    assert_eq!(wq.load_on(1), None, "nobody reads it");
}

#[test]
fn work_stays_where_it_was_if_nothing_runs_there() {
    for from in 0..4 {
        assert_eq!(near(stay(), from, &[]), 1);
    }
}

#[test]
fn work_goes_to_an_idle_cpu_of_its_cache_and_to_no_other() {
    assert_eq!(near(stay(), 2, &[1]), 0);
    assert_eq!(near(stay(), 2, &[1, 0]), 1, "2 and 3 are idle");
}

#[test]
fn the_idle_cpu_of_the_waker_pulls_a_work_within_its_cache() {
    assert_eq!(near(pull(), 0, &[]), 0);
    assert_eq!(near(pull(), 2, &[]), 1, "that is another cache");
    assert_eq!(near(pull(), 0, &[0]), 1, "a worker runs there");
    let anywhere = WakeRules {
        pull: Reach::Anywhere,
        ..pull()
    };
    assert_eq!(near(anywhere, 2, &[]), 2);
}

#[test]
fn of_two_busy_cpus_it_is_the_one_with_less_to_do() {
    let (sys, queued) = traced("woken");
    let wq = bound(&sys, pull());
    let busy = Busy::on(&wq, &[0, 1]);
    let before = [1, 1].map(|cpu| wq.spawn_on(cpu, || ()));
    let work = Work::named("woken", || ());
    on(0, || wq.queue_near(1, &work)).unwrap();
    busy.end();
    before.into_iter().for_each(|item| item.wait().unwrap());
    assert_eq!(*queued.lock(), [0]);
}

#[test]
fn a_cpu_that_is_none_is_refused() {
    let sys = system();
    let wq = bound(&sys, stay());
    let error = wq.queue_near(99_999, &Work::new(|| ()));
    assert_eq!(error, Err(QueueError::NoSuchCpu(99_999)));
}

#[test]
fn a_pool_tells_what_it_has_to_do() {
    let sys = system();
    let wq = bound(&sys, stay());
    assert_eq!(wq.load_on(1), Some(ShardLoad::default()));
    let busy = Busy::on(&wq, &[1]);
    assert_eq!(wq.load_on(1), Some(ShardLoad::new(0, 1)));
    let items = [1, 1].map(|cpu| wq.spawn_on(cpu, || ()));
    assert_eq!(wq.load_on(1), Some(ShardLoad::new(2, 1)));
    assert_eq!(wq.load_on(0), Some(ShardLoad::default()));
    assert_eq!(wq.load_on(99_999), Some(ShardLoad::default()));
    busy.end();
    items.into_iter().for_each(|item| item.wait().unwrap());
    until_idle(&wq);
}

/// One that says that it sleeps leaves its CPU to others.
#[test]
fn a_worker_that_blocks_is_not_active() {
    let sys = system();
    let wq = bound(&sys, stay());
    let (work, release, begun) = support::held_work();
    wq.queue_on(1, &work).unwrap();
    begun.wait(1);
    until_load(&wq, 1, ShardLoad::new(0, 0));
    release.raise();
    work.flush_blocking().unwrap();
}

#[test]
fn a_pool_that_was_there_before_tells_from_then_on() {
    let (sys, queued) = traced("woken");
    let plain = support::bound(&sys);
    plain.spawn_on(1, || ()).wait().unwrap();
    let wq = bound(&sys, stay());
    wq.spawn_on(1, || ()).wait().unwrap();
    let busy = Busy::on(&plain, &[1]);
    assert_eq!(wq.load_on(1), Some(ShardLoad::new(0, 1)));
    on(2, || wq.queue_near(1, &Work::named("woken", || ()))).unwrap();
    assert_eq!(*queued.lock(), [0]);
    busy.end();
}

/// For which CPU an item that runs on CPU 1 queues work near that, with so many more that wait
/// there.
fn from_within(rules: WakeRules, more: usize) -> usize {
    let (sys, queued) = traced("woken");
    let wq = bound(&sys, rules);
    let work = Work::named("woken", || ());
    let (begun, release) = (Level::new(), Level::new());
    let waker = wq.spawn_on(1, {
        let (wq, work, begun, release) = (wq.clone(), work.clone(), begun.clone(), release.clone());
        move || {
            begun.raise();
            release.wait_silently(1);
            wq.queue_near(1, &work).unwrap();
        }
    });
    begun.wait(1);
    let items: Vec<_> = (0..more).map(|_| wq.spawn_on(1, || ())).collect();
    release.raise();
    assert!(waker.wait().is_ok());
    items.into_iter().for_each(|item| item.wait().unwrap());
    work.flush_blocking().unwrap();
    let queued = queued.lock();
    assert_eq!(queued.len(), 1);
    queued[0]
}

#[test]
fn a_worker_that_sleeps_next_keeps_what_it_wakes() {
    assert_eq!(from_within(stay(), 0), 1);
    assert_eq!(from_within(stay(), 1), 0, "it goes on to another item");
    assert_eq!(from_within(pull(), 0), 0, "without the stack rule");
}

/// What a worker has taken, and what its items append, waits in its batch.
#[test]
fn a_worker_with_more_in_its_batch_does_not_sleep_next() {
    let queued = Arc::new(Mutex::new(Vec::new()));
    let sys = builder().intensive_threshold(Duration::MAX).trace({
        let queued = queued.clone();
        move |event| {
            if (event.item, event.step) == ("woken", TraceStep::Queued) {
                queued.lock().push(event.cpu);
            }
        }
    });
    let sys = sys.build().unwrap();
    let wq = bound(&sys, stay());
    // Something waits, so batches are taken, and small items make them long.
    let busy = Busy::on(&wq, &[1]);
    let waited = wq.spawn_on(1, || ());
    busy.end();
    waited.wait().unwrap();
    for _ in 0..support::times(200) {
        wq.spawn_on(1, || ()).wait().unwrap();
    }
    let wakes = wq.spawn_on(1, {
        let wq = wq.clone();
        move || {
            for _ in 0..2 {
                wq.queue(&Work::new(|| ())).unwrap();
            }
            wq.queue_near(1, &Work::named("woken", || ())).unwrap();
        }
    });
    wakes.wait().unwrap();
    wq.flush_blocking().unwrap();
    assert_eq!(*queued.lock(), [0]);
}

/// A future that notes where it is polled, and how it is woken.
#[derive(Clone, Default)]
struct Polls {
    on: Arc<Mutex<Vec<usize>>>,
    waker: Arc<Mutex<Option<Waker>>>,
}

impl Polls {
    fn spawn(&self, wq: &Workqueue) -> JoinHandle<()> {
        let polls = self.clone();
        wq.spawn_future(poll_fn(move |context| {
            *polls.waker.lock() = Some(context.waker().clone());
            polls.on.lock().push(current_cpu());
            Poll::Pending
        }))
    }

    fn wake(&self) {
        let waker = self.waker.lock().take();
        waker.expect("it has been polled").wake();
    }

    fn until(&self, polls: usize) -> Vec<usize> {
        let on = || self.on.lock().clone();
        until(|| on().len() >= polls, || format!("polled on {:?}", on()));
        on()
    }
}

#[test]
fn a_future_goes_on_where_it_was_polled() {
    let sys = system();
    for (rules, polled_on) in [
        // Without rules, where it is woken.
        (None, [1, 3, 0]),
        (Some(stay()), [1, 1, 1]),
        // As without, but within the cache.
        (Some(pull()), [1, 1, 0]),
    ] {
        let draft = sys.workqueue("rules").bound();
        let wq = match rules {
            Some(rules) => draft.wake_rules(rules),
            None => draft,
        };
        let wq = wq.build().unwrap();
        let polls = Polls::default();
        let handle = on(1, || polls.spawn(&wq));
        for (n, waker) in [3, 0].into_iter().enumerate() {
            polls.until(n + 1);
            wq.flush_blocking().unwrap();
            if rules.is_some() {
                until_idle(&wq);
            }
            on(waker, || polls.wake());
        }
        assert_eq!(polls.until(3), polled_on, "{rules:?}");
        assert!(handle.try_cancel());
    }
}

#[test]
fn a_future_leaves_a_busy_cpu_within_its_cache() {
    let sys = system();
    let wq = bound(&sys, stay());
    let polls = Polls::default();
    let handle = on(1, || polls.spawn(&wq));
    polls.until(1);
    wq.flush_blocking().unwrap();
    until_idle(&wq);
    let busy = Busy::on(&wq, &[1]);
    on(2, || polls.wake());
    assert_eq!(polls.until(2), [1, 0]);
    busy.end();
    assert!(handle.try_cancel());
}

#[test]
fn unbound_queues_place_among_their_pods() {
    let (sys, queued) = traced("woken");
    let attrs = Attrs::new().scope(Scope::Cpu).strict(true);
    let wq = sys.workqueue("rules").unbound(attrs).wake_rules(stay());
    let wq = wq.build().unwrap();
    let busy = Busy::on(&wq, &[1]);
    for _ in 0..2 {
        on(2, || wq.queue_near(1, &Work::named("woken", || ()))).unwrap();
    }
    busy.end();
    wq.flush_blocking().unwrap();
    assert_eq!(queued.lock()[0], 0);
}

/// Each is run once, wherever the others and their wakers run.
#[test]
fn nothing_is_lost_or_run_twice_wherever_it_goes() {
    for rules in [stay(), pull()] {
        let sys = builder().build().unwrap();
        let wq = bound(&sys, rules);
        let runs: Vec<_> = (0..support::times(2_000)).map(|_| Level::new()).collect();
        inflight_sync::thread::scope(|scope| {
            for (waker, runs) in runs.chunks(runs.len() / 4).enumerate() {
                let wq = &wq;
                scope.spawn(move || {
                    set_current_cpu_for_thread(Some(waker));
                    for (n, run) in runs.iter().enumerate() {
                        let (run, wq_again) = (run.clone(), wq.clone());
                        let work = Work::new(move || {
                            run.raise();
                            if run.get() == 1 {
                                // From within, once more.
                                let run = run.clone();
                                let again = Work::new(move || run.raise());
                                wq_again.queue_near(n % 4, &again).unwrap();
                            }
                        });
                        assert!(wq.queue_near(n % 4, &work).unwrap().is_queued());
                    }
                });
            }
        });
        for run in &runs {
            run.wait(2);
        }
        wq.flush_blocking().unwrap();
        assert!(runs.iter().all(|run| run.get() == 2));
    }
}

#[test]
fn a_bh_queue_has_no_rules() {
    let sys = system();
    let refused = sys.workqueue("bh").bh().wake_rules(stay()).build();
    assert_eq!(refused.unwrap_err(), BuildError::NotBh("wake_rules"));
}
