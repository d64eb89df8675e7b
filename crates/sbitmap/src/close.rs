//! The results of calls on a closed queue.
//!
//! | after `close` | result |
//! | a waiter, or a call that would wait | `Closed`, unless bits were granted to it before |
//! | `try_get`, `try_id`, `try_get_batch`, `try_get_mask`, `try_get_shallow` | nothing |
//! | `try_get_many` | `Closed`, or `TooMany` |
//! | `put`, `resize`, and all calls that only read | unchanged |
//!
//! With `Batched`, each call that would take a bit reads `closed` itself. In turns, a closed queue
//! counts as one with waiters once it is drained: newcomers get nothing, and callers that would
//! wait take its lock and see there that it is closed.

use crate::error::GetManyError;

/// Refuses a caller that would wait if the queue is `closed`.
pub(crate) const fn check(closed: bool) -> Result<(), GetManyError> {
    if closed {
        return Err(GetManyError::Closed);
    }
    Ok(())
}
