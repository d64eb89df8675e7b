//! Random schedules of the stacks that CPUs keep: threads put and get on other CPUs than before,
//! end and leave their ids behind, and others empty the stacks meanwhile.
//!
//! Nobody waits in most of these, so "none" is exact: who may have an id gets one, always.
#![cfg(shuttle)]

mod shuttle_support;

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::percpu::pushes;
use inflight_sync::{Arc, block_on, cpu, thread};
use shuttle_support::{MODES, Mode, Owned, SECOND, Threads, check_in};

/// In all modes whose "none" is exact.
fn check(name: &str, model: fn(Mode)) {
    let local: Vec<_> = MODES.into_iter().filter(|mode| mode.is_local()).collect();
    let before = pushes();
    check_in(name, &local, model);
    assert!(pushes() > before, "no id went to a stack");
}

fn on_cpu(n: usize) {
    cpu::set_current_for_thread(Some(n % 3));
}

/// As many threads as ids, each with one at a time, which it takes on one CPU and puts on another.
/// Others look at all ids, change the depth above what is needed, and ask for a shallow one.
fn who_may_have_one_gets_one(mode: Mode) {
    let owned = Owned::new(4, 6, mode);
    let mut threads = Threads::default();
    for n in 0..4 {
        threads.on(&owned, move |o| {
            for round in 0..4 {
                on_cpu(n + round);
                let bit = o.queue.try_get().expect("one is free");
                on_cpu(n + 2 * round + 1);
                o.use_and_put(&[bit]);
            }
        });
    }
    threads.on(&owned, |o| {
        for to in [6, 4] {
            // Racy, but never more than there are.
            assert!(o.queue.weight() <= 6);
            o.resize(to);
            assert!(o.queue.snapshot().map.busy <= 6);
            thread::yield_now();
        }
    });
    threads.join();
    owned.assert_all_back();
}

/// The same with two at a time, taken in a batch, a mask, or one by one, and put so.
fn who_may_have_two_gets_two(mode: Mode) {
    let owned = Owned::new(4, 4, mode);
    let mut threads = Threads::default();
    for n in 0..2 {
        threads.on(&owned, move |o| {
            for round in 0..4 {
                on_cpu(n + round);
                let mut bits = Vec::new();
                match (n + round) % 3 {
                    0 => assert_eq!(o.queue.try_get_batch(2, &mut bits), 2),
                    1 => {
                        bits.push(o.queue.try_get().expect("two are free"));
                        bits.push(o.queue.try_get().expect("one is free"));
                    }
                    _ => bits.extend(o.queue.try_get_mask(2).expect("some are free").iter()),
                }
                o.claim(&bits);
                on_cpu(n + round + 1);
                thread::yield_now();
                if round % 2 == 0 {
                    o.put(&bits);
                } else {
                    bits.iter().for_each(|&bit| o.put(&[bit]));
                }
            }
        });
    }
    threads.on(&owned, |o| {
        for n in 0..3 {
            on_cpu(n);
            let mut seen = 0;
            o.queue.for_each_set(0, |_| {
                seen += 1;
                true
            });
            assert!(seen <= 4);
            thread::yield_now();
        }
    });
    threads.join();
    owned.assert_all_back();
}

/// Threads fill the stacks of three CPUs and end; a waiter, a collector and a batch need all of it.
fn threads_end_and_leave_ids(mode: Mode) {
    let owned = Owned::new(6, 6, mode);
    let mut threads = Threads::default();
    for n in 0..3 {
        threads.on(&owned, move |o| {
            on_cpu(n);
            let bits = [o.queue.try_get(), o.queue.try_get()];
            let bits: Vec<_> = bits.into_iter().flatten().collect();
            o.claim(&bits);
            bits.iter().for_each(|&bit| o.put(&[bit]));
        });
    }
    threads
        .on(&owned, |o| {
            on_cpu(3);
            o.use_and_put(&o.queue.get_many_blocking(6).unwrap());
        })
        .on(&owned, |o| {
            on_cpu(1);
            o.use_and_put(&block_on(o.queue.get_many(5)).unwrap());
        })
        .on(&owned, |o| {
            o.use_and_put(&[o.queue.get_blocking().unwrap()]);
        });
    threads.join();
    owned.assert_all_back();
}

/// Somebody waits now and then, which closes the stacks; between the waits others come for what
/// they may have. Enough puts to open them again.
fn stacks_close_and_open(mode: Mode) {
    let owned = Owned::new(5, 5, mode);
    let waiting = Arc::new(AtomicUsize::new(0));
    let mut threads = Threads::default();
    for n in 0..2 {
        let waiting = waiting.clone();
        threads.on(&owned, move |o| {
            for round in 0..30 {
                on_cpu(n + round / 8);
                // Nobody waits before and after: nobody's wait has refused this one.
                let before = waiting.load(Ordering::Relaxed);
                let got = o.queue.try_get();
                let after = waiting.load(Ordering::Relaxed);
                assert!(got.is_some() || before % 2 == 1 || before != after);
                o.use_and_put(&got.into_iter().collect::<Vec<_>>());
            }
        });
    }
    threads.on(&owned, move |o| {
        for n in 0..3 {
            on_cpu(n);
            waiting.fetch_add(1, Ordering::Relaxed);
            let bits = match n {
                0 => o.queue.get_many_blocking(5).unwrap(),
                1 => block_on(o.queue.get_many(5)).unwrap(),
                _ => o.queue.get_many_timeout(4, SECOND).unwrap_or_default(),
            };
            o.claim(&bits);
            on_cpu(n + 1);
            o.put(&bits);
            waiting.fetch_add(1, Ordering::Relaxed);
            for _ in 0..8 {
                thread::yield_now();
            }
        }
    });
    threads.join_ticking(&owned.clock, SECOND / 8);
    owned.assert_all_back();
}

#[test]
fn one_for_each() {
    check("one_for_each", who_may_have_one_gets_one);
}

#[test]
fn two_for_each() {
    check("two_for_each", who_may_have_two_gets_two);
}

#[test]
fn threads_that_end() {
    check("threads_that_end", threads_end_and_leave_ids);
}

#[test]
fn stacks_that_close_and_open() {
    check("stacks_that_close_and_open", stacks_close_and_open);
}
