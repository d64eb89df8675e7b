//! Limits on the values that users may ask for.

/// The largest `max_active`.
pub const MAX_ACTIVE_LIMIT: usize = 2048;

/// The `max_active` of a workqueue that sets none.
pub const DEFAULT_MAX_ACTIVE: usize = MAX_ACTIVE_LIMIT / 2;

/// The longest name of a workqueue, in bytes.
pub const NAME_LIMIT: usize = 31;
