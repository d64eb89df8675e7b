//! Tasks, collectors, batches and resizes on four CPUs at random, and what was granted is left
//! unpolled, dropped, or polled elsewhere by another waker: checked against plain bookkeeping.
#![cfg(not(any(loom, shuttle)))]

use inflight_sbitmap::{Engine, Fairness, Get, GetMany, PutError, SbitmapQueue};
use inflight_sync::atomic::{AtomicBool, Ordering};
use inflight_sync::{Arc, cpu};
use proptest::collection::vec;
use proptest::prelude::*;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

const MOST: usize = 6;

#[derive(Clone, Copy, Debug)]
enum Op {
    One,
    Many(usize),
    /// The n-th of those who wait is polled here by a waker of its own, told or not.
    Poll(usize),
    /// It is dropped, whatever it has been granted.
    Drop(usize),
    Put(usize),
    /// Bits of several words, or of one as a mask.
    PutBatch(usize),
    /// A bit that is nobody's or out of range.
    PutWrong(usize),
    TryGet,
    TryShallow,
    Resize(usize),
    WakeAll,
}

fn op() -> impl Strategy<Value = (usize, Op)> {
    let op = prop_oneof![
        24 => Just(Op::One),
        2 => (2..4_usize).prop_map(Op::Many),
        20 => (0..16_usize).prop_map(Op::Poll),
        8 => (0..16_usize).prop_map(Op::Drop),
        24 => (0..8_usize).prop_map(Op::Put),
        4 => (1..4_usize).prop_map(Op::PutBatch),
        2 => (0..8_usize).prop_map(Op::PutWrong),
        4 => Just(Op::TryGet),
        2 => Just(Op::TryShallow),
        3 => (1..=MOST).prop_map(Op::Resize),
        1 => Just(Op::WakeAll),
    ];
    (0..4_usize, op)
}

struct OnPurpose;

/// Notes that it was told, and may panic on that.
struct Bell {
    told: AtomicBool,
    panics: bool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.told.store(true, Ordering::Relaxed);
        if self.panics {
            // Without a message, as there are many.
            resume_unwind(Box::new(OnPurpose));
        }
    }
}

enum Wish<'a> {
    One(Pin<Box<Get<'a>>>),
    Many(Pin<Box<GetMany<'a>>>),
}

struct Waiter<'a> {
    future: Wish<'a>,
    bell: Arc<Bell>,
}

impl Waiter<'_> {
    fn is_told(&self) -> bool {
        self.bell.told.load(Ordering::Relaxed)
    }
}

struct Run<'a> {
    queue: &'a SbitmapQueue,
    held: Vec<usize>,
    waiting: Vec<Waiter<'a>>,
    panicking: bool,
    wakers: usize,
}

impl<'a> Run<'a> {
    /// Wakers are foreign: a panic of one reaches whoever tells, after its work is done.
    fn guard<T>(f: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(f)) {
            Ok(value) => Some(value),
            Err(panic) => {
                if !panic.is::<OnPurpose>() {
                    resume_unwind(panic);
                }
                None
            }
        }
    }

    fn keep(&mut self, bits: &[usize]) {
        for &bit in bits {
            assert!(!self.held.contains(&bit), "two owners of bit {bit}");
            self.held.push(bit);
        }
    }

    /// Returns it if it waits on. Who was not told before has nothing to find.
    fn poll(&mut self, mut waiter: Waiter<'a>, first: bool) -> Option<Waiter<'a>> {
        let was_told = waiter.is_told() || first;
        self.wakers += 1;
        let bell = Arc::new(Bell {
            told: AtomicBool::new(false),
            panics: self.panicking && self.wakers % 3 == 0,
        });
        let waker = Waker::from(bell.clone());
        waiter.bell = bell;
        let mut cx = Context::from_waker(&waker);
        let polled = Self::guard(|| match &mut waiter.future {
            Wish::One(get) => get.as_mut().poll(&mut cx).map(|bit| Ok(vec![bit])),
            Wish::Many(many) => many.as_mut().poll(&mut cx),
        });
        // It arrived and told others, of whom one panicked: what it had has gone back.
        match polled? {
            Poll::Pending => Some(waiter),
            Poll::Ready(bits) => {
                assert!(was_told, "its grant was not told");
                self.keep(&bits.unwrap_or_default());
                None
            }
        }
    }

    fn come(&mut self, future: Wish<'a>) {
        let waiter = Waiter {
            future,
            bell: Arc::new(Bell {
                told: AtomicBool::new(false),
                panics: false,
            }),
        };
        let waiter = self.poll(waiter, true);
        self.waiting.extend(waiter);
    }

    fn step(&mut self, op: Op) {
        let queue = self.queue;
        match op {
            Op::One => self.come(Wish::One(Box::pin(queue.get()))),
            Op::Many(n) => self.come(Wish::Many(Box::pin(queue.get_many(n)))),
            Op::Poll(n) => {
                if n < self.waiting.len() {
                    let waiter = self.waiting.remove(n);
                    let waiter = self.poll(waiter, false);
                    if let Some(waiter) = waiter {
                        self.waiting.insert(n, waiter);
                    }
                }
            }
            Op::Drop(n) => {
                if n < self.waiting.len() {
                    let waiter = self.waiting.remove(n);
                    Self::guard(|| drop(waiter));
                }
            }
            Op::Put(n) => {
                if n < self.held.len() {
                    let bit = self.held.remove(n);
                    let put = Self::guard(|| queue.put(bit));
                    assert!(put.is_none_or(|put| put == Ok(())));
                }
            }
            Op::PutBatch(n) => {
                let from = self.held.len().saturating_sub(n);
                let bits = self.held.split_off(from);
                let put = Self::guard(|| queue.put_batch(&bits));
                assert!(put.is_none_or(|put| put == Ok(())));
            }
            Op::PutWrong(bit) => {
                if bit >= MOST {
                    assert_eq!(queue.put(bit), Err(PutError::OutOfRange));
                } else if !self.held.contains(&bit) {
                    assert_eq!(queue.put(bit), Err(PutError::NotAllocated));
                }
            }
            Op::TryGet => {
                let bit = queue.try_get();
                self.keep(bit.as_slice());
            }
            Op::TryShallow => {
                let bit = queue.try_get_shallow(1);
                self.keep(bit.as_slice());
            }
            Op::Resize(depth) => {
                Self::guard(|| queue.resize(depth).unwrap());
            }
            Op::WakeAll => {
                Self::guard(|| queue.wake_all());
                assert!(self.waiting.iter().all(Waiter::is_told), "all are told");
            }
        }
    }

    /// What holds whenever nobody is inside the queue.
    fn assert_at_rest(&self) {
        let snapshot = self.queue.snapshot();
        let kept = snapshot.granted + snapshot.collected;
        assert_eq!(self.queue.weight(), self.held.len() + kept);
        if snapshot.ws_active > 0 {
            let free = (0..self.queue.depth()).find(|&bit| !self.queue.is_set(bit));
            assert_eq!(free, None, "free while somebody waits");
        }
        let untold = self.waiting.iter().filter(|waiter| !waiter.is_told());
        assert!(untold.count() <= snapshot.ws_active);
    }

    /// Bits come back one by one until everybody has been served, on what he was told alone.
    fn finish(mut self) {
        loop {
            let at = self.waiting.iter().position(Waiter::is_told);
            match at {
                Some(at) => self.step(Op::Poll(at)),
                None if self.held.is_empty() => break,
                None => self.step(Op::Put(0)),
            }
            self.assert_at_rest();
        }
        assert!(self.waiting.is_empty(), "forgotten");
        assert_eq!(self.queue.weight(), 0);
        let all = self.queue.try_get_batch(MOST, &mut Vec::new());
        assert_eq!(all, self.queue.depth());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 96 }))]

    #[test]
    fn tasks_against_plain_bookkeeping(
        ops in vec(op(), 0..160),
        depth in 1..=MOST,
        panicking: bool,
    ) {
        for engine in [Engine::Shared, Engine::Local] {
            for fairness in [Fairness::Fair, Fairness::Fifo] {
                cpu::set_current_for_thread(Some(0));
                let builder = SbitmapQueue::builder(depth).max_depth(MOST).shift(1);
                let queue = builder.engine(engine).fairness(fairness).build().unwrap();
                let mut run = Run {
                    queue: &queue,
                    held: Vec::new(),
                    waiting: Vec::new(),
                    panicking,
                    wakers: 0,
                };
                let mut all = Vec::new();
                queue.try_get_batch(depth, &mut all);
                run.keep(&all);
                for &(cpu, op) in &ops {
                    cpu::set_current_for_thread(Some(cpu));
                    run.step(op);
                    run.assert_at_rest();
                }
                run.finish();
            }
        }
    }
}
