//! Requests that take too long, found when a caller asks.

mod future;

use future::Sleeping;
pub use future::{ExpiredOwned, NextExpired};

use crate::error::{ExpireError, RedeemError};
use crate::expirers::{Interval, SHORT_SLEEP};
use crate::last_handle::Handle;
use crate::set::TagSet;
use crate::shared::Shared;
use crate::slot::{Phase, Slot};
use crate::tag::Tag;
use crate::tag_maps::TagMaps;
use crate::token::TokenTail;
use inflight_sync::time::Instant;
use std::time::Duration;

/// Nothing is late.
#[derive(Debug)]
struct LookAgain {
    /// At that time.
    at: Instant,
    /// Or earlier, when this changes.
    seen: Seen,
    /// Whether that is the whole interval.
    whole: bool,
}

impl LookAgain {
    /// The interval that the caller has slept for, if nothing has changed.
    fn slept(&self) -> Option<Interval> {
        self.whole.then_some(self.seen.interval)
    }
}

/// What a waiter for timeouts saw before it looked. A change of it wakes the waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    closed: bool,
    interval: Interval,
}

impl Seen {
    fn now(bitmaps: &TagMaps) -> Self {
        Self {
            closed: bitmaps.gate.state().is_set_closed(),
            interval: bitmaps.expirers.interval(),
        }
    }
}

/// The result of checking one slot.
enum Found {
    /// Its time is up, and this check reports it.
    Overdue(Overdue),
    /// Its time will be up.
    Next(Instant),
}

/// A request whose time is up.
#[derive(Clone, Copy)]
struct Overdue {
    token: u64,
    /// Whether an owner holds the tag: the token is then only for errors.
    held: bool,
    hw_queue: usize,
    index: usize,
}

impl Overdue {
    const fn token(&self) -> Option<u64> {
        if self.held { None } else { Some(self.token) }
    }
}

/// A walk over the slots.
struct Walk {
    now: Instant,
    /// The next slot.
    at: usize,
    /// The earliest deadline of the requests seen that are not late.
    next: Option<Instant>,
    /// The shortest timeout that a slot seen has of its own.
    shortest: Option<Duration>,
    /// Whether it reports requests that their owners track.
    tracked: bool,
}

impl<T> Shared<T> {
    /// `None` if the set keeps no ages.
    fn begin_walk(&self) -> Option<Walk> {
        self.bitmaps.age_time().map(|now| Walk {
            now,
            at: 0,
            next: None,
            shortest: None,
            tracked: true,
        })
    }

    /// The next late request.
    fn next_late(&self, walk: &mut Walk) -> Option<Overdue> {
        while let Some(slot) = self.slots.get(walk.at) {
            walk.at += 1;
            let own = slot.record.timeout();
            walk.shortest = walk.shortest.into_iter().chain(own).min();
            match self.look_at(slot, walk) {
                Some(Found::Overdue(late)) => return Some(late),
                Some(Found::Next(deadline)) => {
                    walk.next = Some(walk.next.map_or(deadline, |next| next.min(deadline)));
                }
                None => {}
            }
        }
        None
    }

    fn look_at(&self, slot: &Slot<T>, walk: &Walk) -> Option<Found> {
        let now = walk.now;
        let state = slot.record.observe();
        if !matches!(state.phase, Phase::InFlight | Phase::Tracked) {
            return None;
        }
        // The values are of this issue or of a later one. If of a later one, setting the mark
        // fails.
        let timeout = slot.record.timeout().unwrap_or(self.timeout);
        // The stamp is the end of a tick, which may be in the future.
        let deadline = slot.record.issued_at().min(now) + timeout;
        if deadline > now {
            return Some(Found::Next(deadline));
        }
        let generation = state.generation;
        let held = match state.phase {
            Phase::InFlight if slot.record.mark_timed_out(generation) => false,
            Phase::Tracked if walk.tracked && slot.record.report(generation) => true,
            _ => return None,
        };
        Some(Found::Overdue(Overdue {
            token: slot.id.token(generation),
            held,
            hw_queue: slot.hw_queue(),
            index: slot.tag(),
        }))
    }

    /// See `look_for_expired`.
    fn wait_step(&self, slept: Option<Interval>) -> Result<Option<Overdue>, LookAgain> {
        let seen = Seen::now(&self.bitmaps);
        let mut next = None;
        if let Some(mut walk) = self.begin_walk() {
            if let Some(late) = self.next_late(&mut walk) {
                return Ok(Some(late));
            }
            let expirers = &self.bitmaps.expirers;
            expirers.correct(seen.interval, walk.shortest, slept);
            next = walk.next;
        }
        if next.is_none() && seen.closed && self.in_use() == 0 {
            return Ok(None);
        }
        let longest = if seen.closed {
            SHORT_SLEEP
        } else {
            seen.interval.get().min(self.timeout.max(SHORT_SLEEP))
        };
        let most = self.bitmaps.clock.now() + longest;
        Err(LookAgain {
            at: next.map_or(most, |next| next.min(most)),
            seen,
            whole: next.is_none_or(|next| next >= most),
        })
    }
}

/// A request whose time is up: see [`TagSet::expired`].
///
/// It is returned to one caller. If it was in flight, its completion is refused from now on
/// ([`RedeemError::TimedOut`]), and [`redeem`](Expired::redeem) returns the tag to the handler of
/// the timeout; until then the tag is in flight, and a freeze waits for it.
///
/// # If it is dropped without `redeem`
///
/// The request stays marked, and is not returned again: its tag stays in flight, and freezes wait
/// for it. This happens if the task that handles it is cancelled at an `await`, for example while
/// it waits for the device to cancel the request. Nothing frees the tag by itself, because the
/// device may still use its buffers. So keep the [token](Expired::token) elsewhere before the
/// `await`, and take the tag by it when the device has finished:
///
/// ```
/// # use inflight_tags::TagSet;
/// # use std::time::Duration;
/// # let set = TagSet::builder().depth(1).timeout(Duration::ZERO).build(|_, _| ())?;
/// # let _token = set.add_tenant("nvme0n1")?.try_alloc()?.into_token();
/// let late = set.try_expired().expect("the time is up");
/// assert_eq!((late.hw_queue(), late.index()), (0, 0));
/// let token = late.token().expect("it was in flight");
/// drop(late); // its task was cancelled
/// assert!(set.try_expired().is_none());
/// let tag = set.redeem_timed_out(token)?; // the device has finished
/// drop(tag);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nobody else is told that this request's time is up"]
pub struct Expired<T> {
    shared: Handle<T>,
    late: Overdue,
}

impl<T: Send + 'static> Expired<T> {
    /// Returns its token; `None` if its tag is held by an owner that [tracks](Tag::track) it.
    #[must_use]
    pub const fn token(&self) -> Option<u64> {
        self.late.token()
    }

    /// Returns its number: the token, or what [`track`](Tag::track) has returned. The next request
    /// of the slot has another one.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.late.token
    }

    /// Returns its hardware queue.
    #[must_use]
    pub const fn hw_queue(&self) -> usize {
        self.late.hw_queue
    }

    /// Returns the index of its tag in the hardware queue.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.late.index
    }

    /// Returns the tag to the handler of the timeout: once.
    ///
    /// # Errors
    ///
    /// [`RedeemError::Held`] if an owner holds the tag; the errors of
    /// [`TagSet::redeem_timed_out`] if it was taken by its token before.
    pub fn redeem(self) -> Result<Tag<T>, RedeemError> {
        let token = self.late.token;
        if self.late.held {
            let token = token.into();
            return Err(RedeemError::Held { token });
        }
        self.shared.redeem_timed_out(token)
    }
}

inflight_sync::debug_fields!([T] Expired<T>: |this|
    hw_queue = this.late.hw_queue, index = this.late.index,
    token = this.late.token().map(TokenTail::from));

impl<T: Send + 'static> TagSet<T> {
    /// Returns the next request whose time is up, marked as timed out: each goes to one caller.
    /// `None` if there is none now.
    ///
    /// A request's time begins with [`into_token`](Tag::into_token), or [`track`](Tag::track), and
    /// is the builder's [`timeout`](crate::TagSetBuilder::timeout) or its own
    /// [`set_timeout`](Tag::set_timeout). A completion before the mark wins; one after it gets
    /// [`TimedOut`](RedeemError::TimedOut). Nothing expires in a set built with
    /// [`ages(false)`](crate::TagSetBuilder::ages). Reads each slot there may be.
    ///
    /// With the system's clock a request's time may begin as much as a tick (1 to 10 ms) too late,
    /// never too early; see [`InFlight::age`](crate::InFlight::age).
    #[must_use = "the request is marked: nobody else will hear of it"]
    pub fn try_expired(&self) -> Option<Expired<T>> {
        self.iter_expired().next()
    }

    /// Returns all requests whose time is up now, one after the other, by one pass over the slots.
    ///
    /// ```
    /// # use inflight_tags::TagSet;
    /// use std::time::Duration;
    /// let set = TagSet::builder().timeout(Duration::ZERO).build(|_, _| ())?;
    /// let dev = set.add_tenant("sda")?;
    /// let tags = dev.try_alloc_batch(3).into_iter();
    /// let _tokens: Vec<u64> = tags.map(|tag| tag.into_token()).collect();
    /// let handled: Vec<_> = set.iter_expired().filter_map(|late| late.redeem().ok()).collect();
    /// assert_eq!(handled.len(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iter_expired(&self) -> impl Iterator<Item = Expired<T>> + '_ {
        let mut walk = self.shared.begin_walk();
        std::iter::from_fn(move || {
            let late = self.shared.next_late(walk.as_mut()?)?;
            Some(self.expired_request(late))
        })
    }

    /// Waits as a task for the next request of [`try_expired`](TagSet::try_expired). `None` when
    /// the set is [closed](TagSet::close) and no tag is in use: the end of a loop.
    ///
    /// It checks the slots when the next time will be up, and after a second at the latest, because
    /// requests with shorter times may have been submitted meanwhile. If the set's timeout is
    /// shorter, or a tag that is not yet free has a shorter [one of its own](Tag::set_timeout),
    /// that takes the place of the second, but not less than 10 ms. So a request is returned at
    /// most that much later than its time is up. [`close`](TagSet::close) wakes it; from then on it
    /// checks every 10 ms. The first future that has to wait **starts a thread**, one for all
    /// futures of the set, which sleeps in their place and ends with the set. A program with a
    /// timer of its own calls [`expire`](TagSet::expire) instead.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time: a late request goes to the next caller.
    ///
    /// ```
    /// # use inflight_tags::{ExpireError, TagSet};
    /// use std::time::Duration;
    /// let short = Duration::from_millis(1);
    /// let set = TagSet::builder().timeout(short).build(|_, _| ())?;
    /// let dev = set.add_tenant("sda")?;
    /// assert_eq!(set.expired_timeout(short).unwrap_err(), ExpireError::TimedOut);
    /// let _token = dev.try_alloc()?.into_token();
    /// drop(set.expired_blocking().expect("the set is open").redeem()?);
    /// let _token = dev.try_alloc()?.into_token();
    /// set.close(); // nothing more is submitted
    /// inflight_sync::block_on(async {
    ///     while let Some(late) = set.expired().await {
    ///         drop(late.redeem()); // cancelled at the device before
    ///     }
    /// });
    /// assert_eq!(set.in_use(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn expired(&self) -> NextExpired<'_, T> {
        let sleeping = Sleeping::default();
        NextExpired {
            set: self,
            sleeping,
        }
    }

    /// Waits as [`expired`](TagSet::expired), for one request after the other; to be kept in a
    /// struct. It owns a handle of the set, and drops it when the set is closed and no tag is in
    /// use.
    pub fn expired_owned(&self) -> ExpiredOwned<T> {
        let (set, sleeping) = (Some(self.clone()), Sleeping::default());
        ExpiredOwned { set, sleeping }
    }

    /// Waits as [`expired`](TagSet::expired); the thread sleeps, and no other thread is started.
    #[must_use = "the request is marked: nobody else will hear of it"]
    pub fn expired_blocking(&self) -> Option<Expired<T>> {
        self.expired_until(None).unwrap_or_default()
    }

    /// Waits as [`expired`](TagSet::expired); the thread sleeps at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`ExpireError::TimedOut`].
    pub fn expired_timeout(&self, timeout: Duration) -> Result<Option<Expired<T>>, ExpireError> {
        let deadline = self.shared.bitmaps.clock.now() + timeout;
        self.expired_until(Some(deadline))
    }

    fn expired_until(&self, deadline: Option<Instant>) -> Result<Option<Expired<T>>, ExpireError> {
        let clock = &self.shared.bitmaps.clock;
        let mut slept = None;
        loop {
            match self.look_for_expired(slept) {
                Ok(late) => return Ok(late),
                Err(_) if deadline.is_some_and(|deadline| clock.now() >= deadline) => {
                    return Err(ExpireError::TimedOut);
                }
                Err(again) => {
                    let until = deadline.map_or(again.at, |deadline| deadline.min(again.at));
                    let bitmaps = &self.shared.bitmaps;
                    let unchanged = || Seen::now(bitmaps) == again.seen;
                    let changed = &bitmaps.expirers.changed;
                    let has_changed = changed.wait_while_until(clock, until, unchanged);
                    slept = again.slept().filter(|_| !has_changed);
                }
            }
        }
    }

    /// One step of a waiter for timeouts: the next request, or the end, or the time of the next
    /// check.
    fn look_for_expired(&self, slept: Option<Interval>) -> Result<Option<Expired<T>>, LookAgain> {
        let late = self.shared.wait_step(slept)?;
        Ok(late.map(|late| self.expired_request(late)))
    }

    fn expired_request(&self, late: Overdue) -> Expired<T> {
        Expired {
            shared: self.shared.clone(),
            late,
        }
    }

    /// Marks each request in flight whose time is up, and passes its token to `f`: each once, to
    /// one caller. Returns the time when the next of the present requests will be up.
    ///
    /// For programs with a timer of their own: call it again at that time, and at the latest after
    /// the shortest timeout in use, because the result does not include later submissions. The time
    /// is one of the set's [clock](TagSet::clock): the time to wait is `next - set.clock().now()`,
    /// which is zero if it has passed. [`redeem_timed_out`](TagSet::redeem_timed_out) returns the
    /// tag of the token; until then the tag is in flight, and a freeze waits for it, so continue
    /// these calls during a freeze. `f` may redeem at once, or call any other method of the set.
    /// A [tracked](Tag::track) request has no token, and is left to
    /// [`iter_expired`](TagSet::iter_expired): the result is also the time of the next such one
    /// that is not late. The rest is as for [`try_expired`](TagSet::try_expired).
    ///
    /// ```
    /// # use inflight_tags::{Clock, RedeemError, TagSet};
    /// use std::time::Duration;
    /// let clock = Clock::manual();
    /// let set = TagSet::builder().depth(2).clock(clock.clone()).build(|_, _| ())?;
    /// let token = set.add_tenant("nvme0n1")?.try_alloc()?.into_token();
    /// let next = set.expire(|_| unreachable!("it has just begun"));
    /// assert_eq!(next, Some(clock.now() + Duration::from_secs(30)));
    /// clock.advance(Duration::from_secs(30));
    /// let mut late = Vec::new();
    /// assert_eq!(set.expire(|token| late.push(token)), None);
    /// assert_eq!(late, [token]);
    /// drop(set.redeem_timed_out(token)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    // A caller may know the next time without this result.
    #[allow(clippy::must_use_candidate)]
    pub fn expire(&self, mut f: impl FnMut(u64)) -> Option<Instant> {
        let mut walk = self.shared.begin_walk()?;
        walk.tracked = false;
        while let Some(late) = self.shared.next_late(&mut walk) {
            f(late.token);
        }
        walk.next
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::expirers::LONGEST_SLEEP;
    use inflight_sync::time::Clock;

    /// The interval is the shortest timeout that a request has of its own, and grows again when
    /// there is none and a waiter has slept for it.
    #[test]
    fn the_interval_follows_the_shortest_timeout() {
        let clock = Clock::manual();
        let set = TagSet::<()>::builder().depth(3).clock(clock.clone());
        let set = set.build(|_, _| ()).unwrap();
        let dev = set.add_tenant("sda").unwrap();
        let look = |slept| {
            let look = |slept| set.look_for_expired(slept).expect_err("nothing is late");
            let again = look(slept);
            let has_changed = Seen::now(&set.shared.bitmaps) != again.seen;
            if has_changed { look(None) } else { again }
        };
        let sleeps = |again: &LookAgain| again.at - clock.now();
        let millis = Duration::from_millis;
        let mut tags = dev.try_alloc_batch(3).into_iter();
        let [mut a, mut b] = [(); 2].map(|()| tags.next().unwrap());
        assert_eq!(sleeps(&look(None)), LONGEST_SLEEP);
        a.set_timeout(millis(50));
        b.set_timeout(millis(200));
        let again = look(None);
        assert_eq!(sleeps(&again), millis(50));
        assert_eq!(sleeps(&look(again.slept())), millis(50));
        drop(a);
        assert_eq!(sleeps(&look(None)), millis(50), "it has not slept");
        let again = look(again.slept());
        assert_eq!(sleeps(&again), millis(200));
        drop(b);
        let again = look(again.slept());
        assert_eq!(sleeps(&again), LONGEST_SLEEP);
        let mut c = tags.next().unwrap();
        c.set_timeout(Duration::ZERO);
        let again = look(again.slept());
        assert_eq!(sleeps(&again), SHORT_SLEEP);
        c.set_timeout(millis(400));
        assert_eq!(sleeps(&look(again.slept())), millis(400));
        c.set_timeout(millis(30));
        let token = c.into_token();
        let again = look(None);
        assert_eq!(
            (sleeps(&again), again.slept().is_some()),
            (millis(30), true)
        );
        clock.advance(millis(20));
        let again = look(None);
        assert_eq!(
            (sleeps(&again), again.slept()),
            (millis(10), None),
            "its deadline"
        );
        drop(set.redeem(token).unwrap());
    }
}
