//! `limit`: what a queue's limit counts.

use super::{Output, Seed, number};
use clap::Args;
use inflight_sim::limit::Counted;
use std::fmt;

const MOST: usize = 2048;

#[derive(Debug, Args)]
pub(crate) struct Limit {
    /// Limits (`max_active`), with commas; by default powers of two up to 1024.
    #[arg(long, value_name = "N,..", value_delimiter = ',', value_parser = number::<1, MOST>)]
    max_active: Vec<usize>,
    /// What the limit counts, with commas: system, cpu; by default both.
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', value_parser = counted)]
    counted: Vec<Counted>,
    #[command(flatten)]
    pub(crate) seed: Seed,
    #[command(flatten)]
    pub(crate) output: Output,
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
            self.seed.seed
        )
    }
}

fn counted(text: &str) -> Result<Counted, String> {
    Counted::named(text).ok_or_else(|| "one of system, cpu".to_owned())
}
