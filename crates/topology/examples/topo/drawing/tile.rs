//! Pieces of a drawing that know their size, and the ways to put them together.

use std::fmt::Write;

/// The width of a letter at a font size of 12, on the safe side for the usual sans-serif faces.
const LETTER: f64 = 7.2;

/// A drawn rectangle whose upper left corner is the origin.
#[derive(Clone, Default)]
pub(crate) struct Tile {
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) body: String,
}

/// The room a text needs.
pub(crate) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER
}

/// For text between tags.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

impl Tile {
    /// A box of a class, with a text in its middle and a longer one for the pointer over it.
    pub(crate) fn cell(class: &str, label: &str, hint: &str, width: f64, height: f64) -> Self {
        let (x, y) = (width / 2.0, height / 2.0 + 4.0);
        let (label, hint) = (escaped(label), escaped(hint));
        let body = format!(
            "<g class=\"{class}\"><title>{hint}</title>\
             <rect width=\"{width}\" height=\"{height}\" rx=\"3\"/>\
             <text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{label}</text></g>"
        );
        Self {
            width,
            height,
            body,
        }
    }

    /// A line of text.
    pub(crate) fn text(class: &str, text: &str) -> Self {
        let body = format!("<text class=\"{class}\" y=\"13\">{}</text>", escaped(text));
        Self {
            width: text_width(text),
            height: 18.0,
            body,
        }
    }

    /// Lines of text, none longer than `width` unless a word is.
    pub(crate) fn paragraph(class: &str, text: &str, width: f64) -> Self {
        let mut lines: Vec<String> = Vec::new();
        for word in text.split_whitespace() {
            match lines.last_mut() {
                Some(line) if text_width(line) + text_width(word) + LETTER <= width => {
                    line.push(' ');
                    line.push_str(word);
                }
                _ => lines.push(word.to_owned()),
            }
        }
        let lines = lines.iter().map(|line| Self::text(class, line)).collect();
        Self::column(lines, 0.0)
    }

    /// This tile in a box of a class, with a title above if there is one.
    pub(crate) fn framed(self, class: &str, title: &str, pad: f64) -> Self {
        let head = if title.is_empty() { 0.0 } else { 20.0 };
        let width = self.width.max(text_width(title)) + 2.0 * pad;
        let height = self.height + head + 2.0 * pad;
        let mut body = format!(
            "<rect class=\"{class}\" width=\"{width}\" height=\"{height}\" rx=\"{}\"/>",
            pad.min(6.0)
        );
        if !title.is_empty() {
            let title = escaped(title);
            write!(
                body,
                "<text class=\"title\" x=\"{pad}\" y=\"{}\">{title}</text>",
                pad + 12.0
            )
            .expect("a String takes everything");
        }
        body.push_str(&self.moved(pad, pad + head));
        Self {
            width,
            height,
            body,
        }
    }

    /// Side by side.
    pub(crate) fn row(tiles: Vec<Self>, gap: f64) -> Self {
        let mut row = Self::default();
        for tile in tiles {
            let x = if row.body.is_empty() {
                0.0
            } else {
                row.width + gap
            };
            row.body.push_str(&tile.moved(x, 0.0));
            row.width = x + tile.width;
            row.height = row.height.max(tile.height);
        }
        row
    }

    /// One below the other.
    pub(crate) fn column(tiles: Vec<Self>, gap: f64) -> Self {
        let mut column = Self::default();
        for tile in tiles {
            let y = if column.body.is_empty() {
                0.0
            } else {
                column.height + gap
            };
            column.body.push_str(&tile.moved(0.0, y));
            column.height = y + tile.height;
            column.width = column.width.max(tile.width);
        }
        column
    }

    /// Rows, as many tiles in each as give the shape nearest to that of a screen and leave the
    /// fewest places empty.
    pub(crate) fn block(tiles: &[Self], gap: f64) -> Self {
        let strangeness = |&columns: &usize| {
            let empty = tiles.len().next_multiple_of(columns) - tiles.len();
            let (width, height) = Self::size_of_rows(tiles, columns, gap);
            // How far the shape is from three to two.
            (width / height / 1.5).ln().abs() + empty as f64 / tiles.len() as f64
        };
        (1..=tiles.len())
            .min_by(|a, b| strangeness(a).total_cmp(&strangeness(b)))
            .map(|columns| Self::rows_of(tiles, columns, gap))
            .unwrap_or_default()
    }

    /// Rows as wide as fit.
    pub(crate) fn flow(tiles: &[Self], width: f64, gap: f64) -> Self {
        (1..=tiles.len())
            .rev()
            .find(|&columns| Self::size_of_rows(tiles, columns, gap).0 <= width)
            .map_or_else(
                || Self::column(tiles.to_vec(), gap),
                |columns| Self::rows_of(tiles, columns, gap),
            )
    }

    fn rows_of(tiles: &[Self], columns: usize, gap: f64) -> Self {
        let rows = tiles
            .chunks(columns)
            .map(|row| Self::row(row.to_vec(), gap))
            .collect();
        Self::column(rows, gap)
    }

    /// The width and height of [`rows_of`](Self::rows_of), without the drawing: a machine of
    /// thousands of cores asks for thousands of these.
    fn size_of_rows(tiles: &[Self], columns: usize, gap: f64) -> (f64, f64) {
        let gaps = |count: usize| count.saturating_sub(1) as f64 * gap;
        let rows = tiles.chunks(columns);
        let between = gaps(rows.len());
        let (width, height) = rows.fold((0.0_f64, 0.0), |(width, height), row| {
            let across = row.iter().map(|tile| tile.width).sum::<f64>() + gaps(row.len());
            let tallest = row.iter().map(|tile| tile.height).fold(0.0, f64::max);
            (width.max(across), height + tallest)
        });
        (width, height + between)
    }

    fn moved(&self, x: f64, y: f64) -> String {
        format!("<g transform=\"translate({x} {y})\">{}</g>\n", self.body)
    }
}
