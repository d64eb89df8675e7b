//! CPUs with idle states, and threads that are put on them by the shipped rules.

use super::idle;
use super::model::{Machine, Recent, Side};
use crate::cpus::{Events, Ns, ThreadId};
use fastrand::Rng;
use inflight_topology::wake::{PlaceReason, Placement, Wake, WakeSource};
use inflight_topology::{CpuSet, Topology};
use std::collections::VecDeque;

/// Why something is planned.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event<E> {
    /// What runs on a CPU has done its work.
    Done {
        cpu: usize,
    },
    OfLoad(E),
}

/// The source of a wake.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waker {
    pub(super) source: WakeSource,
    pub(super) cpu: usize,
    /// None if it is an interrupt.
    pub(super) thread: Option<ThreadId>,
}

#[derive(Debug)]
struct Cpu {
    running: Option<ThreadId>,
    queue: VecDeque<ThreadId>,
    idle_since: Ns,
    used: bool,
}

#[derive(Debug)]
struct Thread {
    cpu: usize,
    /// The other CPUs are closed to it.
    bound: bool,
    recent: Option<usize>,
    /// What it pays when it next runs, in us.
    toll: f64,
    migrations: u64,
    cross_node: u64,
    visited: CpuSet,
}

/// What the CPUs have counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moves {
    pub(super) migrations: u64,
    pub(super) cross_node: u64,
    pub(super) visited: usize,
}

/// The machine.
#[derive(Debug)]
pub(super) struct Cpus<E> {
    pub(super) topology: Topology,
    pub(super) rng: Rng,
    machine: Machine,
    side: Side,
    now: Ns,
    events: Events<Event<E>>,
    cpus: Vec<Cpu>,
    threads: Vec<Thread>,
    /// What leaving idle states has taken, in us.
    pub(super) idle_exit: f64,
}

fn ns(us: f64) -> Ns {
    (us * 1000.0).max(0.0) as Ns
}

impl<E> Cpus<E> {
    pub(super) fn new(machine: &Machine, side: Side, seed: u64) -> Self {
        let topology = Topology::synthetic(machine.topology).expect("the models' machines exist");
        let cpu = |_| Cpu {
            running: None,
            queue: VecDeque::new(),
            idle_since: 0,
            used: false,
        };
        Self {
            cpus: topology.cpus().iter().map(cpu).collect(),
            topology,
            rng: Rng::with_seed(seed),
            machine: machine.clone(),
            side,
            now: 0,
            events: Events::default(),
            threads: Vec::new(),
            idle_exit: 0.0,
        }
    }

    /// A thread that sleeps, and has run there last, and before on that other CPU.
    pub(super) fn spawn(&mut self, cpu: usize, bound: bool, recent: Option<usize>) -> ThreadId {
        self.threads.push(Thread {
            cpu,
            bound,
            recent,
            toll: 0.0,
            migrations: 0,
            cross_node: 0,
            visited: CpuSet::from([cpu]),
        });
        self.threads.len() - 1
    }

    pub(super) fn now(&self) -> Ns {
        self.now
    }

    /// What runs there.
    pub(super) fn running(&self, cpu: usize) -> ThreadId {
        self.cpus[cpu].running.expect("something runs there")
    }

    pub(super) fn cpus_used(&self) -> usize {
        self.cpus.iter().filter(|cpu| cpu.used).count()
    }

    /// What was counted of a thread; counted anew from here on.
    pub(super) fn take_moves(&mut self, thread: ThreadId) -> Moves {
        let thread = &mut self.threads[thread];
        let visited = std::mem::replace(&mut thread.visited, CpuSet::from([thread.cpu]));
        Moves {
            migrations: std::mem::take(&mut thread.migrations),
            cross_node: std::mem::take(&mut thread.cross_node),
            visited: visited.len(),
        }
    }

    /// `us`, as it varies.
    pub(super) fn vary(&mut self, us: f64) -> f64 {
        us * (1.0 + self.machine.jitter * (2.0 * self.rng.f64() - 1.0))
    }

    pub(super) fn after(&mut self, us: f64, event: E) {
        self.events.plan(self.now + ns(us), Event::OfLoad(event));
    }

    /// The next event. The clock is moved there.
    pub(super) fn next(&mut self) -> Option<Event<E>> {
        let (at, event) = self.events.pop_until(Ns::MAX)?;
        self.now = at;
        Some(event)
    }

    fn is_idle(&self, cpu: usize) -> bool {
        self.cpus[cpu].running.is_none()
    }

    fn load(&self, cpu: usize) -> usize {
        let cpu = &self.cpus[cpu];
        usize::from(cpu.running.is_some()) + cpu.queue.len()
    }

    /// Wakes a thread that sleeps. The CPU to call [`run`](Self::run) for, if it was idle.
    #[must_use]
    pub(super) fn wake(&mut self, thread: ThreadId, waker: Waker) -> Option<usize> {
        if !self.threads[thread].bound {
            let to = self.place(thread, waker);
            self.note_recent(thread, waker, to);
            self.move_to(thread, to.cpu);
        }
        let cpu = self.threads[thread].cpu;
        self.cpus[cpu].queue.push_back(thread);
        self.is_idle(cpu).then_some(cpu)
    }

    fn place(&self, thread: ThreadId, waker: Waker) -> Placement {
        let Thread { cpu, recent, .. } = self.threads[thread];
        let mut wake = Wake::new(waker.source, waker.cpu, cpu);
        wake = wake.loads(self.load(waker.cpu), self.load(cpu));
        if let Some(recent) = recent {
            wake = wake.recent(recent);
        }
        let idle = |cpu| self.is_idle(cpu);
        wake.place(self.side.rules, &self.topology, idle)
    }

    /// The threads that are bound are not placed, hence nothing is noted with them.
    fn note_recent(&mut self, thread: ThreadId, waker: Waker, to: Placement) {
        let cpu = self.threads[thread].cpu;
        let back = to.reason == PlaceReason::RecentIdle;
        let left = back || self.side.recent == Recent::Woken && to.cpu != cpu;
        if left {
            self.threads[thread].recent = Some(cpu);
        }
        if let (Recent::Waker, Some(from)) = (self.side.recent, waker.thread) {
            self.threads[from].recent = Some(waker.cpu);
        }
    }

    fn move_to(&mut self, thread: ThreadId, to: usize) {
        let state = &mut self.threads[thread];
        let from = std::mem::replace(&mut state.cpu, to);
        if from == to {
            return;
        }
        state.visited.insert(to);
        state.migrations += 1;
        state.toll = self.machine.cold;
        if self.topology.node_of(from) != self.topology.node_of(to) {
            state.cross_node += 1;
            state.toll += self.machine.far;
        }
    }

    /// An interrupt comes to a CPU: how long until it is taken, in us, as an idle CPU has to wake.
    pub(super) fn interrupt(&mut self, cpu: usize) -> f64 {
        if !self.is_idle(cpu) {
            return 0.0;
        }
        let exit = self.leave_idle(cpu);
        self.cpus[cpu].idle_since = self.now + ns(exit);
        exit
    }

    fn leave_idle(&mut self, cpu: usize) -> f64 {
        let idle = self.now.saturating_sub(self.cpus[cpu].idle_since) as f64 / 1000.0;
        let Machine {
            idle: states,
            misjudged,
            ..
        } = &self.machine;
        let exit = idle::exit(states, idle, *misjudged, &mut self.rng);
        self.idle_exit += exit;
        exit
    }

    /// Lets the first of the CPU's queue run, which is to work for so long in us. `None` if nobody
    /// waits there.
    pub(super) fn begin(&mut self, cpu: usize) -> Option<ThreadId> {
        let thread = self.cpus[cpu].queue.pop_front()?;
        let from_idle = self.cpus[cpu].running.is_none();
        let exit = if from_idle { self.leave_idle(cpu) } else { 0.0 };
        let state = &mut self.cpus[cpu];
        state.running = Some(thread);
        state.used = true;
        self.threads[thread].toll += exit + self.machine.wake;
        Some(thread)
    }

    /// The thread that runs there works for so long, in us.
    pub(super) fn work(&mut self, cpu: usize, us: f64) {
        let thread = self.running(cpu);
        let toll = std::mem::take(&mut self.threads[thread].toll);
        let us = self.vary(us) + toll;
        self.events.plan(self.now + ns(us), Event::Done { cpu });
    }

    /// What runs there sleeps, and nobody waits.
    pub(super) fn idle(&mut self, cpu: usize) {
        let now = self.now;
        let cpu = &mut self.cpus[cpu];
        cpu.running = None;
        cpu.idle_since = now;
    }
}
