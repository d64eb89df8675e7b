//! What the table must show, and whether it does.

use super::published::CPUS;
use super::table::{Row, Table};
use crate::goal::{Goal, Margin, goal};
use inflight_topology::Scope;

const SHARED: [Scope; 3] = [Scope::Cache, Scope::Numa, Scope::System];

fn at(row: &Row) -> String {
    format!("{} CPUs, {}", row.cpus, row.scope)
}

impl Table {
    /// What must be seen: the published shape, and how it grows.
    #[must_use]
    pub fn goals(&self) -> Vec<Goal> {
        let items = self.rows.iter().flat_map(|row| {
            let published = row.published_items_per_s;
            published.into_iter().flat_map(move |published| {
                let part = row.seen.items_per_s / published;
                [
                    Margin::at_least("part of the published", &at(row), part, 0.85),
                    Margin::at_most("part of the published", &at(row), part, 1.15),
                ]
            })
        });
        let shards = self.row(CPUS, Scope::CacheShard);
        let gain = SHARED.iter().flat_map(|scope| {
            let pair = shards.zip(self.row(CPUS, *scope));
            pair.into_iter().flat_map(|(shards, one)| {
                let gain = shards.seen.items_per_s / one.seen.items_per_s;
                [
                    Margin::at_least("times", &at(one), gain, 4.0),
                    Margin::at_most("times", &at(one), gain, 6.5),
                ]
            })
        });
        let most = self.rows.iter().map(|row| row.cpus).max().unwrap_or(0);
        let call = |cpus, scope| Some(self.row(cpus, scope)?.seen.call_p50_ns as f64);
        let flat = [Scope::Cpu, Scope::CacheShard]
            .into_iter()
            .filter_map(|scope| {
                let (row, first) = (self.row(most, scope)?, call(1, scope)?);
                let seen = row.seen.call_p50_ns as f64 / first;
                Some(Margin::at_most("times", &at(row), seen, 1.5))
            });
        let steep = SHARED.iter().filter_map(|scope| {
            let row = self.row(most, *scope)?;
            let seen = row.seen.call_p50_ns as f64 / call(most / 2, *scope)?;
            Some(Margin::at_least("times", &at(row), seen, 1.8))
        });
        let goals = [
            goal("items/s are within 15 % of the published", items),
            goal("shards move 4 to 6.5 times what one pool does", gain),
            goal(
                "a call costs with the most CPUs what it does with one, in pools of few",
                flat,
            ),
            goal(
                "in one pool for all it doubles with the number of CPUs",
                steep,
            ),
        ];
        goals.into_iter().flatten().collect()
    }
}
