//! A pool_workqueue: the link between a workqueue and a pool, without what the pool's lock guards,
//! which is in a [`PwqState`](crate::pool_core::PwqState).

use crate::batch;
use crate::completion::Completion;
use crate::error::QueueError;
use crate::flush_colour::FlushNumber;
use crate::nr_active::{Limit, NrActive, PwqId};
use crate::pool_core::PwqIndex;
use crate::worker_pool::{PoolState, QueueDeferred, WorkerPool};
use crate::workqueue_inner::WorkqueueInner;
use inflight_sync::atomic::{AtomicU8, AtomicU64, Ordering};
use inflight_sync::registry::Registry;
use inflight_sync::{Arc, Mutex, MutexGuard, Weak};

/// Entries wait in its FIFO.
const QUEUED: u8 = 1;
pub(crate) const FROZEN: u8 = 1 << 1;
/// Another pwq has replaced it.
pub(crate) const RETIRED: u8 = 1 << 2;
/// Only items of its own queue may queue.
pub(crate) const DRAINING: u8 = 1 << 3;
/// Its queue accepts nothing more.
pub(crate) const DESTROYED: u8 = 1 << 4;
/// The system accepts nothing more.
pub(crate) const SHUT_DOWN: u8 = 1 << 5;

/// It has left its pool, and its index there is no longer valid.
const GONE: u8 = 1 << 6;

/// If one of these is set, it stays set, and only items of the queue itself may push.
pub(crate) const CLOSED: u8 = DESTROYED | SHUT_DOWN;

/// If one of these is set, a push takes the slow path.
pub(crate) const NOT_OPEN: u8 = RETIRED | DRAINING | DESTROYED | SHUT_DOWN;

/// All pwqs of the process, by the numbers in the items' words.
static PWQS: Registry<Pwq> = Registry::new(crate::item::word::PWQ_BITS);

pub(crate) type Batch = batch::Batch<Pwq>;
pub(crate) type Taken = batch::Taken<Pwq>;
pub(crate) type BatchTaken = batch::BatchTaken<Pwq>;

pub(crate) struct Pwq {
    pub(crate) id: PwqId,
    pub(crate) index: PwqIndex,
    pub(crate) pool: Arc<WorkerPool>,
    pub(crate) wq: Arc<WorkqueueInner>,
    /// The limit that it shares with other pwqs, if it does.
    pub(crate) nr_active: Option<Arc<NrActive>>,
    /// Written under the pool's lock.
    flags: AtomicU8,
    /// Runs that followed another one at once, without their own entries.
    reruns: AtomicU64,
    /// Flushes that wait for it, also abandoned ones. Locked inside the pool's lock.
    pub(crate) flushes: Mutex<Vec<(FlushNumber, Weak<Completion>)>>,
    /// The pwq that waits until this one is idle.
    pub(crate) successor: Mutex<Option<Arc<Pwq>>>,
}

pub(crate) fn by_id(id: PwqId) -> Option<Arc<Pwq>> {
    PWQS.get(id)
}

/// Gives a waiting pwq a slot of the limit; if it no longer exists, the next one.
pub(crate) fn grant(nr_active: &NrActive, id: PwqId) {
    let mut next = Some(id);
    while let Some(id) = next {
        if let Some(pwq) = by_id(id) {
            let mut state = pwq.lock();
            // The number may be reused by a pwq with another limit.
            let shares = pwq
                .nr_active
                .as_ref()
                .is_some_and(|n| std::ptr::eq(&**n, nr_active));
            if shares && !pwq.is_gone() {
                state.core.grant(pwq.index);
                pwq.pool.unlock(state, false);
                return;
            }
        }
        next = nr_active.release();
    }
}

impl Pwq {
    /// A pwq of that queue in that pool, whose lock is held, with its own limit or a shared one.
    pub(crate) fn new(
        wq: &Arc<WorkqueueInner>,
        pool: &Arc<WorkerPool>,
        state: &mut PoolState,
        limit: Limit,
        unmanaged: bool,
    ) -> Result<Arc<Self>, QueueError> {
        let nr_active = match &limit {
            Limit::Shared(nr_active) => Some(nr_active.clone()),
            _ => None,
        };
        let id = PWQS.reserve().ok_or(QueueError::TooManyQueues)?;
        let pwq = Arc::new(Self {
            id,
            index: state.core.add_pwq(id, limit, unmanaged),
            pool: pool.clone(),
            wq: wq.clone(),
            nr_active,
            flags: AtomicU8::new(0),
            reruns: AtomicU64::new(0),
            flushes: Mutex::default(),
            successor: Mutex::default(),
        });
        PWQS.set(id, &pwq);
        state.add_pwq(&pwq);
        Ok(pwq)
    }

    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.pool.lock()
    }

    /// Exact under the lock. Without it, a thread that was told of a change sees the change.
    #[inline]
    pub(crate) fn flags(&self) -> u8 {
        // Relaxed: they publish no other data.
        self.flags.load(Ordering::Relaxed)
    }

    /// Under the pool's lock.
    #[inline]
    pub(crate) fn set_flag(&self, flag: u8, on: bool) {
        let flags = self.flags.load(Ordering::Relaxed);
        let new = if on { flags | flag } else { flags & !flag };
        if new != flags {
            // Relaxed: as in `flags`.
            self.flags.store(new, Ordering::Relaxed);
        }
    }

    /// Sets whether entries wait. Under the pool's lock.
    #[inline]
    pub(crate) fn set_queued(&self, queued: bool) {
        self.set_flag(QUEUED, queued);
    }

    /// Whether its items may append: nothing waits before them, and the queue is open.
    #[inline]
    pub(crate) fn may_append(&self) -> bool {
        self.flags() == 0
    }

    /// Makes a change under the pool's lock. `recalls`: takes back what workers have not begun.
    pub(crate) fn change(
        &self,
        recalls: bool,
        deferred: &mut QueueDeferred,
        change: impl FnOnce(&mut PoolState),
    ) {
        let mut state = self.lock();
        change(&mut state);
        if recalls {
            state.recall_all(|pwq| std::ptr::eq(pwq, self));
        }
        self.pool.unlock_deferred(state, true, deferred);
    }

    pub(crate) fn became_idle(self: &Arc<Self>, counted: bool) {
        self.unplug_successor();
        self.pool.dismiss_if_unused();
        if counted {
            self.wq.pwq_is_idle();
        }
    }

    /// Nothing is in flight and nothing is queued any more: the pwq leaves its pool.
    pub(crate) fn remove(&self) {
        let mut state = self.lock();
        if self.flags() & RETIRED == 0 {
            state.users -= 1;
        }
        self.set_flag(GONE, true);
        let own = state.remove_pwq(self.index);
        drop(state);
        drop(own);
        self.pool.dismiss_if_unused();
    }

    /// Under the lock.
    pub(crate) fn is_gone(&self) -> bool {
        self.flags() & GONE != 0
    }

    pub(crate) fn count_reruns(&self, reruns: u32) {
        // Relaxed: a statistic.
        self.reruns.fetch_add(u64::from(reruns), Ordering::Relaxed);
    }

    pub(crate) fn reruns(&self) -> u64 {
        self.reruns.load(Ordering::Relaxed)
    }
}

impl Drop for Pwq {
    fn drop(&mut self) {
        PWQS.free(self.id);
    }
}
