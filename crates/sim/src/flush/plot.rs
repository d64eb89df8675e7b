//! The gain by clients as a drawing.

use super::table::{Row, Table};
use plotters::prelude::*;

const SIZE: (u32, u32) = (860, 520);

/// The name of a curve, what it shows of a row, and how thick it is.
type Curve = (&'static str, fn(&Row) -> f64, u32);

/// The gain in percent by clients, published and simulated, for each machine, as an SVG.
///
/// # Errors
///
/// What the drawing library says.
pub fn plot(table: &Table) -> Result<String, Box<dyn std::error::Error>> {
    let mut drawing = String::new();
    {
        let area = SVGBackend::with_string(&mut drawing, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let most = table.rows.iter().map(|row| row.clients).max();
        let most = most.unwrap_or(1).max(2) as f64;
        let title = "Time of a load file, flush-before against eager: % by clients";
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(48)
            .build_cartesian_2d((1.0..most).log_scale().base(2.0), -50.0..5.0)?;
        chart
            .configure_mesh()
            .x_desc("clients")
            .y_desc("%")
            .x_label_formatter(&|clients| format!("{clients:.0}"))
            .light_line_style(WHITE)
            .draw()?;
        let mut machines: Vec<&str> = table.rows.iter().map(|row| row.machine.as_str()).collect();
        machines.dedup();
        for (number, machine) in machines.into_iter().enumerate() {
            let color = Palette99::pick(number).to_rgba();
            let curves: [Curve; 2] = [
                ("published", |row| row.published_gain_pct, 1),
                ("simulated", |row| row.gain_pct, 3),
            ];
            for (name, of, width) in curves {
                let style = color.stroke_width(width);
                let rows = table.rows.iter().filter(|row| row.machine == machine);
                let points = rows.map(|row| (row.clients as f64, of(row)));
                chart
                    .draw_series(LineSeries::new(points, style))?
                    .label(format!("{machine}, {name}"))
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
            }
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        area.present()?;
    }
    Ok(drawing)
}
