//! Waiters that were taken out of the list and are to be told, without its lock.

use inflight_sync::wait::Notify;

/// The most that one locked section chooses; it comes again for more.
const CAP: usize = if cfg!(loom) { 2 } else { 8 };

#[derive(Debug, Default)]
pub(super) struct WakeSet {
    waiters: [Option<Notify>; CAP],
    len: usize,
}

impl WakeSet {
    pub(super) const fn is_full(&self) -> bool {
        self.len == CAP
    }

    /// Must not be full. A waiter that somebody else is about to tell needs no news.
    pub(super) fn push(&mut self, notify: Option<Notify>) {
        self.waiters[self.len] = notify;
        self.len += 1;
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = Notify> + '_ {
        let len = std::mem::take(&mut self.len);
        self.waiters[..len].iter_mut().filter_map(Option::take)
    }
}
