//! A thread's turns: how many more ids it may take past those who wait, and for how long.
//!
//! Kept by the thread, for the few queues it used last. A turn that is forgotten costs its thread
//! some credits, and nobody else anything: credits are a right, not a reservation.

use super::Turns;
use super::wait_queue::WaitQueue;
use crate::store::Store;
use inflight_sync::{hint, thread};
use std::cell::Cell;

/// How many ids a turn of `Fair` has.
pub(super) const QUANTUM: u32 = if cfg!(loom) { 2 } else { 13 };

/// For how many grants it lasts.
pub(super) const TURN_LIFE: u32 = 11;

/// How many turns a thread remembers.
const REMEMBERED: usize = 4;

#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// The number of the queue.
    queue: u64,
    /// Of the grant that began it.
    pub(super) serial: u32,
    pub(super) credits: u32,
}

const NONE: Turn = Turn {
    queue: 0,
    serial: 0,
    credits: 0,
};

inflight_sync::thread_local! {
    #[allow(clippy::missing_const_for_thread_local)]
    static MINE: Cell<[Turn; REMEMBERED]> = Cell::new([NONE; REMEMBERED]);
}

/// The calling thread's turn at a queue, if it has credits left.
fn of(queue: u64) -> Option<Turn> {
    let turns = MINE.with(Cell::get);
    turns
        .into_iter()
        .find(|turn| turn.queue == queue && turn.credits > 0)
}

/// Sets the calling thread's turn at a queue. The oldest turn of another queue gives way.
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

impl<S: Store> Turns<S> {
    /// The calling thread's turn, if it has one and it is not over.
    pub(super) fn turn(&self) -> Option<Turn> {
        let age = |turn: &Turn| self.unlocked.grants().wrapping_sub(turn.serial);
        of(self.number).filter(|turn| age(turn) < self.rules.life)
    }

    /// G2: takes an id past those who wait, if the calling thread has its turn.
    #[cold]
    #[inline(never)]
    pub(super) fn take_in_turn(&self) -> Option<usize> {
        let turn = self.turn()?;
        let id = self.store.take()?;
        self.store.set_owned(id);
        set(self.number, turn.serial, turn.credits - 1);
        Some(id)
    }

    /// What a thread tries before it waits for one id.
    pub(crate) fn try_get_or_linger(&self) -> Option<usize> {
        self.try_get().or_else(|| self.wait_in_turn())
    }

    /// G2 again, before a turn sleeps: a wake costs more than a short wait for whoever puts ids.
    ///
    /// That is worth it only while it can put some. If it is on another CPU it may be at work, so
    /// the turn looks on. If it shares this one it is not, and the turn lends it the CPU.
    fn wait_in_turn(&self) -> Option<usize> {
        let (mut spins, mut yields) = (self.rules.spins, self.rules.yields);
        loop {
            self.turn()?;
            if self.unlocked.is_putter_here() {
                yields = yields.checked_sub(1)?;
                thread::yield_now();
            } else {
                spins = spins.checked_sub(1)?;
                (0..4).for_each(|_| hint::spin_loop());
            }
            let id = self.try_get();
            if id.is_some() {
                return id;
            }
        }
    }

    /// No turn that has begun goes on.
    pub(super) fn end_turns(&self, queue: &mut WaitQueue) {
        queue.serial = queue.serial.wrapping_add(self.rules.life);
        self.unlocked.set_grants(queue.serial);
    }
}
