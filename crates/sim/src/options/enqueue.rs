//! `enqueue`: what queueing costs.

use super::{Output, Seed, number};
use clap::Args;
use inflight_topology::Scope;
use std::fmt;

const MAX_CPUS: usize = 1024;
const ALL: [Scope; 6] = [
    Scope::Cpu,
    Scope::Smt,
    Scope::CacheShard,
    Scope::Cache,
    Scope::Numa,
    Scope::System,
];

#[derive(Debug, Args)]
pub(crate) struct Enqueue {
    /// Numbers of CPUs, with commas; by default powers of two up to 256, and the published 72.
    #[arg(long, value_name = "N,..", value_delimiter = ',', value_parser = number::<1, MAX_CPUS>)]
    cpus: Vec<usize>,
    /// Scopes, with commas; by default all.
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', value_parser = scope)]
    scope: Vec<Scope>,
    #[command(flatten)]
    pub(crate) seed: Seed,
    #[command(flatten)]
    pub(crate) output: Output,
}

impl Enqueue {
    pub(crate) fn cpus(&self) -> Vec<usize> {
        if self.cpus.is_empty() {
            return vec![1, 2, 4, 8, 16, 32, 64, 72, 128, 256];
        }
        self.cpus.clone()
    }

    pub(crate) fn scopes(&self) -> Vec<Scope> {
        if self.scope.is_empty() {
            return ALL.to_vec();
        }
        self.scope.clone()
    }
}

impl fmt::Display for Enqueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "a thread on each CPU queues an item, waits for it, and starts over; one cache, a \
             core for each CPU, seed {}",
            self.seed.seed
        )
    }
}

fn scope(text: &str) -> Result<Scope, String> {
    text.parse().map_err(|_| {
        let names: Vec<_> = ALL.iter().map(ToString::to_string).collect();
        format!("one of {}", names.join(", "))
    })
}
