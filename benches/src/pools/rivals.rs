//! The rivals.

use super::loads::lasting;
use super::{Pool, PoolContender};
use crate::Part::Rival;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// All of them.
#[must_use]
pub fn rivals() -> Vec<PoolContender> {
    let rival = |name, make| PoolContender {
        name,
        part: Rival,
        make,
        grows: false,
    };
    let growing = |name, make| PoolContender {
        grows: true,
        ..rival(name, make)
    };
    vec![
        rival("rayon", |n| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build();
            lasting(Rayon(pool.expect("threads can be had")))
        }),
        rival("tokio spawn", |n| lasting(Tokio(runtime(n)))),
        growing("tokio spawn_blocking", |n| {
            lasting(TokioBlocking(runtime(n)))
        }),
        growing("blocking", |_| lasting(Unblock)),
        rival("threadpool", |n| {
            lasting(Threadpool(threadpool::ThreadPool::new(n)))
        }),
        rival("rusty_pool", |n| {
            lasting(Rusty(rusty_pool::ThreadPool::new(
                n,
                512,
                Duration::from_secs(60),
            )))
        }),
        rival("affinitypool", |n| {
            lasting(Affinity(affinitypool::Threadpool::new(n)))
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
    ]
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
}

struct Affinity(affinitypool::Threadpool);

impl std::fmt::Debug for Affinity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Affinity")
    }
}

impl Pool for Affinity {
    fn spawn(&self, f: impl FnOnce() + Send + 'static) {
        // Dropping the future would cancel the closure, and the pool has no way to detach it.
        std::mem::forget(self.0.spawn(f));
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
