//! The pools of a scope: the shipped core, driven in virtual time.

use super::model::DmCrypt3900x;
use super::scenario::Scope;
use crate::cpus::{Cpus, Kind, ThreadId};
use crate::pool::Pool;
use inflight_sync::Arc;
use inflight_sync::time::Instant;
use inflight_topology::{self as topology, Topology};
use inflight_workqueue::unstable::{
    Limit, Load as Seen, LoadHint, NrActive, PwqIndex, StealPolicy, Submitters, WakeAction,
    WakeTarget, WorkerId,
};

/// Between two ticks at a pool in which something waits, in ns: at first, and after a while.
const SOON: u64 = 50_000;
const SLOW: u64 = 1_000_000;

/// How many events of a pool pass after a search for help that found no worker, as in the shipped
/// pool.
const LOOK_LATER: u32 = 8;

/// That pod is to be looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tick(usize);

/// A worker thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Worker {
    pub(super) pod: usize,
    number: WorkerId,
    /// It runs an item of that pod as its guest of that number.
    away: Option<(usize, WorkerId)>,
}

/// One pool.
#[derive(Debug)]
struct Pod {
    pool: Pool,
    /// The queue's link to it, by CPU: under the kernel's scopes there is a limit for each CPU,
    /// under ours one for the system.
    pwqs: Vec<PwqIndex>,
    /// The cache of its workers, if it has one.
    cache: Option<usize>,
    /// Threads by number of the worker.
    threads: Vec<ThreadId>,
    /// What the others see of it.
    hint: Arc<LoadHint>,
    look_later: u32,
    /// How long after the last tick the next one comes, if one is planned.
    watch: Option<u64>,
}

/// What was stolen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steals {
    /// Items that ran in another pod than their own.
    pub(super) taken: u64,
    /// Those of them that left their node.
    pub(super) far: u64,
    /// How often a worker without work looked at the other pods.
    pub(super) looks: u64,
}

/// All pools of a scope, and what stands before them.
#[derive(Debug)]
pub(super) struct Pools {
    scope: Scope,
    pods: Vec<Pod>,
    /// By thread, from the first worker on.
    workers: Vec<Worker>,
    first: ThreadId,
    policy: StealPolicy,
    submitters: Submitters,
    follows_waker: f64,
    hears: bool,
    misjudged: f64,
    pub(super) steals: Steals,
    pub(super) repatriations: u64,
}

impl Pools {
    pub(super) fn new<E: Copy + From<Tick>>(
        scope: Scope,
        model: &DmCrypt3900x,
        machine: &Topology,
        cpus: &mut Cpus<E>,
        first: ThreadId,
    ) -> Self {
        let policy = StealPolicy::new(machine, topology::Scope::Cache, model.costs);
        let caches: Vec<_> = match scope {
            Scope::System => vec![None],
            _ => (0..cpus.caches()).map(Some).collect(),
        };
        let all = machine.cpus().last().map_or(0, |last| last + 1);
        let submitters = Submitters::new(all);
        let nr_active = Arc::new(NrActive::new(model.max_active * all));
        let pod = |(at, cache): (usize, Option<usize>)| {
            let hint = Arc::<LoadHint>::default();
            if let Some(cache) = cache {
                submitters.tell(cpus.cache(cache).iter().copied().collect(), &hint);
            }
            let mut pool = Pool::new(match (scope, cache) {
                (Scope::Ours, Some(pod)) => policy.cpus(pod),
                _ => model.workers,
            });
            let pwqs = if scope == Scope::Ours {
                let limit = Limit::Shared(nr_active.clone());
                vec![pool.add_pwq(at as u32, limit); all]
            } else {
                let max = model.max_active;
                let limit = || Limit::own(max);
                (0..all as u32)
                    .map(|cpu| pool.add_pwq(cpu, limit()))
                    .collect()
            };
            Pod {
                pool,
                pwqs,
                cache,
                threads: Vec::new(),
                hint,
                look_later: 0,
                watch: None,
            }
        };
        let mut pools = Self {
            scope,
            pods: caches.into_iter().enumerate().map(pod).collect(),
            workers: Vec::new(),
            first,
            policy,
            submitters,
            follows_waker: model.follows_waker,
            hears: model.hears,
            misjudged: model.misjudged,
            steals: Steals::default(),
            repatriations: 0,
        };
        for pod in 0..pools.pods.len() {
            let number = pools.pods[pod].pool.add_idle();
            // Without a cache of its own it has last run on the first CPU.
            pools.start(cpus, pod, number, cpus.cache(0)[0]);
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

    /// An item is queued on a CPU.
    pub(super) fn queue<E: Copy + From<Tick>>(
        &mut self,
        cpus: &mut Cpus<E>,
        item: usize,
        cpu: usize,
    ) {
        let own = self.pod_of(cpus.cache_of(cpu));
        let pod = &mut self.pods[own];
        pod.pool.push(pod.pwqs[cpu], item);
        if self.scope == Scope::Ours {
            return self.unlock(cpus, own, cpu, false);
        }
        // One worker for each item that comes.
        let action = self.pods[own].pool.need_worker(true);
        self.bring(cpus, own, action, cpu);
    }

    /// An event of a pool of ours has ended: who is brought for what waits there, if not a worker
    /// of another pod.
    fn unlock<E: Copy + From<Tick>>(
        &mut self,
        cpus: &mut Cpus<E>,
        own: usize,
        cpu: usize,
        now: bool,
    ) {
        let mine = self.load(own);
        let pod = &mut self.pods[own];
        let seeks =
            pod.look_later == 0 && pod.pool.has_waiting() && self.policy.seeks_place(own, &mine);
        let action = match seeks {
            true => WakeAction::None,
            false => pod.pool.need_worker(now),
        };
        self.tell(cpus, own, action);
        self.bring(cpus, own, action, cpu);
        let mine = self.load(own);
        let pod = &mut self.pods[own];
        pod.look_later = pod.look_later.saturating_sub(1);
        let overloaded = mine.waiting >= self.policy.needs_help_from(own, &mine);
        if overloaded && pod.look_later == 0 {
            self.seek_help(cpus, own, cpu, now);
        }
    }

    /// A worker of the pod that suits best is brought for what waits in this one.
    fn seek_help<E: Copy + From<Tick>>(
        &mut self,
        cpus: &mut Cpus<E>,
        own: usize,
        cpu: usize,
        now: bool,
    ) {
        self.pods[own].look_later = LOOK_LATER;
        let loads = self.loads(own);
        let (pod, action) = match self.policy.wake_for(own, &loads) {
            WakeTarget::Nobody => return,
            WakeTarget::Other(other) => (other, self.pods[other].pool.invite()),
            WakeTarget::Own => (own, self.pods[own].pool.need_worker(now)),
        };
        self.pods[own].look_later = 0;
        self.tell(cpus, pod, action);
        self.bring(cpus, pod, action, cpu);
    }

    /// The others learn how a pod is. If something waits there for those that run it will be looked
    /// at.
    fn tell<E: Copy + From<Tick>>(&mut self, cpus: &mut Cpus<E>, pod: usize, action: WakeAction) {
        let load = self.load(pod);
        let state = &mut self.pods[pod];
        state.hint.tell(&load);
        if action == WakeAction::None && state.pool.has_waiting() && state.watch.is_none() {
            state.watch = Some(SOON);
            cpus.after(SOON, Tick(pod).into());
        }
    }

    /// The tick has come.
    pub(super) fn tick<E: Copy + From<Tick>>(&mut self, cpus: &mut Cpus<E>, Tick(pod): Tick) {
        self.submitters.tick(Instant::from_nanos(cpus.now()));
        let state = &mut self.pods[pod];
        let waits = state.pool.has_waiting();
        state.watch = state
            .watch
            .filter(|_| waits)
            .map(|last| (2 * last).min(SLOW));
        if let Some(next) = state.watch {
            cpus.after(next, Tick(pod).into());
            let cpu = cpus.cache(pod)[0];
            self.unlock(cpus, pod, cpu, true);
        }
    }

    /// What a pod knows of itself.
    fn load(&self, pod: usize) -> Seen {
        Seen {
            submitters: self.pods[pod].hint.submitters(),
            ..self.pods[pod].pool.load()
        }
    }

    /// And of all.
    fn loads(&self, own: usize) -> Vec<Seen> {
        let load = |(at, pod): (usize, &Pod)| {
            if at == own {
                self.load(own)
            } else {
                pod.hint.load()
            }
        };
        self.pods.iter().enumerate().map(load).collect()
    }

    fn bring<E: Copy + From<Tick>>(
        &mut self,
        cpus: &mut Cpus<E>,
        pod: usize,
        action: WakeAction,
        waker: usize,
    ) {
        let thread = match action {
            WakeAction::None => return,
            WakeAction::Wake(number) => self.pods[pod].threads[number],
            WakeAction::Create(number) => self.start(cpus, pod, number, waker),
        };
        let last = cpus.cpu_of(thread);
        let cache = match self.pods[pod].cache {
            Some(cache) => {
                self.repatriations += u64::from(cpus.cache_of(last) != cache);
                cache
            }
            None if !cpus.is_idle(last) && cpus.rng.f64() < self.follows_waker => {
                cpus.cache_of(waker)
            }
            None => cpus.cache_of(last),
        };
        cpus.wake(thread, cache);
    }

    /// The thread of a new worker.
    fn start<E: Copy + From<Tick>>(
        &mut self,
        cpus: &mut Cpus<E>,
        pod: usize,
        number: WorkerId,
        waker: usize,
    ) -> ThreadId {
        let kind = match self.scope {
            Scope::System | Scope::Cache | Scope::Ours => Kind::Floating,
            Scope::CacheStrict => Kind::Pinned,
        };
        let state = &mut self.pods[pod];
        let cpu = match state.cache {
            Some(cache) => cpus.cache(cache)[state.threads.len() % cpus.cache(cache).len()],
            None => waker,
        };
        let thread = cpus.spawn(kind, cpu);
        // Numbers of guests are used again by guests and by workers.
        state
            .threads
            .resize(state.threads.len().max(number + 1), ThreadId::MAX);
        state.threads[number] = thread;
        self.workers.push(Worker {
            pod,
            number,
            away: None,
        });
        thread
    }

    /// The worker asks for an item.
    pub(super) fn next<E: Copy + From<Tick>>(
        &mut self,
        cpus: &mut Cpus<E>,
        thread: ThreadId,
    ) -> Option<usize> {
        let Worker { pod, number, away } = self.worker(thread);
        let cpu = cpus.cache(self.pods[pod].cache.unwrap_or(0))[0];
        if let Some((from, guest)) = away {
            self.workers[thread - self.first].away = None;
            self.end(cpus, from, guest);
            self.pods[from].pool.detach(guest);
            self.unlock(cpus, from, cpu, false);
        }
        self.end(cpus, pod, number);
        let ours = self.scope == Scope::Ours;
        let own = self.pods[pod].pool.take(number);
        let item = own.or_else(|| ours.then(|| self.steal(cpus, thread))?);
        if item.is_none() {
            self.pods[pod].pool.park(number, cpus.now());
        }
        if ours {
            self.unlock(cpus, pod, cpu, false);
        }
        item
    }

    /// What the worker ran, if anything, has ended.
    fn end<E: Copy + From<Tick>>(&mut self, cpus: &mut Cpus<E>, pod: usize, number: WorkerId) {
        for (_, to) in self.pods[pod].pool.ask(number) {
            let to = to as usize;
            let granted = &mut self.pods[to];
            granted.pool.grant(granted.pwqs[0]);
            if to != pod {
                self.unlock(cpus, to, cpus.cache(to)[0], false);
            }
        }
    }

    /// A worker that has found nothing takes an item of another pod.
    fn steal<E: Copy + From<Tick>>(
        &mut self,
        cpus: &mut Cpus<E>,
        thread: ThreadId,
    ) -> Option<usize> {
        let Worker { pod, .. } = self.worker(thread);
        self.steals.looks += 1;
        let loads = self.loads(pod);
        let from = self.policy.victim(pod, &loads)?;
        let (guest, item) = self.pods[from].pool.steal()?;
        self.steals.taken += 1;
        self.steals.far += u64::from(!self.policy.is_near(pod, from));
        self.workers[thread - self.first].away = Some((from, guest));
        let cpu = cpus.cache(pod)[0];
        self.unlock(cpus, from, cpu, false);
        Some(item)
    }

    /// An item took so long, on that thread.
    pub(super) fn took(&mut self, thread: ThreadId, ns: u64, now: u64) {
        let ns = ns as f64 * self.misjudged;
        let Worker { pod, away, .. } = self.worker(thread);
        // As shipped, a guest measures nothing.
        if away.is_none() {
            self.pods[pod].pool.note_service(ns as u64);
        }
        self.submitters.tick(Instant::from_nanos(now));
    }

    /// An issuer submits on that CPU.
    pub(super) fn submits(&self, issuer: usize, cpu: usize) {
        if self.hears {
            self.submitters.note(2 * (issuer + 1), cpu);
        }
    }
}
