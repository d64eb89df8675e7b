//! Submitters, workers, and a lock for each pool.

use crate::cpus::{Events, Ns};
use crate::pool::Pool;
use fastrand::Rng;
use inflight_topology::{Scope, Topology};
use inflight_workqueue::unstable::{Limit, WakeAction, WorkerId};
use std::collections::VecDeque;

/// The constants, in ns. The same for every scope and number of CPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// What a submitter does between two items.
    pub prepare: f64,
    /// A queueing call without the lock: it wakes a worker.
    pub call: f64,
    /// From the wake of a thread to its first step.
    pub wake: f64,
    /// What the call takes more if the worker is to run on the caller's CPU.
    pub call_own_cpu: f64,
    /// From one thread to the other on one CPU.
    pub switch: f64,
    /// What the item does.
    pub run: f64,
    /// For so long the lock is held for one event of the pool, its hand-over included.
    pub hold: f64,
    /// Steps vary by so much, up and down.
    pub jitter: f64,
    /// Items of each submitter that count.
    pub items: usize,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            prepare: 500.0,
            call: 1_500.0,
            wake: 6_600.0,
            call_own_cpu: 8_700.0,
            switch: 5_000.0,
            run: 100.0,
            hold: 700.0,
            jitter: 0.2,
            items: 400,
        }
    }
}

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Outcome {
    /// Items a second, of all submitters.
    pub items_per_s: f64,
    /// The median of the time a queueing call takes.
    pub call_p50_ns: Ns,
    /// Its 95th percentile.
    pub call_p95_ns: Ns,
}

/// The purpose of a lock section, and the thread that needs it.
#[derive(Clone, Copy, Debug)]
enum Section {
    /// A submitter queues its item.
    Push(usize),
    /// A worker has come or has run its item, and asks for the next.
    Take(WorkerId),
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The submitter begins a call.
    Begin(usize),
    /// The section at the head of this pod's line ends.
    Unlock(usize),
    /// The submitter's call has ended.
    Called(usize),
    /// The worker of this pod arrives, or its item has run.
    Ask(usize, WorkerId),
    /// The item of this submitter has run.
    Ran(usize),
}

#[derive(Debug)]
struct Pod {
    pool: Pool,
    /// It has one CPU: its worker begins when the submitter sleeps.
    is_narrow: bool,
    /// The section that has the lock, and those that wait for it.
    line: VecDeque<Section>,
}

#[derive(Debug, Default)]
struct Submitter {
    pod: usize,
    began: Ns,
    /// Its call has ended, its item has run: it goes on after both.
    called: bool,
    ran: bool,
    done: usize,
}

struct Machine<'a> {
    model: &'a Model,
    rng: Rng,
    now: Ns,
    events: Events<Event>,
    pods: Vec<Pod>,
    submitters: Vec<Submitter>,
    calls: Vec<Ns>,
    /// When counting began, and how many items it counts.
    counted: Option<(Ns, usize)>,
}

/// Runs the benchmark on so many CPUs of one cache, each a core.
///
/// # Panics
///
/// If there is no CPU, or more than a topology can have.
#[must_use]
pub fn run(model: &Model, cpus: usize, scope: Scope, seed: u64) -> Outcome {
    let topology = Topology::synthetic(&format!("core:{cpus}")).expect("a machine of cores");
    let pods = topology.pods(scope);
    let pod = |pod: &inflight_topology::Pod| {
        let mut pool = Pool::new(pod.cpus().len());
        pool.add_pwq(0, Limit::own(usize::MAX));
        pool.add_idle();
        Pod {
            pool,
            is_narrow: pod.cpus().len() == 1,
            line: VecDeque::new(),
        }
    };
    let submitter = |cpu: usize| Submitter {
        pod: topology.pod_of(scope, cpu).map_or(0, |pod| pod.id()),
        ..Submitter::default()
    };
    let mut machine = Machine {
        model,
        rng: Rng::with_seed(seed),
        now: 0,
        events: Events::default(),
        pods: pods.iter().map(pod).collect(),
        submitters: topology.cpus().iter().map(submitter).collect(),
        calls: Vec::new(),
        counted: None,
    };
    for submitter in 0..cpus {
        let phase = machine.rng.u64(..20_000);
        machine.events.plan(phase, Event::Begin(submitter));
    }
    machine.run(cpus)
}

impl Machine<'_> {
    fn run(mut self, cpus: usize) -> Outcome {
        // A fifth more before it counts.
        let warm_up = cpus * self.model.items / 5;
        let all = warm_up + cpus * self.model.items;
        let mut done = 0;
        while done < all {
            let (at, event) = self.events.pop_until(Ns::MAX).expect("nobody is forgotten");
            self.now = at;
            done += usize::from(self.happen(event));
            if done >= warm_up && self.counted.is_none() {
                self.counted = Some((at, done));
                self.calls.clear();
            }
        }
        let (since, before) = self.counted.expect("it has begun to count");
        self.calls.sort_unstable();
        let percentile = |p: usize| self.calls.get(self.calls.len() * p / 100).copied();
        Outcome {
            items_per_s: (done - before) as f64 * 1e9 / (self.now - since) as f64,
            call_p50_ns: percentile(50).unwrap_or(0),
            call_p95_ns: percentile(95).unwrap_or(0),
        }
    }

    fn after(&mut self, ns: f64, event: Event) {
        let varied = ns * (1.0 + self.model.jitter * (2.0 * self.rng.f64() - 1.0));
        self.events.plan(self.now + varied as Ns, event);
    }

    /// Whether an item has run and its submitter knows.
    fn happen(&mut self, event: Event) -> bool {
        match event {
            Event::Begin(submitter) => {
                let state = &mut self.submitters[submitter];
                state.began = self.now;
                (state.called, state.ran) = (false, false);
                let pod = state.pod;
                self.lock(pod, Section::Push(submitter));
            }
            Event::Unlock(pod) => self.unlock(pod),
            Event::Called(submitter) => {
                self.calls.push(self.now - self.submitters[submitter].began);
                self.submitters[submitter].called = true;
                return self.go_on(submitter);
            }
            Event::Ask(pod, worker) => self.lock(pod, Section::Take(worker)),
            Event::Ran(submitter) => {
                self.submitters[submitter].ran = true;
                return self.go_on(submitter);
            }
        }
        false
    }

    fn go_on(&mut self, submitter: usize) -> bool {
        let state = &mut self.submitters[submitter];
        if !state.called || !state.ran {
            return false;
        }
        state.done += 1;
        self.after(self.model.prepare, Event::Begin(submitter));
        true
    }

    fn lock(&mut self, pod: usize, section: Section) {
        self.pods[pod].line.push_back(section);
        if self.pods[pod].line.len() == 1 {
            self.after(self.model.hold, Event::Unlock(pod));
        }
    }

    /// The first of the line has done what it came for; the next one has the lock.
    fn unlock(&mut self, pod: usize) {
        let is_narrow = self.pods[pod].is_narrow;
        let state = &mut self.pods[pod];
        let section = state.line.pop_front().expect("somebody has the lock");
        let waits = !state.line.is_empty();
        match section {
            Section::Push(submitter) => state.pool.push(0, submitter),
            Section::Take(worker) => {
                assert!(state.pool.ask(worker).is_empty(), "there is no limit");
                match state.pool.take(worker) {
                    Some(submitter) => {
                        let run = self.model.run;
                        let wake = self.wake_time(pod);
                        self.after(run, Event::Ask(pod, worker));
                        self.after(run + wake, Event::Ran(submitter));
                    }
                    None => state.pool.park(worker, self.now),
                }
            }
        }
        // A worker for each item that waits, as the kernel does.
        let action = self.pods[pod].pool.need_worker(true);
        if waits {
            self.after(self.model.hold, Event::Unlock(pod));
        }
        let mut call = 0.0;
        if let Section::Push(submitter) = section {
            let Model { call_own_cpu, .. } = *self.model;
            call = self.model.call + if is_narrow { call_own_cpu } else { 0.0 };
            self.after(call, Event::Called(submitter));
        }
        let worker = match action {
            WakeAction::None => return,
            WakeAction::Wake(worker) | WakeAction::Create(worker) => worker,
        };
        let begins = if is_narrow { call } else { 0.0 };
        self.after(begins + self.wake_time(pod), Event::Ask(pod, worker));
    }

    fn wake_time(&self, pod: usize) -> f64 {
        if self.pods[pod].is_narrow {
            self.model.switch
        } else {
            self.model.wake
        }
    }
}
