//! The loads of one and of two threads.

use crate::ids::Ids;
use crate::machine::{Overlap, together};
use crate::rng::Rng;
use inflight_sync::CachePadded;
use parking_lot::Mutex;
use std::fmt;
use std::hint::{black_box, spin_loop};
use std::time::{Duration, Instant};

/// The ids between submitter and completer.
const RING: usize = 256;

/// How a completer gives ids back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completer {
    /// One by one.
    Single,
    /// All that the ring holds, in one call.
    Batch,
}

/// Two threads' work.
#[derive(Clone, Copy, Debug)]
pub struct Together {
    /// For each id that one thread took and one gave back: two threads with their own pairs count
    /// one id per pair of each thread, so this is the time of one thread.
    pub ns: f64,
    /// See [`Overlap::share`].
    pub share: f64,
}

impl Together {
    pub(crate) fn new(overlap: Overlap, ids_per_thread: f64) -> Self {
        Self {
            ns: overlap.wall.as_secs_f64() * 1e9 / ids_per_thread,
            share: overlap.share,
        }
    }
}

/// The loads, for any contender.
pub trait Loads: fmt::Debug + Send + Sync {
    /// As [`check_ids`](crate::check_ids).
    fn check(&self, depth: usize);

    /// Takes this part of `depth` ids so that the free ones lie anywhere, then runs warm.
    fn occupy(&self, depth: usize, percent: usize) -> Vec<usize>;

    /// Gives these back.
    fn release(&self, ids: &[usize]);

    /// `n` times a get and a put of the same id.
    fn pairs(&self, n: u64) -> Duration;

    /// `n` times a put of any id held and a get.
    fn churn(&self, held: &mut [usize], n: u64) -> Duration;

    /// `n` gets when all is taken.
    fn misses(&self, n: u64) -> Duration;

    /// `n` pairs by each of two threads.
    fn two_pairs(&self, n: u64) -> Together;

    /// Each of two threads `n` times takes a burst of 1 to `most` ids, stops early at none, and
    /// puts what it has.
    fn demand(&self, most: usize, n: u64) -> Together;

    /// One thread takes `n` ids, the other gives them back, with a ring between.
    fn ring(&self, n: u64, completer: Completer) -> Together;
}

impl<I: Ids> Loads for I {
    fn check(&self, depth: usize) {
        crate::ids::check_ids(self, depth);
    }

    fn occupy(&self, depth: usize, percent: usize) -> Vec<usize> {
        let local = &mut self.local(0);
        let mut ids: Vec<_> = (0..depth).filter_map(|_| self.get(local)).collect();
        let mut rng = Rng::new(depth as u64);
        for i in (1..ids.len()).rev() {
            ids.swap(i, rng.below(i + 1));
        }
        let free = ids.split_off(depth * percent / 100);
        free.into_iter().for_each(|id| self.put(local, id));
        if ids.len() < depth {
            self.pairs(3_000);
        }
        ids
    }

    fn release(&self, ids: &[usize]) {
        let local = &mut self.local(0);
        ids.iter().for_each(|&id| self.put(local, id));
    }

    fn pairs(&self, n: u64) -> Duration {
        let local = &mut self.local(0);
        let start = Instant::now();
        pairs(self, local, n);
        start.elapsed()
    }

    fn churn(&self, held: &mut [usize], n: u64) -> Duration {
        let local = &mut self.local(0);
        let mut rng = Rng::new(n);
        let start = Instant::now();
        for _ in 0..n {
            let place = rng.below(held.len());
            self.put(local, held[place]);
            held[place] = self.get(local).expect("one was just put");
        }
        start.elapsed()
    }

    fn misses(&self, n: u64) -> Duration {
        let local = &mut self.local(0);
        let start = Instant::now();
        for _ in 0..n {
            assert!(black_box(self.get(local)).is_none());
        }
        start.elapsed()
    }

    fn two_pairs(&self, n: u64) -> Together {
        let (_, overlap) = together(|thread| pairs(self, &mut self.local(thread), n));
        Together::new(overlap, n as f64)
    }

    fn demand(&self, most: usize, n: u64) -> Together {
        let (taken, overlap) = together(|thread| {
            let local = &mut self.local(thread);
            let mut rng = Rng::new(thread as u64 + 1);
            let mut held = Vec::with_capacity(most);
            let mut taken = 0_u64;
            for _ in 0..n {
                let wanted = 1 + rng.below(most);
                held.extend((0..wanted).map_while(|_| self.get(local)));
                taken += held.len() as u64;
                self.put_all(local, &held);
                held.clear();
            }
            taken
        });
        Together::new(overlap, (taken[0] + taken[1]) as f64 / 2.0)
    }

    fn ring(&self, n: u64, completer: Completer) -> Together {
        let (submit, complete) = rtrb::RingBuffer::new(RING);
        // Each thread writes to its end.
        let submit = CachePadded::new(Mutex::new(submit));
        let complete = CachePadded::new(Mutex::new(complete));
        let (_, overlap) = together(|thread| {
            let local = &mut self.local(thread);
            match (thread, completer) {
                (0, _) => submitter(self, local, n, &mut submit.lock()),
                (_, Completer::Single) => one_by_one(self, local, n, &mut complete.lock()),
                (_, Completer::Batch) => all_at_once(self, local, n, &mut complete.lock()),
            }
        });
        Together::new(overlap, n as f64)
    }
}

#[inline]
fn pairs<I: Ids>(ids: &I, local: &mut I::Local, n: u64) {
    for _ in 0..n {
        let id = match ids.get(local) {
            Some(id) => id,
            None => insist(ids, local),
        };
        ids.put(local, black_box(id));
    }
}

/// Some rivals say none while another thread is in the middle of a put.
#[cold]
fn insist<I: Ids>(ids: &I, local: &mut I::Local) -> usize {
    let mut tries = 0..1_000_000;
    let got = tries.find_map(|_| {
        spin_loop();
        ids.get(local)
    });
    got.expect("some are free")
}

fn submitter<I: Ids>(ids: &I, local: &mut I::Local, n: u64, ring: &mut rtrb::Producer<usize>) {
    for _ in 0..n {
        let id = loop {
            match ids.get(local) {
                Some(id) => break id,
                None => spin_loop(),
            }
        };
        while ring.push(id).is_err() {
            spin_loop();
        }
    }
}

fn one_by_one<I: Ids>(ids: &I, local: &mut I::Local, n: u64, ring: &mut rtrb::Consumer<usize>) {
    let mut left = n;
    while left > 0 {
        match ring.pop() {
            Ok(id) => {
                ids.put(local, id);
                left -= 1;
            }
            Err(_) => spin_loop(),
        }
    }
}

fn all_at_once<I: Ids>(ids: &I, local: &mut I::Local, n: u64, ring: &mut rtrb::Consumer<usize>) {
    let mut left = n;
    let mut batch = Vec::with_capacity(RING);
    while left > 0 {
        let there = ring.slots();
        if there == 0 {
            spin_loop();
            continue;
        }
        let chunk = ring.read_chunk(there).expect("as many are there");
        batch.extend(chunk);
        left -= batch.len() as u64;
        ids.put_all(local, &batch);
        batch.clear();
    }
}
