//! What the table must show, and whether it does.

use super::model::Counted;
use super::table::{Row, Table};
use crate::goal::{Goal, Margin, goal};

fn at(row: &Row) -> String {
    format!("max_active {}, {}", row.max_active, row.counted)
}

impl Table {
    fn of(&self, counted: Counted) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.counted == counted)
    }

    /// What must be seen: the limit holds, the multiplied one does not, and costs what it did.
    #[must_use]
    pub fn goals(&self) -> Vec<Goal> {
        let fit = self.rows.iter().filter_map(|row| {
            let error = row.error_pct?.abs();
            Some(Margin::at_most("|error| in %", &at(row), error, 5.0))
        });
        let bound = self.of(Counted::System).map(|row| {
            let running = row.seen.most_running as f64;
            Margin::at_most("running", &at(row), running, row.max_active as f64)
        });
        let multiplied = self.row(Counted::Cpu, 8).into_iter();
        let multiplied = multiplied
            .map(|row| Margin::at_least("threads", &at(row), row.seen.threads as f64, 700.0));
        let pair = self
            .row(Counted::Cpu, 8)
            .zip(self.row(Counted::System, 8))
            .into_iter();
        let loss = pair.map(|(cpu, system)| {
            let part = cpu.seen.mib_s / system.seen.mib_s;
            Margin::at_most("part of the asked limit", &at(cpu), part, 0.6)
        });
        let above: Vec<_> = self
            .of(Counted::System)
            .filter(|r| r.max_active >= 8)
            .collect();
        let slower = above.windows(2).map(|pair| {
            let part = pair[1].seen.mib_s / pair[0].seen.mib_s;
            // Of limits above the number of writes each gives the same.
            Margin::at_most("part of the limit before", &at(pair[1]), part, 1.01)
        });
        let goals = [
            goal("MiB/s are within 5 % of the published", fit),
            goal("no more items run than the limit of the system says", bound),
            goal(
                "a limit for each CPU makes more than 700 threads",
                multiplied,
            ),
            goal("and loses 40 % and more", loss),
            goal("from 8 on a larger limit is slower", slower),
        ];
        goals.into_iter().flatten().collect()
    }
}
