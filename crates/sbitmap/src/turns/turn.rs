//! A thread's turns: how many more ids it may take past the waiters, and for how long.
//!
//! The thread keeps them, for the few queues that it used last. A forgotten turn costs its thread
//! some credits, and others nothing: credits are a right, not a reservation.

use std::cell::Cell;

/// How many ids a turn of `Fair` has.
pub(super) const QUANTUM: u32 = if cfg!(loom) { 2 } else { 13 };

/// For how many grants a turn lasts.
pub(super) const TURN_LIFE: u32 = 11;

/// How many turns a thread remembers.
const REMEMBERED: usize = 4;

#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// The number of the queue.
    queue: u64,
    /// The serial of the grant that began it.
    pub(super) serial: u32,
    pub(super) credits: u32,
}

const NONE: Turn = Turn {
    queue: 0,
    serial: 0,
    credits: 0,
};

inflight_sync::thread_local! {
    static MINE: Cell<[Turn; REMEMBERED]> = const { Cell::new([NONE; REMEMBERED]) };
}

/// The calling thread's turn at a queue, if it has credits left.
pub(super) fn of(queue: u64) -> Option<Turn> {
    let turns = MINE.with(Cell::get);
    turns
        .into_iter()
        .find(|turn| turn.queue == queue && turn.credits > 0)
}

/// Sets the calling thread's turn at a queue. Replaces the oldest turn of another queue.
pub(super) fn set(queue: u64, serial: u32, credits: u32) {
    MINE.with(|mine| {
        let mut turns = mine.get();
        if turns[0].queue != queue {
            let at = turns.iter().position(|turn| turn.queue == queue);
            turns[..=at.unwrap_or(REMEMBERED - 1)].rotate_right(1);
        }
        turns[0] = Turn {
            queue,
            serial,
            credits,
        };
        mine.set(turns);
    });
}
