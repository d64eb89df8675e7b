//! Before and after a wait: the hook of the set, and the counters of waits.

use crate::own_callback::{Callback, Running};
use crate::shared::Shared;
use crate::tenant::Tenant;
use inflight_sync::atomic::Ordering;
use inflight_sync::time::Instant;

/// What an allocation records about its waits.
#[derive(Debug, Default)]
pub(crate) struct WaitRecord {
    /// The end of the tick in which the first of them began.
    since: Option<Instant>,
    /// Whether the hook was called before this wait.
    hook_called: bool,
}

impl WaitRecord {
    pub(crate) const fn new() -> Self {
        Self {
            since: None,
            hook_called: false,
        }
    }

    /// Calls the hook, if there is one and it is not its own caller, before each wait. Returns
    /// whether to try again first.
    pub(crate) fn call_hook<T>(&mut self, tenant: &Tenant<T>, hw_queue: usize) -> bool {
        let Some(hook) = &tenant.shared.before_wait else {
            return false;
        };
        let set = std::ptr::from_ref::<Shared<T>>(&tenant.shared).addr();
        // Not in the hook itself, which would call itself without an end.
        let begin = || Running::begin(Callback::BeforeWait, set);
        let in_hook = (!self.hook_called).then(begin).flatten();
        self.hook_called = in_hook.is_some();
        if self.hook_called {
            hook(hw_queue);
        }
        self.hook_called
    }

    /// The allocation waits, perhaps not for the first time.
    pub(crate) fn begin<T>(&mut self, tenant: &Tenant<T>) {
        if self.since.is_none() {
            self.since = Some(tenant.shared.bitmaps.ticks.now());
            tenant.tenant.counters.add(|c| &c.waits, 1);
        }
    }

    /// The wait, if there was one, is over.
    pub(crate) fn end<T>(&mut self, tenant: &Tenant<T>) {
        self.hook_called = false;
        let Some(since) = self.since.take() else {
            return;
        };
        let bitmaps = &tenant.shared.bitmaps;
        let longest = &tenant.tenant.longest_wait;
        let until = |now: Instant| now.as_nanos().saturating_sub(since.as_nanos());
        // Relaxed: a statistic. The exact time is read only if the wait may be the longest.
        if until(bitmaps.ticks.now()) > longest.load(Ordering::Relaxed) {
            longest.fetch_max(until(bitmaps.clock.now()), Ordering::Relaxed);
        }
    }
}
