//! Random schedules of ends: a queue closes amid waits of all forms, and wakers panic.
//!
//! Every wait ends, with bits or with why not; whoever has a bit keeps it, and it comes back.
#![cfg(shuttle)]

mod shuttle_support;

use inflight_sbitmap::{GetError, GetManyError, OwnedIdGuard};
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, block_on, thread};
use shuttle_support::{Mode, Owned, SECOND, Task, Threads, Told, check, poll_with, waker};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::{Poll, Waker};

/// A bit or that the queue is closed, and then it says so.
fn one(owned: &Owned, got: Result<usize, GetError>) {
    match got {
        Ok(bit) => owned.use_and_put(&[bit]),
        Err(GetError::Closed) => assert!(owned.queue.is_closed()),
        Err(GetError::TimedOut) => {}
        Err(error) => panic!("{error}"),
    }
}

fn several(owned: &Owned, got: Result<Vec<usize>, GetManyError>) {
    match got {
        Ok(bits) => owned.use_and_put(&bits),
        Err(GetManyError::Closed) => assert!(owned.queue.is_closed()),
        Err(GetManyError::TimedOut | GetManyError::Exhausted { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

fn assert_refused(owned: &Owned) {
    let queue = &owned.queue;
    assert_eq!(queue.try_get(), None);
    assert_eq!(queue.get_blocking(), Err(GetError::Closed));
    assert_eq!(block_on(queue.get()), Err(GetError::Closed));
    assert_eq!(queue.get_many_blocking(2), Err(GetManyError::Closed));
    assert_eq!(queue.try_get_batch(2, &mut Vec::new()), 0);
    assert!(queue.try_get_mask(2).is_none() && queue.try_get_shallow(1).is_none());
    assert!(queue.try_id().is_none());
}

/// Two close, while waits of all forms are under way, bits come back, a guard goes and the depth
/// changes.
fn closes_amid_waits(mode: Mode) {
    let (owned, held) = Owned::taken(3, 4, mode);
    let guard = OwnedIdGuard::adopt(owned.queue.clone(), held[2]);
    owned.release(&held[2..]);
    let mut threads = Threads::default();
    threads
        .on(&owned, |o| {
            loop {
                let got = o.queue.get_blocking();
                one(o, got);
                if got.is_err() {
                    break assert_refused(o);
                }
            }
        })
        .on(&owned, |o| {
            loop {
                let got = block_on(o.queue.get_many(2));
                let closed = got.is_err();
                several(o, got);
                if closed {
                    break assert_refused(o);
                }
            }
        })
        .on(&owned, |o| {
            one(o, o.queue.get_timeout(SECOND));
            several(o, o.queue.get_many_timeout(3, SECOND));
        })
        .on(&owned, |o| {
            let mut ids = o.queue.id_owned();
            for _ in 0..2 {
                match block_on(poll_fn(|cx| ids.poll_get(cx))) {
                    Ok(id) => {
                        o.claim(&[id.id()]);
                        o.release(&[id.id()]);
                    }
                    Err(error) => assert_eq!(error, GetError::Closed),
                }
            }
        })
        .on(&owned, move |o| {
            o.put(&held[..2]);
            drop(guard);
        })
        .on(&owned, |o| o.queue.close())
        .on(&owned, |o| {
            o.resize(4);
            o.queue.close();
            assert_refused(o);
            o.resize(3);
        });
    threads.join_ticking(&owned.clock, SECOND);
    owned.assert_closed_at_rest();
}

/// What was granted before the close is its owner's; what a waiter had collected is nobody's.
fn closes_after_grants(mode: Mode) {
    let (owned, held) = Owned::taken(2, 2, mode);
    let queue = owned.queue.clone();
    let told = Arc::new(Told::default());
    let waker = Waker::from(told.clone());
    let granted: Task<Result<usize, GetError>> = {
        let queue = queue.clone();
        Box::pin(async move { queue.get().await })
    };
    let collecting: Task<Result<Vec<usize>, GetManyError>> =
        Box::pin(async move { queue.get_many(2).await });
    let (mut granted, mut collecting) = (granted, collecting);
    assert!(poll_with(&mut granted, &waker).is_pending());
    assert!(poll_with(&mut collecting, &waker).is_pending());
    // Not with `Batched`: there a wake is a chance.
    owned.put(&held[..1]);
    let owner = !mode.is_batched();
    let mut threads = Threads::default();
    threads
        .on(&owned, |o| o.queue.close())
        .on(&owned, move |o| o.put(&held[1..]))
        .on(&owned, move |o| {
            let got = block_on(granted);
            assert!(got.is_ok() || !owner, "it was granted before: {got:?}");
            one(o, got);
        })
        .on(&owned, move |o| several(o, block_on(collecting)))
        .on(&owned, |o| one(o, o.queue.get_blocking()));
    threads.join();
    assert!(told.count() >= 1);
    owned.assert_closed_at_rest();
}

/// A waker that panics, unlike others that are told with it.
fn panicking(panics: &Arc<AtomicUsize>) -> Waker {
    let panics = panics.clone();
    waker(move || {
        panics.fetch_add(1, Ordering::Relaxed);
        resume_unwind(Box::new("waker"));
    })
}

/// Does what may run a waker that panics; counts the panics.
fn caught<T>(seen: &AtomicUsize, f: impl FnOnce() -> T) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(f));
    if result.is_err() {
        seen.fetch_add(1, Ordering::Relaxed);
    }
    result.ok()
}

/// Futures with wakers that panic wait among others. Each panic reaches somebody; nobody else loses
/// a wake, and no bit is lost, whoever is hit: a put, a batch, a resize, a close, a drop.
fn wakers_panic(mode: Mode) {
    for ends in [false, true] {
        let (owned, held) = Owned::taken(3, 4, mode);
        let (panics, seen) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let mut bad: Vec<_> = [1, 2, 1]
            .map(|n| shuttle_support::many_task(&owned, n))
            .into();
        for task in &mut bad {
            assert!(poll_with(task, &panicking(&panics)).is_pending());
        }
        let last = bad.pop().unwrap();
        let mut threads = Threads::default();
        let s = [(); 5].map(|()| seen.clone());
        let [s0, s1, s2, s3, s4] = s;
        let (one_bit, two_bits) = (held[0], [held[1], held[2]]);
        threads
            .on(&owned, move |o| {
                o.release(&[one_bit]);
                caught(&s0, || o.queue.put(one_bit).unwrap());
            })
            .on(&owned, move |o| {
                o.release(&two_bits);
                caught(&s1, || o.queue.put_batch(&two_bits).unwrap());
            })
            .on(&owned, move |o| {
                caught(&s2, || o.resize(4));
                caught(&s2, || o.queue.wake_all());
                if ends {
                    caught(&s2, || o.queue.close());
                }
            })
            // They leave, granted or not, by the hand of another thread.
            .spawn(move || {
                for task in bad {
                    caught(&s3, || drop(task));
                    thread::yield_now();
                }
            })
            .on(&owned, move |o| {
                // One that leaves by its bit, should there be one.
                let (mut task, mut ready) = (last, None);
                let told = Waker::from(Arc::new(Told::default()));
                if let Some(Poll::Ready(bits)) = caught(&s4, || poll_with(&mut task, &told)) {
                    ready = Some(bits);
                }
                caught(&s4, || drop(task));
                if let Some(bits) = ready {
                    o.claim(&bits);
                    o.release(&bits);
                    caught(&s4, || o.queue.put_batch(&bits).unwrap());
                }
            });
        // Their calls may run a waker of those above, too: then they have nothing, and ask again.
        let (s5, s6) = (seen.clone(), seen.clone());
        threads
            .on(&owned, move |o| {
                let got = std::iter::repeat_with(|| caught(&s5, || o.queue.get_blocking()));
                if let Ok(bit) = got.flatten().next().unwrap() {
                    o.claim(&[bit]);
                    o.release(&[bit]);
                    caught(&s5, || o.queue.put(bit).unwrap());
                }
            })
            .on(&owned, move |o| {
                let got = std::iter::repeat_with(|| caught(&s6, || block_on(o.queue.get())));
                if let Ok(bit) = got.flatten().next().unwrap() {
                    o.claim(&[bit]);
                    o.release(&[bit]);
                    caught(&s6, || o.queue.put(bit).unwrap());
                }
            });
        threads.join();
        let (panics, seen) = (panics.load(Ordering::Relaxed), seen.load(Ordering::Relaxed));
        assert!(seen <= panics && (seen > 0) == (panics > 0));
        if ends {
            owned.assert_closed_at_rest();
        } else {
            owned.assert_all_back();
        }
    }
}

#[test]
fn queues_close_amid_waits() {
    check("queues_close_amid_waits", closes_amid_waits);
}

#[test]
fn queues_close_after_grants() {
    check("queues_close_after_grants", closes_after_grants);
}

#[test]
fn panicking_wakers() {
    check("panicking_wakers", wakers_panic);
}
