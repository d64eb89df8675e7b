//! The way from a token back to its tag: where a stale, a foreign and a late token is refused.

use crate::error::RedeemError;
use crate::shared::Shared;
use crate::slot::Record;
use crate::tag::Tag;
use crate::token::Token;
use inflight_sync::atomic::Ordering;

impl<T> Shared<T> {
    /// Finds the token's slot and makes its tag, if `step`, S2 or S4, makes the caller its owner.
    #[inline]
    pub(crate) fn claim(
        &self,
        token: u64,
        step: impl FnOnce(&Record, Token) -> Result<(), RedeemError>,
    ) -> Result<Tag<T>, RedeemError> {
        let token = Token::decode(token);
        let Some(slot) = self.slots.get(token.place.from(self.first_place)) else {
            return Err(self.not_here(token));
        };
        // Why: read before the exchange, which holds up what comes after it.
        let bitmap = slot.bitmap;
        match step(&slot.record, token) {
            // SAFETY: `step` is S2 or S4. It succeeded, so the slot is the caller's by
            // PROTOCOL.md, "One owner".
            Ok(()) => Ok(unsafe { Tag::own(slot, bitmap) }),
            Err(_) if slot.record.is_absent() || token.is_none() => Err(self.not_here(token)),
            Err(error) => Err(self.refuse(error)),
        }
    }

    /// The set has no slot in this place.
    #[cold]
    fn not_here(&self, token: Token) -> RedeemError {
        let (none, set) = (token.is_none(), token.place.set());
        let token = token.tail();
        self.refuse(if none {
            RedeemError::NoToken { token }
        } else if set == self.first_place.set() {
            RedeemError::OutOfRange { token }
        } else {
            RedeemError::Foreign { token }
        })
    }

    pub(crate) fn redeem_timed_out(&self, token: u64) -> Result<Tag<T>, RedeemError> {
        self.claim(token, Record::take_overdue)
    }

    #[cold]
    fn refuse(&self, error: RedeemError) -> RedeemError {
        if matches!(error, RedeemError::TimedOut { .. }) {
            // Relaxed: a statistic.
            self.late_completions.fetch_add(1, Ordering::Relaxed);
        }
        // Relaxed: a statistic.
        self.redeem_errors.fetch_add(1, Ordering::Relaxed);
        error
    }
}
