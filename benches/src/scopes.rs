//! One submitter for each CPU, all at once: what the width of a queue's pools and its limit are
//! worth on the machine's own cores.
//!
//! A submitter hands over a window of items, waits until all of them have run, and goes on. With
//! [`TURNS`] that is one empty item at a time, as the kernel's own benchmark of scopes has it; with
//! [`BURSTS`] a limit of active items is felt.

pub use crate::pools::Own;
use crate::pools::{OwnWork, compute};
use crossbeam::channel::{self, Receiver, Sender};
use std::fmt;
use std::iter;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// What a submitter does.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Items that are handed over before it waits.
    pub window: usize,
    /// How long an item computes.
    pub cost: Duration,
}

/// One empty item at a time.
pub const TURNS: Load = Load {
    window: 1,
    cost: Duration::ZERO,
};

/// Items of a microsecond, 64 at a time.
pub const BURSTS: Load = Load {
    window: 64,
    cost: Duration::from_micros(1),
};

/// Runs the items of submitters on several threads.
pub trait Target: fmt::Debug + Sync {
    /// What one thread submits with.
    fn submitter(&self, load: Load) -> Box<dyn Submitter + '_>;
}

/// One thread's way to a [`Target`].
pub trait Submitter {
    /// Hands over an item, and does not wait for it.
    fn submit(&mut self);

    /// Returns when all that was handed over has run.
    fn wait(&mut self);
}

/// What the submitters of one run saw.
#[derive(Debug)]
pub struct Run {
    /// From the first submitter's start to the end of the last one.
    pub wall: Duration,
    /// How long each hand-over took, in ns, in ascending order.
    calls: Vec<u64>,
}

impl Run {
    /// Items of all submitters in a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.calls.len() as f64 / self.wall.as_secs_f64()
    }

    /// The time, in ns, that this percentage of the hand-overs did not exceed.
    ///
    /// # Panics
    ///
    /// If there was none.
    #[must_use]
    pub fn percentile(&self, percent: usize) -> u64 {
        let at = self.calls.len() * percent / 100;
        self.calls[at.min(self.calls.len() - 1)]
    }
}

/// Submits this many items by each of `submitters` threads, which start together, the n-th on the
/// n-th CPU.
///
/// # Panics
///
/// If the target loses an item in a way it notices.
#[must_use]
pub fn run(target: &dyn Target, load: Load, submitters: usize, items: u64) -> Run {
    let start = Barrier::new(submitters);
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let submit = |index: usize| {
        if let Some(core) = cores.get(index % cores.len().max(1)) {
            core_affinity::set_for_current(*core);
        }
        let mut submitter = target.submitter(load);
        let mut calls = Vec::with_capacity(items as usize);
        start.wait();
        let begin = Instant::now();
        while calls.len() < items as usize {
            for _ in 0..load.window.min(items as usize - calls.len()) {
                let call = Instant::now();
                submitter.submit();
                calls.push(call.elapsed().as_nanos() as u64);
            }
            submitter.wait();
        }
        (begin, Instant::now(), calls)
    };
    let runs: Vec<_> = thread::scope(|scope| {
        let spawn = |index| scope.spawn(move || submit(index));
        let threads: Vec<_> = (0..submitters).map(spawn).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().expect("no panic");
        threads.into_iter().map(join).collect()
    });
    let begin = runs.iter().map(|(begin, ..)| *begin).min();
    let end = runs.iter().map(|(_, end, _)| *end).max();
    let mut calls: Vec<_> = runs.into_iter().flat_map(|(.., calls)| calls).collect();
    calls.sort_unstable();
    Run {
        wall: begin.zip(end).map_or(Duration::ZERO, |(b, e)| e - b),
        calls,
    }
}

/// Works that are queued again and again.
struct Works<'a> {
    own: &'a Own,
    works: Vec<OwnWork>,
    queued: usize,
}

impl Target for Own {
    fn submitter(&self, Load { window, cost }: Load) -> Box<dyn Submitter + '_> {
        let works = iter::repeat_with(|| OwnWork::new(move || compute(cost)));
        Box::new(Works {
            own: self,
            works: works.take(window).collect(),
            queued: 0,
        })
    }
}

impl Submitter for Works<'_> {
    fn submit(&mut self) {
        self.works[self.queued].queue(self.own);
        self.queued += 1;
    }

    fn wait(&mut self) {
        self.works[..self.queued].iter().for_each(OwnWork::flush);
        self.queued = 0;
    }
}

/// A pool of rayon. Its one limit is how many threads it has.
#[derive(Debug)]
pub struct Rayon(rayon::ThreadPool);

impl Rayon {
    /// With this many threads.
    ///
    /// # Panics
    ///
    /// If they can't be had.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        Self(pool.expect("threads can be had"))
    }
}

/// Tokio's runtime, with a semaphore if items are limited.
#[derive(Debug)]
pub struct Tokio {
    runtime: tokio::runtime::Runtime,
    limit: Option<Arc<Semaphore>>,
}

impl Tokio {
    /// With this many workers.
    ///
    /// # Panics
    ///
    /// If they can't be had.
    #[must_use]
    pub fn new(threads: usize, limit: Option<usize>) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(threads).build();
        Self {
            runtime: runtime.expect("threads can be had"),
            limit: limit.map(|limit| Arc::new(Semaphore::new(limit))),
        }
    }
}

/// Closures that report their end through a channel.
struct Closures<S> {
    spawn: S,
    cost: Duration,
    ended: (Sender<()>, Receiver<()>),
    left: usize,
}

fn closures<'a, S>(spawn: S, load: Load) -> Box<dyn Submitter + 'a>
where
    S: FnMut(Duration, Sender<()>) + 'a,
{
    Box::new(Closures {
        spawn,
        cost: load.cost,
        ended: channel::bounded(load.window),
        left: 0,
    })
}

impl<S: FnMut(Duration, Sender<()>)> Submitter for Closures<S> {
    fn submit(&mut self) {
        (self.spawn)(self.cost, self.ended.0.clone());
        self.left += 1;
    }

    fn wait(&mut self) {
        for _ in 0..std::mem::take(&mut self.left) {
            self.ended.1.recv().expect("its sender is here");
        }
    }
}

fn compute_and_tell(cost: Duration, ended: &Sender<()>) {
    compute(cost);
    ended.send(()).expect("its receiver waits");
}

impl Target for Rayon {
    fn submitter(&self, load: Load) -> Box<dyn Submitter + '_> {
        let spawn = |cost, ended| self.0.spawn(move || compute_and_tell(cost, &ended));
        closures(spawn, load)
    }
}

impl Target for Tokio {
    fn submitter(&self, load: Load) -> Box<dyn Submitter + '_> {
        let spawn = |cost, ended| {
            let limit = self.limit.clone();
            drop(self.runtime.spawn(async move {
                let permit = match &limit {
                    Some(limit) => Some(limit.acquire().await.expect("never closed")),
                    None => None,
                };
                compute_and_tell(cost, &ended);
                drop(permit);
            }));
        };
        closures(spawn, load)
    }
}
