//! The numbers that bound what users ask for.

/// The largest `max_active`.
pub const MAX_ACTIVE_LIMIT: usize = 2048;

/// `max_active` of a workqueue that was not told otherwise.
pub const DEFAULT_MAX_ACTIVE: usize = MAX_ACTIVE_LIMIT / 2;

/// The longest name of a workqueue, in bytes.
pub const NAME_LIMIT: usize = 31;
