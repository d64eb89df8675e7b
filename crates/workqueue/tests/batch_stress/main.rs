//! Small items, of which a worker takes many at once, and among them all that may happen to what
//! lies in a batch, seeded: items that block, sleep silently, panic, queue others, cancel, disable
//! or wait for others of the same batch; while other threads flush, freeze, move queues, change
//! limits, ask for statistics, and queues end. `INFLIGHT_STRESS_SEED` names the first of
//! `INFLIGHT_STRESS_SEEDS` seeds.
#![cfg(all(unix, not(any(loom, shuttle))))]

#[path = "../support/mod.rs"]
mod support;

mod account;

use account::{Account, Inside, add, of};
use inflight_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use inflight_sync::{Arc, Mutex, thread};
use inflight_topology::{Scope, Topology};
use inflight_workqueue::{
    Attrs, DisableError, QueueError, Work, Workqueue, WorkqueueSystem, blocking,
};
use std::os::unix::net::UnixStream;
use std::panic::resume_unwind;
use support::{pipe, sleep_silently, watch};

const SUBMITTERS: usize = 2;

const BURSTS: usize = 14;

const SMALL: usize = 1_500;

struct Queue {
    wq: Workqueue,
    account: Arc<Account>,
    /// Queued over and over by everybody; all they do is short.
    victims: Vec<Work>,
    /// Its attributes can be changed.
    moves: bool,
    ordered: bool,
    bound: bool,
    /// Items may wait for victims of the same queue.
    may_flush: bool,
}

struct World {
    sys: WorkqueueSystem,
    cpus: usize,
    queues: Vec<Queue>,
    /// Moves with each step of anybody.
    news: Arc<AtomicUsize>,
    left: AtomicUsize,
}

/// An instance that has not ended. Falls with the function, which goes before the queue is told.
struct Life(Arc<AtomicUsize>, Arc<AtomicUsize>);

impl Drop for Life {
    fn drop(&mut self) {
        // Ordering: Release, pairs with the Acquire after a flush, were it needed: the flush
        // itself orders them.
        self.0.fetch_sub(1, Ordering::Release);
        add(&self.1);
    }
}

/// What an item of a burst knows.
struct One {
    account: Arc<Account>,
    queue: usize,
    cpu: usize,
    /// Where it counts.
    place: usize,
    /// With whom it is in order.
    line: usize,
    number: usize,
    _life: Life,
}

impl One {
    fn enter(&self) -> Inside<'_> {
        let inside = Inside::enter(&self.account, self.place);
        if self.account.in_order {
            let before = self.account.last[self.line].swap(self.number, Ordering::Relaxed);
            if before >= self.number {
                let number = self.number;
                self.account.breach(format!("{number} ran after {before}"));
            }
        }
        inside
    }
}

/// Goes with an item, and asks its queue.
struct Asks(Workqueue);

impl Drop for Asks {
    fn drop(&mut self) {
        let _ = self.0.stats();
    }
}

fn victim(account: &Arc<Account>, news: &Arc<AtomicUsize>, cpu: usize) -> Work {
    let (account, news, inside) = (account.clone(), news.clone(), AtomicBool::new(false));
    let at = if account.inside.len() == 1 { 0 } else { cpu };
    Work::new(move || {
        let _inside = Inside::enter(&account, at);
        if inside.swap(true, Ordering::Relaxed) {
            account.breach("ran twice at once".into());
        }
        if add(&news) % 5 == 0 {
            blocking(thread::yield_now);
        }
        inside.store(false, Ordering::Relaxed);
    })
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let machines = [
            ("core:1", 1),
            ("core:2", 2),
            ("cache:2 core:1", 2),
            ("core:4", 4),
        ];
        let (text, cpus) = machines[rng.usize(..machines.len())];
        let builder = WorkqueueSystem::builder().topology(Topology::synthetic(text).unwrap());
        // What is traced goes one by one, and its items end no later for that.
        let traced = rng.u8(..4) == 0;
        let builder = if traced {
            builder.trace(|_| ())
        } else {
            builder
        };
        let sys = builder.build().unwrap();
        let news = Arc::new(AtomicUsize::new(0));
        let limits = [1, 2, 3, 64, 200];
        let attrs = Attrs::new().scope(Scope::ALL[rng.usize(..Scope::ALL.len())]);
        let queue = |sort: usize| {
            let draft = sys.workqueue(format!("queue {sort}"));
            let most = limits[rng.usize(..limits.len())];
            let (builder, ordered, bound) = match sort {
                0 => (draft.bound().max_active(most), false, true),
                1 => (draft.ordered().freezable(), true, false),
                2 => (draft.unbound(attrs.clone()).max_active(most), false, false),
                3 => (draft.bound().max_active(most).freezable(), false, true),
                _ => (
                    draft.unbound(attrs.clone()).max_active(most).freezable(),
                    false,
                    false,
                ),
            };
            let most = if ordered { 1 } else { most };
            let places = if bound { cpus } else { 1 };
            let counts = |n| (0..n).map(|_| AtomicUsize::new(0)).collect();
            let account = Arc::new(Account {
                inside: counts(places),
                most,
                in_order: ordered || (bound && most == 1),
                is_wide: most >= 64,
                ran: AtomicUsize::new(0),
                accepted: AtomicUsize::new(0),
                cancelled: AtomicUsize::new(0),
                panicked: AtomicUsize::new(0),
                last: counts(cpus * SUBMITTERS),
                breaches: Mutex::new(Vec::new()),
            });
            Queue {
                wq: builder.build().unwrap(),
                victims: (0..6).map(|n| victim(&account, &news, n % cpus)).collect(),
                account,
                moves: !bound,
                ordered,
                bound,
                may_flush: ordered || most >= 64 || (cpus == 1 && most == 1 && bound),
            }
        };
        let queues: Vec<_> = (0..5).map(queue).collect();
        Self {
            cpus,
            queues,
            news,
            left: AtomicUsize::new(0),
            sys,
        }
    }

    /// After these an item is small, by what is known of it.
    fn calm(&self, queue: &Queue) {
        for n in 0..SMALL {
            let account = queue.account.clone();
            let nothing = Work::new(move || _ = add(&account.ran));
            let result = queue.wq.queue_on(n % self.cpus, &nothing);
            self.accept(queue, result.map(|queued| queued.is_queued()));
        }
        queue.wq.flush_blocking().unwrap();
    }

    fn accept(&self, queue: &Queue, result: Result<bool, QueueError>) -> bool {
        match result {
            Ok(accepted) => {
                queue
                    .account
                    .accepted
                    .fetch_add(usize::from(accepted), Ordering::Relaxed);
                accepted
            }
            Err(QueueError::Draining) => false,
            Err(other) => {
                queue.account.breach(format!("refused: {other}"));
                false
            }
        }
    }

    fn queue_victim(&self, queue: &Queue, at: usize) {
        let result = queue.wq.queue_on(at % self.cpus, &queue.victims[at]);
        self.accept(queue, result.map(|queued| queued.is_queued()));
    }

    fn taken_back(&self, queue: &Queue, taken: bool) {
        queue
            .account
            .cancelled
            .fetch_add(usize::from(taken), Ordering::Relaxed);
    }

    /// What is done to a victim, from an item of that queue or from elsewhere.
    fn harass(&self, rng: &mut fastrand::Rng, queue: &Queue, at: usize, may_flush: bool) {
        let victim = &queue.victims[at];
        match rng.u8(..8) {
            0 => self.queue_victim(queue, at),
            1 | 2 => self.taken_back(queue, victim.cancel()),
            3 | 4 => self.taken_back(queue, victim.cancel_sync_blocking().unwrap()),
            5 => {
                let disabled = if rng.bool() {
                    victim.disable()
                } else {
                    victim.disable_sync_blocking()
                };
                match disabled {
                    Ok(taken) => self.taken_back(queue, taken),
                    Err(DisableError::WouldDeadlock) => unreachable!("it is no victim"),
                    Err(other) => panic!("{other}"),
                }
                victim.enable().unwrap();
            }
            _ if may_flush => {
                let _ = victim.flush_blocking();
            }
            _ => {
                let _ = (victim.is_pending(), victim.is_running());
            }
        }
    }

    /// An item that queues the next one, and so on.
    fn chain(self: &Arc<Self>, which: usize, cpu: usize, place: usize, left: usize) {
        let queue = &self.queues[which];
        let (asks, account) = (Asks(queue.wq.clone()), queue.account.clone());
        let world = Arc::downgrade(self);
        let child = Work::new(move || {
            let _ = &asks;
            let _inside = Inside::enter(&account, place);
            if let Some(world) = world.upgrade().filter(|_| left > 0) {
                world.chain(which, cpu, place, left - 1);
            }
        });
        let queued = queue.wq.queue_on(cpu, &child).map(|q| q.is_queued());
        self.accept(queue, queued);
    }

    /// Does something, inside an item, that concerns others.
    fn meddle(self: &Arc<Self>, one: &One, mut rng: fastrand::Rng) {
        let queue = &self.queues[one.queue];
        let victim = rng.usize(..queue.victims.len());
        match rng.u8(..12) {
            0..=6 => self.harass(&mut rng, queue, victim, queue.may_flush),
            7 => _ = queue.wq.stats(),
            8 => drop(self.sys.dump()),
            9 => {
                // Nobody there waits for anything here.
                if let Some(other) = self.queues[one.queue + 1..].first() {
                    other.wq.flush_blocking().unwrap();
                }
            }
            10 => self.chain(one.queue, one.cpu, one.place, rng.usize(..70)),
            _ => (0..rng.usize(1..200_000)).for_each(|_| std::hint::spin_loop()),
        }
    }

    /// Thirteen of so many do more than nothing. `wakers` are of those that sleep silently.
    fn item(
        self: &Arc<Self>,
        rng: &mut fastrand::Rng,
        one: One,
        wakers: &mut Vec<UnixStream>,
        of_so_many: u8,
    ) -> Work {
        match rng.u8(..of_so_many) {
            0..=1 => Work::new(move || {
                let _inside = one.enter();
                blocking(|| (0..3).for_each(|_| thread::yield_now()));
            }),
            2 => {
                let (end, other) = pipe();
                // By a later item, if that can run meanwhile, or when all have been queued.
                wakers.push(other);
                Work::new(move || {
                    let _inside = one.enter();
                    sleep_silently(&end);
                })
            }
            3 if one.account.is_wide => {
                let later = Mutex::new(std::mem::take(wakers));
                Work::new(move || {
                    let _inside = one.enter();
                    later.lock().clear();
                })
            }
            4..=5 => Work::new(move || {
                let _inside = one.enter();
                add(&one.account.panicked);
                resume_unwind(Box::new("on purpose"));
            }),
            6..=12 => {
                let (world, rng) = (Arc::downgrade(self), rng.fork());
                Work::new(move || {
                    let _inside = one.enter();
                    if let Some(world) = world.upgrade() {
                        world.meddle(&one, rng.clone());
                    }
                })
            }
            _ => Work::new(move || drop(one.enter())),
        }
    }

    /// Items of one CPU, or of all, one behind the other; and then somebody waits for them.
    fn burst(self: &Arc<Self>, rng: &mut fastrand::Rng, me: usize, number: &mut usize) {
        let which = rng.usize(..self.queues.len());
        let queue = &self.queues[which];
        if rng.u8(..3) > 0 {
            self.calm(queue);
        }
        let alive = Arc::new(AtomicUsize::new(0));
        let mut wakers = Vec::new();
        let cpu = rng.bool().then(|| rng.usize(..self.cpus));
        for at in 0..rng.usize(1..90) {
            add(&self.news);
            let cpu = cpu.unwrap_or_else(|| rng.usize(..self.cpus));
            *number += 1;
            add(&alive);
            let one = One {
                account: queue.account.clone(),
                queue: which,
                cpu,
                place: if queue.bound { cpu } else { 0 },
                line: (if queue.ordered { 0 } else { cpu }) * SUBMITTERS + me,
                number: *number,
                _life: Life(alive.clone(), self.news.clone()),
            };
            let work = self.item(rng, one, &mut wakers, if at < 6 { 40 } else { 120 });
            self.accept(queue, queue.wq.queue_on(cpu, &work).map(|q| q.is_queued()));
            if rng.u8(..25) == 0 {
                self.taken_back(queue, work.cancel());
            }
            drop(work);
            if at % 4 == 0 {
                self.queue_victim(queue, rng.usize(..queue.victims.len()));
            }
        }
        drop(wakers);
        let kind = rng.u8(..8);
        match kind {
            0..=3 => queue.wq.flush_blocking().unwrap(),
            4 => queue.wq.drain_blocking().unwrap(),
            5 | 6 => {
                let at = rng.usize(..queue.victims.len());
                self.harass(rng, queue, at, true);
            }
            _ => {}
        }
        // Ordering: Acquire, as in `Life`.
        let left = alive.load(Ordering::Acquire);
        if kind <= 4 && left > 0 {
            let account = &queue.account;
            account.breach(format!("{left} are left after a flush or a drain ({kind})"));
        }
    }

    /// A queue that ends with what it has taken.
    fn short_lived(&self, rng: &mut fastrand::Rng) {
        let draft = self.sys.workqueue("short");
        let builder = match rng.u8(..3) {
            0 => draft.bound(),
            1 => draft.ordered(),
            _ => draft.unbound(Attrs::new()),
        };
        let wq = builder.build().unwrap();
        let alive = Arc::new(AtomicUsize::new(0));
        for at in 0..rng.usize(1..60) {
            add(&alive);
            let life = Life(alive.clone(), self.news.clone());
            let work = Work::new(move || {
                let _ = &life;
                if at == 20 {
                    blocking(thread::yield_now);
                }
            });
            wq.queue_on(0, &work).unwrap();
        }
        if rng.bool() {
            wq.destroy_blocking().unwrap();
            assert_eq!(alive.load(Ordering::Acquire), 0, "outlived its queue");
        }
    }

    fn submit(self: &Arc<Self>, mut rng: fastrand::Rng, me: usize) {
        let mut number = 0;
        for _ in 0..BURSTS {
            self.burst(&mut rng, me, &mut number);
            if rng.u8(..4) == 0 {
                self.short_lived(&mut rng);
            }
        }
        self.left.fetch_sub(1, Ordering::Relaxed);
    }

    /// Changes and asks, until nobody submits.
    fn change(&self, mut rng: fastrand::Rng) {
        let mut frozen = Vec::new();
        while self.left.load(Ordering::Relaxed) > 0 {
            let queue = &self.queues[rng.usize(..self.queues.len())];
            match rng.u8(..16) {
                0..=2 => _ = queue.wq.stats(),
                3 | 4 if queue.moves => {
                    let scope = Scope::ALL[rng.usize(..Scope::ALL.len())];
                    let attrs = Attrs::new().scope(scope).strict(rng.bool());
                    queue.wq.set_attrs(attrs).unwrap();
                }
                5 | 6 if !queue.ordered => {
                    let least = if queue.account.is_wide { 64 } else { 1 };
                    let limit = rng.usize(least..=queue.account.most);
                    queue.wq.set_max_active(limit).unwrap();
                }
                7 => frozen.push(self.sys.freeze()),
                8 if frozen.is_empty() => queue.wq.flush_blocking().unwrap(),
                9 => drop(self.sys.dump()),
                10 => {
                    let at = rng.usize(..queue.victims.len());
                    self.harass(&mut rng, queue, at, frozen.is_empty());
                }
                11 => {
                    let _ = queue.wq.is_congested(0);
                }
                _ => frozen.clear(),
            }
            if frozen.len() > 1 || rng.bool() {
                frozen.clear();
            }
            thread::yield_now();
        }
    }

    fn check(&self, seed: u64) {
        for Queue { wq, account, .. } in &self.queues {
            wq.drain_blocking().unwrap();
            let name = wq.name();
            assert_eq!(*account.breaches.lock(), [""; 0], "{name}, seed {seed}");
            let (ran, cancelled) = (of(&account.ran), of(&account.cancelled));
            assert_eq!(
                of(&account.accepted),
                ran + cancelled,
                "{name}, seed {seed}: {ran} ran"
            );
            let stats = wq.stats();
            let numbers = [
                stats.queued,
                stats.started,
                stats.completed,
                stats.cancelled,
                stats.panicked,
                stats.active as u64,
                stats.inactive as u64,
            ];
            let expected = [
                ran + cancelled,
                ran,
                ran,
                cancelled,
                of(&account.panicked),
                0,
                0,
            ];
            assert_eq!(numbers, expected.map(|n| n as u64), "{name}, seed {seed}");
        }
    }
}

fn play(seed: u64) {
    let world = Arc::new(World::new(seed));
    let mut rng = fastrand::Rng::with_seed(!seed);
    world.left.store(SUBMITTERS, Ordering::Relaxed);
    let mut threads: Vec<_> = (0..SUBMITTERS)
        .map(|me| {
            let (world, rng) = (world.clone(), rng.fork());
            thread::spawn(move || world.submit(rng, me))
        })
        .collect();
    let (other, fork) = (world.clone(), rng.fork());
    threads.push(thread::spawn(move || other.change(fork)));
    let there_is = || format!("seed {seed}: {}", world.sys.dump());
    watch(&world.news, threads, there_is);
    let other = world.clone();
    let checks = thread::spawn(move || other.check(seed));
    watch(&world.news, vec![checks], there_is);
    // The end finds batches full.
    let alive = Arc::new(AtomicUsize::new(0));
    for queue in &world.queues {
        for _ in 0..40 {
            add(&alive);
            let life = Life(alive.clone(), world.news.clone());
            let work = Work::new(move || _ = &life);
            queue.wq.queue_on(0, &work).unwrap();
        }
    }
    let news = world.news.clone();
    let end = thread::spawn(move || drop(world));
    watch(&news, vec![end], || format!("seed {seed}: the end"));
    assert_eq!(
        alive.load(Ordering::Acquire),
        0,
        "outlived all, seed {seed}"
    );
}

#[test]
fn what_is_in_a_batch_is_as_if_it_was_ready() {
    let given = |name| {
        let given = std::env::var(name).ok();
        given.map(|text| text.parse::<u64>().expect("a number"))
    };
    let first = given("INFLIGHT_STRESS_SEED").unwrap_or(0);
    let seeds = given("INFLIGHT_STRESS_SEEDS").unwrap_or(12);
    (first..first + seeds).for_each(play);
}
