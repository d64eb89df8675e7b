//! What one would write without a tag set.

use super::{Requests, TagLoads};
use crate::{Contender, Part};
use crossbeam::queue::ArrayQueue;
use crossbeam::utils::CachePadded;
use parking_lot::Mutex;
use slab::Slab;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Semaphore;

/// The rivals. All but sharded-slab, whose keys have generations of its own, have the same table of
/// places.
#[must_use]
pub fn rivals() -> Vec<Contender<dyn TagLoads>> {
    use Part::Rival;
    vec![
        Contender::new("slab + tokio Semaphore", Rival, |depth| {
            Box::new(Table::<Permits>::new(depth))
        }),
        Contender::new("sharded-slab (no limit)", Rival, |_| {
            Box::new(Sharded::default())
        }),
        Contender::new("ArrayQueue + Vec<slot>", Rival, |depth| {
            Box::new(Table::<ArrayQueue<usize>>::new(depth))
        }),
        Contender::new("Mutex<Vec> + Vec<slot>", Rival, |depth| {
            Box::new(Table::<Mutex<Vec<usize>>>::new(depth))
        }),
    ]
}

/// The thread that has a number owns the place.
trait Numbers: fmt::Debug + Send + Sync {
    fn new(depth: usize) -> Self;
    fn get(&self) -> Option<usize>;
    fn put(&self, number: usize);
}

const INDEX_BITS: u32 = 16;
/// The generation is above it.
const IN_FLIGHT: u64 = 1;
const STEP: u64 = 2;

/// A line of its own for each place.
#[derive(Debug, Default)]
struct Place {
    /// Twice the generation, and whether it is in flight.
    state: AtomicU64,
    value: AtomicU64,
}

#[derive(Debug)]
struct Table<N> {
    numbers: N,
    places: Box<[CachePadded<Place>]>,
}

impl<N: Numbers> Table<N> {
    fn new(depth: usize) -> Self {
        assert!(depth < 1 << INDEX_BITS);
        Self {
            numbers: N::new(depth),
            places: (0..depth).map(|_| CachePadded::default()).collect(),
        }
    }
}

impl<N: Numbers> Requests for Table<N> {
    type Held = usize;

    #[inline]
    fn alloc(&self, value: u64) -> Option<usize> {
        let index = self.numbers.get()?;
        // Relaxed: the owner's own.
        self.places[index].value.store(value, Ordering::Relaxed);
        Some(index)
    }

    #[inline]
    fn token(&self, held: usize) -> u64 {
        let state = &self.places[held].state;
        // Relaxed: the owner's own.
        let now = state.load(Ordering::Relaxed);
        // Ordering: pairs with the Acquire in `redeem`.
        state.store(now | IN_FLIGHT, Ordering::Release);
        (now >> 1 << INDEX_BITS) | held as u64
    }

    #[inline]
    fn redeem(&self, token: u64) -> Option<usize> {
        let index = (token & ((1 << INDEX_BITS) - 1)) as usize;
        let state = &self.places.get(index)?.state;
        let generation = token >> INDEX_BITS;
        let flying = generation << 1 | IN_FLIGHT;
        // The next generation begins here: no other token fits from now on.
        // Ordering: pairs with the Release in `token`.
        let won = state.compare_exchange(
            flying,
            (flying ^ IN_FLIGHT) + STEP,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        won.is_ok().then_some(index)
    }

    #[inline]
    fn free(&self, held: usize) {
        self.numbers.put(held);
    }
}

impl Numbers for ArrayQueue<usize> {
    fn new(depth: usize) -> Self {
        let queue = Self::new(depth);
        (0..depth).for_each(|id| queue.push(id).expect("room for all"));
        queue
    }

    #[inline]
    fn get(&self) -> Option<usize> {
        self.pop()
    }

    #[inline]
    fn put(&self, number: usize) {
        self.push(number).expect("room for all");
    }
}

impl Numbers for Mutex<Vec<usize>> {
    fn new(depth: usize) -> Self {
        Self::new((0..depth).collect())
    }

    #[inline]
    fn get(&self) -> Option<usize> {
        self.lock().pop()
    }

    #[inline]
    fn put(&self, number: usize) {
        self.lock().push(number);
    }
}

/// A slab is for one thread, hence the lock; a permit comes first, so it does not grow.
#[derive(Debug)]
struct Permits {
    permits: Semaphore,
    slab: Mutex<Slab<()>>,
}

impl Numbers for Permits {
    fn new(depth: usize) -> Self {
        Self {
            permits: Semaphore::new(depth),
            slab: Mutex::new(Slab::with_capacity(depth)),
        }
    }

    #[inline]
    fn get(&self) -> Option<usize> {
        self.permits.try_acquire().ok()?.forget();
        Some(self.slab.lock().insert(()))
    }

    #[inline]
    fn put(&self, number: usize) {
        self.slab.lock().remove(number);
        self.permits.add_permits(1);
    }
}

/// Has no limit. A key names one use of its place; the thread that takes the value redeems it,
/// and the place is free then.
#[derive(Debug, Default)]
struct Sharded(sharded_slab::Slab<u64>);

impl Requests for Sharded {
    /// The key, until it is redeemed.
    type Held = Option<usize>;

    #[inline]
    fn alloc(&self, value: u64) -> Option<Self::Held> {
        self.0.insert(value).map(Some)
    }

    #[inline]
    fn token(&self, held: Self::Held) -> u64 {
        held.expect("not redeemed") as u64
    }

    #[inline]
    fn redeem(&self, token: u64) -> Option<Self::Held> {
        self.0.take(token as usize).map(|_| None)
    }

    #[inline]
    fn free(&self, held: Self::Held) {
        if let Some(key) = held {
            assert!(self.0.remove(key), "held");
        }
    }
}
