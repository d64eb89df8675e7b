//! Writers, workers, and the lock that all items need.

use super::model::{Counted, Model};
use crate::cpus::{Events, Ns};
use crate::pool::Pool;
use fastrand::Rng;
use inflight_sync::Arc;
use inflight_topology::{Scope, Topology};
use inflight_workqueue::unstable::{Limit, NrActive, PwqIndex, WakeAction, WorkerId};

/// A kernel's pool runs any number of workers.
const ANY: usize = 4096;

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Outcome {
    /// MiB/s written.
    pub mib_s: f64,
    /// The most items that ran at once.
    pub most_running: usize,
    /// Threads that were made.
    pub threads: usize,
    /// How many slept for the lock, in the mean over the items that counted.
    pub asleep: f64,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A writer queues an item.
    Queue,
    /// The worker has come.
    Arrive(Worker),
    /// Its item needs the lock.
    Lock(Running),
    /// It has done what it needed the lock for.
    Unlock(Running),
}

#[derive(Clone, Copy, Debug)]
struct Worker {
    pod: usize,
    number: WorkerId,
}

/// A worker and the CPU on which its item was queued.
#[derive(Clone, Copy, Debug)]
struct Running {
    worker: Worker,
    cpu: usize,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    item: Running,
    spins: bool,
}

#[derive(Debug)]
struct Pod {
    pool: Pool,
    /// The queue's link to it, by CPU.
    pwqs: Vec<PwqIndex>,
    /// Workers that were brought and have not come yet.
    coming: usize,
}

struct Machine<'a> {
    model: &'a Model,
    counted: Counted,
    max_active: usize,
    rng: Rng,
    now: Ns,
    events: Events<Event>,
    pods: Vec<Pod>,
    /// The pod of each CPU.
    pod_of: Vec<usize>,
    is_locked: bool,
    waiters: Vec<Waiter>,
    /// Items by the CPU on which they were queued: those that wait, and those that run.
    waiting: Vec<usize>,
    running: Vec<usize>,
    seen: Seen,
}

/// What has been counted.
#[derive(Debug, Default)]
struct Seen {
    items: usize,
    most_running: usize,
    threads: usize,
    asleep: usize,
}

/// Runs the load on a queue with this limit.
///
/// # Panics
///
/// If the machine's description cannot be read, or the limit is 0.
#[must_use]
pub fn run(model: &Model, counted: Counted, max_active: usize, seed: u64) -> Outcome {
    assert!(max_active > 0, "nothing could run");
    let topology = Topology::synthetic(&model.machine).expect("a description of a machine");
    let cpus: Vec<_> = topology.cpus().iter().collect();
    let pod_of = |cpu: &usize| {
        topology
            .pod_of(Scope::Cache, *cpu)
            .map_or(0, |pod| pod.id())
    };
    let pod_of: Vec<_> = cpus.iter().map(pod_of).collect();
    let nr_active = Arc::new(NrActive::new(max_active));
    let pod = |pod: usize| {
        let mut pool = Pool::new(ANY);
        let pwqs = match counted {
            Counted::System => {
                let limit = Limit::Shared(nr_active.clone());
                vec![pool.add_pwq(pod as u32, limit); cpus.len()]
            }
            Counted::Cpu => {
                let pwq = |cpu| pool.add_pwq(cpu as u32, Limit::own(max_active));
                (0..cpus.len()).map(pwq).collect()
            }
        };
        Pod {
            pool,
            pwqs,
            coming: 0,
        }
    };
    let mut machine = Machine {
        model,
        counted,
        max_active,
        rng: Rng::with_seed(seed),
        now: 0,
        events: Events::default(),
        pods: (0..topology.pods(Scope::Cache).len()).map(pod).collect(),
        pod_of,
        is_locked: false,
        waiters: Vec::new(),
        waiting: vec![0; cpus.len()],
        running: vec![0; cpus.len()],
        seen: Seen::default(),
    };
    for _ in 0..model.writes {
        let at = machine.rng.u64(..model.device as Ns + 1);
        machine.events.plan(at, Event::Queue);
    }
    machine.run()
}

impl Machine<'_> {
    fn run(mut self) -> Outcome {
        // A fifth more before it counts.
        let (warm_up, items) = (self.model.items / 5, self.model.items);
        let mut began = 0;
        while self.seen.items < warm_up + items {
            let (at, event) = self.events.pop_until(Ns::MAX).expect("a writer goes on");
            self.now = at;
            self.happen(event);
            if began == 0 && self.seen.items == warm_up {
                (began, self.seen.asleep) = (at, 0);
            }
        }
        let seconds = (self.now - began) as f64 / 1e9;
        Outcome {
            mib_s: items as f64 * self.model.kib / 1024.0 / seconds,
            most_running: self.seen.most_running,
            threads: self.seen.threads,
            asleep: self.seen.asleep as f64 / items as f64,
        }
    }

    fn after(&mut self, ns: f64, event: Event) {
        let varied = ns * (1.0 + self.model.jitter * (2.0 * self.rng.f64() - 1.0));
        self.events.plan(self.now + varied as Ns, event);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Queue => {
                // Writers move about: any CPU.
                let cpu = self.rng.usize(..self.pod_of.len());
                let pod = self.pod_of[cpu];
                let Pod { pool, pwqs, .. } = &mut self.pods[pod];
                pool.push(pwqs[cpu], cpu);
                self.waiting[cpu] += 1;
                self.bring(pod);
            }
            Event::Arrive(worker) => {
                self.pods[worker.pod].coming -= 1;
                self.ask(worker);
            }
            Event::Lock(item) if self.is_locked => {
                let spinning = self.waiters.iter().filter(|waiter| waiter.spins).count();
                let spins = spinning < self.model.spinners;
                self.waiters.push(Waiter { item, spins });
            }
            Event::Lock(item) => {
                self.is_locked = true;
                self.after(self.model.hold, Event::Unlock(item));
            }
            Event::Unlock(Running { worker, cpu }) => {
                self.seen.items += 1;
                self.seen.asleep += self.waiters.iter().filter(|waiter| !waiter.spins).count();
                self.hand_over();
                self.running[cpu] -= 1;
                self.after(self.model.device, Event::Queue);
                self.ask(worker);
            }
        }
    }

    /// Any of those who wait has the lock next.
    fn hand_over(&mut self) {
        self.is_locked = !self.waiters.is_empty();
        if self.is_locked {
            let next = self.rng.usize(..self.waiters.len());
            let Waiter { item, spins } = self.waiters.swap_remove(next);
            let wake = if spins { 0.0 } else { self.model.wake };
            self.after(wake + self.model.hold, Event::Unlock(item));
        }
    }

    fn ask(&mut self, worker: Worker) {
        let Worker { pod, number } = worker;
        for (_, to) in self.pods[pod].pool.ask(number) {
            let to = to as usize;
            let granted = &mut self.pods[to];
            granted.pool.grant(granted.pwqs[0]);
            self.bring(to);
        }
        if let Some(cpu) = self.pods[pod].pool.take(number) {
            self.waiting[cpu] -= 1;
            self.running[cpu] += 1;
            let running = self.running.iter().sum();
            self.seen.most_running = self.seen.most_running.max(running);
            self.after(self.model.work, Event::Lock(Running { worker, cpu }));
        } else {
            self.pods[pod].pool.park(number, self.now);
        }
        self.bring(pod);
    }

    /// How many items of the pod wait for nothing but a worker.
    fn may_run(&self, pod: usize) -> usize {
        let cpus = (0..self.pod_of.len()).filter(|cpu| self.pod_of[*cpu] == pod);
        match self.counted {
            Counted::System => {
                let running: usize = self.running.iter().sum();
                let waiting: usize = cpus.map(|cpu| self.waiting[cpu]).sum();
                waiting.min(self.max_active.saturating_sub(running))
            }
            Counted::Cpu => cpus
                .map(|cpu| self.waiting[cpu].min(self.max_active.saturating_sub(self.running[cpu])))
                .sum(),
        }
    }

    /// A worker for each item that may run, as in kernels.
    fn bring(&mut self, pod: usize) {
        let may_run = self.may_run(pod);
        let state = &mut self.pods[pod];
        if may_run <= state.coming {
            return;
        }
        let number = match state.pool.need_worker(true) {
            WakeAction::None => return,
            WakeAction::Wake(number) => number,
            WakeAction::Create(number) => {
                self.seen.threads += 1;
                number
            }
        };
        state.coming += 1;
        self.after(self.model.wake, Event::Arrive(Worker { pod, number }));
    }
}
