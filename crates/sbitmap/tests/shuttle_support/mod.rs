//! What the random schedules share: queues in every mode, who holds which bit, tasks that are
//! polled by hand, and threads on their CPUs.
#![allow(dead_code, unused_imports, reason = "each file uses its part")]

#[path = "../../../sync/tests/shuttle_support/mod.rs"]
mod all_crates;

pub(crate) use all_crates::{Threads, polled};

use inflight_sbitmap::tenancy::Rules;
use inflight_sbitmap::{
    BatchedOptions, BitMask, Engine, FairOptions, Fairness, SbitmapQueue, WakePolicy,
};
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::model::{check_pct, check_random};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex, thread};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Schedules of each kind, for each mode.
const RUNS: usize = 60;
pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// With fewer ids the local engine opens no stack.
const FEWEST: usize = 4;

/// How a queue serves, and where it keeps its bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    pub(crate) fairness: Fairness,
    pub(crate) engine: Engine,
    round_robin: bool,
}

impl Mode {
    const fn of(fairness: Fairness, engine: Engine) -> Self {
        Self {
            fairness,
            engine,
            round_robin: false,
        }
    }

    const fn batched(policy: WakePolicy) -> Self {
        let options = BatchedOptions::new().wake_policy(policy);
        Self::of(Fairness::Batched(options), Engine::Shared)
    }

    const fn round_robin(mut self) -> Self {
        self.round_robin = true;
        self
    }

    pub(crate) fn is_batched(self) -> bool {
        matches!(self.fairness, Fairness::Batched(_))
    }

    pub(crate) fn is_local(self) -> bool {
        self.engine == Engine::Local
    }
}

pub(crate) const MODES: [Mode; 10] = [
    Mode::of(Fairness::fair(), Engine::Local),
    Mode::of(Fairness::fair(), Engine::Shared),
    Mode::of(
        Fairness::Fair(FairOptions::new().completer_polls(true)),
        Engine::Local,
    ),
    Mode::of(Fairness::fair(), Engine::Shared).round_robin(),
    Mode::of(Fairness::fifo(), Engine::Local),
    Mode::of(Fairness::fifo(), Engine::Shared),
    Mode::batched(WakePolicy::RoundRobin),
    Mode::batched(WakePolicy::RoundRobin).round_robin(),
    Mode::batched(WakePolicy::FullestFirst),
    Mode::batched(WakePolicy::BalancedRoundRobin { threshold: 1 }),
];

/// Both ways to choose schedules, for each of these modes.
pub(crate) fn check_in(name: &str, modes: &[Mode], model: fn(Mode)) {
    for &mode in modes {
        let name = format!("{name}/{mode:?}");
        check_random(&name, RUNS, move || model(mode));
        check_pct(&name, RUNS, 3, move || model(mode));
    }
}

/// In every mode.
pub(crate) fn check(name: &str, model: fn(Mode)) {
    check_in(name, &MODES, model);
}

/// A queue, and for each bit whether somebody holds it.
pub(crate) struct Owned {
    pub(crate) queue: Arc<SbitmapQueue>,
    pub(crate) clock: Clock,
    /// Ids beyond what the model asks for, which stay out.
    kept: Vec<usize>,
    owners: Vec<AtomicUsize>,
}

impl Owned {
    pub(crate) fn new(depth: usize, max_depth: usize, mode: Mode) -> Arc<Self> {
        Self::with_rules(depth, max_depth, mode, Rules::default())
    }

    pub(crate) fn with_rules(
        depth: usize,
        max_depth: usize,
        mode: Mode,
        rules: Rules,
    ) -> Arc<Self> {
        let clock = Clock::manual();
        let more = if mode.is_local() {
            FEWEST.saturating_sub(depth)
        } else {
            0
        };
        let queue = SbitmapQueue::builder(depth + more)
            .max_depth(max_depth + more)
            .fairness(mode.fairness)
            .engine(mode.engine)
            .round_robin(mode.round_robin)
            .clock(clock.clone());
        let queue = Arc::new(queue.build_with_rules(rules).unwrap());
        let kept = (0..more).map(|_| queue.try_get().unwrap()).collect();
        let owners = (0..max_depth + more).map(|_| AtomicUsize::new(0));
        Arc::new(Self {
            queue,
            clock,
            kept,
            owners: owners.collect(),
        })
    }

    /// One whose bits are all out. Nobody has missed one, so stacks stay open.
    pub(crate) fn taken(depth: usize, max_depth: usize, mode: Mode) -> (Arc<Self>, Vec<usize>) {
        let owned = Self::new(depth, max_depth, mode);
        let bits: Vec<_> = (0..depth).map(|_| owned.queue.try_get().unwrap()).collect();
        owned.claim(&bits);
        (owned, bits)
    }

    pub(crate) fn resize(&self, depth: usize) {
        self.queue.resize(depth + self.kept.len()).unwrap();
    }

    /// The depth that `resize(depth)` makes.
    pub(crate) fn real_depth(&self, depth: usize) -> usize {
        depth + self.kept.len()
    }

    // Relaxed here and below: the checker runs everything in one order.
    pub(crate) fn claim(&self, bits: &[usize]) {
        for &bit in bits {
            let owners = self.owners[bit].swap(1, Ordering::Relaxed);
            assert_eq!(owners, 0, "bit {bit} has two owners");
        }
    }

    /// The bits are about to be put.
    pub(crate) fn release(&self, bits: &[usize]) {
        for &bit in bits {
            assert_eq!(self.owners[bit].swap(0, Ordering::Relaxed), 1);
        }
    }

    pub(crate) fn put(&self, bits: &[usize]) {
        self.release(bits);
        match *bits {
            [bit] => self.queue.put(bit).unwrap(),
            _ => self.queue.put_batch(bits).unwrap(),
        }
    }

    pub(crate) fn put_mask(&self, mask: BitMask) {
        let bits: Vec<_> = mask.iter().collect();
        self.release(&bits);
        self.queue.put_mask(mask).unwrap();
    }

    pub(crate) fn use_and_put(&self, bits: &[usize]) {
        self.claim(bits);
        thread::yield_now();
        self.put(bits);
    }

    pub(crate) fn use_and_put_mask(&self, mask: BitMask) {
        self.claim(&mask.iter().collect::<Vec<_>>());
        thread::yield_now();
        self.put_mask(mask);
    }

    /// Nobody waits, `held` bits of the model are out, and every count says so.
    pub(crate) fn assert_at_rest(&self, held: usize) {
        let held = held + self.kept.len();
        assert_eq!(self.queue.weight(), held, "weight");
        let snapshot = self.queue.snapshot();
        assert_eq!(snapshot.ws_active, 0, "who waits\n{snapshot}");
        assert!(snapshot.waiters.iter().all(|&n| n == 0), "{snapshot}");
        assert_eq!((snapshot.granted, snapshot.collected), (0, 0), "{snapshot}");
        assert_eq!(snapshot.map.busy, held, "busy\n{snapshot}");
        let words: u32 = snapshot
            .map
            .words
            .iter()
            .map(|word| word.count_ones())
            .sum();
        assert_eq!(words as usize, held, "words\n{snapshot}");
        let mut seen = Vec::new();
        self.queue.for_each_set(0, |bit| {
            seen.push(bit);
            true
        });
        let mut known = self.held();
        known.extend(&self.kept);
        known.sort_unstable();
        seen.sort_unstable();
        assert_eq!(seen, known, "bits that somebody holds");
    }

    /// The bits that the model holds.
    pub(crate) fn held(&self) -> Vec<usize> {
        let held = |bit: &usize| self.owners[*bit].load(Ordering::Relaxed) == 1;
        (0..self.owners.len()).filter(held).collect()
    }

    /// Puts what the model holds.
    pub(crate) fn put_held(&self) {
        self.put(&self.held());
    }

    /// All bits of the model have come back, and each can be had once.
    pub(crate) fn assert_all_back(&self) {
        self.assert_at_rest(0);
        self.queue.put_batch(&self.kept).unwrap();
        let depth = self.queue.depth();
        let mut bits = Vec::new();
        assert_eq!(self.queue.try_get_batch(depth, &mut bits), depth, "lost");
        bits.sort_unstable();
        assert_eq!(bits, (0..depth).collect::<Vec<_>>());
    }

    /// The same of a queue that was closed.
    pub(crate) fn assert_closed_at_rest(&self) {
        self.assert_at_rest(0);
        assert!(self.queue.is_closed());
        assert_eq!(self.queue.try_get(), None);
    }
}

/// A future that may be polled by any thread.
pub(crate) type Task<T> = Pin<Box<dyn Future<Output = T> + Send>>;

pub(crate) fn poll_with<T>(task: &mut Task<T>, waker: &Waker) -> Poll<T> {
    task.as_mut().poll(&mut Context::from_waker(waker))
}

/// A get that owns its queue.
pub(crate) fn get_task(owned: &Arc<Owned>) -> Task<Vec<usize>> {
    let queue = owned.queue.clone();
    Box::pin(async move { queue.get().await.into_iter().collect() })
}

/// A place where one thread leaves something for another one.
pub(crate) struct Slot<T>(Mutex<Option<T>>);

impl<T> Slot<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(None)))
    }

    pub(crate) fn send(&self, what: T) {
        assert!(self.0.lock().replace(what).is_none());
    }

    pub(crate) fn receive(&self) -> T {
        loop {
            let what = self.0.lock().take();
            match what {
                Some(what) => return what,
                None => thread::yield_now(),
            }
        }
    }
}

/// A get of several that owns its queue.
pub(crate) fn many_task(owned: &Arc<Owned>, n: usize) -> Task<Vec<usize>> {
    let queue = owned.queue.clone();
    Box::pin(async move { queue.get_many(n).await.unwrap_or_default() })
}

/// Counts how often it was told.
#[derive(Default)]
pub(crate) struct Told(AtomicUsize);

impl Told {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What is called by a waker.
pub(crate) struct Calls<F>(pub(crate) F);

impl<F: Fn() + Send + Sync + 'static> Wake for Calls<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

pub(crate) fn waker(f: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Calls(f)))
}
