//! `limit`: what a queue's limit counts.

use super::{number, seed};
use clap::Args;
use inflight_sim::limit::Counted;
use std::fmt;
use std::path::PathBuf;

const MOST: usize = 2048;

#[derive(Debug, Args)]
pub(crate) struct Limit {
    /// Limits (`max_active`), with commas; by default powers of two up to 1024.
    #[arg(long, value_name = "N,..", value_delimiter = ',', value_parser = number::<1, MOST>)]
    max_active: Vec<usize>,
    /// What the limit counts, with commas: system, cpu; by default both.
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', value_parser = counted)]
    counted: Vec<Counted>,
    /// Where the random numbers begin: the same seed gives the same output.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = seed,
        allow_negative_numbers = true
    )]
    pub(crate) seed: u64,
    /// Say of each thing that must be seen whether it is, and end with status 1 if one is not.
    #[arg(long)]
    pub(crate) check: bool,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the throughput into this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

impl Limit {
    pub(crate) fn max_active(&self) -> Vec<usize> {
        if self.max_active.is_empty() {
            return (0..=10).map(|power| 1 << power).collect();
        }
        self.max_active.clone()
    }

    pub(crate) fn counted(&self) -> Vec<Counted> {
        if self.counted.is_empty() {
            return Counted::ALL.to_vec();
        }
        self.counted.clone()
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "1024 writes of 64 KiB under way on 96 CPUs, each an item that needs one lock; seed {}",
            self.seed
        )
    }
}

fn counted(text: &str) -> Result<Counted, String> {
    Counted::named(text).ok_or_else(|| "one of system, cpu".to_owned())
}
