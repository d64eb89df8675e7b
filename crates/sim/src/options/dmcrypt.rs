//! `dmcrypt`: encryption under affinity scopes.

use super::{Output, number, seconds};
use clap::Args;
use inflight_sim::dmcrypt::{DmCrypt3900x, Scenario, Scope};
use std::fmt;

const MAX_ISSUERS: usize = 4096;
const MAX_SEEDS: usize = 1000;
/// Issuers of the published table.
const PUBLISHED: [usize; 3] = [24, 8, 4];
/// One that is alone must not lose either.
const ALONE: usize = 1;

#[derive(Debug, Args)]
pub(crate) struct Dmcrypt {
    /// Numbers of issuers, with commas; by default those of the published table, and one.
    #[arg(long, value_name = "N,..", value_delimiter = ',',
        value_parser = number::<1, MAX_ISSUERS>)]
    issuers: Vec<usize>,
    /// Scopes, with commas; by default all.
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', value_parser = scope)]
    scope: Vec<Scope>,
    /// Simulated seconds that count.
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds,
        allow_negative_numbers = true)]
    pub(crate) seconds: f64,
    /// Simulated seconds before those.
    #[arg(long, value_name = "S", default_value_t = 0.3, value_parser = seconds,
        allow_negative_numbers = true)]
    warm_up: f64,
    /// Runs, with seeds from 1, of which the mean is shown.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<1, MAX_SEEDS>)]
    pub(crate) seeds: usize,
    /// How often a second an issuer is moved to a random cache, 0 for never.
    #[arg(long, value_name = "N", default_value_t = DmCrypt3900x::default().scheduler.drift_per_s,
        value_parser = rate, allow_negative_numbers = true)]
    drift: f64,
    /// Another machine, for instance "numa:2 cache:4 core:3 smt:2": at most two threads on a core,
    /// and CPUs of one speed.
    #[arg(long, value_name = "TEXT", value_parser = machine)]
    machine: Option<String>,
    /// All issuers are pinned to one cache.
    #[arg(long)]
    one_cache: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

impl Dmcrypt {
    pub(crate) fn issuers(&self) -> Vec<usize> {
        if self.issuers.is_empty() {
            return PUBLISHED.into_iter().chain([ALONE]).collect();
        }
        self.issuers.clone()
    }

    pub(crate) fn scopes(&self) -> Vec<Scope> {
        if self.scope.is_empty() {
            return Scope::ALL.to_vec();
        }
        let mut scopes = self.scope.clone();
        scopes.sort();
        scopes.dedup();
        scopes
    }

    pub(crate) fn scenario(&self, issuers: usize, scope: Scope) -> Scenario {
        let mut model = DmCrypt3900x::default();
        model.scheduler.drift_per_s = self.drift;
        if let Some(machine) = &self.machine {
            model.machine.clone_from(machine);
        }
        let scenario = Scenario::new(issuers, scope)
            .warm_up(self.warm_up)
            .seconds(self.seconds)
            .model(model);
        if self.one_cache {
            scenario.one_cache()
        } else {
            scenario
        }
    }

    /// Whether there is something published of this machine and load.
    pub(crate) fn is_published(&self) -> bool {
        self.machine.is_none() && !self.one_cache
    }

    /// The options that make the machine or its load another one than the published.
    fn unlike_the_published(&self) -> Vec<String> {
        let mut others = Vec::new();
        if self.drift != DmCrypt3900x::default().scheduler.drift_per_s {
            others.push(format!("--drift {}", self.drift));
        }
        if let Some(machine) = &self.machine {
            others.push(format!("--machine {machine:?}"));
        }
        if self.one_cache {
            others.push("--one-cache".to_owned());
        }
        others
    }

    /// What was asked for, for the head of the JSON.
    pub(crate) fn settings(&self) -> serde_json::Value {
        serde_json::json!({
            "machine": self.machine.clone().unwrap_or(DmCrypt3900x::default().machine),
            "warm_up": self.warm_up,
            "drift": self.drift,
            "one_cache": self.one_cache,
            "as_published": self.unlike_the_published().is_empty(),
        })
    }
}

impl fmt::Display for Dmcrypt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "32 KiB random IO, encrypted and verified, 64 in flight for each issuer; {} runs of \
             {} s after {} s of warm-up",
            self.seeds, self.seconds, self.warm_up
        )?;
        let others = self.unlike_the_published();
        if others.is_empty() {
            return Ok(());
        }
        let others = others.join(", ");
        writeln!(f, "not the published run: {others}")
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(n) if (0.0..=1e4).contains(&n) => Ok(n),
        _ => Err("not a number within 0 to 10000".to_owned()),
    }
}

fn machine(text: &str) -> Result<String, String> {
    let model = DmCrypt3900x {
        machine: text.to_owned(),
        ..DmCrypt3900x::default()
    };
    model.topology().map(|_| model.machine)
}

fn scope(text: &str) -> Result<Scope, String> {
    Scope::named(&text.replace('-', "_")).ok_or_else(|| {
        let names: Vec<_> = Scope::ALL.iter().map(|s| s.name()).collect();
        format!("one of {}", names.join(", "))
    })
}
