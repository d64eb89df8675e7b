//! What models of the local engine share: the smallest wait list that keeps its contract.

use inflight_sbitmap::BitMask;
use inflight_sbitmap::model_support::{LocalStore, ModelConfig};
use inflight_sync::atomic::{AtomicUsize, Ordering, fence};
use inflight_sync::cell::UnsafeCell;
use inflight_sync::percpu::Backend;
use inflight_sync::{Arc, Mutex, Parker, Unparker, cpu, thread};
use std::collections::VecDeque;

/// Never thaw.
pub(crate) const NEVER: u32 = 1_000;

pub(crate) struct Sleeper {
    /// 0 = waits, else the id + 1.
    pub(crate) grant: AtomicUsize,
    pub(crate) place: Unparker,
}

/// The smallest wait list that keeps the store's contract.
pub(crate) struct Queue {
    pub(crate) store: LocalStore,
    pub(crate) list: Mutex<VecDeque<Arc<Sleeper>>>,
    /// What the owner of each id writes.
    pub(crate) data: Vec<UnsafeCell<u32>>,
}

// SAFETY: `data[id]` is touched by the owner of the id alone; that this is so is what the models
// check.
unsafe impl Sync for Queue {}

pub(crate) fn on(cpu: usize) {
    cpu::set_current_for_thread(Some(cpu));
}

impl Queue {
    pub(crate) fn new(
        backend: Backend,
        depth: usize,
        shift: u32,
        cap: u32,
        thaw_after: u32,
    ) -> Arc<Self> {
        Self::over(ModelConfig {
            shift,
            cap,
            thaw_after,
            ..ModelConfig::new(backend, depth)
        })
    }

    /// Locked after a freeze, for so many puts of a CPU; one id of each word went through a stack.
    pub(crate) fn locked(
        depth: usize,
        shift: u32,
        thaw_after: u32,
        unlock_after: u32,
    ) -> Arc<Self> {
        let queue = Self::over(ModelConfig {
            shift,
            cap: 4,
            thaw_after,
            unlock_after: Some(unlock_after),
            ..ModelConfig::new(Backend::BusyFlag, depth)
        });
        queue.store.freeze();
        queue.store.thaw();
        queue
    }

    /// Cold, one id in each word, and every word has its summary bit. CPU 1 begins at the last
    /// word, so to the first it comes by its summary bit. With two, the summary word has a bit too.
    pub(crate) fn with_summaries(summaries: usize, backend: Backend, depth: usize) -> Arc<Self> {
        let queue = Self::over(ModelConfig {
            summaries,
            ..ModelConfig::new(backend, depth)
        });
        queue.store.freeze();
        queue
    }

    /// Takes both of two ids so that no getter has seen an empty word: the summary bits stay. The
    /// id of the first word.
    pub(crate) fn take_with_bit(&self) -> usize {
        on(1);
        let _kept = self.get();
        on(0);
        self.get()
    }

    pub(crate) fn over(shape: ModelConfig) -> Arc<Self> {
        on(0);
        Arc::new(Self {
            store: LocalStore::new(shape),
            list: Mutex::new(VecDeque::new()),
            data: (0..shape.depth).map(|_| UnsafeCell::new(0)).collect(),
        })
    }

    pub(crate) fn touch(&self, id: usize) {
        // SAFETY: the caller owns the id.
        self.data[id].with_mut(|d| unsafe { *d += 1 });
    }

    pub(crate) fn get(&self) -> usize {
        let id = self.store.get().expect("an id is free at any moment");
        self.touch(id);
        id
    }

    pub(crate) fn put(&self, id: usize) {
        self.touch(id);
        if self.store.put(id).unwrap() {
            self.serve();
        }
    }

    pub(crate) fn get_mask(&self, n: usize) -> BitMask {
        let ids = self.store.get_mask(n).expect("an id is free at any moment");
        ids.iter().for_each(|id| self.touch(id));
        ids
    }

    pub(crate) fn put_mask(&self, ids: BitMask) {
        ids.iter().for_each(|id| self.touch(id));
        if self.store.put_mask(ids) {
            self.serve();
        }
    }

    pub(crate) fn pair(&self) {
        let id = self.get();
        self.put(id);
    }

    pub(crate) fn get_blocking(&self) -> usize {
        let id = self.store.get().unwrap_or_else(|| self.sleep());
        self.touch(id);
        id
    }

    pub(crate) fn sleep(&self) -> usize {
        let parker = Parker::current();
        let sleeper = Arc::new(Sleeper {
            grant: AtomicUsize::new(0),
            place: parker.unparker(),
        });
        {
            let mut list = self.list.lock();
            list.push_back(sleeper.clone());
            self.store.set_waiters(list.len()); // R1
        }
        // Ordering: R2, pairs with P2 in the store's put.
        fence(Ordering::SeqCst);
        self.store.drain_percpu(); // R3
        self.serve(); // R4
        loop {
            // Ordering: Acquire pairs with the Release in `serve`.
            match sleeper.grant.load(Ordering::Acquire) {
                0 => parker.park(),
                grant => return grant - 1,
            }
        }
    }

    pub(crate) fn serve(&self) {
        loop {
            let mut list = self.list.lock();
            if list.is_empty() {
                return;
            }
            let Some(id) = self.store.take() else { return };
            let first = list.pop_front().unwrap();
            self.store.set_waiters(list.len());
            drop(list);
            // Ordering: Release pairs with the Acquire in `sleep`.
            first.grant.store(id + 1, Ordering::Release);
            first.place.unpark();
        }
    }

    pub(crate) fn assert_free(&self, n: usize) {
        assert_eq!(self.store.free(), n);
    }
}

/// Runs `body` as a thread on a CPU.
pub(crate) fn spawn<T: Send + 'static>(
    queue: &Arc<Queue>,
    cpu: usize,
    body: impl FnOnce(&Queue) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let queue = queue.clone();
    thread::spawn(move || {
        on(cpu);
        body(&queue)
    })
}

/// Two ids, of which each thread takes one and gives it back.
pub(crate) fn pair_beside_another(queue: &Arc<Queue>, cpu: usize) {
    let other = spawn(queue, cpu, Queue::pair);
    queue.pair();
    other.join().unwrap();
    queue.assert_free(2);
}

/// Another thread wants one of two ids, while the other one moves behind its back, three times.
pub(crate) fn rotate_beside_another(queue: &Arc<Queue>) {
    let mut id = queue.get();
    let other = spawn(queue, 0, Queue::get);
    for cpu in [1, 0, 1] {
        queue.put(id);
        on(cpu);
        id = queue.get();
    }
    other.join().unwrap();
    queue.assert_free(0);
}

/// A blocking pair.
pub(crate) fn visit(queue: &Queue) {
    let id = queue.get_blocking();
    queue.put(id);
}
