//! What the random schedules share: seeds, and what all crates share.
#![allow(dead_code, reason = "each file uses its part")]

#[path = "../../../sync/tests/shuttle_support/mod.rs"]
mod all_crates;

pub(crate) use all_crates::{Threads, polled};

use inflight_sync::model::{check_pct, check_random};
use std::future::poll_fn;
use std::task::Poll;

/// Schedules of each kind, for each seed.
const RUNS: usize = 4;

/// Both ways to choose schedules, for so many seeds.
pub(crate) fn check(name: &str, seeds: u64, model: fn(u64)) {
    for seed in 0..seeds {
        let name = format!("{name}/{seed}");
        check_random(&name, RUNS, move || model(seed));
        check_pct(&name, RUNS, 3, move || model(seed));
    }
}

/// Ready at the second poll.
pub(crate) async fn yield_once() {
    let mut first = true;
    poll_fn(move |cx| {
        if std::mem::take(&mut first) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}
