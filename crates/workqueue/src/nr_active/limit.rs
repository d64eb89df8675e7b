//! Whether a pwq may run more, or its entries wait: `max_active` of the pwq, or of all that share
//! it.

use super::Limit;
use crate::pool_core::{PoolItem, PwqState};

impl<T: PoolItem> PwqState<T> {
    pub(crate) fn is_limited(&self) -> bool {
        !matches!(self.limit, Limit::None)
    }

    #[inline]
    pub(crate) fn acquire_slot(&mut self) -> bool {
        match &mut self.limit {
            Limit::None => true,
            Limit::Own { max, used } => {
                let free = *used < *max;
                *used += usize::from(free);
                free
            }
            Limit::Shared(_) if self.pending => false,
            Limit::Shared(nr_active) => {
                self.pending = !nr_active.acquire(self.id);
                !self.pending
            }
        }
    }

    /// Slots that it could have besides those in use.
    pub(crate) fn free_slots(&self) -> usize {
        match &self.limit {
            Limit::None => usize::MAX - 1,
            Limit::Own { max, used } => max.saturating_sub(*used),
            Limit::Shared(nr_active) => {
                let (nr, max) = nr_active.level();
                max.saturating_sub(nr)
            }
        }
    }

    /// Another pwq waits for a slot of the same limit.
    pub(crate) fn slot_is_wanted(&self) -> bool {
        matches!(&self.limit, Limit::Shared(nr_active) if nr_active.has_pending())
    }
}
