//! The throughput by the limit as a drawing.

use super::model::Counted;
use super::table::Table;
use plotters::prelude::*;

const SIZE: (u32, u32) = (860, 520);

/// MiB/s by the limit, for each thing that it counts, and the published points, as an SVG.
///
/// # Errors
///
/// What the drawing library says.
pub fn plot(table: &Table) -> Result<String, Box<dyn std::error::Error>> {
    let mut drawing = String::new();
    {
        let area = SVGBackend::with_string(&mut drawing, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let most = table.rows.iter().map(|row| row.max_active).max();
        let most = most.unwrap_or(1).max(2) as f64;
        let rates = table.rows.iter().map(|row| row.seen.mib_s);
        let highest = rates.fold(0.0, f64::max) * 1.1;
        let mut chart = ChartBuilder::on(&area)
            .caption("MiB/s by max_active", ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(56)
            .build_cartesian_2d((1.0..most).log_scale().base(2.0), 0.0..highest)?;
        chart
            .configure_mesh()
            .x_desc("max_active")
            .y_desc("MiB/s")
            .x_label_formatter(&|limit| format!("{limit:.0}"))
            .light_line_style(WHITE)
            .draw()?;
        for (number, counted) in Counted::ALL.into_iter().enumerate() {
            let color = Palette99::pick(number).to_rgba();
            let rows = || table.rows.iter().filter(move |row| row.counted == counted);
            let name = match counted {
                Counted::System => "counted for the system",
                Counted::Cpu => "counted for each CPU",
            };
            let style = color.stroke_width(3);
            let points = rows().map(|row| (row.max_active as f64, row.seen.mib_s));
            chart
                .draw_series(LineSeries::new(points, style))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
            let published = rows().filter_map(|r| Some((r.max_active as f64, r.published_mib_s?)));
            chart
                .draw_series(published.map(|point| Circle::new(point, 5, color.filled())))?
                .label(format!("{name}, published"))
                .legend(move |(x, y)| Circle::new((x + 9, y), 5, color.filled()));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        area.present()?;
    }
    Ok(drawing)
}
