//! What a closed queue answers.
//!
//! | after `close` | answer |
//! |---|---|
//! | who waits, or asks and would wait | `Closed`, unless bits were granted to it before |
//! | `try_get`, `try_id`, `try_get_batch`, `try_get_mask`, `try_get_shallow` | nothing |
//! | `try_get_many` | `Closed`, or `TooMany` |
//! | `put`, `resize`, and what only looks | as ever |
//!
//! With `Batched` all that would take a bit look at `closed` themselves. In turns a closed queue
//! counts as one where somebody waits, once it is drained: so newcomers get nothing, and those who
//! would wait come to its lock, where they are told.

use crate::error::GetManyError;

/// Who would wait is refused if the queue is `closed`.
pub(crate) const fn check(closed: bool) -> Result<(), GetManyError> {
    if closed {
        return Err(GetManyError::Closed);
    }
    Ok(())
}
