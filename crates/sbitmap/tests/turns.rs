//! Fair and strict waiting: who overtakes whom, what is granted, and what is given back.

use inflight_sbitmap::{Engine, Fairness, GetManyError, SbitmapQueue, SbitmapQueueBuilder};
use inflight_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, block_on, thread};
use std::collections::HashSet;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

type Mode = (Fairness, Engine);

const MODES: [Mode; 4] = [
    (Fairness::Fair, Engine::Shared),
    (Fairness::Fair, Engine::Local),
    (Fairness::Fifo, Engine::Shared),
    (Fairness::Fifo, Engine::Local),
];
const ALL: [Mode; 5] = [
    MODES[0],
    MODES[1],
    MODES[2],
    MODES[3],
    (Fairness::Batched, Engine::Shared),
];

fn builder(depth: usize, (fairness, engine): Mode) -> SbitmapQueueBuilder {
    SbitmapQueue::builder(depth)
        .fairness(fairness)
        .engine(engine)
}

/// A queue whose bits are all taken.
fn taken(depth: usize, fairness: Mode) -> (Arc<SbitmapQueue>, Vec<usize>) {
    let queue = builder(depth, fairness).build().unwrap();
    let mut bits = Vec::new();
    assert_eq!(queue.try_get_batch(depth, &mut bits), depth);
    (Arc::new(queue), bits)
}

fn wait_for_waiters(queue: &SbitmapQueue, n: usize) {
    while queue.snapshot().ws_active != n {
        thread::yield_now();
    }
}

fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn tasks_get_bits_in_the_order_they_came() {
    for fairness in MODES {
        let (queue, bits) = taken(4, fairness);
        let mut gets: Vec<_> = (0..12).map(|_| Box::pin(queue.get())).collect();
        for get in &mut gets {
            assert!(poll(get.as_mut()).is_pending());
        }
        let mut bit = bits[0];
        for get in &mut gets {
            queue.put(bit).unwrap();
            assert_eq!(queue.try_get(), None, "nobody overtakes a waiter");
            let Poll::Ready(got) = poll(get.as_mut()) else {
                panic!("{fairness:?}: the bit is not with the head")
            };
            bit = got;
        }
    }
}

#[test]
fn a_dropped_task_passes_on_what_it_was_granted() {
    for fairness in MODES {
        let (queue, bits) = taken(1, fairness);
        let mut first = Box::pin(queue.get());
        let mut second = Box::pin(queue.get());
        assert!(poll(first.as_mut()).is_pending());
        assert!(poll(second.as_mut()).is_pending());
        queue.put(bits[0]).unwrap();
        drop(first);
        assert_eq!(poll(second.as_mut()), Poll::Ready(bits[0]));
        queue.put(bits[0]).unwrap();
        assert_eq!(queue.try_get(), Some(bits[0]));
    }
}

#[test]
fn several_bits_come_together_and_nobody_takes_one_past_the_collector() {
    for fairness in MODES {
        let (queue, bits) = taken(4, fairness);
        let mut many = pin!(queue.get_many(3));
        let mut one = pin!(queue.get());
        assert!(poll(many.as_mut()).is_pending());
        assert!(poll(one.as_mut()).is_pending());
        queue.put(bits[0]).unwrap();
        queue.put(bits[1]).unwrap();
        assert!(poll(many.as_mut()).is_pending());
        assert!(poll(one.as_mut()).is_pending());
        assert_eq!(queue.try_get(), None);
        queue.put(bits[2]).unwrap();
        let Poll::Ready(Ok(got)) = poll(many.as_mut()) else {
            panic!("three bits came back")
        };
        assert_eq!(got.len(), 3);
        assert!(poll(one.as_mut()).is_pending());
        queue.put_batch(&got).unwrap();
        assert!(poll(one.as_mut()).is_ready());
    }
}

#[test]
fn a_dropped_collector_gives_back_what_it_had() {
    for fairness in ALL {
        let (queue, bits) = taken(4, fairness);
        let mut many = Box::pin(queue.get_many(3));
        assert!(poll(many.as_mut()).is_pending());
        queue.put_batch(&bits[..2]).unwrap();
        assert!(poll(many.as_mut()).is_pending());
        drop(many);
        assert!(queue.try_get().is_some(), "{fairness:?}");
        assert!(queue.try_get().is_some(), "{fairness:?}");
        assert!(queue.try_get().is_none(), "{fairness:?}");
    }
}

#[test]
fn d25_two_collectors_never_wait_for_each_other() {
    for fairness in ALL {
        let (queue, bits) = taken(4, fairness);
        let collectors: Vec<_> = (0..4)
            .map(|_| {
                let queue = queue.clone();
                thread::spawn(move || {
                    for _ in 0..200 {
                        let three = queue.get_many_blocking(3).unwrap();
                        assert_eq!(three.iter().collect::<HashSet<_>>().len(), 3);
                        queue.put_batch(&three).unwrap();
                    }
                })
            })
            .collect();
        for bit in bits {
            queue.put(bit).unwrap();
        }
        collectors.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(queue.weight(), 0);
    }
}

#[test]
fn more_than_there_are_is_an_error_at_once_and_after_a_shrink() {
    for fairness in ALL {
        let queue = builder(4, fairness).build().unwrap();
        assert_eq!(queue.get_many_blocking(5), Err(GetManyError::TooMany));
        assert_eq!(block_on(queue.get_many(5)), Err(GetManyError::TooMany));
        assert_eq!(queue.get_many_blocking(0), Ok(Vec::new()));
        let bit = queue.get_blocking();
        let mut many = pin!(queue.get_many(4));
        assert!(poll(many.as_mut()).is_pending());
        queue.resize(3).unwrap();
        assert_eq!(
            poll(many.as_mut()),
            Poll::Ready(Err(GetManyError::TooMany)),
            "{fairness:?}"
        );
        queue.put(bit).unwrap();
        assert_eq!(queue.get_many_blocking(3).unwrap().len(), 3, "{fairness:?}");
    }
}

#[test]
fn growth_serves_those_who_wait() {
    for fairness in ALL {
        let queue = builder(1, fairness).max_depth(4).build().unwrap();
        let first = queue.get_blocking();
        let queue = Arc::new(queue);
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let queue = queue.clone();
                thread::spawn(move || queue.get_blocking())
            })
            .collect();
        wait_for_waiters(&queue, 3);
        queue.resize(4).unwrap();
        let mut all: Vec<_> = waiters.into_iter().map(|t| t.join().unwrap()).collect();
        all.push(first);
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3], "{fairness:?}");
    }
}

#[test]
fn a_deadline_takes_the_waiter_out_and_loses_nothing() {
    for fairness in MODES {
        let clock = Clock::manual();
        let queue = Arc::new(builder(1, fairness).clock(clock.clone()).build().unwrap());
        let bit = queue.get_blocking();
        let timed = thread::spawn({
            let queue = queue.clone();
            move || queue.get_timeout(Duration::from_secs(1))
        });
        wait_for_waiters(&queue, 1);
        while !timed.is_finished() {
            clock.advance(Duration::from_millis(300));
            thread::yield_now();
        }
        assert_eq!(timed.join().unwrap(), None);
        assert_eq!(queue.snapshot().ws_active, 0);
        queue.put(bit).unwrap();
        assert_eq!(queue.get_timeout(Duration::ZERO), Some(bit));
    }
}

/// The bits go to as many threads and tasks as there are, whatever their order.
#[test]
fn threads_and_tasks_stand_in_one_list() {
    for fairness in MODES {
        let (queue, bits) = taken(1, fairness);
        let order = Arc::new(AtomicUsize::new(0));
        let mut waiters = Vec::new();
        for n in 0..10 {
            let (queue, order) = (queue.clone(), order.clone());
            let turn = move |bit| {
                // Relaxed: the bit carries the order.
                assert_eq!(order.fetch_add(1, Ordering::Relaxed), n);
                bit
            };
            let before = queue.snapshot().ws_active;
            let waiter = queue.clone();
            waiters.push(thread::spawn(move || {
                let bit = if n % 2 == 0 {
                    turn(waiter.get_blocking())
                } else {
                    turn(block_on(waiter.get()))
                };
                waiter.put(bit).unwrap();
            }));
            wait_for_waiters(&queue, before + 1);
        }
        queue.put(bits[0]).unwrap();
        waiters.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(queue.weight(), 0);
    }
}

/// More waiters than bits, everybody stops: all must finish.
#[test]
fn stop_cycles() {
    let cycles = if cfg!(miri) { 3 } else { 2_000 };
    for fairness in ALL {
        let queue = Arc::new(builder(2, fairness).build().unwrap());
        for _ in 0..cycles {
            let stop = Arc::new(AtomicBool::new(false));
            let threads: Vec<_> = (0..4)
                .map(|n| {
                    let (queue, stop) = (queue.clone(), stop.clone());
                    thread::spawn(move || {
                        for _ in 0..8 {
                            let bit = match n % 3 {
                                0 => queue.get_blocking(),
                                1 => block_on(queue.get()),
                                _ => loop {
                                    let get = queue.get_timeout(Duration::from_micros(50));
                                    if let Some(bit) = get {
                                        break bit;
                                    }
                                },
                            };
                            queue.put(bit).unwrap();
                            if stop.load(Ordering::Relaxed) {
                                break;
                            }
                        }
                    })
                })
                .collect();
            stop.store(true, Ordering::Relaxed);
            threads.into_iter().for_each(|t| t.join().unwrap());
            assert_eq!(queue.weight(), 0);
        }
    }
}
