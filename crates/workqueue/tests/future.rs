//! Futures on a workqueue: polled under its limits, woken, aborted, refused.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::{Arc, Mutex, thread};
use inflight_workqueue::{JoinError, QueueError, Workqueue};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use support::{Inside, Level, bound, plug, system};

/// Something that happens once, and whom it wakes.
#[derive(Clone, Default)]
struct Signal(Arc<Mutex<(bool, Option<Waker>)>>);

impl Signal {
    fn raise(&self) {
        let waker = {
            let mut state = self.0.lock();
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether somebody waits.
    fn is_awaited(&self) -> bool {
        self.0.lock().1.is_some()
    }

    /// Forgets who waits.
    fn forget(&self) {
        let waker = self.0.lock().1.take();
        drop(waker);
    }
}

impl Future for Signal {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.0 {
            return Poll::Ready(());
        }
        state.1 = Some(cx.waker().clone());
        Poll::Pending
    }
}

fn until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

#[test]
fn a_future_is_polled_until_it_ends() {
    let sys = system();
    let wq = bound(&sys);
    let signals: Vec<Signal> = (0..5).map(|_| Signal::default()).collect();
    let handle = wq.spawn_future({
        let signals = signals.clone();
        async move {
            for signal in signals {
                signal.await;
            }
            "all"
        }
    });
    for signal in &signals {
        until(|| signal.is_awaited());
        assert!(!handle.is_finished());
        signal.raise();
    }
    assert_eq!(handle.wait().unwrap(), "all");
    wq.flush_blocking().unwrap();
    assert_eq!(wq.stats().completed, 6, "each poll is a run");
}

/// A future that wakes itself while it is polled is polled again, and never twice at once.
#[test]
fn a_wake_during_the_poll_is_kept() {
    let sys = system();
    let wq = bound(&sys);
    let inside = Inside::new();
    let handles: Vec<_> = (0..8)
        .map(|_| {
            let (inside, mut left) = (inside.clone(), 50);
            let own = Inside::new();
            wq.spawn_future(poll_fn(move |cx| {
                own.enter();
                inside.enter();
                cx.waker().wake_by_ref();
                thread::yield_now();
                inside.leave();
                own.leave();
                left -= 1;
                assert_eq!(own.most(), 1);
                if left == 0 {
                    Poll::Ready(7)
                } else {
                    Poll::Pending
                }
            }))
        })
        .collect();
    for handle in handles {
        assert_eq!(handle.wait().unwrap(), 7);
    }
    assert!(inside.most() <= 4, "one for each CPU");
}

/// Futures wait for their slots like any item.
#[test]
fn polls_count_for_the_limit() {
    let sys = system();
    let wq = sys.workqueue("one").bound().max_active(1).build().unwrap();
    let open = plug(&wq);
    let signal = Signal::default();
    inflight_sync::cpu::set_current_for_thread(Some(0));
    let handle = wq.spawn_future(signal.clone());
    assert_eq!(wq.stats().inactive, 1);
    open.raise();
    until(|| signal.is_awaited());
    wq.flush_blocking().unwrap();
    assert_eq!(
        (wq.stats().active, handle.is_finished()),
        (0, false),
        "between two polls"
    );
    signal.raise();
    handle.wait().unwrap();
    inflight_sync::cpu::set_current_for_thread(None);
}

#[test]
fn an_aborted_future_is_dropped_wherever_it_is() {
    let sys = system();
    let wq = bound(&sys);
    // Between two polls.
    let (signal, held) = (Signal::default(), Arc::new(()));
    let handle = wq.spawn_future({
        let (signal, held) = (signal.clone(), held.clone());
        async move {
            signal.await;
            drop(held);
        }
    });
    until(|| signal.is_awaited());
    wq.flush_blocking().unwrap();
    assert!(handle.try_cancel() && Arc::strong_count(&held) == 1);
    assert!(!handle.try_cancel(), "once");
    assert!(matches!(handle.wait(), Err(JoinError::Cancelled)));
    signal.raise();
    // While it waits for a worker.
    let open = plug(&wq);
    let handle = wq.spawn_on(1, || ());
    handle.wait().unwrap();
    inflight_sync::cpu::set_current_for_thread(Some(0));
    let pending = wq.spawn_future({
        let held = held.clone();
        async move { drop(held) }
    });
    inflight_sync::cpu::set_current_for_thread(None);
    assert!(pending.try_cancel() && Arc::strong_count(&held) == 1);
    open.raise();
    // While it is polled: it ends with that poll.
    let (begun, go) = (Level::new(), Level::new());
    let polled = wq.spawn_future({
        let (begun, go) = (begun.clone(), go.clone());
        poll_fn(move |_| {
            begun.raise();
            go.wait_silently(1);
            Poll::<()>::Pending
        })
    });
    begun.wait(1);
    assert!(polled.try_cancel());
    assert!(!polled.is_finished());
    go.raise();
    assert!(matches!(polled.wait(), Err(JoinError::Cancelled)));
}

/// A cancelled future keeps nothing: its queue goes with the last handle, whether it waited for a
/// worker or had woken itself while it was polled.
#[test]
fn a_cancelled_future_does_not_keep_its_queue() {
    let sys = system();
    for polled in [false, true] {
        let wq = sys.workqueue("kept").bound().build().unwrap();
        let open = (!polled).then(|| plug(&wq));
        let (begun, go) = (Level::new(), Level::new());
        inflight_sync::cpu::set_current_for_thread(Some(0));
        let handle = wq.spawn_future({
            let (begun, go) = (begun.clone(), go.clone());
            poll_fn(move |cx| {
                cx.waker().wake_by_ref();
                begun.raise();
                go.wait_silently(1);
                Poll::<()>::Pending
            })
        });
        inflight_sync::cpu::set_current_for_thread(None);
        if polled {
            begun.wait(1);
        }
        assert!(handle.try_cancel());
        go.raise();
        if let Some(open) = open {
            open.raise();
        }
        assert!(matches!(handle.wait(), Err(JoinError::Cancelled)));
        wq.flush_blocking().unwrap();
        drop(wq);
        let mut looks = 0;
        while sys.dump().contains("kept") {
            looks += 1;
            assert!(looks < support::LOOKS / 100, "{}", sys.dump());
            thread::yield_now();
        }
    }
}

/// A future that has ended cannot be cancelled, though it was woken once more while it ended.
#[test]
fn a_future_that_has_ended_is_not_cancelled() {
    let sys = system();
    let wq = bound(&sys);
    inflight_sync::cpu::set_current_for_thread(Some(0));
    let (begun, go) = (Level::new(), Level::new());
    let handle = wq.spawn_future({
        let (begun, go) = (begun.clone(), go.clone());
        poll_fn(move |cx| {
            begun.raise();
            go.wait_silently(1);
            cx.waker().wake_by_ref();
            Poll::Ready(7)
        })
    });
    begun.wait(1);
    // In front of the poll that it has asked for.
    let (next, open) = (Level::new(), Level::new());
    wq.spawn({
        let (next, open) = (next.clone(), open.clone());
        move || {
            next.raise();
            open.wait_silently(1);
        }
    })
    .detach();
    inflight_sync::cpu::set_current_for_thread(None);
    go.raise();
    next.wait(1);
    let (finished, cancelled) = (handle.is_finished(), handle.try_cancel());
    open.raise();
    assert!(finished && !cancelled);
    assert_eq!(handle.wait().unwrap(), 7);
}

/// Nobody can wake it any more: the handle does not wait for ever.
#[test]
fn a_future_that_nobody_can_wake_is_cancelled() {
    let sys = system();
    let wq = bound(&sys);
    let signal = Signal::default();
    let handle = wq.spawn_future(signal.clone());
    until(|| signal.is_awaited());
    wq.flush_blocking().unwrap();
    signal.forget();
    assert!(matches!(handle.wait(), Err(JoinError::Cancelled)));
    let never = wq.spawn_future(std::future::pending::<()>());
    assert!(matches!(never.wait(), Err(JoinError::Cancelled)));
}

#[test]
fn panics_and_refusals_resolve_the_handle() {
    let sys = system();
    let wq = bound(&sys);
    let Err(JoinError::Panicked(payload)) = wq.spawn_future(async { panic!("in a poll") }).wait()
    else {
        panic!("it panics");
    };
    assert_eq!(payload.message(), Some("in a poll"));
    let signal = Signal::default();
    let woken_late = wq.spawn_future(signal.clone());
    until(|| signal.is_awaited());
    wq.destroy_blocking().unwrap();
    signal.raise();
    let destroyed = |e| matches!(e, Err(JoinError::Rejected(QueueError::Destroyed)));
    assert!(destroyed(woken_late.wait()));
    assert!(destroyed(wq.spawn_future(async {}).wait()));
    assert_eq!(wq.stats().panicked, 1);
}

/// Futures that wait for each other, on one CPU: a wait between polls holds no worker.
#[test]
fn futures_wait_for_each_other_without_threads() {
    fn depth(wq: Workqueue, n: u32) -> Pin<Box<dyn Future<Output = u32> + Send>> {
        Box::pin(async move {
            if n == 0 {
                return 0;
            }
            let inner = wq.spawn_future(depth(wq.clone(), n - 1));
            inner.await.unwrap() + 1
        })
    }
    let topo = inflight_topology::Topology::synthetic("core:1").unwrap();
    let faults = inflight_sync::fault::Faults::new();
    let builder = inflight_workqueue::WorkqueueSystem::builder().topology(topo);
    let sys = builder.faults(&faults).sampling(false).build().unwrap();
    let wq = bound(&sys);
    assert_eq!(wq.spawn_future(depth(wq.clone(), 100)).wait().unwrap(), 100);
    assert_eq!(
        faults.spawn_attempts(),
        2,
        "one worker for all, and the timer"
    );
}

#[cfg(feature = "futures")]
#[test]
fn a_workqueue_spawns_for_the_futures_crates() {
    use futures_task::{FutureObj, Spawn};
    let sys = system();
    let wq = bound(&sys);
    let ran = Level::new();
    let future = Box::pin({
        let ran = ran.clone();
        async move { ran.raise() }
    });
    wq.spawn_obj(FutureObj::new(future)).unwrap();
    ran.wait(1);
    wq.destroy_blocking().unwrap();
    let refused = wq.spawn_obj(FutureObj::new(Box::pin(async {})));
    assert!(refused.unwrap_err().is_shutdown());
}
