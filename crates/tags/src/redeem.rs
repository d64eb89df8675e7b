//! From a token back to its tag. Refuses tokens that are stale, foreign, damaged, late, or redeemed
//! before.

use crate::error::RedeemError;
use crate::shared::Shared;
use crate::slot::{Phase, Record, SlotState};
use crate::tag::Tag;
use crate::token::{Generation, Token};
use inflight_sync::atomic::Ordering;

impl Record {
    /// S2. On success the caller owns the slot; otherwise returns the state that was found.
    #[inline]
    pub(crate) fn redeem(&self, generation: Generation) -> Result<(), SlotState> {
        self.change(generation, Phase::InFlight, Phase::Redeemed)
    }

    /// S4. On success the caller owns the slot; otherwise returns the state that was found.
    #[inline]
    pub(crate) fn redeem_timed_out(&self, generation: Generation) -> Result<(), SlotState> {
        self.change(generation, Phase::Overdue, Phase::Handled)
    }
}

/// Computes why a token was refused from the state of its slot.
type Why = fn(SlotState, Token) -> RedeemError;

impl<T> Shared<T> {
    #[inline]
    pub(crate) fn redeem(&self, token: u64) -> Result<Tag<T>, RedeemError> {
        self.redeem_by(token, Record::redeem, why_not_completed)
    }

    pub(crate) fn redeem_timed_out(&self, token: u64) -> Result<Tag<T>, RedeemError> {
        self.redeem_by(token, Record::redeem_timed_out, why_not_timed_out)
    }

    /// Finds the token's slot and makes its tag, if `step`, S2 or S4, makes the caller its owner.
    #[inline]
    fn redeem_by(
        &self,
        token: u64,
        step: impl FnOnce(&Record, Generation) -> Result<(), SlotState>,
        why: Why,
    ) -> Result<Tag<T>, RedeemError> {
        let token = Token::decode(token);
        let Some(slot) = self.slots.get(token.slot.from(self.first_slot)) else {
            return Err(self.refuse(token, None, why));
        };
        // Read before the exchange, which delays later reads.
        let bitmap = slot.bitmap;
        match step(&slot.record, token.generation) {
            // SAFETY: `step` is S2 or S4. It succeeded, so the slot is the caller's by
            // PROTOCOL.md, "One owner".
            Ok(()) => Ok(unsafe { Tag::own(slot, bitmap) }),
            Err(found) => Err(self.refuse(token, Some(found), why)),
        }
    }

    /// `found` is the state of the slot, if the set has that slot.
    #[cold]
    fn refuse(&self, token: Token, found: Option<SlotState>, why: Why) -> RedeemError {
        let tail = token.tail();
        let error = match found {
            _ if token.is_none() => RedeemError::NoToken { token: tail },
            Some(found) if found.phase != Phase::Absent => why(found, token),
            _ if token.slot.set() == self.first_slot.set() => {
                RedeemError::OutOfRange { token: tail }
            }
            _ => RedeemError::Foreign { token: tail },
        };
        if matches!(error, RedeemError::TimedOut { .. }) {
            // Relaxed: a statistic.
            self.late_completions.fetch_add(1, Ordering::Relaxed);
        }
        // Relaxed: a statistic.
        self.redeem_errors.fetch_add(1, Ordering::Relaxed);
        error
    }
}

/// Why S2 failed.
fn why_not_completed(found: SlotState, named: Token) -> RedeemError {
    let token = named.tail();
    match found.phase {
        Phase::IdleAfterTimeout if found.generation == named.generation.next() => {
            RedeemError::TimedOut { token }
        }
        _ if found.generation != named.generation => RedeemError::Stale { token },
        Phase::Overdue | Phase::Handled => RedeemError::TimedOut { token },
        _ => RedeemError::NotInFlight { token },
    }
}

/// Why S4 failed.
fn why_not_timed_out(found: SlotState, named: Token) -> RedeemError {
    let token = named.tail();
    match found.phase {
        _ if found.generation != named.generation => RedeemError::Stale { token },
        Phase::InFlight => RedeemError::NotTimedOut { token },
        _ => RedeemError::NotInFlight { token },
    }
}
