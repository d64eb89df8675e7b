//! The work on the segments by a commit that has ended, while others continue.

use super::{Inner, State};
use inflight_sync::atomic::Ordering;

/// What is to be done.
enum Upkeep {
    MakeNext,
    Remove(u64),
}

impl State {
    /// There is something to do.
    pub(super) fn note_upkeep(&self, inner: &Inner) {
        // Relaxed: written under the lock, so the last value is right. A thread that reads an old
        // value leaves the work to the next commit.
        inner.upkeep_due.store(true, Ordering::Relaxed);
    }

    fn next_upkeep(&mut self, inner: &Inner) -> Option<Upkeep> {
        if std::mem::take(&mut self.wants_next) {
            return Some(Upkeep::MakeNext);
        }
        let oldest = self.obsolete_segment().map(Upkeep::Remove);
        if oldest.is_none() {
            inner.upkeep_due.store(false, Ordering::Relaxed);
        }
        oldest
    }
}

impl Inner {
    /// Makes the next segment and removes old ones, unless another thread does. What that thread no
    /// longer sees, the next commit does.
    pub(super) fn upkeep(&self) {
        if !self.upkeep_due.load(Ordering::Relaxed) {
            return;
        }
        let Some(_turn) = self.segments.try_upkeep() else {
            return;
        };
        loop {
            let next = self.state.lock().next_upkeep(self);
            match next {
                None => return,
                Some(Upkeep::MakeNext) => {
                    if self.segments.make_next().is_err() {
                        // It is tried again when the segment is needed.
                        self.state.lock().counters.failed_creations += 1;
                    }
                }
                // The oldest first, so the remaining segments have no hole.
                Some(Upkeep::Remove(oldest)) => {
                    let removed = self.segments.remove(oldest);
                    let mut state = self.state.lock();
                    if removed.is_err() {
                        // The next commit tries again.
                        state.counters.failed_removals += 1;
                        return;
                    }
                    state.segments.pop_front();
                }
            }
        }
    }
}
