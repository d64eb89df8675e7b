//! `placement`: on which CPU a woken thread runs.

use super::{Output, Seed, number};
use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use inflight_sim::Seeds;
use inflight_sim::placement::{Recent, Side, Which, published};
use inflight_topology::wake::{PullOrder, Reach};
use std::fmt;

const MAX_CLIENTS: usize = 4096;

#[derive(Debug, Args)]
pub(crate) struct Placement {
    /// Published tables, with commas; by default all.
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', value_parser = table)]
    table: Vec<Which>,
    /// Numbers of clients, with commas, of those that were published; by default all of them.
    #[arg(
        long,
        value_name = "N,..",
        value_delimiter = ',',
        value_parser = number::<1, MAX_CLIENTS>
    )]
    clients: Vec<usize>,
    /// What comes first when an interrupt wakes: the CPU it came to, or an idle previous one.
    #[arg(long, value_name = "ORDER", default_value = "pull-first")]
    order: Order,
    /// How far a thread may be moved because less is to do elsewhere.
    #[arg(long, value_name = "REACH", default_value = "same-cache")]
    load: LoadReach,
    /// Who remembers a CPU: the one who wakes (the published kernels), or the one who is woken.
    #[arg(long, value_name = "WHO", default_value = "waker")]
    recent: Who,
    #[command(flatten)]
    pub(crate) seed: Seed,
    /// Each row is the mean of so many runs.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<1, 1000>)]
    pub(crate) seeds: usize,
    /// Leave out the runs beside the published tables.
    #[arg(long)]
    pub(crate) no_controls: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Order {
    PullFirst,
    PreviousFirst,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LoadReach {
    Nowhere,
    SameCache,
    Anywhere,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Who {
    Waker,
    Woken,
}

impl Placement {
    pub(crate) fn tables(&self) -> Vec<Which> {
        let asked = |table: &Which| self.table.is_empty() || self.table.contains(table);
        Which::ALL.into_iter().filter(asked).collect()
    }

    pub(crate) fn wants(&self, clients: usize) -> bool {
        self.clients.is_empty() || self.clients.contains(&clients)
    }

    /// A number of clients that no table has would be left out without a word.
    pub(crate) fn refuse_unpublished(&self) -> Result<()> {
        let rows = self.tables().into_iter().flat_map(published);
        let mut known: Vec<_> = rows.map(|row| row.clients).collect();
        known.sort_unstable();
        known.dedup();
        for n in &self.clients {
            let names: Vec<_> = self.tables().iter().map(|table| table.name()).collect();
            ensure!(
                known.contains(n),
                "--clients {n}: {} has {known:?}",
                names.join(", ")
            );
        }
        Ok(())
    }

    pub(crate) fn seeds(&self) -> Seeds {
        self.seed.and_following(self.seeds)
    }

    /// The rules that were asked for, in the place of the published ones.
    pub(crate) fn change(&self, side: Side) -> Side {
        let recent = match self.recent {
            Who::Waker => Recent::Waker,
            Who::Woken => Recent::Woken,
        };
        let rules = side.rule(|rules| {
            rules.pull_order = match self.order {
                Order::PullFirst => PullOrder::PullFirst,
                Order::PreviousFirst => PullOrder::PreviousFirst,
            };
            rules.load = match self.load {
                LoadReach::Nowhere => Reach::Nowhere,
                LoadReach::SameCache => Reach::SameCache,
                LoadReach::Anywhere => Reach::Anywhere,
            };
        });
        rules.recent(recent)
    }

    /// The options that make the rules others than the published.
    fn unlike_the_published(&self) -> Vec<String> {
        let name = |value: Option<clap::builder::PossibleValue>| {
            value.map_or_else(String::new, |value| value.get_name().to_owned())
        };
        let mut others = Vec::new();
        if self.order != Order::PullFirst {
            others.push(format!("--order {}", name(self.order.to_possible_value())));
        }
        if self.load != LoadReach::SameCache {
            others.push(format!("--load {}", name(self.load.to_possible_value())));
        }
        if self.recent != Who::Waker {
            others.push(format!(
                "--recent {}",
                name(self.recent.to_possible_value())
            ));
        }
        others
    }

    /// What was asked for, for the head of the JSON.
    pub(crate) fn settings(&self) -> serde_json::Value {
        let others = self.unlike_the_published();
        serde_json::json!({ "as_published": others.is_empty(), "others": others })
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "small synchronous IOs by clients in a closed loop, before the published rule and with \
             it; {}",
            self.seeds()
        )?;
        let others = self.unlike_the_published();
        if others.is_empty() {
            return Ok(());
        }
        let others = others.join(", ");
        writeln!(
            f,
            "not the published rules, beside which they stand: {others}"
        )
    }
}

fn table(text: &str) -> std::result::Result<Which, String> {
    let found = Which::ALL.into_iter().find(|table| table.name() == text);
    found.ok_or_else(|| {
        let names: Vec<_> = Which::ALL.iter().map(|table| table.name()).collect();
        format!("one of {}", names.join(", "))
    })
}
