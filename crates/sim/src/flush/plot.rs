//! The gain by clients as a drawing.

use super::table::{Row, Table};
use crate::chart::{Curve, Panel, draw};
use plotters::prelude::SeriesLabelPosition;

/// The gain in percent by clients, published and simulated, for each machine, as an SVG.
///
/// # Errors
///
/// What the drawing library says.
pub fn plot(table: &Table) -> Result<String, Box<dyn std::error::Error>> {
    let mut machines: Vec<&str> = table.rows.iter().map(|row| row.machine.as_str()).collect();
    machines.dedup();
    let curves = machines.iter().enumerate().flat_map(|(colour, machine)| {
        let curve = |kind: &str, published, of: fn(&Row) -> f64| Curve {
            name: format!("{machine}, {kind}"),
            colour,
            published,
            points: (table.rows.iter())
                .filter(|row| row.machine == *machine)
                .map(|row| (row.clients as f64, of(row)))
                .collect(),
        };
        [
            curve("published", true, |row| row.published_gain_pct),
            curve("simulated", false, |row| row.gain_pct),
        ]
    });
    draw(&[Panel {
        title: "Time of a load file, flush-before against eager: % by clients",
        x: "clients",
        y: "%",
        from: -50.0,
        legend: SeriesLabelPosition::LowerRight,
        curves: curves.collect(),
    }])
}
