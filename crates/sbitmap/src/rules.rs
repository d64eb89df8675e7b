//! The rules of a crate above for a queue, given when it is built.

use crate::newcomer_policy::NewcomerPolicy;
use crate::share_limiter::ShareLimiter;
use inflight_sync::{Arc, cpu};

/// The CPUs that use a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Users {
    /// How many share the free bits: each may keep a part of them.
    pub count: usize,
    /// One more than the largest number of a CPU that may keep any; stays as it was at first.
    pub of: usize,
}

impl Users {
    /// All CPUs that the process may use.
    pub(crate) fn all() -> Self {
        Self {
            count: cpu::usable(),
            of: cpu::online(),
        }
    }
}

/// What a queue is given from above.
#[derive(Debug, Default)]
pub struct Rules {
    /// How tenants share the bits.
    pub shares: Option<Arc<dyn ShareLimiter>>,
    /// The newcomers that may try past the waiters, for `Batched`.
    pub newcomers: Option<NewcomerPolicy>,
    /// Which CPUs use it. `None`: all that the process may use.
    pub users: Option<Users>,
}
