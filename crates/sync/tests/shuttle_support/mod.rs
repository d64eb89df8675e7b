//! What the random schedules of all crates share: threads on their CPUs, and futures that are given
//! up.
#![allow(dead_code, reason = "each file uses its part")]

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, block_on, cpu, thread};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Threads of one model, on CPUs 0, 1, 0, …, each with a result.
pub(crate) struct Threads<T = ()> {
    started: Vec<thread::JoinHandle<T>>,
    busy: Arc<AtomicUsize>,
}

impl<T> Default for Threads<T> {
    fn default() -> Self {
        Self {
            started: Vec::new(),
            busy: Arc::default(),
        }
    }
}

impl<T: Send + 'static> Threads<T> {
    pub(crate) fn spawn(&mut self, f: impl FnOnce() -> T + Send + 'static) -> &mut Self {
        let (n, busy) = (self.started.len(), self.busy.clone());
        // Relaxed here and below: the checker runs everything in one order.
        busy.fetch_add(1, Ordering::Relaxed);
        self.started.push(thread::spawn(move || {
            cpu::set_current_for_thread(Some(n % 2));
            let result = f();
            busy.fetch_sub(1, Ordering::Relaxed);
            result
        }));
        self
    }

    /// A thread that works on what they share.
    pub(crate) fn on<S: Send + Sync + 'static>(
        &mut self,
        shared: &Arc<S>,
        f: impl FnOnce(&Arc<S>) -> T + Send + 'static,
    ) -> &mut Self {
        let shared = shared.clone();
        self.spawn(move || f(&shared))
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.started.len()
    }

    /// Until all have ended.
    pub(crate) fn join(&mut self) -> Vec<T> {
        let join = |thread: thread::JoinHandle<T>| thread.join().unwrap();
        self.started.drain(..).map(join).collect()
    }

    /// Time goes on until they are about to end.
    pub(crate) fn tick_while_busy(&self, clock: &Clock, by: Duration) {
        while self.busy.load(Ordering::Relaxed) > 0 {
            clock.advance(by);
            thread::yield_now();
        }
    }

    /// Until all have ended, while time goes on.
    pub(crate) fn join_ticking(&mut self, clock: &Clock, by: Duration) -> Vec<T> {
        self.tick_while_busy(clock, by);
        self.join()
    }
}

/// Polls so often and gives up, as a `select!` whose other branch was faster.
pub(crate) fn polled<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = times;
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
