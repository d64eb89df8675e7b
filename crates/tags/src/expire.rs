//! Requests that take too long, found by whoever asks: no thread and no timer.

use crate::set::{Shared, TagSet};
use crate::slot::Phase;
use crate::token::Token;
use inflight_sync::time::Instant;
use std::time::Duration;

/// The timeout of requests that say nothing else, as in blk-mq.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

impl<T> Shared<T> {
    fn expire(&self, mut f: impl FnMut(u64)) -> Option<Instant> {
        let now = self.bitmaps.age_time()?;
        let mut next: Option<Instant> = None;
        for slot in self.slots() {
            let state = slot.record.observe();
            if state.phase != Phase::InFlight {
                continue;
            }
            // Of this issue or a later one. If of a later one, the mark fails.
            let timeout = slot.record.timeout().unwrap_or(self.timeout);
            // The stamp is the end of a tick, which may not have come yet.
            let deadline = slot.record.issued_at().min(now) + timeout;
            if deadline > now {
                next = Some(next.map_or(deadline, |next| next.min(deadline)));
            } else if slot.record.mark(state.generation) {
                let (generation, place) = (state.generation, slot.place());
                f(Token { generation, place }.encode());
            }
        }
        next
    }
}

impl<T: Send + 'static> TagSet<T> {
    /// Marks every request whose time is up, and hands its token to `f`: each once, to one caller.
    /// Returns when the next one will be up, of those in flight now.
    ///
    /// Whoever drives an engine calls it when that moment has come, and at the latest after the
    /// shortest timeout in use, since what is submitted after a call is not in its answer. The
    /// moment is one of the set's [clock](TagSet::clock): how long to wait
    /// is `next - set.clock().now()`, which is zero if it has passed. A request's time begins with
    /// [`into_token`](crate::Tag::into_token) and is the builder's
    /// [`timeout`](crate::TagSetBuilder::timeout) or its own
    /// [`set_timeout`](crate::Tag::set_timeout). A completion that comes before the mark wins; one
    /// that comes after gets [`TimedOut`](crate::RedeemError::TimedOut), and the token gives the
    /// tag by [`redeem_timed_out`](TagSet::redeem_timed_out). Until then it is in flight, and a
    /// freeze waits for it: who freezes keeps calling this. `f` may do that at once, or whatever
    /// else it likes with the set.
    ///
    /// With the system's clock a request's time may be taken to begin by as much as a tick (1 to
    /// 10 ms) later than it did, never earlier; see [`age`](crate::InFlight::age).
    ///
    /// Nothing expires in a set built with [`ages(false)`](crate::TagSetBuilder::ages).
    ///
    /// The idea is the timeout work of blk-mq.
    ///
    /// ```
    /// # use inflight_tags::{AllocOptions, RedeemError, TagSet};
    /// use inflight_sync::time::Clock;
    /// use std::time::Duration;
    /// let clock = Clock::manual();
    /// let set = TagSet::builder().depth(2).clock(clock.clone()).build(|_, _| ())?;
    /// let token = set.add_queue("nvme0n1").try_alloc(AllocOptions::new())?.into_token();
    /// let next = set.expire(|_| unreachable!("it has just begun"));
    /// assert_eq!(next, Some(clock.now() + Duration::from_secs(30)));
    /// clock.advance(Duration::from_secs(30));
    /// let mut late = Vec::new();
    /// assert_eq!(set.expire(|token| late.push(token)), None);
    /// assert_eq!(late, [token]);
    /// assert_eq!(set.redeem(token).unwrap_err(), RedeemError::TimedOut);
    /// drop(set.redeem_timed_out(token)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    // Why: it acts, and who only wants that may know the next moment by itself.
    #[allow(clippy::must_use_candidate)]
    pub fn expire(&self, f: impl FnMut(u64)) -> Option<Instant> {
        self.shared().expire(f)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::options::AllocOptions;
    use inflight_sync::time::Clock;
    use std::collections::BTreeSet;

    #[test]
    fn each_request_expires_once_at_its_own_time() {
        let clock = Clock::manual();
        let limit = Duration::from_secs(5);
        let set = TagSet::builder().depth(4).clock(clock.clone());
        let set = set.timeout(limit).build(|_, _| ()).unwrap();
        let dev = set.add_queue("q");
        let alloc = || dev.try_alloc(AllocOptions::new()).unwrap();
        assert_eq!(set.expire(|_| panic!("nothing is in flight")), None);
        let mut short = alloc();
        short.set_timeout(Duration::from_secs(1));
        let (short, usual, held) = (short.into_token(), alloc().into_token(), alloc());
        let expired = || {
            let mut tokens = BTreeSet::new();
            let next = set.expire(|token| assert!(tokens.insert(token)));
            (tokens, next)
        };
        clock.advance(Duration::from_secs(1));
        let last = clock.now() + Duration::from_secs(4);
        assert_eq!(expired(), ([short].into(), Some(last)));
        assert_eq!(expired(), ([].into(), Some(last)), "once");

        // A freeze waits for what has expired until somebody takes it.
        assert!(set.try_freeze().is_none());
        drop(set.redeem_timed_out(short).unwrap());
        // The slot's next use has the usual time again, and so has a second submission.
        let again = alloc().into_token();
        clock.advance(Duration::from_secs(4));
        let next = Some(clock.now() + Duration::from_secs(1));
        assert_eq!(expired(), ([usual].into(), next));
        drop(set.redeem(again).unwrap());
        let tag = set.redeem_timed_out(usual).unwrap();
        let usual = tag.into_token();
        let next = Some(clock.now() + limit);
        assert_eq!(expired(), ([].into(), next), "submitted anew");
        drop((set.redeem(usual).unwrap(), held));
        assert_eq!(expired(), ([].into(), None));
        assert!(set.try_freeze().is_some());
    }

    #[test]
    fn a_timeout_of_nothing_is_over_at_once() {
        let set = TagSet::builder().depth(1).build(|_, _| ()).unwrap();
        let dev = set.add_queue("q");
        // The system's clock: a stamp lies anywhere within its tick.
        for _ in 0..10_000 {
            let mut tag = dev.try_alloc(AllocOptions::new()).unwrap();
            tag.set_timeout(Duration::ZERO);
            let token = tag.into_token();
            set.expire(|late| assert_eq!(late, token));
            drop(set.redeem_timed_out(token).unwrap());
        }
    }
}
