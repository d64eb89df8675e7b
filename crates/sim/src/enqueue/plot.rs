//! Rate and cost of a call by CPUs as a drawing.

use super::table::{Row, Table};
use crate::chart::{Curve, Panel, draw};
use inflight_topology::Scope;
use plotters::prelude::SeriesLabelPosition;

/// Items a second and the time of a call by CPUs, published and simulated, for each scope, as an
/// SVG.
///
/// # Errors
///
/// What the drawing library says.
pub fn plot(table: &Table) -> Result<String, Box<dyn std::error::Error>> {
    let mut scopes: Vec<Scope> = Vec::new();
    for row in &table.rows {
        if !scopes.contains(&row.scope) {
            scopes.push(row.scope);
        }
    }
    let curves = |published: fn(&Row) -> Option<f64>, ours: fn(&Row) -> f64| {
        let of = |(colour, scope): (usize, &Scope)| {
            let points = |of: &dyn Fn(&Row) -> Option<f64>| {
                let rows = table.rows.iter().filter(|row| row.scope == *scope);
                let point = |row: &Row| Some((row.cpus as f64, of(row)?));
                rows.filter_map(point).collect()
            };
            let curve = |name, published, points| Curve {
                name,
                colour,
                published,
                points,
            };
            [
                curve(scope.to_string(), false, points(&|row| Some(ours(row)))),
                curve(format!("{scope}, published"), true, points(&published)),
            ]
        };
        scopes.iter().enumerate().flat_map(of).collect()
    };
    draw(&[
        Panel {
            title: "Queueing: thousand items/s",
            x: "CPUs",
            y: "thousand items/s",
            from: 0.0,
            legend: SeriesLabelPosition::UpperLeft,
            curves: curves(
                |row| Some(row.published_items_per_s? / 1e3),
                |row| row.seen.items_per_s / 1e3,
            ),
        },
        Panel {
            title: "The median call, us",
            x: "CPUs",
            y: "us",
            from: 0.0,
            legend: SeriesLabelPosition::UpperLeft,
            curves: curves(
                |row| Some(row.published_call_p50_ns? / 1e3),
                |row| row.seen.call_p50_ns as f64 / 1e3,
            ),
        },
    ])
}
