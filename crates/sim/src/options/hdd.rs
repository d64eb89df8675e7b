//! `hdd`: split IO on one hard disk.

use super::{number, seconds, seed};
use clap::{Args, ValueEnum};
use inflight_sim::hdd::{Dispatch, Model, Policy, Scenario, split_io};
use std::fmt;
use std::path::PathBuf;

const MAX_JOBS: usize = 65_536;
/// As many tags as a hardware queue can have.
const MAX_REQUESTS: usize = 10_240;
const MAX_CACHE: usize = 1 << 24;

#[derive(Debug, Args)]
pub(crate) struct Hdd {
    /// Job counts, with commas; by default those of the published table.
    #[arg(long, value_name = "N,..", value_delimiter = ',', value_parser = number::<1, MAX_JOBS>)]
    jobs: Vec<usize>,
    /// Policies, with commas; by default all.
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', value_parser = policy)]
    policy: Vec<Policy>,
    /// Simulated seconds that count; as long as the published runs.
    #[arg(long, value_name = "S", default_value_t = 110.0, value_parser = seconds,
        allow_negative_numbers = true)]
    pub(crate) seconds: f64,
    /// Simulated seconds before those.
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = seconds,
        allow_negative_numbers = true)]
    warm_up: f64,
    /// Where the random numbers begin: the same seed gives the same output.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = seed,
        allow_negative_numbers = true
    )]
    pub(crate) seed: u64,
    /// Every Nth job does IOs of 4 KiB.
    #[arg(long, value_name = "N", value_parser = number::<1, MAX_JOBS>)]
    small_every: Option<usize>,
    /// Tags.
    #[arg(long, value_name = "N", default_value_t = Model::default().tags,
        value_parser = number::<1, MAX_REQUESTS>)]
    nr_requests: usize,
    /// Pieces in the drive's write cache, 0 to switch it off.
    #[arg(long, value_name = "N", default_value_t = Model::default().cache_pieces,
        value_parser = number::<0, MAX_CACHE>)]
    cache: usize,
    /// In which order requests that have a tag go to the drive.
    #[arg(long, value_name = "ORDER", default_value = "fifo")]
    dispatch: Order,
    /// Say of each thing that must be seen whether it is, and end with status 1 if one is not.
    #[arg(long)]
    pub(crate) check: bool,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the curves into this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Order {
    Fifo,
    Sorted,
}

impl Hdd {
    pub(crate) fn job_counts(&self) -> Vec<usize> {
        if self.jobs.is_empty() {
            return split_io().iter().map(|row| row.jobs).collect();
        }
        self.jobs.clone()
    }

    pub(crate) fn policies(&self) -> Vec<Policy> {
        if self.policy.is_empty() {
            return Policy::ALL.to_vec();
        }
        let mut policies = self.policy.clone();
        policies.sort();
        policies.dedup();
        policies
    }

    pub(crate) fn scenario(&self, jobs: usize, policy: Policy) -> Scenario {
        let model = Model {
            tags: self.nr_requests,
            cache_pieces: self.cache,
            dispatch: match self.dispatch {
                Order::Fifo => Dispatch::Fifo,
                Order::Sorted => Dispatch::Sorted,
            },
            ..Model::default()
        };
        let scenario = Scenario::new(jobs, policy)
            .seed(self.seed)
            .warm_up(self.warm_up)
            .seconds(self.seconds)
            .model(model);
        match self.small_every {
            Some(n) => scenario.small_every(n),
            None => scenario,
        }
    }
}

impl Hdd {
    /// The options that make the disk or its load another one than the published.
    fn unlike_the_published(&self) -> Vec<String> {
        let Model {
            tags, cache_pieces, ..
        } = Model::default();
        let mut others = Vec::new();
        if self.nr_requests != tags {
            others.push(format!("--nr-requests {}", self.nr_requests));
        }
        if self.cache != cache_pieces {
            others.push(format!("--cache {}", self.cache));
        }
        if matches!(self.dispatch, Order::Sorted) {
            others.push("--dispatch sorted".into());
        }
        if let Some(n) = self.small_every {
            others.push(format!("--small-every {n}"));
        }
        others
    }

    /// What was asked for, for the head of the JSON.
    pub(crate) fn settings(&self) -> serde_json::Value {
        serde_json::json!({
            "nr_requests": self.nr_requests,
            "cache": self.cache,
            "dispatch": if matches!(self.dispatch, Order::Sorted) { "sorted" } else { "fifo" },
            "small_every": self.small_every,
            "warm_up": self.warm_up,
            "as_published": self.unlike_the_published().is_empty(),
        })
    }
}

impl fmt::Display for Hdd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "1 MiB random writes in pieces of 128 KiB on one disk, {} tags, {} s after {} s of \
             warm-up, seed {}",
            self.nr_requests, self.seconds, self.warm_up, self.seed
        )?;
        let others = self.unlike_the_published();
        if others.is_empty() {
            return Ok(());
        }
        let others = others.join(", ");
        writeln!(f, "not the published run, beside which it stands: {others}")
    }
}

fn policy(text: &str) -> Result<Policy, String> {
    let dashed = |policy: &Policy| policy.name().replace('_', "-");
    let found = Policy::ALL
        .iter()
        .find(|p| p.name() == text || dashed(p) == text);
    found.copied().ok_or_else(|| {
        let names: Vec<_> = Policy::ALL.iter().map(|p| p.name()).collect();
        format!("one of {}", names.join(", "))
    })
}
