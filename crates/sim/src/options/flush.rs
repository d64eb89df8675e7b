//! `flush`: what an eager flush costs a journal.

use super::{Output, Seed, number};
use clap::Args;
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

impl fmt::Display for Flush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "small commits by clients in a closed loop, four workers push them into log buffers; \
             seeds {} to {}",
            self.seed.seed,
            self.seed.seed + self.seeds as u64 - 1
        )
    }
}
