//! Batches of neighbours.

use crate::{Contender, Part};
use inflight_sbitmap::{Sbitmap, SbitmapQueue};
use parking_lot::Mutex;
use std::fmt;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Takes and gives back several ids at once.
pub trait Batches: fmt::Debug + Send + Sync {
    /// `times` times `n` ids and back.
    fn batches(&self, n: usize, times: u64) -> Duration;
}

/// All that have batches.
#[must_use]
pub fn batchers() -> Vec<Contender<dyn Batches>> {
    use Part::{Apart, Ours, Rival, Variant};
    vec![
        Contender::new("SbitmapQueue, mask", Ours, |d| {
            Box::new(QueueMasks(SbitmapQueue::builder(d).build().expect("valid")))
        }),
        Contender::new("SbitmapQueue, mask, trusted", Variant, |d| {
            let queue = SbitmapQueue::builder(d).trusted(true);
            Box::new(QueueMasks(queue.build().expect("valid")))
        }),
        Contender::new("Sbitmap, mask", Variant, |d| {
            Box::new(Masks(Sbitmap::builder(d).build().expect("valid")))
        }),
        Contender::new("Sbitmap, list", Apart, |d| {
            Box::new(Lists(Sbitmap::builder(d).build().expect("valid")))
        }),
        Contender::new("crate sbitmap", Rival, |d| {
            Box::new(Ranges(sbitmap::Sbitmap::new(d, None, false)))
        }),
        Contender::new("parking_lot Mutex<Vec>", Apart, |d| {
            Box::new(Drained(Mutex::new((0..d).collect())))
        }),
    ]
}

fn timed(times: u64, mut f: impl FnMut()) -> Duration {
    let start = Instant::now();
    (0..times).for_each(|_| f());
    start.elapsed()
}

/// A word's mask at a time.
#[derive(Debug)]
struct Masks(Sbitmap);

impl Batches for Masks {
    fn batches(&self, n: usize, times: u64) -> Duration {
        let whole = self.0.try_get_mask(n).expect("all are free");
        assert_eq!(whole.count(), n);
        self.0.put_mask(whole).expect("held");
        timed(times, || {
            let bits = self.0.try_get_mask(n).expect("all are free");
            self.0.put_mask(black_box(bits)).expect("held");
        })
    }
}

/// As `Masks`, of the queue, which keeps the mask with the CPU.
#[derive(Debug)]
struct QueueMasks(SbitmapQueue);

impl Batches for QueueMasks {
    fn batches(&self, n: usize, times: u64) -> Duration {
        let whole = self.0.try_get_mask(n).expect("all are free");
        assert_eq!(whole.count(), n);
        self.0.put_mask(whole).expect("held");
        timed(times, || {
            let bits = self.0.try_get_mask(n).expect("all are free");
            self.0.put_mask(black_box(bits)).expect("held");
        })
    }
}

/// A list of ids at a time.
#[derive(Debug)]
struct Lists(Sbitmap);

impl Batches for Lists {
    fn batches(&self, n: usize, times: u64) -> Duration {
        let mut ids = Vec::with_capacity(n);
        timed(times, || {
            assert_eq!(self.0.try_get_batch(n, &mut ids), n);
            self.0.put_batch(black_box(&ids)).expect("held");
            ids.clear();
        })
    }
}

/// Neighbours of the `sbitmap` crate. Alone: its batch get leaks when two race.
struct Ranges(sbitmap::Sbitmap);

impl fmt::Debug for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sbitmap")
    }
}

impl Batches for Ranges {
    fn batches(&self, n: usize, times: u64) -> Duration {
        let mut hint = 0;
        timed(times, || {
            let first = self.0.get_batch(n, &mut hint).expect("all are free");
            self.0.put_batch(black_box(first), n, &mut hint);
        })
    }
}

/// The end of a list under a lock.
#[derive(Debug)]
struct Drained(Mutex<Vec<usize>>);

impl Batches for Drained {
    fn batches(&self, n: usize, times: u64) -> Duration {
        let mut ids = Vec::with_capacity(n);
        timed(times, || {
            {
                let mut free = self.0.lock();
                let rest = free.len() - n;
                ids.extend(free.drain(rest..));
            }
            self.0.lock().extend(black_box(&mut ids).drain(..));
        })
    }
}
