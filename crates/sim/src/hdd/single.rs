//! One write at a time, beside the published table.

use super::disk::{Disk, Request};
use super::model::Model;
use super::published::single_io;
use crate::goal::{Goal, Margin, goal};
use std::fmt;

/// A row.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Single {
    /// Size of the write in KiB.
    pub kib: u64,
    /// MiB/s.
    pub mib_s: f64,
    /// MiB/s in the source.
    pub published_mib_s: f64,
    /// How far `mib_s` is from that, in percent.
    pub error_pct: f64,
}

/// All rows: of a disk without a write cache, for which nothing is random.
#[must_use]
pub fn singles() -> Vec<Single> {
    let model = Model {
        cache_pieces: 0,
        burst: 1,
        ..Model::default()
    };
    let row = |published: super::SingleIo| {
        let mut disk = Disk::new(model.clone(), 1);
        let written = disk.submit(Request {
            start: 1 << 30,
            len: published.kib << 10,
            tag: (),
        });
        let time = written.writes_for.expect("an idle disk begins at once");
        let mib_s = published.kib as f64 / 1024.0 / time.as_secs_f64();
        Single {
            kib: published.kib,
            mib_s,
            published_mib_s: published.mib_s,
            error_pct: (mib_s / published.mib_s - 1.0) * 100.0,
        }
    };
    single_io().into_iter().map(row).collect()
}

/// What must be seen.
#[must_use]
pub fn single_goals(rows: &[Single]) -> Vec<Goal> {
    let errors = rows.iter().map(|row| {
        let at = format!("{} KiB", row.kib);
        Margin::at_most("|error| in %", &at, row.error_pct.abs(), 2.3)
    });
    let fit = goal("single writes are within 2.3 % of the published", errors);
    fit.into_iter().collect()
}

/// The rows as a table.
#[derive(Clone, Copy, Debug)]
pub struct Singles<'a>(pub &'a [Single]);

impl fmt::Display for Singles<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n  KiB    MiB/s  published    diff")?;
        for row in self.0 {
            writeln!(
                f,
                "{:>5}{:>9.1}{:>11.1}{:>+6.1} %",
                row.kib, row.mib_s, row.published_mib_s, row.error_pct
            )?;
        }
        Ok(())
    }
}
