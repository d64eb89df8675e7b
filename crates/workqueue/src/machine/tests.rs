//! The core alone: single events, and whole scenarios in virtual time.

use super::*;
use crate::gate::{Admitted, Gate};

/// A number, and whether it ran when it was queued. From `INTENSIVE` on they compute for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Job(usize, bool);

const INTENSIVE: usize = 1000;

impl Item for Job {
    type Key = usize;
    fn key(&self) -> usize {
        self.0
    }
    fn may_be_running(&self) -> bool {
        self.1
    }
    fn is_intensive(&self) -> bool {
        self.0 >= INTENSIVE
    }
}

fn job(n: usize) -> Job {
    Job(n, false)
}

/// A pool whose first worker has arrived and found nothing to do.
fn idle_pool(target: usize) -> Core<Job> {
    let mut core = Core::new(target);
    let first = core.created();
    assert_eq!(core.next(first), (Next::Sleep, Action::None));
    core
}

#[test]
fn a_push_wakes_one_worker_and_the_next_push_none() {
    let mut core = idle_pool(1);
    assert_eq!(core.push(job(1)), Action::Wake(0));
    assert_eq!(
        core.push(job(2)),
        Action::None,
        "the woken one counts as running"
    );
    assert_eq!(core.next(0), (Next::Run(job(1)), Action::None));
    assert_eq!(core.next(0), (Next::Run(job(2)), Action::None));
    assert_eq!(core.next(0), (Next::Sleep, Action::None));
}

/// Two pushes, one wake: the worker that takes the first item brings the next worker.
#[test]
fn i3_workers_chain_up_to_the_target() {
    let mut core = idle_pool(2);
    assert_eq!(core.push(job(1)), Action::Wake(0));
    assert_eq!(core.push(job(2)), Action::Create);
    assert_eq!(core.push(job(3)), Action::None, "one creation at a time");
    assert_eq!(core.next(0), (Next::Run(job(1)), Action::None));
    let second = core.created();
    assert_eq!(
        core.next(second),
        (Next::Run(job(2)), Action::None),
        "two run, the target"
    );
    assert_eq!(core.running(), 2);
}

#[test]
fn the_worker_that_went_idle_last_is_woken_first() {
    let mut core = idle_pool(2);
    let second = core.created();
    assert_eq!(core.next(second), (Next::Sleep, Action::None));
    assert_eq!(core.push(job(1)), Action::Wake(second));
    assert_eq!(core.push(job(2)), Action::Wake(0));
}

/// The block itself looks for waiting work, so an item pushed just before it is not stranded.
#[test]
fn i2_a_block_brings_a_worker_for_what_waits() {
    let mut core = idle_pool(1);
    let _ = core.push(job(1));
    let _ = core.next(0);
    assert_eq!(core.push(job(2)), Action::None, "a worker runs");
    assert_eq!(core.block(0), Action::Create);
    let second = core.created();
    assert_eq!(core.next(second), (Next::Run(job(2)), Action::None));
    core.unblock(0);
    assert_eq!(core.running(), 2, "nobody is preempted");
    let _ = core.push(job(3));
    assert_eq!(
        core.next(second),
        (Next::Sleep, Action::None),
        "one too many: it parks"
    );
    assert_eq!(core.next(0), (Next::Run(job(3)), Action::None));
}

#[test]
fn a_block_with_nothing_waiting_brings_nobody() {
    let mut core = idle_pool(1);
    let _ = core.push(job(1));
    let _ = core.next(0);
    assert_eq!(core.block(0), Action::None);
    assert_eq!(core.push(job(2)), Action::Create, "the push after it does");
}

#[test]
fn a_failed_creation_is_tried_again_at_the_next_event() {
    let mut core = idle_pool(1);
    let _ = core.push(job(1));
    let _ = core.next(0);
    let _ = core.push(job(2));
    assert_eq!(core.block(0), Action::Create);
    assert_eq!(core.create_failed(), [0], "the blocked one is told");
    assert_eq!(core.push(job(3)), Action::Create);
    assert_eq!(core.create_failed(), [0]);
    core.unblock(0);
    assert_eq!(
        core.next(0),
        (Next::Run(job(2)), Action::None),
        "the old worker goes on"
    );
    assert_eq!(core.block(0), Action::Create);
}

/// After a failure one blocked worker asks again, and no other.
#[test]
fn one_blocked_worker_keeps_asking() {
    let mut core = idle_pool(1);
    for n in 0..2 {
        let _ = core.push(job(n));
        if n > 0 {
            let second = core.created();
            assert_eq!(core.next(second), (Next::Run(job(n)), Action::None));
        } else {
            let _ = core.next(0);
        }
        assert_eq!(core.block(n), Action::None);
    }
    assert!(!core.keep(0), "nothing waits");
    assert_eq!(core.push(job(2)), Action::Create);
    assert!(!core.keep(0), "a thread is on its way");
    assert_eq!(core.create_failed(), [0, 1], "either may be able to");
    assert!(core.keep(1));
    assert!(!core.keep(0), "one is enough");
    assert_eq!(core.push(job(3)), Action::Create, "each event asks too");
    assert_eq!(core.create_failed(), [0; 0], "the keeper is there");
    core.end_keeping();
    assert_eq!(core.ask_again(), Action::Create);
    let third = core.created();
    assert!(!core.keep(1), "it has come");
    assert_eq!(core.next(third), (Next::Run(job(2)), Action::None));
}

/// A requeued item that still runs on one worker is not given to another.
#[test]
fn i25_a_running_item_is_put_behind_its_runner() {
    let mut core = idle_pool(1);
    let _ = core.push(job(7));
    let _ = core.next(0);
    let _ = core.block(0);
    assert_eq!(core.push(Job(7, true)), Action::Create);
    let second = core.created();
    assert_eq!(core.next(second), (Next::Sleep, Action::None));
    assert_eq!(core.ready(), 1);
    core.unblock(0);
    assert_eq!(core.next(0), (Next::Run(Job(7, true)), Action::None));
}

#[test]
fn what_waits_behind_a_runner_can_be_taken_back() {
    let mut core = idle_pool(1);
    let _ = core.push(job(7));
    let _ = core.next(0);
    let _ = core.block(0);
    let _ = core.push(Job(7, true));
    let second = core.created();
    let _ = core.next(second);
    assert_eq!(core.remove(|j| j.0 == 7), Some(Job(7, true)));
    assert_eq!(
        core.remove(|j| j.0 == 7),
        None,
        "the running one is not on a list"
    );
}

#[test]
fn a_stopped_pool_sends_all_workers_home() {
    let mut core = idle_pool(1);
    let second = core.created();
    assert_eq!(core.next(second), (Next::Sleep, Action::None));
    assert_eq!(
        core.stop(),
        [0, second],
        "more than may run, but they only leave"
    );
    assert_eq!(core.next(0), (Next::Exit, Action::None));
    assert_eq!(core.next(second), (Next::Exit, Action::None));
    assert_eq!(core.running(), 0);
}

/// A rescuer takes the items of its kind while the pool is in distress, and no others; leaving, it
/// asks for a worker for what it leaves behind.
#[test]
fn i20_a_rescuer_that_leaves_looks_for_more_work() {
    let mut core = Core::<Job>::new(1);
    assert_eq!(
        core.create_failed(),
        [0; 0],
        "there has never been a worker"
    );
    assert!(core.wants_first());
    assert_eq!(core.create_failed(), [0; 0]);
    assert_eq!(core.push(job(1)), Action::Create);
    let _ = core.create_failed();
    assert_eq!(core.push(job(2)), Action::Create);
    let _ = core.create_failed();
    let rescuer = core.attach();
    assert_eq!(core.rescue(rescuer, |job| job.0 == 2), Some(job(2)));
    assert_eq!(
        core.block(rescuer),
        Action::Create,
        "it does not count as running"
    );
    core.unblock(rescuer);
    assert_eq!(
        (core.running(), core.rescue(rescuer, |job| job.0 == 2)),
        (0, None)
    );
    let worker = core.created();
    assert_eq!(
        core.rescue(rescuer, |_| true),
        None,
        "the pool can help itself"
    );
    assert_eq!(core.next(worker), (Next::Run(job(1)), Action::None));
    assert_eq!(core.block(worker), Action::None);
    assert_eq!(core.push(job(3)), Action::Create);
    let _ = core.create_failed();
    assert_eq!(core.detach(rescuer), Action::Create, "as it leaves");
}

/// I.4, I.34: the worker says that it blocks, and it is found asleep, in either order: it stops to
/// count once, and counts again once.
#[test]
fn i34_the_first_to_notice_a_sleep_counts() {
    for said_first in [true, false] {
        let mut core = idle_pool(1);
        let _ = core.push(job(1));
        let _ = core.next(0);
        let _ = core.push(job(2));
        assert!(core.waits());
        let seen: Vec<_> = core.suspects().collect();
        let (worker, turn) = seen[0];
        if said_first {
            assert_eq!(core.block(0), Action::Create);
            assert_eq!(core.found_asleep(worker, turn), None, "old news");
            assert_eq!(core.running(), 0);
            core.unblock(0);
            assert_eq!(core.found_asleep(worker, turn), None, "of another turn");
        } else {
            assert_eq!(core.found_asleep(worker, turn), Some(Action::Create));
            assert_eq!(core.found_intensive(worker, turn), None, "once");
            assert_eq!((core.block(0), core.running()), (Action::None, 0));
            core.unblock(0);
        }
        assert_eq!(core.running(), 1);
        assert_eq!(core.next(0), (Next::Run(job(2)), Action::None));
        assert_eq!(core.found_asleep(worker, turn), None, "of another item");
    }
}

/// A sleeper that nobody was told of counts again when its item ends, and may be one too many.
#[test]
fn a_found_sleeper_counts_again_at_its_end() {
    let mut core = idle_pool(1);
    let _ = core.push(job(1));
    let _ = core.next(0);
    let _ = core.push(job(2));
    let (worker, turn) = core.suspects().next().unwrap();
    assert_eq!(core.found_asleep(worker, turn), Some(Action::Create));
    let second = core.created();
    assert_eq!(core.next(second), (Next::Run(job(2)), Action::None));
    assert_eq!(
        core.next(0),
        (Next::Sleep, Action::None),
        "the second one runs"
    );
    assert_eq!(core.running(), 1);
}

/// The idle rule: how many idle workers are too many beside so many busy ones.
#[test]
fn the_idle_rule() {
    let smallest = |busy: usize| {
        (0..100)
            .find(|idle| {
                let mut core = Core::<Job>::new(1);
                core.alive = busy + idle;
                core.idle = (0..*idle).collect();
                core.has_too_many()
            })
            .unwrap()
    };
    let table = [0, 1, 4, 5, 8, 9, 12, 16, 32, 64].map(|busy| (busy, smallest(busy)));
    assert_eq!(
        table,
        [
            (0, 3),
            (1, 3),
            (4, 3),
            (5, 4),
            (8, 4),
            (9, 5),
            (12, 5),
            (16, 6),
            (32, 10),
            (64, 18)
        ]
    );
}

/// Five idle workers, one second apart: three leave, each when its own time is up, the longest idle
/// first, and two stay and sleep without limit.
#[test]
fn the_longest_idle_leave_first() {
    let at = |secs: u64| Instant::default() + Duration::from_secs(secs);
    let timeout = Duration::from_secs(300);
    let mut core = Core::<Job>::new(5);
    let mut told = Vec::new();
    for n in 0..5 {
        core.creating = true;
        let me = core.created();
        assert_eq!(core.next(me), (Next::Sleep, Action::None));
        told.extend(core.went_idle(me, at(n)));
    }
    assert_eq!(
        told,
        [0],
        "the third makes them too many; the first keeps the time"
    );
    assert_eq!(core.rest(4, at(5), timeout).0, Rest::Sleep(None));
    assert_eq!(
        core.rest(0, at(5), timeout),
        (Rest::Sleep(Some(at(300))), vec![])
    );
    assert_eq!(
        core.rest(0, at(300), timeout),
        (Rest::Leave, vec![1]),
        "the next keeps the time"
    );
    assert_eq!(
        core.rest(1, at(300), timeout),
        (Rest::Sleep(Some(at(301))), vec![])
    );
    assert_eq!(
        core.rest(1, at(302), timeout),
        (Rest::Leave, vec![2]),
        "and takes another along"
    );
    assert_eq!(core.rest(2, at(302), timeout), (Rest::Leave, vec![]));
    assert_eq!(core.rest(3, at(999), timeout), (Rest::Sleep(None), vec![]));
    assert_eq!(core.push(job(1)), Action::Wake(4), "the last to go idle");
    assert_eq!(core.rest(4, at(999), timeout), (Rest::Work, vec![]));
}

/// One CPU in virtual time: who burns on it, who waits for it, who sleeps.
struct Machine {
    core: Core<Job>,
    gate: Gate<Job>,
    now: u32,
    /// Workers that want the CPU, in the order of their wakeups.
    runnable: VecDeque<usize>,
    /// What is left of each worker's item: burn, sleep, burn, ...
    phases: Vec<VecDeque<u32>>,
    running: Vec<Option<Job>>,
    asleep: Vec<(u32, usize)>,
    scripts: Vec<Vec<u32>>,
    /// Only the intensive ones pass the gate.
    mixed: bool,
    log: Vec<(u32, usize, &'static str)>,
}

impl Machine {
    fn new(max_active: usize, scripts: &[&[u32]]) -> Self {
        let jobs: Vec<usize> = (0..scripts.len()).collect();
        Self::with_intensive(&jobs, max_active, scripts)
    }

    /// Jobs with a number of at least `INTENSIVE` go through a gate of their own with that limit,
    /// the others through one without.
    fn with_intensive(jobs: &[usize], max_active: usize, scripts: &[&[u32]]) -> Self {
        let mut machine = Self {
            core: idle_pool(1),
            gate: Gate::new(max_active),
            now: 0,
            runnable: VecDeque::new(),
            phases: vec![VecDeque::new()],
            running: vec![None],
            asleep: Vec::new(),
            scripts: scripts.iter().map(|s| s.to_vec()).collect(),
            mixed: false,
            log: Vec::new(),
        };
        for &n in jobs {
            let all_alike = jobs.iter().all(|n| *n < INTENSIVE);
            let admitted = if all_alike || n >= INTENSIVE {
                machine.gate.admit(|_| job(n))
            } else {
                Admitted::Active(job(n))
            };
            if let Admitted::Active(job) = admitted {
                let action = machine.core.push(job);
                machine.perform(action);
            }
        }
        machine.mixed = jobs.iter().any(|n| *n >= INTENSIVE);
        machine
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::None => {}
            Action::Wake(worker) => self.runnable.push_back(worker),
            Action::Create => {
                let worker = self.core.created();
                self.phases.push(VecDeque::new());
                self.running.push(None);
                self.runnable.push_back(worker);
            }
        }
    }

    fn note(&mut self, job: Job, what: &'static str) {
        self.log.push((self.now, job.0, what));
    }

    /// The worker has the CPU: from here to where it gives it up.
    fn step(&mut self, worker: usize) {
        if let Some(job) = self.running[worker] {
            // Back from its sleep; counted when it arrives, not when it is woken.
            self.core.unblock(worker);
            self.note(job, "wakes");
        }
        loop {
            let Some(job) = self.running[worker] else {
                let (next, action) = self.core.next(worker);
                self.perform(action);
                let Next::Run(job) = next else { return };
                self.note(job, "starts");
                let script = &self.scripts[job.0 % INTENSIVE];
                self.phases[worker] = script.iter().copied().collect();
                self.running[worker] = Some(job);
                continue;
            };
            if let Some(burn) = self.phases[worker].pop_front() {
                self.burn(burn);
            }
            if let Some(sleep) = self.phases[worker].pop_front() {
                self.note(job, "sleeps");
                self.asleep.push((self.now + sleep, worker));
                let action = self.core.block(worker);
                self.perform(action);
                return;
            }
            self.note(job, "ends");
            self.running[worker] = None;
            if self.mixed && job.0 < INTENSIVE {
                continue;
            }
            self.gate.leave(0, true);
            if let Some(job) = self.gate.promote() {
                let action = self.core.push(job);
                self.perform(action);
            }
        }
    }

    /// Time passes on the CPU; sleepers whose time comes queue up for it.
    fn burn(&mut self, ms: u32) {
        self.now += ms;
        self.asleep.sort();
        while self.asleep.first().is_some_and(|(at, _)| *at <= self.now) {
            self.runnable.push_back(self.asleep.remove(0).1);
        }
    }

    fn run(mut self) -> Vec<(u32, usize, &'static str)> {
        loop {
            while let Some(worker) = self.runnable.pop_front() {
                self.step(worker);
            }
            self.asleep.sort();
            let Some((at, _)) = self.asleep.first() else {
                break;
            };
            let idle = at - self.now;
            self.burn(idle);
        }
        assert!(self.gate.is_idle() && self.core.ready() == 0, "all has run");
        self.log
    }
}

fn at(log: &[(u32, usize, &'static str)], job: usize, what: &str) -> Vec<u32> {
    let hits = log.iter().filter(|(_, j, w)| *j == job && *w == what);
    hits.map(|(t, ..)| *t).collect()
}

/// w0 burns 5, sleeps 10, burns 5; w1 and w2 burn 5 and sleep 10.
const THREE: [&[u32]; 3] = [&[5, 10, 5], &[5, 10], &[5, 10]];

#[test]
fn timeline_with_room_for_all() {
    let log = Machine::new(3, &THREE).run();
    assert_eq!(
        [
            at(&log, 0, "starts"),
            at(&log, 0, "sleeps"),
            at(&log, 0, "ends")
        ],
        [[0], [5], [20]]
    );
    assert_eq!(
        [
            at(&log, 1, "starts"),
            at(&log, 1, "sleeps"),
            at(&log, 1, "ends")
        ],
        [[5], [10], [20]]
    );
    assert_eq!(
        [
            at(&log, 2, "starts"),
            at(&log, 2, "sleeps"),
            at(&log, 2, "ends")
        ],
        [[10], [15], [25]]
    );
}

#[test]
fn timeline_with_max_active_two() {
    let log = Machine::new(2, &THREE).run();
    assert_eq!(
        [
            at(&log, 0, "sleeps"),
            at(&log, 0, "wakes"),
            at(&log, 0, "ends")
        ],
        [[5], [15], [20]]
    );
    assert_eq!([at(&log, 1, "starts"), at(&log, 1, "sleeps")], [[5], [10]]);
    // A tie: w0's end lets w2 start just as w1 wakes.
    let w1_ends = at(&log, 1, "ends")[0];
    assert!(w1_ends == 20 || w1_ends == 25, "{w1_ends}");
    assert_eq!(
        [
            at(&log, 2, "starts"),
            at(&log, 2, "sleeps"),
            at(&log, 2, "ends")
        ],
        [[20], [25], [35]]
    );
}

/// As a workqueue with a single worker would do it.
#[test]
fn timeline_with_max_active_one() {
    let log = Machine::new(1, &THREE).run();
    assert_eq!([at(&log, 0, "starts"), at(&log, 0, "ends")], [[0], [20]]);
    assert_eq!(
        [
            at(&log, 1, "starts"),
            at(&log, 1, "sleeps"),
            at(&log, 1, "ends")
        ],
        [[20], [25], [35]]
    );
    assert_eq!(
        [
            at(&log, 2, "starts"),
            at(&log, 2, "sleeps"),
            at(&log, 2, "ends")
        ],
        [[35], [40], [50]]
    );
}

#[test]
fn pure_burns_are_serial_whatever_the_limit() {
    let log = Machine::new(1024, &[&[5], &[5], &[5]]).run();
    let spans: Vec<_> = (0..3)
        .map(|j| (at(&log, j, "starts")[0], at(&log, j, "ends")[0]))
        .collect();
    assert_eq!(spans, [(0, 5), (5, 10), (10, 15)]);
}

#[test]
fn a_long_burn_holds_a_short_one() {
    let log = Machine::new(1024, &[&[25], &[5]]).run();
    assert_eq!([at(&log, 0, "ends"), at(&log, 1, "ends")], [[25], [30]]);
}

/// At no time two items of a bound pool burn, and starts keep the order.
#[test]
fn starts_keep_the_order_in_which_items_came() {
    let scripts: Vec<Vec<u32>> = (0..20u32).map(|n| vec![1 + n % 3, n % 5 + 1, 2]).collect();
    let scripts: Vec<&[u32]> = scripts.iter().map(Vec::as_slice).collect();
    for max_active in [1, 2, 7, 100] {
        let log = Machine::new(max_active, &scripts).run();
        let starts: Vec<_> = log
            .iter()
            .filter(|e| e.2 == "starts")
            .map(|e| e.1)
            .collect();
        assert_eq!(starts, (0..20).collect::<Vec<_>>());
        let mut active = 0usize;
        for (_, _, what) in log {
            active += usize::from(what == "starts");
            active -= usize::from(what == "ends");
            assert!(active <= max_active);
        }
    }
}

/// A worker is back from a short block before the one woken in its place has arrived: it goes on,
/// and the other one parks.
#[test]
fn a_short_block_does_not_leave_the_cpu_idle() {
    let mut core = idle_pool(1);
    let second = core.created();
    assert_eq!(core.next(second), (Next::Sleep, Action::None));
    assert_eq!(core.push(job(1)), Action::Wake(second));
    let _ = core.push(job(2));
    let _ = core.push(job(3));
    let _ = core.next(second);
    assert_eq!(core.block(second), Action::Wake(0));
    core.unblock(second);
    assert_eq!(core.running(), 2);
    assert_eq!(
        core.next(second),
        (Next::Run(job(2)), Action::None),
        "the woken one is not there yet"
    );
    assert_eq!(core.next(0), (Next::Sleep, Action::None), "one too many");
    assert_eq!(core.next(second), (Next::Run(job(3)), Action::None));
}

/// w1 and w2 of the three are of a queue for items that compute: once started, they hold nobody
/// back.
#[test]
fn timeline_with_intensive_items() {
    let (w1, w2) = (INTENSIVE + 1, INTENSIVE + 2);
    let log = Machine::with_intensive(&[0, w1, w2], 1024, &THREE).run();
    assert_eq!([at(&log, 0, "sleeps"), at(&log, 0, "ends")], [[5], [20]]);
    assert_eq!([at(&log, w1, "sleeps"), at(&log, w1, "ends")], [[10], [20]]);
    assert_eq!([at(&log, w2, "sleeps"), at(&log, w2, "ends")], [[15], [25]]);

    let log = Machine::with_intensive(&[0, w1, w2], 1, &THREE).run();
    assert_eq!([at(&log, w1, "starts"), at(&log, w1, "ends")], [[5], [20]]);
    assert_eq!([at(&log, w2, "starts"), at(&log, w2, "ends")], [[20], [35]]);

    let log = Machine::with_intensive(&[w1, w2, 0], 1024, &THREE).run();
    assert_eq!([at(&log, w1, "starts"), at(&log, w1, "ends")], [[0], [15]]);
    assert_eq!([at(&log, w2, "starts"), at(&log, w2, "ends")], [[5], [20]]);
    assert_eq!([at(&log, 0, "starts"), at(&log, 0, "ends")], [[10], [30]]);
}

/// A worker counts when it is back on the CPU, not when it is woken: w3 starts before w0 goes on.
#[test]
fn a_worker_counts_when_it_arrives() {
    let (w1, w2) = (INTENSIVE + 1, INTENSIVE + 2);
    let scripts: [&[u32]; 4] = [&[5, 10, 5], &[5, 10], &[5, 10], &[5]];
    let log = Machine::with_intensive(&[0, w1, w2, 3], 1024, &scripts).run();
    assert_eq!([at(&log, 3, "starts"), at(&log, 3, "ends")], [[15], [20]]);
    assert_eq!([at(&log, 0, "wakes"), at(&log, 0, "ends")], [[20], [25]]);
}
