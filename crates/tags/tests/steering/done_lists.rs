//! Where completions run, and that each runs once.

use crate::support::{Pipe, Ran, Recorder, machine, on};
use inflight_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use inflight_sync::{Arc, Mutex, thread};
use inflight_tags::steering::{
    CompletionSink, Completions, Decision, DoneListHandle, InlineReason, InlineSink,
    RedirectReason, Runner, SpeedRule, Steered, Steering, SteeringPolicy, SteeringStats,
};
use inflight_tags::{RedeemError, Tag, TagSet, Tenant};
use inflight_topology::steering::{Completion, DoneList};
use inflight_topology::{CpuSet, Scope, Topology, set_current_cpu_for_thread};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(super) fn set_of(depth: usize) -> (TagSet<u64>, Tenant<u64>) {
    let set = TagSet::builder().depth(depth).build(|_, _| 0).unwrap();
    let dev = set.add_tenant("dev").unwrap();
    (set, dev)
}

fn submit(dev: &Tenant<u64>, cpu: usize) -> u64 {
    on(cpu, || {
        dev.try_alloc_with(Default::default()).unwrap().into_token()
    })
}

pub(super) fn identities(stats: &SteeringStats, completed: u64) {
    assert_eq!(stats.completed(), completed, "{stats:?}");
    assert_eq!(stats.batched, stats.redirected, "{stats:?}");
    assert!(stats.redirect_wakeups <= stats.redirected, "{stats:?}");
    assert!(stats.max_batch <= stats.batched && stats.batches <= stats.batched);
}

/// P12: with every policy, pair of CPUs and state of the done list, what happens is what the pure
/// decision says.
#[test]
fn everything_happens_as_it_is_decided() {
    let mut seen = HashMap::new();
    // All of them take Miri half an hour.
    let shapes = ["cache:2 core:2", "core:1", "core:2"];
    for shape in &shapes[..if cfg!(miri) { 1 } else { 3 }] {
        let topo = Topology::synthetic(shape).unwrap();
        let (set, dev) = set_of(1);
        let ran = Ran::new();
        let recorder = Recorder::new();
        let completions = set
            .completions(&topo)
            .sink(recorder.clone())
            .build(ran.callback());
        let mut completed = 0;
        for steering in Steering::ALL {
            for speed in SpeedRule::ALL {
                let policy = steering.with_speed(speed);
                for policy in [policy, policy.even_if_asleep()] {
                    if cfg!(miri) && speed != SpeedRule::Ignore {
                        continue;
                    }
                    for list in [DoneList::Awake, DoneList::Asleep, DoneList::Closed] {
                        for observer in [0, 1, 2, 3, 77] {
                            for submitter in [0, 1, 2, 3, 77, usize::MAX] {
                                recorder.awake(list == DoneList::Awake);
                                if list == DoneList::Closed {
                                    completions.close_cpu(submitter);
                                }
                                set.set_steering(policy);
                                let token = submit(&dev, submitter);
                                // A CPU that is not there has no done list to be closed.
                                let list = if topo.cpus().contains(submitter) {
                                    list
                                } else {
                                    DoneList::Awake
                                };
                                let expected = Completion::new(observer, submitter)
                                    .policy(policy)
                                    .done_list(list)
                                    .one_shard(*shape == "core:1")
                                    .decide(&topo);
                                let got = on(observer, || completions.complete(token, |_| ()));
                                assert_eq!(
                                    got,
                                    Ok(expected),
                                    "{shape} {policy:?} {list:?} {submitter} -> {observer}"
                                );
                                completed += 1;
                                assert_eq!(ran.count() == completed, expected.is_inline());
                                assert_eq!(recorder.run_all(), expected.redirect());
                                assert_eq!(ran.count(), completed, "it has run, once");
                                completions.open_cpu(submitter);
                                *seen.entry(expected.is_inline()).or_insert(0) += 1;
                            }
                        }
                    }
                }
            }
        }
        identities(&completions.stats(), completed as u64);
    }
    assert!(seen[&true] > 100 && seen[&false] > 100, "{seen:?}");
}

#[test]
fn a_done_list_runs_in_the_order_of_its_pushes_and_wakes_once() {
    let (set, dev) = set_of(8);
    let recorder = Recorder::new();
    let order = Arc::new(Mutex::new(Vec::new()));
    let completions = set.completions(&machine()).sink(recorder.clone()).build({
        let order = order.clone();
        move |tag: Tag<u64>| order.lock().push(*tag)
    });
    for n in 1..=5 {
        let token = submit(&dev, 2);
        on(0, || completions.complete(token, |req| *req = n)).unwrap();
    }
    assert_eq!(recorder.wakes(), 1);
    assert_eq!(recorder.run_all(), Some(2));
    assert_eq!(*order.lock(), [1, 2, 3, 4, 5]);
    assert_eq!(set.in_use(), 0);
    let stats = completions.stats();
    identities(&stats, 5);
    assert_eq!(
        (stats.redirect_wakeups, stats.max_batch, stats.batches),
        (1, 5, 1)
    );
}

#[test]
fn a_request_keeps_the_policy_it_was_submitted_under() {
    let (set, dev) = set_of(2);
    let ran = Ran::new();
    let recorder = Recorder::new();
    let completions = set
        .completions(&machine())
        .sink(recorder.clone())
        .build(ran.callback());
    set.set_steering(Steering::Force);
    let forced = submit(&dev, 0);
    set.set_steering(Steering::Inline);
    let inline = submit(&dev, 2);
    let complete = |token| on(0, || completions.complete(token, |_| ()).unwrap());
    let reason = RedirectReason::Forced;
    assert_eq!(complete(forced), Decision::Redirect { cpu: 0, reason });
    assert_eq!(complete(inline), Decision::Inline(InlineReason::Policy));
    assert_eq!(ran.count(), 1);
    recorder.run_all();
    assert_eq!(ran.count(), 2);
}

#[test]
fn who_was_submitted_before_anybody_cared_runs_where_it_is_seen() {
    let (set, dev) = set_of(1);
    let token = submit(&dev, 2);
    let ran = Ran::new();
    let completions = set
        .completions(&machine())
        .sink(Recorder::new())
        .build(ran.callback());
    let decision = on(0, || completions.complete(token, |_| ()).unwrap());
    assert_eq!(decision, Decision::Inline(InlineReason::UnknownCpu));
    let stats = completions.stats();
    assert_eq!((ran.count(), stats.inline_unknown_cpu), (1, 1));
}

#[test]
fn closing_runs_what_is_in_the_done_lists_here_and_later_ones_where_they_are_seen() {
    for by_drop in [false, true] {
        let (set, dev) = set_of(4);
        let ran = Ran::new();
        let recorder = Recorder::new();
        let completions = set
            .completions(&machine())
            .sink(recorder.clone())
            .build(ran.callback());
        let tokens = [2, 3, 2, 2].map(|cpu| submit(&dev, cpu));
        on(0, || {
            for token in &tokens[..3] {
                completions.complete(*token, |_| ()).unwrap();
            }
        });
        assert_eq!(ran.count(), 0);
        if by_drop {
            drop(completions);
            assert_eq!(ran.count(), 3);
            // What is in flight when the last handle goes is leaked on purpose.
            drop(set.redeem(tokens[3]).unwrap());
        } else {
            completions.close();
            assert_eq!(ran.count(), 3);
            let last = on(0, || completions.complete(tokens[3], |_| ()).unwrap());
            assert_eq!(last, Decision::Inline(InlineReason::Closed));
            identities(&completions.stats(), 4);
            completions.close();
        }
        // The worker comes too late and finds nothing.
        recorder.run_all();
        assert_eq!(ran.count(), if by_drop { 3 } else { 4 });
    }
}

#[test]
fn a_cpu_leaves_and_comes_back() {
    let (set, dev) = set_of(3);
    let ran = Ran::new();
    let recorder = Recorder::new();
    let completions = set
        .completions(&machine())
        .sink(recorder.clone())
        .build(ran.callback());
    let tokens = [(); 3].map(|()| submit(&dev, 2));
    let complete = |n: usize| on(0, || completions.complete(tokens[n], |_| ()).unwrap());
    assert!(!complete(0).is_inline());
    completions.close_cpu(2);
    assert_eq!(ran.count(), 1, "drained by whoever closes");
    assert!(complete(1).is_inline());
    completions.open_cpu(2);
    assert_eq!(complete(2).redirect(), Some(2));
    recorder.run_all();
    assert_eq!(ran.count(), 3);
    completions.close_cpu(12_345);
    completions.open_cpu(usize::MAX);
}

#[test]
fn whoever_pushed_runs_the_list_of_a_worker_that_is_gone() {
    let (set, dev) = set_of(2);
    let ran = Ran::new();
    let recorder = Recorder::new();
    let completions = set
        .completions(&machine())
        .sink(recorder.clone())
        .build(ran.callback());
    recorder.refuse(true);
    for n in 1..=2 {
        let token = submit(&dev, 2);
        on(0, || completions.complete(token, |_| ()).unwrap());
        assert_eq!(ran.count(), n);
    }
    let stats = completions.stats();
    identities(&stats, 2);
    assert_eq!((stats.redirected, stats.refused_wakeups), (2, 2));
}

#[test]
fn without_workers_everything_runs_where_it_is_seen() {
    for steering in Steering::ALL {
        let (set, dev) = set_of(1);
        set.set_steering(steering);
        let ran = Ran::new();
        let completions = set
            .completions(&machine())
            .sink(InlineSink)
            .build(ran.callback());
        for (n, observer) in [0, 1, 2, 3, 99].into_iter().enumerate() {
            let token = submit(&dev, 2);
            let decision = on(observer, || completions.complete(token, |_| ()).unwrap());
            assert!(decision.is_inline());
            assert_eq!(ran.count(), n + 1);
        }
        completions.open_cpu(2);
        let token = submit(&dev, 2);
        assert!(on(0, || completions.complete(token, |_| ()).unwrap()).is_inline());
    }
}

/// A callback that submits the next request and completes it at once, and so on.
struct Chain {
    left: AtomicUsize,
    nested: AtomicUsize,
    deepest: AtomicUsize,
    completions: Mutex<Option<(Completions<u64>, Tenant<u64>)>>,
}

impl Chain {
    fn run(length: usize, sink: impl CompletionSink) -> Arc<Self> {
        let (set, dev) = set_of(16);
        let chain = Arc::new(Self {
            left: AtomicUsize::new(length),
            nested: AtomicUsize::new(0),
            deepest: AtomicUsize::new(0),
            completions: Mutex::new(None),
        });
        let completions = set.completions(&machine()).sink(sink).build({
            let chain = chain.clone();
            move |tag| chain.link(tag)
        });
        let token = submit(&dev, 0);
        *chain.completions.lock() = Some((completions.clone(), dev));
        on(0, || completions.complete(token, |_| ()).unwrap());
        chain
    }

    fn link(&self, tag: Tag<u64>) {
        let nested = self.nested.fetch_add(1, Ordering::Relaxed) + 1;
        self.deepest.fetch_max(nested, Ordering::Relaxed);
        drop(tag);
        if self.left.fetch_sub(1, Ordering::Relaxed) > 1 {
            let (completions, dev) = self.completions.lock().clone().unwrap();
            let token = dev.try_alloc_with(Default::default()).unwrap().into_token();
            completions.complete(token, |_| ()).unwrap();
        }
        self.nested.fetch_sub(1, Ordering::Relaxed);
    }

    fn end(&self, completed: u64) -> SteeringStats {
        assert_eq!(self.left.load(Ordering::Relaxed), 0);
        assert_eq!(
            self.deepest.load(Ordering::Relaxed),
            Completion::MAX_DEPTH as usize
        );
        let (completions, _) = self.completions.lock().take().unwrap();
        completions.close();
        let stats = completions.stats();
        identities(&stats, completed);
        stats
    }
}

#[test]
fn a_chain_of_callbacks_is_nested_eight_deep() {
    let stats = Chain::run(1_000, InlineSink).end(1_000);
    assert_eq!(stats.inline_depth, 999 / 8);
}

/// What is put off does not pile up on the stack either.
#[test]
fn a_long_chain_needs_no_more_stack_than_a_short_one() {
    let links = if cfg!(miri) { 100 } else { 100_000 };
    let stats = Chain::run(links, InlineSink).end(links as u64);
    assert_eq!(stats.inline_depth, (links as u64 - 1) / 8);

    let recorder = Recorder::new();
    recorder.refuse(true);
    let stats = Chain::run(links, recorder).end(links as u64);
    assert_eq!(stats.refused_wakeups, (links as u64 - 1) / 8);
}

#[test]
fn a_chain_that_is_too_deep_goes_on_in_the_list_of_its_cpu() {
    let recorder = Recorder::new();
    let chain = Chain::run(100, recorder.clone());
    while recorder.run_all_on() == Some(0) {}
    let stats = chain.end(100);
    assert_eq!((stats.redirected, stats.inline_depth), (99 / 8, 0));
}

#[test]
fn a_chain_without_a_worker_that_takes_it_is_nested_eight_deep_too() {
    let recorder = Recorder::new();
    recorder.refuse(true);
    let stats = Chain::run(1000, recorder).end(1000);
    assert_eq!(stats.refused_wakeups, 999 / 8);
}

#[test]
fn a_callback_that_panics_costs_the_others_nothing() {
    let (set, dev) = set_of(4);
    let recorder = Recorder::new();
    let ran = Arc::new(AtomicUsize::new(0));
    let completions = set.completions(&machine()).sink(recorder.clone()).build({
        let ran = ran.clone();
        move |tag: Tag<u64>| {
            ran.fetch_add(1, Ordering::Relaxed);
            assert_ne!(*tag % 2, 1, "odd");
        }
    });
    let tokens: Vec<u64> = (0..4).map(|_| submit(&dev, 2)).collect();
    for (n, token) in tokens.into_iter().enumerate() {
        on(0, || completions.complete(token, |req| *req = n as u64)).unwrap();
    }
    assert!(catch_unwind(AssertUnwindSafe(|| recorder.run_all())).is_err());
    assert_eq!((ran.load(Ordering::Relaxed), set.in_use()), (4, 0));
    assert_eq!(completions.stats().panicked, 2, "each of the batch");
    let token = submit(&dev, 0);
    let here = || on(0, || completions.complete(token, |req| *req = 1));
    assert!(catch_unwind(AssertUnwindSafe(here)).is_err());
    assert_eq!((ran.load(Ordering::Relaxed), set.in_use()), (5, 0));
    assert_eq!(completions.stats().panicked, 3);
    // The panics have left no callback "running" on this thread.
    let token = submit(&dev, 0);
    assert!(
        on(0, || completions.complete(token, |req| *req = 2))
            .unwrap()
            .is_inline()
    );
}

#[test]
fn what_is_refused_is_not_called_for() {
    let (set, dev) = set_of(1);
    let ran = Ran::new();
    let completions = set.completions(&machine()).build(ran.callback());
    let token = submit(&dev, 0);
    let complete = |token| on(0, || completions.complete(token, |_| ran.fail()));
    assert!(complete(!token).is_err());
    assert_eq!(ran.count(), 0);
    on(0, || completions.complete(token, |_| ())).unwrap();
    assert_eq!(
        complete(token),
        Err(RedeemError::Stale {
            token: token.into()
        })
    );
    assert_eq!(ran.count(), 1);
    assert_eq!(completions.stats().completed(), 1);
}

#[test]
fn what_timed_out_is_handed_over_like_the_rest() {
    let (set, dev) = set_of(1);
    let ran = Ran::new();
    let recorder = Recorder::new();
    let completions = set
        .completions(&machine())
        .sink(recorder.clone())
        .build(ran.callback());
    let token = submit(&dev, 2);
    set.for_each_in_flight(|t| assert!(t.mark_timed_out()));
    let late = on(0, || completions.complete(token, |_| ran.fail()));
    assert_eq!(
        late,
        Err(RedeemError::TimedOut {
            token: token.into()
        })
    );
    let tag = set.redeem_timed_out(token).unwrap();
    assert_eq!(on(0, || completions.complete_tag(tag)).redirect(), Some(2));
    recorder.run_all();
    assert_eq!(ran.count(), 1);
}

#[test]
fn what_belongs_here_can_be_kept() {
    let (set, dev) = set_of(2);
    let ran = Ran::new();
    let recorder = Recorder::new();
    let completions = set
        .completions(&machine())
        .sink(recorder.clone())
        .build(ran.callback());
    let (near, far) = (submit(&dev, 1), submit(&dev, 3));
    let steer = |token| on(0, || completions.steer(token, |req| *req = 5).unwrap());
    match steer(near) {
        Steered::Here(tag, InlineReason::SameCache) => {
            assert_eq!((*tag, tag.submitted_on()), (5, Some(1)));
            on(1, || completions.submitter_resumed(&tag));
            assert_eq!(completions.stats().submitter_moved, 0);
            on(2, || completions.submitter_resumed(&tag));
            assert_eq!(completions.stats().submitter_moved, 1);
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(steer(far), Steered::Sent { cpu: 3, .. }));
    assert_eq!(ran.count(), 0);
    recorder.run_all();
    assert_eq!(ran.count(), 1);
    identities(&completions.stats(), 2);
}

#[test]
fn a_done_list_per_cache_serves_its_cpus() {
    let (set, dev) = set_of(2);
    let ran = Ran::new();
    let recorder = Recorder::new();
    let completions = set
        .completions(&machine())
        .scope(Scope::Cache)
        .sink(recorder.clone())
        .build(ran.callback());
    for cpu in [2, 3] {
        let token = submit(&dev, cpu);
        let decision = on(0, || completions.complete(token, |_| ()).unwrap());
        assert_eq!(decision.redirect(), Some(cpu));
    }
    assert_eq!(recorder.wakes(), 1, "the second joined the first");
    recorder.run_all();
    let shards = completions.shard_stats();
    assert_eq!(shards[1].cpus.to_string(), "2-3");
    assert_eq!(
        (shards[0].stats.redirected, shards[1].stats.redirected),
        (0, 2)
    );
}

/// Threads that play CPUs complete each other's requests over workers of their own, while the
/// policy changes all the time. Each completion runs once and its result arrives.
#[test]
fn nothing_is_lost_or_doubled_under_load() {
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 20_000 };
    const CPUS: usize = 4;
    /// A thread for each shard, which sleeps until it is woken.
    type Bell = Arc<Pipe<()>>;
    type Threads = Vec<(Bell, thread::JoinHandle<()>)>;
    #[derive(Clone, Default)]
    struct Workers(Arc<Mutex<Threads>>);
    struct Worker(Bell);
    impl CompletionSink for Workers {
        fn runner(&self, _: &CpuSet, list: DoneListHandle) -> Option<Box<dyn Runner>> {
            let pipe = Pipe::new();
            let woken = pipe.clone();
            let worker = thread::spawn(move || {
                while woken.recv().is_some() {
                    list.run();
                }
            });
            self.0.lock().push((pipe.clone(), worker));
            Some(Box::new(Worker(pipe)))
        }
    }
    impl Runner for Worker {
        fn wake(&self, _cpu: usize) -> bool {
            self.0.send(());
            true
        }
    }

    let (set, dev) = set_of(32);
    let sum = Arc::new(AtomicU64::new(0));
    let workers = Workers::default();
    let completions = set.completions(&machine()).sink(workers.clone()).build({
        let sum = sum.clone();
        move |tag: Tag<u64>| {
            sum.fetch_add(*tag, Ordering::Relaxed);
        }
    });
    let rings: Vec<_> = (0..CPUS).map(|_| Pipe::new()).collect();
    let threads: Vec<_> = (0..CPUS)
        .map(|cpu| {
            let (set, dev, completions) = (set.clone(), dev.clone(), completions.clone());
            let (own, next) = (rings[cpu].clone(), rings[(cpu + 1) % CPUS].clone());
            thread::spawn(move || {
                set_current_cpu_for_thread(Some(cpu));
                for n in 1..=ROUNDS {
                    set.set_steering(Steering::ALL[(n as usize + cpu) % 4]);
                    next.send(dev.alloc_blocking().unwrap().into_token());
                    let token = own.recv().unwrap();
                    completions.complete(token, |req| *req = n).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    completions.close();
    for (pipe, worker) in workers.0.lock().drain(..) {
        pipe.close();
        worker.join().unwrap();
    }
    let all = CPUS as u64 * ROUNDS * (ROUNDS + 1) / 2;
    assert_eq!(sum.load(Ordering::Relaxed), all);
    let stats = completions.stats();
    identities(&stats, CPUS as u64 * ROUNDS);
    assert_eq!(set.in_use(), 0);
    assert!(stats.redirected > 0 && stats.inlined() > 0, "{stats:?}");
}

#[test]
fn a_set_takes_the_policies_of_topology() {
    let set = TagSet::builder()
        .depth(1)
        .steering(Steering::SameCpu.with_speed(SpeedRule::AtLeast))
        .build(|_, _| ())
        .unwrap();
    let policy: SteeringPolicy = set.steering();
    assert_eq!(policy, Steering::SameCpu.with_speed(SpeedRule::AtLeast));
    set.set_steering("force".parse::<Steering>().unwrap());
    assert_eq!(set.steering(), Steering::Force.into());
}
