//! `flush`: what an eager flush costs a journal.

use super::{number, seed};
use clap::Args;
use std::fmt;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct Flush {
    /// Where the random numbers begin: the same seed gives the same output.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = seed,
        allow_negative_numbers = true
    )]
    pub(crate) seed: u64,
    /// Each row is the mean of so many runs.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<1, 1000>)]
    pub(crate) seeds: usize,
    /// Say of each thing that must be seen whether it is, and end with status 1 if one is not.
    #[arg(long)]
    pub(crate) check: bool,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the gains into this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

impl fmt::Display for Flush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "small commits by clients in a closed loop, four workers push them into log buffers; \
             seeds {} to {}",
            self.seed,
            self.seed + self.seeds as u64 - 1
        )
    }
}
