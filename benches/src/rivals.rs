//! The rivals that do not wait.

use crate::ids::Ids;
use crate::loads::Loads;
use crate::{Contender, Part};
use concurrent_queue::ConcurrentQueue;
use crossbeam::queue::{ArrayQueue, SegQueue};
use parking_lot::Mutex;
use sharded_slab::Slab;
use std::fmt;
use thingbuf::ThingBuf;

/// Rivals, and what is shown beside them.
#[must_use]
pub fn rivals() -> Vec<Contender<dyn Loads>> {
    use Part::{Apart, Rival};
    vec![
        Contender::new("ArrayQueue", Rival, |d| Box::new(ArrayQueue::with_ids(d))),
        Contender::new("crate sbitmap", Rival, |d| Box::new(CrateSbitmap::new(d))),
        Contender::new("concurrent-queue", Rival, |d| {
            Box::new(ConcurrentQueue::with_ids(d))
        }),
        Contender::new("SegQueue", Rival, |d| Box::new(SegQueue::with_ids(d))),
        Contender::new("parking_lot Mutex<Vec>", Rival, |d| {
            Box::new(Mutex::<Vec<usize>>::with_ids(d))
        }),
        Contender::new("thingbuf", Rival, |d| Box::new(Things::with_ids(d))),
        Contender::new("kanal", Rival, |d| Box::new(Kanal::with_ids(d))),
        Contender::new("flume", Rival, |d| Box::new(Flume::with_ids(d))),
        Contender::new("tokio Semaphore + ArrayQueue", Rival, |d| {
            Box::new(TokioPermits::with_ids(d))
        }),
        Contender::new("async-lock Semaphore + ArrayQueue", Rival, |d| {
            Box::new(AsyncLockPermits::with_ids(d))
        }),
        Contender::new("sharded-slab (keys)", Apart, |_| Box::new(Keys::default())),
        Contender::new("nothing", Apart, |_| Box::new(Nothing)),
    ]
}

/// Those that two threads can use as a list of free ids.
///
/// thingbuf 0.1.6 cannot be: when two threads pop and push at the same time, it soon says that it
/// is full although it is not, and does so for ever.
#[must_use]
pub fn rivals_together() -> Vec<Contender<dyn Loads>> {
    let mut rivals = rivals();
    rivals.retain(|rival| rival.name != "thingbuf");
    rivals
}

/// A bag of ids, filled at first.
trait Bag: fmt::Debug + Send + Sync {
    fn empty(depth: usize) -> Self;
    fn push(&self, id: usize);
    fn pop(&self) -> Option<usize>;

    fn with_ids(depth: usize) -> Self
    where
        Self: Sized,
    {
        let bag = Self::empty(depth);
        (0..depth).for_each(|id| bag.push(id));
        bag
    }
}

impl<B: Bag> Ids for B {
    type Local = ();

    fn local(&self, _: usize) {}

    #[inline]
    fn get(&self, (): &mut ()) -> Option<usize> {
        self.pop()
    }

    #[inline]
    fn put(&self, (): &mut (), id: usize) {
        self.push(id);
    }
}

impl Bag for ArrayQueue<usize> {
    fn empty(depth: usize) -> Self {
        Self::new(depth)
    }
    #[inline]
    fn push(&self, id: usize) {
        Self::push(self, id).expect("room for all");
    }
    #[inline]
    fn pop(&self) -> Option<usize> {
        Self::pop(self)
    }
}

impl Bag for SegQueue<usize> {
    fn empty(_: usize) -> Self {
        Self::new()
    }
    #[inline]
    fn push(&self, id: usize) {
        Self::push(self, id);
    }
    #[inline]
    fn pop(&self) -> Option<usize> {
        Self::pop(self)
    }
}

impl Bag for ConcurrentQueue<usize> {
    fn empty(depth: usize) -> Self {
        Self::bounded(depth)
    }
    #[inline]
    fn push(&self, id: usize) {
        Self::push(self, id).expect("room for all");
    }
    #[inline]
    fn pop(&self) -> Option<usize> {
        Self::pop(self).ok()
    }
}

impl Bag for Mutex<Vec<usize>> {
    fn empty(depth: usize) -> Self {
        Self::new(Vec::with_capacity(depth))
    }
    #[inline]
    fn push(&self, id: usize) {
        self.lock().push(id);
    }
    #[inline]
    fn pop(&self) -> Option<usize> {
        self.lock().pop()
    }
}

struct Things(ThingBuf<usize>);

impl fmt::Debug for Things {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ThingBuf")
    }
}

impl Bag for Things {
    fn empty(depth: usize) -> Self {
        Self(ThingBuf::new(depth))
    }
    #[inline]
    fn push(&self, id: usize) {
        self.0.push(id).expect("room for all");
    }
    #[inline]
    fn pop(&self) -> Option<usize> {
        self.0.pop()
    }
}

#[derive(Debug)]
struct Kanal(kanal::Sender<usize>, kanal::Receiver<usize>);

impl Bag for Kanal {
    fn empty(depth: usize) -> Self {
        let (sender, receiver) = kanal::bounded(depth);
        Self(sender, receiver)
    }
    #[inline]
    fn push(&self, id: usize) {
        self.0.send(id).expect("both ends are here");
    }
    #[inline]
    fn pop(&self) -> Option<usize> {
        self.1.try_recv().expect("both ends are here")
    }
}

#[derive(Debug)]
struct Flume(flume::Sender<usize>, flume::Receiver<usize>);

impl Bag for Flume {
    fn empty(depth: usize) -> Self {
        let (sender, receiver) = flume::bounded(depth);
        Self(sender, receiver)
    }
    #[inline]
    fn push(&self, id: usize) {
        self.0.send(id).expect("both ends are here");
    }
    #[inline]
    fn pop(&self) -> Option<usize> {
        self.1.try_recv().ok()
    }
}

/// A permit comes first, so the ring is not empty.
#[derive(Debug)]
struct TokioPermits(tokio::sync::Semaphore, ArrayQueue<usize>);

impl Bag for TokioPermits {
    fn empty(depth: usize) -> Self {
        Self(tokio::sync::Semaphore::new(0), ArrayQueue::new(depth))
    }
    #[inline]
    fn push(&self, id: usize) {
        self.1.push(id).expect("room for all");
        self.0.add_permits(1);
    }
    #[inline]
    fn pop(&self) -> Option<usize> {
        self.0.try_acquire().ok()?.forget();
        self.1.pop()
    }
}

#[derive(Debug)]
struct AsyncLockPermits(async_lock::Semaphore, ArrayQueue<usize>);

impl Bag for AsyncLockPermits {
    fn empty(depth: usize) -> Self {
        Self(async_lock::Semaphore::new(0), ArrayQueue::new(depth))
    }
    #[inline]
    fn push(&self, id: usize) {
        self.1.push(id).expect("room for all");
        self.0.add_permits(1);
    }
    #[inline]
    fn pop(&self) -> Option<usize> {
        self.0.try_acquire()?.forget();
        self.1.pop()
    }
}

/// The `sbitmap` crate, each thread with a hint of its own, and the hints far apart.
struct CrateSbitmap {
    map: sbitmap::Sbitmap,
    depth: usize,
}

impl CrateSbitmap {
    fn new(depth: usize) -> Self {
        Self {
            map: sbitmap::Sbitmap::new(depth, None, false),
            depth,
        }
    }
}

impl fmt::Debug for CrateSbitmap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sbitmap")
    }
}

impl Ids for CrateSbitmap {
    type Local = usize;

    fn local(&self, thread: usize) -> usize {
        thread * (self.depth / 2) % self.depth
    }

    #[inline]
    fn get(&self, hint: &mut usize) -> Option<usize> {
        self.map.get(hint)
    }

    #[inline]
    fn put(&self, hint: &mut usize, id: usize) {
        self.map.put(id, hint);
    }
}

/// A slab names its places by keys with a generation, not by `0..depth`.
#[derive(Debug, Default)]
struct Keys(Slab<()>);

impl Ids for Keys {
    type Local = ();

    fn local(&self, _: usize) {}

    #[inline]
    fn get(&self, (): &mut ()) -> Option<usize> {
        self.0.insert(())
    }

    #[inline]
    fn put(&self, (): &mut (), id: usize) {
        assert!(self.0.remove(id));
    }

    fn is_bounded(&self) -> bool {
        false
    }
}

/// No allocator: what the load costs by itself.
#[derive(Debug)]
struct Nothing;

impl Ids for Nothing {
    type Local = usize;

    fn local(&self, _: usize) -> usize {
        0
    }

    #[inline]
    fn get(&self, next: &mut usize) -> Option<usize> {
        *next = (*next + 1) % 64;
        Some(*next)
    }

    #[inline]
    fn put(&self, _: &mut usize, _: usize) {}

    fn is_bounded(&self) -> bool {
        false
    }
}
