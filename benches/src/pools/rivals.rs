//! The rivals.

use super::loads::lasting;
use super::{Pool, PoolContender, PoolLoads};
use crate::Part::Rival;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Pools of this many threads.
#[must_use]
pub fn rivals() -> Vec<PoolContender> {
    vec![
        rival("rayon", |n| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build();
            lasting(Rayon(pool.expect("threads can be had")))
        }),
        rival("tokio", |n| lasting(Tokio(runtime(n)))),
        rival("threadpool", |n| {
            lasting(Threadpool(threadpool::ThreadPool::new(n)))
        }),
        // It may have more threads than it keeps; these are as many as the others have.
        rival("rusty_pool", |n| {
            lasting(Rusty(rusty_pool::ThreadPool::new(
                n,
                n,
                Duration::from_secs(60),
            )))
        }),
        rival("async-executor", |n| lasting(AsyncExecutor::new(n))),
        rival("crossbeam-channel", |n| {
            let (send, receive) = crossbeam::channel::unbounded::<Job>();
            for _ in 0..n {
                let receive = receive.clone();
                thread::spawn(move || receive.into_iter().for_each(|job| job()));
            }
            lasting(Crossbeam(send))
        }),
        rival("flume", |n| {
            let (send, receive) = flume::unbounded::<Job>();
            for _ in 0..n {
                let receive = receive.clone();
                thread::spawn(move || receive.into_iter().for_each(|job| job()));
            }
            lasting(Flume(send))
        }),
        rival("kanal", |n| {
            let (send, receive) = kanal::unbounded::<Job>();
            for _ in 0..n {
                let receive = receive.clone();
                thread::spawn(move || receive.for_each(|job| job()));
            }
            lasting(Kanal(send))
        }),
    ]
}

/// Pools that start more threads while theirs are taken: for items that sleep. They start one for
/// nearly every closure, which is too slow for the loads of many small ones.
#[must_use]
pub fn growing_rivals() -> Vec<PoolContender> {
    vec![
        rival("tokio spawn_blocking", |n| {
            lasting(TokioBlocking(runtime(n)))
        }),
        rival("blocking", |_| lasting(Unblock)),
        rival("rusty_pool, 512 threads", |n| {
            lasting(Rusty(rusty_pool::ThreadPool::new(
                n,
                512,
                Duration::from_secs(60),
            )))
        }),
    ]
}

fn rival(name: &'static str, make: fn(usize) -> Box<dyn PoolLoads>) -> PoolContender {
    PoolContender {
        name,
        part: Rival,
        make,
    }
}

type Job = Box<dyn FnOnce() + Send>;

fn runtime(threads: usize) -> tokio::runtime::Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .build();
    runtime.expect("threads can be had")
}

#[derive(Debug)]
struct Rayon(rayon::ThreadPool);

impl Pool for Rayon {
    fn spawn(&self, f: impl FnOnce() + Send + 'static) {
        self.0.spawn(f);
    }
}

#[derive(Debug)]
struct Tokio(tokio::runtime::Runtime);

impl Pool for Tokio {
    fn spawn(&self, f: impl FnOnce() + Send + 'static) {
        drop(self.0.spawn(async move { f() }));
    }

    fn spawn_waited(&self, f: impl FnOnce() -> u64 + Send + 'static) -> impl FnOnce() -> u64 {
        let handle = self.0.spawn(async move { f() });
        move || self.0.block_on(handle).expect("it ends well")
    }

    fn may_sleep(f: impl FnOnce()) {
        tokio::task::block_in_place(f);
    }
    const CAN_SAY: bool = true;
}

#[derive(Debug)]
struct TokioBlocking(tokio::runtime::Runtime);

impl Pool for TokioBlocking {
    fn spawn(&self, f: impl FnOnce() + Send + 'static) {
        drop(self.0.spawn_blocking(f));
    }
}

/// The crate's one pool.
#[derive(Debug)]
struct Unblock;

impl Pool for Unblock {
    fn spawn(&self, f: impl FnOnce() + Send + 'static) {
        blocking::unblock(f).detach();
    }
}

#[derive(Debug)]
struct Threadpool(threadpool::ThreadPool);

impl Pool for Threadpool {
    fn spawn(&self, f: impl FnOnce() + Send + 'static) {
        self.0.execute(f);
    }
}

struct Rusty(rusty_pool::ThreadPool);

impl std::fmt::Debug for Rusty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rusty")
    }
}

impl Pool for Rusty {
    fn spawn(&self, f: impl FnOnce() + Send + 'static) {
        self.0.execute(f);
    }

    fn spawn_waited(&self, f: impl FnOnce() -> u64 + Send + 'static) -> impl FnOnce() -> u64 {
        let handle = self.0.evaluate(f);
        move || handle.await_complete()
    }
}

#[derive(Debug)]
struct AsyncExecutor(Arc<async_executor::Executor<'static>>);

impl AsyncExecutor {
    fn new(threads: usize) -> Self {
        let executor = Arc::new(async_executor::Executor::new());
        for _ in 0..threads {
            let executor = executor.clone();
            thread::spawn(move || {
                inflight_sync::block_on(executor.run(std::future::pending::<()>()))
            });
        }
        Self(executor)
    }
}

impl Pool for AsyncExecutor {
    fn spawn(&self, f: impl FnOnce() + Send + 'static) {
        self.0.spawn(async move { f() }).detach();
    }

    fn spawn_waited(&self, f: impl FnOnce() -> u64 + Send + 'static) -> impl FnOnce() -> u64 {
        let task = self.0.spawn(async move { f() });
        move || inflight_sync::block_on(task)
    }
}

#[derive(Debug)]
struct Crossbeam(crossbeam::channel::Sender<Job>);

impl Pool for Crossbeam {
    fn spawn(&self, f: impl FnOnce() + Send + 'static) {
        self.0.send(Box::new(f)).expect("threads are there");
    }
}

#[derive(Debug)]
struct Flume(flume::Sender<Job>);

impl Pool for Flume {
    fn spawn(&self, f: impl FnOnce() + Send + 'static) {
        self.0.send(Box::new(f)).expect("threads are there");
    }
}

#[derive(Debug)]
struct Kanal(kanal::Sender<Job>);

impl Pool for Kanal {
    fn spawn(&self, f: impl FnOnce() + Send + 'static) {
        self.0.send(Box::new(f)).expect("threads are there");
    }
}
