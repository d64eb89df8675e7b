//! How futures end with their queue and their system, and what a drain leaves them.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::{Arc, Mutex, thread};
use inflight_workqueue::{JoinError, JoinHandle, QueueError, Work, Workqueue, WorkqueueSystem};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use support::{Level, bound, held_work, system, until};

/// Something that happens once. It keeps the waker of who waits for it.
#[derive(Clone, Default)]
struct Signal(Arc<Mutex<(bool, Option<Waker>)>>);

impl Signal {
    fn raise(&self) {
        let waker = {
            let mut state = self.0.lock();
            state.0 = true;
            state.1.take()
        };
        waker.expect("somebody waits").wake();
    }

    fn wait_until_awaited(&self) {
        let is_awaited = || self.0.lock().1.is_some();
        until(is_awaited, || "it is not polled".to_owned());
    }
}

impl Future for Signal {
    type Output = u32;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<u32> {
        let mut state = self.0.lock();
        if state.0 {
            return Poll::Ready(7);
        }
        state.1 = Some(cx.waker().clone());
        Poll::Pending
    }
}

fn is_shut_down<T>(result: &Result<T, JoinError>) -> bool {
    matches!(result, Err(JoinError::Rejected(QueueError::ShutDown)))
}

/// A future that nobody wakes does not outlive its system: its handle resolves, to a thread that
/// waits already and to one that asks later, and what the future holds is dropped.
#[test]
fn the_end_of_the_system_ends_futures_that_wait() {
    for by_drop in [false, true] {
        let sys = system();
        let wq = bound(&sys);
        let (signals, held) = ([(); 3].map(|()| Signal::default()), Arc::new(()));
        let [waiting, asked_later, awaited] = signals.clone().map(|signal| {
            let held = held.clone();
            wq.spawn_future(async move {
                let _held = held;
                signal.await
            })
        });
        signals.iter().for_each(Signal::wait_until_awaited);
        let follower = wq.spawn_future(awaited);
        let waiter = thread::spawn(move || waiting.wait());
        if by_drop {
            drop(sys);
        } else {
            sys.shutdown_blocking().unwrap();
        }
        assert!(is_shut_down(&waiter.join().unwrap()));
        assert!(asked_later.is_finished());
        assert!(is_shut_down(&asked_later.wait()));
        match follower.wait() {
            Ok(awaited) => assert!(is_shut_down(&awaited)),
            refused => assert!(is_shut_down(&refused)),
        }
        assert_eq!(Arc::strong_count(&held), 1, "the futures are gone");
        // The wakers are harmless now, and a future that comes now is refused.
        signals.iter().for_each(Signal::raise);
        assert!(is_shut_down(&wq.spawn_future(async {}).wait()));
    }
}

/// Futures that come while the system goes: each handle resolves, whichever was first.
#[test]
fn no_future_is_forgotten_by_a_shutdown() {
    for _ in 0..20 {
        let sys = system();
        let wq = bound(&sys);
        let begun = Level::new();
        let spawners: Vec<_> = (0..2)
            .map(|_| {
                let (wq, begun) = (wq.clone(), begun.clone());
                thread::spawn(move || {
                    let mut handles = Vec::new();
                    let mut signals = Vec::new();
                    loop {
                        let signal = Signal::default();
                        signals.push(signal.clone());
                        let handle = wq.spawn_future(signal);
                        let refused = handle.is_finished();
                        handles.push(handle);
                        begun.raise();
                        if refused {
                            break;
                        }
                    }
                    let ended = handles.into_iter().map(|handle| handle.wait());
                    assert!(ended.into_iter().all(|result| is_shut_down(&result)));
                })
            })
            .collect();
        begun.wait(20);
        sys.shutdown_blocking().unwrap();
        spawners.into_iter().for_each(|s| s.join().unwrap());
    }
}

/// While its queue is drained a future goes on when it is woken, though others are refused.
#[test]
fn a_future_woken_during_a_drain_goes_on() {
    let sys = system();
    let wq = bound(&sys);
    let signal = Signal::default();
    let woken = wq.spawn_future(signal.clone());
    signal.wait_until_awaited();
    wq.flush_blocking().unwrap();
    // Holds the drain up.
    let (work, release, begun) = held_work();
    assert!(wq.queue(&work).unwrap().is_queued());
    begun.wait(1);
    let drainer = thread::spawn({
        let wq = wq.clone();
        move || wq.drain_blocking()
    });
    let other = Work::new(|| ());
    let is_draining = || {
        other.cancel();
        wq.queue(&other) == Err(QueueError::Draining)
    };
    until(is_draining, || "it is not drained".to_owned());
    signal.raise();
    assert_eq!(
        woken.wait().unwrap(),
        7,
        "woken by nobody of the queue's own"
    );
    release.raise();
    drainer.join().unwrap().unwrap();
}

/// Each of many futures waits for the one before, as commits do. However long the chain is, its end
/// does not overflow the stack.
#[test]
fn a_chain_of_futures_may_be_long() {
    const LONG: usize = if cfg!(miri) { 100 } else { 20_000 };
    let ends: [fn(WorkqueueSystem, Workqueue); 3] = [
        |_sys, wq| wq.destroy_blocking().unwrap(),
        |sys, _wq| sys.shutdown_blocking().unwrap(),
        |sys, _wq| drop(sys),
    ];
    for end in ends {
        let (sys, signal) = (system(), Signal::default());
        let wq = bound(&sys);
        let mut last = wq.spawn_future(signal.clone());
        for _ in 0..LONG {
            last = wq.spawn_future(async move { last.await.unwrap_or(0) });
        }
        wq.flush_blocking().unwrap();
        assert!(!last.is_finished());
        let stats = wq.clone();
        end(sys, wq);
        assert!(matches!(last.wait(), Err(JoinError::Rejected(_))));
        // The queue ends the first; the wake of each other one is refused.
        assert_eq!(stats.stats().refused, LONG as u64);
    }
}

/// What a future holds may stop another future and wait for its end.
#[test]
fn a_destructor_waits_for_a_future_that_it_wakes() {
    struct Owner(Signal, Option<JoinHandle<u32>>);
    impl Drop for Owner {
        fn drop(&mut self) {
            self.0.raise();
            let stopped = self.1.take().expect("dropped once").wait();
            assert!(matches!(stopped, Err(JoinError::Rejected(_))));
        }
    }
    let sys = system();
    let wq = bound(&sys);
    let [never, stop] = [(); 2].map(|()| Signal::default());
    // Spawned first, so it ends first.
    let (give, taken) = (Signal::default(), Arc::new(Mutex::new(None)));
    let owner = wq.spawn_future({
        let (never, give, taken) = (never.clone(), give.clone(), taken.clone());
        async move {
            give.await;
            let _owner: Option<Owner> = taken.lock().take();
            never.await
        }
    });
    let stopped = wq.spawn_future(stop.clone());
    give.wait_until_awaited();
    stop.wait_until_awaited();
    *taken.lock() = Some(Owner(stop, Some(stopped)));
    give.raise();
    never.wait_until_awaited();
    wq.destroy_blocking().unwrap();
    assert!(matches!(owner.wait(), Err(JoinError::Rejected(_))));
}
