//! The core of BH items over random sequences of the events that its driver allows, with a poller
//! that comes, goes and is late, and threads that are refused; beside it a plain queue that says
//! what is to run next.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Job(usize);

impl Item for Job {
    type Key = usize;
    fn key(&self) -> usize {
        self.0
    }
    fn may_be_running(&self) -> bool {
        true
    }
    fn is_intensive(&self) -> bool {
        true // It makes no difference here.
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Push,
    Post,
    Cancel(usize),
    Seat,
    Unseat,
    Relieve,
    /// The poller begins its poll, runs the next item, or ends its poll.
    Come,
    Take,
    Go,
    /// An alarm about a call rings.
    TimeUp,
    Created,
    Refused,
    Next(usize),
    /// A pool in distress asks again.
    Again,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => Just(Event::Push),
        3 => Just(Event::Post),
        1 => any::<usize>().prop_map(Event::Cancel),
        2 => Just(Event::Seat),
        1 => Just(Event::Unseat),
        1 => Just(Event::Relieve),
        4 => Just(Event::Come),
        6 => Just(Event::Take),
        3 => Just(Event::Go),
        2 => Just(Event::TimeUp),
        3 => Just(Event::Created),
        2 => Just(Event::Refused),
        5 => any::<usize>().prop_map(Event::Next),
        1 => Just(Event::Again),
    ]
}

struct Driver {
    core: Core<Job>,
    /// Thread starts under way.
    asked: usize,
    refused: bool,
    pushed: usize,
    letters: Vec<Job>,
    /// What was pushed, and has been neither taken nor cancelled.
    expected: VecDeque<usize>,
    /// Who runs what.
    running: Option<(usize, usize)>,
    poller: Option<usize>,
    /// It is inside its poll.
    here: bool,
    /// The call that an alarm is set for.
    alarm: Option<u64>,
    relieved: bool,
}

impl Driver {
    fn new() -> Self {
        let mut core = Core::new(1);
        core.run_one_by_one();
        Self {
            core,
            asked: 1,
            refused: false,
            pushed: 0,
            letters: Vec::new(),
            expected: VecDeque::new(),
            running: None,
            poller: None,
            here: false,
            alarm: None,
            relieved: false,
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Create => self.asked += 1,
            Action::Wake(worker) if self.poller == Some(worker) => self.expect(),
            Action::Wake(_) | Action::None => {}
        }
        assert!(self.asked <= 1, "one thread is enough");
    }

    fn expect(&mut self) {
        self.alarm = self.alarm.or(self.core.open_call());
    }

    fn begin(&mut self, worker: usize, job: Job) {
        assert_eq!(self.running, None, "one at a time");
        assert_eq!(self.expected.pop_front(), Some(job.0), "in order");
        self.running = Some((worker, job.0));
    }

    fn ends(&mut self, worker: usize) {
        self.running = self.running.filter(|(who, _)| *who != worker);
    }

    fn job(&mut self) -> Job {
        self.pushed += 1;
        Job(self.pushed)
    }

    fn fetch(&mut self) {
        let letters = std::mem::take(&mut self.letters);
        self.expected.extend(letters.iter().map(|job| job.0));
        let action = self.core.push_all(letters.into_iter());
        self.perform(action);
    }

    fn next(&mut self, worker: usize) {
        self.ends(worker);
        loop {
            let (next, action) = self.core.next(worker);
            self.perform(action);
            match next {
                Next::Run(job) => return self.begin(worker, job),
                Next::Fetch => self.fetch(),
                Next::Sleep => return,
                Next::Exit => unreachable!("it has not been stopped"),
            }
        }
    }

    fn take(&mut self, poller: usize) {
        self.ends(poller);
        loop {
            match self.core.poller_takes() {
                Next::Run(job) => return self.begin(poller, job),
                Next::Fetch => self.fetch(),
                Next::Sleep | Next::Exit => return self.here = false,
            }
        }
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Push => {
                let job = self.job();
                self.expected.push_back(job.0);
                let action = self.core.push(job);
                self.perform(action);
            }
            Event::Post => {
                let job = self.job();
                self.letters.push(job);
                let action = self.core.mail_came();
                self.perform(action);
            }
            Event::Cancel(n) if !self.expected.is_empty() => {
                let at = n % self.expected.len();
                let job = self.expected.remove(at);
                let removed = self.core.remove(|j| Some(j.0) == job);
                assert_eq!(removed.map(|j| j.0), job);
            }
            Event::Seat if self.poller.is_none() && !self.relieved => {
                let (number, action) = self.core.seat_poller();
                self.poller = Some(number);
                self.perform(action);
            }
            Event::Unseat if !self.here => {
                self.poller = None;
                let action = self.core.unseat_poller();
                self.perform(action);
            }
            Event::Relieve => {
                self.relieved = true;
                let action = self.core.relieve_poller();
                self.perform(action);
            }
            Event::Come if !self.here => {
                self.here = self.core.poller_comes();
                if let Some(poller) = self.poller.filter(|_| self.here) {
                    self.take(poller);
                }
            }
            Event::Take if self.here => {
                let poller = self.poller.expect("it is here");
                self.take(poller);
            }
            Event::Go if self.here => {
                self.here = false;
                let poller = self.poller.expect("it was here");
                self.ends(poller);
                let (more, action) = self.core.poller_goes();
                self.perform(action);
                if more {
                    self.expect();
                }
            }
            Event::TimeUp => self.time_up(),
            Event::Created if self.asked > 0 => {
                (self.asked, self.refused) = (0, false);
                let _ = self.core.created();
            }
            Event::Refused if self.asked > 0 => {
                (self.asked, self.refused) = (0, true);
                let _ = self.core.create_failed();
            }
            Event::Next(n) => {
                let going = |w: &usize| {
                    let state = self.core.workers[*w].state;
                    Some(*w) != self.poller && matches!(state, State::Running | State::Woken)
                };
                let workers: Vec<_> = (0..self.core.workers.len()).filter(going).collect();
                if let Some(worker) = workers.get(n % workers.len().max(1)) {
                    self.next(*worker);
                }
            }
            Event::Again => {
                let action = self.core.ask_again();
                self.perform(action);
            }
            _ => {}
        }
        self.check();
    }

    fn time_up(&mut self) {
        let Some(call) = self.alarm.take() else {
            return;
        };
        match self.core.call_is_over(call) {
            Called::Over => {}
            Called::Again(call) => self.alarm = Some(call),
            Called::Late(action) => self.perform(action),
        }
    }

    fn check(&self) {
        let core = &self.core;
        let count = |s: State| core.workers.iter().filter(|w| w.state == s).count();
        assert_eq!(core.arriving, count(State::Woken));
        assert_eq!(core.running, count(State::Running) + core.arriving);
        let seated = |w: &usize| core.workers[*w].state == State::Idle;
        let poller_rests = usize::from(self.poller.as_ref().is_some_and(seated));
        assert_eq!(core.idle.len() + poller_rests, count(State::Idle));
        // Whoever counts comes: a thread by itself, the poller or else the alarm.
        let called = core.open_call();
        assert!(called.is_none() || self.alarm.is_some(), "nobody asks");
        assert!(called.is_none() || !self.relieved, "it may not come");
        let served = core.running > 0 || core.creating > 0;
        let callable = core.yields_to_poller();
        let in_want = self.refused && core.idle.is_empty() && !callable;
        assert!(!core.has_work() || served || in_want, "stranded");
    }

    /// All ends: the poller never comes again, and threads can be had.
    fn finish(mut self) {
        for _ in 0..2 * self.pushed + 4 {
            let come = [Event::TimeUp, Event::TimeUp, Event::Again, Event::Created];
            self.step(Event::Go);
            come.into_iter().for_each(|event| self.step(event));
            (0..3).for_each(|n| self.step(Event::Next(n)));
        }
        assert!(self.running.is_none() && self.expected.is_empty() && self.letters.is_empty());
    }
}

proptest! {
    #[test]
    fn a_bh_pool_runs_each_once_in_order_whoever_comes(
        events in proptest::collection::vec(event(), 0..120),
    ) {
        let mut driver = Driver::new();
        for event in events {
            driver.step(event);
        }
        driver.finish();
    }
}
