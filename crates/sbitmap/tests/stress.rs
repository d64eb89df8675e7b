//! Threads that take and give back at random: nobody shares a bit, and none is lost.
#![cfg(not(any(loom, shuttle)))]

use inflight_sbitmap::{BitMask, Hint, PutError, Sbitmap, SbitmapBuilder};
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, thread};

const FREE: usize = 0;

/// A map, and for each bit who holds it.
struct Owned {
    map: Sbitmap,
    owners: Vec<AtomicUsize>,
}

impl Owned {
    fn new(builder: SbitmapBuilder) -> Self {
        let map = builder.build().unwrap();
        let owners = (0..map.depth()).map(|_| AtomicUsize::new(FREE)).collect();
        Self { map, owners }
    }

    // Relaxed: the map alone must order one owner's writes before the next owner's.
    fn claim(&self, bit: usize, me: usize) {
        let claim =
            self.owners[bit].compare_exchange(FREE, me, Ordering::Relaxed, Ordering::Relaxed);
        assert_eq!(claim, Ok(FREE), "bit {bit} has two owners");
    }

    fn resign(&self, bit: usize, me: usize) {
        let resign =
            self.owners[bit].compare_exchange(me, FREE, Ordering::Relaxed, Ordering::Relaxed);
        assert_eq!(resign, Ok(me), "bit {bit} was somebody else's, too");
    }
}

/// One thread's part.
struct Actor {
    owned: Arc<Owned>,
    me: usize,
    rng: fastrand::Rng,
    hint: Hint,
    bits: Vec<usize>,
    masks: Vec<BitMask>,
}

impl Actor {
    fn new(owned: Arc<Owned>, me: usize) -> Self {
        Self {
            owned,
            me,
            rng: fastrand::Rng::with_seed(me as u64),
            hint: Hint::at(me),
            bits: Vec::new(),
            masks: Vec::new(),
        }
    }

    fn claim(&mut self, bit: usize) {
        self.owned.claim(bit, self.me);
        self.bits.push(bit);
    }

    fn single(&mut self) {
        let map = &self.owned.map;
        let got = match self.rng.u8(0..8) {
            0..=2 => map.try_get(),
            3 => map.try_get_with(&mut self.hint),
            4 => map.try_get_shallow(self.rng.usize(0..=map.depth())),
            _ if self.bits.is_empty() => None,
            _ => {
                let bit = self.bits.swap_remove(self.rng.usize(..self.bits.len()));
                self.owned.resign(bit, self.me);
                assert_eq!(self.owned.map.put(bit), Ok(()));
                None
            }
        };
        if let Some(bit) = got {
            self.claim(bit);
        }
    }

    fn several(&mut self) {
        let owned = self.owned.clone();
        match self.rng.u8(0..6) {
            0 => {
                let mut bits = Vec::new();
                let n = owned.map.try_get_batch(self.rng.usize(0..20), &mut bits);
                assert_eq!(bits.len(), n);
                bits.into_iter().for_each(|bit| self.claim(bit));
            }
            1 | 2 => {
                if let Some(mask) = owned.map.try_get_mask(self.rng.usize(1..10)) {
                    mask.iter().for_each(|bit| owned.claim(bit, self.me));
                    self.masks.push(mask);
                }
            }
            3 => {
                let bits = self.bits.split_off(self.rng.usize(..=self.bits.len()));
                bits.iter().for_each(|&bit| owned.resign(bit, self.me));
                assert_eq!(owned.map.put_batch(&bits), Ok(()));
            }
            _ => {
                if let Some(mask) = self.masks.pop() {
                    mask.iter().for_each(|bit| owned.resign(bit, self.me));
                    assert_eq!(owned.map.put_mask(mask), Ok(()));
                }
            }
        }
    }

    fn finish(mut self) {
        let masked = self.masks.drain(..).flat_map(BitMask::iter);
        self.bits.extend(masked);
        for bit in self.bits {
            self.owned.resign(bit, self.me);
            assert_eq!(self.owned.map.put(bit), Ok(()));
        }
    }
}

fn run(builder: SbitmapBuilder, threads: usize, steps: usize, act: fn(&mut Actor)) {
    let owned = Arc::new(Owned::new(builder));
    let actor = |me| {
        let mut actor = Actor::new(owned.clone(), me);
        thread::spawn(move || {
            let steps = if cfg!(miri) { steps / 1000 } else { steps };
            (0..steps).for_each(|_| act(&mut actor));
            actor.finish();
        })
    };
    let threads: Vec<_> = (1..=threads).map(actor).collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_all_free(&owned.map);
}

/// No bit is taken, and each can be had once more.
fn assert_all_free(map: &Sbitmap) {
    assert_eq!(map.weight(), 0);
    assert!(!map.is_any_set());
    let mut hint = Hint::at(0);
    let taken = (0..map.depth()).filter(|_| map.try_get_with(&mut hint).is_some());
    assert_eq!(taken.count(), map.depth(), "a bit was lost");
    assert_eq!(map.try_get(), None);
}

#[test]
fn single_bits() {
    for depth in [1, 3, 8, 64, 200] {
        run(Sbitmap::builder(depth), 6, 100_000, Actor::single);
    }
}

#[test]
fn single_bits_in_one_word() {
    run(Sbitmap::builder(5).shift(6), 8, 100_000, Actor::single);
    run(
        Sbitmap::builder(64).shift(6).checked(true),
        4,
        100_000,
        Actor::single,
    );
    run(
        Sbitmap::builder(64).shift(6).trusted(true),
        4,
        100_000,
        Actor::single,
    );
}

#[test]
fn single_bits_in_turn() {
    for depth in [2, 16, 100] {
        run(
            Sbitmap::builder(depth).round_robin(true),
            4,
            100_000,
            Actor::single,
        );
    }
}

#[test]
fn batches_and_masks() {
    for depth in [7, 64, 300] {
        run(Sbitmap::builder(depth), 6, 50_000, Actor::several);
    }
    run(Sbitmap::builder(20).shift(6), 6, 50_000, Actor::several);
    run(
        Sbitmap::builder(64).shift(5).trusted(true),
        6,
        50_000,
        Actor::several,
    );
}

/// Direct clears of batches, deferred clears of single puts and movers on the same words.
#[test]
fn everything_at_once() {
    let mixed = |actor: &mut Actor| {
        if actor.rng.bool() {
            actor.single();
        } else {
            actor.several();
        }
    };
    for depth in [6, 64] {
        run(Sbitmap::builder(depth), 8, 50_000, mixed);
        run(
            Sbitmap::builder(depth).checked(true).shift(6),
            4,
            50_000,
            mixed,
        );
        run(Sbitmap::builder(depth).round_robin(true), 4, 50_000, mixed);
    }
}

/// With `checked`, of two puts at the same moment exactly one succeeds.
#[test]
fn a_racing_double_put_is_caught() {
    const ROUNDS: usize = if cfg!(miri) { 20 } else { 10_000 };
    let map = Arc::new(Sbitmap::builder(1).checked(true).build().unwrap());
    let round = Arc::new(AtomicUsize::new(0));
    let done = Arc::new(AtomicUsize::new(0));
    let putters: Vec<_> = (0..2)
        .map(|_| {
            let (map, round, done) = (map.clone(), round.clone(), done.clone());
            thread::spawn(move || {
                let mut good = 0;
                for mine in 1..=ROUNDS {
                    while round.load(Ordering::Acquire) < mine {
                        thread::yield_now();
                    }
                    match map.put(0) {
                        Ok(()) => good += 1,
                        Err(error) => assert!(matches!(error, PutError::NotAllocated { .. })),
                    }
                    done.fetch_add(1, Ordering::Release);
                }
                good
            })
        })
        .collect();
    for now in 1..=ROUNDS {
        assert_eq!(map.try_get(), Some(0));
        round.store(now, Ordering::Release);
        while done.load(Ordering::Acquire) < 2 * now {
            thread::yield_now();
        }
        assert_eq!(map.weight(), 0);
    }
    let good: usize = putters.into_iter().map(|t| t.join().unwrap()).sum();
    assert_eq!(good, ROUNDS);
}
