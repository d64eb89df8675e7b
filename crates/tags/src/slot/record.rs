//! The state word of a slot, which says who owns it. PROTOCOL.md, "Slot ownership", has the events
//! S1 to S5. Besides:
//!
//! ```text
//!   an owner's phase --S6 track--> Tracked --S7 report--> Reported --S1 or S5--> as there
//! ```
//!
//! S1, S5 and S6 are plain stores of the owner, S2, S3, S4 and S7 each one compare-exchange on an
//! exact generation and phase. If S7 races with the owner's next store, either S7 comes first and
//! the owner overwrites it, or S7 fails.
//!
//! S5 from Handled leaves IdleAfterTimeout: as Idle, but who comes with the token of the generation
//! before is told that it is late, until the slot is used again.

use crate::token::Generation;
use inflight_sync::atomic::{AtomicU64, Ordering};
use inflight_sync::time::Instant;
use std::time::Duration;

const PHASE_BITS: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Phase {
    /// Never issued in this generation. The slot is free, or its owner has not submitted yet.
    Idle = 0,
    /// There is a token; no code has access to the payload.
    InFlight = 1,
    /// In flight; the handler of the timeout may take it, its completion may not.
    Overdue = 2,
    /// A completion returned it to an owner.
    Redeemed = 3,
    /// The handler of its timeout owns it.
    Handled = 4,
    /// Without owner and payload: not made yet, or all handles of the set are gone.
    Absent = 5,
    /// Its owner has it, and its timeout runs.
    Tracked = 6,
    /// The same, and its timeout was reported to have passed.
    Reported = 7,
    /// As Idle, and the handler of a timeout ended the last use.
    IdleAfterTimeout = 8,
}

impl Phase {
    /// See PROTOCOL.md, "One owner".
    const fn has_owner(self) -> bool {
        !matches!(self, Self::InFlight | Self::Overdue | Self::Absent)
    }

    /// Whether a token of this generation is in flight.
    pub(crate) const fn is_in_flight(self) -> bool {
        matches!(self, Self::InFlight | Self::Overdue)
    }

    /// Whether no token of this generation was made.
    const fn is_fresh(self) -> bool {
        matches!(self, Self::Idle | Self::IdleAfterTimeout)
    }
}

/// The value of a state word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotState {
    pub(crate) generation: Generation,
    pub(crate) phase: Phase,
}

impl SlotState {
    const fn pack(self) -> u64 {
        (self.generation.bits() << PHASE_BITS) | self.phase as u64
    }

    /// For a tag that is submitted again: rare, so not inlined.
    #[cold]
    #[inline(never)]
    const fn again(self) -> Self {
        Self {
            generation: self.generation.next(),
            phase: Phase::Idle,
        }
    }

    const fn unpack(word: u64) -> Self {
        let phase = match word & ((1 << PHASE_BITS) - 1) {
            0 => Phase::Idle,
            1 => Phase::InFlight,
            2 => Phase::Overdue,
            3 => Phase::Redeemed,
            4 => Phase::Handled,
            6 => Phase::Tracked,
            7 => Phase::Reported,
            8 => Phase::IdleAfterTimeout,
            _ => Phase::Absent,
        };
        Self {
            generation: Generation::from_bits(word >> PHASE_BITS),
            phase,
        }
    }
}

/// The data about a slot other than its payload.
#[derive(Debug)]
pub(crate) struct Record {
    state: AtomicU64,
    /// When the tag was issued, in nanoseconds of the set's clock. Written before S1.
    issued_at: AtomicU64,
    /// The submission's own timeout in nanoseconds + 1, or 0 for the set's.
    timeout: AtomicU64,
    /// How often the slot was allocated and freed: odd while it is a tag. Only its owner writes it.
    uses: AtomicU64,
}

impl Record {
    pub(super) fn new(generation: Generation) -> Self {
        let state = SlotState {
            generation,
            phase: Phase::Absent,
        };
        Self {
            state: AtomicU64::new(state.pack()),
            issued_at: AtomicU64::new(0),
            timeout: AtomicU64::new(0),
            uses: AtomicU64::new(0),
        }
    }

    /// The payload has been made: the slot can become a tag. R2, or building the set, orders this
    /// before the bit.
    pub(super) fn present(&self) {
        // Relaxed: no other thread writes before this.
        let state = SlotState {
            phase: Phase::Idle,
            ..SlotState::unpack(self.state.load(Ordering::Relaxed))
        };
        // Relaxed: the bit publishes the slot to its first owner.
        self.state.store(state.pack(), Ordering::Relaxed);
    }

    /// Whether the payload has not been made yet.
    pub(crate) fn is_absent(&self) -> bool {
        // Relaxed: the maker is the only user of the slot, and for others it is a hint.
        SlotState::unpack(self.state.load(Ordering::Relaxed)).phase == Phase::Absent
    }

    /// The state as a thread that is not the owner sees it.
    #[inline]
    pub(crate) fn observe(&self) -> SlotState {
        // Ordering: pairs with S1 in `issue`, so that the reader sees the time stamp of this issue
        // or of a later one, never of an earlier one.
        SlotState::unpack(self.state.load(Ordering::Acquire))
    }

    pub(crate) fn issued_at(&self) -> Instant {
        // Relaxed: see `observe`.
        Instant::from_nanos(self.issued_at.load(Ordering::Relaxed))
    }

    /// For the owner, for its next submission and until the slot is freed.
    pub(crate) fn set_timeout(&self, timeout: Duration) {
        let nanos = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        // One more, because 0 means the set's. Relaxed: published by S1.
        self.timeout
            .store(nanos.saturating_add(1), Ordering::Relaxed);
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        // Relaxed: see `observe`. A visitor that reads what a later owner wrote fails at S3: only
        // one of its exchange and the one that made the later owner can find the expected state.
        match self.timeout.load(Ordering::Relaxed) {
            0 => None,
            one_more => Some(Duration::from_nanos(one_more - 1)),
        }
    }

    /// How often the slot was allocated, and how often it was freed.
    pub(crate) fn allocs_and_frees(&self) -> (u64, u64) {
        // Relaxed: a statistic.
        let uses = self.uses.load(Ordering::Relaxed);
        (uses.div_ceil(2), uses / 2)
    }

    /// Whether the slot is a tag, held or in flight. False for a bit that is only being tried.
    pub(crate) fn is_tag(&self) -> bool {
        // Relaxed: a thread that froze the set sees the last owner's store, ordered by the scan of
        // the bitmaps.
        self.uses.load(Ordering::Relaxed) % 2 == 1
    }

    #[inline]
    fn count_use(&self, ordering: Ordering) {
        // Relaxed, and no read-modify-write: the owner is the only writer, and the bit orders
        // owners.
        let uses = self.uses.load(Ordering::Relaxed);
        self.uses.store(uses + 1, ordering);
    }

    /// Whether the slot is in a phase that belongs to an owner. Asserted where an ownership begins,
    /// as `owned` asserts it where one ends.
    #[inline]
    pub(crate) fn is_owned(&self) -> bool {
        // Relaxed: see `owned`.
        SlotState::unpack(self.state.load(Ordering::Relaxed))
            .phase
            .has_owner()
    }

    /// The state as its owner sees it.
    #[inline]
    fn owned(&self) -> SlotState {
        // Relaxed: only the owner writes in these phases, and it became the owner by an acquiring
        // step (taking the bit, S2 or S4).
        let state = SlotState::unpack(self.state.load(Ordering::Relaxed));
        debug_assert!(state.phase.has_owner(), "only its owner ends an ownership");
        state
    }

    /// The bit has been admitted: the slot becomes a tag.
    #[inline]
    pub(crate) fn grant(&self) {
        debug_assert!(!self.is_tag(), "the bit was free");
        // Relaxed: a thread that sees a slot as a tag concludes nothing about its data.
        self.count_use(Ordering::Relaxed);
    }

    /// The state whose generation the next token names.
    #[inline]
    pub(crate) fn next_issue(&self) -> SlotState {
        let state = self.owned();
        if state.phase.is_fresh() {
            state
        } else {
            state.again()
        }
    }

    /// S6, by the owner: its timeout runs from now on.
    pub(crate) fn track(&self, stamp: Option<Instant>) -> Generation {
        self.begin_time(stamp, Phase::Tracked)
    }

    /// Whether S7 came, for the owner.
    pub(crate) fn is_reported(&self) -> bool {
        // Relaxed: no other data depends on it.
        SlotState::unpack(self.state.load(Ordering::Relaxed)).phase == Phase::Reported
    }

    /// S7. Returns whether this call reported it.
    pub(crate) fn report(&self, generation: Generation) -> bool {
        self.change(generation, Phase::Tracked, Phase::Reported)
            .is_ok()
    }

    /// S1. The caller gives up ownership: after the store another thread may own the slot, and free
    /// it with its set.
    #[inline]
    pub(crate) fn issue(&self, stamp: Option<Instant>) -> Generation {
        self.begin_time(stamp, Phase::InFlight)
    }

    /// S1 and S6.
    #[inline]
    fn begin_time(&self, stamp: Option<Instant>, phase: Phase) -> Generation {
        let generation = self.next_issue().generation;
        if let Some(stamp) = stamp {
            // Relaxed: published by the store below.
            self.issued_at.store(stamp.as_nanos(), Ordering::Relaxed);
        }
        let state = SlotState { generation, phase };
        // Ordering: S1, pairs with the Acquire of S2 and S4: the next owner sees what this one
        // wrote to the payload. S1 and S6 pair with the Acquire in `observe`: a thread that sees
        // the state sees the time stamp.
        self.state.store(state.pack(), Ordering::Release);
        generation
    }

    /// S3. Returns whether this call made the tag overdue.
    pub(crate) fn mark_timed_out(&self, generation: Generation) -> bool {
        self.change(generation, Phase::InFlight, Phase::Overdue)
            .is_ok()
    }

    /// One compare-exchange; returns the state found if it failed.
    #[inline]
    pub(crate) fn change(
        &self,
        generation: Generation,
        from: Phase,
        to: Phase,
    ) -> Result<(), SlotState> {
        let from = SlotState {
            generation,
            phase: from,
        }
        .pack();
        let to = SlotState {
            generation,
            phase: to,
        }
        .pack();
        // Ordering: the success of S2 and S4 pairs with S1 in `issue`; for S4 through S3, which as
        // a read-modify-write continues the release sequence of S1.
        let changed = self
            .state
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed);
        changed.map(drop).map_err(SlotState::unpack)
    }

    /// S5. Called by the owner, before it puts the bit.
    #[inline]
    pub(crate) fn free(&self) {
        let owned = self.owned();
        let state = SlotState {
            generation: owned.generation.next(),
            phase: match owned.phase {
                Phase::Handled => Phase::IdleAfterTimeout,
                _ => Phase::Idle,
            },
        };
        // Relaxed: only the owner writes it.
        if self.timeout.load(Ordering::Relaxed) != 0 {
            // Relaxed: a visitor that reads it grants more time.
            self.timeout.store(0, Ordering::Relaxed);
        }
        // Relaxed: the bit publishes the slot to the next owner; a late redeemer's compare-exchange
        // sees the newest value whatever the ordering.
        self.state.store(state.pack(), Ordering::Relaxed);
        // Ordering: Release pairs with the Acquire of K4 and K6 in `take_payload`: a thread that
        // sees that this is no longer a tag comes after its last owner, and sees its last state.
        self.count_use(Ordering::Release);
    }

    /// K4 and K6, when all handles are gone. Returns whether the caller now has the payload, to
    /// drop it: once for each slot that is not a tag, never for one that is.
    pub(crate) fn take_payload(&self) -> bool {
        // Ordering: Acquire pairs with the Release in `free`.
        if self.uses.load(Ordering::Acquire) % 2 == 1 {
            return false;
        }
        // Relaxed: the exchange checks again.
        let found = SlotState::unpack(self.state.load(Ordering::Relaxed));
        if !found.phase.is_fresh() {
            return false;
        }
        let absent = SlotState {
            phase: Phase::Absent,
            ..found
        };
        // Relaxed: if two threads come here, one fails; no data passes between them.
        self.state
            .compare_exchange(
                found.pack(),
                absent.pack(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// The generation wraps at 34 bits: the last generation behaves like the first.
    #[test]
    fn the_last_generation_is_followed_by_the_first() {
        let last = Generation::from_bits((1 << 34) - 2);
        let record = Record::new(last);
        record.present();
        assert_eq!(record.issue(None), last);
        assert_eq!(record.redeem(last), Ok(()));
        record.free();
        let first = Generation::from_bits(1);
        let idle = SlotState {
            generation: first,
            phase: Phase::Idle,
        };
        assert_eq!(record.observe(), idle);
        assert_eq!(record.redeem(last), Err(idle));
        assert_eq!(record.issue(None), first);
        assert!(record.redeem(last).is_err());
        assert_eq!(record.redeem(first), Ok(()));
    }

    /// A tracked tag is reported once, and belongs to its owner all the time.
    #[test]
    fn what_is_tracked_is_reported_once() {
        let record = Record::new(Generation::from_bits(7));
        record.present();
        record.track(None);
        let tracked = record.observe();
        assert!(record.redeem(tracked.generation).is_err() && !record.is_reported());
        assert!(record.report(tracked.generation) && !record.report(tracked.generation));
        assert!(record.is_reported());
        let token = record.issue(None);
        assert!(!record.report(tracked.generation));
        assert_eq!(record.redeem(token), Ok(()));
        record.track(None);
        record.free();
        assert_eq!(record.observe().phase, Phase::Idle);
    }

    #[test]
    fn every_state_survives_packing() {
        use Phase::{
            Absent, Handled, Idle, IdleAfterTimeout, InFlight, Overdue, Redeemed, Reported, Tracked,
        };
        let phases = [
            Idle,
            InFlight,
            Overdue,
            Redeemed,
            Handled,
            Absent,
            Tracked,
            Reported,
            IdleAfterTimeout,
        ];
        for phase in phases {
            for bits in [1, 2, (1 << 34) - 2] {
                let state = SlotState {
                    generation: Generation::from_bits(bits),
                    phase,
                };
                assert_eq!(SlotState::unpack(state.pack()), state);
            }
        }
    }
}
