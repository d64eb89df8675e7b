//! `flush`: what an eager flush costs a journal.

use super::{Output, Seed, number};
use clap::Args;
use inflight_sim::Seeds;
use std::fmt;

#[derive(Debug, Args)]
pub(crate) struct Flush {
    #[command(flatten)]
    pub(crate) seed: Seed,
    /// Each row is the mean of so many runs.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<1, 1000>)]
    pub(crate) seeds: usize,
    #[command(flatten)]
    pub(crate) output: Output,
}

impl Flush {
    pub(crate) fn seeds(&self) -> Seeds {
        self.seed.and_following(self.seeds)
    }
}

impl fmt::Display for Flush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "small commits by clients in a closed loop, four workers push them into log buffers; \
             {}",
            self.seeds()
        )
    }
}
