//! What the table must show, and whether it does.

use super::scenario::Scope;
use super::table::{Row, Table};
use crate::goal::{Goal, Margin, goal};

/// The largest error beside the published MiB/s, in percent.
const FIT_PERCENT: f64 = 4.0;
/// The same of CPU, in points.
const FIT_POINTS: f64 = 4.0;

fn at(row: &Row) -> String {
    format!("{} issuers, {}", row.issuers, row.scope)
}

impl Table {
    /// A row beside which something is published.
    fn known(&self, issuers: usize, scope: Scope) -> Option<&Row> {
        let row = self.row(issuers, scope);
        row.filter(|row| row.published.is_some())
    }

    /// Whether the model is that of the published machine.
    #[must_use]
    pub fn fit(&self) -> Vec<Goal> {
        let bandwidth = self.rows.iter().filter_map(|row| {
            let error = row.error_pct?.abs();
            Some(Margin::at_most(
                "|error| in %",
                &at(row),
                error,
                FIT_PERCENT,
            ))
        });
        let cpu = self.rows.iter().filter_map(|row| {
            let error = row.cpu_error?.abs();
            Some(Margin::at_most(
                "|error| in points",
                &at(row),
                error,
                FIT_POINTS,
            ))
        });
        let part = |issuers, scope, least: f64, most: f64| {
            let (row, system) = (
                self.known(issuers, scope),
                self.known(issuers, Scope::System),
            );
            let ratio = row.zip(system).map(|(row, system)| {
                let ratio = row.seen.mean.mib_s / system.seen.mean.mib_s;
                [
                    Margin::at_least("part of system", &at(row), ratio, least),
                    Margin::at_most("part of system", &at(row), ratio, most),
                ]
            });
            ratio.into_iter().flatten()
        };
        let dearer = |dear: Scope, cheap: Scope| {
            let (dear, cheap) = (self.known(4, dear), self.known(4, cheap));
            dear.zip(cheap).map(|(dear, cheap)| {
                let limit = cheap.seen.mean.cpu_us_per_io;
                Margin::at_least("us/IO", &at(dear), dear.seen.mean.cpu_us_per_io, limit)
            })
        };
        let order = part(24, Scope::Cache, 0.985, 1.015)
            .chain(part(8, Scope::CacheStrict, 0.94, 0.985))
            .chain(part(4, Scope::Cache, 0.93, 1.0))
            .chain(part(4, Scope::CacheStrict, 0.80, 0.88));
        let cost = dearer(Scope::CacheStrict, Scope::Cache)
            .into_iter()
            .chain(dearer(Scope::Cache, Scope::System));
        let goals = [
            goal("MiB/s are within 4 % of the published", bandwidth),
            goal("CPU is within 4 points of the published", cpu),
            goal("scopes lose beside system what they lost there", order),
            goal("packing siblings costs CPU time with 4 issuers", cost),
        ];
        goals.into_iter().flatten().collect()
    }

    /// What our policy must show, beside the other scopes of the same model.
    #[must_use]
    pub fn goals(&self) -> Vec<Goal> {
        let ours = || self.rows.iter().filter(|row| row.scope == Scope::Ours);
        let bandwidth = ours().filter_map(|row| {
            let system = self.row(row.issuers, Scope::System)?.seen.mean.mib_s;
            // Two means of some runs differ by so much at random.
            let limit = system * 0.995;
            Some(Margin::at_least(
                "MiB/s",
                &at(row),
                row.seen.mean.mib_s,
                limit,
            ))
        });
        let cost = ours().filter_map(|row| {
            let cache = self.row(row.issuers, Scope::Cache)?.seen.mean.cpu_us_per_io;
            let seen = row.seen.mean.cpu_us_per_io;
            Some(Margin::at_most("us/IO", &at(row), seen, cache * 1.005))
        });
        let still = ours().filter(|row| row.issuers == 24).map(|row| {
            let takes = row.seen.mean.takes;
            Margin::at_most("takes per item", &at(row), takes, 0.02)
        });
        let mut goals = self.fit();
        let more = [
            goal("ours moves at least what system does", bandwidth),
            goal(
                "an IO costs with ours at most what it does with cache",
                cost,
            ),
            goal("ours takes next to nothing when all caches are busy", still),
        ];
        goals.extend(more.into_iter().flatten());
        goals
    }
}
