//! Fair and strict waiting: who overtakes whom, what is granted, and what is given back.
#![cfg(not(any(loom, shuttle)))]

#[path = "common/turn_rig.rs"]
mod turn_rig;

use inflight_sbitmap::{Engine, Fairness, GetManyError, PutError};
use inflight_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, block_on, thread};
use std::collections::HashSet;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use turn_rig::{Mode, Told, builder, poll, taken, wait_for_waiters};

const MODES: [Mode; 4] = [
    (Fairness::fair(), Engine::Shared),
    (Fairness::fair(), Engine::Local),
    (Fairness::fifo(), Engine::Shared),
    (Fairness::fifo(), Engine::Local),
];

const ALL: [Mode; 5] = [
    MODES[0],
    MODES[1],
    MODES[2],
    MODES[3],
    (Fairness::batched(), Engine::Shared),
];

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
            let Poll::Ready(Ok(got)) = poll(get.as_mut()) else {
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
        assert_eq!(poll(second.as_mut()), Poll::Ready(Ok(bits[0])));
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

/// A waiter for several counts as so many in what others are promised.
#[test]
fn a_waiter_for_several_comes_before_those_behind_it() {
    for mode in MODES {
        let (queue, bits) = taken(4, mode);
        let mut many = pin!(queue.get_many(3));
        let mut one = pin!(queue.get());
        assert!(poll(many.as_mut()).is_pending());
        assert!(poll(one.as_mut()).is_pending());
        for &bit in &bits[..3] {
            queue.put(bit).unwrap();
            assert!(poll(one.as_mut()).is_pending());
        }
        queue.put(bits[3]).unwrap();
        assert!(
            poll(one.as_mut()).is_ready(),
            "{mode:?}: position 1, three before"
        );
        assert!(poll(many.as_mut()).is_ready());
    }
}

#[test]
fn only_those_who_waited_are_counted() {
    for mode in MODES {
        let queue = builder(4, mode).build().unwrap();
        let bits = queue.get_many_blocking(3).unwrap();
        assert_eq!(queue.stats().waits, 0, "{mode:?}: the bits were free");
        let mut many = pin!(queue.get_many(2));
        let mut behind = pin!(queue.get());
        assert!(poll(many.as_mut()).is_pending());
        assert!(poll(behind.as_mut()).is_pending());
        assert!(poll(many.as_mut()).is_pending());
        assert_eq!(queue.stats().waits, 2, "{mode:?}");
        queue.put_batch(&bits).unwrap();
    }
}

/// The waiter has not fetched the bit, so nobody owns it: who puts it again is told.
#[test]
fn a_bit_under_way_to_a_waiter_cannot_be_put() {
    for mode in ALL {
        for n in [1, 2] {
            let (queue, bits) = taken(2, mode);
            let mut many = pin!(queue.get_many(n));
            assert!(poll(many.as_mut()).is_pending());
            queue.put(bits[0]).unwrap();
            if mode.0 == Fairness::batched() && n == 2 {
                // A batched waiter has a chance, and the bit when it looks.
                assert!(poll(many.as_mut()).is_pending());
            }
            assert!(matches!(
                queue.put(bits[0]),
                Err(PutError::NotAllocated { .. })
            ));
            if n == 2 {
                queue.put(bits[1]).unwrap();
            }
            let Poll::Ready(Ok(got)) = poll(many.as_mut()) else {
                panic!("all it wants is there")
            };
            queue.put_batch(&got).unwrap();
        }
    }
}

/// The second collector waits for the first to be done, and hears of the new depth all the same.
#[test]
fn a_collector_behind_another_is_told_of_a_depth_too_small() {
    for mode in ALL {
        let (queue, bits) = taken(4, mode);
        let mut first = pin!(queue.get_many(2));
        let mut second = pin!(queue.get_many(4));
        assert!(poll(first.as_mut()).is_pending());
        let told = Arc::new(Told::default());
        let waker = Waker::from(Arc::clone(&told));
        let polled = second.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        queue.resize(2).unwrap();
        assert!(told.0.load(Ordering::Relaxed), "{mode:?}");
        let too_many = GetManyError::TooMany { n: 4, depth: 2 };
        assert_eq!(poll(second.as_mut()), Poll::Ready(Err(too_many)));
        queue.put_batch(&bits).unwrap();
        assert!(poll(first.as_mut()).is_ready(), "{mode:?}");
    }
}

#[test]
fn a_huge_number_is_too_many() {
    for mode in MODES {
        let queue = builder(4, mode).build().unwrap();
        for n in [5, 1 << 40, usize::MAX] {
            assert!(matches!(
                queue.get_many_blocking(n),
                Err(GetManyError::TooMany { .. })
            ));
            assert!(matches!(
                block_on(queue.get_many(n)),
                Err(GetManyError::TooMany { .. })
            ));
        }
    }
}

/// More are granted by one put than one section of the service tells.
#[test]
fn one_batch_serves_any_number_of_tasks() {
    for mode in MODES {
        let (queue, bits) = taken(30, mode);
        let mut gets: Vec<_> = (0..30).map(|_| Box::pin(queue.get())).collect();
        for get in &mut gets {
            assert!(poll(get.as_mut()).is_pending());
        }
        queue.put_batch(&bits).unwrap();
        assert_eq!(queue.snapshot().ws_active, 0, "{mode:?}");
        assert!(gets.iter_mut().all(|get| poll(get.as_mut()).is_ready()));
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
        assert!(matches!(
            queue.get_many_blocking(5),
            Err(GetManyError::TooMany { .. })
        ));
        assert!(matches!(
            block_on(queue.get_many(5)),
            Err(GetManyError::TooMany { .. })
        ));
        assert_eq!(queue.get_many_blocking(0), Ok(Vec::new()));
        let bit = queue.get_blocking().unwrap();
        let mut many = pin!(queue.get_many(4));
        assert!(poll(many.as_mut()).is_pending());
        queue.resize(3).unwrap();
        assert_eq!(
            poll(many.as_mut()),
            Poll::Ready(Err(GetManyError::TooMany { n: 4, depth: 3 })),
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
        let first = queue.get_blocking().unwrap();
        let queue = Arc::new(queue);
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let queue = queue.clone();
                thread::spawn(move || queue.get_blocking().unwrap())
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
        let bit = queue.get_blocking().unwrap();
        let timed = thread::spawn({
            let queue = queue.clone();
            move || queue.get_timeout(Duration::from_secs(1)).ok()
        });
        wait_for_waiters(&queue, 1);
        while !timed.is_finished() {
            clock.advance(Duration::from_millis(300));
            thread::yield_now();
        }
        assert_eq!(timed.join().unwrap(), None);
        assert_eq!(queue.snapshot().ws_active, 0);
        queue.put(bit).unwrap();
        assert_eq!(queue.get_timeout(Duration::ZERO).ok(), Some(bit));
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
                    turn(waiter.get_blocking().unwrap())
                } else {
                    turn(block_on(waiter.get()).unwrap())
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
    let cycles = if cfg!(miri) { 3 } else { 1_000 };
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
                                0 => queue.get_blocking().unwrap(),
                                1 => block_on(queue.get()).unwrap(),
                                _ => loop {
                                    let get = queue.get_timeout(Duration::from_micros(50)).ok();
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

/// Counts the bits that others get between the moment a wait has begun, which is the return of the
/// first poll, and its grant. A task waits, threads that take turns pass it; the bound of `Fair` is
/// `(p + w) * k`, that of `Fifo` is `p`, and one for each thread past its check. The count may be
/// late by another one for each thread, which counts after it got. What others get before the first
/// poll has returned is not bounded, and not counted.
#[test]
fn overtaking_is_bounded() {
    const THREADS: usize = 6;
    const DEPTH: usize = 4;
    let rounds = if cfg!(miri) { 3 } else { 300 };
    for mode in MODES {
        let queue = Arc::new(builder(DEPTH, mode).build().unwrap());
        let got = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (queue, got, stop) = (queue.clone(), got.clone(), stop.clone());
                thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let bit = queue.get_blocking().unwrap();
                        // Relaxed: the other counter may be late by one for each thread.
                        got.fetch_add(1, Ordering::Relaxed);
                        queue.put(bit).unwrap();
                    }
                })
            })
            .collect();
        let bound = match mode.0 {
            Fairness::Fair(_) => (THREADS + 11) * 13 + THREADS,
            _ => THREADS,
        };
        for _ in 0..rounds {
            // Granted when the list comes to it; told by then, and polled again below.
            let told = Arc::new(Counted::default());
            let waker = Waker::from(told.clone());
            let mut get = Box::pin(queue.get());
            let mut cx = Context::from_waker(&waker);
            let bit = match get.as_mut().poll(&mut cx) {
                Poll::Ready(bit) => bit.unwrap(),
                Poll::Pending => {
                    told.count_from(&got);
                    while !told.woken.load(Ordering::Acquire) {
                        thread::yield_now();
                    }
                    let passed = told.at.load(Ordering::Relaxed) - told.from();
                    assert!(passed <= bound + THREADS, "{mode:?}: {passed} of {bound}");
                    let Poll::Ready(Ok(bit)) = get.as_mut().poll(&mut cx) else {
                        panic!("told without a grant")
                    };
                    bit
                }
            };
            queue.put(bit).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert_eq!(queue.weight(), 0);
    }
}

/// Notes the others' count when it is woken.
#[derive(Default)]
struct Counted {
    woken: AtomicBool,
    at: AtomicUsize,
    from: AtomicUsize,
    got: inflight_sync::Mutex<Option<Arc<AtomicUsize>>>,
}

impl Counted {
    fn count_from(&self, got: &Arc<AtomicUsize>) {
        self.from
            .store(got.load(Ordering::Relaxed), Ordering::Relaxed);
        *self.got.lock() = Some(got.clone());
    }

    fn from(&self) -> usize {
        self.from.load(Ordering::Relaxed)
    }
}

impl std::task::Wake for Counted {
    fn wake(self: Arc<Self>) {
        // Woken before the count began: nobody has passed since.
        let at = match &*self.got.lock() {
            Some(got) => got.load(Ordering::Relaxed),
            None => 0,
        };
        self.at.store(at.max(self.from()), Ordering::Relaxed);
        // Ordering: Release pairs with the Acquire of the test.
        self.woken.store(true, Ordering::Release);
    }
}

/// The wake of a task behind panics: the thread that serves it still has its bit, or has put it.
#[test]
fn a_panicking_waker_loses_nothing() {
    struct Panics;
    impl std::task::Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("this waker panics");
        }
    }
    for mode in MODES {
        let (queue, bits) = taken(2, mode);
        let waker = Waker::from(Arc::new(Panics));
        let mut first = Box::pin(queue.get());
        let mut second = Box::pin(queue.get());
        let mut cx = Context::from_waker(&waker);
        assert!(first.as_mut().poll(&mut cx).is_pending());
        assert!(poll(second.as_mut()).is_pending());
        let put = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            queue.put_batch(&bits).unwrap();
        }));
        assert!(put.is_err(), "the panic comes out of the put");
        assert!(poll(second.as_mut()).is_ready());
        assert!(poll(first.as_mut()).is_ready());
    }
}
