//! Random orders of events against lists of what was queued, taken and ended.
//!
//! All events are sections of one lock, so these orders are all that can happen to a core.

use super::*;
use crate::pool_core::wake_or_create::WAKE_NS;
use std::cell::Cell;
use std::collections::VecDeque;

mod check;

/// A pwq of the shared limit in another pool.
const FOREIGN: PwqId = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Free,
    Unmanaged,
    Own(usize),
    Shared,
}

const KINDS: [Kind; 5] = [
    Kind::Free,
    Kind::Own(1),
    Kind::Own(2),
    Kind::Shared,
    Kind::Shared,
];

/// What is known of a pwq without asking the core.
#[derive(Default)]
struct Queue {
    /// Numbers of entries that have not been taken, in order.
    waiting: VecDeque<usize>,
    /// All entries that have not ended, by number, with the number of flushes begun before them.
    in_flight: BTreeMap<usize, usize>,
    stopped: bool,
    max: usize,
    /// Slots in use at the event before.
    used: usize,
    /// Entries that are parked in their items, with a slot each.
    parked: usize,
    inline: Vec<(u8, usize)>,
    /// Flushes that are not over: the number, and how many flushes had begun before it.
    flushes: Vec<(FlushNumber, usize)>,
    begun: usize,
    busy: bool,
    queued: u64,
    ended: u64,
    cancelled: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Free,
    Coming,
    Active,
    Idle,
}

struct Thread<'a> {
    phase: Phase,
    guest: bool,
    flags: u8,
    batch: Vec<(PwqIndex, Entry<'a>)>,
}

struct Driver<'a> {
    core: PoolCore<Entry<'a>>,
    kinds: Vec<Kind>,
    queues: Vec<Queue>,
    shared: Arc<NrActive>,
    shared_max: usize,
    /// Slots on their way, and those in another pool.
    grants: Vec<PwqId>,
    foreign: usize,
    foreign_waits: bool,
    threads: Vec<Thread<'a>>,
    parked: Vec<(PwqIndex, Entry<'a>)>,
    positions: &'a [Cell<u32>],
    pushed: usize,
    ran: Vec<bool>,
    now: u64,
    /// The worker that lingers.
    lingers: Option<WorkerId>,
    /// Whether the timer watches the pool.
    watched: bool,
}

impl<'a> Driver<'a> {
    fn new(target: usize, kinds: &[Kind], batching: bool, positions: &'a [Cell<u32>]) -> Self {
        let mut core = PoolCore::new(target);
        core.set_batching(batching);
        let shared = Arc::new(NrActive::new(2));
        let mut queues = Vec::new();
        for (id, kind) in (0..).zip(kinds) {
            let max = if let Kind::Own(max) = *kind {
                max
            } else {
                usize::MAX
            };
            let limit = match *kind {
                Kind::Shared => Limit::Shared(shared.clone()),
                Kind::Free | Kind::Unmanaged | Kind::Own(_) => Limit::own(max),
            };
            let index = core.add_pwq(id, limit, *kind == Kind::Unmanaged);
            assert_eq!(index, id);
            core.pwq_mut(index).counted = true;
            queues.push(Queue {
                max,
                ..Queue::default()
            });
        }
        Self {
            core,
            kinds: kinds.to_vec(),
            queues,
            shared,
            shared_max: 2,
            grants: Vec::new(),
            foreign: 0,
            foreign_waits: false,
            threads: Vec::new(),
            parked: Vec::new(),
            positions,
            pushed: 0,
            ran: Vec::new(),
            now: 0,
            lingers: None,
            watched: false,
        }
    }

    /// The `n`-th worker for which `is` is true.
    fn pick(&self, n: usize, is: impl Fn(&Thread<'a>) -> bool) -> Option<WorkerId> {
        let all = self.threads.iter().enumerate();
        let all: Vec<_> = all.filter(|(_, t)| is(t)).map(|(w, _)| w).collect();
        (!all.is_empty()).then(|| all[n % all.len()])
    }

    fn set(&mut self, worker: WorkerId, phase: Phase, guest: bool) {
        if self.threads.len() <= worker {
            assert_eq!(self.threads.len(), worker);
            self.threads.push(Thread {
                phase: Phase::Free,
                guest,
                flags: 0,
                batch: Vec::new(),
            });
        }
        let thread = &mut self.threads[worker];
        assert!(thread.batch.is_empty() || phase == Phase::Active);
        (thread.phase, thread.guest) = (phase, guest);
    }

    fn push(&mut self, at: usize) {
        let index = at as PwqIndex;
        let number = self.pushed;
        let entry = Entry {
            number,
            colour: 0,
            position: Some(&self.positions[number]),
        };
        self.pushed += 1;
        self.ran.push(false);
        let queue = &mut self.queues[at];
        let busy = self.core.push(index, |colour| Entry { colour, ..entry });
        assert_eq!(busy, !queue.busy, "it is busy from its first entry on");
        queue.busy = true;
        queue.waiting.push_back(number);
        queue.in_flight.insert(number, queue.begun);
        queue.queued += 1;
    }

    fn cancel(&mut self, at: usize, n: usize) {
        let queue = &mut self.queues[at];
        if queue.waiting.is_empty() {
            return;
        }
        let number = queue.waiting.remove(n % queue.waiting.len()).unwrap();
        queue.in_flight.remove(&number);
        queue.cancelled += 1;
        let position = self.positions[number].get();
        let is_it = |entry: &Entry<'_>| entry.number == number;
        assert!(self.core.is_at(at as PwqIndex, position, is_it));
        self.core.remove(at as PwqIndex, position);
    }

    /// The worker, which has nothing to do, lingers before it sleeps.
    fn linger(&mut self, free: Option<WorkerId>) {
        let may = self.lingers.is_none() && !self.core.has_waiting();
        if may && !self.core.workers.are_too_many() {
            self.lingers = free;
            self.core.workers.set_lingering(free.is_some());
        }
    }

    fn take(&mut self, worker: WorkerId) {
        if self.lingers == Some(worker) {
            self.lingers = None;
            self.core.workers.set_lingering(false);
        }
        if self.core.workers.are_too_many() {
            return;
        }
        let mut batch = Vec::new();
        let count = self.core.take(worker, |pwq, places| {
            batch.extend(places.iter().flatten().map(|&entry| (pwq, entry)));
        });
        assert_eq!(count, batch.len());
        assert!(count <= crate::batch::BATCH_MAX as usize);
        let unmanaged = |pwq: PwqIndex| self.kinds[pwq as usize] == Kind::Unmanaged;
        for (pwq, entry) in &batch {
            assert!(count == 1 || !unmanaged(*pwq));
            let queue = &mut self.queues[*pwq as usize];
            assert!(!queue.stopped, "nothing is taken from it");
            assert_eq!(queue.waiting.pop_front(), Some(entry.number), "in order");
            assert!(!self.ran[entry.number], "once");
        }
        let thread = &mut self.threads[worker];
        if batch.first().is_some_and(|(pwq, _)| unmanaged(*pwq)) {
            thread.flags |= INTENSIVE;
        }
        thread.batch = batch;
    }

    fn ended(&mut self, pwq: PwqIndex, entry: Entry<'a>) {
        assert!(!std::mem::replace(&mut self.ran[entry.number], true));
        let queue = &mut self.queues[pwq as usize];
        queue.in_flight.remove(&entry.number);
        queue.ended += 1;
        self.core.ended(pwq, entry.colour, 1, 1);
    }

    fn end_batch(&mut self, worker: WorkerId) {
        for (pwq, entry) in std::mem::take(&mut self.threads[worker].batch) {
            self.ended(pwq, entry);
        }
        self.core.release_held(worker, None);
        self.core.workers.clear_flags(worker);
        self.threads[worker].flags = 0;
    }

    /// Entry `i` of the batch stays; those before it have ended, the rest is put back.
    fn split_at(&mut self, worker: WorkerId, i: usize) -> (PwqIndex, Entry<'a>) {
        let mut batch = std::mem::take(&mut self.threads[worker].batch);
        for (pwq, entry) in batch.drain(i + 1..).rev() {
            self.queues[pwq as usize].waiting.push_front(entry.number);
            self.core.put_back(pwq, entry);
        }
        let parked = batch.pop().unwrap();
        for (pwq, entry) in batch {
            self.ended(pwq, entry);
        }
        parked
    }

    /// The worker blocks in entry `i`, or finds that its item runs elsewhere. In the second case it
    /// continues, and what was found about it is cleared.
    fn stop_at(&mut self, worker: WorkerId, i: usize, parks: bool) {
        let (pwq, entry) = self.split_at(worker, i);
        if parks {
            self.core.transfer_slot(worker, pwq);
            self.core.release_held(worker, None);
            self.queues[pwq as usize].parked += 1;
            self.parked.push((pwq, entry));
            self.core.workers.clear_flags(worker);
            self.threads[worker].flags = 0;
        } else {
            self.core.release_held(worker, Some(pwq));
            self.flag(worker, BLOCKED, true);
            self.threads[worker].batch.push((pwq, entry));
        }
    }

    /// A parked entry is put back, or was cancelled.
    fn unpark(&mut self, n: usize, cancelled: bool) {
        if self.parked.is_empty() {
            return;
        }
        let (pwq, entry) = self.parked.remove(n % self.parked.len());
        let queue = &mut self.queues[pwq as usize];
        queue.parked -= 1;
        if cancelled {
            queue.in_flight.remove(&entry.number);
            queue.cancelled += 1;
            self.core.cancelled(pwq, entry.colour);
            self.core.release_slot(pwq);
        } else {
            queue.waiting.push_front(entry.number);
            self.core.unpark(pwq, entry);
        }
    }

    fn flag(&mut self, worker: WorkerId, flag: u8, on: bool) {
        self.core.workers.set_flag(worker, flag, on);
        let thread = &mut self.threads[worker];
        thread.flags = if on {
            thread.flags | flag
        } else {
            thread.flags & !flag
        };
    }

    fn stop(&mut self, at: usize, stopped: bool) {
        self.queues[at].stopped = stopped;
        self.core
            .set_stopped(at as PwqIndex, |pwq| pwq.frozen = stopped);
    }

    fn resize(&mut self, at: usize, max: usize) {
        match self.kinds[at] {
            Kind::Own(_) => {
                self.queues[at].max = max;
                self.core.set_max(at as PwqIndex, max);
            }
            Kind::Shared => {
                self.shared_max = max;
                self.shared.set_max(max);
                for at in 0..self.kinds.len() {
                    if self.kinds[at] == Kind::Shared {
                        self.core.set_max(at as PwqIndex, max);
                    }
                }
                self.grants
                    .extend(std::iter::from_fn(|| self.shared.next()));
            }
            Kind::Free | Kind::Unmanaged => {}
        }
    }

    fn flush(&mut self, at: usize) {
        let queue = &mut self.queues[at];
        match self.core.pwq_mut(at as PwqIndex).begin_flush() {
            None => assert!(
                queue.in_flight.is_empty(),
                "there was something to wait for"
            ),
            Some(flush) => {
                queue.flushes.push((flush, queue.begun));
                queue.begun += 1;
            }
        }
    }

    fn begin_inline(&mut self, at: usize) {
        let index = at as PwqIndex;
        if let Some(colour) = self.core.begin_inline(index) {
            let queue = &mut self.queues[at];
            assert!(queue.waiting.is_empty() && !queue.stopped, "it overtakes");
            let number = self.pushed;
            self.pushed += 1;
            self.ran.push(true);
            queue.busy = true;
            queue.inline.push((colour, number));
            queue.in_flight.insert(number, queue.begun);
            queue.queued += 1;
        }
    }

    fn end_inline(&mut self, at: usize) {
        if let Some((colour, number)) = self.queues[at].inline.pop() {
            self.queues[at].in_flight.remove(&number);
            self.queues[at].ended += 1;
            self.core.end_inline(at as PwqIndex, colour);
        }
    }

    /// A slot arrives at its pwq.
    fn grant(&mut self, n: usize) {
        if self.grants.is_empty() {
            return;
        }
        let id = self.grants.swap_remove(n % self.grants.len());
        if id == FOREIGN {
            (self.foreign, self.foreign_waits) = (self.foreign + 1, false);
        } else {
            self.core.grant(id);
        }
    }

    fn act(&mut self, event: u8, a: usize, b: usize) {
        let at = a % self.queues.len();
        let busy = |t: &Thread<'_>| t.phase == Phase::Active && !t.batch.is_empty();
        let runs = |t: &Thread<'_>| busy(t) && t.flags & BLOCKED == 0;
        let is_free = |t: &Thread<'_>| t.phase == Phase::Active && t.batch.is_empty();
        let pick = |is: &dyn Fn(&Thread<'a>) -> bool| self.pick(a, is);
        match event {
            0..=5 => (0..=b % 4).for_each(|_| self.push(at)),
            6 => self.cancel(at, b),
            7..=11 => {
                if let Some(worker) = pick(&|t| is_free(t)) {
                    self.take(worker);
                    let is_over = self.threads[worker].batch.is_empty();
                    if is_over && self.threads[worker].guest {
                        self.core.workers.remove(worker);
                        self.set(worker, Phase::Free, false);
                    } else if is_over {
                        self.now += 1;
                        self.core.workers.enter_idle(worker, self.now);
                        self.set(worker, Phase::Idle, false);
                    }
                }
            }
            12..=15 => {
                if let Some(worker) = pick(&|t| runs(t)) {
                    self.end_batch(worker);
                }
            }
            16..=18 => {
                if let Some(worker) = pick(&|t| runs(t)) {
                    let i = b % self.threads[worker].batch.len();
                    self.stop_at(worker, i, event == 18);
                }
            }
            19 | 20 => {
                if let Some(worker) = pick(&|t| t.flags & BLOCKED != 0) {
                    self.flag(worker, BLOCKED, false);
                }
            }
            21 | 22 => {
                if let Some(worker) = pick(&|t| runs(t)) {
                    self.flag(worker, [ASLEEP, INTENSIVE][b % 2], true);
                }
            }
            23..=26 => {
                if let Some(worker) = pick(&|t| t.phase == Phase::Coming) {
                    self.core.workers.arrive(worker);
                    self.set(worker, Phase::Active, false);
                }
            }
            27 => {
                let creating = |w: &WorkerId| self.core.workers.phase(*w) == WorkerPhase::Creating;
                let coming = pick(&|t| t.phase == Phase::Coming).filter(creating);
                if let Some(worker) = coming {
                    self.core.workers.remove(worker);
                    self.set(worker, Phase::Free, false);
                }
            }
            28 => self.stop(at, true),
            29 | 30 => self.stop(at, false),
            31 => self.resize(at, 1 + b % 4),
            32..=34 => self.grant(a),
            35 => self.unpark(a, b % 3 == 0),
            36 => self.flush(at),
            37 => self.begin_inline(at),
            38 => self.end_inline(at),
            39 if self.core.has_waiting() => {
                let guest = self.core.workers.attach();
                self.set(guest, Phase::Active, true);
            }
            40 => self.core.note_service(b as u64 % 50_000),
            41 => self.core.bring_to_front(at as PwqIndex),
            42 if !self.foreign_waits => {
                if self.shared.acquire(FOREIGN) {
                    self.foreign += 1;
                } else {
                    self.foreign_waits = true;
                }
            }
            44 | 45 => self.linger(pick(&|t| is_free(t) && !t.guest && t.flags == 0)),
            43 if self.foreign > 0 => {
                self.foreign -= 1;
                self.grants.extend(self.shared.release());
            }
            _ => {}
        }
    }

    /// An event, its deferred actions, and the workers that it wakes.
    fn step(&mut self, event: u8, a: usize, b: usize) {
        self.act(event, a, b);
        self.unlock(b % 2 == 0);
        self.check();
    }

    /// Entries that could begin: one of each listed pwq, and as many more as slots are free.
    fn ready(&self) -> usize {
        let of = |(at, queue): (usize, &Queue)| {
            let pwq = self.core.pwq(at as PwqIndex);
            let more = match pwq.limit {
                Limit::Own { max, used } => max.saturating_sub(used),
                Limit::Shared(_) => {
                    let (nr, max) = self.shared.level();
                    max.saturating_sub(nr)
                }
            };
            queue
                .waiting
                .len()
                .min(usize::from(pwq.listed) * more.saturating_add(1))
        };
        self.queues.iter().enumerate().map(of).sum()
    }

    fn unlock(&mut self, now: bool) {
        for deferred in self.core.drain_deferred().collect::<Vec<_>>() {
            match deferred {
                Deferred::Slot(_, id) => self.grants.push(id),
                Deferred::Flushed(index, over) => {
                    let queue = &mut self.queues[index as usize];
                    let before = queue.flushes.len();
                    queue.flushes.retain(|(flush, _)| *flush >= over);
                    assert!(queue.flushes.len() < before || before == 0);
                }
                Deferred::Idle(index, counted) => {
                    let queue = &mut self.queues[index as usize];
                    assert!(counted && queue.busy && queue.in_flight.is_empty());
                    queue.busy = false;
                }
            }
        }
        let running = self.core.workers.nr_running();
        let (coming, target) = (self.core.workers.nr_takers(), self.core.workers.target());
        let listed = self.core.listed();
        let little = listed as u64 * self.core.service_ns() < WAKE_NS;
        let left_to_those_who_run = !now && running > 0 && little;
        let wanted = self.ready() > coming && running < target && !left_to_those_who_run;
        let action = self.core.need_worker(now);
        assert_eq!(
            action != WakeAction::None,
            wanted,
            "{listed} {running} {coming}"
        );
        // Listed entries are left only to running workers that are watched, or to one that lingers.
        let left = listed > 0 && action == WakeAction::None;
        self.watched = listed > 0 && (self.watched || left && !self.core.workers.is_lingering());
        if left && !self.watched {
            let lingers = &self.threads[self.lingers.expect("nobody watches")];
            assert!(lingers.phase == Phase::Active && lingers.batch.is_empty());
        }
        match action {
            WakeAction::None => {}
            WakeAction::Wake(worker) => {
                assert_eq!(self.threads[worker].phase, Phase::Idle);
                self.set(worker, Phase::Coming, false);
            }
            WakeAction::Create(worker) => {
                let idle = |t: &Thread<'_>| t.phase == Phase::Idle;
                assert!(!self.threads.iter().any(idle), "somebody could be woken");
                self.set(worker, Phase::Coming, false);
            }
        }
    }
}

const MOST: usize = 400;

proptest! {
    /// No entry is lost or runs twice. There are never more batches of a pwq than it has slots.
    /// Listed entries have a worker that runs or is being woken for them, while another one may
    /// run. Flushes end in their order and not too early. At the end everything is free.
    #[test]
    fn no_order_of_events_strands_an_entry(
        (target, batching) in (1..5usize, any::<bool>()),
        kinds in proptest::sample::subsequence(&KINDS[..], 1..=KINDS.len()),
        unmanaged in any::<bool>(),
        events in proptest::collection::vec((0..46u8, any::<usize>(), any::<usize>()), 0..MOST),
    ) {
        let positions: Vec<_> = std::iter::repeat_n(Cell::new(0), 4 * MOST).collect();
        let mut kinds = kinds;
        if unmanaged {
            kinds.push(Kind::Unmanaged);
        }
        let mut driver = Driver::new(target, &kinds, batching, &positions);
        for (event, a, b) in events {
            driver.step(event, a, b);
        }
        driver.finish();
    }
}
