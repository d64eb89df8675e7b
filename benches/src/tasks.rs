//! Many tasks on few threads: ids held across one yield of the task.

use crate::ours::queue;
use crate::rounds::quantile;
use crate::scarce::spread_of;
use crate::{Contender, Part};
use crossbeam::queue::ArrayQueue;
use inflight_sbitmap::{Fairness, SbitmapQueue};
use inflight_tags::{TagSet, Tenant};
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// A load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How many tasks want ids.
    pub tasks: usize,
    /// How many ids there are.
    pub depth: usize,
    /// How many threads run the tasks.
    pub workers: usize,
    /// How long ids go round after the last task has begun, before anything counts.
    pub warm: Duration,
    /// How long it counts.
    pub window: Duration,
}

/// What a load gave.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Ids taken in a second.
    pub per_second: f64,
    /// Ids of the luckiest task for each one of the unluckiest.
    pub spread: f64,
    /// The wait that 99 of 100 stay below, in microseconds.
    pub p99: f64,
    /// The longest wait, in microseconds.
    pub longest: f64,
}

/// Hands out numbers to tasks.
pub trait TaskIds: fmt::Debug + Send + Sync + 'static {
    /// Takes one; the task waits until there is one.
    fn get(&self) -> impl Future<Output = usize> + Send;
    /// Gives one back.
    fn give(&self, id: usize);
}

/// The load for any contender: the inner loop knows its type, and boxes no future.
pub trait TaskLoad: fmt::Debug + Send {
    /// Puts the load on it. `None` if some task was left waiting for ever.
    fn run(self: Box<Self>, load: Load) -> Option<Outcome>;
}

/// Those that tasks can wait for.
#[must_use]
pub fn contenders() -> Vec<Contender<dyn TaskLoad>> {
    use Part::{Ours, Rival, Variant};
    vec![
        Contender::new("Fair", Ours, |d| Box::new(queue(d, Fairness::fair()))),
        Contender::new("Fifo", Variant, |d| Box::new(queue(d, Fairness::fifo()))),
        Contender::new("TagSet", Variant, |d| Box::new(Tags::new(d))),
        Contender::new("tokio Semaphore + ArrayQueue", Rival, |d| {
            Box::new(Permits(tokio::sync::Semaphore::new(d), ring_of_ids(d)))
        }),
        Contender::new("async-lock Semaphore + ArrayQueue", Rival, |d| {
            Box::new(Permits(async_lock::Semaphore::new(d), ring_of_ids(d)))
        }),
        Contender::new("flume", Rival, |d| {
            let (give, take) = flume::bounded(d);
            (0..d).for_each(|id| give.send(id).expect("both ends are here"));
            Box::new(Flume(give, take))
        }),
        Contender::new("kanal", Rival, |d| {
            let (give, take) = kanal::bounded(d);
            (0..d).for_each(|id| give.send(id).expect("both ends are here"));
            Box::new(Kanal(give, take.to_async()))
        }),
    ]
}

const WARM: u8 = 0;
const COUNT: u8 = 1;
const STOP: u8 = 2;

impl<I: TaskIds> TaskLoad for I {
    fn run(self: Box<Self>, load: Load) -> Option<Outcome> {
        let ids: Arc<Self> = self.into();
        let runtime = Builder::new_multi_thread()
            .worker_threads(load.workers)
            .build()
            .expect("threads can be had");
        let outcome = run_on(&runtime, &ids, load);
        // Tasks that wait for ever must not hold us up.
        runtime.shutdown_background();
        outcome
    }
}

fn run_on<I: TaskIds>(runtime: &Runtime, ids: &Arc<I>, load: Load) -> Option<Outcome> {
    let phase = Arc::new(AtomicU8::new(WARM));
    let begun = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..load.tasks)
        .map(|_| runtime.spawn(task(ids.clone(), phase.clone(), begun.clone())))
        .collect();
    // A lucky task may keep an unfair contender busy: not for ever.
    let patience = Instant::now() + Duration::from_secs(1);
    while begun.load(Ordering::Relaxed) < load.tasks && Instant::now() < patience {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(load.warm);
    // Relaxed, here and in the tasks: a phase hands nothing over.
    phase.store(COUNT, Ordering::Relaxed);
    let start = Instant::now();
    thread::sleep(load.window);
    phase.store(STOP, Ordering::Relaxed);
    let elapsed = start.elapsed();
    let (send, receive) = mpsc::channel();
    runtime.spawn(async move {
        let mut waits = Vec::new();
        for task in tasks {
            waits.push(task.await.expect("no panic"));
        }
        // An error: the receiver has given up.
        let _ = send.send(waits);
    });
    let waits = receive.recv_timeout(Duration::from_secs(10)).ok()?;
    let counts: Vec<_> = waits.iter().map(|w| w.len() as u64).collect();
    let total: u64 = counts.iter().sum();
    let waits: Vec<u32> = waits.into_iter().flatten().collect();
    let waits = if waits.is_empty() { vec![0] } else { waits };
    Some(Outcome {
        per_second: total as f64 / elapsed.as_secs_f64(),
        spread: spread_of(&counts),
        p99: f64::from(quantile(waits.iter().copied(), 0.99)),
        longest: f64::from(waits.iter().copied().max().unwrap_or(0)),
    })
}

/// Takes and gives until told to stop; the waits that count, in microseconds.
async fn task<I: TaskIds>(ids: Arc<I>, phase: Arc<AtomicU8>, begun: Arc<AtomicUsize>) -> Vec<u32> {
    begun.fetch_add(1, Ordering::Relaxed);
    // Room for a fair share, so that nothing grows while it counts.
    let mut waits = Vec::with_capacity(256);
    while phase.load(Ordering::Relaxed) != STOP {
        let before = Instant::now();
        let id = ids.get().await;
        let wait = before.elapsed();
        tokio::task::yield_now().await;
        if phase.load(Ordering::Relaxed) == COUNT {
            waits.push(u32::try_from(wait.as_micros()).unwrap_or(u32::MAX));
        }
        ids.give(id);
    }
    waits
}

fn ring_of_ids(depth: usize) -> ArrayQueue<usize> {
    let ring = ArrayQueue::new(depth);
    (0..depth).for_each(|id| ring.push(id).expect("room for all"));
    ring
}

impl TaskIds for SbitmapQueue {
    async fn get(&self) -> usize {
        self.get().await.expect("never closed")
    }
    fn give(&self, id: usize) {
        self.put(id).expect("held");
    }
}

/// A set of tags with one tenant. Held across the yield as a token.
#[derive(Debug)]
struct Tags(TagSet<()>, Tenant<()>);

impl Tags {
    fn new(depth: usize) -> Self {
        let set = TagSet::builder().depth(depth).build(|_, _| ());
        let set = set.expect("valid");
        let tenant = set.add_tenant("tasks").expect("the only one");
        Self(set, tenant)
    }
}

impl TaskIds for Tags {
    async fn get(&self) -> usize {
        let tag = self.1.alloc().await.expect("never closed");
        tag.into_token() as usize
    }
    fn give(&self, id: usize) {
        drop(self.0.redeem(id as u64).expect("in flight"));
    }
}

/// A semaphore over a ring of the free ids. A permit comes first, so the ring is not empty.
#[derive(Debug)]
struct Permits<S>(S, ArrayQueue<usize>);

impl TaskIds for Permits<tokio::sync::Semaphore> {
    async fn get(&self) -> usize {
        self.0.acquire().await.expect("never closed").forget();
        self.1.pop().expect("a permit is an id")
    }
    fn give(&self, id: usize) {
        self.1.push(id).expect("room for all");
        self.0.add_permits(1);
    }
}

impl TaskIds for Permits<async_lock::Semaphore> {
    async fn get(&self) -> usize {
        self.0.acquire().await.forget();
        self.1.pop().expect("a permit is an id")
    }
    fn give(&self, id: usize) {
        self.1.push(id).expect("room for all");
        self.0.add_permits(1);
    }
}

#[derive(Debug)]
struct Flume(flume::Sender<usize>, flume::Receiver<usize>);

impl TaskIds for Flume {
    async fn get(&self) -> usize {
        self.1.recv_async().await.expect("both ends are here")
    }
    fn give(&self, id: usize) {
        self.0.send(id).expect("both ends are here");
    }
}

#[derive(Debug)]
struct Kanal(kanal::Sender<usize>, kanal::AsyncReceiver<usize>);

impl TaskIds for Kanal {
    async fn get(&self) -> usize {
        self.1.recv().await.expect("both ends are here")
    }
    fn give(&self, id: usize) {
        self.0.send(id).expect("both ends are here");
    }
}
