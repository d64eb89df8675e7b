//! Ids whose users wait.

use crossbeam::channel::{Receiver, Sender, bounded};
use crossbeam::queue::ArrayQueue;
use inflight_sbitmap::SbitmapQueue;
use parking_lot::{Condvar, Mutex};
use std::fmt;
use tokio::sync::Semaphore;

/// Hands out numbers, each to one owner at a time; users sleep while all are taken.
pub trait WaitIds: fmt::Debug + Send + Sync {
    /// Takes one.
    fn wait(&self) -> usize;
    /// Gives one back.
    fn give(&self, id: usize);
}

impl WaitIds for SbitmapQueue {
    fn wait(&self) -> usize {
        self.get_blocking()
    }
    fn give(&self, id: usize) {
        self.put(id).expect("held");
    }
}

/// A stack of the free ids under parking_lot's lock, with a condition variable.
#[derive(Debug)]
pub struct CondvarList {
    free: Mutex<Vec<usize>>,
    freed: Condvar,
}

impl CondvarList {
    /// The ids `0..depth`.
    #[must_use]
    pub fn new(depth: usize) -> Self {
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

/// tokio's semaphore over a ring of the free ids. A permit comes first, so the ring is not empty.
#[derive(Debug)]
pub struct SemaphoreList {
    permits: Semaphore,
    free: ArrayQueue<usize>,
}

impl SemaphoreList {
    /// The ids `0..depth`.
    #[must_use]
    pub fn new(depth: usize) -> Self {
        let free = ArrayQueue::new(depth);
        (0..depth).for_each(|id| free.push(id).expect("room for all"));
        Self {
            permits: Semaphore::new(depth),
            free,
        }
    }
}

impl WaitIds for SemaphoreList {
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

/// A bounded channel that holds the free ids.
#[derive(Debug)]
pub struct ChannelList {
    give: Sender<usize>,
    take: Receiver<usize>,
}

impl ChannelList {
    /// The ids `0..depth`.
    #[must_use]
    pub fn new(depth: usize) -> Self {
        let (give, take) = bounded(depth);
        (0..depth).for_each(|id| give.send(id).expect("both ends are here"));
        Self { give, take }
    }
}

impl WaitIds for ChannelList {
    fn wait(&self) -> usize {
        self.take.recv().expect("both ends are here")
    }
    fn give(&self, id: usize) {
        self.give.send(id).expect("both ends are here");
    }
}
