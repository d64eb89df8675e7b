//! Operations on a queue, run against an oracle of two sets and a list of those who wait.
//!
//! One interpreter for the property tests and for the fuzz target, which includes this file by
//! path. One thread polls all tasks by hand, and the clock is manual.

use inflight_sbitmap::{Engine, Fairness, Get, GetMany, GetManyError, PutError, SbitmapQueue};
use inflight_sync::Arc;
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::cpu;
use inflight_sync::time::Clock;
use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// How the queue is built.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) struct Setup {
    /// Taken modulo [`Setup::MAX_DEPTH`] + 1.
    pub(crate) depth: u8,
    pub(crate) mode: Mode,
    pub(crate) checked: bool,
}

impl Setup {
    pub(crate) const MAX_DEPTH: usize = 40;
}

/// Fairness and engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) enum Mode {
    Fair,
    FairLocal,
    Fifo,
    FifoLocal,
    Batched,
}

/// One call.
#[derive(Clone, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) enum Op {
    TryGet,
    /// A wait that ends at once.
    GetInNoTime,
    TryGetBatch(u8),
    /// A new task, polled once.
    Begin,
    BeginMany(u8),
    /// One of the tasks, by position.
    Poll(u8),
    Drop(u8),
    /// One of those held, by position; if none is, a bit that is free.
    Put(u8),
    PutBatch(Vec<u8>),
    PutNonsense(u64),
    Resize(u8),
    WakeAll,
    Advance(u16),
}

/// Counts how often it was woken.
#[derive(Default)]
struct WakeCount(AtomicUsize);

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a task waits for.
enum Wait<'a> {
    One(Pin<Box<Get<'a>>>),
    Many(Pin<Box<GetMany<'a>>>),
}

/// A task that has been polled and was not ready.
struct Task<'a> {
    wait: Wait<'a>,
    wakes: Arc<WakeCount>,
    woken: usize,
    want: usize,
    /// How many it has been granted, says the oracle.
    granted: usize,
    /// A resize made the queue smaller than it wants.
    refused: bool,
}

enum Got {
    Bits(Vec<usize>),
    TooMany,
    Pending,
}

impl Task<'_> {
    fn poll(&mut self) -> Got {
        let waker = Waker::from(self.wakes.clone());
        self.woken = self.wakes.0.load(Ordering::Relaxed);
        let mut cx = Context::from_waker(&waker);
        match &mut self.wait {
            Wait::One(get) => match get.as_mut().poll(&mut cx) {
                Poll::Ready(bit) => Got::Bits(vec![bit.unwrap()]),
                Poll::Pending => Got::Pending,
            },
            Wait::Many(get) => match get.as_mut().poll(&mut cx) {
                Poll::Ready(Ok(bits)) => Got::Bits(bits),
                Poll::Ready(Err(GetManyError::TooMany { .. })) => Got::TooMany,
                Poll::Ready(Err(error)) => panic!("no deadline: {error}"),
                Poll::Pending => Got::Pending,
            },
        }
    }

    fn is_served(&self) -> bool {
        self.granted == self.want || self.refused
    }

    fn was_woken(&self) -> bool {
        self.wakes.0.load(Ordering::Relaxed) > self.woken
    }
}

struct Run<'a> {
    queue: &'a SbitmapQueue,
    clock: Clock,
    mode: Mode,
    depth: usize,
    /// Bits the user has, among them perhaps some at or above a depth that was larger.
    held: BTreeSet<usize>,
    /// In the order in which they came.
    tasks: VecDeque<Task<'a>>,
}

/// Runs the operations on a new queue, then gives everything back until nobody waits.
pub(crate) fn run(setup: Setup, ops: &[Op]) {
    // The order among tasks of all CPUs is that of one list only in `Fifo`.
    cpu::set_current_for_thread(Some(0));
    let clock = Clock::manual();
    let (fairness, engine) = match setup.mode {
        Mode::Fair => (Fairness::fair(), Engine::Shared),
        Mode::FairLocal => (Fairness::fair(), Engine::Local),
        Mode::Fifo => (Fairness::fifo(), Engine::Shared),
        Mode::FifoLocal => (Fairness::fifo(), Engine::Local),
        Mode::Batched => (Fairness::batched(), Engine::Shared),
    };
    let depth = 1 + usize::from(setup.depth) % Setup::MAX_DEPTH;
    let queue = SbitmapQueue::builder(depth)
        .max_depth(Setup::MAX_DEPTH)
        .fairness(fairness)
        .engine(engine)
        .checked(setup.checked)
        .clock(clock.clone())
        .build()
        .unwrap();
    let mut run = Run {
        queue: &queue,
        clock,
        mode: setup.mode,
        depth,
        held: BTreeSet::new(),
        tasks: VecDeque::new(),
    };
    for op in ops {
        run.step(op);
        run.look(op);
    }
    run.finish();
}

impl<'a> Run<'a> {
    fn step(&mut self, op: &Op) {
        match *op {
            Op::TryGet => {
                let got = self.queue.try_get();
                self.took_at_once(got.into_iter().collect(), 1);
            }
            Op::GetInNoTime => {
                let got = self.queue.get_timeout(Duration::ZERO).ok();
                self.took_at_once(got.into_iter().collect(), 1);
            }
            Op::TryGetBatch(n) => {
                let mut bits = Vec::new();
                let n = usize::from(n);
                assert_eq!(self.queue.try_get_batch(n, &mut bits), bits.len());
                self.took_at_once(bits, n);
            }
            // In batches a collector has bits of which the oracle does not know.
            Op::BeginMany(_) if self.mode == Mode::Batched => {}
            Op::Begin => self.begin(Wait::One(Box::pin(self.queue.get())), 1),
            Op::BeginMany(n) => {
                let n = 1 + usize::from(n) % (Setup::MAX_DEPTH + 1);
                self.begin(Wait::Many(Box::pin(self.queue.get_many(n))), n);
            }
            Op::Poll(i) => self.poll(usize::from(i)),
            Op::Drop(i) => self.drop_task(usize::from(i)),
            Op::Put(i) => self.put(usize::from(i)),
            Op::PutBatch(ref picks) => self.put_batch(picks),
            Op::PutNonsense(bit) => {
                let bit = usize::try_from(bit)
                    .unwrap_or(usize::MAX)
                    .max(Setup::MAX_DEPTH);
                assert!(matches!(
                    self.queue.put(bit),
                    Err(PutError::OutOfRange { .. })
                ));
            }
            Op::Resize(depth) => self.resize(1 + usize::from(depth) % Setup::MAX_DEPTH),
            Op::WakeAll => self.queue.wake_all(),
            Op::Advance(ms) => self.clock.advance(Duration::from_millis(ms.into())),
        }
        self.serve();
    }

    /// Bits that nobody has, and nobody was granted.
    fn free(&self) -> usize {
        let granted: usize = self.tasks.iter().map(|task| task.granted).sum();
        self.depth - self.held.range(..self.depth).count() - granted
    }

    /// By turns: each free bit goes to the first who wants one, so nobody waits while one is free.
    fn serve(&mut self) {
        if self.mode == Mode::Batched {
            return;
        }
        let mut free = self.free();
        for task in self.tasks.iter_mut().filter(|task| !task.is_served()) {
            let more = free.min(task.want - task.granted);
            task.granted += more;
            free -= more;
        }
    }

    fn somebody_waits(&self) -> bool {
        self.mode != Mode::Batched && self.tasks.iter().any(|task| !task.is_served())
    }

    fn take(&mut self, bit: usize) {
        assert!(bit < self.depth, "bit {bit} of {}", self.depth);
        assert!(self.held.insert(bit), "bit {bit} has two owners");
        assert!(self.queue.is_set(bit));
    }

    /// None is exact, unless somebody would be overtaken.
    fn took_at_once(&mut self, bits: Vec<usize>, wanted: usize) {
        let there = if self.somebody_waits() {
            0
        } else {
            self.free()
        };
        assert_eq!(
            bits.len(),
            wanted.min(there),
            "{wanted} wanted, {there} to be had"
        );
        bits.into_iter().for_each(|bit| self.take(bit));
    }

    fn begin(&mut self, wait: Wait<'a>, want: usize) {
        let mut task = Task {
            wait,
            wakes: Arc::default(),
            woken: 0,
            want,
            granted: 0,
            refused: false,
        };
        let there = !self.somebody_waits() && self.free() >= want;
        match task.poll() {
            Got::Bits(bits) => {
                assert!(there, "taken past others, or from nowhere");
                assert_eq!(bits.len(), want);
                bits.into_iter().for_each(|bit| self.take(bit));
            }
            Got::TooMany => assert!(want > self.depth),
            Got::Pending => {
                assert!(!there && want <= self.depth.max(1), "{want} were to be had");
                self.tasks.push_back(task);
            }
        }
    }

    fn poll(&mut self, i: usize) {
        let Some(i) = i.checked_rem(self.tasks.len()) else {
            return;
        };
        let before = self.free();
        let mut task = self.tasks.remove(i).unwrap();
        let (served, refused) = (task.is_served(), task.refused);
        let woken = task.was_woken();
        let got = task.poll();
        let by_turns = self.mode != Mode::Batched;
        match got {
            Got::Bits(bits) => {
                assert!(served || !by_turns, "not its turn");
                assert_eq!(bits.len(), task.want);
                bits.into_iter().for_each(|bit| self.take(bit));
            }
            Got::TooMany => assert!(refused || task.want > self.depth),
            Got::Pending => {
                assert!(!served, "granted, and still pending");
                assert!(
                    by_turns || !woken || before == 0,
                    "woken, and a bit was free"
                );
                self.tasks.insert(i, task);
            }
        }
    }

    fn drop_task(&mut self, i: usize) {
        if let Some(i) = i.checked_rem(self.tasks.len()) {
            self.tasks.remove(i);
        }
    }

    fn nothing_granted(&self) -> bool {
        self.tasks.iter().all(|task| task.granted == 0)
    }

    fn put(&mut self, i: usize) {
        match i.checked_rem(self.held.len()) {
            Some(i) => {
                let bit = *self.held.iter().nth(i).unwrap();
                self.held.remove(&bit);
                assert_eq!(self.queue.put(bit), Ok(()));
            }
            None if i < self.depth && self.nothing_granted() => {
                assert!(matches!(
                    self.queue.put(i),
                    Err(PutError::NotAllocated { .. })
                ));
            }
            None => {}
        }
    }

    fn put_batch(&mut self, picks: &[u8]) {
        let mut bits = Vec::new();
        for &pick in picks {
            if let Some(i) = usize::from(pick).checked_rem(self.held.len()) {
                let bit = *self.held.iter().nth(i).unwrap();
                self.held.remove(&bit);
                bits.push(bit);
            }
        }
        assert_eq!(self.queue.put_batch(&bits), Ok(()));
    }

    /// Only while the oracle knows who has what.
    fn resize(&mut self, depth: usize) {
        if !self.nothing_granted() {
            return;
        }
        self.depth = depth;
        assert_eq!(self.queue.resize(depth), Ok(()));
        for task in &mut self.tasks {
            if let Wait::Many(_) = task.wait {
                task.refused |= task.want > depth;
            }
        }
    }

    fn look(&self, op: &Op) {
        assert_eq!(self.queue.depth(), self.depth);
        let granted: usize = self.tasks.iter().map(|task| task.granted).sum();
        assert_eq!(
            self.queue.weight(),
            self.held.len() + granted,
            "after {op:?}"
        );
        assert!(
            self.held.iter().all(|&bit| self.queue.is_set(bit)),
            "after {op:?}"
        );
        if self.mode != Mode::Batched {
            let served = self.tasks.iter().filter(|task| task.is_served());
            assert!(
                served.into_iter().all(Task::was_woken),
                "served and not told, after {op:?}"
            );
        }
    }

    /// Everybody finishes while bits come back, and no bit is lost.
    fn finish(mut self) {
        self.queue.wake_all();
        while !self.tasks.is_empty() || !self.held.is_empty() {
            let before = (self.tasks.len(), self.held.len());
            (0..self.tasks.len()).rev().for_each(|i| self.poll(i));
            let held: Vec<_> = std::mem::take(&mut self.held).into_iter().collect();
            assert_eq!(self.queue.put_batch(&held), Ok(()));
            self.serve();
            self.queue.wake_all();
            if self.depth == 0 && held.is_empty() {
                // Nobody is ever served: they leave.
                self.tasks.clear();
            }
            assert!(
                before != (self.tasks.len(), self.held.len()) || !held.is_empty(),
                "{} tasks wait for ever",
                self.tasks.len()
            );
        }
        assert_eq!(self.queue.weight(), 0);
        let mut bits = Vec::new();
        assert_eq!(
            self.queue.try_get_batch(self.depth + 1, &mut bits),
            self.depth
        );
        bits.sort_unstable();
        assert!(bits.into_iter().eq(0..self.depth));
    }
}
