//! Models of the bitmap: deferred clear, and the hand-over from one owner of a bit to the next.
//!
//! Items (`docs/sbitmap-items.md`): A15, A23-A29, A31, A32-A34, A36-A39, A43.
//!
//! | weaken | fails |
//! |---|---|
//! | `put`: Release on `cleared` | `h3_owner_to_owner`, `a_free_bit_shows_its_last_writes` |
//! | `move_parked`: Acquire of M1 | `h3_owner_to_owner` |
//! | `move_parked`: Release of M2 | `h3_owner_to_owner` |
//! | `take_zero`: Acquire | `h3_owner_to_owner` |
//! | `take_range`: Acquire | `h17_ranges` |
//! | `put_mask`: Release | `h18_mover_against_direct_clear`, `h17_ranges` |
//! | `in_use`: Acquire of `cleared` | `a_free_bit_shows_its_last_writes` |
//! | `in_use`: Acquire of `word` | `h22_a_bit_in_use_is_never_called_free` |
//! | M2 before M1 | `h2_order_of_the_move` |
//! | no second look in `deferred_clear` | `h1_both_failed` |
//! | no lock in `deferred_clear` | `h1_both_failed` |
//! | `held`: D1 or D2 Relaxed, or no look at `moves` | `a31_a_double_put_beside_a_move` |
//! | `refill` without a look at `moves`, or with a Relaxed one | `h1_both_failed` |
//! | `in_use` without a look at `moves`, or with a Relaxed first one | `h28_a_bit_that_is_moved_is_not_in_use` |
#![cfg(loom)]

use inflight_sbitmap::{BitMask, Sbitmap};
use inflight_sync::cell::UnsafeCell;
use inflight_sync::model::{Bound, check};
use inflight_sync::{Arc, thread};

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
const THREE: Bound = Bound {
    quick: Some(3),
    deep: None,
};

/// A map of one word, and data that belongs to the owner of each bit.
struct Owned {
    map: Sbitmap,
    data: [UnsafeCell<u32>; 4],
}

// SAFETY: `data[bit]` is touched by the owner of the bit alone; that this is so is what the models
// check.
unsafe impl Sync for Owned {}

impl Owned {
    /// One word of `bits` bits.
    fn new(bits: usize) -> Arc<Self> {
        let shift = bits.next_power_of_two().ilog2();
        let map = Sbitmap::builder(bits)
            .shift(shift)
            .trusted(true)
            .build()
            .unwrap();
        Arc::new(Self {
            map,
            data: std::array::from_fn(|_| UnsafeCell::new(0)),
        })
    }

    /// Takes a bit and writes to its data.
    fn get(&self) -> usize {
        let bit = self
            .map
            .try_get()
            .expect("a bit is free at any moment of this call");
        self.touch(bit);
        bit
    }

    fn touch(&self, bit: usize) {
        // SAFETY: the caller owns the bit.
        self.data[bit].with_mut(|d| unsafe { *d += 1 });
    }

    fn put(&self, bit: usize) {
        self.touch(bit);
        self.map.put(bit).unwrap();
    }

    /// L: each bit can be had, once.
    fn assert_nothing_lost(&self) {
        let mut all: Vec<_> = std::iter::from_fn(|| self.map.try_get()).collect();
        all.sort_unstable();
        assert_eq!(
            all,
            (0..self.map.depth()).collect::<Vec<_>>(),
            "every bit, once"
        );
    }
}

/// Runs `f` on a thread of the model.
fn spawn(owned: &Arc<Owned>, f: impl FnOnce(&Owned) + Send + 'static) -> thread::JoinHandle<()> {
    let owned = owned.clone();
    thread::spawn(move || f(&owned))
}

/// H1. Everything is free but parked. Two getters both find the word full; while the first is
/// between M1 and M2 the second finds nothing parked. Both must get a bit.
#[test]
fn h1_both_failed() {
    check("h1_both_failed", UNBOUNDED, || {
        let owned = Owned::new(2);
        let (a, b) = (owned.get(), owned.get());
        owned.put(a);
        owned.put(b);
        let other = spawn(&owned, |o| {
            o.get();
        });
        owned.get();
        other.join().unwrap();
        assert_eq!(owned.map.weight(), 2);
    });
}

/// H2. A bit that is taken and freed again while another getter moves it must not be lost.
#[test]
fn h2_order_of_the_move() {
    check("h2_order_of_the_move", THREE, || {
        let owned = Owned::new(2);
        let parked = owned.get();
        let held = owned.get();
        owned.put(parked);
        let other = spawn(&owned, |o| {
            if let Some(bit) = o.map.try_get() {
                o.put(bit);
            }
        });
        if let Some(bit) = owned.map.try_get() {
            owned.put(bit);
        }
        other.join().unwrap();
        owned.put(held);
        owned.assert_nothing_lost();
    });
}

/// H3. The last writes of one owner come before the first of the next, also when a third thread
/// moves the bit from `cleared` to `word`.
#[test]
fn h3_owner_to_owner() {
    check("h3_owner_to_owner", ONE, || {
        let owned = Owned::new(2);
        let (a, b) = (owned.get(), owned.get());
        let first = spawn(&owned, move |o| {
            o.put(a);
            if let Some(bit) = o.map.try_get() {
                o.touch(bit);
            }
        });
        let second = spawn(&owned, move |o| {
            o.put(b);
            if let Some(bit) = o.map.try_get() {
                o.touch(bit);
            }
        });
        if let Some(bit) = owned.map.try_get() {
            owned.touch(bit);
        }
        first.join().unwrap();
        second.join().unwrap();
    });
}

/// H17. Two getters of ranges that overlap: no bit has two owners, none is lost, and what earlier
/// owners wrote is visible.
#[test]
fn h17_ranges() {
    check("h17_ranges", UNBOUNDED, || {
        let owned = Owned::new(4);
        let all = owned.map.try_get_mask(4).unwrap();
        all.iter().for_each(|bit| owned.touch(bit));
        let take_and_give = |o: &Owned| {
            if let Some(range) = o.map.try_get_mask(2) {
                range.iter().for_each(|bit| o.touch(bit));
                o.map.put_mask(range).unwrap();
            }
        };
        let other = spawn(&owned, take_and_give);
        // Both halves come back in steps of their own, by a thread that is not the next owner.
        owned
            .map
            .put_mask(BitMask {
                first: 2,
                mask: 0b11,
            })
            .unwrap();
        owned
            .map
            .put_mask(BitMask {
                first: 0,
                mask: 0b11,
            })
            .unwrap();
        take_and_give(&owned);
        other.join().unwrap();
        owned.assert_nothing_lost();
    });
}

/// H18. A mover clears bits of `word` while another thread clears one of its own directly.
#[test]
fn h18_mover_against_direct_clear() {
    check("h18_mover_against_direct_clear", ONE, || {
        let owned = Owned::new(2);
        let (a, b) = (owned.get(), owned.get());
        owned.put(a);
        let direct = spawn(&owned, move |o| {
            o.touch(b);
            o.map.put_batch(&[b]).unwrap();
        });
        let use_one = |o: &Owned| {
            if let Some(bit) = o.map.try_get() {
                o.put(bit);
            }
        };
        let mover = spawn(&owned, use_one);
        use_one(&owned);
        direct.join().unwrap();
        mover.join().unwrap();
        owned.assert_nothing_lost();
    });
}

/// Two movers at once, and a put in between.
#[test]
fn h18_two_movers() {
    check("h18_two_movers", TWO, || {
        let owned = Owned::new(2);
        let (a, b) = (owned.get(), owned.get());
        owned.put(a);
        let other = spawn(&owned, |o| {
            if let Some(bit) = o.map.try_get() {
                o.put(bit);
            }
        });
        owned.put(b);
        let mine = owned.get();
        other.join().unwrap();
        owned.put(mine);
        owned.assert_nothing_lost();
    });
}

/// A31. A put of a bit that was put before is told, whatever a mover does meanwhile, unless another
/// thread has got the bit in between.
#[test]
fn a31_a_double_put_beside_a_move() {
    check("a31_a_double_put_beside_a_move", UNBOUNDED, || {
        let map = Arc::new(Sbitmap::builder(2).shift(1).build().unwrap());
        // A getter takes the lower bit.
        let (b, a) = (map.try_get().unwrap(), map.try_get().unwrap());
        map.put(b).unwrap();
        map.put(a).unwrap();
        let twice = thread::spawn({
            let map = Arc::clone(&map);
            move || map.put(a)
        });
        // The mover is the first thread: loom tries no exchange before a load that came first.
        let got = map.try_get().unwrap();
        let again = twice.join().unwrap();
        assert!(again.is_err() || got == a, "nobody held it");
        let held = usize::from(again.is_err());
        assert_eq!(map.weight(), held);
        let rest = std::iter::from_fn(|| map.try_get()).count();
        assert_eq!(rest, 2 - held, "each free bit is there once");
    });
}

/// Whoever sees a parked bit free also sees its owner's writes: what freezing a tag set rests on.
#[test]
fn a_free_bit_shows_its_last_writes() {
    check("a_free_bit_shows_its_last_writes", UNBOUNDED, || {
        let owned = Owned::new(1);
        let bit = owned.get();
        let owner = spawn(&owned, move |o| o.put(bit));
        if !owned.map.is_any_set() {
            owned.touch(bit);
        }
        owner.join().unwrap();
    });
}

/// The same when the bit has been moved back meanwhile.
#[test]
fn a_moved_bit_shows_its_last_writes() {
    check("a_moved_bit_shows_its_last_writes", THREE, || {
        let owned = Owned::new(2);
        let (a, b) = (owned.get(), owned.get());
        let owner = spawn(&owned, move |o| o.put(a));
        // Moves `a` back and takes it, or finds nothing.
        let mover = spawn(&owned, |o| {
            if let Some(bit) = o.map.try_get() {
                o.map.put_batch(&[bit]).unwrap();
            }
        });
        if !owned.map.is_set(a) {
            owned.touch(a);
        }
        owner.join().unwrap();
        mover.join().unwrap();
        owned.put(b);
        owned.assert_nothing_lost();
    });
}

/// H22. A bit that is parked, moved and taken while somebody looks is never called free after it
/// was taken.
#[test]
fn h22_a_bit_in_use_is_never_called_free() {
    check("h22_a_bit_in_use_is_never_called_free", UNBOUNDED, || {
        use inflight_sync::atomic::{AtomicBool, Ordering};
        let owned = Owned::new(1);
        let gate = Arc::new(AtomicBool::new(false));
        let bit = owned.get();
        owned.put(bit); // parked
        let getter = {
            let (owned, gate) = (owned.clone(), gate.clone());
            thread::spawn(move || {
                let bit = owned.map.try_get().unwrap();
                inflight_sync::atomic::fence(Ordering::SeqCst);
                if gate.load(Ordering::Relaxed) {
                    owned.map.put(bit).unwrap(); // the gate was closed: back off, without a touch
                } else {
                    owned.touch(bit); // inside
                    owned.map.put_batch(&[bit]).unwrap(); // straight to the word
                }
            })
        };
        gate.store(true, Ordering::Relaxed);
        inflight_sync::atomic::fence(Ordering::SeqCst);
        let free_once = !owned.map.is_any_set();
        // Nobody goes in any more, so what was free once stays free of users.
        if free_once {
            owned.touch(bit);
        }
        getter.join().unwrap();
    });
}

/// H28. A free bit that is moved back while somebody looks does not count as in use: a newcomer
/// that counts on its put would wait for ever.
#[test]
fn h28_a_bit_that_is_moved_is_not_in_use() {
    check("h28_a_bit_that_is_moved_is_not_in_use", UNBOUNDED, || {
        let owned = Owned::new(2);
        let (a, b) = (owned.get(), owned.get());
        owned.put(a);
        owned.put(b); // both parked
        let looker = spawn(&owned, |o| {
            assert!(o.map.weight() <= 1, "one at most has an owner");
        });
        let bit = owned.get();
        owned.put(bit);
        looker.join().unwrap();
    });
}
