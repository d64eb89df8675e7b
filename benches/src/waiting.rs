//! Contenders whose threads wait.

use crate::{Contender, Part};
use crossbeam::channel;
use crossbeam::queue::ArrayQueue;
use inflight_sbitmap::SbitmapQueue;
use parking_lot::{Condvar, Mutex};
use std::fmt;

/// Hands out numbers, each to one owner at a time; users sleep while all are taken.
pub trait WaitIds: fmt::Debug + Send + Sync {
    /// Takes one; the thread sleeps until there is one.
    fn wait(&self) -> usize;
    /// Gives one back.
    fn give(&self, id: usize);
}

/// Rivals whose users wait.
#[must_use]
pub fn waiting_rivals() -> Vec<Contender<dyn WaitIds>> {
    use Part::Rival;
    vec![
        Contender::new("tokio Semaphore + ArrayQueue", Rival, |d| {
            Box::new(TokioSemaphore::new(d))
        }),
        Contender::new("flume", Rival, |d| Box::new(Flume::new(d))),
        Contender::new("async-lock Semaphore + ArrayQueue", Rival, |d| {
            Box::new(AsyncLockSemaphore::new(d))
        }),
        Contender::new("parking_lot Mutex + Condvar", Rival, |d| {
            Box::new(CondvarList::new(d))
        }),
        Contender::new("kanal", Rival, |d| Box::new(Kanal::new(d))),
        Contender::new("crossbeam channel", Rival, |d| Box::new(Channel::new(d))),
    ]
}

impl WaitIds for SbitmapQueue {
    fn wait(&self) -> usize {
        self.get_blocking().expect("never closed")
    }
    fn give(&self, id: usize) {
        self.put(id).expect("held");
    }
}

/// A stack of the free ids under parking_lot's lock, with a condition variable.
#[derive(Debug)]
struct CondvarList {
    free: Mutex<Vec<usize>>,
    freed: Condvar,
}

impl CondvarList {
    fn new(depth: usize) -> Self {
        Self {
            free: Mutex::new((0..depth).collect()),
            freed: Condvar::new(),
        }
    }
}

impl WaitIds for CondvarList {
    fn wait(&self) -> usize {
        let mut free = self.free.lock();
        loop {
            if let Some(id) = free.pop() {
                return id;
            }
            self.freed.wait(&mut free);
        }
    }
    fn give(&self, id: usize) {
        self.free.lock().push(id);
        self.freed.notify_one();
    }
}

fn ring_of_ids(depth: usize) -> ArrayQueue<usize> {
    let ring = ArrayQueue::new(depth);
    (0..depth).for_each(|id| ring.push(id).expect("room for all"));
    ring
}

/// tokio's semaphore over a ring of the free ids. A permit comes first, so the ring is not empty.
#[derive(Debug)]
struct TokioSemaphore {
    permits: tokio::sync::Semaphore,
    free: ArrayQueue<usize>,
}

impl TokioSemaphore {
    fn new(depth: usize) -> Self {
        Self {
            permits: tokio::sync::Semaphore::new(depth),
            free: ring_of_ids(depth),
        }
    }
}

impl WaitIds for TokioSemaphore {
    fn wait(&self) -> usize {
        let permit = inflight_sync::block_on(self.permits.acquire());
        permit.expect("never closed").forget();
        self.free.pop().expect("a permit is an id")
    }
    fn give(&self, id: usize) {
        self.free.push(id).expect("room for all");
        self.permits.add_permits(1);
    }
}

/// As [`TokioSemaphore`], with async-lock's.
#[derive(Debug)]
struct AsyncLockSemaphore {
    permits: async_lock::Semaphore,
    free: ArrayQueue<usize>,
}

impl AsyncLockSemaphore {
    fn new(depth: usize) -> Self {
        Self {
            permits: async_lock::Semaphore::new(depth),
            free: ring_of_ids(depth),
        }
    }
}

impl WaitIds for AsyncLockSemaphore {
    fn wait(&self) -> usize {
        self.permits.acquire_blocking().forget();
        self.free.pop().expect("a permit is an id")
    }
    fn give(&self, id: usize) {
        self.free.push(id).expect("room for all");
        self.permits.add_permits(1);
    }
}

/// A bounded crossbeam channel that holds the free ids.
#[derive(Debug)]
struct Channel {
    give: channel::Sender<usize>,
    take: channel::Receiver<usize>,
}

impl Channel {
    fn new(depth: usize) -> Self {
        let (give, take) = channel::bounded(depth);
        (0..depth).for_each(|id| give.send(id).expect("both ends are here"));
        Self { give, take }
    }
}

impl WaitIds for Channel {
    fn wait(&self) -> usize {
        self.take.recv().expect("both ends are here")
    }
    fn give(&self, id: usize) {
        self.give.send(id).expect("both ends are here");
    }
}

/// The same with flume.
#[derive(Debug)]
struct Flume {
    give: flume::Sender<usize>,
    take: flume::Receiver<usize>,
}

impl Flume {
    fn new(depth: usize) -> Self {
        let (give, take) = flume::bounded(depth);
        (0..depth).for_each(|id| give.send(id).expect("both ends are here"));
        Self { give, take }
    }
}

impl WaitIds for Flume {
    fn wait(&self) -> usize {
        self.take.recv().expect("both ends are here")
    }
    fn give(&self, id: usize) {
        self.give.send(id).expect("both ends are here");
    }
}

/// The same with kanal.
#[derive(Debug)]
struct Kanal {
    give: kanal::Sender<usize>,
    take: kanal::Receiver<usize>,
}

impl Kanal {
    fn new(depth: usize) -> Self {
        let (give, take) = kanal::bounded(depth);
        (0..depth).for_each(|id| give.send(id).expect("both ends are here"));
        Self { give, take }
    }
}

impl WaitIds for Kanal {
    fn wait(&self) -> usize {
        self.take.recv().expect("both ends are here")
    }
    fn give(&self, id: usize) {
        self.give.send(id).expect("both ends are here");
    }
}
