//! Curves as drawings: published beside simulated, panels side by side.

use plotters::coord::Shift;
use plotters::prelude::*;
use std::error::Error;

/// Of one panel alone, and of one among others.
const ALONE: (u32, u32) = (860, 520);
const AMONG: (u32, u32) = (440, 420);

/// Dark enough for thin lines on white.
const COLOURS: [RGBColor; 8] = [
    RGBColor(192, 57, 43),
    RGBColor(31, 111, 87),
    RGBColor(43, 95, 148),
    RGBColor(184, 134, 11),
    RGBColor(125, 60, 152),
    RGBColor(17, 138, 160),
    RGBColor(211, 84, 0),
    RGBColor(91, 107, 123),
];

/// Points that belong together.
pub(crate) struct Curve {
    pub(crate) name: String,
    /// Curves of one colour are about the same thing.
    pub(crate) colour: usize,
    /// Thin and with circles; what was simulated is thick.
    pub(crate) published: bool,
    pub(crate) points: Vec<(f64, f64)>,
}

/// One system of axes. The horizontal one is logarithmic.
pub(crate) struct Panel<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    /// From where the vertical axis begins; it ends above the highest point.
    pub(crate) from: f64,
    pub(crate) legend: SeriesLabelPosition,
    pub(crate) curves: Vec<Curve>,
}

/// The panels in a row, as an SVG.
pub(crate) fn draw(panels: &[Panel<'_>]) -> Result<String, Box<dyn Error>> {
    let mut drawing = String::new();
    {
        let (width, height) = if panels.len() == 1 { ALONE } else { AMONG };
        let count = panels.len().max(1);
        let size = (width * count as u32, height);
        let area = SVGBackend::with_string(&mut drawing, size).into_drawing_area();
        area.fill(&WHITE)?;
        for (panel, area) in panels.iter().zip(area.split_evenly((1, count))) {
            panel.draw(&area)?;
        }
        area.present()?;
    }
    Ok(drawing)
}

impl Panel<'_> {
    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), Box<dyn Error>> {
        let points = || self.curves.iter().flat_map(|curve| curve.points.iter());
        let first = points().map(|(x, _)| *x).fold(f64::INFINITY, f64::min);
        let last = points().map(|(x, _)| *x).fold(0.0, f64::max);
        let most = points().map(|(_, y)| *y).fold(0.0, f64::max);
        let first = if first.is_finite() { first } else { 1.0 };
        // Also of a single point, or of none, an axis can be drawn.
        let across = first..last.max(2.0 * first);
        let up = self.from..(most + 0.08 * (most - self.from)).max(self.from + 1.0);
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(56)
            .build_cartesian_2d(across.log_scale().base(2.0), up)?;
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(self.y)
            .x_labels(10)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| format!("{y:.0}"))
            .light_line_style(WHITE)
            .draw()?;
        for curve in self.curves.iter().filter(|curve| !curve.points.is_empty()) {
            let style = ShapeStyle {
                color: COLOURS[curve.colour % COLOURS.len()].to_rgba(),
                filled: false,
                stroke_width: if curve.published { 1 } else { 3 },
            };
            let circles = if curve.published { 3 } else { 0 };
            chart
                .draw_series(LineSeries::new(curve.points.iter().copied(), style))?
                .label(curve.name.as_str())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
            let circle = |at: &(f64, f64)| Circle::new(*at, circles, style);
            let at = curve.points.iter().filter(|_| curve.published);
            chart.draw_series(at.map(circle))?;
        }
        chart
            .configure_series_labels()
            .position(self.legend.clone())
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        Ok(())
    }
}
