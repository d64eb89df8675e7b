//! The throughput by issuers as a drawing.

use super::scenario::Scope;
use super::table::{Row, Table};
use crate::chart::{Curve, Panel, draw};
use plotters::prelude::SeriesLabelPosition;

/// MiB/s and CPU by issuers, published and simulated, for each scope, as an SVG.
///
/// # Errors
///
/// What the drawing library says.
pub fn plot(table: &Table) -> Result<String, Box<dyn std::error::Error>> {
    let curves = |published: fn(&Row) -> Option<f64>, ours: fn(&Row) -> f64| {
        let of = move |(colour, scope): (usize, Scope)| {
            let points = |of: &dyn Fn(&Row) -> Option<f64>| {
                let rows = table.rows.iter().filter(|row| row.scope == scope);
                let point = |row: &Row| Some((row.issuers as f64, of(row)?));
                let mut points: Vec<_> = rows.filter_map(point).collect();
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                points
            };
            let curve = |name, published, points| Curve {
                name,
                colour,
                published,
                points,
            };
            [
                curve(
                    scope.name().to_owned(),
                    false,
                    points(&|row| Some(ours(row))),
                ),
                curve(format!("{scope}, published"), true, points(&published)),
            ]
        };
        Scope::ALL.into_iter().enumerate().flat_map(of).collect()
    };
    draw(&[
        Panel {
            title: "Encryption under affinity scopes: MiB/s",
            x: "issuers",
            y: "MiB/s",
            from: 0.0,
            legend: SeriesLabelPosition::LowerRight,
            curves: curves(|row| Some(row.published?.mib_s), |row| row.seen.mean.mib_s),
        },
        Panel {
            title: "CPU time",
            x: "issuers",
            y: "% of all CPUs",
            from: 0.0,
            legend: SeriesLabelPosition::LowerRight,
            curves: curves(
                |row| Some(row.published?.cpu_pct),
                |row| row.seen.mean.cpu_pct,
            ),
        },
    ])
}
