//! The decisions of one worker pool, as a pure state machine.
//!
//! The core knows no atomics, threads or clocks. It lives behind the pool's lock; the worker
//! threads drive it in production, and a simulation can drive it in virtual time. Each event
//! returns at most one [`Action`], which the driver performs after it has let go of the lock.
//!
//! Rules, after the concurrency-managed workqueues of Linux:
//!
//! * `running` counts the workers that are neither idle nor blocked, including one that has been
//!   woken and has not arrived yet. At most `target` may run; those that come back from a block may
//!   exceed it until one of them finishes its item or a woken one arrives. Nobody is preempted.
//! * Whoever makes work or makes room brings one worker, the most recently idle first. A worker
//!   that takes an item while more wait brings the next: the chain fills the pool to its target.
//! * Where somebody looks at the pool from time to time, the second and further workers of a pool
//!   are brought only when what is ready takes longer than a wake costs, by the estimate of an
//!   item; or at the next look.
//! * A worker may take several small items at once, into its hand. Whoever comes besides and takes
//!   something, or finds it asleep, has them given back first; but several that get on take from
//!   the mail by turns.
//! * Where items are tiny one worker takes them all, as long as it gets on.
//! * There may be mail: items on their way that nobody has looked at. A worker fetches it before it
//!   rests, and from time to time.
//! * Workers that nobody needs leave, those that have been idle longest first, once they have been
//!   idle for long; two stay, and more beside many busy ones. The worker that has been idle longest
//!   keeps the time for all, and only while there are too many.
//! * A worker that is found asleep without having said so, and one that computes for long, do not
//!   count until their item has ended. What was seen of a worker in an earlier turn is nothing.
//! * A pool of BH items runs one at a time, whatever it does, and may have a poller: a worker
//!   without a thread that is called before any thread, while it comes in time (`poller.rs`).
//! * An item that is being run by another worker of the pool is put behind that worker, so that it
//!   never runs twice at once.
//!
//! * A worker that finds nothing to do may run an item of another pool, and this pool may leave an
//!   item to a worker of another one (`lending.rs`).
//!
//! Invariant: whenever the lock is free and an item is ready, `running >= target`, or a worker is
//! being created or on its way (it brings the next one), or the last attempt to create one failed
//! and no worker is idle. In the last case the pool is in distress: a blocked worker, the keeper,
//! asks again from time to time, and rescuers come for the items they stand by. Where somebody
//! looks at the pool there is one case more: somebody runs, and what is ready is little, or has a
//! better place in another pool ([`waits`](Core::waits)).

pub(crate) use poller::Called;

use inflight_sync::time::Instant;
use pace::Pace;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::time::Duration;

/// What the core needs to know of an item.
pub(crate) trait Item {
    /// Names what must not run twice at once.
    type Key: Copy + Eq + Debug;

    /// The item's name.
    fn key(&self) -> Self::Key;

    /// Whether the same thing ran on this pool when the item was queued. Only then is it looked
    /// for.
    fn may_be_running(&self) -> bool;

    /// Whether it computes for long, by its own account: it holds nobody back once it has started.
    fn is_intensive(&self) -> bool;
}

/// What the driver does after an event, outside the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a worker is waiting to be brought"]
pub(crate) enum Action {
    /// Nothing.
    None,
    /// Wake this worker: it has left the idle list and counts as running.
    Wake(usize),
    /// Start a thread that reports itself with `created`, or report with `create_failed`.
    Create,
}

/// How a worker rests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// It was woken for work: ask `next`.
    Work,
    /// The pool has no use for it any more.
    Leave,
    /// Until it is woken, or until this time.
    Sleep(Option<Instant>),
}

/// So many idle workers a pool keeps at least.
const KEPT: usize = if cfg!(loom) { 1 } else { 2 };

/// Items that take less, in ns, with what it takes to get the next one, are tiny: two workers that
/// take them from one another's hands get on no faster than one.
const TINY: u64 = 800;

/// So many items that are ready are taken before mail is fetched.
const MAIL_AFTER: u64 = 32;

/// One idle worker more may stay for so many busy ones.
const BUSY_FOR_ONE_IDLE: usize = 4;

/// What a worker does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<T> {
    /// Run this, then ask again.
    Run(T),
    /// V3: the mail is this worker's to fetch. It pushes what it finds, then asks again; or it
    /// begins a visit with it (V4).
    Fetch,
    /// It is on the idle list. It tells when ([`went_idle`](Core::went_idle)) and asks how to
    /// [`rest`](Core::rest) until an [`Action::Wake`] has named it.
    Sleep,
    /// The pool has stopped and nothing is left to run.
    Exit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    /// Woken or just created, and has not asked `next` since.
    Woken,
    Blocked,
    /// Found asleep although it had not said so. Only the transition from `Running` to one of
    /// these three lowers the count of running workers, so it is lowered once.
    Asleep,
    /// Computes for long: by its own account, or found to do so.
    Intensive,
    /// A rescuer that has come to help; it counts nowhere.
    Rescuing,
    Idle,
    Gone,
}

#[derive(Debug)]
struct Worker<T: Item> {
    state: State,
    /// What it runs. Unknown in a visit.
    current: Option<T::Key>,
    /// It has taken several items at once, and has not been back since.
    visiting: bool,
    /// Changes with each item and after each block, so that what was seen of the worker before is
    /// known to be old.
    turn: u64,
    /// How many items had been taken when it took its last one.
    taken_before: u64,
    /// It has not slept since, as far as is known.
    stayed: bool,
    /// When it went idle last.
    since: Instant,
    /// The CPU on which it was seen last.
    cpu: usize,
    /// Further runs of what it is running; nobody else may take them.
    scheduled: VecDeque<T>,
}

#[derive(Debug)]
pub(crate) struct Core<T: Item> {
    target: usize,
    ready: VecDeque<T>,
    /// There is mail: perhaps more that is ready, for whoever fetches it.
    mail: bool,
    /// When so many items have been taken mail is fetched, whatever is ready.
    mail_due: u64,
    workers: Vec<Worker<T>>,
    /// A stack: the worker that went idle last is woken first, its caches are warm.
    idle: Vec<usize>,
    /// Neither idle nor blocked: those that run and those on their way.
    running: usize,
    /// Those on their way.
    arriving: usize,
    /// Threads that have been asked for and have not arrived.
    creating: usize,
    /// The last attempt to create a worker failed.
    refused: bool,
    /// Workers that are not gone, rescuers aside.
    alive: usize,
    /// Items that workers and rescuers have taken, those of other pools too.
    taken: u64,
    /// Numbers of workers that are gone, to be used again.
    vacant: Vec<usize>,
    /// The idle worker that sleeps with a deadline, because there are too many: the one that has
    /// been idle longest. It is the last to be woken for work.
    culler: Option<usize>,
    /// The blocked worker that will ask for a thread again after a failure.
    keeper: Option<usize>,
    stopped: bool,
    /// While somebody runs, so much work, in ns, may be ready before another worker is brought.
    patience: u64,
    /// What an item takes.
    pace: Pace,
    /// Other pools have better places: nobody is brought beside those that run.
    held: bool,
    /// Of a pool of BH items: who runs them instead of a thread.
    poller: Option<poller::Poller>,
    /// Nobody stops counting before its item has ended.
    one_by_one: bool,
    /// How many items had been taken when the pool was looked at last.
    taken_before: u64,
    /// So much, in ns, a worker may take at once.
    visit: u64,
    /// Workers that have taken several items.
    visits: usize,
    /// Calls that recall what workers have in hand, and take something then.
    recalls: usize,
    /// How many items the last visit has left in the mail. A hint.
    letters: u64,
}

impl<T: Item> Worker<T> {
    fn runs(&self) -> bool {
        self.visiting || self.current.is_some()
    }
}

impl<T: Item> Core<T> {
    /// A pool whose first worker is being created.
    pub(crate) fn new(target: usize) -> Self {
        assert!(target > 0, "a pool may run something");
        Self {
            target,
            ready: VecDeque::new(),
            mail: false,
            mail_due: MAIL_AFTER,
            workers: Vec::new(),
            idle: Vec::new(),
            running: 0,
            arriving: 0,
            creating: 1,
            refused: false,
            alive: 0,
            taken: 0,
            vacant: Vec::new(),
            culler: None,
            keeper: None,
            stopped: false,
            patience: 0,
            pace: Pace::default(),
            held: false,
            poller: None,
            one_by_one: false,
            taken_before: 0,
            visit: 0,
            visits: 0,
            recalls: 0,
            letters: 0,
        }
    }

    /// So much work, in ns, may wait for a worker that runs before another one is woken for it.
    /// Only where somebody then looks at the pool ([`waits`](Core::waits)).
    pub(crate) fn be_patient(&mut self, patience: u64) {
        self.patience = patience;
        // Unknown yet: nothing waits. In a model items are short, or it would need one item more.
        self.pace = Pace::assumed(if cfg!(loom) { 0 } else { patience });
    }

    /// An item has taken so many ns.
    pub(crate) fn took(&mut self, ns: u64) {
        self.pace.took(ns);
    }

    /// Whether a worker would have to be woken, or made, for one item more: nothing waits, and a
    /// CPU is free.
    pub(crate) fn would_wake(&self) -> bool {
        !self.has_work() && self.visits == 0 && self.running < self.target
    }

    /// Something is ready, or may be when the mail has been fetched.
    fn has_work(&self) -> bool {
        self.mail || !self.ready.is_empty()
    }

    /// Items have waited long enough for those that run.
    pub(crate) fn hasten(&mut self) -> Action {
        self.hasten_near(None)
    }

    fn hasten_near(&mut self, cpu: Option<usize>) -> Action {
        if !self.has_work() || self.running >= self.target {
            return Action::None;
        }
        self.bring(cpu)
    }

    /// L1: from now on the pool is looked at.
    pub(crate) fn begin_looks(&mut self) {
        self.taken_before = self.taken;
    }

    /// L4: a look finds items that have waited for those that run. A worker is brought, unless they
    /// are tiny and those that run get on with them.
    pub(crate) fn look(&mut self) -> Action {
        let gets_on = std::mem::replace(&mut self.taken_before, self.taken) != self.taken;
        if gets_on && self.running > 0 && self.is_tiny() {
            return Action::None;
        }
        self.hasten()
    }

    /// Whether what is ready is too little to wake somebody for, beside those that run.
    fn is_patient(&self) -> bool {
        let ready = self.ready.len() as u64 + self.letters();
        let little = ready.saturating_mul(self.pace.estimate()) < self.patience;
        self.running > 0 && (self.held || little || self.is_tiny())
    }

    /// Whether one worker gets on as fast as two would.
    fn is_tiny(&self) -> bool {
        self.pace.estimate() < TINY && self.patience > 0
    }

    /// Whether the worker is back after an item and goes: items are tiny, and while it ran one
    /// others have taken some, who run on.
    pub(crate) fn gives_way(&self, me: usize) -> bool {
        let worker = &self.workers[me];
        let was_here = worker.state == State::Running && worker.runs();
        let others_get_on = self.is_tiny() && self.taken > worker.taken_before;
        was_here && others_get_on && self.running - self.arriving > 1 && !self.stopped
    }

    /// V1: there is mail for the pool.
    pub(crate) fn mail_came(&mut self) -> Action {
        self.mail = true;
        self.mail_due = self.mail_due.min(self.taken + MAIL_AFTER);
        self.kick()
    }

    /// V3: there is more where some was fetched. What that has made ready comes first. The caller
    /// asks `next`, which brings whom it takes.
    pub(crate) fn mail_is_left(&mut self) {
        let ready = self.ready.len() as u64;
        self.mail_due = self.taken + ready.max(MAIL_AFTER);
        self.mail = true;
    }

    /// Whether mail is to be fetched: when nothing else is ready, and from time to time, because
    /// what is ready may never end.
    fn wants_mail(&self) -> bool {
        self.mail && (self.ready.is_empty() || self.taken >= self.mail_due)
    }

    /// V4: the mail is left where it is, for others too, until somebody finds that it was all.
    pub(crate) fn mail_stays(&mut self) {
        self.mail = true;
    }

    /// V2, V3: the mail is in the caller's hands, who pushes what it finds.
    pub(crate) fn mail_fetched(&mut self) {
        self.mail = false;
        self.letters = 0;
        self.mail_due = self.taken + MAIL_AFTER;
    }

    /// Several items have come that may run now.
    pub(crate) fn push_all(&mut self, items: impl Iterator<Item = T>) -> Action {
        self.ready.extend(items);
        self.kick()
    }

    /// An item that may run now has come.
    pub(crate) fn push(&mut self, item: T) -> Action {
        self.ready.push_back(item);
        self.kick()
    }

    /// Takes an item out that no worker has taken yet.
    pub(crate) fn remove(&mut self, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let lists = self.workers.iter_mut().map(|w| &mut w.scheduled);
        for list in std::iter::once(&mut self.ready).chain(lists) {
            if let Some(at) = list.iter().position(&wanted) {
                return list.remove(at);
            }
        }
        None
    }

    /// A thread has arrived to be a worker. It counts as running and asks `next`.
    pub(crate) fn created(&mut self) -> usize {
        self.creating = self.creating.saturating_sub(1);
        self.refused = false;
        let me = self.add(State::Gone);
        self.alive += 1;
        self.set_off(me);
        me
    }

    fn add(&mut self, state: State) -> usize {
        let worker = Worker {
            state,
            current: None,
            visiting: false,
            turn: 0,
            taken_before: 0,
            stayed: false,
            since: Instant::default(),
            cpu: 0,
            scheduled: VecDeque::new(),
        };
        match self.vacant.pop() {
            Some(number) => {
                self.workers[number] = worker;
                number
            }
            None => {
                self.workers.push(worker);
                self.workers.len() - 1
            }
        }
    }

    /// A pool that has never had a worker wants one. `false` if it has one or one is being created.
    pub(crate) fn wants_first(&mut self) -> bool {
        let ordinary = |w: &Worker<T>| !matches!(w.state, State::Gone | State::Rescuing);
        let wants = self.creating == 0 && !self.workers.iter().any(ordinary);
        self.creating += usize::from(wants);
        wants
    }

    /// The thread could not be started. Each later event asks again. Returns the workers that are
    /// to look whether one of them can [`keep`](Core::keep) asking.
    pub(crate) fn create_failed(&mut self) -> Vec<usize> {
        self.creating = self.creating.saturating_sub(1);
        self.refused = true;
        if !self.is_short() || self.keeper.is_some() {
            return Vec::new();
        }
        let blocked = |w: &usize| self.workers[*w].state == State::Blocked;
        (0..self.workers.len()).filter(blocked).collect()
    }

    /// A blocked worker asks again, without another event.
    pub(crate) fn ask_again(&mut self) -> Action {
        self.kick()
    }

    /// A blocked worker, whose request has failed, offers to ask again later. `false` if nobody
    /// needs to: somebody else does, or no worker is missing any more.
    pub(crate) fn keep(&mut self, me: usize) -> bool {
        if !self.is_short() || self.keeper.is_some() {
            return false;
        }
        self.keeper = Some(me);
        true
    }

    /// The keeper is about to ask.
    pub(crate) fn end_keeping(&mut self) {
        self.keeper = None;
    }

    /// Whether items wait because the pool can get no worker for them.
    pub(crate) fn is_in_distress(&self) -> bool {
        let wanted = self.has_work() && self.running < self.target;
        self.refused && wanted && self.idle.is_empty()
    }

    /// What no worker has taken, oldest first.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &T> {
        self.ready.iter()
    }

    /// A rescuer comes to help. It does not count as running.
    pub(crate) fn attach(&mut self) -> usize {
        self.add(State::Rescuing)
    }

    /// The rescuer has finished what it ran, if anything, and asks for the next item of its kind.
    /// It gets none once the pool can help itself.
    pub(crate) fn rescue(&mut self, me: usize, wanted: impl Fn(&T) -> bool) -> Option<T> {
        self.release(me);
        while self.is_in_distress() {
            let at = self.ready.iter().position(&wanted)?;
            let item = self.ready.remove(at)?;
            match self.runner_of(&item) {
                Some(other) => self.workers[other].scheduled.push_back(item),
                None => {
                    self.workers[me].current = Some(item.key());
                    self.taken += 1;
                    return Some(item);
                }
            }
        }
        None
    }

    /// The rescuer leaves. What waits is the pool's own business again.
    pub(crate) fn detach(&mut self, me: usize) -> Action {
        self.release(me);
        self.workers[me].state = State::Gone;
        self.vacant.push(me);
        self.kick()
    }

    /// The worker runs nothing any more: what waited behind it, because it ran the same thing, may
    /// be taken by anybody.
    fn release(&mut self, me: usize) {
        self.end_visit(me);
        self.workers[me].current = None;
        while let Some(item) = self.workers[me].scheduled.pop_back() {
            self.ready.push_front(item);
        }
    }

    /// The worker has finished what it ran, if anything, and asks for more.
    pub(crate) fn next(&mut self, me: usize) -> (Next<T>, Action) {
        let next = self.take(me);
        // A chain: who takes an item brings the next worker.
        let action = match &next {
            Next::Run(_) => self.kick(),
            // It may have left what waits to the poller.
            Next::Sleep if self.poller.is_some() => self.kick(),
            Next::Fetch | Next::Sleep | Next::Exit => Action::None,
        };
        (next, action)
    }

    /// The worker is on a CPU and counts.
    fn arrive(&mut self, me: usize) {
        if self.workers[me].state == State::Woken {
            self.workers[me].state = State::Running;
            self.arriving -= 1;
        }
        if matches!(self.workers[me].state, State::Asleep | State::Intensive) {
            self.workers[me].state = State::Running;
            self.running += 1;
        }
    }

    /// As `next`, and nobody else is brought.
    pub(crate) fn take(&mut self, me: usize) -> Next<T> {
        let gives_way = self.gives_way(me);
        self.arrive(me);
        debug_assert_eq!(self.workers[me].state, State::Running);
        self.release(me);
        let one_too_many = gives_way || self.is_too_many(me) || self.yields_to_poller();
        // A stopped pool has nothing left to run, and nobody to wake who parks.
        if one_too_many && !self.stopped {
            return self.park(me);
        }
        if let Some(item) = self.take_ready(me) {
            return Next::Run(item);
        }
        if self.mail {
            self.mail_fetched();
            return Next::Fetch;
        }
        if self.stopped {
            self.running -= 1;
            self.alive -= 1;
            self.workers[me].state = State::Gone;
            return Next::Exit;
        }
        self.park(me)
    }

    /// The first that is ready and does not run, for this worker; unless mail comes first.
    fn take_ready(&mut self, me: usize) -> Option<T> {
        while !self.wants_mail() {
            let item = self.ready.pop_front()?;
            match self.runner_of(&item) {
                Some(other) => self.workers[other].scheduled.push_back(item),
                None => {
                    self.begin(me, &item);
                    return Some(item);
                }
            }
        }
        None
    }

    /// The item is in the worker's hand, who runs it at once.
    fn begin(&mut self, me: usize, item: &T) {
        let worker = &mut self.workers[me];
        worker.current = Some(item.key());
        worker.turn += 1;
        self.taken += 1;
        worker.taken_before = self.taken;
        worker.stayed = true;
        if item.is_intensive() && !self.one_by_one {
            worker.state = State::Intensive;
            self.running -= 1;
        }
    }

    /// The worker's item is about to sleep: another worker may run.
    pub(crate) fn block(&mut self, me: usize) -> Action {
        self.workers[me].stayed = false;
        match self.workers[me].state {
            State::Running => {
                self.workers[me].state = State::Blocked;
                self.running -= 1;
            }
            // It has been found asleep before and does not count.
            State::Asleep => self.workers[me].state = State::Blocked,
            state => debug_assert!(matches!(state, State::Intensive | State::Rescuing)),
        }
        self.kick_near(Some(self.workers[me].cpu))
    }

    /// The worker is back on its CPU. It goes on even if that makes one too many.
    pub(crate) fn unblock(&mut self, me: usize) {
        self.workers[me].turn += 1;
        if self.workers[me].state == State::Blocked {
            self.workers[me].state = State::Running;
            self.running += 1;
        }
    }

    /// Whether items wait only because others run. A worker on its way holds nothing back.
    pub(crate) fn waits(&self) -> bool {
        let here = self.running - self.arriving;
        let held = here >= self.target || (here > 0 && self.patience > 0);
        (self.has_work() || self.visits > 0) && held && !self.stopped
    }

    /// The workers that hold back what waits, each with the turn in which it does.
    pub(crate) fn suspects(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let workers = self.workers.iter().enumerate();
        workers
            .filter(|(_, w)| w.state == State::Running && w.runs())
            .map(|(number, w)| (number, w.turn))
    }

    /// In that turn the worker was seen asleep. `None` if that is old news.
    pub(crate) fn found_asleep(&mut self, worker: usize, turn: u64) -> Option<Action> {
        self.uncount(worker, turn, State::Asleep)
    }

    /// In that turn the worker has computed for long. `None` if that is old news.
    pub(crate) fn found_intensive(&mut self, worker: usize, turn: u64) -> Option<Action> {
        self.uncount(worker, turn, State::Intensive)
    }

    fn uncount(&mut self, number: usize, turn: u64, state: State) -> Option<Action> {
        let worker = &mut self.workers[number];
        if worker.state != State::Running || worker.turn != turn {
            return None;
        }
        worker.state = state;
        worker.stayed = false;
        let cpu = worker.cpu;
        self.running -= 1;
        Some(self.kick_near(Some(cpu)))
    }

    /// Nothing is left: no item, no mail, and nobody who runs, comes or helps.
    pub(crate) fn is_quiet(&self) -> bool {
        let away = |w: &Worker<T>| matches!(w.state, State::Idle | State::Gone);
        !self.has_work() && self.creating == 0 && self.workers.iter().all(away)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Nothing more will be pushed. Workers leave when nothing is ready; the idle ones are to be
    /// woken.
    pub(crate) fn stop(&mut self) -> Vec<usize> {
        self.stopped = true;
        self.mail = false;
        let woken = std::mem::take(&mut self.idle);
        self.culler = None;
        for &worker in &woken {
            self.set_off(worker);
        }
        woken
    }

    /// The worker that `next` has sent to sleep does so now. Returns the worker that is to be told
    /// to sleep with a deadline from now on, if there have become too many.
    pub(crate) fn went_idle(&mut self, me: usize, now: Instant) -> Option<usize> {
        self.workers[me].since = now;
        if self.culler.is_some() || !self.has_too_many() {
            return None;
        }
        self.culler = self.idle.first().copied();
        self.culler
    }

    /// An idle worker looks what to do: before it sleeps, and when it has been woken or its time is
    /// up. The worker with the deadline sends home those that have been idle for `timeout`, as long
    /// as there are too many. Returns also those that are to be woken for that.
    pub(crate) fn rest(
        &mut self,
        me: usize,
        now: Instant,
        timeout: Duration,
    ) -> (Rest, Vec<usize>) {
        let mut woken = Vec::new();
        if self.culler == Some(me) {
            self.culler = None;
            while self.has_too_many() && self.workers[self.idle[0]].since + timeout <= now {
                let coldest = self.idle.remove(0);
                self.workers[coldest].state = State::Gone;
                self.alive -= 1;
                woken.push(coldest);
            }
            if self.has_too_many() {
                self.culler = Some(self.idle[0]);
                woken.push(self.idle[0]);
            }
            woken.retain(|w| *w != me);
        }
        let rest = match self.workers[me].state {
            State::Idle => {
                let worker = &self.workers[me];
                Rest::Sleep((self.culler == Some(me)).then(|| worker.since + timeout))
            }
            State::Gone => {
                // Only now its number may be given away: it has been asking under it.
                self.vacant.push(me);
                Rest::Leave
            }
            _ => Rest::Work,
        };
        (rest, woken)
    }

    /// The idle rule of cmwq: two, and one more for each four busy ones.
    fn has_too_many(&self) -> bool {
        let (idle, busy) = (self.idle.len(), self.alive - self.idle.len());
        idle > KEPT && (idle - KEPT) * BUSY_FOR_ONE_IDLE >= busy
    }

    pub(crate) fn ready(&self) -> usize {
        let scheduled: usize = self.workers.iter().map(|w| w.scheduled.len()).sum();
        self.ready.len() + scheduled
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    pub(crate) fn is_creating(&self) -> bool {
        self.creating > 0
    }

    pub(crate) fn running(&self) -> usize {
        self.running
    }

    pub(crate) fn target(&self) -> usize {
        self.target
    }

    /// What each worker does, by number.
    pub(crate) fn states(&self) -> impl Iterator<Item = State> + '_ {
        self.workers.iter().map(|w| w.state)
    }

    /// Each worker that is not gone: its number, what it does, and its turn.
    pub(crate) fn workers(&self) -> impl Iterator<Item = (usize, State, u64)> + '_ {
        let workers = self.workers.iter().enumerate();
        workers
            .filter(|(_, w)| w.state != State::Gone)
            .map(|(number, w)| (number, w.state, w.turn))
    }

    /// Whether a worker is missing and none is on its way.
    fn is_short(&self) -> bool {
        let wanted = self.has_work() && self.running < self.target;
        wanted && self.idle.is_empty() && self.creating == 0
    }

    /// Brings a worker if one is needed.
    fn kick(&mut self) -> Action {
        self.kick_near(None)
    }

    /// As `kick`, where that CPU is about to have nothing to do.
    fn kick_near(&mut self, cpu: Option<usize>) -> Action {
        if self.is_patient() {
            return Action::None;
        }
        self.hasten_near(cpu)
    }

    /// Wakes a worker, if possible one that was on that CPU last, or has one created.
    fn bring(&mut self, cpu: Option<usize>) -> Action {
        if let Some(call) = self.call_poller() {
            return call;
        }
        if let Some(worker) = self.take_idle(cpu) {
            if self.culler == Some(worker) {
                self.culler = None; // Nobody is idle any more.
            }
            self.set_off(worker);
            return Action::Wake(worker);
        }
        if !self.may_create() {
            return Action::None;
        }
        self.creating += 1;
        Action::Create
    }

    /// One thread at a time, which brings the next when it takes its first item; but where more
    /// may run and items would wait for long, as many as there is work and room for.
    fn may_create(&self) -> bool {
        if self.creating == 0 {
            return true;
        }
        let room = self.alive > 0 && self.running + self.creating < self.target;
        let work = self.ready.len() + usize::from(self.mail);
        let left = work.saturating_sub(self.creating) as u64;
        room && left > 0 && left.saturating_mul(self.pace.estimate()) >= self.patience
    }

    /// A worker that has left the idle list, or is new, is on its way to `next`.
    fn set_off(&mut self, worker: usize) {
        self.workers[worker].state = State::Woken;
        self.running += 1;
        self.arriving += 1;
    }

    fn park(&mut self, me: usize) -> Next<T> {
        self.workers[me].state = State::Idle;
        self.workers[me].stayed = false;
        self.running -= 1;
        self.idle.push(me);
        Next::Sleep
    }

    /// The worker that is running the same thing as `item`. The caller runs nothing.
    fn runner_of(&self, item: &T) -> Option<usize> {
        if !item.may_be_running() {
            return None;
        }
        self.who_runs(item.key())
    }

    fn who_runs(&self, key: T::Key) -> Option<usize> {
        let may_run = |w: &Worker<T>| w.visiting || w.current == Some(key);
        self.workers.iter().position(may_run)
    }

    /// Whether some worker may be running that. The caller runs nothing.
    pub(crate) fn may_run(&self, key: T::Key) -> bool {
        self.who_runs(key).is_some()
    }
}

mod lending;
mod near;
mod pace;
#[cfg(all(test, not(any(loom, shuttle))))]
mod polled;
mod poller;
#[cfg(all(test, not(any(loom, shuttle))))]
mod properties;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
#[cfg(all(test, not(any(loom, shuttle))))]
mod timelines;
mod visits;
