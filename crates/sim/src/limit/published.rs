//! What was published, as it is in `data/`.

use super::model::Counted;

/// A row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// What the limit counts.
    pub counted: Counted,
    /// The limit that was asked for.
    pub max_active: usize,
    /// MiB/s written.
    pub mib_s: f64,
}

/// The rows of 96 CPUs, sequential writes of 64 KiB by 32 jobs, 32 under way in each.
///
/// ```
/// let rows = inflight_sim::limit::max_active();
/// assert_eq!((rows.len(), rows[0].mib_s), (3, 2495.0));
/// ```
#[must_use]
pub fn max_active() -> Vec<Published> {
    let csv = include_str!("../../data/max_active.csv");
    let row = |line: &str| {
        let fields: Vec<_> = line.split(',').map(str::trim).collect();
        Published {
            counted: Counted::named(fields[0]).expect("system or cpu"),
            max_active: fields[1].parse().expect("a limit"),
            mib_s: fields[2].parse().expect("data/ holds numbers"),
        }
    };
    csv.lines().skip(1).map(row).collect()
}
