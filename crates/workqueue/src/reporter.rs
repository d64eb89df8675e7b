//! Tells users of what the system has found out, on a thread of its own: a slow callback holds up
//! nothing but later reports, and destructors for which the timer has no time.

use crate::inbox::Inbox;
use inflight_sync::atomic::AtomicU64;

/// So many reports wait at most; what is more is dropped.
pub(crate) const WAITING_MAX: usize = 1_024;

/// One call of a user's function.
pub(crate) type Report = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(crate) struct Reporter {
    pub(crate) inbox: Inbox<Report>,
    /// Reports that were dropped because too many waited, or for want of a thread. Relaxed: a
    /// statistic.
    pub(crate) dropped: AtomicU64,
}
