//! The local engine by itself, for its models: the shipped code with the model's geometry. And
//! the engine of a queue that a model builds as users do.

use crate::error::PutError;
use crate::fairness::Fairness;
use crate::layout::Layout;
use crate::local::{Flat, PerCpuStore, Shape, Share};
use crate::mask::BitMask;
use crate::queue::SbitmapQueue;
use crate::request::Rules;
use crate::store::Store;
use crate::word::Check;
use inflight_sync::percpu::Backend;
use inflight_sync::time::Clock;

pub use crate::local::model_backend::set_backend;

/// What a model chooses.
#[derive(Clone, Copy, Debug)]
pub struct ModelShape {
    /// Who excludes whom.
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
}

/// The store.
#[derive(Debug)]
pub struct LocalStore(PerCpuStore);

/// A summary for the words of more than so many, and none for groups.
const fn words(words: usize) -> Flat {
    Flat {
        words,
        groups: usize::MAX,
    }
}

impl LocalStore {
    /// With a budget for all stacks.
    #[must_use]
    pub fn new(of: ModelShape) -> Self {
        Self::with_summary(of, usize::MAX)
    }

    /// As `new`, with a summary of the words of more than `flat`.
    #[must_use]
    pub fn with_summary(of: ModelShape, flat: usize) -> Self {
        Self::with_check(of, words(flat), Check::Trusted)
    }

    /// As `new`, with a summary of all words, and one of it.
    #[must_use]
    pub fn with_two_summaries(of: ModelShape) -> Self {
        let flat = Flat {
            words: 0,
            groups: 0,
        };
        Self::with_check(of, flat, Check::Trusted)
    }

    /// As `new`, and looks for double frees that do not race.
    #[must_use]
    pub fn checked(of: ModelShape) -> Self {
        Self::with_check(of, words(usize::MAX), Check::Sequential)
    }

    /// As `new`. After a freeze stacks are locked, for `unlock_after` puts of a CPU.
    #[must_use]
    pub fn locked(of: ModelShape, unlock_after: u32) -> Self {
        Self::of(of, words(usize::MAX), Check::Trusted, Some(unlock_after))
    }

    fn with_check(of: ModelShape, flat: Flat, check: Check) -> Self {
        Self::of(of, flat, check, None)
    }

    fn of(of: ModelShape, flat: Flat, check: Check, unlock_after: Option<u32>) -> Self {
        let shape = Shape {
            backend: of.backend,
            cpus: of.cpus,
            share: Share {
                cap: of.cap,
                budget: of.cpus as u32 * of.cap,
            },
            thaw_after: Some(of.thaw_after),
            unlock_after,
            flat,
        };
        let full = Layout::new(of.depth, of.depth, Some(of.shift));
        Self(PerCpuStore::new(full, of.depth, check, shape, of.cpus))
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
