//! The published table, as it is in `data/`.

use inflight_topology::Scope;

/// The CPUs of the published machine: one cache, one thread for each core.
pub(super) const CPUS: usize = 72;

/// A row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// Scope.
    pub scope: Scope,
    /// Items a second.
    pub items_per_s: f64,
    /// The median of the queueing call, in ns.
    pub call_p50_ns: f64,
}

/// The rows of 72 CPUs in one cache.
///
/// ```
/// let rows = inflight_sim::enqueue::shard_bench();
/// assert_eq!((rows.len(), rows[3].items_per_s), (6, 708_168.0));
/// ```
#[must_use]
pub fn shard_bench() -> Vec<Published> {
    let csv = include_str!("../../data/enqueue_scopes.csv");
    let row = |line: &str| {
        let fields: Vec<_> = line.split(',').map(str::trim).collect();
        let number = |at: usize| fields[at].parse().expect("data/ holds numbers");
        Published {
            scope: fields[0].parse().expect("a scope"),
            items_per_s: number(1),
            call_p50_ns: number(2),
        }
    };
    csv.lines().skip(1).map(row).collect()
}
