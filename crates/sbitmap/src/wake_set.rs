//! Waiters that were removed from their list, to be woken without its lock.

use inflight_sync::wait::Notify;

#[derive(Debug)]
pub(crate) struct WakeSet<const CAP: usize> {
    waiters: [Option<Notify>; CAP],
    len: usize,
}

impl<const CAP: usize> Default for WakeSet<CAP> {
    fn default() -> Self {
        Self {
            waiters: [const { None }; CAP],
            len: 0,
        }
    }
}

impl<const CAP: usize> WakeSet<CAP> {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.len == CAP
    }

    /// The set must not be full.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "as for the nodes of turns/list.rs")]
    pub(crate) fn push(&mut self, notify: Notify) {
        self.waiters[self.len] = Some(notify);
        self.len += 1;
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Notify> + '_ {
        let len = std::mem::take(&mut self.len);
        self.waiters[..len].iter_mut().filter_map(Option::take)
    }
}
