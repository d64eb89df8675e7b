//! The part of a put that serves waiters: P4 and P5.

use super::Turns;
use super::wake::WakeSet;
use crate::error::PutError;
use crate::mask::BitMask;
use crate::store::Store;
use inflight_sync::atomic::Ordering;
use inflight_sync::wait::Wakers;

impl<S: Store> Turns<S> {
    pub(crate) fn put(&self, id: usize) -> Result<(), PutError> {
        self.finish_put(self.store.put(id))
    }

    /// P4 and P5 after the store's result for one id.
    pub(crate) fn finish_put(&self, put: Result<bool, PutError>) -> Result<(), PutError> {
        if put? {
            self.after_put(1);
        }
        Ok(())
    }

    pub(crate) fn put_batch(&self, ids: &[usize]) -> Result<(), PutError> {
        self.finish_puts(self.store.put_batch(ids))
    }

    pub(crate) fn put_mask(&self, ids: BitMask) -> Result<(), PutError> {
        self.finish_puts(self.store.put_mask(ids))
    }

    fn finish_puts<T>(&self, (freed, somebody_waits, result): (usize, bool, T)) -> T {
        if freed > 0 && somebody_waits {
            self.after_put(freed);
        }
        result
    }

    /// P4 and P5: there may be waiters for the `n` ids that were put.
    #[cold]
    fn after_put(&self, n: usize) {
        if self.unlocked.awaits_token() {
            self.unlocked.note_putter();
            let n = u32::try_from(n).expect("a map has at most 2^24 bits");
            // Relaxed: a count; the thread that reaches the limit reads again under the lock.
            let skipped = self
                .skipped
                .fetch_add(n, Ordering::Relaxed)
                .saturating_add(n);
            if skipped < self.rules.stall_limit {
                return;
            }
        }
        let mut queue = self.wait_queue.lock();
        self.unlocked.note_putter();
        let mut chosen = WakeSet::default();
        // P5. A put that has waited for the lock may find that another thread did it.
        if self.unlocked.awaits_token() {
            if self.skipped.load(Ordering::Relaxed) >= self.rules.stall_limit {
                queue.give_up_tokens();
                self.serve(&mut queue, None, &mut chosen);
            }
        } else if self.shares.is_some() && !queue.list.tenants.has_one_list() {
            // Another tenant may be served by now.
            self.serve(&mut queue, None, &mut chosen);
        } else {
            self.hand_out(&mut queue, n, None, &mut chosen);
        }
        self.wake(queue, &mut chosen, Wakers::default());
    }
}
