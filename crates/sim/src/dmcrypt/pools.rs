//! The pools of a scope: the shipped core, driven in virtual time.

use super::model::DmCrypt3900x;
use super::scenario::Scope;
use crate::cpus::{Cpus, Kind, ThreadId};
use inflight_sync::Arc;
use inflight_sync::time::Instant;
use inflight_topology::{self as topology, Topology};
use inflight_workqueue::sim::{
    Bring, Crowd, FrontEnd, Lately, Lending, LendingCounters, Limits, Load as Seen, Notice, Pool,
    Share,
};

/// Between two looks at a pool in which something waits, in ns.
const LOOK: u64 = 1_000_000;

/// That pod is to be looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look(usize);

/// A worker thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worker {
    pub(super) pod: usize,
    number: usize,
}

/// One pool.
#[derive(Debug)]
struct Pod {
    pool: Pool,
    /// The cache of its workers, if it has one.
    cache: Option<usize>,
    /// Threads by number of the worker.
    threads: Vec<ThreadId>,
    delay: Lately,
    /// What the others see of it.
    notice: Arc<Notice>,
    /// A look is planned.
    watched: bool,
}

/// All pools of a scope, and what stands before them.
#[derive(Debug)]
pub(super) struct Pools {
    scope: Scope,
    pods: Vec<Pod>,
    /// By thread, from the first worker on.
    workers: Vec<Worker>,
    first: ThreadId,
    lending: Lending,
    crowd: Crowd,
    limits: Vec<Limits<usize>>,
    follows_waker: f64,
    hears: bool,
    misjudged: f64,
    pub(super) counters: LendingCounters,
    pub(super) repatriations: u64,
}

impl Pools {
    pub(super) fn new<E: Copy + From<Look>>(
        scope: Scope,
        model: &DmCrypt3900x,
        machine: &Topology,
        cpus: &mut Cpus<E>,
        first: ThreadId,
    ) -> Self {
        let lending = Lending::new(machine, topology::Scope::Cache, model.costs);
        let caches: Vec<_> = match scope {
            Scope::System => vec![None],
            _ => (0..cpus.caches()).map(Some).collect(),
        };
        let crowd = Crowd::new(machine.cpus().last().map_or(0, |last| last + 1));
        let pod = |cache: Option<usize>| {
            let notice = Arc::<Notice>::default();
            if let Some(cache) = cache {
                crowd.tell(cpus.cache(cache).iter().copied().collect(), &notice);
            }
            Pod {
                pool: match (scope, cache) {
                    (Scope::Ours, Some(pod)) => Pool::lender(lending.cap(pod)),
                    _ => Pool::new(model.workers),
                },
                cache,
                threads: Vec::new(),
                delay: Lately::default(),
                notice,
                watched: false,
            }
        };
        let mut pools = Self {
            scope,
            pods: caches.into_iter().map(pod).collect(),
            workers: Vec::new(),
            first,
            lending,
            crowd,
            limits: limits(scope, model, machine),
            follows_waker: model.follows_waker,
            hears: model.hears,
            misjudged: model.misjudged,
            counters: LendingCounters::default(),
            repatriations: 0,
        };
        for pod in 0..pools.pods.len() {
            let thread = pools.create(cpus, pod, 0);
            let number = pools.workers[thread - first].number;
            let none = pools.pods[pod].pool.take(number);
            assert_eq!(none, None, "nothing was queued yet");
        }
        pools
    }

    pub(super) fn worker(&self, thread: ThreadId) -> Worker {
        self.workers[thread - self.first]
    }

    /// The pod of items queued in this cache.
    fn pod_of(&self, cache: usize) -> usize {
        match self.scope {
            Scope::System => 0,
            _ => cache,
        }
    }

    /// Which limit, and which of its front ends, counts for a CPU: the kernel of the table had one
    /// for each CPU, ours is one for the system.
    fn front(&self, cpu: usize) -> (usize, FrontEnd) {
        match self.scope {
            Scope::Ours => (0, cpu),
            _ => (cpu, 0),
        }
    }

    /// An item is queued on a CPU.
    pub(super) fn queue<E: Copy + From<Look>>(
        &mut self,
        cpus: &mut Cpus<E>,
        item: usize,
        cpu: usize,
    ) {
        let (limit, front) = self.front(cpu);
        let mut active = None;
        self.limits[limit].admit(front, item, |_, item| active = Some(item));
        if let Some(item) = active {
            self.activate(cpus, item, cpu);
        }
    }

    /// An active item that was queued on that CPU has ended.
    pub(super) fn leave<E: Copy + From<Look>>(&mut self, cpus: &mut Cpus<E>, cpu: usize) {
        let (limit, front) = self.front(cpu);
        let mut active = None;
        self.limits[limit].leave(front, |front, item| active = Some((front, item)));
        if let Some((front, item)) = active {
            let cpu = if limit == 0 && self.scope == Scope::Ours {
                front
            } else {
                cpu
            };
            self.activate(cpus, item, cpu);
        }
    }

    fn activate<E: Copy + From<Look>>(&mut self, cpus: &mut Cpus<E>, item: usize, cpu: usize) {
        let home = self.pod_of(cpus.cache_of(cpu));
        if self.scope == Scope::Ours {
            return self.event(cpus, home, cpu, |pool| ((), pool.push(item)));
        }
        // One worker for each item that comes.
        let pool = &mut self.pods[home].pool;
        pool.append(item);
        let bring = pool.invite();
        self.bring(cpus, home, bring, cpu);
    }

    /// An event of a pool of ours, with the question whether another one is to help (Y2).
    fn event<E: Copy + From<Look>, R>(
        &mut self,
        cpus: &mut Cpus<E>,
        home: usize,
        cpu: usize,
        f: impl FnOnce(&mut Pool) -> (R, Bring),
    ) -> R {
        let now = cpus.now();
        let mine = self.load(home);
        let loads = || self.loads(home, now);
        let place = self.lending.better_place(home, &mine, loads);
        let pool = &mut self.pods[home].pool;
        pool.hold(place.is_some());
        let (result, bring) = f(pool);
        pool.hold(false);
        let listed = pool.waiting() > 0;
        let mine = self.load(home);
        let loads = || self.loads(home, now);
        let other = place.or_else(|| self.lending.helper(home, &mine, loads));
        self.tell(cpus, home);
        self.bring(cpus, home, bring, cpu);
        if let Some((other, _)) = other.filter(|_| listed) {
            let bring = self.pods[other].pool.invite();
            self.tell(cpus, other);
            self.bring(cpus, other, bring, cpu);
        }
        result
    }

    /// The others learn how a pod is. If something waits there it will be looked at.
    fn tell<E: Copy + From<Look>>(&mut self, cpus: &mut Cpus<E>, pod: usize) {
        let load = self.load(pod);
        let state = &mut self.pods[pod];
        state.notice.tell(&load);
        if state.pool.waits() && !state.watched {
            state.watched = true;
            state.pool.begin_looks();
            cpus.after(LOOK, Look(pod).into());
        }
    }

    /// The look has come.
    pub(super) fn look<E: Copy + From<Look>>(&mut self, cpus: &mut Cpus<E>, Look(pod): Look) {
        self.crowd.look(Instant::from_nanos(cpus.now()));
        let cpu = cpus.cache(pod)[0];
        self.event(cpus, pod, cpu, |pool| ((), pool.look()));
        self.pods[pod].watched = self.pods[pod].pool.waits();
        if self.pods[pod].watched {
            cpus.after(LOOK, Look(pod).into());
        }
    }

    /// What a pod knows of itself.
    fn load(&self, pod: usize) -> Seen {
        Seen {
            submitters: self.pods[pod].notice.submitters(),
            ..self.pods[pod].pool.load()
        }
    }

    /// And of all.
    fn loads(&self, home: usize, now: u64) -> Vec<Seen> {
        let now = Instant::from_nanos(now);
        let load = |(at, pod): (usize, &Pod)| Seen {
            delay: pod.notice.delay(now),
            ..if at == home {
                self.load(home)
            } else {
                pod.notice.load()
            }
        };
        self.pods.iter().enumerate().map(load).collect()
    }

    fn bring<E: Copy + From<Look>>(
        &mut self,
        cpus: &mut Cpus<E>,
        pod: usize,
        bring: Bring,
        waker: usize,
    ) {
        let thread = match bring {
            Bring::Nobody => return,
            Bring::Wake(number) => self.pods[pod].threads[number],
            Bring::Create => self.create(cpus, pod, waker),
        };
        let last = cpus.cpu_of(thread);
        let cache = match self.pods[pod].cache {
            Some(home) => {
                self.repatriations += u64::from(cpus.cache_of(last) != home);
                home
            }
            None if !cpus.is_idle(last) && cpus.rng.f64() < self.follows_waker => {
                cpus.cache_of(waker)
            }
            None => cpus.cache_of(last),
        };
        cpus.wake(thread, cache);
    }

    fn create<E: Copy + From<Look>>(
        &mut self,
        cpus: &mut Cpus<E>,
        pod: usize,
        waker: usize,
    ) -> ThreadId {
        let kind = match self.scope {
            Scope::System | Scope::Cache | Scope::Ours => Kind::Floating,
            Scope::CacheStrict => Kind::Pinned,
        };
        let state = &mut self.pods[pod];
        let number = state.pool.created();
        let cpu = match state.cache {
            Some(cache) => cpus.cache(cache)[number % cpus.cache(cache).len()],
            None => waker,
        };
        let thread = cpus.spawn(kind, cpu);
        assert_eq!(number, state.threads.len(), "no worker ever leaves");
        state.threads.push(thread);
        self.workers.push(Worker { pod, number });
        thread
    }

    /// The worker asks for an item. `waited` is how long it took to come, if it was woken.
    pub(super) fn next<E: Copy + From<Look>>(
        &mut self,
        cpus: &mut Cpus<E>,
        worker: Worker,
        waited: Option<u64>,
    ) -> Option<usize> {
        let Worker { pod, number } = worker;
        if self.scope != Scope::Ours {
            return self.pods[pod].pool.take(number);
        }
        let state = &mut self.pods[pod];
        if let Some(waited) = waited {
            state.delay.note(waited, 10);
            let now = Instant::from_nanos(cpus.now());
            state.notice.came(state.delay.ns(), now);
        }
        let cpu = cpus.cache(pod)[0];
        if self.pods[pod].pool.may_look(number) {
            let found = self.lending.victim(pod, &self.loads(pod, cpus.now()));
            let item = found.and_then(|(from, _)| self.pods[from].pool.lend());
            self.counters
                .note_scan(&self.lending, pod, found.filter(|_| item.is_some()));
            if let Some((item, (from, _))) = item.zip(found) {
                self.tell(cpus, from);
                let adopt = |pool: &mut Pool| (Some(item), pool.adopt(number, item));
                return self.event(cpus, pod, cpu, adopt);
            }
        }
        self.event(cpus, pod, cpu, |pool| pool.next(number))
    }

    /// An item took so long, on a worker of this pod.
    pub(super) fn took(&mut self, pod: usize, ns: u64, now: u64) {
        let ns = ns as f64 * self.misjudged;
        self.pods[pod].pool.took(ns as u64);
        self.crowd.look(Instant::from_nanos(now));
    }

    /// Y7: an issuer submits on that CPU.
    pub(super) fn submits(&self, issuer: usize, cpu: usize) {
        if self.hears {
            self.crowd.note(2 * (issuer + 1), cpu);
        }
    }
}

fn limits(scope: Scope, model: &DmCrypt3900x, machine: &Topology) -> Vec<Limits<usize>> {
    let all = machine.cpus();
    let cpus: Vec<_> = machine
        .nodes()
        .iter()
        .map(|node| {
            let on_node = |cpu: &usize| machine.node_of(*cpu) == Some(*node);
            all.iter().filter(on_node).count()
        })
        .collect();
    if scope == Scope::Ours {
        let mut limits = Limits::new(Share::Lend, model.max_active * all.len(), &cpus);
        for cpu in all {
            limits.add_front(machine.node_of(cpu));
        }
        return vec![limits];
    }
    let limit = |_| {
        let mut limits = Limits::new(Share::PerNode, model.max_active, &[1]);
        limits.add_front(Some(0));
        limits
    };
    all.iter().map(limit).collect()
}
