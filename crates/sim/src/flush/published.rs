//! The published table, as it is in `data/`.

/// How many flushes the runs of the bad kernel made for each of the good one: 150,000 and 63,000.
pub const FLUSH_RATIO: f64 = 150.0 / 63.0;

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// The machine.
    pub machine: String,
    /// Clients.
    pub clients: usize,
    /// Mean time of a load file with the good kernel, in ms.
    pub good_ms: f64,
    /// The same with the bad one.
    pub bad_ms: f64,
}

impl Published {
    /// How much longer the good one takes, in percent: negative where it is faster.
    #[must_use]
    pub fn gain_pct(&self) -> f64 {
        (self.good_ms - self.bad_ms) / self.bad_ms * 100.0
    }
}

/// The rows of both machines.
///
/// ```
/// let rows = inflight_sim::flush::cil_flush();
/// assert_eq!((rows.len(), rows[0].good_ms, rows[10].bad_ms), (11, 64.29, 591.03));
/// ```
#[must_use]
pub fn cil_flush() -> Vec<Published> {
    let csv = include_str!("../../data/cil_flush.csv");
    let row = |line: &str| {
        let fields: Vec<_> = line.split(',').map(str::trim).collect();
        let number = |at: usize| fields[at].parse().expect("data/ holds numbers");
        Published {
            machine: fields[0].to_owned(),
            clients: number(1) as usize,
            good_ms: number(2),
            bad_ms: number(3),
        }
    };
    csv.lines().skip(1).map(row).collect()
}
