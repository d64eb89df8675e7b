//! One CPU in virtual time, driven by the shipped core, and the rules that hold all the while.

use inflight_workqueue::unstable::{
    ASLEEP, BLOCKED, INTENSIVE, Limit, PoolCore, PoolItem, PwqIndex, WakeAction, WorkerId,
    WorkerPhase,
};
use std::collections::VecDeque;

/// An entry by its number.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    number: usize,
    colour: u8,
}

impl PoolItem for Entry {
    fn colour(&self) -> u8 {
        self.colour
    }

    fn set_position(&self, _position: u32) {}
}

/// An item: burn, sleep, burn, ... in ms.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) queue: usize,
    pub(crate) phases: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    pub(crate) max_active: usize,
    pub(crate) intensive: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cpu {
    /// Who has it keeps it until he sleeps or has nothing to run.
    Fifo,
    /// After each ms the next one has it, and who wakes from a sleep comes first.
    Fair,
}

/// How the machine behaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) cpu: Cpu,
    /// A worker counts when it is woken; else, as shipped, when it is back on the CPU.
    pub(crate) counts_at_wakeup: bool,
    /// Items that have burnt so long are found to compute.
    pub(crate) threshold: Option<u32>,
    /// Items do not say that they sleep; once in a ms somebody looks.
    pub(crate) silent: bool,
}

pub(crate) const FIFO: Rules = Rules {
    cpu: Cpu::Fifo,
    counts_at_wakeup: false,
    threshold: None,
    silent: false,
};

pub(crate) const FAIR: Rules = Rules {
    cpu: Cpu::Fair,
    ..FIFO
};

#[derive(Debug, Default)]
struct Thread {
    job: Option<(usize, u8)>,
    /// What is left of the item, the current phase first.
    phases: VecDeque<u32>,
    asleep: bool,
    /// The item has been on the CPU since it started or came back.
    here: bool,
    /// CPU time since then.
    burnt: u32,
    /// Why it does not count as running.
    flags: u8,
}

pub(crate) struct Machine {
    rules: Rules,
    core: PoolCore<Entry>,
    queues: Vec<Queue>,
    scripts: Vec<Script>,
    threads: Vec<Thread>,
    /// Workers that want the CPU, in their order.
    runnable: VecDeque<usize>,
    /// So many at its front have woken from a sleep, and get the CPU from who has it.
    urgent: usize,
    now: u32,
    /// Items begun and not ended, by queue.
    active: Vec<usize>,
    /// The last item of each queue that has started.
    last: Vec<Option<usize>>,
    log: Vec<String>,
}

impl Machine {
    pub(crate) fn new(rules: Rules, queues: &[Queue], scripts: &[Script]) -> Self {
        let mut core = PoolCore::new(1);
        let first = core.workers.create();
        core.workers.arrive(first);
        core.workers.enter_idle(first, 0);
        for (id, queue) in (0..).zip(queues) {
            let index = core.add_pwq(id, Limit::own(queue.max_active), queue.intensive);
            assert_eq!(index, id);
        }
        let mut machine = Self {
            rules,
            core,
            queues: queues.to_vec(),
            scripts: scripts.to_vec(),
            threads: vec![Thread::default()],
            runnable: VecDeque::new(),
            urgent: 0,
            now: 0,
            active: vec![0; queues.len()],
            last: vec![None; queues.len()],
            log: Vec::new(),
        };
        for (number, script) in scripts.iter().enumerate() {
            let index = script.queue as PwqIndex;
            machine.core.push(index, |colour| Entry { number, colour });
            machine.unlock();
        }
        machine
    }

    /// After each event: who is brought for what waits.
    fn unlock(&mut self) {
        match self.core.need_worker(true) {
            WakeAction::None => {}
            WakeAction::Wake(worker) => self.runnable.push_back(worker),
            WakeAction::Create(worker) => {
                assert_eq!(worker, self.threads.len());
                self.threads.push(Thread::default());
                self.runnable.push_back(worker);
            }
        }
    }

    fn flag(&mut self, worker: WorkerId, flag: u8, on: bool) {
        self.core.workers.set_flag(worker, flag, on);
        let flags = &mut self.threads[worker].flags;
        *flags = if on { *flags | flag } else { *flags & !flag };
        self.unlock();
    }

    /// Whether it counts as running.
    fn counts(&self, worker: WorkerId) -> bool {
        let phase = self.core.workers.phase(worker);
        let here = matches!(
            phase,
            WorkerPhase::Active | WorkerPhase::Waking | WorkerPhase::Creating
        );
        here && self.threads[worker].flags == 0
    }

    fn note(&mut self, job: usize, what: &str) {
        self.log.push(format!("{} w{job} {what}", self.now));
    }

    /// Items that count, have the CPU or want it back, and are not this worker's.
    fn burns_besides(&self, me: usize) -> bool {
        let burns = |(n, t): (usize, &Thread)| n != me && t.here && !t.asleep && self.counts(n);
        self.threads.iter().enumerate().any(burns)
    }

    fn starts(&mut self, me: usize, (job, colour): (usize, u8)) {
        let queue = self.scripts[job].queue;
        self.note(job, "starts");
        assert!(!self.burns_besides(me), "{:?}", self.log);
        self.active[queue] += 1;
        assert!(self.active[queue] <= self.queues[queue].max_active);
        assert!(self.last[queue] < Some(job), "in the order they came");
        self.last[queue] = Some(job);
        self.threads[me] = Thread {
            job: Some((job, colour)),
            phases: self.scripts[job].phases.iter().copied().collect(),
            here: true,
            // A pool does not count on a worker that runs an item of such a queue.
            flags: if self.queues[queue].intensive {
                INTENSIVE
            } else {
                0
            },
            ..Thread::default()
        };
    }

    fn ends(&mut self, me: usize, (job, colour): (usize, u8)) {
        let queue = self.scripts[job].queue;
        self.note(job, "ends");
        self.threads[me] = Thread::default();
        self.active[queue] -= 1;
        self.core.ended(queue as PwqIndex, colour, 1, 1);
        self.core.release_held(me, None);
        self.core.workers.clear_flags(me);
    }

    /// What the worker does when it has nothing to run. `false`: it sleeps.
    fn next(&mut self, me: usize) -> bool {
        if self.core.workers.phase(me) != WorkerPhase::Active {
            self.core.workers.arrive(me);
        }
        let mut taken = None;
        if !self.core.workers.are_too_many() {
            self.core.take(me, |_, places| {
                let entry = places.iter().flatten().next();
                taken = entry.map(|entry| (entry.number, entry.colour));
            });
        }
        match taken {
            Some(job) => self.starts(me, job),
            None => self.core.workers.enter_idle(me, 0),
        }
        self.unlock();
        taken.is_some()
    }

    /// The worker is on the CPU: everything that takes no time, until it has to burn. `false` if it
    /// gives the CPU up instead.
    fn arrives(&mut self, me: usize) -> bool {
        if let Some((job, _)) = self.threads[me].job.filter(|_| !self.threads[me].here) {
            if !self.rules.counts_at_wakeup && !self.rules.silent {
                self.flag(me, BLOCKED, false);
            }
            (self.threads[me].here, self.threads[me].burnt) = (true, 0);
            self.note(job, "wakes");
        }
        loop {
            let Some(job) = self.threads[me].job else {
                if !self.next(me) {
                    return false;
                }
                continue;
            };
            match self.threads[me].phases.front() {
                Some(0) => drop(self.threads[me].phases.pop_front()),
                Some(_) if self.is_burning(me) => return true,
                Some(_) => {
                    self.note(job.0, "sleeps");
                    (self.threads[me].asleep, self.threads[me].here) = (true, false);
                    if !self.rules.silent {
                        self.flag(me, BLOCKED, true);
                    }
                    return false;
                }
                None => self.ends(me, job),
            }
        }
    }

    /// Burns and sleeps alternate, a burn first.
    fn is_burning(&self, me: usize) -> bool {
        let (job, _) = self.threads[me].job.expect("it runs something");
        let done = self.scripts[job].phases.len() - self.threads[me].phases.len();
        done % 2 == 0
    }

    /// One ms: of the worker on the CPU, if there is one, and of all who sleep.
    fn tick(&mut self, on_cpu: Option<usize>) {
        self.now += 1;
        if let Some(me) = on_cpu {
            self.threads[me].phases[0] -= 1;
            self.threads[me].burnt += 1;
        }
        for n in 0..self.threads.len() {
            if !self.threads[n].asleep {
                continue;
            }
            self.threads[n].phases[0] -= 1;
            if self.threads[n].phases[0] == 0 {
                self.threads[n].asleep = false;
                match self.rules.cpu {
                    Cpu::Fifo => self.runnable.push_back(n),
                    Cpu::Fair => {
                        self.runnable.insert(self.urgent, n);
                        self.urgent += 1;
                    }
                }
                if self.rules.counts_at_wakeup {
                    self.flag(n, BLOCKED, false);
                }
            }
        }
        self.sample();
    }

    /// What a sampler would see at this moment.
    fn sample(&mut self) {
        for n in 0..self.threads.len() {
            let holds_back = self.counts(n);
            let Some((job, _)) = self.threads[n].job.filter(|_| holds_back) else {
                continue;
            };
            if !self.core.has_waiting() {
                return;
            }
            let (rules, thread) = (self.rules, &self.threads[n]);
            let long = thread.here && rules.threshold.is_some_and(|t| thread.burnt >= t);
            let flag = match thread.asleep && rules.silent {
                true => ASLEEP,
                false if long => INTENSIVE,
                false => continue,
            };
            self.note(job, "is found");
            self.flag(n, flag, true);
        }
    }

    fn next_on_cpu(&mut self) -> Option<usize> {
        self.urgent = self.urgent.saturating_sub(1);
        self.runnable.pop_front()
    }

    pub(crate) fn run(mut self) -> Vec<String> {
        let mut on_cpu: Option<usize> = None;
        loop {
            while on_cpu.is_none_or(|me| !self.arrives(me)) {
                on_cpu = self.next_on_cpu();
                if on_cpu.is_none() {
                    break;
                }
            }
            if let Some(me) = on_cpu.filter(|_| self.urgent > 0) {
                self.runnable.insert(self.urgent, me);
                on_cpu = self.next_on_cpu();
                continue;
            }
            if on_cpu.is_none() {
                let nothing_waits = !self.core.has_waiting();
                assert!(self.rules.silent || nothing_waits, "{:?}", self.log);
                if !self.threads.iter().any(|t| t.asleep) {
                    break;
                }
            }
            self.tick(on_cpu);
            if let Some(me) = on_cpu.filter(|_| self.rules.cpu == Cpu::Fair) {
                // Who has finished a phase says so before he gives the CPU to others.
                if self.threads[me].phases[0] > 0 && !self.runnable.is_empty() {
                    self.runnable.push_back(me);
                    on_cpu = self.next_on_cpu();
                }
            }
        }
        assert!(self.active.iter().all(|active| *active == 0));
        assert_eq!(self.core.listed(), 0);
        self.log
    }
}
