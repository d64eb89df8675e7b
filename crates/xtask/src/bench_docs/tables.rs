//! The tables that marks ask for.

use std::collections::HashSet;

use anyhow::{Result, bail};

use super::figures::{met, ours, ratio, rivals, short};
use super::picks::{ENOUGH, Key, Picked, Records, more_is_better};
use crate::marked::{head, row};

/// Of more sections than these a command names the group.
const MANY: usize = 3;

const COLUMNS: usize = 100;

/// The table that a mark asks for.
pub(super) fn table(machines: &[Records], what: &str) -> Result<String> {
    match what.strip_prefix("rows") {
        Some(rows) => chosen(machines, rows),
        None => whole(machines, what),
    }
}

/// All rows of some sections: a table for each machine, and one for its far state if that has been
/// measured.
fn whole(machines: &[Records], what: &str) -> Result<String> {
    let names: Vec<_> = what.split_whitespace().collect();
    if let Some(word) = names.iter().find(|name| name.contains('=')) {
        bail!("what is {word}?");
    }
    let mut tables = Vec::new();
    for machine in machines {
        tables.extend(of_state(machine, &names, false));
        tables.extend(of_state(machine, &names, true));
    }
    if tables.is_empty() {
        tables.push(unmeasured(&names));
    }
    Ok(tables.join("\n"))
}

/// The rows of these sections and groups in the far state, or in any other, if there are any.
fn of_state(records: &Records, names: &[&str], far: bool) -> Option<String> {
    let asks = |name: &str, key: &Key, group: &str| name == group || name == key.section;
    let of_state = |key: &Key| (key.state == "far") == far && key.state != "one core";
    let mut rows: Vec<(usize, &Key, &Picked)> = Vec::new();
    for (key, picked) in records.picked.iter().filter(|(key, _)| of_state(key)) {
        if let Some(at) = names.iter().position(|n| asks(n, key, &picked.row.group)) {
            rows.push((at, key, picked));
        }
    }
    rows.sort_by_key(|(at, key, picked)| (*at, &key.section, picked.row.place, *key));
    // The best rival may be the one that another row names: then both say the same.
    let mut said = HashSet::new();
    rows.retain(|(_, _, picked)| {
        let row = &picked.row;
        let all = (&row.load, &row.case, ours(picked), rivals(row), &row.goal);
        said.insert(all)
    });
    let is_hidden = |(key, group): &(&Key, &String)| {
        of_state(key) && names.iter().any(|name| asks(name, key, group))
    };
    let hidden = records.few.iter().filter(is_hidden).count();
    let picked: Vec<_> = rows.iter().map(|(_, _, picked)| *picked).collect();
    if picked.is_empty() {
        return None;
    }
    // Of the far state there are few rows by nature.
    let mut text = caption(
        &records.machine,
        &picked,
        names,
        if far { 0 } else { hidden },
    );
    let goals = picked.iter().filter_map(|p| met(&p.row));
    let (met_goals, goals) = goals.fold((0, 0), |(m, n), met| (m + usize::from(met), n + 1));
    let said = match goals {
        0 => String::new(),
        _ => format!(" {met_goals} of {goals} goals are met."),
    };
    text = wrapped(&(text.trim_end().to_owned() + &said));
    let column = |name: &str, cell: fn(&Picked) -> String| {
        (name.to_owned(), picked.iter().map(|p| cell(p)).collect())
    };
    let table = laid_out(vec![
        column("load", |p| p.row.load.clone()),
        column("worst case", |p| p.row.case.clone()),
        column("ours", ours),
        column("beside", |p| rivals(&p.row)),
        column("ratio", ratio),
        column("goal", |p| p.row.goal.replace('-', "")),
        column("met", |p| {
            met(&p.row)
                .map_or("", |met| if met { "yes" } else { "NO" })
                .to_owned()
        }),
    ]);
    Some(format!("{text}\n{table}"))
}

/// A row that a page asks for.
struct Wanted<'a> {
    label: &'a str,
    load: &'a str,
    ours: &'a str,
    beside: &'a str,
}

impl Wanted<'_> {
    fn of<'r>(&self, records: &'r Records) -> Option<(&'r Key, &'r Picked)> {
        records.picked.iter().find(|(key, _)| {
            let near = key.state != "far" && key.state != "one core";
            near && key.load == self.load && key.ours == self.ours && key.beside == self.beside
        })
    }
}

/// Some rows, each with a label and of the machine whose ratio is in the middle, beside the ratios
/// of all machines.
fn chosen(machines: &[Records], rows: &str) -> Result<String> {
    let mut wanted = Vec::new();
    for line in rows.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, label, load, ours, beside, _] = cells[..] else {
            bail!("no row is asked for by: {line}");
        };
        wanted.push(Wanted {
            label,
            load,
            ours,
            beside,
        });
    }
    let (mut shown, mut sections, mut hidden) = (Vec::new(), Vec::new(), 0);
    for row in &wanted {
        let measured: Vec<_> = machines.iter().filter_map(|m| row.of(m)).collect();
        let Some((key, _)) = measured.first() else {
            hidden += 1;
            continue;
        };
        if !sections.contains(&key.section.as_str()) {
            sections.push(&key.section);
        }
        let measured = measured.iter().map(|(_, picked)| *picked);
        shown.push((row, best_first(measured.collect())));
    }
    if shown.is_empty() {
        return Ok(unmeasured(&[]));
    }
    // Of an even number of machines the worse one of the two in the middle.
    let middle: Vec<_> = shown.iter().map(|(_, of)| of[of.len() / 2]).collect();
    let column = |name: &str, cell: fn(&Picked) -> String| {
        (name.to_owned(), middle.iter().map(|p| cell(p)).collect())
    };
    let labels = shown.iter().zip(&middle).map(|((row, _), middle)| {
        let loses = if loses(middle) {
            ": **ours loses**"
        } else {
            ""
        };
        format!("{}{loses}", row.label)
    });
    let mut columns = vec![
        ("load".to_owned(), labels.collect()),
        column("ours", |p| {
            let text = ours(p);
            let name = &p.row.ours.name;
            text.strip_prefix(name).unwrap_or(&text).trim().to_owned()
        }),
        column("best rival", |p| rivals(&p.row)),
        column("ratio", any_ratio),
    ];
    let has_one = |machine: &&Records| wanted.iter().any(|row| row.of(machine).is_some());
    let names = machines.iter().filter(has_one);
    let names: Vec<_> = names.map(|m| m.machine.as_str()).collect();
    if names.len() > 1 {
        let all = shown.iter().map(|(_, of)| all_ratios(of)).collect();
        columns.push((format!("on each of {} machines", names.len()), all));
    }
    let all: Vec<_> = shown.iter().flat_map(|(_, of)| of).copied().collect();
    let text = caption(&named(&names), &all, &sections, hidden);
    Ok(format!("{text}\n{}", laid_out(columns)))
}

/// Several machines in words; what they have in common is said once.
fn named(machines: &[&str]) -> String {
    let parts: Vec<_> = machines
        .iter()
        .filter_map(|m| m.split_once(" with "))
        .collect();
    match parts[..] {
        [(_, first), _, ..] if parts.iter().all(|(_, rest)| *rest == first) => {
            let cpus: Vec<_> = parts.iter().map(|(cpu, _)| *cpu).collect();
            format!("{}, each with {first}", cpus.join("; "))
        }
        _ => machines.join("; "),
    }
}

/// The same row of several machines, in the order of its ratios.
fn best_first(mut rows: Vec<&Picked>) -> Vec<&Picked> {
    // Without a rival: by ours.
    let of = |picked: &Picked| to_first(picked).or(picked.row.ours.value);
    rows.sort_by(|a, b| f64::total_cmp(&of(a).unwrap_or(0.0), &of(b).unwrap_or(0.0)));
    if rows.first().is_some_and(|p| more_is_better(&p.row)) {
        rows.reverse();
    }
    rows
}

fn all_ratios(rows: &[&Picked]) -> String {
    let ratios = rows.iter().filter_map(|picked| to_first(picked));
    ratios.map(short).collect::<Vec<_>>().join(", ")
}

/// Ours divided by the first rival's: one may stand beside a value that has a limit of its own.
fn to_first(picked: &Picked) -> Option<f64> {
    let rival = picked.row.rivals.first()?.value?;
    Some(picked.row.ours.value? / rival)
}

fn any_ratio(picked: &Picked) -> String {
    if picked.row.beside.is_empty() {
        to_first(picked).map_or_else(String::new, short)
    } else {
        ratio(picked)
    }
}

fn loses(picked: &Picked) -> bool {
    to_first(picked).is_some_and(|ratio| match more_is_better(&picked.row) {
        true => ratio < 1.0,
        false => ratio > 1.0,
    })
}

/// What has measured these sections or groups: of many sections, or if a run had several groups,
/// the groups.
fn command(picked: &[&Picked], names: &[&str]) -> String {
    let mut names = names.to_vec();
    if picked.iter().any(|p| p.groups.len() > 1) || (names.len() > MANY && !picked.is_empty()) {
        let groups = picked.iter().flat_map(|p| &p.groups);
        names = groups.map(String::as_str).collect();
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
fn caption(machine: &str, picked: &[&Picked], names: &[&str], hidden: usize) -> String {
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
    let span = |figure: fn(&Picked) -> Option<f64>| {
        let all = picked.iter().filter_map(|p| figure(p));
        let (least, most) = (all.clone().reduce(f64::min), all.reduce(f64::max));
        let (least, most) = least.zip(most)?;
        let least = format!("{least:.0}");
        Some(match format!("{most:.0}") {
            most if most == least => least,
            most => format!("{least} to {most}"),
        })
    };
    if let Some(line) = span(|p| p.row.line_ns) {
        let far = picked.iter().all(|p| p.row.state == "far");
        let far = if far { "far state: " } else { "" };
        said.push(format!("{far}a cache line takes {line} ns"));
    }
    if let Some(wake) = span(|p| p.row.wake_us) {
        said.push(format!("a wake {wake} us"));
    }
    said.push(machine.to_owned());
    wrapped(&format!("{}.{}", said.join(", "), few(hidden)))
}

/// A table of columns; those that say nothing are left out.
fn laid_out(mut columns: Vec<(String, Vec<String>)>) -> String {
    columns.retain(|(_, cells)| cells.iter().any(|cell| !cell.is_empty()));
    let names: Vec<_> = columns.iter().map(|(name, _)| name.as_str()).collect();
    let mut text = head(&names);
    for i in 0..columns.first().map_or(0, |(_, cells)| cells.len()) {
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
