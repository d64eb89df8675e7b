//! Looking at tags in flight while they complete.
//!
//! A visitor never reaches a payload and never owns a slot. It sees one state of one slot's word,
//! and what it does about it ([`InFlight::mark_timed_out`]) is a compare-exchange on exactly that
//! state: if the tag has completed meanwhile, or the slot is in its next use, nothing happens.

use crate::shared::Shared;
use crate::slot::{Phase, Record};
use crate::token::Generation;
use inflight_sync::time::Instant;
use std::time::Duration;

/// One tag in flight, as [`TagSet::for_each_in_flight`](crate::TagSet::for_each_in_flight) shows
/// it.
///
/// A snapshot: the tag may have completed by the time it is looked at.
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
    /// What [`Tag::into_token`](crate::Tag::into_token) returned for it.
    #[must_use]
    pub const fn token(&self) -> u64 {
        self.token
    }

    /// The hardware queue it belongs to.
    #[must_use]
    pub const fn hw_queue(&self) -> usize {
        self.hw_queue
    }

    /// Its number within its hardware queue.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// How long it had been in flight when the visit began. Never too long, so nothing is timed
    /// out too early: if the slot went on to its next use meanwhile, it is the age of that. With
    /// the system's clock it may be too short by the rest of the tick in which the request was
    /// submitted: 1 to 10 ms on Linux, [by how often the kernel's timer
    /// ticks](inflight_sync::time::Ticks), nothing elsewhere. Zero in a set built with
    /// [`ages(false)`](crate::TagSetBuilder::ages).
    #[must_use]
    pub fn age(&self) -> Duration {
        self.now.map_or(Duration::ZERO, |now| {
            now.saturating_duration_since(self.record.issued_at())
        })
    }

    /// Whether it had been marked as timed out before the visit came by.
    #[must_use]
    pub const fn is_timed_out(&self) -> bool {
        self.timed_out
    }

    /// Marks it as timed out: its completion will get
    /// [`RedeemError::TimedOut`](crate::RedeemError::TimedOut), and
    /// [`TagSet::redeem_timed_out`](crate::TagSet::redeem_timed_out) will give the tag to one
    /// caller. Returns whether this call marked it; false if it has completed, or was marked
    /// before.
    ///
    /// The request's buffers may still be in use by the device. Whoever takes the tag makes sure
    /// that they are not (by cancelling the request there) before it frees the tag.
    // Why: it acts, and who only wants that may ignore who was first.
    #[allow(clippy::must_use_candidate)]
    pub fn mark_timed_out(&self) -> bool {
        self.record.mark_timed_out(self.generation)
    }
}

impl<T> Shared<T> {
    /// Shows each tag in flight to `f`.
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
                token: slot.id().token(state.generation),
                hw_queue: slot.hw_queue(),
                index: slot.tag,
                now,
            });
        }
    }
}
