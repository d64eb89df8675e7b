//! `xtask bench-docs`: tables of benchmarks in README and the book, made from the records alone.
//!
//! What stands between `<!-- measured: WHAT -->` and `<!-- end -->` is replaced. WHAT is a list of
//! sections and groups; or `rows` and a line for each row with its label, its load, ours, and the
//! rival asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::marked::{filled, head, row};
use crate::output::say;
use crate::record::{self, Row, Run};

/// So many runs of a row are the least for a median.
const ENOUGH: usize = 5;

/// Of more sections than these a command names the group.
const MANY: usize = 3;

const COLUMNS: usize = 100;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Write nothing: fail if a page is not what the records give
    #[arg(long)]
    check: bool,
}

/// Writes the pages, or tells which of them are not what the records give.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let stale = stale(root)?;
    for (page, text) in &stale {
        if options.check {
            say!("{}: {STALE}", page.display());
        } else {
            std::fs::write(root.join(page), text)?;
            say!("{}: written anew", page.display());
        }
    }
    Ok(!options.check || stale.is_empty())
}

/// What is wrong with a page.
pub(crate) const STALE: &str =
    "a table is not what the records give: cargo run --release -p xtask -- bench-docs";

/// The pages that are not what the records give, and what they should be.
pub(crate) fn stale(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut pages = vec![PathBuf::from("README.md")];
    if let Ok(folder) = std::fs::read_dir(root.join("docs")) {
        for entry in folder {
            pages.push(Path::new("docs").join(entry?.file_name()));
        }
    }
    pages.retain(|page| page.extension().is_some_and(|e| e == "md") && root.join(page).is_file());
    pages.sort();
    let mut records = None;
    let mut stale = Vec::new();
    for page in pages {
        let path = root.join(&page);
        let text = std::fs::read_to_string(&path).with_context(|| page.display().to_string())?;
        let mut part = |what: &str| {
            if records.is_none() {
                records = Some(Records::new(record::read(root)?)?);
            }
            records.as_ref().context("just read")?.table(what)
        };
        let new = filled(&text, "measured", &mut part);
        let new = new.with_context(|| page.display().to_string())?;
        if new != text {
            stale.push((page, new));
        }
    }
    Ok(stale)
}

/// What tells a row from others of its run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    section: String,
    load: String,
    ours: String,
    beside: String,
    state: String,
}

impl Key {
    fn of(row: &Row) -> Self {
        Self {
            section: row.section.clone(),
            load: row.load.clone(),
            ours: row.ours.name.clone(),
            beside: row.beside.clone(),
            state: row.state.clone(),
        }
    }
}

/// The run in the middle, and what the others gave.
#[derive(Debug)]
struct Picked {
    row: Row,
    /// How many runs there were.
    runs: usize,
    /// The extremes of what is compared: the ratio, or ours.
    least: f64,
    most: f64,
}

/// All rows that count.
#[derive(Debug)]
struct Records {
    picked: BTreeMap<Key, Picked>,
    /// Rows with too few runs, and groups they are of.
    few: BTreeMap<Key, String>,
}

/// What is compared: the ratio, or ours where there is none.
fn figure(row: &Row) -> Option<f64> {
    if row.beside.is_empty() {
        row.ours.value
    } else {
        row.ratio()
    }
}

fn more_is_better(row: &Row) -> bool {
    row.goal.starts_with(">=") || row.unit.ends_with("/s")
}

impl Records {
    fn new(rows: Vec<Row>) -> Result<Self> {
        // A load that the newest run of its section does not know is no more.
        let mut newest: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
        for row in &rows {
            let (start, loads) = newest.entry(row.section.clone()).or_default();
            if *start < row.run.start {
                (*start, *loads) = (row.run.start.clone(), BTreeSet::new());
            }
            if *start == row.run.start {
                loads.insert(row.load.clone());
            }
        }
        // By row, by commit and machine, by run.
        type Runs = BTreeMap<String, Row>;
        let mut all: BTreeMap<Key, BTreeMap<(String, String), Runs>> = BTreeMap::new();
        for row in rows {
            if figure(&row).is_none() || !newest[&row.section].1.contains(&row.load) {
                continue;
            }
            let of = (row.run.commit.clone(), machine(&row));
            let sets = all.entry(Key::of(&row)).or_default();
            let start = row.run.start.clone();
            let twice = sets.entry(of).or_default().insert(start.clone(), row);
            if let Some(row) = twice {
                anyhow::bail!("the run of {start} has two rows of \"{}\"", row.load);
            }
        }
        let (mut picked, mut few) = (BTreeMap::new(), BTreeMap::new());
        for (key, sets) in all {
            let group = sets.values().flat_map(BTreeMap::values).next();
            let group = group.map_or_else(String::new, |row| row.group.clone());
            let enough = sets.into_values().filter(|runs| runs.len() >= ENOUGH);
            let last = |runs: &Runs| runs.keys().next_back().cloned();
            let newest = enough.max_by_key(last);
            match newest {
                Some(runs) => drop(picked.insert(key, middle(runs.into_values().collect()))),
                None => drop(few.insert(key, group)),
            }
        }
        Ok(Self { picked, few })
    }

    /// The table that a mark asks for.
    fn table(&self, what: &str) -> Result<String> {
        match what.strip_prefix("rows") {
            Some(rows) => self.chosen(rows),
            None => self.whole(what),
        }
    }

    /// All rows of some sections; those of the far state in a table of their own, if there are any.
    fn whole(&self, what: &str) -> Result<String> {
        let names: Vec<_> = what.split_whitespace().collect();
        if let Some(word) = names.iter().find(|name| name.contains('=')) {
            anyhow::bail!("what is {word}?");
        }
        let far = self.of_state(&names, true);
        let mut text = self
            .of_state(&names, false)
            .unwrap_or_else(|| unmeasured(&names));
        if let Some(far) = far {
            text += &format!("\n{far}");
        }
        Ok(text)
    }

    /// The rows of these sections and groups in the far state, or in any other. `None` if there is
    /// nothing to show or to tell.
    fn of_state(&self, names: &[&str], far: bool) -> Option<String> {
        let asks = |name: &str, key: &Key, group: &str| name == group || name == key.section;
        let of_state = |key: &Key| (key.state == "far") == far && key.state != "one core";
        let mut rows: Vec<(usize, &Key, &Picked)> = Vec::new();
        for (key, picked) in self.picked.iter().filter(|(key, _)| of_state(key)) {
            if let Some(at) = names.iter().position(|n| asks(n, key, &picked.row.group)) {
                rows.push((at, key, picked));
            }
        }
        rows.sort_by_key(|(at, key, picked)| (*at, &key.section, picked.row.place, *key));
        let is_hidden = |(key, group): &(&Key, &String)| {
            of_state(key) && names.iter().any(|name| asks(name, key, group))
        };
        let hidden = self.few.iter().filter(is_hidden).count();
        let picked: Vec<_> = rows.iter().map(|(_, _, picked)| *picked).collect();
        if picked.is_empty() {
            return None;
        }
        // Of the far state there are few rows by nature.
        let mut text = caption(&picked, names, if far { 0 } else { hidden });
        let goals = picked.iter().filter_map(|p| met(&p.row));
        let (met_goals, goals) = goals.fold((0, 0), |(m, n), met| (m + usize::from(met), n + 1));
        let said = match goals {
            0 => String::new(),
            _ => format!(" {met_goals} of {goals} goals are met."),
        };
        text = wrapped(&(text.trim_end().to_owned() + &said));
        let heading = [
            "load",
            "worst case",
            "ours",
            "beside",
            "ratio",
            "goal",
            "met",
        ];
        let lines = picked.iter().map(|p| {
            let met = met(&p.row).map_or("", |met| if met { "yes" } else { "NO" });
            let case = p.row.case.clone();
            let load = p.row.load.clone();
            let goal = p.row.goal.replace('-', "");
            [
                load,
                case,
                ours(p),
                rivals(&p.row),
                ratio(p),
                goal,
                met.to_owned(),
            ]
        });
        let table = laid_out(&picked, heading, lines.collect());
        Some(format!("{text}\n{table}"))
    }

    /// Some rows, each with a label.
    fn chosen(&self, rows: &str) -> Result<String> {
        let (mut picked, mut lines, mut hidden) = (Vec::new(), Vec::new(), 0);
        let mut sections = Vec::new();
        for line in rows.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let [_, label, load, ours, beside, _] = cells[..] else {
                anyhow::bail!("no row is asked for by: {line}");
            };
            let wanted = |key: &Key| {
                let near = key.state != "far" && key.state != "one core";
                near && key.load == load && key.ours == ours && key.beside == beside
            };
            if let Some((key, found)) = self.picked.iter().find(|(key, _)| wanted(key)) {
                if !sections.contains(&key.section.as_str()) {
                    sections.push(&key.section);
                }
                picked.push(found);
                lines.push((label, found));
            } else {
                hidden += 1;
            }
        }
        let mut text = unmeasured(&sections);
        if !picked.is_empty() {
            text = caption(&picked, &sections, hidden);
            let lines = lines.into_iter().map(|(label, p)| {
                // A rival may stand beside a value that has a limit of its own.
                let rival = p.row.rivals.first().and_then(|rival| rival.value);
                let other = p
                    .row
                    .ours
                    .value
                    .zip(rival)
                    .map(|(ours, rival)| ours / rival);
                let loses = other.is_some_and(|r| {
                    if more_is_better(&p.row) {
                        r < 1.0
                    } else {
                        r > 1.0
                    }
                });
                let loses = if loses { ": **ours loses**" } else { "" };
                let mine = ours(p);
                let mine = mine.strip_prefix(&p.row.ours.name).unwrap_or(&mine).trim();
                [
                    format!("{label}{loses}"),
                    mine.to_owned(),
                    rivals(&p.row),
                    if p.row.beside.is_empty() {
                        other.map_or_else(String::new, short)
                    } else {
                        ratio(p)
                    },
                ]
            });
            let heading = ["load", "ours", "best rival", "ratio"];
            text += &format!("\n{}", laid_out(&picked, heading, lines.collect()));
        }
        Ok(text)
    }
}

/// The run whose figure is in the middle; of an even number of runs the worse one of the two.
fn middle(mut runs: Vec<Row>) -> Picked {
    let of = |row: &Row| figure(row).unwrap_or(f64::NAN);
    let up = |a: &Row, b: &Row| of(a).total_cmp(&of(b)).then(a.run.start.cmp(&b.run.start));
    runs.sort_by(up);
    let (least, most) = (of(&runs[0]), of(&runs[runs.len() - 1]));
    if more_is_better(&runs[0]) {
        runs.reverse();
    }
    let count = runs.len();
    Picked {
        row: runs.swap_remove(count / 2),
        runs: count,
        least,
        most,
    }
}

/// Whether the goal is met; `None` if there is none.
fn met(row: &Row) -> Option<bool> {
    let mut words = row.goal.split_whitespace();
    let (sign, limit) = (words.next()?, words.next()?.parse::<f64>().ok()?);
    match sign {
        "<=" => Some(figure(row)? <= limit),
        ">=" => Some(figure(row)? >= limit),
        _ => None,
    }
}

/// What measures these sections or groups; of many sections, those that hold them.
fn command(picked: &[&Picked], names: &[&str]) -> String {
    let mut names = names.to_vec();
    if names.len() > MANY && !picked.is_empty() {
        names = picked.iter().map(|p| p.row.group.as_str()).collect();
        names.sort_unstable();
        names.dedup();
    }
    let only: String = names.iter().map(|name| format!(" --only {name}")).collect();
    format!("`cargo run --release -p xtask -- ratios --record{only}`")
}

/// Instead of a table without rows.
fn unmeasured(names: &[&str]) -> String {
    let command = command(&[], names);
    wrapped(&format!(
        "No row has been measured {ENOUGH} times yet, by {command}."
    ))
}

/// Where a table is from.
fn caption(picked: &[&Picked], names: &[&str], hidden: usize) -> String {
    let few = |n: usize| match n {
        0 => String::new(),
        1 => format!(" One row with fewer than {ENOUGH} runs is not shown."),
        n => format!(" {n} rows with fewer than {ENOUGH} runs are not shown."),
    };
    let days = picked.iter().map(|p| p.row.run.day());
    let (first, last) = (days.clone().min(), days.max());
    let mut said = vec![command(picked, names)];
    said.push(match (first, last) {
        (Some(first), Some(last)) if first != last => format!("{first} to {last}"),
        _ => picked[0].row.run.day().to_owned(),
    });
    let runs = picked.iter().map(|p| p.runs);
    let (least, most) = (runs.clone().min(), runs.max());
    said.push(match (least, most) {
        (Some(least), Some(most)) if least != most => format!("{least} to {most} runs"),
        _ => format!("{} runs", picked[0].runs),
    });
    let lines = picked.iter().filter_map(|p| p.row.line_ns);
    let (least, most) = (lines.clone().reduce(f64::min), lines.reduce(f64::max));
    if let Some((least, most)) = least.zip(most) {
        let far = picked.iter().all(|p| p.row.state == "far");
        let far = if far { "far state: " } else { "" };
        let least = format!("{least:.0}");
        let to = match format!("{most:.0}") {
            most if most == least => String::new(),
            most => format!(" to {most}"),
        };
        said.push(format!("{far}a cache line takes {least}{to} ns"));
    }
    let machines: BTreeSet<_> = picked.iter().map(|p| machine(&p.row)).collect();
    if machines.len() == 1 {
        said.push(machine(&picked[0].row));
    }
    wrapped(&format!("{}.{}", said.join(", "), few(hidden)))
}

fn machine(row: &Row) -> String {
    let Run {
        cpu, cpus, engine, ..
    } = &row.run;
    let engine = match engine.as_str() {
        "Rseq" => "restartable sequences".to_owned(),
        other => format!("the engine `{other}`"),
    };
    format!("{cpu} with {cpus} CPUs and {engine}")
}

/// A table: columns that say nothing are left out; where rows are of several machines they have a
/// column.
fn laid_out<const N: usize>(
    picked: &[&Picked],
    heading: [&str; N],
    lines: Vec<[String; N]>,
) -> String {
    let mut columns: Vec<(&str, Vec<String>)> = Vec::new();
    for (i, name) in heading.into_iter().enumerate() {
        columns.push((name, lines.iter().map(|line| line[i].clone()).collect()));
    }
    let machines: Vec<_> = picked.iter().map(|p| machine(&p.row)).collect();
    if machines.iter().any(|other| *other != machines[0]) {
        columns.push(("machine", machines));
    }
    columns.retain(|(_, cells)| cells.iter().any(|cell| !cell.is_empty()));
    let names: Vec<_> = columns.iter().map(|(name, _)| *name).collect();
    let mut text = head(&names);
    for i in 0..picked.len() {
        let cells: Vec<_> = columns.iter().map(|(_, cells)| shown(&cells[i])).collect();
        let cells: Vec<_> = cells.iter().map(String::as_str).collect();
        text += &row(&cells);
    }
    text
}

/// A cell as Markdown: no column ends in it, and `Vec<slot>` is no tag of HTML. "-" if empty.
fn shown(cell: &str) -> String {
    let mut text = String::new();
    let mut rest = cell.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '|' => text += "\\|",
            '<' if rest.peek().is_some_and(|next| next.is_alphabetic()) => text += "&lt;",
            _ => text.push(c),
        }
    }
    if text.is_empty() {
        "-".to_owned()
    } else {
        text
    }
}

fn ours(picked: &Picked) -> String {
    let Row { ours, unit, .. } = &picked.row;
    let mut text = format!("{} {}", ours.name, side(ours.value, unit));
    if picked.row.beside.is_empty() && short(picked.least) != short(picked.most) {
        text += &format!(" ({} to {})", short(picked.least), short(picked.most));
    }
    text
}

fn rivals(row: &Row) -> String {
    let text = |rival: &record::Side| format!("{} {}", rival.name, side(rival.value, &row.unit));
    let all: Vec<_> = row.rivals.iter().map(text).collect();
    all.join("; ")
}

fn side(value: Option<f64>, unit: &str) -> String {
    let value = value.map_or_else(String::new, short);
    format!("{value} {unit}").trim().to_owned()
}

fn ratio(picked: &Picked) -> String {
    let Some(ratio) = picked.row.ratio() else {
        return String::new();
    };
    let (least, most) = (short(picked.least), short(picked.most));
    format!("{} ({least} to {most})", short(ratio))
}

/// Three digits, with commas from 10,000 on.
fn short(value: f64) -> String {
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

/// In lines as long as the book's.
fn wrapped(text: &str) -> String {
    let (mut lines, mut line) = (String::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines += &format!("{line}\n");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    format!("{lines}{line}\n")
}

#[cfg(test)]
mod tests;
