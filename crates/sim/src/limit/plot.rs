//! The throughput by the limit as a drawing.

use super::model::Counted;
use super::table::{Row, Table};
use crate::chart::{Curve, Panel, draw};
use plotters::prelude::SeriesLabelPosition;

/// MiB/s by the limit, for each thing that it counts, and the published points, as an SVG.
///
/// # Errors
///
/// What the drawing library says.
pub fn plot(table: &Table) -> Result<String, Box<dyn std::error::Error>> {
    let curves = Counted::ALL
        .into_iter()
        .enumerate()
        .flat_map(|(colour, counted)| {
            let name = match counted {
                Counted::System => "counted for the system",
                Counted::Cpu => "counted for each CPU",
            };
            let curve = |name: String, published, of: fn(&Row) -> Option<f64>| Curve {
                name,
                colour,
                published,
                points: (table.rows.iter())
                    .filter(|row| row.counted == counted)
                    .filter_map(|row| Some((row.max_active as f64, of(row)?)))
                    .collect(),
            };
            [
                curve(name.to_owned(), false, |row| Some(row.seen.mib_s)),
                curve(format!("{name}, published"), true, |row| {
                    row.published_mib_s
                }),
            ]
        });
    draw(&[Panel {
        title: "MiB/s by max_active",
        x: "max_active",
        y: "MiB/s",
        from: 0.0,
        legend: SeriesLabelPosition::UpperRight,
        curves: curves.collect(),
    }])
}
