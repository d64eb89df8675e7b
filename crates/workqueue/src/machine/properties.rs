//! The core over random sequences of events, in any order that its driver allows.
//!
//! All events are sections of one lock, so these orders are all that can happen to it.

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
        self.0 < FRESH
    }
    fn is_intensive(&self) -> bool {
        self.0 == 5
    }
}

/// From here on jobs are posted once and in order. Odd, so that no rescuer takes them.
const FRESH: usize = 101;

/// So many letters are delivered at a time.
const SOME: usize = 3;

/// An event, and which of the workers it may happen to it happens to.
#[derive(Clone, Copy, Debug)]
enum Event {
    Push(usize),
    /// One that no worker runs, or has run.
    PostFresh,
    /// The same, queued by what a worker runs, who keeps it if it may.
    Keep(usize),
    Next(usize),
    Block(usize),
    Unblock(usize),
    Created,
    Refused,
    /// A worker is looked at, and what was seen becomes known: it was asleep, or it computes.
    Look(usize),
    Found(usize, bool),
    /// An item has taken so long; a look finds that something has waited long enough.
    Took(u64),
    Hasten,
    /// A letter is put into a mailbox of the pool.
    Post(usize),
    /// Nothing has waited for long: the pool is looked at no more.
    EndWatch,
    /// An idle worker looks; so many seconds have passed.
    Rest(usize, u64),
    /// A rescuer of the items with this remainder comes, runs one and the next, and leaves.
    Attach,
    Rescue(usize),
    Detach(usize),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..6usize).prop_map(Event::Push),
        6 => Just(Event::PostFresh),
        6 => any::<usize>().prop_map(Event::Keep),
        6 => any::<usize>().prop_map(Event::Next),
        3 => any::<usize>().prop_map(Event::Block),
        3 => any::<usize>().prop_map(Event::Unblock),
        2 => Just(Event::Created),
        1 => Just(Event::Refused),
        3 => any::<usize>().prop_map(Event::Look),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(n, asleep)| Event::Found(n, asleep)),
        2 => (0..2_000u64).prop_map(Event::Took),
        2 => Just(Event::Hasten),
        4 => (0..6usize).prop_map(Event::Post),
        2 => Just(Event::EndWatch),
        3 => (any::<usize>(), 0..200u64).prop_map(|(n, secs)| Event::Rest(n, secs)),
        1 => Just(Event::Attach),
        2 => any::<usize>().prop_map(Event::Rescue),
        1 => any::<usize>().prop_map(Event::Detach),
    ]
}

/// A worker in one of these states may ask for its next item.
const GOING: [State; 4] = [
    State::Running,
    State::Woken,
    State::Asleep,
    State::Intensive,
];

struct Driver {
    core: Core<Job>,
    /// Thread starts under way.
    asked: usize,
    /// The last one failed.
    refused: bool,
    pushed: usize,
    /// What is in the mailbox.
    letters: VecDeque<Job>,
    now: Instant,
    /// What has been seen and is not known yet.
    seen: Vec<(usize, u64)>,
    /// The timekeeper looks at the pool.
    watched: bool,
    /// What each worker runs, and what it has in hand.
    runs: Vec<Option<Job>>,
    hands: Vec<VecDeque<Job>>,
    /// Who may keep, and how many of the last in his hand he has kept.
    keeper: Option<usize>,
    own: usize,
    started: usize,
    /// The next fresh one to be pushed, and the oldest that has not begun.
    fresh: (usize, usize),
    /// Fresh ones that have begun.
    begun: Vec<usize>,
}

impl Driver {
    fn new(target: usize, patience: u64, visit: u64) -> Self {
        let mut core = Core::new(target);
        core.be_generous(visit);
        core.be_patient(patience);
        // So that visits begin.
        (0..2).for_each(|_| core.took(500));
        Self {
            core,
            asked: 1,
            refused: false,
            pushed: 0,
            letters: VecDeque::new(),
            now: Instant::default(),
            seen: Vec::new(),
            watched: false,
            runs: Vec::new(),
            hands: Vec::new(),
            keeper: None,
            own: 0,
            started: 0,
            fresh: (FRESH, FRESH),
            begun: Vec::new(),
        }
    }

    /// The `n`-th of the workers in one of these states.
    fn pick(&self, n: usize, states: &[State]) -> Option<usize> {
        let states = |w: &usize| states.contains(&self.core.workers[*w].state);
        let workers: Vec<_> = (0..self.core.workers.len()).filter(states).collect();
        workers.get(n % workers.len().max(1)).copied()
    }

    fn perform(&mut self, action: Action) {
        if action == Action::Create {
            self.asked += 1;
            let room = self.core.running + self.asked <= self.core.target;
            assert!(self.asked == 1 || room, "more than may run");
        }
    }

    fn next(&mut self, worker: usize) {
        self.runs[worker] = None;
        // N4: from the hand, as long as something is there.
        if let Some(job) = self.hands[worker].pop_front() {
            if self.keeper == Some(worker) {
                self.own = self.own.min(self.hands[worker].len());
            }
            return self.begin(worker, job);
        }
        if self.keeper == Some(worker) {
            self.keeper = None;
        }
        if !self.core.gives_way(worker) && self.core.begin_recall(worker) {
            self.recall(Some(worker));
            self.core.end_recall();
        }
        let (next, action) = self.core.next(worker);
        self.perform(action);
        match next {
            Next::Run(job) => self.begin(worker, job),
            Next::Fetch => {
                if !self.draw(worker) {
                    self.take_kept();
                    let some = self.letters.len().min(SOME);
                    let action = self.core.push_all(self.letters.drain(..some));
                    self.perform(action);
                    if !self.letters.is_empty() {
                        self.core.mail_is_left();
                    }
                }
                self.next(worker);
            }
            Next::Sleep => {
                let over = self.core.running >= self.core.target;
                // Or others get on with tiny items, and are looked at.
                let over = over || (self.core.running > self.core.arriving && self.core.waits());
                assert!(self.letters.is_empty() || over, "unfetched");
                let _ = self.core.went_idle(worker, self.now);
            }
            Next::Exit => unreachable!("it has not been stopped"),
        }
    }

    /// V4: fresh letters come into the worker's hand. `false` if none do.
    fn draw(&mut self, worker: usize) -> bool {
        let most = self.core.may_visit(worker);
        let letters = self.letters.iter().take(most);
        let items = letters.take_while(|job| !job.may_be_running()).count();
        let Some(first) = self.letters.front().filter(|_| items > 0) else {
            return false;
        };
        let left = self.letters.len() - items;
        let mail = (left > 0, left);
        let action = self.core.begin_visit(worker, items, first.0, mail);
        self.hands[worker].extend(self.letters.drain(..items));
        self.perform(action);
        true
    }

    /// V5: what the worker's item queues stays in its hand, if it may.
    fn keep(&mut self, worker: usize) {
        let keeps = self.keeper == Some(worker);
        let may_begin = self.keeper.is_none() && self.letters.is_empty();
        if !self.letters.is_empty() || !(keeps || may_begin && self.core.may_keep(worker)) {
            return self.happen(Event::PostFresh);
        }
        if !keeps {
            (self.keeper, self.own) = (Some(worker), 0);
        }
        self.pushed += 1;
        self.hands[worker].push_back(Job(self.fresh.0));
        self.own += 1;
        self.fresh.0 += 2;
    }

    /// V6: what has been kept comes before what is in the mailbox.
    fn take_kept(&mut self) {
        if let Some(worker) = self.keeper.take() {
            let drawn = self.hands[worker].len() - self.own;
            let kept: Vec<_> = self.hands[worker].drain(drawn..).collect();
            let action = self.core.push_all(kept.into_iter());
            self.perform(action);
        }
    }

    fn recall_from(&mut self, worker: usize) {
        self.recall_each(self.core.to_be_recalled_with(worker));
    }

    fn recall_each(&mut self, workers: Vec<usize>) {
        for worker in workers {
            self.take_kept();
            let now = self.runs[worker].map(|job| job.0);
            let hand = self.hands[worker].drain(..);
            let action = self.core.recalled(worker, now, hand);
            self.perform(action);
        }
    }

    fn recall(&mut self, but: Option<usize>) {
        self.recall_each(self.core.to_be_recalled(but));
    }

    fn begin(&mut self, worker: usize, job: Job) {
        if job.0 >= FRESH {
            let in_hand = |older: usize| self.hands.iter().flatten().any(|job| job.0 == older);
            let passed = (self.fresh.1..job.0).step_by(2);
            let mut passed = passed.filter(|older| !self.begun.contains(older));
            let wrong = passed.find(|older| !in_hand(*older));
            assert_eq!(
                wrong, None,
                "they start in order, but for what others have in hand"
            );
            self.begun.push(job.0);
            while self.begun.contains(&self.fresh.1) {
                self.fresh.1 += 2;
            }
        }
        assert!(!self.runs.contains(&Some(job)), "never twice at once");
        self.runs[worker] = Some(job);
        self.started += 1;
    }

    fn seat(&mut self, worker: usize) {
        self.runs.resize(self.runs.len().max(worker + 1), None);
        self.hands.resize(self.runs.len(), VecDeque::new());
        self.runs[worker] = None;
    }

    fn rest(&mut self, n: usize, secs: u64) {
        self.now = self.now + Duration::from_secs(secs);
        if let Some(worker) = self.pick(n, &[State::Idle]) {
            let _ = self.core.rest(worker, self.now, Duration::from_secs(300));
        }
        // Those that were told to go do so at once.
        let gone = |w: &usize| self.core.workers[*w].state == State::Gone;
        let workers = 0..self.core.workers.len();
        let leaving: Vec<_> = workers.filter(gone).collect();
        for worker in leaving {
            if !self.core.vacant.contains(&worker) {
                let _ = self.core.rest(worker, self.now, Duration::from_secs(300));
            }
        }
    }

    fn step(&mut self, event: Event) {
        self.happen(event);
        // L1: the pool does so after these events. The others make nothing wait.
        let quiet = matches!(
            event,
            Event::Created | Event::Refused | Event::Took(_) | Event::Hasten | Event::Rest(..)
        );
        self.watched |= !quiet && self.core.waits();
        self.check();
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Push(key) => {
                self.pushed += 1;
                let action = self.core.push(Job(key));
                self.perform(action);
            }
            Event::PostFresh => {
                self.pushed += 1;
                self.letters.push_back(Job(self.fresh.0));
                self.fresh.0 += 2;
                let action = self.core.mail_came();
                self.perform(action);
            }
            Event::Keep(n) => {
                let worker = self.pick(n, &[State::Running, State::Blocked]);
                if let Some(worker) = worker.filter(|w| self.runs[*w].is_some()) {
                    self.keep(worker);
                }
            }
            Event::Next(n) => {
                if let Some(worker) = self.pick(n, &GOING) {
                    self.core.at(worker, n / 16 % 2); // Wherever that is.
                    self.next(worker);
                }
            }
            Event::Block(n) => {
                let states = [
                    State::Running,
                    State::Asleep,
                    State::Intensive,
                    State::Rescuing,
                ];
                let worker = self.pick(n, &states);
                if let Some(worker) = worker.filter(|w| self.runs[*w].is_some()) {
                    self.core.at(worker, n / 16 % 2);
                    self.recall_from(worker);
                    let action = self.core.block(worker);
                    self.perform(action);
                }
            }
            Event::Unblock(n) => {
                if let Some(worker) = self.pick(n, &[State::Blocked]) {
                    self.core.unblock(worker);
                }
            }
            Event::Created if self.asked > 0 => {
                (self.asked, self.refused) = (self.asked - 1, false);
                let worker = self.core.created();
                self.seat(worker);
            }
            Event::Refused if self.asked > 0 => {
                (self.asked, self.refused) = (self.asked - 1, true);
                let _ = self.core.create_failed();
            }
            Event::Created | Event::Refused => {}
            Event::Look(n) => {
                let suspects: Vec<_> = self.core.suspects().collect();
                self.seen.extend(suspects.get(n % suspects.len().max(1)));
            }
            Event::Found(n, asleep) if !self.seen.is_empty() => {
                let (worker, turn) = self.seen.swap_remove(n % self.seen.len());
                self.recall_from(worker);
                let action = if asleep {
                    self.core.found_asleep(worker, turn)
                } else {
                    self.core.found_intensive(worker, turn)
                };
                self.perform(action.unwrap_or(Action::None));
            }
            Event::Found(..) => {}
            Event::Took(ns) => self.core.took(ns),
            Event::Hasten => {
                self.recall(None);
                let action = self.core.hasten();
                self.perform(action);
            }
            Event::Post(key) => {
                self.pushed += 1;
                self.letters.push_back(Job(key));
                let action = self.core.mail_came();
                self.perform(action);
            }
            Event::EndWatch => self.watched = self.core.waits(),
            Event::Rest(n, secs) => self.rest(n, secs),
            Event::Attach | Event::Rescue(_) | Event::Detach(_) => self.rescue(event),
        }
    }

    fn rescue(&mut self, event: Event) {
        match event {
            Event::Attach => {
                let worker = self.core.attach();
                self.seat(worker);
            }
            Event::Rescue(n) => {
                if let Some(worker) = self.pick(n, &[State::Rescuing]) {
                    self.runs[worker] = None;
                    self.take_kept();
                    let letters = std::mem::take(&mut self.letters);
                    self.core.mail_fetched();
                    let action = self.core.push_all(letters.into_iter());
                    self.perform(action);
                    let job = self.core.rescue(worker, |job| job.0 % 2 == 0);
                    match job {
                        Some(job) => self.begin(worker, job),
                        // A rescuer that gets nothing leaves, and whom it leaves items to is woken.
                        None => {
                            let action = self.core.detach(worker);
                            self.perform(action);
                        }
                    }
                }
            }
            Event::Detach(n) => {
                if let Some(worker) = self.pick(n, &[State::Rescuing]) {
                    self.runs[worker] = None;
                    let action = self.core.detach(worker);
                    self.perform(action);
                }
            }
            _ => unreachable!("no rescuer's event"),
        }
    }

    fn check(&self) {
        let core = &self.core;
        for (worker, hand) in self.hands.iter().enumerate() {
            let runs = core.workers[worker].state == State::Running;
            assert!(hand.is_empty() || runs, "behind one that does not run");
            assert!(
                hand.is_empty() || core.visits(worker),
                "nobody would look there"
            );
        }
        // Who calls passes nobody.
        let waits = !self.letters.is_empty() || core.waiting().next().is_some();
        let waits = waits || self.hands.iter().any(|hand| !hand.is_empty());
        assert!(!(waits && core.would_wake()), "passed by a call");
        let visiting = core.to_be_recalled(None).len();
        assert_eq!(core.visits, visiting);
        let count = |s: State| core.workers.iter().filter(|w| w.state == s).count();
        assert_eq!(core.arriving, count(State::Woken));
        assert_eq!(core.running, count(State::Running) + core.arriving);
        assert_eq!(core.idle.len(), count(State::Idle));
        assert_eq!(core.creating, self.asked);
        let gone = count(State::Gone) + count(State::Rescuing);
        assert_eq!(core.alive, core.workers.len() - gone);
        assert_eq!(core.vacant.len(), count(State::Gone));
        // While there are too many, one of them keeps the time, and it is the longest idle.
        assert!(!core.has_too_many() || core.culler.is_some());
        assert!(core.culler.is_none_or(|w| core.idle.first() == Some(&w)));
        let served = core.running >= core.target || core.creating > 0 || core.arriving > 0;
        let in_want = self.refused && core.idle.is_empty();
        // Whom those that run hold back, somebody looks after, which ends all patience.
        let on_its_way = core.creating > 0 || core.arriving > 0;
        assert!(!core.waits() || on_its_way || self.watched, "unseen");
        let seen = core.waits();
        assert!(!core.has_work() || served || in_want || seen, "stranded");
    }

    /// Everything goes on to its end.
    fn finish(mut self) {
        while self.started < self.pushed {
            self.asked += usize::from(self.core.wants_first());
            if self.asked > 0 {
                self.step(Event::Created);
            }
            self.step(Event::Unblock(0));
            self.step(Event::Hasten);
            self.step(Event::Detach(0));
            for n in 0..self.core.workers.len() {
                self.step(Event::Next(n));
            }
        }
        assert_eq!(self.core.ready(), 0);
        assert_eq!(self.fresh.0, self.fresh.1);
    }
}

proptest! {
    #[test]
    fn no_order_of_events_strands_an_item(
        target in 1..4usize,
        patience in prop_oneof![Just(0), Just(1_000_u64)],
        visit in prop_oneof![1 => Just(0), 3 => Just(4_000_u64)],
        events in proptest::collection::vec(event(), 0..80),
    ) {
        let mut driver = Driver::new(target, patience, visit);
        for event in events {
            driver.step(event);
        }
        driver.finish();
    }
}
