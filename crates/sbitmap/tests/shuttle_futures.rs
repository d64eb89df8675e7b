//! Random schedules of futures: polled by several threads with several wakers, dropped at each
//! stage by others, kept and used again, and woken by wakers that do something with the queue.
//!
//! Those who stay get what those who leave had; every bit comes back.
#![cfg(shuttle)]

mod shuttle_support;

use inflight_sbitmap::{GetOwned, OwnedIdGuard};
use inflight_sync::{Arc, Mutex, block_on, poll_until, thread};
use shuttle_support::{
    Mode, Owned, SECOND, Slot, Task, Threads, Told, check, get_task, many_task, poll_with, waker,
};
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Futures wait, with a waker of each; some are granted. Then others drop them while bits are put,
/// newcomers come, and two of a kind that stays wait, too.
fn dropped_by_others(mode: Mode) {
    let (owned, held) = Owned::taken(2, 2, mode);
    let told = Arc::new(Told::default());
    let waker = Waker::from(told);
    let mut leaving = [
        get_task(&owned),
        many_task(&owned, 2),
        get_task(&owned),
        many_task(&owned, 1),
    ];
    for task in &mut leaving {
        assert!(poll_with(task, &waker).is_pending());
    }
    let mut threads = Threads::default();
    let [first, second, third, fourth] = leaving;
    let [one, other] = held[..] else {
        unreachable!("two are out")
    };
    threads
        .on(&owned, |o| o.claim(&[o.queue.get_blocking().unwrap()]))
        .on(&owned, |o| o.claim(&[block_on(o.queue.get()).unwrap()]))
        .on(&owned, move |o| o.put(&[one]))
        .on(&owned, move |o| o.put(&[other]))
        .spawn(move || drop((first, fourth)))
        .spawn(move || drop(second));
    // Polled once more before it goes; what it has is put.
    let (waker, other) = (waker.clone(), owned.clone());
    threads.spawn(move || {
        let mut third = third;
        if let Poll::Ready(bits) = poll_with(&mut third, &waker) {
            other.use_and_put(&bits);
        }
    });
    threads.join();
    owned.assert_at_rest(2);
    owned.put_held();
    owned.assert_all_back();
}

/// As many puts as waiters that keep what they get, and nothing else that could wake one; some have
/// waited before, and leave.
fn last_puts(mode: Mode) {
    for leave in 0..3 {
        let (owned, held) = Owned::taken(2, 2, mode);
        let told = Waker::from(Arc::new(Told::default()));
        let mut leaving: Vec<_> = (0..leave).map(|_| get_task(&owned)).collect();
        for task in &mut leaving {
            assert!(poll_with(task, &told).is_pending());
        }
        let mut threads = Threads::default();
        threads
            .on(&owned, |o| o.claim(&[o.queue.get_blocking().unwrap()]))
            .on(&owned, |o| o.claim(&[block_on(o.queue.get()).unwrap()]))
            .on(&owned, move |o| {
                for &bit in &held {
                    o.put(&[bit]);
                }
            })
            .spawn(move || drop(leaving));
        threads.join();
        owned.assert_at_rest(2);
    }
}

/// The same where a timed thread that waits before the others is chosen as its time is up.
fn last_puts_at_a_deadline(mode: Mode) {
    let (owned, held) = Owned::taken(2, 2, mode);
    let mut threads = Threads::default();
    threads.on(&owned, |o| {
        if let Ok(bit) = o.queue.get_timeout(SECOND) {
            o.use_and_put(&[bit]);
        }
    });
    while owned.queue.snapshot().ws_active == 0 {
        thread::yield_now();
    }
    let clock = owned.clock.clone();
    threads
        .on(&owned, |o| o.claim(&[o.queue.get_blocking().unwrap()]))
        .on(&owned, |o| o.claim(&[block_on(o.queue.get()).unwrap()]))
        .spawn(move || clock.advance(SECOND))
        .on(&owned, move |o| {
            for &bit in &held {
                o.put(&[bit]);
            }
        });
    threads.join();
    owned.assert_at_rest(2);
}

/// Two futures change their threads amid the wait, and so their wakers, among others that stay
/// with one thread.
fn handed_over(mode: Mode) {
    let (owned, held) = Owned::taken(2, 2, mode);
    let slots = [Slot::new(), Slot::new()];
    let mut threads = Threads::default();
    for n in 0..2 {
        let (to, from) = (slots[n].clone(), slots[1 - n].clone());
        threads.on(&owned, move |o| {
            let mut task = if n == 0 { get_task(o) } else { many_task(o, 2) };
            let told = Waker::from(Arc::new(Told::default()));
            to.send(match poll_with(&mut task, &told) {
                Poll::Ready(bits) => Box::pin(async { bits }),
                Poll::Pending => task,
            });
            let other: Task<Vec<usize>> = from.receive();
            o.use_and_put(&block_on(other));
        });
    }
    threads
        .on(&owned, |o| {
            for _ in 0..2 {
                o.use_and_put(&[o.queue.get_blocking().unwrap()]);
            }
        })
        .on(&owned, |o| {
            o.use_and_put(&[block_on(o.queue.get()).unwrap()]);
        })
        .on(&owned, move |o| {
            o.put(&[held[1]]);
            o.put(&[held[0]]);
        });
    threads.join();
    owned.assert_all_back();
}

/// One id after the other through one future, which is also dropped amid a wait; a guard goes to
/// another thread, which drops it.
fn owned_futures_are_used_again(mode: Mode) {
    let owned = Owned::new(2, 2, mode);
    let sent: Arc<Slot<OwnedIdGuard>> = Slot::new();
    let mut threads = Threads::default();
    for n in 0..3 {
        let sent = sent.clone();
        threads.on(&owned, move |o| {
            let mut ids: GetOwned = o.queue.id_owned();
            for round in 0..3 {
                let guard = block_on(poll_fn(|cx| ids.poll_get(cx))).unwrap();
                o.claim(&[guard.id()]);
                thread::yield_now();
                o.release(&[guard.id()]);
                match round {
                    0 if n == 0 => sent.send(guard),
                    1 => o.queue.put(guard.into_id()).unwrap(),
                    _ => drop(guard),
                }
            }
            // One more, which nobody waits for.
            let told = Waker::from(Arc::new(Told::default()));
            let polled = ids.poll_get(&mut Context::from_waker(&told));
            drop(polled);
        });
    }
    threads.spawn(move || drop(sent.receive()));
    threads.join();
    owned.assert_all_back();
}

/// A waker that takes a bit and puts it, drops another future, and looks at the queue: from inside
/// of put, get, resize, `wake_all` and drop.
fn wakers_use_the_queue(mode: Mode) {
    let (owned, held) = Owned::taken(2, 3, mode);
    let victims: Arc<Mutex<Vec<Task<Vec<usize>>>>> = Arc::default();
    for task in [get_task(&owned), many_task(&owned, 2)] {
        let mut task = task;
        let told = Waker::from(Arc::new(Told::default()));
        assert!(poll_with(&mut task, &told).is_pending());
        victims.lock().push(task);
    }
    let mut threads = Threads::default();
    for n in 0..2 {
        let victims = victims.clone();
        threads.on(&owned, move |o| {
            let main = o.clone();
            let mut task = if n == 0 { get_task(o) } else { many_task(o, 2) };
            let bits = block_on(poll_fn(move |cx| {
                let (o, victims, inner) = (main.clone(), victims.clone(), cx.waker().clone());
                let waker = waker(move || {
                    let victim = victims.lock().pop();
                    let first = victim.is_some();
                    drop(victim);
                    if let Some(bit) = o.queue.try_get() {
                        o.use_and_put(&[bit]);
                    }
                    if first {
                        let _ = o.queue.snapshot();
                        o.queue.wake_all();
                    }
                    inner.wake_by_ref();
                });
                poll_with(&mut task, &waker)
            }));
            o.use_and_put(&bits);
        });
    }
    threads
        .on(&owned, move |o| o.put(&held))
        .on(&owned, |o| {
            o.resize(3);
            o.queue.wake_all();
        })
        .on(&owned, |o| {
            o.use_and_put(&[o.queue.get_blocking().unwrap()])
        });
    // The victims are either dropped by a waker or here, so that they keep nothing for ever.
    threads.spawn(move || {
        thread::yield_now();
        let left = std::mem::take(&mut *victims.lock());
        drop(left);
    });
    threads.join();
    owned.assert_all_back();
}

/// What a waker holds is dropped with it: a future that waits, or a bit that is put.
struct PutsWhenDropped(
    Arc<Owned>,
    Mutex<Option<usize>>,
    Mutex<Option<Task<Vec<usize>>>>,
);

impl Drop for PutsWhenDropped {
    fn drop(&mut self) {
        let task = self.2.lock().take();
        drop(task);
        let bit = self.1.lock().take();
        if let Some(bit) = bit {
            self.0.put(&[bit]);
        }
    }
}

/// Wakers that put a bit and drop a future when they are dropped: by another poll's waker, by the
/// queue, by the end of the wait.
fn wakers_put_when_dropped(mode: Mode) {
    let (owned, held) = Owned::taken(3, 3, mode);
    let mut tasks = Vec::new();
    for bit in [held[0], held[1]] {
        let mut waits = get_task(&owned);
        let told = Waker::from(Arc::new(Told::default()));
        assert!(poll_with(&mut waits, &told).is_pending());
        let holds = PutsWhenDropped(
            owned.clone(),
            Mutex::new(Some(bit)),
            Mutex::new(Some(waits)),
        );
        let first = waker(move || {
            let _held = &holds;
        });
        let mut task = get_task(&owned);
        assert!(poll_with(&mut task, &first).is_pending());
        tasks.push(task);
    }
    let mut threads = Threads::default();
    for task in tasks {
        // The first poll brings another waker, and the one before goes.
        threads.on(&owned, move |o| o.use_and_put(&block_on(task)));
    }
    threads
        .on(&owned, |o| {
            o.use_and_put(&[o.queue.get_blocking().unwrap()])
        })
        .on(&owned, move |o| o.put(&[held[2]]));
    threads.join();
    owned.assert_all_back();
}

/// Futures are waited for at most until a deadline by a thread of their own, and the clock comes to
/// it in the moment of the grant; timed waits beside them.
fn deadlines_meet_grants(mode: Mode) {
    let (owned, held) = Owned::taken(2, 2, mode);
    let deadline = owned.clock.now() + SECOND;
    let mut threads = Threads::default();
    threads
        .on(&owned, move |o| {
            let get = pin!(o.queue.get());
            if let Some(bit) = poll_until(&o.clock, Some(deadline), get) {
                o.use_and_put(&[bit.unwrap()]);
            }
        })
        .on(&owned, move |o| {
            if let Ok(bits) = o.queue.get_many_timeout(2, SECOND) {
                o.use_and_put(&bits);
            }
        })
        .on(&owned, |o| {
            if let Ok(id) = o.queue.id_timeout(SECOND) {
                o.claim(&[id.id()]);
                o.release(&[id.id()]);
            }
        })
        .on(&owned, |o| o.claim(&[o.queue.get_blocking().unwrap()]))
        .on(&owned, |o| o.claim(&[block_on(o.queue.get()).unwrap()]))
        .on(&owned, move |o| {
            o.put(&[held[0]]);
            thread::yield_now();
            o.put(&[held[1]]);
        });
    threads.join_ticking(&owned.clock, SECOND);
    owned.assert_at_rest(2);
    owned.put_held();
    owned.assert_all_back();
}

#[test]
fn futures_dropped_by_others() {
    check("futures_dropped_by_others", dropped_by_others);
}

#[test]
fn last_puts_and_those_who_leave() {
    check("last_puts_and_those_who_leave", last_puts);
}

#[test]
fn last_puts_and_deadlines() {
    check("last_puts_and_deadlines", last_puts_at_a_deadline);
}

#[test]
fn futures_handed_over() {
    check("futures_handed_over", handed_over);
}

#[test]
fn owned_futures() {
    check("owned_futures", owned_futures_are_used_again);
}

#[test]
fn wakers_that_use_the_queue() {
    check("wakers_that_use_the_queue", wakers_use_the_queue);
}

#[test]
fn wakers_that_put_when_dropped() {
    check("wakers_that_put_when_dropped", wakers_put_when_dropped);
}

#[test]
fn deadlines_and_grants() {
    check("deadlines_and_grants", deadlines_meet_grants);
}
