//! Random schedules of overtaking: how many bits go to others between the moment in which a wait
//! has begun and its grant, among threads that come again and again.
//!
//! All bits but one are out, or all are wanted, so that nobody gets one between the grant and the
//! moment in which the waiter says that it has it: the numbers are exact.
#![cfg(shuttle)]

mod shuttle_support;

use inflight_sbitmap::Fairness;
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, block_on, thread};
use shuttle_support::{
    MODES, Mode, Owned, SECOND, Task, Threads, Told, check_in, get_task, many_task, poll_with,
};
use std::task::{Poll, Waker};

/// How many bits a turn has.
const QUANTUM: usize = 13;

fn check(name: &str, model: fn(Mode)) {
    let bounded: Vec<_> = MODES
        .into_iter()
        .filter(|mode| !mode.is_batched())
        .collect();
    check_in(name, &bounded, model);
}

/// How many bits may go to others before a waiter's own: to threads that wait before it, or have a
/// turn when its wait begins, and to tasks before it, for so many each.
fn bound(mode: Mode, threads: usize, tasks: &[usize]) -> usize {
    let tasks: usize = tasks.iter().sum();
    match mode.fairness {
        Fairness::Fifo => threads + tasks,
        _ => threads * QUANTUM + tasks,
    }
}

/// How many bits have gone to whom, as those say who have them.
#[derive(Clone, Default)]
struct Taken(Arc<AtomicUsize>);

impl Taken {
    /// Before anybody else can have them.
    fn note(&self, bits: &[usize]) {
        self.0.fetch_add(bits.len(), Ordering::Relaxed);
    }

    fn so_far(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Comes again and again, in all ways; never with more than `most` at a time.
fn churn(owned: &Owned, taken: &Taken, n: usize, rounds: usize) {
    for round in 0..rounds {
        let bits: Vec<usize> = match (n + round) % 5 {
            0 | 1 => vec![owned.queue.get_blocking().unwrap()],
            2 => owned.queue.try_get().into_iter().collect(),
            3 => vec![block_on(owned.queue.get()).unwrap()],
            _ => owned.queue.get_timeout(SECOND).into_iter().collect(),
        };
        taken.note(&bits);
        owned.use_and_put(&bits);
    }
}

/// Waits as a task until it has its bits, and counts what goes to others meanwhile.
fn overtaken(owned: &Owned, taken: &Taken, task: Task<Vec<usize>>, at_begin: usize) -> usize {
    let bits = block_on(task);
    let others = taken.so_far() - at_begin;
    owned.use_and_put(&bits);
    others
}

/// One bit goes round among threads that come again and again, and one waiter, a task, has come
/// behind some others.
fn one_bit(mode: Mode) {
    const CHURNERS: usize = 3;
    let (owned, held) = Owned::taken(1, 1, mode);
    let taken = Taken::default();
    let before = [get_task(&owned), get_task(&owned)];
    let told = Waker::from(Arc::new(Told::default()));
    let before = before.map(|mut task| {
        assert!(poll_with(&mut task, &told).is_pending());
        task
    });
    let mut mine = get_task(&owned);
    assert!(poll_with(&mut mine, &told).is_pending());
    let mut threads = Threads::default();
    for task in before {
        let taken = taken.clone();
        threads.on(&owned, move |o| {
            let bits = block_on(task);
            taken.note(&bits);
            o.use_and_put(&bits);
        });
    }
    for n in 0..CHURNERS {
        let taken = taken.clone();
        threads.on(&owned, move |o| churn(o, &taken, n, 12));
    }
    threads.on(&owned, move |o| o.put(&held));
    let seen = taken.clone();
    threads.on(&owned, move |o| {
        let others = overtaken(o, &seen, mine, 0);
        // Nobody had a turn, or was about to take one: all bits were out.
        assert!(others <= bound(mode, 0, &[1, 1]), "{others} in {mode:?}");
    });
    threads.join_ticking(&owned.clock, SECOND);
    owned.assert_all_back();
}

/// The waiter comes while the bit goes round, behind nobody knows how many: each thread can stand
/// before it once, and one of each is about to take one.
fn amid_others(mode: Mode) {
    const CHURNERS: usize = 3;
    let owned = Owned::new(1, 1, mode);
    let taken = Taken::default();
    let mut threads = Threads::default();
    for n in 0..CHURNERS {
        let taken = taken.clone();
        threads.on(&owned, move |o| churn(o, &taken, n, 25));
    }
    let seen = taken.clone();
    threads.on(&owned, move |o| {
        for _ in 0..2 {
            let told = Waker::from(Arc::new(Told::default()));
            let mut task = get_task(o);
            let polled = poll_with(&mut task, &told);
            let begun = seen.so_far();
            match polled {
                Poll::Ready(bits) => o.use_and_put(&bits),
                Poll::Pending => {
                    let others = overtaken(o, &seen, task, begun);
                    // And one more: the bit that somebody has and has not counted yet.
                    let most = bound(mode, CHURNERS, &[]) + CHURNERS + 1;
                    assert!(others <= most, "{others} in {mode:?}");
                }
            }
        }
    });
    threads.join_ticking(&owned.clock, SECOND);
    owned.assert_all_back();
}

/// One who wants all bits that there are, behind a task and before others that want some.
fn all_bits(mode: Mode) {
    const CHURNERS: usize = 2;
    let (owned, held) = Owned::taken(2, 2, mode);
    let taken = Taken::default();
    let told = Waker::from(Arc::new(Told::default()));
    let mut before = [many_task(&owned, 2), get_task(&owned)];
    for task in &mut before {
        assert!(poll_with(task, &told).is_pending());
    }
    let mut mine = many_task(&owned, 2);
    assert!(poll_with(&mut mine, &told).is_pending());
    let mut threads = Threads::default();
    for task in before {
        let taken = taken.clone();
        threads.on(&owned, move |o| {
            let bits = block_on(task);
            taken.note(&bits);
            o.use_and_put(&bits);
        });
    }
    for n in 0..CHURNERS {
        let taken = taken.clone();
        threads.on(&owned, move |o| churn(o, &taken, n, 6));
    }
    threads.on(&owned, move |o| {
        o.put(&held[..1]);
        o.put(&held[1..]);
    });
    let seen = taken.clone();
    threads.on(&owned, move |o| {
        let others = overtaken(o, &seen, mine, 0);
        assert!(others <= bound(mode, 0, &[2, 1]), "{others} in {mode:?}");
    });
    threads.join_ticking(&owned.clock, SECOND);
    owned.assert_all_back();
}

/// Who has a turn takes again and again while those behind are on their way; a thread that wants
/// all bits waits behind them.
fn turns_before(mode: Mode) {
    const BEFORE: usize = 3;
    let (owned, held) = Owned::taken(2, 2, mode);
    let taken = Taken::default();
    let mut threads = Threads::default();
    let waits = |n| {
        while owned.queue.snapshot().waiters[0] < n {
            thread::yield_now();
        }
    };
    for n in 0..BEFORE {
        let taken = taken.clone();
        threads.on(&owned, move |o| {
            for _ in 0..40 {
                let bits = [o.queue.get_blocking().unwrap()];
                taken.note(&bits);
                o.claim(&bits);
                o.put(&bits);
            }
        });
        waits(n + 1);
    }
    let seen = taken.clone();
    threads.on(&owned, move |o| {
        let bits = o.queue.get_many_blocking(2).unwrap();
        let others = seen.so_far();
        o.use_and_put(&bits);
        // Nobody had a turn when it came.
        assert!(others <= bound(mode, BEFORE, &[]), "{others} in {mode:?}");
    });
    waits(BEFORE + 1);
    owned.put(&held[..1]);
    owned.put(&held[1..]);
    threads.join();
    owned.assert_all_back();
}

/// In `Fifo` those who came one after the other are served so, threads, tasks and timed ones, also
/// where one of them leaves.
fn first_come_first_served(mode: Mode) {
    let (owned, held) = Owned::taken(1, 1, mode);
    let served = Taken::default();
    let mut threads = Threads::default();
    let waits = |n| {
        while owned.queue.snapshot().waiters[0] < n {
            thread::yield_now();
        }
    };
    let told = Waker::from(Arc::new(Told::default()));
    let mut leaves = None;
    for n in 0..5 {
        if n == 2 {
            let mut task = get_task(&owned);
            assert!(poll_with(&mut task, &told).is_pending());
            leaves = Some(task);
        } else {
            let served = served.clone();
            threads.on(&owned, move |o| {
                let bit = match n {
                    0 => o.queue.get_blocking().unwrap(),
                    1 => block_on(o.queue.get()).unwrap(),
                    3 => o.queue.id_blocking().unwrap().into_id(),
                    _ => o.queue.get_many_blocking(1).unwrap()[0],
                };
                let before = [0, 1, usize::MAX, 2, 3][n];
                assert_eq!(served.so_far(), before, "number {n} is served");
                served.note(&[bit]);
                o.use_and_put(&[bit]);
            });
        }
        waits(n + 1);
    }
    threads.spawn(move || drop(leaves));
    threads.on(&owned, move |o| o.put(&held));
    threads.join();
    assert_eq!(served.so_far(), 4);
    owned.assert_all_back();
}

#[test]
fn overtaking_with_one_bit() {
    check("overtaking_with_one_bit", one_bit);
}

#[test]
fn overtaking_amid_others() {
    check("overtaking_amid_others", amid_others);
}

#[test]
fn overtaking_who_wants_all() {
    check("overtaking_who_wants_all", all_bits);
}

#[test]
fn overtaking_by_turns() {
    check("overtaking_by_turns", turns_before);
}

#[test]
fn fifo_order() {
    let fifo: Vec<_> = MODES
        .into_iter()
        .filter(|mode| mode.fairness == Fairness::Fifo)
        .collect();
    check_in("fifo_order", &fifo, first_come_first_served);
}
