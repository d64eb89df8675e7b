//! The curves of a table as a drawing.

use super::policy::Policy;
use super::table::{Row, Table};
use plotters::prelude::*;

const SIZE: (u32, u32) = (860, 520);

/// MiB/s by jobs, both published columns and every policy, as an SVG.
///
/// # Errors
///
/// What the drawing library says; a table without rows has nothing to draw and gives an empty
/// chart.
///
/// ```
/// use inflight_sim::hdd::{Policy, Scenario, Table, svg};
/// let short = |jobs, policy| Scenario::new(jobs, policy).warm_up(0.1).seconds(0.1);
/// let table = Table::run(&[1, 2], &[Policy::Preempt], short, || ())?;
/// assert!(svg(&table)?.contains("v5.18"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn svg(table: &Table) -> Result<String, Box<dyn std::error::Error>> {
    let mut drawing = String::new();
    {
        let area = SVGBackend::with_string(&mut drawing, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let jobs = table.rows.iter().map(|row| row.jobs);
        let most = jobs.max().unwrap_or(1).max(2) as f64;
        let mut chart = ChartBuilder::on(&area)
            .caption("Split IO on one disk: MiB/s by jobs", ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(48)
            .build_cartesian_2d((1.0..most).log_scale().base(2.0), 0.0..80.0)?;
        chart
            .configure_mesh()
            .x_desc("jobs")
            .y_desc("MiB/s")
            .x_labels(10)
            .x_label_formatter(&|jobs| format!("{jobs:.0}"))
            .y_label_formatter(&|rate| format!("{rate:.0}"))
            .light_line_style(WHITE)
            .draw()?;
        for (number, curve) in curves(table).into_iter().enumerate() {
            let color = Palette99::pick(number).to_rgba();
            let style = ShapeStyle {
                color,
                filled: false,
                stroke_width: if curve.published { 1 } else { 2 },
            };
            chart
                .draw_series(LineSeries::new(curve.points.iter().copied(), style))?
                .label(curve.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
            if curve.published {
                let point = |&at: &(f64, f64)| Circle::new(at, 3, style);
                chart.draw_series(curve.points.iter().map(point))?;
            }
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        area.present()?;
    }
    Ok(drawing)
}

struct Curve {
    name: String,
    published: bool,
    points: Vec<(f64, f64)>,
}

fn curves(table: &Table) -> Vec<Curve> {
    let points = |of: &dyn Fn(&Row) -> Option<f64>| {
        let point = |row| Some((row_jobs(row), of(row)?));
        table.rows.iter().filter_map(point).collect::<Vec<_>>()
    };
    let published = |name: &str, points| Curve {
        name: format!("published {name}"),
        published: true,
        points,
    };
    let mut curves = vec![
        published("v5.18", points(&|row| Some(row.published?.v5_18))),
        published("patched", points(&|row| Some(row.published?.patched))),
    ];
    curves.extend(Policy::ALL.iter().map(|&policy| Curve {
        name: policy.name().to_owned(),
        published: false,
        points: points(&|row| Some(row.of(policy)?.mib_s)),
    }));
    curves.retain(|curve| !curve.points.is_empty());
    curves
}

fn row_jobs(row: &Row) -> f64 {
    row.jobs as f64
}
