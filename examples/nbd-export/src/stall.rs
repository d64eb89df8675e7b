//! Clients that do not get on though it is their turn.

use std::time::{Duration, Instant};

/// A client that moves fewer bytes in some time has stalled for that time.
const SLOW: usize = 64 << 10;

/// Since when it is the client's turn, and how much it has moved since.
#[derive(Default)]
pub(crate) struct Stall(Option<(Instant, usize)>);

impl Stall {
    pub(crate) fn moved(&mut self, bytes: usize) {
        if let Some((since, so_far)) = &mut self.0 {
            *so_far += bytes;
            if *so_far >= SLOW {
                (*since, *so_far) = (Instant::now(), 0);
            }
        }
    }

    /// For how long it has been its turn, if it is, without `SLOW` bytes.
    pub(crate) fn stalled_for(&mut self, is_its_turn: bool) -> Duration {
        if !is_its_turn {
            self.0 = None;
            return Duration::ZERO;
        }
        self.0.get_or_insert((Instant::now(), 0)).0.elapsed()
    }
}
