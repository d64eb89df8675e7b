//! Figures of a row, as a table shows them.

use super::picks::{Picked, figure};
use crate::record::{Row, Side};

/// Whether the goal is met; `None` if there is none.
pub(super) fn met(row: &Row) -> Option<bool> {
    let mut words = row.goal.split_whitespace();
    let (sign, limit) = (words.next()?, words.next()?.parse::<f64>().ok()?);
    match sign {
        "<=" => Some(figure(row)? <= limit),
        ">=" => Some(figure(row)? >= limit),
        _ => None,
    }
}

pub(super) fn ours(picked: &Picked) -> String {
    let Row { ours, unit, .. } = &picked.row;
    let mut text = format!("{} {}", ours.name, side(ours.value, unit));
    if picked.row.beside.is_empty() && short(picked.least) != short(picked.most) {
        text += &format!(" ({} to {})", short(picked.least), short(picked.most));
    }
    text
}

pub(super) fn rivals(row: &Row) -> String {
    let text = |rival: &Side| format!("{} {}", rival.name, side(rival.value, &row.unit));
    let all: Vec<_> = row.rivals.iter().map(text).collect();
    all.join("; ")
}

fn side(value: Option<f64>, unit: &str) -> String {
    let value = value.map_or_else(String::new, short);
    format!("{value} {unit}").trim().to_owned()
}

pub(super) fn ratio(picked: &Picked) -> String {
    let Some(ratio) = picked.row.ratio() else {
        return String::new();
    };
    let (least, most) = (short(picked.least), short(picked.most));
    format!("{} ({least} to {most})", short(ratio))
}

/// Three digits, with commas from 10,000 on.
pub(super) fn short(value: f64) -> String {
    if value < 0.095 {
        return format!("{value:.3}");
    }
    if value < 9.995 {
        return format!("{value:.2}");
    }
    if value < 99.95 {
        return format!("{value:.1}");
    }
    let unit = 10f64.powi((value.log10() as i32 - 2).max(0));
    let unit = if value < 10_000.0 { 1.0 } else { unit };
    let digits = format!("{:.0}", (value / unit).round() * unit);
    if digits.len() < 5 {
        return digits;
    }
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
