//! The pools of a scope: the shipped core, driven in virtual time.

use super::model::DmCrypt3900x;
use super::scenario::Scope;
use crate::cpus::{Cpus, Kind, ThreadId};
use inflight_topology::{self as topology, Topology};
use inflight_workqueue::sim::{
    Bring, FrontEnd, Lately, Lending, LendingCounters, Limits, Load as Seen, Pool, Share, Wake,
};

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
    service: Lately,
    delay: Lately,
    /// Issuers whose last item was queued from here.
    submitters: usize,
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
    limits: Vec<Limits<usize>>,
    follows_waker: f64,
    misjudged: f64,
    pub(super) counters: LendingCounters,
    pub(super) repatriations: u64,
}

impl Pools {
    pub(super) fn new<E: Copy>(
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
        let pod = |cache: Option<usize>| Pod {
            pool: Pool::new(match (scope, cache) {
                (Scope::Ours, Some(pod)) => lending.cap(pod),
                _ => model.workers,
            }),
            cache,
            threads: Vec::new(),
            service: Lately::guess(model.first_guess),
            delay: Lately::default(),
            submitters: 0,
        };
        let mut pools = Self {
            scope,
            pods: caches.into_iter().map(pod).collect(),
            workers: Vec::new(),
            first,
            lending,
            limits: limits(scope, model, machine),
            follows_waker: model.follows_waker,
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
    pub(super) fn queue<E: Copy>(&mut self, cpus: &mut Cpus<E>, item: usize, cpu: usize) {
        let (limit, front) = self.front(cpu);
        let mut active = None;
        self.limits[limit].admit(front, item, |_, item| active = Some(item));
        if let Some(item) = active {
            self.activate(cpus, item, cpu);
        }
    }

    /// An active item that was queued on that CPU has ended.
    pub(super) fn leave<E: Copy>(&mut self, cpus: &mut Cpus<E>, cpu: usize) {
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

    fn activate<E: Copy>(&mut self, cpus: &mut Cpus<E>, item: usize, cpu: usize) {
        let home = self.pod_of(cpus.cache_of(cpu));
        self.pods[home].pool.append(item);
        let pod = match self.whom_to_wake(home) {
            Wake::Home => home,
            Wake::Other(pod, _) => pod,
            Wake::Nobody => return,
        };
        let bring = self.pods[pod].pool.invite();
        self.bring(cpus, pod, bring, cpu);
    }

    fn whom_to_wake(&mut self, home: usize) -> Wake {
        if self.scope != Scope::Ours {
            return Wake::Home; // One worker for each item that comes.
        }
        let wake = self.lending.on_enqueue(home, &self.seen());
        self.counters.note_wake(wake);
        wake
    }

    fn seen(&self) -> Vec<Seen> {
        let seen = |pod: &Pod| Seen {
            waiting: pod.pool.waiting(),
            awake: pod.pool.awake(),
            service: (pod.service.ns() as f64 * self.misjudged) as u64,
            delay: pod.delay.ns(),
            submitters: pod.submitters,
        };
        self.pods.iter().map(seen).collect()
    }

    fn bring<E: Copy>(&mut self, cpus: &mut Cpus<E>, pod: usize, bring: Bring, waker: usize) {
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

    fn create<E: Copy>(&mut self, cpus: &mut Cpus<E>, pod: usize, waker: usize) -> ThreadId {
        let kind = match self.scope {
            Scope::System | Scope::Cache => Kind::Floating,
            Scope::CacheStrict | Scope::Ours => Kind::Pinned,
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
    pub(super) fn next(&mut self, worker: Worker, waited: Option<u64>) -> Option<usize> {
        let Worker { pod, number } = worker;
        if let Some(waited) = waited {
            self.pods[pod].delay.note(waited, 10);
        }
        if self.scope == Scope::Ours && self.pods[pod].pool.waiting() == 0 {
            let found = self.lending.victim(pod, &self.seen());
            self.counters.note_scan(&self.lending, pod, found);
            if let Some((from, _)) = found {
                let item = self.pods[from].pool.lend().expect("it has one");
                let brought = self.pods[pod].pool.adopt(number, item);
                debug_assert_eq!(brought, Bring::Nobody, "its own list is empty");
                return Some(item);
            }
        }
        self.pods[pod].pool.take(number)
    }

    /// An item took so long, on a worker of this pod.
    pub(super) fn took(&mut self, pod: usize, ns: u64) {
        self.pods[pod].service.note(ns, 20);
    }

    /// An issuer has begun to queue in this cache; it did in that one before.
    pub(super) fn submits(&mut self, before: Option<usize>, cache: usize) {
        if let Some(before) = before {
            let pod = self.pod_of(before);
            self.pods[pod].submitters -= 1;
        }
        let pod = self.pod_of(cache);
        self.pods[pod].submitters += 1;
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
