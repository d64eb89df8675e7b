//! A seat for each queue: the number by which tags and counters know it.
//!
//! A seat may be taken again when nothing is left of the queue it was: no handle, and no tag.

use crate::grown;
use inflight_sync::Mutex;

/// A queue of the set, or one that is gone but for its tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seat(pub(crate) u32);

impl Seat {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The last one is for all that come when there are so many.
const LAST: u32 = grown::MOST as u32 - 1;

/// So many seats may wait until somebody looks whether they are free.
const ENOUGH_TO_LOOK: usize = if cfg!(loom) { 1 } else { 16 };

#[derive(Debug)]
pub(crate) struct Seats(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// How many have ever been taken.
    len: u32,
    free: Vec<Seat>,
    /// Whose queue has no handle any more; it may have tags.
    left: Vec<Seat>,
}

impl Seats {
    pub(crate) fn new() -> Self {
        Self(Mutex::default())
    }

    /// A seat for a new queue. `clear` is given those that were left, now and then, and returns
    /// those of which nothing is left, when whatever was kept for them is gone too.
    ///
    /// It is called under the lock, so that nobody takes a seat before it is clear.
    pub(crate) fn take(&self, clear: impl FnOnce(&[Seat]) -> Vec<Seat>) -> Seat {
        let mut state = self.0.lock();
        if state.free.is_empty() && state.left.len() >= ENOUGH_TO_LOOK.max(state.len as usize / 2) {
            let clear = clear(&state.left);
            state.left.retain(|seat| !clear.contains(seat));
            state.free = clear;
        }
        if let Some(seat) = state.free.pop() {
            return seat;
        }
        let seat = Seat(state.len.min(LAST));
        state.len = seat.0 + 1;
        seat
    }

    /// The last handle of its queue is gone.
    pub(crate) fn leave(&self, seat: Seat) {
        // The last one may be somebody else's too.
        if seat.0 < LAST {
            self.0.lock().left.push(seat);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn seats_come_back_when_they_are_clear_and_there_are_never_many_more_than_queues() {
        let seats = Seats::new();
        let kept = seats.take(|_| unreachable!("nothing is left"));
        let mut most = 0;
        for n in 0..10_000 {
            // Every tenth still has tags when somebody looks, once.
            let seat = seats.take(|left| {
                let busy = |seat: &&Seat| left.len() > 20 && seat.0 % 10 == n % 10;
                left.iter().filter(|seat| !busy(seat)).copied().collect()
            });
            assert_ne!(seat, kept);
            most = most.max(seat.0);
            seats.leave(seat);
        }
        assert!((15..64).contains(&most), "{most}");
    }
}
