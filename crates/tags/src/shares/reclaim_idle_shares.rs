//! Who looks for idle tenants, and gives their shares to the others.

use crate::panics::call_for_each;
use crate::set::TagSet;
use crate::tag_maps::TagMaps;

impl TagMaps {
    /// Somebody is at its limit: another tenant may have gone idle.
    pub(crate) fn look_for_idle(&self, hw_queue: usize) {
        if self.accounts(hw_queue).find_idle(self.clock.now()) {
            self.shares_changed(hw_queue);
        }
    }
}

impl<T: Send + 'static> TagSet<T> {
    /// Gives the shares of idle tenants to the others at once: of those that have no tag of a
    /// hardware queue that counts, and wait for none. Returns in how many hardware queues there
    /// was one. Such a tenant counts again with its next allocation.
    ///
    /// Without this call an idle tenant is found out by others who are at their limit: by threads
    /// that wait, which look every second, and by whoever allocates, comes to wait or frees. Tasks
    /// have no timer: if nothing but tasks waits, beside an idle tenant's tags, and nobody
    /// completes anything, they wait until one of these happens. An engine of tasks alone calls
    /// this from its own timer.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// let set = TagSet::builder().depth(8).build(|_, _| ())?;
    /// let (a, b) = (set.add_tenant("a")?, set.add_tenant("b")?);
    /// drop(b.try_alloc()?); // active, and done for now
    /// assert_eq!(a.try_alloc_batch(8).len(), 4, "its share");
    /// set.reclaim_idle_shares();
    /// assert_eq!(a.try_alloc_batch(8).len(), 8);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    // Why: it acts, and who only wants that may ignore how many there were.
    #[allow(clippy::must_use_candidate)]
    pub fn reclaim_idle_shares(&self) -> usize {
        let bitmaps = &self.shared.bitmaps;
        let tables = 0..bitmaps.layout.tables();
        let idle = tables.filter(|&n| bitmaps.accounts(n).forget_idle());
        let idle: Vec<usize> = idle.collect();
        let n = idle.len();
        call_for_each(idle, |hw_queue| bitmaps.shares_changed(hw_queue));
        n
    }
}
