//! The local engine by itself, for its models: the shipped code with the model's config. Also the
//! engine of a queue that a model builds as users do.

use crate::double_free::Check;
use crate::error::PutError;
use crate::fairness::Fairness;
use crate::layout::Layout;
use crate::local::{PerCpuStore, StackLimits, StoreConfig, SummaryThresholds};
use crate::mask::BitMask;
use crate::queue::SbitmapQueue;
use crate::rules::Rules;
use crate::store::Store;
use inflight_sync::percpu::Backend;
use inflight_sync::time::Clock;

pub use crate::local::model_backend::set_backend;

/// What a model chooses.
#[derive(Clone, Copy, Debug)]
pub struct ModelConfig {
    /// The back end, which decides how users of a stack exclude each other.
    pub backend: Backend,
    /// How many stacks.
    pub cpus: usize,
    /// How many ids.
    pub depth: usize,
    /// log2 of the ids of a word.
    pub shift: u32,
    /// How many ids a stack may hold.
    pub cap: u32,
    /// Thaw after so many puts without "none".
    pub thaw_after: u32,
    /// 1: the words have a summary. 2: the summary has one too.
    pub summaries: usize,
    /// Whether double frees that do not race are found.
    pub checked: bool,
    /// After a freeze stacks are locked, for so many puts of a CPU. `None`: they are not.
    pub unlock_after: Option<u32>,
}

impl ModelConfig {
    /// Two stacks of two ids, words of one id, never thawed; nothing else.
    #[must_use]
    pub const fn new(backend: Backend, depth: usize) -> Self {
        Self {
            backend,
            cpus: 2,
            depth,
            shift: 0,
            cap: 2,
            thaw_after: 1_000,
            summaries: 0,
            checked: false,
            unlock_after: None,
        }
    }
}

/// The store.
#[derive(Debug)]
pub struct LocalStore(PerCpuStore);

impl LocalStore {
    /// With a budget for all stacks.
    #[must_use]
    pub fn new(of: ModelConfig) -> Self {
        let most = |summary| {
            if of.summaries >= summary {
                0
            } else {
                usize::MAX
            }
        };
        let config = StoreConfig {
            backend: of.backend,
            cpus: of.cpus,
            limits: StackLimits {
                cap: of.cap,
                budget: of.cpus as u32 * of.cap,
            },
            thaw_after: Some(of.thaw_after),
            unlock_after: of.unlock_after,
            thresholds: SummaryThresholds {
                words: most(1),
                groups: most(2),
            },
        };
        let check = if of.checked {
            Check::Sequential
        } else {
            Check::Trusted
        };
        let full = Layout::new(of.depth, of.depth, Some(of.shift));
        Self(PerCpuStore::new(full, of.depth, check, config, of.cpus))
    }

    /// Takes an id.
    #[must_use]
    pub fn get(&self) -> Option<usize> {
        self.0.try_get()
    }

    /// As `get`, on the fast path only.
    #[must_use]
    pub fn get_fast(&self) -> Option<usize> {
        self.0.get_fast(None).ok()
    }

    /// Gives one back; `true`: serve the waiters.
    pub fn put(&self, id: usize) -> Result<bool, PutError> {
        self.0.put(id)
    }

    /// Gives several back; `true`: serve the waiters.
    pub fn put_batch(&self, ids: &[usize]) -> bool {
        self.0.put_batch(ids).1
    }

    /// Takes up to `n` ids of one word.
    #[must_use]
    pub fn get_mask(&self, n: usize) -> Option<BitMask> {
        self.0.try_get_mask(n).some()
    }

    /// Gives a mask back; `true`: serve the waiters.
    pub fn put_mask(&self, ids: BitMask) -> bool {
        self.0.put_mask(ids).1
    }

    /// Takes an id from the words, for a waiter.
    #[must_use]
    pub fn take(&self) -> Option<usize> {
        self.0.take()
    }

    /// R1, under the list's lock.
    pub fn set_waiters(&self, n: usize) {
        self.0.set_waiters(n);
    }

    /// R3.
    pub fn drain_percpu(&self) {
        self.0.drain_percpu();
    }

    /// Closes and empties the stacks.
    pub fn freeze(&self) {
        self.0.freeze();
    }

    /// Lets the stacks come back.
    pub fn thaw(&self) {
        self.0.thaw();
    }

    /// Opens the stack of a CPU, as a thread that has moved away from it may do late.
    pub fn activate(&self, cpu: usize) -> bool {
        self.0.activate_remotely(cpu)
    }

    /// Puts back an id that a get popped although it was above the depth; `Some`: it is not.
    #[must_use]
    pub fn put_above_depth(&self, id: usize) -> Option<usize> {
        self.0.put_above_depth(id as u32)
    }

    /// Changes the depth.
    pub fn resize(&self, depth: usize) {
        self.0.resize(depth).expect("not beyond the ids");
    }

    /// How many ids are free.
    #[must_use]
    pub fn free(&self) -> usize {
        self.0.depth() - self.0.weight()
    }

    /// The store below the queue.
    #[must_use]
    pub fn into_queue(self, fairness: Fairness, clock: Clock) -> SbitmapQueue {
        let builder = SbitmapQueue::builder(1).fairness(fairness).clock(clock);
        SbitmapQueue::on_local(self.0, builder, Rules::default())
    }
}
