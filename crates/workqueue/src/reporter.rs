//! The report thread, which calls the user's report functions: a slow one delays only later
//! reports, and destructors that would delay the timer.

use crate::inbox::Inbox;
use inflight_sync::atomic::AtomicU64;

/// The most reports that wait; further ones are dropped.
pub(crate) const WAITING_MAX: usize = 1_024;

/// One call of a user's function.
pub(crate) type Report = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(crate) struct Reporter {
    pub(crate) inbox: Inbox<Report>,
    /// Dropped because too many waited, or there was no thread. Relaxed: a statistic.
    pub(crate) dropped: AtomicU64,
}
