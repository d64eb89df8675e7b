//! Who waits for timeouts, and how long each sleeps at most between two looks at the slots: the
//! *interval*, which is the shortest timeout that a request has of its own, within bounds.
//!
//! One word has the interval and a number that each change raises:
//!
//! ```text
//! note:  N1 give the slot its timeout    N2 fence    N3 it is not below the interval -> done
//!        N4 lower the interval, wake all
//! look:  L1 read the word    L2 look at all slots
//!        L3 the shortest timeout seen is not the interval -> L4 set it    L5 fence, wake all
//!        L6 sleep while the word is that of L1, then again
//! ```
//!
//! Who sleeps has seen the present word, so it looks within the interval, and a timeout that is not
//! below it needs no wakeup. That is also so if L4 raises the interval meanwhile:
//! 1. N2 comes before L5: L6 does not sleep, and the L2 that follows sees the slot's timeout.
//! 2. L5 comes before N2: N3 sees what L4 wrote, or what came later.
//!
//! L4 raises only what stood while the caller slept for the interval. So requests that have short
//! timeouts, and end soon, do not wake those who wait more than once in an interval.

use inflight_sync::atomic::{AtomicU64, Ordering, fence};
use inflight_sync::wait::Event;
use std::time::Duration;

/// How long a waiter for timeouts sleeps at most, if all requests have longer ones.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// How long it sleeps at least, however short the timeouts, if no request's time is up earlier; and
/// at most in a closed set, which ends with its last tag: that wakes no waiter.
pub(crate) const SHORT_SLEEP: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Expirers {
    /// Notified by N4 and L5, and by the close of the set.
    pub(crate) changed: Event,
    /// See `Interval`.
    interval: AtomicU64,
}

/// The word: a number, and the interval in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interval(u64);

impl Interval {
    pub(crate) const fn get(self) -> Duration {
        Duration::from_millis(self.millis())
    }

    const fn millis(self) -> u64 {
        self.0 & u32::MAX as u64
    }

    const fn next(self, millis: u64) -> Self {
        Self((self.0 >> 32).wrapping_add(1) << 32 | millis)
    }
}

/// A timeout within the bounds, in milliseconds.
fn bounded(timeout: Duration) -> u64 {
    timeout.clamp(SHORT_SLEEP, LONGEST_SLEEP).as_millis() as u64
}

impl Expirers {
    pub(crate) fn new() -> Self {
        Self {
            changed: Event::new(),
            interval: AtomicU64::new(bounded(LONGEST_SLEEP)),
        }
    }

    /// N2 to N4: a slot has got this timeout.
    pub(crate) fn note(&self, timeout: Duration) {
        // Ordering: N2, SeqCst pairs with the fence of L5, and as a Release with the Acquire of L1.
        fence(Ordering::SeqCst);
        let mut now = self.interval();
        while bounded(timeout) < now.millis() {
            match self.change(now, bounded(timeout)) {
                Ok(()) => return,
                Err(newer) => now = newer,
            }
        }
    }

    /// L3 to L5, with the shortest timeout of all slots, if they have their own. `slept`: the
    /// interval that stood while the caller slept for so long.
    pub(crate) fn correct(
        &self,
        seen: Interval,
        shortest: Option<Duration>,
        slept: Option<Interval>,
    ) {
        let (right, is) = (bounded(shortest.unwrap_or(LONGEST_SLEEP)), seen.millis());
        if right < is || right > is && slept == Some(seen) {
            // If it fails, the interval is another one already.
            let _ = self.change(seen, right);
        }
    }

    fn change(&self, from: Interval, millis: u64) -> Result<(), Interval> {
        let to = from.next(millis);
        // Relaxed: N4 comes after the fence N2. L5 is the fence of `notify_all`.
        let changed =
            self.interval
                .compare_exchange(from.0, to.0, Ordering::Relaxed, Ordering::Relaxed);
        changed.map_err(Interval)?;
        self.changed.notify_all();
        Ok(())
    }

    pub(crate) fn interval(&self) -> Interval {
        // Ordering: L1, Acquire pairs with the fence N2: L2 sees the slot's timeout.
        Interval(self.interval.load(Ordering::Acquire))
    }
}
