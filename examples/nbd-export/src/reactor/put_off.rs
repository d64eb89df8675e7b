//! Flushes that were put off for data that is under way, and that are not to wait for it for long.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use inflight::tags::{Clock, Instant};

use crate::export::Export;

/// One thread's: the exports for which it has put a flush off, and until when.
#[derive(Default)]
pub(super) struct PutOff(RefCell<Vec<(Instant, Arc<Export>)>>);

impl PutOff {
    /// Notes when the export's flush has been put off for long enough.
    pub(super) fn note(&self, export: &Arc<Export>) {
        let Some(until) = export.domain.next_deadline() else {
            return;
        };
        let mut all = self.0.borrow_mut();
        match all.iter_mut().find(|(_, other)| Arc::ptr_eq(other, export)) {
            Some((known, _)) => *known = until,
            None => all.push((until, export.clone())),
        }
    }

    /// How long the first one may still wait.
    pub(super) fn left(&self) -> Option<Duration> {
        let all = self.0.borrow();
        let first = all.iter().map(|(until, _)| *until).min()?;
        Some(first.saturating_duration_since(Clock::system().now()))
    }

    /// Has those go on whose time has come.
    pub(super) fn go_on(&self) {
        if self.0.borrow().is_empty() {
            return;
        }
        let now = Clock::system().now();
        let all = self.0.take();
        let (due, later): (Vec<_>, _) = all.into_iter().partition(|(until, _)| *until <= now);
        self.0.replace(later);
        for (_, export) in due {
            export.domain.tick();
            // Another one may have been put off since.
            self.note(&export);
        }
    }
}
