//! The gains by clients as a drawing.

use super::table::{Row, Table};
use crate::chart::{Curve, Panel, draw};
use plotters::prelude::SeriesLabelPosition;

/// The gain in percent by clients, published and simulated, a panel for each table, as an SVG.
///
/// # Errors
///
/// What the drawing library says.
pub fn plot(table: &Table) -> Result<String, Box<dyn std::error::Error>> {
    let mut tables: Vec<&str> = table.rows.iter().map(|row| row.table).collect();
    tables.dedup();
    let panel = |(colour, name): (usize, &&'static str)| {
        let curve = |kind: &str, published, of: fn(&Row) -> f64| Curve {
            name: kind.to_owned(),
            colour,
            published,
            points: (table.rows.iter())
                .filter(|row| row.table == *name)
                .map(|row| (row.clients as f64, of(row)))
                .collect(),
        };
        Panel {
            title: name,
            x: "clients",
            y: "time of a load file, gained, %",
            from: -4.0,
            legend: SeriesLabelPosition::LowerLeft,
            curves: vec![
                curve("published", true, |row| row.published_gain_pct),
                curve("simulated", false, |row| row.ours.gain_pct),
            ],
        }
    };
    let panels: Vec<_> = tables.iter().enumerate().map(panel).collect();
    draw(&panels)
}
