//! Models of live resize, of searches in turn, and of bits set by number.
//!
//! | weaken | fails |
//! |---|---|
//! | `accept`: no look at the depth after a bit was taken | `h21_a_late_get_*` |
//! | `resize` does not flush | `h21_a_late_get_*` |
//! | `put_above_depth` without the lock | `h21_growth_against_a_late_get` |
//! | the same in the local engine, or always giving back | `h21_growth_against_a_late_get_of_a_stack` |
//! | a word judged full by all its bits instead of the searched | `h19_a_search_in_turn_ends` |
//! | `resize` of a queue does not make waiters look | `h20_*` |
//! | a collector that registers does not look at the depth again | `h20_shrink_against_collector` |
//! | `set`: Release, `clear`: Acquire | `a46_a_pending_bit_carries_data` |
//! | `set`: Acquire, `clear`: Release | `a46_a_bit_as_a_lock` |
#![cfg(loom)]

#[path = "common/wake_flag.rs"]
mod wake_flag;

use inflight_sbitmap::model_support::{LocalStore, ModelConfig};
use inflight_sbitmap::{Fairness, GetManyError, Hint, Sbitmap, SbitmapQueue};
use inflight_sync::cell::UnsafeCell;
use inflight_sync::model::{Bound, check};
use inflight_sync::percpu::Backend;
use inflight_sync::{Arc, thread};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use wake_flag::WakeFlag;

const UNBOUNDED: Bound = Bound {
    quick: None,
    deep: None,
};
const ONE: Bound = Bound {
    quick: Some(1),
    deep: Some(2),
};
const TWO: Bound = Bound {
    quick: Some(2),
    deep: Some(3),
};

/// One word of two bits; bit 0 is held.
fn one_of_two() -> Arc<Sbitmap> {
    let map = Sbitmap::builder(2).shift(1).trusted(true).build().unwrap();
    assert_eq!(map.try_get_with(&mut Hint::at(0)), Some(0));
    Arc::new(map)
}

/// Once the map has shrunk and bit 1 was seen free, nobody is handed it any more.
fn shrink_against_get(map: &Arc<Sbitmap>) {
    let getter = thread::spawn({
        let map = map.clone();
        move || map.try_get_with(&mut Hint::at(0))
    });
    map.resize(1).unwrap();
    let gone = !map.is_set(1);
    let got = getter.join().unwrap();
    assert!(matches!(got, None | Some(1)));
    assert!(!(gone && got.is_some()), "bit 1 is back");
    assert_eq!(map.weight(), 1 + usize::from(got.is_some()));
    if let Some(bit) = got {
        map.put(bit).unwrap();
    }
    assert_eq!(map.try_get(), None, "what is above the depth has vanished");
    map.put(0).unwrap();
    map.resize(2).unwrap();
    assert!(map.try_get().is_some() && map.try_get().is_some());
    assert_eq!(map.try_get(), None, "each bit once");
}

/// H21. The getter has looked at the depth before the map shrank, and takes the bit after.
#[test]
fn h21_a_late_get_of_a_free_bit() {
    check("h21_a_late_get_of_a_free_bit", UNBOUNDED, || {
        shrink_against_get(&one_of_two());
    });
}

/// H21. The same where the bit is parked, and the getter takes it where it is.
#[test]
fn h21_a_late_get_of_a_parked_bit() {
    check("h21_a_late_get_of_a_parked_bit", UNBOUNDED, || {
        let map = one_of_two();
        assert_eq!(map.try_get(), Some(1));
        map.put(1).unwrap();
        shrink_against_get(&map);
    });
}

/// H21. The map shrinks and grows again while a get is on its way: the bit is the getter's, or free
/// for others. A waiter never learns of a bit that a late getter gives back, so it must not give
/// back one that has become good again.
#[test]
fn h21_growth_against_a_late_get() {
    check("h21_growth_against_a_late_get", ONE, || {
        let queue = SbitmapQueue::builder(2)
            .fairness(Fairness::batched())
            .shift(1)
            .trusted(true)
            .build()
            .unwrap();
        assert_eq!(queue.try_get(), Some(0));
        let queue = Arc::new(queue);
        let getter = thread::spawn({
            let queue = queue.clone();
            move || queue.try_get()
        });
        queue.resize(1).unwrap();
        queue.resize(2).unwrap();
        let woken = Arc::new(WakeFlag::default());
        let waker = Waker::from(woken.clone());
        let mut cx = Context::from_waker(&waker);
        let mut get = pin!(queue.get());
        let polled = get.as_mut().poll(&mut cx);
        match getter.join().unwrap() {
            Some(bit) => queue.put(bit).unwrap(),
            None => assert_eq!(queue.depth(), 2),
        }
        if polled.is_pending() {
            assert!(woken.is_woken(), "a bit is free and the waiter sleeps");
        } else {
            assert_eq!(polled, Poll::Ready(Ok(1)));
        }
    });
}

/// H21. The owner of a bit above the new depth puts it while the map shrinks and grows.
#[test]
fn h21_put_against_resize() {
    check("h21_put_against_resize", TWO, || {
        let map = one_of_two();
        assert_eq!(map.try_get(), Some(1));
        let owner = thread::spawn({
            let map = map.clone();
            move || map.put(1).unwrap()
        });
        map.resize(1).unwrap();
        map.resize(2).unwrap();
        owner.join().unwrap();
        assert_eq!(map.weight(), 1);
        assert_eq!(map.try_get(), Some(1));
        assert_eq!(map.try_get(), None);
    });
}

/// 16 bits in one word, all taken: the wake batch is 2.
fn all_of_16() -> Arc<SbitmapQueue> {
    let queue = SbitmapQueue::builder(16)
        .fairness(Fairness::batched())
        .shift(4)
        .trusted(true)
        .fairness(Fairness::batched())
        .build()
        .unwrap();
    assert_eq!(queue.try_get_batch(16, &mut Vec::new()), 16);
    assert_eq!(queue.snapshot().wake_batch, 2);
    Arc::new(queue)
}

/// H20. The batch becomes 1 while a put counts by the old one.
#[test]
fn h20_shrink_against_put() {
    check("h20_shrink_against_put", ONE, || {
        let queue = all_of_16();
        let waiter = thread::spawn({
            let queue = queue.clone();
            move || queue.get_blocking().unwrap()
        });
        let resizer = thread::spawn({
            let queue = queue.clone();
            move || queue.resize(8).unwrap()
        });
        queue.put(3).unwrap();
        resizer.join().unwrap();
        assert_eq!(waiter.join().unwrap(), 3);
        let counters = queue.snapshot();
        let owed = counters.completions.wrapping_sub(counters.wakeups);
        assert!(owed < 2, "{owed} counts are left over");
    });
}

/// H20. Growth gives bits that nobody puts.
#[test]
fn h20_growth_against_waiter() {
    check("h20_growth_against_waiter", UNBOUNDED, || {
        let queue = SbitmapQueue::builder(1)
            .fairness(Fairness::batched())
            .max_depth(2)
            .shift(1)
            .trusted(true)
            .fairness(Fairness::batched())
            .build()
            .unwrap();
        assert_eq!(queue.try_get(), Some(0));
        let queue = Arc::new(queue);
        let waiter = thread::spawn({
            let queue = queue.clone();
            move || queue.get_blocking().unwrap()
        });
        queue.resize(2).unwrap();
        assert_eq!(waiter.join().unwrap(), 1);
    });
}

/// H20. A collector of more than there will be is told, also while it registers.
#[test]
fn h20_shrink_against_collector() {
    check("h20_shrink_against_collector", TWO, || {
        let queue = SbitmapQueue::builder(2)
            .fairness(Fairness::batched())
            .shift(1)
            .trusted(true)
            .build()
            .unwrap();
        let bits = [queue.try_get().unwrap(), queue.try_get().unwrap()];
        let queue = Arc::new(queue);
        let collector = thread::spawn({
            let queue = queue.clone();
            move || queue.get_many_blocking(2)
        });
        queue.resize(1).unwrap();
        let too_many = GetManyError::TooMany { n: 2, depth: 1 };
        assert_eq!(collector.join().unwrap(), Err(too_many));
        queue.put_batch(&bits).unwrap();
        assert_eq!(queue.weight(), 0);
    });
}

/// H19. Bits below the start of a search in turn are free: that is no reason to look again.
#[test]
fn h19_a_search_in_turn_ends() {
    check("h19_a_search_in_turn_ends", TWO, || {
        let map = Sbitmap::builder(4).shift(2).round_robin(true).trusted(true);
        let map = Arc::new(map.build().unwrap());
        assert_eq!(map.try_get_batch(4, &mut Vec::new()), 4);
        let putter = thread::spawn({
            let map = map.clone();
            move || {
                map.put_batch(&[0]).unwrap(); // straight to the word
                map.put(1).unwrap();
            }
        });
        let got = map.try_get_with(&mut Hint::at(3));
        assert!(matches!(got, None | Some(0 | 1)));
        putter.join().unwrap();
        assert_eq!(map.weight(), 2 + usize::from(got.is_some()));
    });
}

/// A map of one bit that is set by number, and what it stands for.
struct Pending {
    map: Sbitmap,
    data: UnsafeCell<u32>,
}

// SAFETY: who touches `data`, and when, is what the models check.
unsafe impl Sync for Pending {}

impl Pending {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            map: Sbitmap::builder(1).shift(0).trusted(true).build().unwrap(),
            data: UnsafeCell::new(0),
        })
    }

    fn touch(&self) {
        // SAFETY: see the models.
        self.data.with_mut(|data| unsafe { *data += 1 });
    }
}

/// What was written before a bit was set is visible to whoever clears it, or sees it set.
#[test]
fn a46_a_pending_bit_carries_data() {
    check("a46_a_pending_bit_carries_data", UNBOUNDED, || {
        let pending = Pending::new();
        let adder = thread::spawn({
            let pending = pending.clone();
            move || {
                pending.touch();
                pending.map.set(0).unwrap();
            }
        });
        if pending.map.clear(0).unwrap() {
            pending.touch();
        }
        adder.join().unwrap();
    });
}

/// The same for a visitor that clears nothing.
#[test]
fn a46_a_visited_bit_carries_data() {
    check("a46_a_visited_bit_carries_data", UNBOUNDED, || {
        let pending = Pending::new();
        let adder = thread::spawn({
            let pending = pending.clone();
            move || {
                pending.touch();
                pending.map.set(0).unwrap();
            }
        });
        if pending.map.is_set(0) {
            pending.touch();
        }
        adder.join().unwrap();
    });
}

/// A get of the local engine has popped an id above the depth, which grows meanwhile: the get
/// keeps the id, or who serves the waiters after the growth finds it.
#[test]
fn h21_growth_against_a_late_get_of_a_stack() {
    check(
        "h21_growth_against_a_late_get_of_a_stack",
        UNBOUNDED,
        || {
            let store = Arc::new(LocalStore::new(ModelConfig::new(Backend::TryLock, 2)));
            let mut ids = [store.get(), store.get()].map(|id| id.expect("both are free"));
            ids.sort_unstable();
            store.resize(1);
            let late = thread::spawn({
                let store = store.clone();
                move || store.put_above_depth(ids[1])
            });
            store.resize(2);
            let served = store.take();
            let kept = late.join().unwrap();
            assert_eq!(
                kept.or(served),
                Some(ids[1]),
                "a waiter would sleep for ever"
            );
            assert!(kept.is_none() || served.is_none());
        },
    );
}

/// Whoever finds the bit clear and sets it comes after whoever cleared it.
#[test]
fn a46_a_bit_as_a_lock() {
    check("a46_a_bit_as_a_lock", UNBOUNDED, || {
        let lock = Pending::new();
        let once = |lock: &Pending| {
            if lock.map.set(0).unwrap() {
                lock.touch();
                lock.map.clear(0).unwrap();
            }
        };
        let other = thread::spawn({
            let lock = lock.clone();
            move || once(&lock)
        });
        once(&lock);
        other.join().unwrap();
    });
}
