//! Closing a set: no caller gets a tag any more, and all waiters get an error.
//!
//! | after `close` | result |
//! | an allocation, or a call of a split for a tag, also behind a freeze | `Closed`: `GateState::refuses`, in `freeze/gate.rs` |
//! | a waiter | `Closed`: `answer_of_wait`; a waiter for a split tries again, and gets the gate's answer |
//! | a try during `close` that finds no tag | `Closed`: `answer_of_try` |
//! | `try_alloc_batch` | no tags |
//! | `add_tenant` | `TenantError::Closed` |
//! | tokens, `freeze`, `quiesce`, `resize`, hotplug | unchanged |

use crate::error::AllocError;
use crate::freeze::FreezeGate;
use crate::set::TagSet;
use inflight_sbitmap::GetError;
use inflight_sync::panics::FirstPanic;

/// The error of a try that failed with `why`: its bitmap may have been closed.
pub(crate) fn answer_of_try(why: AllocError, gate: &FreezeGate) -> AllocError {
    if why == AllocError::Exhausted && gate.is_set_closed_by_now() {
        return AllocError::Closed;
    }
    why
}

/// The error of a wait that ended without a bit. A bitmap is closed only with its set.
pub(crate) const fn answer_of_wait(ended: GetError) -> AllocError {
    match ended {
        GetError::TimedOut => AllocError::TimedOut,
        _ => AllocError::Closed,
    }
}

impl<T: Send + 'static> TagSet<T> {
    /// Closes the set, for good: no tag is given out any more. Waiters for a tag and later callers
    /// get [`Closed`](crate::AllocError::Closed), also behind a freeze. Tags that are held can be
    /// put in flight, tags in flight can be redeemed, and [`freeze`](TagSet::freeze) waits until
    /// none is in use: this is the shutdown of an engine.
    ///
    /// An allocation that runs at the same time may still succeed.
    ///
    /// # Panics
    ///
    /// Panics with the first panic of a waiting task's waker, after all waiters are woken.
    ///
    /// ```
    /// # use inflight_tags::{AllocError, TagSet};
    /// let set = TagSet::builder().depth(1).build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// let token = dev.alloc_blocking()?.into_token();
    /// let waiter = std::thread::spawn({
    ///     let dev = dev.clone();
    ///     move || dev.alloc_blocking().map(drop)
    /// });
    /// set.close();
    /// assert_eq!(waiter.join().unwrap(), Err(AllocError::Closed));
    /// drop(set.redeem(token)?); // it completes all the same
    /// let _idle = set.freeze_blocking();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        let bitmaps = &self.shared.bitmaps;
        let mut panic = FirstPanic::default();
        panic.run(|| bitmaps.gate.close_set());
        panic.run(|| bitmaps.expirers.changed.notify_all());
        for tag_map in bitmaps.layout.tag_map_ids() {
            panic.run(|| bitmaps.bitmap(tag_map).close());
        }
        panic.finish();
    }

    /// Returns whether the set is [closed](TagSet::close).
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.bitmaps.gate.state().is_set_closed()
    }
}
