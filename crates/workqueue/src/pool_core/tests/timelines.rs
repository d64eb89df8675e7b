//! Whole scenarios on the core, in virtual time: one CPU, whose workers block, wake, end and are
//! looked at by the ms. Batches have one entry, as where nobody looks after a pool.
//!
//! The numbers are those of the kernel's documented execution scenarios. Every run, whatever it is
//! about, is held to the four rules that do not depend on the scheduler: an item does not start
//! while another one that counts burns; the CPU does not idle while an item is ready; no queue has
//! more items begun than it may; items of a queue start in the order in which they came.

mod page;

use super::*;

/// An item: burn, sleep, burn, ... in ms.
#[derive(Clone, Debug)]
struct Script {
    queue: usize,
    phases: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Queue {
    max_active: usize,
    intensive: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cpu {
    /// Who has it keeps it until he sleeps or has nothing to run.
    Fifo,
    /// After each ms the next one has it, and who wakes from a sleep comes first.
    Fair,
}

/// How the machine behaves.
#[derive(Clone, Copy, Debug)]
struct Rules {
    cpu: Cpu,
    /// A worker counts when it is woken; else, as shipped, when it is back on the CPU.
    counts_at_wakeup: bool,
    /// Items that have burnt so long are found to compute.
    threshold: Option<u32>,
    /// Items do not say that they sleep; once in a ms somebody looks.
    silent: bool,
}

const FIFO: Rules = Rules {
    cpu: Cpu::Fifo,
    counts_at_wakeup: false,
    threshold: None,
    silent: false,
};

const FAIR: Rules = Rules {
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
}

struct Machine {
    rules: Rules,
    core: PoolCore<Entry<'static>>,
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
    fn new(rules: Rules, queues: &[Queue], scripts: &[Script]) -> Self {
        let mut core = PoolCore::new(1);
        let first = core.workers.create();
        core.workers.arrive(first);
        core.workers.park(first, 0);
        for (id, queue) in (0..).zip(queues) {
            let (max, used) = (queue.max_active, 0);
            let index = core.add_pwq(id, Limit::Own { max, used }, queue.intensive);
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
            machine.core.push(index, Entry { number, ..PLAIN });
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
        self.unlock();
    }

    fn note(&mut self, job: usize, what: &str) {
        self.log.push(format!("{} w{job} {what}", self.now));
    }

    /// Items that count, have the CPU or want it back, and are not this worker's.
    fn burns_besides(&self, me: usize) -> bool {
        let burns = |(n, t): (usize, &Thread)| {
            n != me && t.here && !t.asleep && self.core.workers.get(n).is_running()
        };
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
            let sink = |_, entry: Entry<'_>| taken = Some((entry.number, entry.colour));
            self.core.take(me, sink);
        }
        match taken {
            Some(job) => self.starts(me, job),
            None => self.core.workers.park(me, 0),
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
        self.look();
    }

    /// What a sampler would see at this moment.
    fn look(&mut self) {
        for n in 0..self.threads.len() {
            let holds_back = self.core.workers.get(n).is_running();
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

    fn run(mut self) -> Vec<String> {
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
        for index in 0..self.queues.len() as PwqIndex {
            let pwq = self.core.pwq(index);
            assert!(pwq.is_idle() && matches!(pwq.limit, Limit::Own { used: 0, .. }));
        }
        self.log
    }
}

/// A queue for each limit, the intensive ones marked.
const fn queue(max_active: usize) -> Queue {
    Queue {
        max_active,
        intensive: false,
    }
}

const fn intensive(max_active: usize) -> Queue {
    Queue {
        max_active,
        intensive: true,
    }
}

fn script(queue: usize, phases: &[u32]) -> Script {
    Script {
        queue,
        phases: phases.to_vec(),
    }
}

/// w0 burns 5, sleeps 10, burns 5; w1 and w2 burn 5 and sleep 10.
fn w0() -> Script {
    script(0, &[5, 10, 5])
}

fn w(queue: usize) -> Script {
    script(queue, &[5, 10])
}

fn run(rules: Rules, queues: &[Queue], scripts: &[Script]) -> String {
    Machine::new(rules, queues, scripts).run().join(", ")
}

/// When the item did this, and that.
fn span(log: &str, item: usize, from: &str, to: &str) -> (u32, u32) {
    let when = |what: &str| {
        let wanted = format!(" w{item} {what}");
        let mut hits = log.split(", ").filter_map(|e| e.strip_suffix(&wanted));
        hits.next().unwrap().parse().unwrap()
    };
    (when(from), when(to))
}

const WITH_TWO_INTENSIVE: [Queue; 3] = [queue(1024), intensive(1024), intensive(1024)];

const ORIGINAL: &str = "0 w0 starts, 5 w0 sleeps, 15 w0 wakes, 20 w0 ends, \
    20 w1 starts, 25 w1 sleeps, 35 w1 wakes, 35 w1 ends, \
    35 w2 starts, 40 w2 sleeps, 50 w2 wakes, 50 w2 ends";

#[test]
fn column_1_a_workqueue_with_one_worker() {
    for rules in [FIFO, FAIR] {
        let log = run(rules, &[queue(1)], &[w0(), w(0), w(0)]);
        assert_eq!(log, ORIGINAL);
    }
}

#[test]
fn column_2_room_for_three() {
    for (rules, max_active) in [(FIFO, 3), (FAIR, 3), (FIFO, 4), (FAIR, 1024)] {
        let log = run(rules, &[queue(max_active)], &[w0(), w(0), w(0)]);
        assert_eq!(
            log,
            "0 w0 starts, 5 w0 sleeps, 5 w1 starts, 10 w1 sleeps, 10 w2 starts, \
             15 w2 sleeps, 15 w0 wakes, 20 w0 ends, 20 w1 wakes, 20 w1 ends, \
             25 w2 wakes, 25 w2 ends"
        );
    }
}

/// At 20 two things coincide: w0's end lets w2 start, and w1 wakes. w1 ends at once, as published,
/// if who wakes comes first, or counts from its wakeup on: then w0's worker parks. Where the CPU is
/// first come, first served, and who is not on it does not count, w0's worker goes on with w2, and
/// w1 ends at 25.
#[test]
fn column_3_room_for_two() {
    let scripts = [w0(), w(0), w(0)];
    let log = run(FAIR, &[queue(2)], &scripts);
    assert_eq!(
        log,
        "0 w0 starts, 5 w0 sleeps, 5 w1 starts, 10 w1 sleeps, 15 w0 wakes, 20 w0 ends, \
         20 w2 starts, 20 w1 wakes, 20 w1 ends, 25 w2 sleeps, 35 w2 wakes, 35 w2 ends"
    );
    let at_wakeup = Rules {
        counts_at_wakeup: true,
        ..FIFO
    };
    let log = run(at_wakeup, &[queue(2)], &scripts);
    assert_eq!(
        log,
        "0 w0 starts, 5 w0 sleeps, 5 w1 starts, 10 w1 sleeps, 15 w0 wakes, 20 w0 ends, \
         20 w1 wakes, 20 w1 ends, 20 w2 starts, 25 w2 sleeps, 35 w2 wakes, 35 w2 ends"
    );
    let log = run(FIFO, &[queue(2)], &scripts);
    assert_eq!(
        log,
        "0 w0 starts, 5 w0 sleeps, 5 w1 starts, 10 w1 sleeps, 15 w0 wakes, 20 w0 ends, \
         20 w2 starts, 25 w2 sleeps, 25 w1 wakes, 25 w1 ends, 35 w2 wakes, 35 w2 ends"
    );
}

/// w1 and w2 are of a queue for items that compute. At 5 both leave the pool's control: on a CPU
/// that is first come, first served their burns follow each other; on a fair one they share it.
/// They could not start at 0: a running w0 delays even them.
#[test]
fn column_4_intensive_items() {
    let queues = [queue(1024), intensive(1024)];
    let log = run(FIFO, &queues, &[w0(), w(1), w(1)]);
    assert_eq!(
        log,
        "0 w0 starts, 5 w0 sleeps, 5 w1 starts, 10 w1 sleeps, 10 w2 starts, 15 w2 sleeps, \
         15 w0 wakes, 20 w0 ends, 20 w1 wakes, 20 w1 ends, 25 w2 wakes, 25 w2 ends"
    );
    let log = run(FAIR, &queues, &[w0(), w(1), w(1)]);
    assert_eq!(
        log,
        "0 w0 starts, 5 w0 sleeps, 5 w1 starts, 6 w2 starts, 14 w1 sleeps, 15 w2 sleeps, \
         15 w0 wakes, 20 w0 ends, 24 w1 wakes, 24 w1 ends, 25 w2 wakes, 25 w2 ends"
    );
}

#[test]
fn intensive_items_with_one_slot() {
    for rules in [FIFO, FAIR] {
        let log = run(rules, &[queue(1024), intensive(1)], &[w0(), w(1), w(1)]);
        assert_eq!(span(&log, 1, "starts", "sleeps"), (5, 10));
        assert_eq!(span(&log, 1, "starts", "ends"), (5, 20));
        assert_eq!(span(&log, 2, "starts", "sleeps"), (20, 25));
        assert_eq!(span(&log, 2, "starts", "ends"), (20, 35));
    }
}

/// Each of a queue of its own, or the queues would take turns.
#[test]
fn intensive_items_first() {
    let scripts = [w(1), w(2), w0()];
    let log = run(FIFO, &WITH_TWO_INTENSIVE, &scripts);
    assert_eq!(span(&log, 0, "starts", "sleeps"), (0, 5));
    assert_eq!(span(&log, 1, "starts", "sleeps"), (5, 10));
    assert_eq!(span(&log, 2, "starts", "sleeps"), (10, 15));
    assert_eq!(span(&log, 0, "wakes", "ends"), (15, 15));
    assert_eq!(span(&log, 1, "wakes", "ends"), (20, 20));
    assert_eq!(span(&log, 2, "wakes", "ends"), (25, 30));
}

/// Queues take turns: the item of another queue comes before the second one of the first queue.
#[test]
fn queues_take_turns() {
    let scripts = [w(1), w(1), w0()];
    let log = run(FIFO, &[queue(1024), intensive(1024)], &scripts);
    assert_eq!(
        log,
        "0 w0 starts, 5 w0 sleeps, 5 w2 starts, 10 w2 sleeps, 10 w1 starts, 15 w1 sleeps, \
         15 w0 wakes, 15 w0 ends, 20 w2 wakes, 25 w2 ends, 25 w1 wakes, 25 w1 ends"
    );
}

/// A worker counts when it is back on the CPU: w3 starts before w0 goes on. Counted at its wakeup,
/// the other way round.
#[test]
fn counting_on_arrival_and_at_wakeup() {
    let scripts = [w0(), w(1), w(2), script(0, &[5])];
    for (counts_at_wakeup, w0_burns, w3_burns) in
        [(false, (20, 25), (15, 20)), (true, (15, 20), (20, 25))]
    {
        let rules = Rules {
            counts_at_wakeup,
            ..FIFO
        };
        let log = run(rules, &WITH_TWO_INTENSIVE, &scripts);
        assert_eq!(span(&log, 3, "starts", "ends"), w3_burns);
        assert_eq!(span(&log, 0, "wakes", "ends"), w0_burns);
        assert!(span(&log, 1, "starts", "ends").1 <= 25);
        assert!(span(&log, 2, "starts", "ends").1 <= 25);
    }
}

#[test]
fn pure_burns_are_serial_whatever_the_limit() {
    let burn = script(0, &[5]);
    let log = run(FIFO, &[queue(1024)], &[burn.clone(), burn.clone(), burn]);
    let spans = [0, 1, 2].map(|n| span(&log, n, "starts", "ends"));
    assert_eq!(spans, [(0, 5), (5, 10), (10, 15)]);
}

#[test]
fn a_long_burn_and_a_short_one() {
    let scripts = [script(0, &[25]), script(0, &[5])];
    for cpu in [Cpu::Fifo, Cpu::Fair] {
        let log = run(Rules { cpu, ..FIFO }, &[queue(1024)], &scripts);
        assert_eq!(
            log, "0 w0 starts, 25 w0 ends, 25 w1 starts, 30 w1 ends",
            "nobody looks"
        );
    }
    // Found at 10; from then on they share the CPU.
    let rules = Rules {
        cpu: Cpu::Fair,
        threshold: Some(10),
        ..FIFO
    };
    let log = run(rules, &[queue(1024)], &scripts);
    assert_eq!(span(&log, 0, "starts", "is found"), (0, 10));
    let (begun, ended) = span(&log, 1, "starts", "ends");
    assert!(begun - 10 <= 1 && (19..=21).contains(&ended), "{log}");
    assert_eq!(span(&log, 0, "starts", "ends"), (0, 30));
}

/// The threshold counts the CPU time since the item came back, not that before its sleep.
#[test]
fn a_sleep_begins_the_account_of_cpu_time_anew() {
    let rules = Rules {
        cpu: Cpu::Fair,
        threshold: Some(10),
        ..FIFO
    };
    let scripts = [script(0, &[8, 1, 8]), script(0, &[12]), script(0, &[1])];
    let log = run(rules, &[queue(1024)], &scripts);
    assert!(!log.contains("w0 is found"), "{log}");
    assert!(log.contains("w1 is found"), "{log}");
}

/// Nobody says that he sleeps, and somebody looks once in a ms: each start that a sleep makes
/// possible is late by that much at most.
#[test]
fn silent_sleepers_that_are_looked_for() {
    let rules = Rules {
        silent: true,
        ..FIFO
    };
    let log = run(rules, &[queue(1024)], &[w0(), w(0), w(0)]);
    let late = |is: u32, should: u32, sleeps: u32| is >= should && is <= should + sleeps;
    assert!(late(span(&log, 1, "starts", "ends").0, 5, 1), "{log}");
    assert!(late(span(&log, 2, "starts", "ends").0, 10, 2), "{log}");
    assert!(late(span(&log, 2, "starts", "ends").1, 25, 4), "{log}");
}

prop_compose! {
    fn any_script(queues: usize)(
        queue in 0..queues,
        phases in proptest::collection::vec(1..9u32, 1..6),
    ) -> Script {
        Script { queue, phases }
    }
}

proptest! {
    /// The four rules, which every run is held to, for any items.
    #[test]
    fn any_workload_keeps_the_four_rules(
        limits in proptest::collection::vec((1..5usize, any::<bool>()), 1..4),
        scripts in proptest::collection::vec(any_script(3), 1..24),
        (fair, counts_at_wakeup) in (any::<bool>(), any::<bool>()),
        threshold in proptest::option::of(2..12u32),
    ) {
        let queues: Vec<_> = limits
            .iter()
            .map(|&(max_active, intensive)| Queue { max_active, intensive })
            .collect();
        let scripts: Vec<_> = scripts
            .into_iter()
            .map(|s| Script { queue: s.queue % queues.len(), ..s })
            .collect();
        let cpu = if fair { Cpu::Fair } else { Cpu::Fifo };
        let rules = Rules { cpu, counts_at_wakeup, threshold, silent: false };
        let log = Machine::new(rules, &queues, &scripts).run();
        let ended = log.iter().filter(|e| e.ends_with("ends")).count();
        prop_assert_eq!(ended, scripts.len());
    }
}
