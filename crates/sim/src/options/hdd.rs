//! `hdd`: split IO on one hard disk.

use super::{Output, Seed, number, seconds};
use clap::{Args, ValueEnum};
use inflight_sim::hdd::{Dispatch, Model, Policy, Scenario, split_io};
use std::fmt;

const MAX_JOBS: usize = 65_536;
/// As many tags as a hardware queue can have.
const MAX_REQUESTS: usize = 10_240;
const MAX_CACHE: usize = 1 << 24;
const MAX_PIECE_KIB: usize = 1 << 20;

#[derive(Debug, Args)]
pub(crate) struct Hdd {
    /// Job counts, with commas; by default those of the published table.
    #[arg(long, value_name = "N,..", value_delimiter = ',', value_parser = number::<1, MAX_JOBS>)]
    jobs: Vec<usize>,
    /// Policies, with commas; by default all of the table.
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', value_parser = policy)]
    policy: Vec<Policy>,
    /// The patch series as posted, and as posted but for one rule after the other.
    #[arg(long, conflicts_with = "policy")]
    rules: bool,
    /// The published table of single writes instead: one at a time, by size.
    #[arg(long, conflicts_with_all = ["jobs", "policy", "rules", "seconds", "warm_up", "seed",
        "small_every", "nr_requests", "piece_kib", "cache", "burst", "dispatch"])]
    pub(crate) single: bool,
    /// Simulated seconds that count; as long as the published runs.
    #[arg(long, value_name = "S", default_value_t = 110.0, value_parser = seconds,
        allow_negative_numbers = true)]
    pub(crate) seconds: f64,
    /// Simulated seconds before those.
    #[arg(long, value_name = "S", default_value_t = 10.0, value_parser = seconds,
        allow_negative_numbers = true)]
    warm_up: f64,
    #[command(flatten)]
    pub(crate) seed: Seed,
    /// Every Nth job does IOs of 4 KiB.
    #[arg(long, value_name = "N", value_parser = number::<1, MAX_JOBS>)]
    small_every: Option<usize>,
    /// Tags.
    #[arg(long, value_name = "N", default_value_t = Model::default().tags,
        value_parser = number::<1, MAX_REQUESTS>)]
    nr_requests: usize,
    /// KiB of a piece: an IO of 1 MiB that is no larger than that is not split.
    #[arg(long, value_name = "N", default_value_t = (Model::default().piece >> 10) as usize,
        value_parser = number::<4, MAX_PIECE_KIB>)]
    piece_kib: usize,
    /// Pieces of 128 KiB in the drive's write cache, 0 to switch it off.
    #[arg(long, value_name = "N", default_value_t = Model::default().cache_pieces,
        value_parser = number::<0, MAX_CACHE>)]
    cache: usize,
    /// A full write cache waits now and then for room for 1 to N pieces of 128 KiB; 1 is never.
    #[arg(long, value_name = "N", default_value_t = Model::default().burst,
        value_parser = number::<1, MAX_CACHE>)]
    burst: usize,
    /// In which order requests that have a tag go to the drive.
    #[arg(long, value_name = "ORDER", default_value = "fifo")]
    dispatch: Order,
    #[command(flatten)]
    pub(crate) output: Output,
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
        if self.rules {
            return Policy::posted();
        }
        if self.policy.is_empty() {
            return Policy::ALL.to_vec();
        }
        let mut policies = self.policy.clone();
        policies.sort();
        policies.dedup();
        policies
    }

    /// Whether a large IO is more than one piece.
    pub(crate) fn splits(&self) -> bool {
        Model::default().io > (self.piece_kib as u64) << 10
    }

    pub(crate) fn scenario(&self, jobs: usize, policy: Policy) -> Scenario {
        let model = Model {
            tags: self.nr_requests,
            cache_pieces: self.cache,
            burst: self.burst,
            piece: (self.piece_kib as u64) << 10,
            dispatch: match self.dispatch {
                Order::Fifo => Dispatch::Fifo,
                Order::Sorted => Dispatch::Sorted,
            },
            ..Model::default()
        };
        let scenario = Scenario::new(jobs, policy)
            .seed(self.seed.seed)
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
            tags,
            cache_pieces,
            burst,
            piece,
            ..
        } = Model::default();
        let mut others = Vec::new();
        if self.nr_requests != tags {
            others.push(format!("--nr-requests {}", self.nr_requests));
        }
        if self.cache != cache_pieces {
            others.push(format!("--cache {}", self.cache));
        }
        if self.burst != burst {
            others.push(format!("--burst {}", self.burst));
        }
        if (self.piece_kib as u64) << 10 != piece {
            others.push(format!("--piece-kib {}", self.piece_kib));
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
            "burst": self.burst,
            "piece_kib": self.piece_kib,
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
            "1 MiB random writes in pieces of {} KiB on one disk, {} tags, {} s after {} s of \
             warm-up, seed {}",
            self.piece_kib, self.nr_requests, self.seconds, self.warm_up, self.seed.seed
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
    let all = Policy::ALL
        .into_iter()
        .chain(Policy::posted().into_iter().skip(1));
    let found = all.clone().find(|p| p.name() == text || dashed(p) == text);
    found.ok_or_else(|| {
        let names: Vec<_> = all.map(Policy::name).collect();
        format!("one of {}", names.join(", "))
    })
}
