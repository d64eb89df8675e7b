//! For crates that give their users an order of service of their own, above a queue: who waits in
//! which line, and which lines may be served.
//!
//! Not for general use, and not covered by the promises about versions. `inflight-tags` is made
//! with it: the mechanism is here, the policy there.

use crate::batched::Seat;
use crate::queue::{Inner, SbitmapQueue};
use crate::store::Store as _;
use crate::turns;
use inflight_sync::time::Instant;
use std::fmt::Debug;
use std::task::{Context, Poll};

/// A line of its own within a queue: one tenant's waiters.
pub type Class = u32;

/// Which classes may be served. Asked with the queue's lock held, so it must not call the queue.
pub trait Shares: Debug + Send + Sync {
    /// Whether the class may take one more bit now.
    ///
    /// A class that may not is passed over. Whoever makes this true for a class that waits (other
    /// than by a put, before which it is looked at anew) calls
    /// [`SbitmapQueue::shares_changed`](crate::SbitmapQueue::shares_changed) afterwards.
    fn may_take(&self, class: Class) -> bool;

    /// The class has taken this bit, which waits for nobody else.
    fn took(&self, class: Class, bit: usize);

    /// The bit is about to be put without having been handed out.
    fn gives(&self, bit: usize);
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// How many bits.
    pub want: usize,
    /// How many of them come at once, at least; the last ones may be fewer.
    pub part: usize,
    /// Whose request it is.
    pub class: Class,
    /// Whether it stands in the lane of large requests, which is served by turns with the other.
    pub large: bool,
    /// Whether it may try although others wait.
    pub privileged: bool,
    /// How many bits its wake is worth: those of requests that follow it are counted too.
    pub weight: u32,
}

impl Request {
    /// One bit.
    #[must_use]
    pub const fn one(class: Class) -> Self {
        Self {
            want: 1,
            part: 1,
            class,
            large: false,
            privileged: false,
            weight: 1,
        }
    }
}

/// When newcomers may try although more wait than the threshold of a [`Door`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// From more than twice the wake batch free on, until at most one is.
    Hysteresis,
    /// While twice the wake batch is free.
    AsPosted,
    /// Not at all.
    Never,
}

/// Rules for [`Fairness::Batched`](crate::Fairness::Batched): who may try past those who wait.
#[derive(Clone, Copy, Debug)]
pub struct Door {
    /// While at most so many wait, newcomers try at once.
    pub threshold: usize,
    /// And also then.
    pub force: Force,
    /// Whether a wake is worth the waiter's [`weight`](Request::weight), and not one bit.
    pub per_tag: bool,
}

/// What a queue is given from above.
#[derive(Debug, Default)]
pub struct Above {
    /// With classes.
    pub shares: Option<Box<dyn Shares>>,
    /// With a door, for `Batched`.
    pub door: Option<Door>,
    /// How many CPUs use it. `None`: all that the process may use.
    pub users: Option<usize>,
}

/// A stay in the line of one queue, kept apart from it: whoever drops it calls
/// [`leave`](SbitmapQueue::leave) first.
#[derive(Debug)]
pub struct Stay(At);

#[derive(Debug)]
enum At {
    Turns(turns::Stay),
    Batched(Seat),
}

impl Stay {
    /// Whether it has its place in the line: it waits, or has had a part and is to have more.
    #[must_use]
    pub const fn is_in_line(&self) -> bool {
        match &self.0 {
            At::Turns(stay) => stay.is_in_list(),
            At::Batched(seat) => seat.is_in_list(),
        }
    }
}

impl SbitmapQueue {
    /// [`put`](SbitmapQueue::put) where nobody can be waiting for it and it takes a few
    /// instructions: to be inlined. It runs no waker. `false`: nothing has happened, and `put`
    /// knows more.
    #[inline(always)]
    #[must_use = "a bit that was not put is still the caller's"]
    pub fn put_quick(&self, bit: usize) -> bool {
        self.put_here(bit)
    }

    /// A wait to come for what is asked for. With `Batched` bits come one by one.
    #[must_use]
    pub fn stay(&self, request: Request) -> Stay {
        Stay(match self.inner {
            Inner::Batched(_) => At::Batched(Seat::new(request)),
            _ => At::Turns(turns::Stay::new(request)),
        })
    }

    /// Waits as a task for the next part, which is pushed to `bits`; none, if the depth has
    /// become too small.
    pub fn poll_stay(&self, stay: &mut Stay, cx: &Context<'_>, bits: &mut Vec<usize>) -> Poll<()> {
        match (&self.inner, &mut stay.0) {
            (Inner::Batched(queue), At::Batched(seat)) => {
                queue.poll_seat(seat, cx).map(|bit| bits.push(bit))
            }
            (Inner::Shared(queue), At::Turns(stay)) => queue.poll_stay(stay, cx, bits),
            (Inner::Local(queue) | Inner::Rseq(queue, _), At::Turns(stay)) => {
                queue.poll_stay(stay, cx, bits)
            }
            _ => unreachable!("a stay belongs to one queue"),
        }
    }

    /// As `poll_stay` for a thread. `false`: the deadline has passed, and the line is left.
    pub fn block_stay(
        &self,
        stay: &mut Stay,
        deadline: Option<Instant>,
        bits: &mut Vec<usize>,
    ) -> bool {
        match (&self.inner, &mut stay.0) {
            (Inner::Batched(queue), At::Batched(seat)) => {
                let until = deadline.map(|deadline| (&self.clock, deadline));
                let bit = queue.block_seat(seat, until);
                bits.extend(bit);
                bit.is_some()
            }
            (Inner::Shared(queue), At::Turns(stay)) => queue.block_stay(stay, deadline, bits),
            (Inner::Local(queue) | Inner::Rseq(queue, _), At::Turns(stay)) => {
                queue.block_stay(stay, deadline, bits)
            }
            _ => unreachable!("a stay belongs to one queue"),
        }
    }

    /// Leaves the line. What had been granted and not fetched goes to others.
    pub fn leave(&self, stay: &mut Stay) {
        match (&self.inner, &mut stay.0) {
            (Inner::Batched(queue), At::Batched(seat)) => queue.leave_seat(seat),
            (Inner::Shared(queue), At::Turns(stay)) => queue.leave_stay(stay),
            (Inner::Local(queue) | Inner::Rseq(queue, _), At::Turns(stay)) => {
                queue.leave_stay(stay)
            }
            _ => unreachable!("a stay belongs to one queue"),
        }
    }

    /// Serves whoever may be served by now, after the [`Shares`] have changed. `least` is the
    /// smallest share there is then: what `Batched` makes its wake batch from.
    pub fn shares_changed(&self, least: impl FnOnce() -> Option<usize>) {
        match &self.inner {
            Inner::Batched(queue) => queue.set_least_share(least),
            Inner::Shared(queue) => queue.serve_all(),
            Inner::Local(queue) | Inner::Rseq(queue, _) => queue.serve_all(),
        }
    }

    /// The first bit in use from `from` on: for one pass over all, a word at a time, by somebody
    /// who waits at each bit until it is free.
    #[must_use]
    pub fn next_set(&self, from: usize) -> Option<usize> {
        match &self.inner {
            Inner::Batched(queue) => queue.map.next_set(from),
            Inner::Shared(queue) => queue.store().next_set(from),
            Inner::Local(queue) | Inner::Rseq(queue, _) => queue.store().next_set(from),
        }
    }

    /// So many CPUs use it from now on: each may keep a larger or smaller part of the free bits.
    pub fn set_users(&self, cpus: usize) {
        if let Inner::Local(queue) | Inner::Rseq(queue, _) = &self.inner {
            queue.store().set_users(cpus);
        }
    }

    /// Whether a newcomer that could wait may try first: the [`Door`]'s word.
    #[inline]
    #[must_use]
    pub fn admits_newcomer(&self) -> bool {
        match &self.inner {
            Inner::Batched(queue) => queue.admits(),
            _ => true,
        }
    }

    /// `try_get` for a class that may take one, also while others wait that cannot be served: their
    /// classes may not, or the one before them has not fetched its part.
    ///
    /// A large request does not pass one of its class. The caller tells the [`Shares`] of the bit.
    #[must_use = "a bit that is dropped is never given back"]
    pub fn try_get_past(&self, class: Class, large: bool) -> Option<usize> {
        match &self.inner {
            Inner::Batched(queue) => queue.try_get(),
            Inner::Shared(queue) => queue.try_get_past(class, large),
            Inner::Local(queue) | Inner::Rseq(queue, _) => queue.try_get_past(class, large),
        }
    }

    /// [`try_get_past`](Self::try_get_past) for a small request after `try_get` found nothing:
    /// one load, unless nobody who waits can be served. By a hint, so it may miss a moment.
    #[must_use = "a bit that is dropped is never given back"]
    pub fn try_get_held_up(&self, class: Class) -> Option<usize> {
        match &self.inner {
            Inner::Batched(_) => None,
            Inner::Shared(queue) => queue.try_get_held_up(class),
            Inner::Local(queue) | Inner::Rseq(queue, _) => queue.try_get_held_up(class),
        }
    }

    /// Hands on a wake whose receiver does not take the `n` bits that it was counted for.
    pub fn pass_on(&self, n: usize) {
        if let Inner::Batched(queue) = &self.inner {
            queue.pass_on(n);
        }
    }
}
