//! What the tables must show, and whether they do.

use super::published::Which;
use super::table::{ControlRow, Row, Table};
use crate::goal::{Goal, Margin, goal};
use std::ops::RangeInclusive;

/// A gain within so many points of the published one is near it.
pub const POINTS: f64 = 6.0;
/// The part of all rows that must be near.
const NEAR: f64 = 0.8;

fn at(row: &Row) -> String {
    format!("{}, {} clients", row.table, row.clients)
}

impl Table {
    fn rows_of(&self, table: Which, clients: RangeInclusive<usize>) -> impl Iterator<Item = &Row> {
        let wanted = move |row: &&Row| row.table == table.name() && clients.contains(&row.clients);
        self.rows.iter().filter(wanted)
    }

    fn control(&self, name: &str) -> impl Iterator<Item = &ControlRow> {
        self.controls.iter().filter(move |row| row.control == name)
    }

    fn gains(
        &self,
        table: Which,
        clients: RangeInclusive<usize>,
        limits: RangeInclusive<f64>,
    ) -> impl Iterator<Item = Margin> {
        let rows = self.rows_of(table, clients);
        rows.map(move |row| Margin::within("gain", &at(row), row.ours.gain_pct, &limits))
    }

    /// What must be seen.
    #[must_use]
    pub fn goals(&self) -> Vec<Goal> {
        self.stacked()
            .chain(self.pulled())
            .chain(self.of_controls())
            .collect()
    }

    fn stacked(&self) -> impl Iterator<Item = Goal> {
        let (near, all) = self.within(POINTS);
        let part = near as f64 / all as f64;
        let near = (all > 0).then(|| Margin::at_least("part", "all rows", part, NEAR));
        let alone = [
            (Which::StackNuma48, 40.0..=60.0),
            (Which::StackUma8, 5.0..=15.0),
        ];
        let alone = alone.into_iter();
        let alone = alone.flat_map(|(table, limits)| self.gains(table, 1..=1, limits));
        let many = [(Which::StackNuma48, 32), (Which::StackUma8, 8)].into_iter();
        let many = many.flat_map(|(table, from)| self.gains(table, from..=usize::MAX, -3.0..=3.0));
        let rows: Vec<_> = self.rows_of(Which::StackNuma48, 1..=usize::MAX).collect();
        let falls = rows.windows(2).map(|rows| {
            let rise = rows[1].ours.gain_pct - rows[0].ours.gain_pct;
            Margin::within("points more", &at(rows[1]), rise, &(-100.0..=3.0))
        });
        let few = self.rows_of(Which::StackNuma48, 1..=8);
        let moves = few.flat_map(|row| {
            let (before, after) = (row.ours.before, row.ours.after);
            [
                Margin::at_least("before, per IO", &at(row), before.migrations_per_io, 0.9),
                Margin::at_most("after, per IO", &at(row), after.migrations_per_io, 0.01),
            ]
        });
        let goals = [
            goal(
                "four of five gains are within 6 points of the published",
                near.into_iter(),
            ),
            goal(
                "one client gains 40 to 60 % on 48 CPUs, 5 to 15 % on 8",
                alone,
            ),
            goal(
                "with as many clients as CPUs of a cache nothing is gained, within 3 %",
                many,
            ),
            goal("more clients gain less, within 3 points", falls),
            goal(
                "the stack rule ends migrations of up to 8 clients on 48 CPUs",
                moves,
            ),
        ];
        goals.into_iter().flatten()
    }

    fn pulled(&self) -> impl Iterator<Item = Goal> {
        let table = Which::IrqMigrate;
        let few = self.gains(table, 1..=8, 0.5..=6.0);
        let all = || self.rows_of(table, 1..=usize::MAX);
        let many = self.gains(table, 32..=32, -2.0..=2.0);
        let cross = all().map(|row| {
            let seen = row.ours.after.cross_node_per_io;
            Margin::within("per IO", &at(row), seen, &(0.0..=f64::MIN_POSITIVE))
        });
        let fewer = self.rows_of(table, 1..=8).map(|row| {
            let (before, after) = (row.ours.before, row.ours.after);
            let fewer = 1.0 - after.migrations_per_io / before.migrations_per_io;
            Margin::within("% fewer", &at(row), fewer * 100.0, &(10.0..=35.0))
        });
        let goals = [
            goal(
                "pulled within the cache, 1 to 8 clients gain 0.5 to 6 %",
                few,
            ),
            goal("with 32 clients that gains nothing, within 2 %", many),
            goal(
                "pulled within the cache, nobody is woken in another node",
                cross,
            ),
            goal(
                "1 to 8 clients migrate 10 to 35 % less (published: 24 %)",
                fewer,
            ),
        ];
        goals.into_iter().flatten()
    }

    fn of_controls(&self) -> impl Iterator<Item = Goal> {
        let at = |row: &ControlRow| format!("{}, {} clients", row.control, row.clients);
        let gain = move |row: &ControlRow, limits| {
            Margin::within("gain", &at(row), row.ours.gain_pct, &limits)
        };
        let null = ["no_bound_worker_uma8", "no_bound_worker_numa48"].into_iter();
        let null = null.flat_map(|name| self.control(name));
        let null = null.map(move |row| gain(row, -0.5..=0.5));
        let few = |name| self.control(name).filter(|row| row.clients <= 4);
        let unbound = few("journal_unbound").map(move |row| gain(row, -100.0..=0.0));
        let ends = few("journal_unbound_stacked").map(move |row| {
            let moves = row.ours.after.migrations_per_io;
            Margin::at_most("per IO", &at(row), moves, 0.01)
        });
        let order = few("pull_order").map(move |row| {
            let (before, after) = (row.ours.before, row.ours.after);
            let half = before.migrations_per_io / 2.0;
            Margin::at_most("per IO", &at(row), after.migrations_per_io, half)
        });
        let goals = [
            goal("without bound workers the stack rule changes nothing", null),
            goal(
                "an unbound journal costs up to 4 clients time without the stack rule",
                unbound,
            ),
            goal(
                "with it nobody migrates although the journal is unbound",
                ends,
            ),
            goal(
                "with the previous CPU first at most half as many migrations",
                order,
            ),
        ];
        goals.into_iter().flatten()
    }
}
