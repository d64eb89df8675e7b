//! What the random schedules share: seeds, threads that a clock is moved for, and futures that are
//! given up.
#![allow(dead_code, reason = "each file uses its part")]

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::model::{check_pct, check_random};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, block_on, thread};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Schedules of each kind, for each seed.
const RUNS: usize = 4;

/// Both ways to choose schedules, for so many seeds.
pub(crate) fn check(name: &str, seeds: u64, model: fn(u64)) {
    for seed in 0..seeds {
        let name = format!("{name}/{seed}");
        check_random(&name, RUNS, move || model(seed));
        check_pct(&name, RUNS, 3, move || model(seed));
    }
}

/// Threads of one model, each with a result.
pub(crate) struct Threads<T> {
    started: Vec<thread::JoinHandle<T>>,
    busy: Arc<AtomicUsize>,
}

impl<T: Send + 'static> Threads<T> {
    pub(crate) fn new() -> Self {
        Self {
            started: Vec::new(),
            busy: Arc::new(AtomicUsize::new(0)),
        }
    }

    pub(crate) fn spawn(&mut self, f: impl FnOnce() -> T + Send + 'static) {
        // Relaxed here and below: the checker runs everything in one order.
        self.busy.fetch_add(1, Ordering::Relaxed);
        let busy = self.busy.clone();
        self.started.push(thread::spawn(move || {
            let result = f();
            busy.fetch_sub(1, Ordering::Relaxed);
            result
        }));
    }

    /// Time goes on until they have ended.
    pub(crate) fn join_ticking(self, clock: &Clock, by: Duration) -> Vec<T> {
        while self.busy.load(Ordering::Relaxed) > 0 {
            clock.advance(by);
            thread::yield_now();
        }
        self.join()
    }

    pub(crate) fn join(self) -> Vec<T> {
        let join = |thread: thread::JoinHandle<T>| thread.join().unwrap();
        self.started.into_iter().map(join).collect()
    }
}

/// Polls so often and gives up, as a `select!` whose other branch was faster.
pub(crate) fn cancelled<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    block_on(poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }))
}

/// Ready at the second poll.
pub(crate) async fn yield_once() {
    let mut first = true;
    poll_fn(move |cx| {
        if std::mem::take(&mut first) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}
