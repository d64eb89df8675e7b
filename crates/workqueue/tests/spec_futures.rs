//! Futures and wakers that misbehave, and waits that others end.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use inflight_sync::{Arc, Mutex, thread};
use inflight_topology::Scope;
use inflight_workqueue::{Attrs, JoinError, JoinHandle, Queued, Work};
use std::future::{Future, poll_fn};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::Duration;
use support::{Inside, Level, builder, counting, every_kind, held_work, system, until};

/// Counts its calls.
struct Counts(Level);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.raise();
    }
}

fn counts(level: &Level) -> Waker {
    Waker::from(Arc::new(Counts(level.clone())))
}

fn poll_with<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

fn boxed<'a, T>(wait: impl Future<Output = T> + 'a) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
    Box::pin(async { drop(wait.await) })
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Futures that wake themselves for ever: each end gets past them.
#[test]
fn futures_that_always_wake_themselves_end_with_queue_or_system() {
    for how in 0..5 {
        for kind in 0..7 {
            let sys = builder().build().unwrap();
            let wq = every_kind(&sys).swap_remove(kind);
            let polls = Level::new();
            let handles: Vec<JoinHandle<()>> = (0..3)
                .map(|_| {
                    let polls = polls.clone();
                    wq.spawn_future(poll_fn(move |cx| {
                        polls.raise();
                        cx.waker().wake_by_ref();
                        Poll::Pending
                    }))
                })
                .collect();
            polls.wait(10);
            wq.flush_blocking().unwrap();
            let frozen = sys.freeze();
            drop(frozen);
            let runs = Level::new();
            wq.queue(&counting(&runs)).unwrap();
            runs.wait(1);
            let expected = match how {
                0 => {
                    for handle in &handles {
                        assert!(handle.try_cancel());
                    }
                    "Cancelled"
                }
                1 => {
                    drop(wq.destroy());
                    for handle in &handles {
                        assert!(handle.try_cancel());
                    }
                    wq.destroy_blocking().unwrap();
                    "Cancelled"
                }
                2 => {
                    sys.shutdown_blocking().unwrap();
                    "ShutDown"
                }
                3 => {
                    drop(sys);
                    "ShutDown"
                }
                _ => {
                    let _frozen = sys.freeze();
                    sys.shutdown_blocking().unwrap();
                    "ShutDown"
                }
            };
            for handle in handles {
                let text = format!("{:?}", handle.wait());
                assert!(text.contains(expected), "{how} {} {text}", wq.name());
            }
        }
    }
}

/// A cancel that leaves a closed queue with nothing is a cancel all the same.
#[test]
fn the_last_future_of_a_closed_queue_is_cancelled_by_its_handle() {
    let sys = system();
    let wq = sys
        .workqueue("closed")
        .ordered()
        .freezable()
        .build()
        .unwrap();
    let frozen = sys.freeze();
    let handle = wq.spawn_future(std::future::pending::<()>());
    drop(wq.destroy());
    assert!(handle.try_cancel());
    drop(frozen);
    assert!(matches!(handle.wait(), Err(JoinError::Cancelled)));
}

/// A waker that panics on whatever it is asked for.
fn bad_waker(at: &'static str) -> Waker {
    fn data(at: &'static str) -> *const () {
        at.as_ptr().cast()
    }
    fn of(p: *const ()) -> u8 {
        // SAFETY: made by `data` from a static text of at least one byte.
        unsafe { *p.cast::<u8>() }
    }
    unsafe fn clone(p: *const ()) -> RawWaker {
        assert_ne!(of(p), b'c', "clone panics");
        RawWaker::new(p, &TABLE)
    }
    unsafe fn wake(p: *const ()) {
        assert_ne!(of(p), b'w', "wake panics");
    }
    unsafe fn drop(p: *const ()) {
        assert_ne!(of(p), b'd', "drop panics");
    }
    static TABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake, drop);
    // SAFETY: the functions take the pointer by value and keep nothing.
    unsafe { Waker::new(data(at), &TABLE) }
}

/// Each waker that panics is alone with it: others are told, the queue goes on, the work is usable.
#[test]
fn wakers_that_panic_harm_nobody_else() {
    for at in ["wake", "drop", "clone"] {
        let sys = system();
        for wq in every_kind(&sys).into_iter().filter(|wq| wq.name() != "bh") {
            let (work, release, begun) = held_work();
            wq.queue(&work).unwrap();
            begun.wait(1);
            let waker = ManuallyDrop::new(bad_waker(at));
            // Its own panics come back to who polls.
            let poll = |wait: Pin<&mut dyn Future<Output = ()>>| {
                let poll = || wait.poll(&mut Context::from_waker(&waker)).is_ready();
                let _ = catch_unwind(AssertUnwindSafe(poll));
            };
            let mut bad = [
                boxed(wq.flush()),
                boxed(work.flush()),
                boxed(work.cancel_sync()),
                boxed(wq.spawn(|| ())),
                boxed(wq.drain()),
            ];
            bad.iter_mut().for_each(|wait| poll(wait.as_mut()));
            let told = Level::new();
            let (mut flush, mut drain) = (wq.flush(), wq.drain());
            let mut work_flush = work.flush();
            assert!(poll_with(&mut flush, &counts(&told)).is_pending());
            assert!(poll_with(&mut drain, &counts(&told)).is_pending());
            assert!(poll_with(&mut work_flush, &counts(&told)).is_pending());
            let waiter = {
                let work = work.clone();
                thread::spawn(move || work.cancel_sync_blocking())
            };
            release.raise();
            told.wait(3);
            waiter.join().unwrap().unwrap();
            drop((flush, drain, work_flush));
            for wait in bad {
                let _ = catch_unwind(AssertUnwindSafe(|| drop(wait)));
            }
            release.raise();
            assert_eq!(wq.queue(&work), Ok(Queued::Queued), "{at}: usable");
            wq.drain_blocking().unwrap();
            assert_eq!(wq.stats().in_flight(), 0);
        }
        sys.shutdown_blocking().unwrap();
    }
}

/// Wakers outlive the future, the queue and the system.
#[test]
fn wakers_kept_beyond_the_end_do_nothing() {
    let wakers = Arc::new(Mutex::new(Vec::new()));
    let polls = Level::new();
    for _ in 0..20 {
        let sys = system();
        for wq in every_kind(&sys) {
            let (wakers, polls) = (wakers.clone(), polls.clone());
            let handle = wq.spawn_future(poll_fn(move |cx| {
                wakers.lock().push(cx.waker().clone());
                polls.raise();
                Poll::<()>::Pending
            }));
            handle.detach();
        }
        polls.wait(polls.get());
        thread::spawn({
            let wakers = wakers.clone();
            move || {
                for waker in wakers.lock().iter() {
                    waker.wake_by_ref();
                }
            }
        })
        .join()
        .unwrap();
        sys.shutdown_blocking().unwrap();
        let then = polls.get();
        for waker in wakers.lock().iter() {
            waker.wake_by_ref();
            drop(waker.clone());
        }
        drop(sys);
        assert_eq!(polls.get(), then);
    }
    for waker in wakers.lock().drain(..) {
        waker.wake();
    }
}

/// The future's own destructor wakes it, cancels it and queues.
#[test]
fn a_future_whose_destructor_wakes_and_cancels_it() {
    for how in 0..4 {
        let sys = system();
        for wq in every_kind(&sys) {
            let handle: Arc<Mutex<Option<JoinHandle<()>>>> = Arc::default();
            let woken = Level::new();
            let (h, w, q) = (handle.clone(), woken.clone(), wq.clone());
            let waker: Arc<Mutex<Option<Waker>>> = Arc::default();
            let wk = waker.clone();
            let last = OnDrop(move || {
                if let Some(waker) = wk.lock().as_ref() {
                    waker.wake_by_ref();
                }
                if let Some(handle) = h.lock().as_ref() {
                    handle.try_cancel();
                }
                q.spawn(|| ()).detach();
                w.raise();
            });
            let wk = waker.clone();
            let h = handle.clone();
            let begun = Level::new();
            let b = begun.clone();
            let spawned = wq.spawn_future(poll_fn(move |cx| {
                let _keep = &last;
                *wk.lock() = Some(cx.waker().clone());
                b.raise();
                match how {
                    0 => Poll::Ready(()),
                    1 => panic!("in a poll"),
                    2 => {
                        if let Some(handle) = h.lock().as_ref() {
                            handle.try_cancel();
                        }
                        cx.waker().wake_by_ref();
                        Poll::Pending
                    }
                    _ => Poll::Pending,
                }
            }));
            *handle.lock() = Some(spawned);
            begun.wait(1);
            if how == 3 {
                let handle = handle.lock().take().unwrap();
                assert!(handle.try_cancel());
                assert!(matches!(handle.wait(), Err(JoinError::Cancelled)));
            }
            woken.wait(1);
            if how < 3 {
                until(
                    || handle.lock().as_ref().unwrap().is_finished(),
                    || format!("{how} {}", wq.name()),
                );
            }
            wq.drain_blocking().unwrap();
        }
        sys.shutdown_blocking().unwrap();
    }
}

/// A wake after news leads to a poll that sees them.
#[test]
fn no_wake_is_lost_whatever_happens_to_the_queue() {
    for sampling in [true, false] {
        let sys = builder().sampling(sampling).build().unwrap();
        for wq in every_kind(&sys) {
            let (news, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let end = Arc::new(AtomicBool::new(false));
            let waker: Arc<Mutex<Option<Waker>>> = Arc::default();
            let inside = Inside::new();
            let handle = wq.spawn_future(poll_fn({
                let (news, seen, end) = (news.clone(), seen.clone(), end.clone());
                let (waker, inside) = (waker.clone(), inside.clone());
                move |cx| {
                    inside.enter();
                    waker.lock().get_or_insert_with(|| cx.waker().clone());
                    seen.store(news.load(Ordering::Relaxed), Ordering::Relaxed);
                    let over = end.load(Ordering::Relaxed);
                    inside.leave();
                    if over { Poll::Ready(()) } else { Poll::Pending }
                }
            }));
            until(|| waker.lock().is_some(), || "it is not polled".into());
            let wake = waker.lock().take().unwrap();
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        for n in 0..1000 {
                            news.fetch_add(1, Ordering::Relaxed);
                            wake.wake_by_ref();
                            if n % 16 == 0 {
                                thread::yield_now();
                            }
                        }
                    });
                }
                for turn in 0..60 {
                    match turn % 5 {
                        0 => wq.flush_blocking().unwrap(),
                        1 => drop(wq.drain_timeout(Duration::from_micros(200))),
                        2 => drop(sys.freeze()),
                        3 => {
                            let scope = [Scope::Cpu, Scope::System][turn % 2];
                            let _ = wq.set_attrs(Attrs::new().scope(scope));
                        }
                        _ => drop(wq.set_max_active(1 + turn % 3)),
                    }
                }
            });
            wq.flush_blocking().unwrap();
            assert_eq!(seen.load(Ordering::Relaxed), 2000, "{}", wq.name());
            assert_eq!(inside.most(), 1);
            end.store(true, Ordering::Relaxed);
            wake.wake();
            handle.wait().unwrap();
            wq.drain_blocking().unwrap();
        }
    }
}

/// Of several wakers the last one counts.
#[test]
fn the_waker_given_last_is_called() {
    let sys = builder().build().unwrap();
    for wq in every_kind(&sys) {
        for round in 0..100 {
            let computes = move || (0..round % 3 * 300).for_each(|_| std::hint::spin_loop());
            let work = Work::new(computes);
            wq.queue(&work).unwrap();
            let waits = [
                boxed(wq.spawn(computes)),
                boxed(wq.spawn_future(async move { computes() })),
                boxed(wq.flush()),
                boxed(work.flush()),
                boxed(work.cancel_sync()),
                boxed(wq.drain()),
            ];
            for mut wait in waits {
                loop {
                    let last = Level::new();
                    let wakers = [Waker::noop().clone(), counts(&last)];
                    if wakers.iter().any(|w| poll_with(&mut wait, w).is_ready()) {
                        break;
                    }
                    last.wait(1);
                }
            }
        }
    }
}
