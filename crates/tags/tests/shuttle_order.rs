//! Random schedules in which somebody waits while others take tags without an end: how many of them
//! may pass, by the table of the page on bitmaps and the one of tags.
#![cfg(shuttle)]

mod shuttle_support;

use inflight_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use inflight_sync::{Arc, block_on, cpu, thread};
use inflight_tags::{HwQueueOptions, SharePolicy, Split, Tag, TagSet, Tenant};
use shuttle_support::{Mode, Size, Slot, builder, check_whole_io};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Threads that take tags.
const OTHERS: usize = 3;
/// Each of them has a turn of 13, alive or before the one who waits, and perhaps a tag that it was
/// about to take when the wait began. Then it stands behind.
const MOST: usize = OTHERS * (13 + 1);

/// What others do until `done`, and how often they did: of each kind.
#[derive(Default)]
struct Others {
    done: AtomicBool,
    small: AtomicUsize,
    /// Large requests that have begun.
    large: AtomicUsize,
}

struct Race {
    set: TagSet<Slot>,
    others: Arc<Others>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Race {
    fn new(mode: Mode, depth: usize) -> Self {
        let share = SharePolicy::None;
        let size = Size::of(depth).hw_queues(HwQueueOptions::new(1));
        let clock = inflight_sync::time::Clock::manual();
        let set = builder(Mode { share, ..mode }, size, &clock);
        Self {
            set: set.build(|_, _| Slot::default()).unwrap(),
            others: Arc::default(),
            threads: Vec::new(),
        }
    }

    fn spawn(&mut self, tenant: &Tenant<Slot>, f: fn(&Others, &Tenant<Slot>)) {
        let (others, tenant, n) = (self.others.clone(), tenant.clone(), self.threads.len());
        self.threads.push(thread::spawn(move || {
            cpu::set_current_for_thread(Some(n % 2));
            // Relaxed: the checker runs everything in one order.
            while !others.done.load(Ordering::Relaxed) {
                f(&others, &tenant);
                thread::yield_now();
            }
        }));
    }

    /// Small and large ones that have begun between the first poll of the wait and its end.
    fn passed<F: Future>(&self, wait: F) -> (usize, usize) {
        let counts = || {
            let others = &self.others;
            [&others.small, &others.large].map(|count| count.load(Ordering::Relaxed))
        };
        let (mut wait, mut before) = (pin!(wait), None);
        block_on(poll_fn(|cx| {
            let now = wait.as_mut().poll(cx);
            before.get_or_insert_with(counts);
            match now {
                Poll::Ready(_) => Poll::Ready(()),
                Poll::Pending => Poll::Pending,
            }
        }));
        let ([small, large], [small_before, large_before]) = (counts(), before.unwrap());
        (small - small_before, large - large_before)
    }

    fn end(self) {
        self.others.done.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(self.set.in_use(), 0);
    }
}

fn takes_one(others: &Others, tenant: &Tenant<Slot>) {
    let tag = tenant.alloc_blocking().unwrap();
    others.small.fetch_add(1, Ordering::Relaxed);
    thread::yield_now();
    drop(tag);
}

fn tries(others: &Others, tenant: &Tenant<Slot>) {
    let tags = tenant.try_alloc_batch(1);
    others.small.fetch_add(tags.len(), Ordering::Relaxed);
    thread::yield_now();
    Tag::free_batch(tags);
}

fn takes_six(others: &Others, tenant: &Tenant<Slot>) {
    let mut split = tenant.split(6);
    let mut begun = false;
    while let Some(tag) = split.next_blocking().unwrap() {
        if !begun {
            others.large.fetch_add(1, Ordering::Relaxed);
            begun = true;
        }
        thread::yield_now();
        drop(tag);
    }
}

/// A task beside threads of its own tenant: those before it have a turn each, and so have those
/// whose turn was alive.
fn a_task_among_threads(mode: Mode) {
    let mut race = Race::new(mode, 1);
    let tenant = race.set.add_tenant("a").unwrap();
    for n in 0..OTHERS {
        race.spawn(&tenant, if n == 0 { tries } else { takes_one });
    }
    let (small, _) = race.passed(tenant.alloc());
    assert!(small <= MOST, "{small} have passed");
    race.end();
}

/// The same beside threads of another tenant.
fn a_task_of_another_tenant(mode: Mode) {
    let mut race = Race::new(mode, 1);
    let (tenant, other) = (
        race.set.add_tenant("a").unwrap(),
        race.set.add_tenant("b").unwrap(),
    );
    for _ in 0..OTHERS {
        race.spawn(&other, takes_one);
    }
    let (small, _) = race.passed(tenant.alloc());
    assert!(small <= MOST, "{small} have passed");
    race.end();
}

/// A small request waits for one large one, and for what is being served when it comes.
fn a_small_one_among_large_ones(mode: Mode) {
    let mut race = Race::new(mode, 4);
    let tenant = race.set.add_tenant("a").unwrap();
    for _ in 0..OTHERS {
        race.spawn(&tenant, takes_six);
    }
    for _ in 0..3 {
        let (_, large) = race.passed(tenant.alloc());
        assert!(large <= 2, "{large} have passed");
    }
    race.end();
}

/// A large request is not passed for ever by small ones: the first piece and each other one.
fn a_large_one_among_small_ones(mode: Mode) {
    let mut race = Race::new(mode, 1);
    let tenant = race.set.add_tenant("a").unwrap();
    for _ in 0..OTHERS {
        race.spawn(&tenant, takes_one);
    }
    let mut split: Split<Slot> = tenant.split(3);
    for piece in 0..3 {
        let (small, _) = race.passed(split.next());
        let most = if piece == 0 { MOST } else { OTHERS };
        assert!(small <= most, "{small} have passed piece {piece}");
    }
    race.end();
}

#[test]
fn order_of_a_task_among_threads() {
    check_whole_io("order_of_a_task_among_threads", a_task_among_threads);
}

#[test]
fn order_of_a_task_of_another_tenant() {
    let name = "order_of_a_task_of_another_tenant";
    check_whole_io(name, a_task_of_another_tenant);
}

#[test]
fn order_of_a_small_one_among_large_ones() {
    let name = "order_of_a_small_one_among_large_ones";
    check_whole_io(name, a_small_one_among_large_ones);
}

#[test]
fn order_of_a_large_one_among_small_ones() {
    let name = "order_of_a_large_one_among_small_ones";
    check_whole_io(name, a_large_one_among_small_ones);
}
