//! One load under one scope.

use super::issuers::Crypt;
use super::measure::{Outcome, Summary};
use super::model::DmCrypt3900x;
use crate::cpus::{Cpus, run_until};
use std::fmt;

/// Where encryption may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Anywhere: one pool for the system.
    System,
    /// In the cache of the issuer when it begins; the scheduler may move it. The kernel's way.
    Cache,
    /// In the cache of the issuer.
    CacheStrict,
    /// In the cache of the issuer, and stolen by an idle one when that pays.
    Ours,
}

impl Scope {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::System, Self::Cache, Self::CacheStrict, Self::Ours];

    /// As the tables call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Cache => "cache",
            Self::CacheStrict => "cache_strict",
            Self::Ours => "ours",
        }
    }

    /// The scope of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.name() == name)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    pub(super) issuers: usize,
    pub(super) scope: Scope,
    pub(super) model: DmCrypt3900x,
    pub(super) one_cache: bool,
    warm_up: f64,
    seconds: f64,
}

impl Scenario {
    /// A run of `issuers` issuers under this scope, on the published machine.
    #[must_use]
    pub fn new(issuers: usize, scope: Scope) -> Self {
        Self {
            issuers,
            scope,
            model: DmCrypt3900x::default(),
            one_cache: false,
            warm_up: 0.3,
            seconds: 2.0,
        }
    }

    /// On another machine, or with other constants.
    #[must_use]
    pub fn model(self, model: DmCrypt3900x) -> Self {
        Self { model, ..self }
    }

    /// Simulated seconds that count; 2 unless set.
    #[must_use]
    pub fn seconds(self, seconds: f64) -> Self {
        Self { seconds, ..self }
    }

    /// Simulated seconds before those; 0.3 unless set.
    #[must_use]
    pub fn warm_up(self, warm_up: f64) -> Self {
        Self { warm_up, ..self }
    }

    /// All issuers are pinned to one cache.
    #[must_use]
    pub fn one_cache(self) -> Self {
        Self {
            one_cache: true,
            ..self
        }
    }

    /// Runs it. The same seed gives the same outcome.
    ///
    /// # Panics
    ///
    /// If the model is not for this machine ([`DmCrypt3900x::topology`]), or it has no CPU.
    #[must_use]
    pub fn run(&self, seed: u64) -> Outcome {
        let topology = self.model.topology().expect("a machine of this model");
        let mut cpus = Cpus::new(&topology, self.model.scheduler.clone(), seed);
        let mut load = Crypt::new(self, &topology, &mut cpus);
        let warm_up = (self.warm_up * 1e9) as u64;
        run_until(&mut cpus, &mut load, warm_up);
        let _ = cpus.take_counters();
        load.begin_to_count();
        run_until(&mut cpus, &mut load, warm_up + (self.seconds * 1e9) as u64);
        let (counters, busy) = cpus.take_counters();
        load.outcome(&cpus, self.seconds, counters, &busy)
    }

    /// The mean of the runs with seeds from 1.
    #[must_use]
    pub fn mean(&self, seeds: u64) -> Summary {
        let outcomes: Vec<_> = (1..=seeds).map(|seed| self.run(seed)).collect();
        Summary::of(&outcomes)
    }
}
