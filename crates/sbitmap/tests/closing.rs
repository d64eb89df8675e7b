//! Closing a queue, in every mode: nobody is left waiting, what is out can be put, and what was
//! granted is its owner's.
#![cfg(not(any(loom, shuttle)))]

#[path = "common/tasks.rs"]
mod tasks;

use inflight_sbitmap::{Engine, Fairness, GetError, GetManyError, GetOwned, SbitmapQueue};
use inflight_sync::{Arc, Mutex, block_on, thread};
use std::pin::pin;
use std::task::{Context, Wake, Waker};
use std::time::Duration;
use tasks::poll_once;

const MODES: [(Fairness, Engine); 5] = [
    (Fairness::fair(), Engine::Shared),
    (Fairness::fair(), Engine::Auto),
    (Fairness::fifo(), Engine::Shared),
    (Fairness::fifo(), Engine::Auto),
    (Fairness::batched(), Engine::Shared),
];

fn queue(depth: usize, (fairness, engine): (Fairness, Engine)) -> Arc<SbitmapQueue> {
    let queue = SbitmapQueue::builder(depth).max_depth(2 * depth);
    let queue = queue.fairness(fairness).engine(engine);
    Arc::new(queue.build().unwrap())
}

#[test]
fn nobody_gets_a_bit_of_a_closed_queue() {
    for mode in MODES {
        let queue = queue(8, mode);
        let held = queue.get_blocking().unwrap();
        assert!(!queue.is_closed());
        queue.close();
        queue.close();
        assert!(queue.is_closed());
        let (none, closed) = (Duration::ZERO, GetError::Closed);
        for _ in 0..2 {
            assert_eq!(queue.try_get(), None, "{mode:?}");
            assert!(queue.try_id().is_none());
            assert_eq!(queue.try_get_batch(4, &mut Vec::new()), 0);
            assert_eq!(queue.try_get_mask(4), None);
            assert_eq!(queue.try_get_shallow(8), None);
            assert_eq!(queue.get_blocking(), Err(closed));
            assert_eq!(queue.get_timeout(none), Err(closed));
            assert_eq!(block_on(queue.get()), Err(closed));
            assert_eq!(block_on(queue.id()).unwrap_err(), closed);
            assert_eq!(block_on(queue.id_owned()).unwrap_err(), closed);
            assert_eq!(queue.try_get_many(2), Err(GetManyError::Closed));
            assert_eq!(queue.get_many_blocking(2), Err(GetManyError::Closed));
            assert_eq!(block_on(queue.get_many(2)), Err(GetManyError::Closed));
            let late = queue.get_many_timeout(0, none);
            assert_eq!(late, Err(GetManyError::Closed), "none of none");
            assert_eq!(queue.try_get_many(0), Err(GetManyError::Closed));
            assert_eq!(queue.get_many_blocking(0), Err(GetManyError::Closed));
            assert_eq!(block_on(queue.get_many(0)), Err(GetManyError::Closed));
            // What is out comes back, once; and a change of the depth opens nothing.
            let put = queue.put(held);
            assert_eq!(put.is_ok(), queue.depth() == 8, "{mode:?}");
            queue.resize(16).unwrap();
            queue.wake_all();
        }
        assert_eq!(queue.weight(), 0);
    }
}

#[test]
fn who_waits_is_told_and_what_was_granted_stays() {
    for mode in MODES {
        let queue = queue(2, mode);
        let bits = [queue.get_blocking().unwrap(), queue.get_blocking().unwrap()];
        let mut granted = pin!(queue.get());
        assert!(poll_once(granted.as_mut()).is_none());
        let mut task = pin!(queue.get());
        assert!(poll_once(task.as_mut()).is_none());
        let mut many = pin!(queue.get_many(2));
        assert!(poll_once(many.as_mut()).is_none());
        let threads = [(); 2].map(|()| {
            let queue = queue.clone();
            thread::spawn(move || queue.get_blocking())
        });
        let timed = thread::spawn({
            let queue = queue.clone();
            move || queue.get_timeout(Duration::MAX)
        });
        let collecting = usize::from(matches!(mode.0, Fairness::Batched(_)));
        while queue.snapshot().ws_active + collecting < 6 {
            thread::yield_now();
        }
        if collecting == 0 {
            queue.put(bits[0]).unwrap(); // the first one's, in turns
        }
        queue.close();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), Err(GetError::Closed), "{mode:?}");
        }
        assert_eq!(timed.join().unwrap(), Err(GetError::Closed));
        assert_eq!(poll_once(task.as_mut()), Some(Err(GetError::Closed)));
        assert_eq!(poll_once(many.as_mut()), Some(Err(GetManyError::Closed)));
        let first = poll_once(granted.as_mut()).unwrap();
        if collecting == 0 {
            assert_eq!(first, Ok(bits[0]));
            queue.put(bits[0]).unwrap();
        } else {
            assert_eq!(first, Err(GetError::Closed));
            queue.put(bits[0]).unwrap();
        }
        queue.put(bits[1]).unwrap();
        assert_eq!(
            (queue.weight(), queue.snapshot().ws_active),
            (0, 0),
            "{mode:?}"
        );
    }
}

/// A queue that is closed under load: every thread ends, and no bit is lost.
#[test]
fn stop_cycles_by_closing() {
    let rounds = if cfg!(miri) { 2 } else { 200 };
    for mode in MODES {
        for _ in 0..rounds {
            let queue = queue(2, mode);
            let threads: Vec<_> = (0..6)
                .map(|n| {
                    let queue = queue.clone();
                    thread::spawn(move || {
                        loop {
                            let bit = match n % 3 {
                                0 => queue.get_blocking(),
                                1 => block_on(queue.get()),
                                _ => queue.get_timeout(Duration::from_secs(1_000)),
                            };
                            match bit {
                                Ok(bit) => queue.put(bit).unwrap(),
                                Err(error) => return error,
                            }
                        }
                    })
                })
                .collect();
            thread::yield_now();
            queue.close();
            for thread in threads {
                assert_eq!(thread.join().unwrap(), GetError::Closed, "{mode:?}");
            }
            assert_eq!(queue.weight(), 0, "{mode:?}");
        }
    }
}

/// Guards put their bit, also where a task is cancelled; one future serves one bit after the other.
#[test]
fn ids_put_themselves_back() {
    for mode in MODES {
        let queue = queue(2, mode);
        let mut ids = queue.id_owned();
        let a = block_on(&mut ids).unwrap();
        let b = block_on(&mut ids).unwrap();
        assert_ne!(a.id(), b.id());
        assert!(poll_once(&mut ids).is_none());
        let freed = a.id();
        drop(a);
        let c = poll_once(&mut ids)
            .expect("it was granted, or is free")
            .unwrap();
        assert_eq!(c.id(), freed, "{mode:?}");
        let plain = c.into_id();
        drop((b, ids));
        assert_eq!(queue.weight(), 1);
        queue.put(plain).unwrap();
        // Dropped while it waits, and while it has been granted a bit.
        let held = [queue.id_blocking().unwrap(), queue.id_blocking().unwrap()];
        let mut waits = queue.id_owned();
        let mut granted = queue.id_owned();
        assert!(poll_once(&mut granted).is_none() && poll_once(&mut waits).is_none());
        drop(held);
        drop((waits, granted));
        assert_eq!(queue.weight(), 0, "{mode:?}");
        assert_eq!(queue.try_get_many(2).unwrap().len(), 2);
        let none = queue.try_get_many(1);
        assert_eq!(none, Err(GetManyError::Exhausted { n: 1 }));
    }
}

/// Drops whatever it has when it is woken, as the waker of a task that others run.
struct Drops(Mutex<Vec<GetOwned>>);

impl Wake for Drops {
    fn wake(self: Arc<Self>) {
        let waits = std::mem::take(&mut *self.0.lock());
        drop(waits);
    }
}

/// A waker may end other waits of the same queue.
#[test]
fn a_waker_may_leave_the_queue_that_is_closed() {
    for mode in MODES {
        let queue = queue(2, mode);
        let held = [queue.id_blocking().unwrap(), queue.id_blocking().unwrap()];
        let drops = Arc::new(Drops(Mutex::new(Vec::new())));
        let waker = Waker::from(drops.clone());
        let mut cx = Context::from_waker(&waker);
        // The one that is told, and one on each side of it.
        let mut waits = [(); 3].map(|()| queue.id_owned());
        assert!(poll_once(&mut waits[0]).is_none());
        assert!(waits[1].poll_get(&mut cx).is_pending());
        assert!(poll_once(&mut waits[2]).is_none());
        drops.0.lock().extend(waits);
        queue.close();
        assert!(drops.0.lock().is_empty(), "{mode:?}");
        drop(held);
        assert_eq!(queue.weight(), 0, "{mode:?}");
    }
}
