//! Tasks that wait where they came: who overtakes whom, and that nobody is forgotten.

use inflight_sbitmap::{Engine, Fairness, Get, PutError, SbitmapQueue};
use inflight_sync::atomic::{AtomicBool, Ordering};
use inflight_sync::observer::{BlockObserver, install};
use inflight_sync::{Arc, block_on, cpu, thread};
use proptest::prelude::*;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Wake, Waker};

const ENGINES: [Engine; 2] = [Engine::Shared, Engine::Local];

/// As promised: fewer than so many that came later are served before one.
const OVERTAKERS: usize = 128;

/// The calling thread says that it runs there.
fn on(cpu: usize) {
    cpu::set_current_for_thread(Some(cpu));
}

fn has_two_homes() -> bool {
    cpu::possible() > 1
}

/// A queue whose bits are all taken.
fn taken(depth: usize, fairness: Fairness, engine: Engine) -> SbitmapQueue {
    on(0);
    let builder = SbitmapQueue::builder(depth).fairness(fairness);
    let queue = builder.engine(engine).build().unwrap();
    assert_eq!(queue.try_get_batch(depth, &mut Vec::new()), depth);
    queue
}

type Waiting<'a> = Pin<Box<Get<'a>>>;

fn look(get: &mut Waiting<'_>) -> Poll<usize> {
    get.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// A task that has come to wait on that CPU.
fn wait_on(cpu: usize, queue: &SbitmapQueue) -> Waiting<'_> {
    on(cpu);
    let mut get = Box::pin(queue.get());
    assert!(look(&mut get).is_pending());
    get
}

fn put_on(cpu: usize, queue: &SbitmapQueue, bit: usize) {
    on(cpu);
    queue.put(bit).unwrap();
}

#[test]
fn a_bit_goes_to_who_came_to_wait_where_it_is_put() {
    for engine in ENGINES {
        for fairness in [Fairness::Fair, Fairness::Fifo] {
            let queue = taken(2, fairness, engine);
            let mut here = wait_on(0, &queue);
            let mut there = wait_on(1, &queue);
            put_on(1, &queue, 1);
            let at_home = fairness == Fairness::Fair && has_two_homes();
            assert_eq!(look(&mut there).is_ready(), at_home, "{fairness:?}");
            assert_eq!(look(&mut here).is_ready(), !at_home, "{fairness:?}");
            put_on(1, &queue, 0);
            let last = if at_home { &mut here } else { &mut there };
            assert!(look(last).is_ready());
        }
    }
}

/// Bits come back on one CPU only, and go to tasks that come there, one after the other: one that
/// came elsewhere has its turn all the same.
#[test]
fn one_cpu_cannot_keep_all_bits_to_itself() {
    for engine in ENGINES {
        let queue = taken(1, Fairness::Fair, engine);
        let mut there = wait_on(1, &queue);
        let mut others: Vec<_> = (0..4).map(|_| wait_on(0, &queue)).collect();
        let mut overtakers = 0;
        loop {
            put_on(0, &queue, 0);
            if look(&mut there).is_ready() {
                break;
            }
            let mut first = others.remove(0);
            assert!(look(&mut first).is_ready(), "in the order they came");
            others.push(wait_on(0, &queue));
            overtakers += 1;
            assert!(overtakers < OVERTAKERS);
        }
        assert_eq!(overtakers > 1, has_two_homes());
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Wait,
    Put,
    /// The n-th of those who wait gives up.
    Leave(usize),
    /// Everybody looks.
    WakeAll,
}

fn op() -> impl Strategy<Value = (usize, Op)> {
    let op = prop_oneof![
        40 => Just(Op::Wait),
        40 => Just(Op::Put),
        5 => (0..64_usize).prop_map(Op::Leave),
        1 => Just(Op::WakeAll),
    ];
    (0..4_usize, op)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

    /// Tasks come, leave and are served on four CPUs. None is overtaken by as many as promised, and
    /// no bit is free while one waits.
    #[test]
    fn overtaking_is_bounded(ops in proptest::collection::vec(op(), 0..400), depth in 1..6_usize) {
        for engine in ENGINES {
            let queue = taken(depth, Fairness::Fair, engine);
            let mut held: Vec<usize> = (0..depth).collect();
            // When it came, and who came later and was served before it.
            let mut waiting: Vec<(usize, usize, Waiting<'_>)> = Vec::new();
            let mut clock = 0;
            for &(cpu, op) in &ops {
                match op {
                    Op::Wait => {
                        on(cpu);
                        let mut get = Box::pin(queue.get());
                        match look(&mut get) {
                            Poll::Ready(bit) => {
                                prop_assert!(waiting.is_empty(), "past all who wait");
                                held.push(bit);
                            }
                            Poll::Pending => waiting.push((clock, 0, get)),
                        }
                        clock += 1;
                    }
                    Op::Put => {
                        let Some(bit) = held.pop() else { continue };
                        put_on(cpu, &queue, bit);
                    }
                    Op::Leave(n) => {
                        if n < waiting.len() {
                            drop(waiting.remove(n));
                        }
                    }
                    Op::WakeAll => queue.wake_all(),
                }
                let mut served = Vec::new();
                waiting.retain_mut(|(came, _, get)| {
                    let Poll::Ready(bit) = look(get) else { return true };
                    held.push(bit);
                    served.push(*came);
                    false
                });
                for (came, overtakers, _) in &mut waiting {
                    *overtakers += served.iter().filter(|&&other| other > *came).count();
                    prop_assert!(*overtakers < OVERTAKERS);
                }
                let free = depth - held.len();
                prop_assert!(free == 0 || waiting.is_empty(), "free while somebody waits");
                prop_assert_eq!(queue.snapshot().ws_active, waiting.len());
                prop_assert_eq!(queue.weight(), held.len());
            }
        }
    }
}

#[test]
fn a_thread_stands_between_tasks_that_came_before_and_after_it() {
    for engine in ENGINES {
        let queue = Arc::new(taken(1, Fairness::Fair, engine));
        let mut before = wait_on(0, &queue);
        let thread = thread::spawn({
            let queue = queue.clone();
            move || queue.get_blocking()
        });
        while queue.snapshot().ws_active < 2 {
            thread::yield_now();
        }
        let mut after = wait_on(0, &queue);
        put_on(0, &queue, 0);
        assert_eq!(look(&mut before), Poll::Ready(0));
        put_on(0, &queue, 0);
        assert!(look(&mut after).is_pending());
        assert_eq!(thread.join().unwrap(), 0);
        put_on(0, &queue, 0);
        assert_eq!(look(&mut after), Poll::Ready(0));
        assert_eq!(queue.snapshot().ws_active, 0);
    }
}

/// Keeps its thread from going on when it has been woken.
struct Stop(Arc<AtomicBool>);

impl BlockObserver for Stop {
    fn blocking(&self) {}

    fn unblocked(&self) {
        while !self.0.load(Ordering::Relaxed) {
            thread::yield_now();
        }
    }
}

/// A woken thread that does not run yet keeps threads waiting, and no task at home, wherever bits
/// are put.
#[test]
fn tasks_at_home_wait_for_no_token() {
    let queue = Arc::new(taken(3, Fairness::Fair, Engine::Shared));
    let go = Arc::new(AtomicBool::new(false));
    let spawn = |stop: Option<Arc<AtomicBool>>| {
        let queue = queue.clone();
        thread::spawn(move || {
            let _installed = stop.map(|stop| install(Rc::new(Stop(stop))));
            queue.get_blocking()
        })
    };
    let until = |n| {
        while queue.snapshot().ws_active != n {
            thread::yield_now();
        }
    };
    let stopped = spawn(Some(go.clone()));
    until(1);
    put_on(0, &queue, 0);
    let mut task = wait_on(1, &queue);
    let behind = spawn(None);
    until(2);
    put_on(0, &queue, 1);
    assert_eq!(look(&mut task), Poll::Ready(1));
    go.store(true, Ordering::Relaxed);
    assert_eq!(stopped.join().unwrap(), 0);
    put_on(0, &queue, 2);
    assert_eq!(behind.join().unwrap(), 2);
}

#[test]
fn what_a_dropped_task_had_goes_to_another_home() {
    for engine in ENGINES {
        let queue = taken(1, Fairness::Fair, engine);
        let first = wait_on(0, &queue);
        let waits = wait_on(0, &queue);
        let mut there = wait_on(1, &queue);
        put_on(0, &queue, 0);
        drop(waits);
        assert!(look(&mut there).is_pending());
        drop(first);
        assert_eq!(look(&mut there), Poll::Ready(0));
        drop(there);
        queue.put(0).unwrap();
        assert_eq!(queue.try_get(), Some(0));
    }
}

#[test]
fn a_bit_under_way_at_home_cannot_be_put() {
    for engine in ENGINES {
        let queue = taken(2, Fairness::Fair, engine);
        let mut get = wait_on(0, &queue);
        let _behind = wait_on(0, &queue);
        put_on(0, &queue, 1);
        assert_eq!(queue.put(1), Err(PutError::NotAllocated));
        assert_eq!(queue.put(2), Err(PutError::OutOfRange));
        assert_eq!(look(&mut get), Poll::Ready(1));
    }
}

#[test]
fn a_bit_above_the_depth_is_not_handed_over() {
    for engine in ENGINES {
        let queue = taken(2, Fairness::Fair, engine);
        let mut get = wait_on(0, &queue);
        queue.resize(1).unwrap();
        put_on(0, &queue, 1);
        assert!(look(&mut get).is_pending());
        put_on(0, &queue, 0);
        assert_eq!(look(&mut get), Poll::Ready(0));
    }
}

#[test]
fn a_batch_and_growth_serve_every_home() {
    for engine in ENGINES {
        on(0);
        let queue = SbitmapQueue::builder(8).max_depth(40).engine(engine);
        let queue = queue.build().unwrap();
        let mut bits = Vec::new();
        queue.try_get_batch(8, &mut bits);
        let mut gets: Vec<_> = (0..40).map(|i| wait_on(i % 4, &queue)).collect();
        assert_eq!(queue.stats().waits, 40);
        queue.put_batch(&bits).unwrap();
        let ready = |gets: &mut Vec<_>| gets.retain_mut(|get| look(get).is_pending());
        ready(&mut gets);
        assert_eq!(gets.len(), 32);
        queue.resize(40).unwrap();
        assert_eq!(queue.snapshot().granted, 32);
        ready(&mut gets);
        assert!(gets.is_empty());
        assert_eq!(queue.stats().wakeups, 40);
    }
}

#[derive(Default)]
struct Told(AtomicBool);

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn everybody_at_home_looks_when_told_to_and_stays() {
    let queue = taken(2, Fairness::Fair, Engine::Shared);
    let told = [(); 2].map(|()| Arc::new(Told::default()));
    let poll = |get: &mut Waiting<'_>, told: &Arc<Told>| {
        let waker = Waker::from(told.clone());
        get.as_mut().poll(&mut Context::from_waker(&waker))
    };
    let mut gets = [0, 1].map(|cpu| wait_on(cpu, &queue));
    assert!(poll(&mut gets[0], &told[0]).is_pending());
    assert!(poll(&mut gets[1], &told[1]).is_pending());
    queue.wake_all();
    assert!(
        told.iter()
            .all(|told| told.0.swap(false, Ordering::Relaxed))
    );
    assert!(poll(&mut gets[0], &told[0]).is_pending());
    put_on(0, &queue, 0);
    // The other has not said anew how it is told, and needs no news to find its bit.
    put_on(1, &queue, 1);
    let of_now = told.map(|told| told.0.load(Ordering::Relaxed));
    assert_eq!(of_now, [true, false]);
    assert!(gets.iter_mut().all(|get| look(get).is_ready()));
}

/// More tasks than bits on threads of several CPUs, which stop in the midst: all finish.
#[test]
fn stop_cycles_at_home() {
    for engine in ENGINES {
        for _ in 0..if cfg!(miri) { 1 } else { 50 } {
            let queue = SbitmapQueue::builder(2).engine(engine);
            let queue = Arc::new(queue.build().unwrap());
            let stop = Arc::new(AtomicBool::new(false));
            let spawn = |i| {
                let (queue, stop) = (queue.clone(), stop.clone());
                thread::spawn(move || {
                    on(i % 3);
                    while !stop.load(Ordering::Relaxed) {
                        let bit = if i == 5 {
                            queue.get_blocking()
                        } else {
                            block_on(queue.get())
                        };
                        on((i + bit) % 4);
                        queue.put(bit).unwrap();
                    }
                })
            };
            let threads: Vec<_> = (0..6).map(spawn).collect();
            (0..5).for_each(|_| thread::yield_now());
            stop.store(true, Ordering::Relaxed);
            threads.into_iter().for_each(|t| t.join().unwrap());
            assert_eq!(queue.weight(), 0);
            assert_eq!(queue.snapshot().ws_active, 0);
        }
    }
}
