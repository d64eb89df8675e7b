//! Ways to have a bounded number of requests in flight, each with data of its own.

mod busy;
mod ours;
mod rivals;

pub use busy::{Shares, Visits, freeze_idle, freeze_loaded, iterate, share_error};
pub use ours::{bare_pair, compare_exchange, ours};
pub use rivals::rivals;

use crate::loads::Together;
use crate::machine;
use std::fmt;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// A number of places for requests.
trait Requests: fmt::Debug + Send + Sync {
    /// A place that is owned.
    type Held;

    /// Takes a place, if there is one, and writes its data.
    fn alloc(&self, value: u64) -> Option<Self::Held>;
    /// Puts it in flight.
    fn token(&self, held: Self::Held) -> u64;
    /// Ends the flight: for one caller, and only with the token of this flight.
    fn redeem(&self, token: u64) -> Option<Self::Held>;
    /// Gives the place back.
    fn free(&self, held: Self::Held);
}

/// The loads, for any contender.
pub trait TagLoads: fmt::Debug + Send + Sync {
    /// `n` times a place taken, written and given back.
    fn pairs(&self, n: u64) -> Duration;

    /// `n` times a place taken, written, put in flight, redeemed and given back.
    fn round_trips(&self, n: u64) -> Duration;

    /// `n` pairs, or round trips, of each of two threads. The time of one thread.
    fn two(&self, n: u64, tokens: bool) -> Together;

    /// Whether a token is redeemed twice, or one of an earlier use of the place is.
    fn is_fooled(&self) -> bool;
}

impl<R: Requests> TagLoads for R {
    fn pairs(&self, n: u64) -> Duration {
        let start = Instant::now();
        pairs(self, n);
        start.elapsed()
    }

    fn round_trips(&self, n: u64) -> Duration {
        let start = Instant::now();
        round_trips(self, n);
        start.elapsed()
    }

    fn two(&self, n: u64, tokens: bool) -> Together {
        let (_, overlap) = machine::together(|_| match tokens {
            true => round_trips(self, n),
            false => pairs(self, n),
        });
        Together::new(overlap, n as f64)
    }

    fn is_fooled(&self) -> bool {
        let flight = || self.token(self.alloc(0).expect("a place is free"));
        let late = flight();
        self.free(self.redeem(late).expect("in flight"));
        // As often as there may be places, so that the place has its next use.
        let tokens: Vec<_> = (0..64).map(|_| flight()).collect();
        let fooled = self.redeem(late).is_some();
        for token in tokens {
            self.free(self.redeem(token).expect("in flight"));
        }
        fooled
    }
}

#[inline]
fn pairs<R: Requests>(requests: &R, n: u64) {
    for i in 0..n {
        let held = requests.alloc(i).expect("a place is free");
        requests.free(held);
    }
}

#[inline]
fn round_trips<R: Requests>(requests: &R, n: u64) {
    for i in 0..n {
        let token = requests.token(requests.alloc(i).expect("a place is free"));
        let held = requests.redeem(black_box(token)).expect("in flight");
        requests.free(held);
    }
}
