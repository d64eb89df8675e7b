//! Policies and counters per queue, and a topology that changes, against a naive oracle.

use crate::support::{Ran, Recorder, machine, on};
use inflight_sync::{Arc, Mutex};
use inflight_tags::steering::{
    Completions, Decision, InlineReason, RedirectReason, Steering, SteeringPolicy, SteeringStats,
};
use inflight_tags::{SharePolicy, Tag, TagSet, Tenant};
use inflight_topology::Topology;
use inflight_topology::steering::{Completion, DoneList};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::ops::AddAssign;

/// Without shares: a queue takes what is free.
fn set_of(depth: usize) -> TagSet<u64> {
    let set = TagSet::builder().depth(depth).share(SharePolicy::None);
    set.build(|_, _| 0).unwrap()
}

fn submit(queue: &Tenant<u64>, cpu: usize) -> u64 {
    on(cpu, || {
        queue
            .try_alloc_with(Default::default())
            .unwrap()
            .into_token()
    })
}

#[test]
fn a_queue_may_have_a_policy_of_its_own() {
    let set = set_of(4);
    let ran = Ran::new();
    let recorder = Recorder::new();
    let completions = set
        .completions(&machine())
        .sink(recorder.clone())
        .build(ran.callback());
    let (own, other) = (
        set.add_tenant("own").unwrap(),
        set.add_tenant("other").unwrap(),
    );
    set.set_steering(Steering::Inline);
    let early = submit(&own, 2);
    own.clone().set_steering(Steering::Force);
    let tokens = [early, submit(&own, 0), submit(&other, 2)];
    set.set_steering(Steering::SameCache);
    own.follow_set_steering();
    let last = submit(&own, 2);
    let complete = |token| on(0, || completions.complete(token, |_| ()).unwrap());
    let inline = Decision::Inline(InlineReason::Policy);
    let forced = Decision::Redirect {
        cpu: 0,
        reason: RedirectReason::Forced,
    };
    assert_eq!(tokens.map(complete), [inline, forced, inline]);
    let far = Decision::Redirect {
        cpu: 2,
        reason: RedirectReason::OtherCache,
    };
    assert_eq!(complete(last), far);
    recorder.run_all();
    assert_eq!(ran.count(), 4);
    let (own, other) = (
        completions.tenant_stats(&own),
        completions.tenant_stats(&other),
    );
    assert_eq!((own.inline_policy, own.redirected, own.batched), (1, 2, 2));
    assert_eq!((other.inline_policy, other.redirected), (1, 0));
}

#[test]
fn a_queue_of_another_set_has_counted_nothing_here() {
    let (set, other) = (set_of(1), set_of(1));
    let completions = set.completions(&machine()).build(drop::<Tag<u64>>);
    let queue = set.add_tenant("mine").unwrap();
    let token = submit(&queue, 0);
    on(0, || completions.complete(token, |_| ()).unwrap());
    let foreign = other.add_tenant("foreign").unwrap();
    assert_eq!(completions.tenant_stats(&queue).completed(), 1);
    assert_eq!(completions.tenant_stats(&foreign), SteeringStats::default());
}

/// Queues come and go for ever; those that come have counted nothing, and want what the set wants.
#[test]
fn a_new_queue_inherits_nothing_from_one_that_is_gone() {
    let set = set_of(2);
    let completions = set.completions(&machine()).build(drop::<Tag<u64>>);
    let stays = set.add_tenant("stays").unwrap();
    // A tag that outlives its queue is still counted for nobody else.
    let gone = set.add_tenant("gone").unwrap();
    gone.set_steering(Steering::Inline);
    let left_over = submit(&gone, 2);
    drop(gone);
    for n in 0..200 {
        let queue = set.add_tenant("for a moment").unwrap();
        assert_eq!(completions.tenant_stats(&queue), SteeringStats::default());
        assert_eq!(queue.steering(), set.steering());
        queue.set_steering(Steering::Inline);
        let token = submit(&queue, 0);
        on(0, || completions.complete(token, |_| ()).unwrap());
        assert_eq!(completions.tenant_stats(&queue).completed(), 1);
        assert_eq!(completions.stats().completed(), n + 1);
    }
    on(2, || completions.complete(left_over, |_| ()).unwrap());
    assert_eq!(completions.stats().completed(), 201);
    assert_eq!(completions.tenant_stats(&stays).completed(), 0);
}

#[test]
fn a_tag_says_nothing_of_the_earlier_use_of_its_slot() {
    let set = TagSet::builder().depth(1).steering(Steering::SameCpu);
    let set = set.build(|_, _| 0u64).unwrap();
    let queue = set.add_tenant("q").unwrap();
    let token = submit(&queue, 3);
    let tag = set.redeem(token).unwrap();
    assert_eq!(tag.submitted_on(), Some(3));
    drop(tag);
    let tag = queue.try_alloc_with(Default::default()).unwrap();
    assert_eq!(tag.submitted_on(), None);
}

/// What a test of random events does next.
#[derive(Clone, Debug)]
enum Event {
    Add,
    Drop(usize),
    /// Many that come and go at once, with a request each.
    Churn,
    SetPolicy(SteeringPolicy),
    Policy(usize, Option<SteeringPolicy>),
    Submit {
        queue: usize,
        cpu: usize,
        polled: bool,
    },
    Complete {
        which: usize,
        observer: usize,
    },
    Awake(bool),
    Refuse(bool),
    Close(usize),
    Open(usize),
    Run,
    Refresh(usize),
}

const MACHINES: [&str; 5] = [
    "cache:2 core:2",
    "cache:2 core:2 offline:1",
    "cache:3 core:2",
    "core:4 offline:2-3",
    "core:1",
];

fn policy() -> impl Strategy<Value = SteeringPolicy> {
    (0..4usize, any::<bool>()).prop_map(|(n, even)| {
        let policy = SteeringPolicy::from(Steering::ALL[n]);
        if even {
            policy.even_if_asleep()
        } else {
            policy
        }
    })
}

fn event() -> impl Strategy<Value = Event> {
    let cpu = || prop_oneof![9 => 0..6usize, 1 => Just(99)];
    prop_oneof![
        2 => Just(Event::Add),
        1 => (0..4usize).prop_map(Event::Drop),
        1 => Just(Event::Churn),
        1 => policy().prop_map(Event::SetPolicy),
        2 => (0..4usize, prop::option::of(policy())).prop_map(|(n, p)| Event::Policy(n, p)),
        9 => (0..4usize, cpu(), prop::bool::weighted(0.1))
            .prop_map(|(queue, cpu, polled)| Event::Submit { queue, cpu, polled }),
        9 => (0..8usize, cpu()).prop_map(|(which, observer)| Event::Complete { which, observer }),
        1 => any::<bool>().prop_map(Event::Awake),
        1 => prop::bool::weighted(0.2).prop_map(Event::Refuse),
        1 => cpu().prop_map(Event::Close),
        1 => cpu().prop_map(Event::Open),
        2 => Just(Event::Run),
        2 => (0..MACHINES.len()).prop_map(Event::Refresh),
    ]
}

/// What is counted, as anybody would.
#[derive(Clone, Debug, Default, PartialEq)]
struct Counts {
    inline: BTreeMap<String, u64>,
    redirected: u64,
    wakeups: u64,
    refused: u64,
    batches: u64,
    batched: u64,
    max_batch: u64,
}

impl Counts {
    fn took(&mut self, n: u64) {
        self.batches += 1;
        self.batched += n;
        self.max_batch = self.max_batch.max(n);
    }

    fn of(stats: &SteeringStats) -> Self {
        use InlineReason::{Asleep, Closed, OneShard, Polled, SameCache, SameCpu, UnknownCpu};
        let inline = [
            (SameCpu, stats.inline_same_cpu),
            (SameCache, stats.inline_same_cache),
            (InlineReason::Policy, stats.inline_policy),
            (OneShard, stats.inline_one_shard),
            (Polled, stats.inline_polled),
            (Closed, stats.inline_closed),
            (UnknownCpu, stats.inline_unknown_cpu),
            (Asleep, stats.inline_asleep),
        ];
        let counted = inline.into_iter().filter(|&(_, n)| n > 0);
        Self {
            inline: counted.map(|(why, n)| (format!("{why:?}"), n)).collect(),
            redirected: stats.redirected,
            wakeups: stats.redirect_wakeups,
            refused: stats.refused_wakeups,
            batches: stats.batches,
            batched: stats.batched,
            max_batch: stats.max_batch,
        }
    }
}

impl AddAssign<&Self> for Counts {
    /// But for the batches, in which several may have a part.
    fn add_assign(&mut self, other: &Self) {
        for (reason, n) in &other.inline {
            *self.inline.entry(reason.clone()).or_default() += n;
        }
        self.redirected += other.redirected;
        self.wakeups += other.wakeups;
        self.refused += other.refused;
    }
}

/// A done list for each CPU, with the request and its queue.
struct Oracle {
    topo: Topology,
    boxes: BTreeMap<usize, VecDeque<(u64, usize)>>,
    closed: BTreeMap<usize, bool>,
    awake: bool,
    refuse: bool,
    ran: Vec<u64>,
    /// By queue, those that are gone included.
    counts: Vec<Counts>,
    batches: Counts,
}

/// A request in flight, as submitted.
#[derive(Clone, Copy, Debug)]
struct Flying {
    token: u64,
    queue: usize,
    policy: SteeringPolicy,
    cpu: usize,
    polled: bool,
}

impl Oracle {
    fn new() -> Self {
        let mut oracle = Self {
            topo: machine(),
            boxes: BTreeMap::new(),
            closed: BTreeMap::new(),
            awake: false,
            refuse: false,
            ran: Vec::new(),
            counts: Vec::new(),
            batches: Counts::default(),
        };
        oracle.refresh(machine());
        oracle
    }

    fn refresh(&mut self, topo: Topology) {
        for cpu in 0..8 {
            let (was, is) = (self.boxes.contains_key(&cpu), topo.cpus().contains(cpu));
            if was && !is {
                self.drain(cpu);
                self.boxes.remove(&cpu);
            } else if is && !was {
                self.boxes.insert(cpu, VecDeque::new());
                // As it was when it left.
                self.closed.entry(cpu).or_insert(false);
            }
        }
        self.topo = topo;
    }

    /// Closes a done list, or opens it. A CPU that is not there has none.
    fn close(&mut self, cpu: usize, closed: bool) {
        if self.boxes.contains_key(&cpu) {
            self.closed.insert(cpu, closed);
        }
    }

    fn complete(&mut self, id: u64, request: Flying, observer: usize) {
        let list = match self.boxes.get(&request.cpu) {
            None => DoneList::Awake,
            Some(_) if self.closed[&request.cpu] => DoneList::Closed,
            Some(queue) if self.awake || !queue.is_empty() => DoneList::Awake,
            Some(_) => DoneList::Asleep,
        };
        let decision = Completion::new(observer, request.cpu)
            .policy(request.policy)
            .polled(request.polled)
            .done_list(list)
            .one_shard(self.boxes.len() == 1)
            .decide(&self.topo);
        let counts = &mut self.counts[request.queue];
        match decision {
            // A redirect that finds the done list closed is inline, too.
            Decision::Redirect { cpu, .. } if !self.closed[&cpu] => {
                let list = self.boxes.get_mut(&cpu).unwrap();
                let first = list.is_empty();
                list.push_back((id, request.queue));
                counts.redirected += 1;
                counts.wakeups += u64::from(first);
                if first && self.refuse {
                    counts.refused += 1;
                    self.drain(cpu);
                }
            }
            decision => {
                let reason = match decision {
                    Decision::Inline(reason) => reason,
                    Decision::Redirect { .. } => InlineReason::Closed,
                };
                *counts.inline.entry(format!("{reason:?}")).or_default() += 1;
                self.ran.push(id);
            }
        }
    }

    fn drain(&mut self, cpu: usize) {
        let Some(list) = self.boxes.get_mut(&cpu) else {
            return;
        };
        let batch: Vec<_> = list.drain(..).collect();
        if batch.is_empty() {
            return;
        }
        self.batches.took(batch.len() as u64);
        let mut parts = BTreeMap::<usize, u64>::new();
        for (id, queue) in batch {
            self.ran.push(id);
            *parts.entry(queue).or_default() += 1;
        }
        for (queue, n) in parts {
            self.counts[queue].took(n);
        }
    }

    /// A request of a queue that is dropped at once.
    fn short_lived(&mut self, set: &TagSet<u64>) -> Flying {
        let queue = set.add_tenant("short").unwrap();
        self.counts.push(Counts::default());
        Flying {
            token: submit(&queue, 0),
            queue: self.counts.len() - 1,
            policy: set.steering(),
            cpu: 0,
            polled: false,
        }
    }

    fn total(&self) -> Counts {
        let mut total = self.batches.clone();
        self.counts.iter().for_each(|counts| total += counts);
        total
    }
}

/// The real thing beside the oracle.
struct World {
    set: TagSet<u64>,
    recorder: Recorder,
    ran: Arc<Mutex<Vec<u64>>>,
    completions: Completions<u64>,
    oracle: Oracle,
    /// With their numbers among all there have been.
    queues: Vec<(usize, Tenant<u64>)>,
    flying: Vec<Flying>,
    id: u64,
}

impl World {
    fn new() -> Self {
        let (set, recorder) = (set_of(8), Recorder::new());
        let ran = Arc::new(Mutex::new(Vec::new()));
        let completions = set.completions(&machine()).sink(recorder.clone());
        Self {
            completions: completions.build({
                let ran = ran.clone();
                move |tag: Tag<u64>| ran.lock().push(*tag)
            }),
            set,
            recorder,
            ran,
            oracle: Oracle::new(),
            queues: Vec::new(),
            flying: Vec::new(),
            id: 0,
        }
    }

    fn act(&mut self, event: Event) {
        match event {
            Event::Add if self.queues.len() < 4 => {
                let number = self.oracle.counts.len();
                self.queues.push((
                    number,
                    self.set.add_tenant(format!("queue {number}")).unwrap(),
                ));
                self.oracle.counts.push(Counts::default());
            }
            Event::Drop(which) if which < self.queues.len() => {
                self.queues.swap_remove(which);
            }
            Event::Churn if self.set.in_use() < 8 => {
                for _ in 0..20 {
                    let request = self.oracle.short_lived(&self.set);
                    self.complete(request, 0);
                    self.run();
                }
            }
            Event::SetPolicy(policy) => self.set.set_steering(policy),
            Event::Policy(which, policy) if which < self.queues.len() => match policy {
                Some(policy) => self.queues[which].1.set_steering(policy),
                None => self.queues[which].1.follow_set_steering(),
            },
            Event::Submit { queue, cpu, polled } if queue < self.queues.len() => {
                self.submit(queue, cpu, polled);
            }
            Event::Complete { which, observer } if which < self.flying.len() => {
                let request = self.flying.swap_remove(which);
                self.complete(request, observer);
            }
            Event::Awake(awake) => {
                self.recorder.awake(awake);
                self.oracle.awake = awake;
            }
            Event::Refuse(refuse) => {
                self.recorder.refuse(refuse);
                self.oracle.refuse = refuse;
            }
            Event::Close(cpu) => {
                self.completions.close_cpu(cpu);
                self.oracle.drain(cpu);
                self.oracle.close(cpu, true);
            }
            Event::Open(cpu) => {
                self.completions.open_cpu(cpu);
                self.oracle.close(cpu, false);
            }
            Event::Run => self.run(),
            Event::Refresh(which) => {
                let topo = Topology::synthetic(MACHINES[which]).unwrap();
                self.set.cpus().refresh(&topo);
                self.oracle.refresh(topo);
            }
            _ => {}
        }
    }

    fn submit(&mut self, queue: usize, cpu: usize, polled: bool) {
        let (number, queue) = &self.queues[queue];
        let Ok(tag) = queue.try_alloc_with(Default::default()) else {
            return;
        };
        let token = on(cpu, || {
            if polled {
                tag.into_polled_token()
            } else {
                tag.into_token()
            }
        });
        self.flying.push(Flying {
            token,
            queue: *number,
            policy: queue.steering(),
            cpu,
            polled,
        });
    }

    fn complete(&mut self, request: Flying, observer: usize) {
        self.id += 1;
        let (id, token) = (self.id, request.token);
        self.oracle.complete(id, request, observer);
        on(observer, || {
            self.completions.complete(token, |req| *req = id).unwrap()
        });
    }

    fn run(&mut self) {
        for cpu in self.recorder.woken() {
            self.oracle.drain(cpu);
        }
        self.recorder.run_all();
    }

    /// Whether all that can be asked is answered as by the oracle.
    fn agrees(&self) {
        assert_eq!(*self.ran.lock(), self.oracle.ran);
        for (number, queue) in &self.queues {
            let stats = self.completions.tenant_stats(queue);
            assert_eq!(Counts::of(&stats), self.oracle.counts[*number]);
            assert!(stats.redirect_wakeups <= stats.redirected);
        }
        let total = self.completions.stats();
        assert_eq!(Counts::of(&total), self.oracle.total());
    }

    fn end(mut self) {
        for request in std::mem::take(&mut self.flying) {
            self.complete(request, 0);
        }
        self.run();
        self.agrees();
        let stats = self.completions.stats();
        assert_eq!(stats.completed(), self.id, "C2");
        assert_eq!(stats.batched, stats.redirected, "C2");
        assert_eq!(self.ran.lock().len() as u64, self.id);
        assert_eq!(self.set.in_use(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Callbacks run when and in the order in which those of naive done lists do, and are counted
    /// for their queues (C1, C2).
    #[test]
    fn c1_c2_each_queue_is_steered_by_its_policy_and_counted(
        events in prop::collection::vec(event(), 1..150),
    ) {
        let mut world = World::new();
        for event in events {
            world.act(event);
            world.agrees();
        }
        world.end();
    }
}
