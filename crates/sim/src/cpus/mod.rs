//! CPUs and caches in virtual time, under a scheduler that is busy where it can see.
//!
//! Threads run segments of work. A segment runs at full speed if the sibling of its CPU is idle,
//! else slower; a core has at most two threads. Within a last-level cache the scheduler wastes
//! nothing: whoever is woken there gets an idle core, else an idle sibling, else waits in the
//! cache's queue; a CPU that goes idle takes the head of it. Across caches it looks now and then
//! only ([`Scheduler`]).
//!
//! What the threads do is a [`Load`]; which thread is woken and in which cache it starts is the
//! load's business too.

mod by_id;
mod queue;
mod schedule;

use by_id::ById;
use fastrand::Rng;
use inflight_topology::{Scope, Topology};
pub(crate) use queue::Events;
pub use schedule::run_until;
use std::collections::VecDeque;

/// Nanoseconds of virtual time since the beginning.
pub type Ns = u64;

/// Names a thread.
pub type ThreadId = usize;

/// The constants of CPUs, caches and scheduler. All times in ns.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheduler {
    /// How much longer a segment takes beside a busy sibling.
    pub sibling_slowdown: f64,
    /// What a thread pays to be switched in after it has slept.
    pub switch: f64,
    /// Until it has run so long it does not yield to others of its cache.
    pub slice: Ns,
    /// How often an idle CPU looks for threads that wait in other caches.
    pub tick: Ns,
    /// The chance that a CPU looks there when it goes idle.
    pub look_when_idle: f64,
    /// Only threads that have waited so long are pulled into another cache.
    pub pull_after: Ns,
    /// How often a second a thread that may drift is moved to a random cache.
    pub drift_per_s: f64,
    /// What 32 KiB cost that another cache of the node holds.
    pub cold: f64,
    /// How many times that is when it is in another node.
    pub far: f64,
    /// Segments vary by so much, up and down.
    pub jitter: f64,
}

/// Where a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asleep,
    /// In the queue of a cache, since then.
    Waiting,
    Running,
}

/// What kind of thread it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Moved to random caches from time to time; pays when it changes cache.
    Drifter,
    /// May be pulled into another cache when it has waited for long.
    Floating,
    /// Stays in its cache.
    Pinned,
}

#[derive(Clone, Debug)]
struct Thread {
    kind: Kind,
    state: State,
    /// Where it ran last, or runs.
    cpu: usize,
    woken: Ns,
    /// Has not run since it was woken.
    fresh: bool,
    /// What it has to pay for its last move.
    moved: f64,
}

#[derive(Clone, Debug)]
struct Cpu {
    cache: usize,
    sibling: Option<usize>,
    running: Option<ThreadId>,
    /// What is left of the segment, at full speed.
    left: f64,
    speed: f64,
    /// When `left` and `busy` were true.
    as_of: Ns,
    /// Which of the planned ends is the real one.
    version: u64,
    slice_began: Ns,
    busy: f64,
}

/// What happens.
#[derive(Clone, Copy, Debug)]
enum Event<E> {
    SegmentEnds { cpu: usize, version: u64 },
    Tick { cpu: usize },
    Drift { thread: ThreadId },
    OfLoad(E),
}

/// What threads do.
pub trait Load: Sized {
    /// An event of its own: a device has finished something.
    type Event: Copy;

    /// The thread is on its CPU and has nothing to do: the length of its next segment in ns at full
    /// speed, or `None` to sleep.
    fn next(&mut self, cpus: &mut Cpus<Self::Event>, thread: ThreadId, cpu: usize) -> Option<f64>;

    /// The segment has ended.
    fn done(&mut self, cpus: &mut Cpus<Self::Event>, thread: ThreadId, cpu: usize);

    /// An event planned by [`Cpus::after`].
    fn event(&mut self, cpus: &mut Cpus<Self::Event>, event: Self::Event);
}

/// The machine.
#[derive(Debug)]
pub struct Cpus<E> {
    scheduler: Scheduler,
    now: Ns,
    /// Randomness of machine and load: one seed, one run.
    pub rng: Rng,
    events: Events<Event<E>>,
    cpus: ById<Cpu>,
    /// CPUs by cache.
    caches: Vec<Vec<usize>>,
    nodes: Vec<Option<usize>>,
    queues: Vec<VecDeque<ThreadId>>,
    threads: Vec<Thread>,
    /// Threads that were woken by what just happened, and in which cache.
    wakes: VecDeque<(ThreadId, usize)>,
    counters: Counters,
}

/// What the scheduler did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Threads pulled from one cache into another.
    pub pulls: u64,
    /// Drifters that have changed cache.
    pub moves: u64,
    /// Threads put on a CPU.
    pub switches: u64,
}

impl<E: Copy> Cpus<E> {
    /// The caches and cores of this topology, idle.
    ///
    /// # Panics
    ///
    /// If a core has more than two threads.
    #[must_use]
    pub fn new(topology: &Topology, scheduler: Scheduler, seed: u64) -> Self {
        let pods = topology.pods(Scope::Cache);
        let caches: Vec<Vec<usize>> = pods.iter().map(|p| p.cpus().iter().collect()).collect();
        let cpu = |cpu: usize| {
            let core = topology
                .pod_of(Scope::Smt, cpu)
                .expect("every CPU has a core");
            assert!(core.cpus().len() <= 2, "a core has at most two threads");
            Cpu {
                cache: topology.pod_of(Scope::Cache, cpu).expect("as above").id(),
                sibling: core.cpus().iter().find(|other| *other != cpu),
                running: None,
                left: 0.0,
                speed: 1.0,
                as_of: 0,
                version: 0,
                slice_began: 0,
                busy: 0.0,
            }
        };
        let cpus = topology.cpus().iter().map(|id| (id, cpu(id))).collect();
        let mut machine = Self {
            scheduler,
            now: 0,
            rng: Rng::with_seed(seed),
            events: Events::default(),
            queues: vec![VecDeque::new(); caches.len()],
            nodes: pods.iter().map(|pod| pod.node()).collect(),
            caches,
            cpus,
            threads: Vec::new(),
            wakes: VecDeque::new(),
            counters: Counters::default(),
        };
        for cpu in topology.cpus() {
            let phase = machine.rng.u64(..machine.scheduler.tick);
            machine.events.plan(phase, Event::Tick { cpu });
        }
        machine
    }

    /// A new thread, asleep, that has last run there.
    pub fn spawn(&mut self, kind: Kind, cpu: usize) -> ThreadId {
        self.threads.push(Thread {
            kind,
            state: State::Asleep,
            cpu,
            woken: 0,
            fresh: true,
            moved: 0.0,
        });
        let thread = self.threads.len() - 1;
        if kind == Kind::Drifter && self.scheduler.drift_per_s > 0.0 {
            let at = self.exponential(1e9 / self.scheduler.drift_per_s);
            self.events.plan(self.now + at, Event::Drift { thread });
        }
        thread
    }

    /// Wakes a thread in this cache, unless it is awake.
    pub fn wake(&mut self, thread: ThreadId, cache: usize) {
        self.wakes.push_back((thread, cache));
    }

    /// Something of the load's happens so much later.
    pub fn after(&mut self, ns: Ns, event: E) {
        self.events.plan(self.now + ns, Event::OfLoad(event));
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Ns {
        self.now
    }

    /// Where the thread runs or ran last.
    #[must_use]
    pub fn cpu_of(&self, thread: ThreadId) -> usize {
        self.threads[thread].cpu
    }

    /// Whether nothing runs on this CPU.
    #[must_use]
    pub fn is_idle(&self, cpu: usize) -> bool {
        self.cpus[cpu].running.is_none()
    }

    /// The cache of a CPU.
    #[must_use]
    pub fn cache_of(&self, cpu: usize) -> usize {
        self.cpus[cpu].cache
    }

    /// The CPUs of a cache.
    #[must_use]
    pub fn cache(&self, cache: usize) -> &[usize] {
        &self.caches[cache]
    }

    /// How many caches there are.
    #[must_use]
    pub fn caches(&self) -> usize {
        self.caches.len()
    }

    /// What 32 KiB cost in one cache that lie in another.
    #[must_use]
    pub fn transfer(&self, from: usize, to: usize) -> f64 {
        let Scheduler { cold, far, .. } = self.scheduler;
        match from == to {
            true => 0.0,
            false if self.nodes[from] == self.nodes[to] => cold,
            false => cold * far,
        }
    }

    /// How long the thread waited for a CPU, if it has not run since it was woken; asked once.
    pub fn wait_of(&mut self, thread: ThreadId) -> Option<Ns> {
        let thread = &mut self.threads[thread];
        std::mem::take(&mut thread.fresh).then_some(self.now - thread.woken)
    }

    /// What the thread has to pay for having moved; asked once.
    pub fn toll_of(&mut self, thread: ThreadId) -> f64 {
        std::mem::take(&mut self.threads[thread].moved)
    }

    /// `ns`, as it varies.
    pub fn vary(&mut self, ns: f64) -> f64 {
        ns * (1.0 + self.scheduler.jitter * (2.0 * self.rng.f64() - 1.0))
    }

    /// What a thread pays that has slept.
    #[must_use]
    pub fn switch(&self) -> f64 {
        self.scheduler.switch
    }

    fn exponential(&mut self, mean: f64) -> Ns {
        (-mean * (1.0 - self.rng.f64()).ln()) as Ns
    }

    /// What the scheduler did since the last call, and for how much of the time since then, in ns,
    /// the CPUs of each cache were busy, all together.
    pub fn take_counters(&mut self) -> (Counters, Vec<f64>) {
        let mut busy = vec![0.0; self.caches()];
        for (cache, busy) in busy.iter_mut().enumerate() {
            for at in 0..self.caches[cache].len() {
                let cpu = self.caches[cache][at];
                self.settle(cpu);
                *busy += std::mem::take(&mut self.cpus[cpu].busy);
            }
        }
        (std::mem::take(&mut self.counters), busy)
    }
}
