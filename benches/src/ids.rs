//! Ids without waiting.

use crossbeam::queue::ArrayQueue;
use inflight_sbitmap::{Sbitmap, SbitmapQueue};
use std::fmt;
use std::sync::Mutex;
use tokio::sync::Semaphore;

/// Hands out numbers, each to one owner at a time.
pub trait Ids: fmt::Debug + Send + Sync {
    /// Takes one, if there is one.
    fn get(&self) -> Option<usize>;
    /// Gives one back.
    fn put(&self, id: usize);
}

/// Panics unless exactly the ids `0..depth` can be had.
pub fn check_ids(ids: &dyn Ids, depth: usize) {
    let mut all: Vec<_> = std::iter::from_fn(|| ids.get()).collect();
    all.sort_unstable();
    assert!(all.iter().copied().eq(0..depth), "ids were lost or doubled");
    all.into_iter().for_each(|id| ids.put(id));
}

impl Ids for Sbitmap {
    fn get(&self) -> Option<usize> {
        self.try_get()
    }
    fn put(&self, id: usize) {
        Sbitmap::put(self, id).expect("held");
    }
}

impl Ids for SbitmapQueue {
    fn get(&self) -> Option<usize> {
        self.try_get()
    }
    fn put(&self, id: usize) {
        SbitmapQueue::put(self, id).expect("held");
    }
}

/// A lock-free ring of the free ids.
#[derive(Debug)]
pub struct RingQueue(ArrayQueue<usize>);

impl RingQueue {
    /// The ids `0..depth`.
    #[must_use]
    pub fn new(depth: usize) -> Self {
        let ring = ArrayQueue::new(depth);
        (0..depth).for_each(|id| ring.push(id).expect("room for all"));
        Self(ring)
    }
}

impl Ids for RingQueue {
    fn get(&self) -> Option<usize> {
        self.0.pop()
    }
    fn put(&self, id: usize) {
        self.0.push(id).expect("room for all");
    }
}

/// A stack of the free ids under std's lock.
#[derive(Debug)]
pub struct MutexVec(Mutex<Vec<usize>>);

impl MutexVec {
    /// The ids `0..depth`.
    #[must_use]
    pub fn new(depth: usize) -> Self {
        Self(Mutex::new((0..depth).collect()))
    }
}

impl Ids for MutexVec {
    fn get(&self) -> Option<usize> {
        self.0.lock().expect("nobody panics").pop()
    }
    fn put(&self, id: usize) {
        self.0.lock().expect("nobody panics").push(id);
    }
}

/// tokio's semaphore: counts, but names no id, so it does less than the others. Reported apart.
#[derive(Debug)]
pub struct Count(Semaphore);

impl Count {
    /// `depth` permits.
    #[must_use]
    pub fn new(depth: usize) -> Self {
        Self(Semaphore::new(depth))
    }

    /// Takes `n` permits, if there are as many.
    #[must_use]
    pub fn get_many(&self, n: u32) -> bool {
        self.0.try_acquire_many(n).is_ok_and(|permits| {
            permits.forget();
            true
        })
    }

    /// Gives `n` back.
    pub fn put_many(&self, n: u32) {
        self.0.add_permits(n as usize);
    }

    /// How many are left.
    #[must_use]
    pub fn left(&self) -> usize {
        self.0.available_permits()
    }
}
