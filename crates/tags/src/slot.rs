//! One tag's slot: the payload, and the state word that says whose it is.
//!
//! The word is `generation << 3 | phase`. The events, with the names the models use:
//!
//! ```text
//!            S1 issue            S2 redeem
//!   Idle ----------------> InFlight --------------> Redeemed
//!    ^                        | S3 mark                |
//!    |                        v          S4 take       |
//!    |                     Overdue --------------> Handled
//!    |                                                 |
//!    +--- S5 retire: from every phase that has an owner, generation + 1
//! ```
//!
//! Idle, Redeemed and Handled belong to the one `Tag` (or to nobody, if the bit is free). S1 and
//! S5 are therefore plain stores of the owner. S2, S3 and S4 are each one compare-exchange on an
//! exact generation and phase: of any number of racers exactly one wins. S1 from Redeemed or
//! Handled moves the generation too, so that each token names one submission and a late completion
//! of an earlier one finds nothing.

use crate::bitmaps::Bitmaps;
use crate::error::RedeemError;
use crate::token::{Generation, Place};
use inflight_sync::Arc;
use inflight_sync::atomic::{AtomicU64, Ordering};
use inflight_sync::cell::UnsafeCell;
use inflight_sync::time::Instant;

const PHASE_BITS: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Phase {
    /// Never issued in this generation. The slot is free, or its owner has not submitted yet.
    Idle = 0,
    /// A token is out; nobody has access to the payload.
    InFlight = 1,
    /// In flight, and whoever handles timeouts may take it; its completion may not.
    Overdue = 2,
    /// A completion gave it back to an owner.
    Redeemed = 3,
    /// The handler of its timeout owns it.
    Handled = 4,
}

impl Phase {
    /// PROTOCOL.md, "One owner".
    const fn has_owner(self) -> bool {
        !matches!(self, Self::InFlight | Self::Overdue)
    }
}

/// The value of a state word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) generation: Generation,
    pub(crate) phase: Phase,
}

impl State {
    const fn pack(self) -> u64 {
        (self.generation.bits() << PHASE_BITS) | self.phase as u64
    }

    const fn unpack(word: u64) -> Self {
        let phase = match word & ((1 << PHASE_BITS) - 1) {
            0 => Phase::Idle,
            1 => Phase::InFlight,
            2 => Phase::Overdue,
            3 => Phase::Redeemed,
            _ => Phase::Handled,
        };
        Self {
            generation: Generation::from_bits(word >> PHASE_BITS),
            phase,
        }
    }
}

/// What is known about a slot without its payload.
#[derive(Debug)]
pub(crate) struct Record {
    state: AtomicU64,
    /// When the tag was issued, in nanoseconds of the set's clock. Written before S1.
    issued_at: AtomicU64,
    /// How often the slot was given out and given back: odd while it is a tag. Only its owner
    /// writes it.
    turns: AtomicU64,
}

impl Record {
    fn new(generation: Generation) -> Self {
        let state = State {
            generation,
            phase: Phase::Idle,
        };
        Self {
            state: AtomicU64::new(state.pack()),
            issued_at: AtomicU64::new(0),
            turns: AtomicU64::new(0),
        }
    }

    /// The state as an observer sees it.
    pub(crate) fn observe(&self) -> State {
        // Ordering: pairs with S1 in `issue`, so that the observer sees the time stamp of this
        // issue or of a later one, never of an earlier one.
        State::unpack(self.state.load(Ordering::Acquire))
    }

    pub(crate) fn issued_at(&self) -> Instant {
        // Relaxed: see `observe`.
        Instant::from_nanos(self.issued_at.load(Ordering::Relaxed))
    }

    /// How often the slot was given out, and how often it was given back.
    pub(crate) fn allocs_and_frees(&self) -> (u64, u64) {
        // Relaxed: a statistic.
        let turns = self.turns.load(Ordering::Relaxed);
        (turns.div_ceil(2), turns / 2)
    }

    /// Whether the slot is a tag, held or in flight. False for a bit that is only being tried.
    pub(crate) fn is_tag(&self) -> bool {
        // Relaxed: who froze the set sees the last owner's store, ordered by the scan of the
        // bitmaps.
        self.turns.load(Ordering::Relaxed) % 2 == 1
    }

    fn turn(&self) {
        // Relaxed, and no read-modify-write: the owner is the only writer, and the bit orders
        // owners.
        let turns = self.turns.load(Ordering::Relaxed);
        self.turns.store(turns + 1, Ordering::Relaxed);
    }

    /// Whether the slot is in a phase that belongs to an owner. Asserted where an ownership begins,
    /// as `owned` does where it ends.
    pub(crate) fn is_owned(&self) -> bool {
        // Relaxed: see `owned`.
        State::unpack(self.state.load(Ordering::Relaxed))
            .phase
            .has_owner()
    }

    /// The state as its owner sees it.
    fn owned(&self) -> State {
        // Relaxed: only the owner writes in these phases, and it became the owner by an acquiring
        // step (taking the bit, S2 or S4).
        let state = State::unpack(self.state.load(Ordering::Relaxed));
        debug_assert!(state.phase.has_owner(), "only its owner ends an ownership");
        state
    }

    /// The bit has been admitted: the slot becomes a tag.
    pub(crate) fn grant(&self) {
        debug_assert!(!self.is_tag(), "the bit was free");
        self.turn();
    }

    /// S1. The caller gives up ownership: from the store on, the slot may belong to somebody else,
    /// and be freed with its set by them.
    pub(crate) fn issue(&self, now: Option<Instant>) -> Generation {
        let State { generation, phase } = self.owned();
        let generation = if phase == Phase::Idle {
            generation
        } else {
            generation.next()
        };
        if let Some(now) = now {
            // Relaxed: published by S1.
            self.issued_at.store(now.as_nanos(), Ordering::Relaxed);
        }
        let state = State {
            generation,
            phase: Phase::InFlight,
        };
        // Ordering: S1, pairs with the Acquire of S2 and S4: the next owner sees what this one
        // wrote to the payload.
        self.state.store(state.pack(), Ordering::Release);
        generation
    }

    /// S2. On success the caller owns the slot.
    pub(crate) fn redeem(&self, generation: Generation) -> Result<(), RedeemError> {
        self.change(generation, Phase::InFlight, Phase::Redeemed)
            .map_err(|found| match found.phase {
                _ if found.generation != generation => RedeemError::Stale,
                Phase::Overdue | Phase::Handled => RedeemError::TimedOut,
                Phase::Idle | Phase::Redeemed | Phase::InFlight => RedeemError::NotInFlight,
            })
    }

    /// S3. Whether this call made the tag overdue.
    pub(crate) fn mark(&self, generation: Generation) -> bool {
        self.change(generation, Phase::InFlight, Phase::Overdue)
            .is_ok()
    }

    /// S4. On success the caller owns the slot.
    pub(crate) fn take_overdue(&self, generation: Generation) -> Result<(), RedeemError> {
        self.change(generation, Phase::Overdue, Phase::Handled)
            .map_err(|found| match found.phase {
                _ if found.generation != generation => RedeemError::Stale,
                Phase::InFlight => RedeemError::NotTimedOut,
                _ => RedeemError::NotInFlight,
            })
    }

    /// One compare-exchange; the state found instead if it failed.
    fn change(&self, generation: Generation, from: Phase, to: Phase) -> Result<(), State> {
        let from = State {
            generation,
            phase: from,
        }
        .pack();
        let to = State {
            generation,
            phase: to,
        }
        .pack();
        // Ordering: success of S2 and S4 pairs with S1 in `issue`, for S4 through S3, which as a
        // read-modify-write continues the release sequence of S1.
        let changed = self
            .state
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed);
        changed.map(drop).map_err(State::unpack)
    }

    /// S5. Called by the owner, before it gives the bit back.
    pub(crate) fn retire(&self) {
        let generation = self.owned().generation.next();
        let state = State {
            generation,
            phase: Phase::Idle,
        };
        self.turn();
        // Relaxed: the bit hands the slot to the next owner; a late redeemer's compare-exchange
        // sees the newest value whatever the ordering.
        self.state.store(state.pack(), Ordering::Relaxed);
    }
}

/// A slot: its place, its record and its payload.
///
/// It keeps the bitmaps alive. The set, each tag and each tag in flight own one count of their slot
/// and keep it alive. A count per slot rather than one per set: it lies on a line the tag's owner
/// writes anyway, where a common count would be the one line all CPUs fight for.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    pub(crate) record: Record,
    pub(crate) bitmaps: Arc<Bitmaps>,
    pub(crate) hw_queue: usize,
    pub(crate) tag: usize,
    payload: UnsafeCell<T>,
}

// SAFETY: the payload is reached only by the one owner of the slot, through `payload` and
// `payload_mut`, whose callers answer for that; moving from owner to owner is moving between
// threads, hence T: Send. Everything else in the slot is Sync.
unsafe impl<T: Send> Sync for Slot<T> {}

impl<T> Slot<T> {
    pub(crate) fn new(bitmaps: Arc<Bitmaps>, hw_queue: usize, tag: usize, payload: T) -> Self {
        Self {
            record: Record::new(Generation::start()),
            bitmaps,
            hw_queue,
            tag,
            payload: UnsafeCell::new(payload),
        }
    }

    /// The payload, for the slot's owner.
    pub(crate) fn payload(&self) -> *const T {
        // The pointer escapes `with`, for the tag's references outlive this call. So a model sees
        // an access at this instant only: it reports two owners who come here unordered, not one
        // who keeps a reference too long. The borrow checker does that, on the tag.
        self.payload.with(|payload| payload)
    }

    /// The payload, for the slot's owner, who has no other reference to it.
    pub(crate) fn payload_mut(&self) -> *mut T {
        // It escapes, as in `payload`.
        self.payload.with_mut(|payload| payload)
    }

    /// What all tokens of this slot have in common.
    pub(crate) fn place(&self) -> Place {
        Place {
            set: self.bitmaps.set_id(),
            index: self.bitmaps.geometry().flat(self.hw_queue, self.tag),
        }
    }

    /// Gives the slot back. Called once by each owner that does not issue.
    pub(crate) fn free(&self) {
        self.record.retire();
        self.bitmaps.put(self.hw_queue, self.tag);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// The generation wraps at 34 bits: what was true of the last generation is true of the first.
    #[test]
    fn the_last_generation_is_followed_by_the_first() {
        let last = Generation::from_bits((1 << 34) - 2);
        let record = Record::new(last);
        assert_eq!(record.issue(None), last);
        assert_eq!(record.redeem(last), Ok(()));
        record.retire();
        let first = Generation::from_bits(1);
        assert_eq!(
            record.observe(),
            State {
                generation: first,
                phase: Phase::Idle
            }
        );
        assert_eq!(record.redeem(last), Err(RedeemError::Stale));
        assert_eq!(record.issue(None), first);
        assert_eq!(record.redeem(last), Err(RedeemError::Stale));
        assert_eq!(record.redeem(first), Ok(()));
    }

    #[test]
    fn issuing_again_makes_a_new_token() {
        let record = Record::new(Generation::from_bits(7));
        let first = record.issue(None);
        assert!(record.mark(first));
        assert_eq!(record.take_overdue(first), Ok(()));
        let second = record.issue(None);
        assert_ne!(first, second);
        assert_eq!(
            record.redeem(first),
            Err(RedeemError::Stale),
            "the late completion"
        );
        assert_eq!(record.redeem(second), Ok(()), "the one of the second try");
        assert_ne!(record.issue(None), second);
    }

    #[test]
    fn every_state_survives_packing() {
        use Phase::{Handled, Idle, InFlight, Overdue, Redeemed};
        for phase in [Idle, InFlight, Overdue, Redeemed, Handled] {
            for bits in [1, 2, (1 << 34) - 2] {
                let state = State {
                    generation: Generation::from_bits(bits),
                    phase,
                };
                assert_eq!(State::unpack(state.pack()), state);
            }
        }
    }
}
