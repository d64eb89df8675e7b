//! The numbers that bound what users ask for.

/// The largest `max_active`.
///
/// ```
/// assert_eq!(inflight_workqueue::MAX_ACTIVE_LIMIT, 2048);
/// ```
pub const MAX_ACTIVE_LIMIT: usize = 2048;

/// `max_active` of a workqueue that was not told otherwise.
///
/// ```
/// assert_eq!(inflight_workqueue::DEFAULT_MAX_ACTIVE, 1024);
/// ```
pub const DEFAULT_MAX_ACTIVE: usize = MAX_ACTIVE_LIMIT / 2;

/// The longest name of a workqueue, in bytes.
///
/// ```
/// assert_eq!(inflight_workqueue::NAME_LIMIT, 31);
/// ```
pub const NAME_LIMIT: usize = 31;
