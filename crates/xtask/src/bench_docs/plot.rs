//! A picture of a group of rows: ours divided by what stands beside it, with the extremes.

use std::error::Error;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::picks::{Picked, Records, more_is_better};

const WIDTH: i32 = 1040;
/// Where the labels end, and the axis begins.
const LEFT: i32 = 630;
const RIGHT: i32 = WIDTH - 30;
const ABOVE: i32 = 64;
const LINE: i32 = 20;
/// The axis goes from 2 to the minus this to 2 to this.
const POWERS: i32 = 5;

const BETTER: RGBColor = RGBColor(31, 111, 87);
const WORSE: RGBColor = RGBColor(192, 57, 43);
const INK: RGBColor = RGBColor(28, 39, 51);
const GRID: RGBColor = RGBColor(200, 209, 218);

/// How many times as good as ours the other is: below 1 ours is better. In the middle, at best, at
/// worst.
fn factors(picked: &Picked) -> Option<[f64; 3]> {
    let middle = picked.row.ratio()?;
    Some(if more_is_better(&picked.row) {
        [1.0 / middle, 1.0 / picked.most, 1.0 / picked.least]
    } else {
        [middle, picked.least, picked.most]
    })
}

/// The rows of a group that compare, as an SVG. `None` if there are none.
pub(super) fn plot(records: &Records, group: &str) -> Result<Option<String>, Box<dyn Error>> {
    let near = |state: &str| state != "far" && state != "one core";
    let of_group = records.picked.iter();
    let mut rows: Vec<_> = of_group
        .filter(|(key, picked)| picked.row.group == group && near(&key.state))
        .filter_map(|(key, picked)| Some((key, picked, factors(picked)?)))
        .collect();
    rows.sort_by_key(|(key, picked, _)| (&key.section, picked.row.place, *key));
    if rows.is_empty() {
        return Ok(None);
    }
    let mut drawing = String::new();
    {
        let height = ABOVE + LINE * rows.len() as i32 + 20;
        let size = (WIDTH as u32, height as u32);
        let area = SVGBackend::with_string(&mut drawing, size).into_drawing_area();
        area.fill(&WHITE)?;
        axis(&area, height)?;
        let title = format!(
            "{group}: ours divided by what stands beside it, {}",
            records.machine
        );
        area.draw(&Text::new(title, (20, 14), font(15, HPos::Left)))?;
        for (number, (_, picked, factors)) in rows.iter().enumerate() {
            let y = ABOVE + LINE * number as i32 + LINE / 2;
            let row = &picked.row;
            let rival = row.rivals.first().map_or("", |rival| rival.name.as_str());
            let label = format!("{}: {} / {rival}", short(&row.load), row.ours.name);
            area.draw(&Text::new(label, (LEFT - 10, y), font(11, HPos::Right)))?;
            let [middle, least, most] = factors.map(across);
            let colour = if factors[0] > 1.0 { WORSE } else { BETTER };
            let spread = vec![(least, y), (most, y)];
            area.draw(&PathElement::new(spread, colour.stroke_width(2)))?;
            area.draw(&Circle::new((middle, y), 4, colour.filled()))?;
        }
        area.present()?;
    }
    Ok(Some(drawing))
}

fn axis(area: &DrawingArea<SVGBackend<'_>, Shift>, height: i32) -> Result<(), Box<dyn Error>> {
    for power in -POWERS..=POWERS {
        let factor = 2f64.powi(power);
        let x = across(factor);
        let (colour, width) = if power == 0 { (INK, 2) } else { (GRID, 1) };
        let line = vec![(x, ABOVE), (x, height - 20)];
        area.draw(&PathElement::new(line, colour.stroke_width(width)))?;
        let label = match power {
            ..0 => format!("1/{}", 1 << -power),
            _ => (1 << power).to_string(),
        };
        area.draw(&Text::new(label, (x, ABOVE - 10), font(11, HPos::Center)))?;
    }
    let side = |text: &str, x: i32, at: HPos, colour: RGBColor| {
        let style = font(12, at).color(&colour);
        area.draw(&Text::new(text.to_owned(), (x, 36), style))
    };
    side("ours is better", across(1.0) - 8, HPos::Right, BETTER)?;
    side("the other is better", across(1.0) + 8, HPos::Left, WORSE)?;
    Ok(())
}

fn across(factor: f64) -> i32 {
    let power = factor.log2().clamp(f64::from(-POWERS), f64::from(POWERS));
    let part = (power + f64::from(POWERS)) / f64::from(2 * POWERS);
    LEFT + (part * f64::from(RIGHT - LEFT)).round() as i32
}

fn font(size: i32, at: HPos) -> TextStyle<'static> {
    let style = ("sans-serif", size).into_font().color(&INK);
    style.pos(Pos::new(at, VPos::Center))
}

/// What fits before the axis.
fn short(load: &str) -> String {
    let most = 64;
    if load.chars().count() <= most {
        return load.to_owned();
    }
    let begin: String = load.chars().take(most - 1).collect();
    format!("{}…", begin.trim_end())
}
