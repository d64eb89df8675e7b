//! What the table must show, and whether it does.

use super::table::{Row, Table};
use crate::goal::{Goal, Margin, goal};

fn at(row: &Row) -> String {
    format!("{}, {} clients", row.machine, row.clients)
}

impl Table {
    /// What must be seen.
    #[must_use]
    pub fn goals(&self) -> Vec<Goal> {
        let ratio = [
            Margin::at_least("ratio", "all rows", self.flush_ratio, 2.0),
            Margin::at_most("ratio", "all rows", self.flush_ratio, 2.8),
        ];
        let right = |row: &&Row| (row.gain_pct < 0.0) == (row.published_gain_pct < 0.0);
        let right = self.rows.iter().filter(right).count() as f64 / self.rows.len() as f64;
        let first = self.rows.iter().filter(|row| row.clients == 1);
        let first = first.map(|row| {
            let off = row.gain_pct - row.published_gain_pct;
            Margin::at_most("points off", &at(row), off.abs(), 4.0)
        });
        let error = [Margin::at_most(
            "mean error %",
            "all rows",
            self.mean_error_pct(),
            15.0,
        )];
        let goals = [
            goal(
                "eager journals flush 2.0 to 2.8 times as often",
                ratio.into_iter(),
            ),
            goal(
                "the sign of the gain is the published one in nine of ten rows",
                [Margin::at_least("part", "all rows", right, 0.9)].into_iter(),
            ),
            goal(
                "one client gains what was published, within 4 points",
                first,
            ),
            goal(
                "times are within 15 % of the published, on average",
                error.into_iter(),
            ),
        ];
        goals.into_iter().flatten().collect()
    }
}
