//! The curves of a table as a drawing.

use super::policy::Policy;
use super::single::Single;
use super::table::{Row, Table};
use crate::chart::{Curve, Panel, draw};
use plotters::prelude::SeriesLabelPosition;

/// MiB/s by jobs, both published columns and every policy, as an SVG.
///
/// # Errors
///
/// What the drawing library says; a table without rows has nothing to draw and gives an empty
/// chart.
///
/// ```
/// use inflight_sim::hdd::{Policy, Scenario, Table, plot};
/// let short = |jobs, policy| Scenario::new(jobs, policy).warm_up(0.1).seconds(0.1);
/// let table = Table::run(&[1, 2], &[Policy::Preempt], short, || ())?;
/// assert!(plot(&table)?.contains("v5.18"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn plot(table: &Table) -> Result<String, Box<dyn std::error::Error>> {
    let points = |of: &dyn Fn(&Row) -> Option<f64>| {
        let point = |row: &Row| Some((row.jobs as f64, of(row)?));
        table.rows.iter().filter_map(point).collect::<Vec<_>>()
    };
    let published = |name: &str, colour, points| Curve {
        name: format!("published {name}"),
        colour,
        published: true,
        points,
    };
    let mut curves = vec![
        published("v5.18", 0, points(&|row| Some(row.published?.v5_18))),
        published("patched", 1, points(&|row| Some(row.published?.patched))),
    ];
    curves.extend(
        Policy::ALL
            .iter()
            .enumerate()
            .map(|(number, &policy)| Curve {
                name: policy.name().to_owned(),
                colour: number + 2,
                published: false,
                points: points(&|row| Some(row.of(policy)?.mib_s)),
            }),
    );
    draw(&[Panel {
        title: "Split IO on one disk: MiB/s by jobs",
        x: "jobs",
        y: "MiB/s",
        from: 0.0,
        legend: SeriesLabelPosition::LowerLeft,
        curves,
    }])
}

/// MiB/s of single writes by their size, published and ours, as an SVG.
///
/// # Errors
///
/// What the drawing library says.
pub fn plot_single(rows: &[Single]) -> Result<String, Box<dyn std::error::Error>> {
    let curve = |name: &str, published, of: fn(&Single) -> f64| Curve {
        name: name.to_owned(),
        colour: 0,
        published,
        points: rows.iter().map(|row| (row.kib as f64, of(row))).collect(),
    };
    draw(&[Panel {
        title: "One write at a time: MiB/s by size",
        x: "KiB",
        y: "MiB/s",
        from: 0.0,
        legend: SeriesLabelPosition::LowerRight,
        curves: vec![
            curve("published", true, |row| row.published_mib_s),
            curve("simulated", false, |row| row.mib_s),
        ],
    }])
}
