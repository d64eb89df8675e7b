//! The published table, as it is in `data/`.

use super::scenario::Scope;

/// A row: means of five runs, and their standard deviations.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Published {
    /// Issuers.
    pub issuers: usize,
    /// Scope.
    pub scope: Scope,
    /// MiB/s of reads, and as much of writes.
    pub mib_s: f64,
    /// Standard deviation of `mib_s`.
    pub mib_s_sd: f64,
    /// CPU time used, in percent of all CPUs.
    pub cpu_pct: f64,
    /// Standard deviation of `cpu_pct`.
    pub cpu_pct_sd: f64,
}

/// The rows of the experiment.
///
/// ```
/// let rows = inflight_sim::dmcrypt::dmcrypt_scopes();
/// assert_eq!((rows.len(), rows[0].mib_s), (9, 1159.4));
/// ```
#[must_use]
pub fn dmcrypt_scopes() -> Vec<Published> {
    let csv = include_str!("../../data/dmcrypt_scopes.csv");
    let row = |line: &str| {
        let mut fields = line.split(',').map(str::trim);
        let mut field = || fields.next().expect("a field for each column");
        let issuers = field().parse().expect("a count");
        let scope = Scope::named(field()).expect("a scope");
        let mut number = || field().parse().expect("data/ holds numbers");
        Published {
            issuers,
            scope,
            mib_s: number(),
            mib_s_sd: number(),
            cpu_pct: number(),
            cpu_pct_sd: number(),
        }
    };
    csv.lines().skip(1).map(row).collect()
}
