//! Visiting tags in flight while they complete.
//!
//! A visitor never accesses a payload and never owns a slot. It sees one state of one slot's word.
//! [`InFlight::mark_timed_out`] is a compare-exchange on exactly that state: if the tag has
//! completed meanwhile, or the slot is in its next use, nothing happens.

use crate::shared::Shared;
use crate::slot::{Phase, Record};
use crate::token::Generation;
use inflight_sync::time::Instant;
use std::time::Duration;

/// One tag in flight, in a call of
/// [`TagSet::for_each_in_flight`](crate::TagSet::for_each_in_flight).
///
/// A snapshot: the tag may complete at any moment.
///
/// ```
/// use inflight_tags::{AllocOptions, TagSet};
/// let set = TagSet::builder().depth(2).build(|_, _| ())?;
/// let dev = set.add_tenant("nvme0n1")?;
/// let token = dev.try_alloc()?.into_token();
/// set.for_each_in_flight(|t| {
///     assert_eq!((t.token(), t.hw_queue()), (token, 0));
///     assert!(t.index() < 2 && !t.is_timed_out());
/// });
/// drop(set.redeem(token)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct InFlight<'a> {
    record: &'a Record,
    generation: Generation,
    timed_out: bool,
    token: u64,
    hw_queue: usize,
    index: usize,
    /// When the visit began, if the set keeps ages.
    now: Option<Instant>,
}

impl InFlight<'_> {
    /// Returns the token that [`Tag::into_token`](crate::Tag::into_token) returned.
    #[must_use]
    pub const fn token(&self) -> u64 {
        self.token
    }

    /// Returns the tag's hardware queue.
    #[must_use]
    pub const fn hw_queue(&self) -> usize {
        self.hw_queue
    }

    /// Returns the tag's number within its hardware queue.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// Returns how long it had been in flight when the visit began. The value is never too large,
    /// so no request is timed out too early: if the slot is in its next use meanwhile, it is the
    /// age of that use. With the system's clock it may be too small by the rest of the tick in
    /// which the request was submitted: 1 to 10 ms on Linux, [by the kernel's timer
    /// frequency](inflight_sync::time::Ticks), nothing elsewhere. Zero in a set built with
    /// [`ages(false)`](crate::TagSetBuilder::ages).
    #[must_use]
    pub fn age(&self) -> Duration {
        self.now.map_or(Duration::ZERO, |now| {
            now.saturating_duration_since(self.record.issued_at())
        })
    }

    /// Returns whether it had been marked as timed out before the visit.
    #[must_use]
    pub const fn is_timed_out(&self) -> bool {
        self.timed_out
    }

    /// Marks it as timed out: its completion will get
    /// [`RedeemError::TimedOut`](crate::RedeemError::TimedOut), and
    /// [`TagSet::redeem_timed_out`](crate::TagSet::redeem_timed_out) will return the tag to one
    /// caller. Returns whether this call marked it; `false` if it has completed, or was marked
    /// before.
    ///
    /// The device may still use the request's buffers. The caller that takes the tag must make sure
    /// that it does not (by cancelling the request at the device) before the tag is freed.
    // A caller may ignore which call was first.
    #[allow(clippy::must_use_candidate)]
    pub fn mark_timed_out(&self) -> bool {
        self.record.mark_timed_out(self.generation)
    }
}

impl<T> Shared<T> {
    /// Calls `f` with each tag in flight.
    pub(crate) fn for_each_in_flight(&self, mut f: impl FnMut(&InFlight<'_>)) {
        let now = self.bitmaps.age_time();
        for slot in self.slots() {
            let state = slot.record.observe();
            if !state.phase.is_in_flight() {
                continue;
            }
            f(&InFlight {
                record: &slot.record,
                generation: state.generation,
                timed_out: state.phase == Phase::Overdue,
                token: slot.id.token(state.generation),
                hw_queue: slot.hw_queue(),
                index: slot.tag(),
                now,
            });
        }
    }
}
