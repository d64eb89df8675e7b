//! Records of measurements: `benches/record/<cpu model>/<day>.csv`, a line for each row of a run.
//!
//! Nothing but the lines counts: not the names of files and folders, and not the order of lines.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

/// Where the records are, in the workspace.
pub(crate) const FOLDER: &str = "benches/record";

/// The first line of each file.
const HEADING: [&str; 22] = [
    "commit",
    "run",
    "cpu",
    "cpus",
    "engine",
    "group",
    "section",
    "place",
    "load",
    "case",
    "state",
    "line_ns",
    "wake_us",
    "unit",
    "ours",
    "ours_value",
    "beside",
    "rival",
    "rival_value",
    "other",
    "other_value",
    "goal",
];

/// A contender and its figure, in the row's unit.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Side {
    pub(crate) name: String,
    /// `None` if there is none.
    pub(crate) value: Option<f64>,
}

/// What all rows of a run have in common.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run {
    pub(crate) commit: String,
    /// When it began: `2026-11-24T03:10:22.123Z`. No two runs have the same.
    pub(crate) start: String,
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    /// What keeps our ids.
    pub(crate) engine: String,
}

impl Run {
    /// The day on which it began, in UTC.
    pub(crate) fn day(&self) -> &str {
        self.start.split('T').next().unwrap_or_default()
    }
}

/// A row of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) run: Run,
    pub(crate) group: String,
    pub(crate) section: String,
    /// Which row of the section it is.
    pub(crate) place: usize,
    pub(crate) load: String,
    pub(crate) case: String,
    /// Where the CPUs were; empty where it does not matter, or nothing was measured.
    pub(crate) state: String,
    /// What a cache line took from one CPU to another meanwhile, and what it took to wake a thread
    /// there.
    pub(crate) line_ns: Option<f64>,
    pub(crate) wake_us: Option<f64>,
    pub(crate) unit: String,
    /// Without a value if the load could not be measured.
    pub(crate) ours: Side,
    /// The rival asked for: a name, "best", or nothing.
    pub(crate) beside: String,
    /// The one of the ratio, or the one that stands beside a value; then one more of those.
    pub(crate) rivals: Vec<Side>,
    /// As "<= 0.5", ">= 2" or "<= 10 ns"; "-" if there is none.
    pub(crate) goal: String,
}

impl Row {
    fn cells(&self) -> [String; HEADING.len()] {
        let number = |n: Option<f64>| n.map_or_else(String::new, |n| n.to_string());
        let side = |i: usize| self.rivals.get(i);
        let name = |i| side(i).map_or("", |s| s.name.as_str()).to_owned();
        let value = |i| number(side(i).and_then(|s| s.value));
        [
            self.run.commit.clone(),
            self.run.start.clone(),
            self.run.cpu.clone(),
            self.run.cpus.to_string(),
            self.run.engine.clone(),
            self.group.clone(),
            self.section.clone(),
            self.place.to_string(),
            self.load.clone(),
            self.case.clone(),
            self.state.clone(),
            number(self.line_ns),
            number(self.wake_us),
            self.unit.clone(),
            self.ours.name.clone(),
            number(self.ours.value),
            self.beside.clone(),
            name(0),
            value(0),
            name(1),
            value(1),
            self.goal.clone(),
        ]
    }

    fn parse(cells: &csv::StringRecord) -> Result<Self> {
        let cells: Vec<_> = cells.iter().collect();
        let count = cells.len();
        let Ok(cells) = <[&str; HEADING.len()]>::try_from(cells) else {
            bail!("{count} columns, not {}", HEADING.len());
        };
        let number = |i: usize| -> Result<Option<f64>> {
            if cells[i].is_empty() {
                return Ok(None);
            }
            let value: f64 = cells[i]
                .parse()
                .ok()
                .filter(|v: &f64| v.is_finite())
                .with_context(|| format!("\"{}\" is no number", cells[i]))?;
            Ok(Some(value))
        };
        let whole = |i: usize| -> Result<usize> {
            let why = || format!("\"{}\" is no whole number", cells[i]);
            cells[i].parse().ok().with_context(why)
        };
        let text = |i: usize| cells[i].to_owned();
        let mut rivals = Vec::new();
        for i in [17, 19] {
            if !cells[i].is_empty() {
                rivals.push(Side {
                    name: text(i),
                    value: number(i + 1)?,
                });
            }
        }
        for i in [0, 1, 2, 4, 5, 6, 8] {
            ensure!(!cells[i].is_empty(), "nothing below \"{}\"", HEADING[i]);
        }
        Ok(Self {
            run: Run {
                commit: text(0),
                start: text(1),
                cpu: text(2),
                cpus: whole(3)?,
                engine: text(4),
            },
            group: text(5),
            section: text(6),
            place: whole(7)?,
            load: text(8),
            case: text(9),
            state: text(10),
            line_ns: number(11)?,
            wake_us: number(12)?,
            unit: text(13),
            ours: Side {
                name: text(14),
                value: number(15)?,
            },
            beside: text(16),
            rivals,
            goal: text(21),
        })
    }

    /// Ours divided by the rival's, in rows that compare: "beside" names the rival.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let rival = self.rivals.first().filter(|_| !self.beside.is_empty())?;
        Some(self.ours.value? / rival.value?)
    }
}

/// All rows of all records, in no order that means anything.
pub(crate) fn read(root: &Path) -> Result<Vec<Row>> {
    let folder = root.join(FOLDER);
    let mut rows = Vec::new();
    if !folder.exists() {
        return Ok(rows);
    }
    for entry in walkdir::WalkDir::new(folder) {
        let path = entry?.into_path();
        if path.extension().is_none_or(|e| e != "csv") {
            continue;
        }
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        rows.extend(parse(&text).with_context(|| path.display().to_string())?);
    }
    Ok(rows)
}

fn parse(text: &str) -> Result<Vec<Row>> {
    let mut reader = csv::ReaderBuilder::new();
    // A line with too few columns is refused below, by its number.
    let reader = reader.has_headers(false).flexible(true);
    let mut lines = reader.from_reader(text.as_bytes()).into_records();
    let first = lines.next().transpose()?.unwrap_or_default();
    ensure!(first == HEADING[..], "line 1: not the heading of a record");
    let row = |line: csv::Result<csv::StringRecord>| {
        let line = line?;
        let number = line.position().map_or(0, csv::Position::line);
        Row::parse(&line).with_context(|| format!("line {number}"))
    };
    lines.map(row).collect()
}

/// Appends rows of runs on this CPU: a file for each day. The files.
pub(crate) fn append(root: &Path, rows: &[Row]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for of_day in rows.chunk_by(|a, b| a.run.cpu == b.run.cpu && a.run.day() == b.run.day()) {
        let run = &of_day[0].run;
        let folder = root.join(FOLDER).join(folder_name(&run.cpu));
        std::fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{}.csv", run.day()));
        let in_path = || path.display().to_string();
        let file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&path);
        let file = file.with_context(in_path)?;
        let is_new = file.metadata()?.len() == 0;
        let mut writer = csv::Writer::from_writer(file);
        if is_new {
            writer.write_record(HEADING)?;
        }
        for row in of_day {
            writer.write_record(row.cells().map(|cell| cell.replace('\n', " ")))?;
        }
        writer.flush().with_context(in_path)?;
        files.push(path);
    }
    Ok(files)
}

/// A CPU's name as that of a folder: letters, digits and hyphens.
fn folder_name(cpu: &str) -> String {
    let small = cpu.to_lowercase();
    let words = small.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    words.join("-")
}

#[derive(Deserialize)]
struct At {
    state: String,
    distance: Option<f64>,
}

#[derive(Deserialize)]
struct Phase {
    line_ns: Option<f64>,
    wake_us: Option<f64>,
}

#[derive(Deserialize)]
struct PrintedRow {
    group: String,
    section: String,
    workload: String,
    worst_case: String,
    at: Option<At>,
    phase: Phase,
    unit: String,
    ours: Side,
    beside: String,
    rivals: Vec<Side>,
    goal: String,
}

#[derive(Deserialize)]
struct Printed {
    engine: String,
    quick: bool,
    rows: Vec<PrintedRow>,
}

/// The rows that the program printed as JSON; the engine is in it, too.
pub(crate) fn from_json(run: &Run, json: &[u8]) -> Result<Vec<Row>> {
    let printed: Printed =
        serde_json::from_slice(json).context("cannot read what the program printed")?;
    ensure!(!printed.quick, "a quick run measures too little to record");
    ensure!(!printed.rows.is_empty(), "the program printed no rows");
    let run = Run {
        engine: printed.engine,
        ..run.clone()
    };
    let mut rows: Vec<Row> = Vec::new();
    for row in printed.rows {
        let is_same = |other: &&Row| {
            other.section == row.section
                && other.load == row.workload
                && other.ours.name == row.ours.name
                && other.beside == row.beside
        };
        let last = rows.iter().filter(|other| other.section == row.section);
        let next = last.map(|other| other.place + 1).max().unwrap_or(0);
        let place = rows.iter().find(is_same).map_or(next, |other| other.place);
        let state = row
            .at
            .as_ref()
            .map_or_else(String::new, |at| words(&at.state));
        let twice = rows.iter().filter(is_same).any(|r| r.state == state);
        ensure!(!twice, "two rows of \"{}\" cannot be told", row.workload);
        let digits = |side: Side| Side {
            value: side.value.map(four_digits),
            ..side
        };
        rows.push(Row {
            run: run.clone(),
            group: row.group,
            section: row.section,
            place,
            load: row.workload,
            case: row.worst_case,
            state,
            line_ns: (row.at.and_then(|at| at.distance))
                .or(row.phase.line_ns)
                .map(four_digits),
            wake_us: row.phase.wake_us.map(four_digits),
            unit: row.unit,
            ours: digits(row.ours),
            beside: row.beside,
            rivals: row.rivals.into_iter().take(2).map(digits).collect(),
            goal: row.goal,
        });
    }
    Ok(rows)
}

/// `OneCore` as "one core".
fn words(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !text.is_empty() {
            text.push(' ');
        }
        text.extend(c.to_lowercase());
    }
    text
}

/// More is noise.
fn four_digits(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The `n`-th run of a commit on that day.
    pub(crate) fn run(commit: &str, day: u32, n: u32) -> Run {
        Run {
            commit: commit.into(),
            start: format!("2026-01-{day:02}T00:00:{n:02}.000Z"),
            cpu: "A CPU".into(),
            cpus: 2,
            engine: "Rseq".into(),
        }
    }

    /// A row of the section "spawn": ours beside a rival that takes 100 ns.
    pub(crate) fn row(run: Run, load: &str, state: &str, ours: f64) -> Row {
        Row {
            run,
            group: "workqueue".into(),
            section: "spawn".into(),
            place: 0,
            load: load.into(),
            case: String::new(),
            state: state.into(),
            line_ns: Some(52.5),
            wake_us: Some(12.25),
            unit: "ns".into(),
            ours: Side {
                name: "unbound".into(),
                value: Some(ours),
            },
            beside: "best".into(),
            rivals: vec![Side {
                name: "kanal".into(),
                value: Some(100.0),
            }],
            goal: "<= 0.5".into(),
        }
    }

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let mut full = row(run("abc", 1, 1), "mixed load", "near", 58.12);
        full.rivals.push(Side {
            name: "tokio".into(),
            value: Some(7.69),
        });
        let mut bare = row(run("abc", 1, 1), "flush", "", 23.7);
        (bare.rivals, bare.line_ns, bare.beside) = (vec![], None, String::new());
        bare.wake_us = None;
        let mut missing = row(run("abc", 1, 1), "ping", "", 0.0);
        (missing.ours.value, missing.rivals) = (None, vec![]);
        for row in [full, bare, missing] {
            let cells = csv::StringRecord::from(row.cells().to_vec());
            assert_eq!(Row::parse(&cells).unwrap(), row);
        }
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let heading = HEADING.join(",");
        let good = row(run("abc", 1, 1), "ping", "near", 58.1)
            .cells()
            .join(",");
        let refused = |text: &str| format!("{:#}", parse(text).unwrap_err());
        assert!(parse(&format!("{heading}\n{good}\n")).is_ok());
        assert_eq!(refused(""), "line 1: not the heading of a record");
        assert_eq!(refused(&good), "line 1: not the heading of a record");
        let with = |line: &str| refused(&format!("{heading}\n{good}\n{line}\n"));
        assert_eq!(with("a,b"), "line 3: 2 columns, not 22");
        let wrong = good.replace("58.1", "58-1");
        assert_eq!(with(&wrong), "line 3: \"58-1\" is no number");
        let endless = good.replace("58.1", "inf");
        assert_eq!(with(&endless), "line 3: \"inf\" is no number");
        let nameless = good.replace("ping", "");
        assert_eq!(with(&nameless), "line 3: nothing below \"load\"");
        let cpus = good.replace(",2,", ",two,");
        assert_eq!(with(&cpus), "line 3: \"two\" is no whole number");
    }

    #[test]
    fn runs_are_appended_to_the_file_of_their_machine_and_day() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path()).unwrap().is_empty());
        let mut ids = row(run("abc", 1, 1), "pair, 64 \"ids\"", "", 2.0);
        ids.group = "ids".into();
        let first = row(run("abc", 1, 1), "ping", "near", 58.0);
        let of_day = append(dir.path(), &[ids.clone(), first.clone()]).unwrap();
        assert_eq!(of_day.len(), 1);
        assert!(of_day[0].ends_with("benches/record/a-cpu/2026-01-01.csv"));
        let second = row(run("abc", 1, 2), "ping", "near", 59.0);
        let files = append(dir.path(), std::slice::from_ref(&second)).unwrap();
        assert_eq!(files, of_day);
        let mut other = row(run("abc", 2, 1), "ping", "near", 60.0);
        other.run.cpu = "CPU (R) 9, 64-core".into();
        let files = append(dir.path(), std::slice::from_ref(&other)).unwrap();
        assert!(files[0].ends_with("benches/record/cpu-r-9-64-core/2026-01-02.csv"));
        std::fs::write(dir.path().join(FOLDER).join("README.md"), "text").unwrap();
        let mut rows = read(dir.path()).unwrap();
        rows.sort_by(|a, b| (&a.run.start, &a.group).cmp(&(&b.run.start, &b.group)));
        assert_eq!(rows, [ids, first, second, other]);
    }

    #[test]
    fn rows_are_taken_from_what_the_program_prints() {
        let row = |load: &str, at: &str, ours: &str, rivals: &str| {
            format!(
                r#"{{"group": "tags", "section": "token", "workload": "{load}", "worst_case": "64",
                "at": {at}, "phase": {{"line_ns": 61.5, "wake_us": 7.123456}}, "samples": "9, 9",
                "unit": "ns", "ours": {{"name": "TagSet", "value": {ours}}}, "beside": "best",
                "rivals": [{rivals}], "why": "", "ratio": 0.5, "goal": "<= 0.7", "met": true}}"#
            )
        };
        let near = r#"{"state": "Near", "distance": 52.123456}"#;
        let one = r#"{"state": "OneCpu", "distance": null}"#;
        let rival = r#"{"name": "slab", "value": 20.98765}"#;
        let all = |rows: &[String]| {
            let rows = rows.join(",");
            format!(
                r#"{{"machine": "m", "engine": "TryLock", "quick": false, "rows": [{rows}],
                "cells": []}}"#
            )
        };
        let json = all(&[
            row("trip", near, "12.3456", rival),
            row("trip", one, "7", rival),
            row("pair", "null", "null", ""),
        ]);
        let rows = from_json(&run("abc", 1, 1), json.as_bytes()).unwrap();
        let states: Vec<_> = rows
            .iter()
            .map(|r| (&*r.state, r.line_ns, r.wake_us, r.place))
            .collect();
        // Where the line was measured with each sample, that is the better figure.
        let wake = Some(7.123);
        let expected = [
            ("near", Some(52.12), wake, 0),
            ("one cpu", Some(61.5), wake, 0),
            ("", Some(61.5), wake, 1),
        ];
        assert_eq!(states, expected);
        assert_eq!(rows[0].ours.value, Some(12.35));
        assert_eq!(rows[0].rivals[0].value, Some(20.99));
        assert_eq!(rows[2].ours.value, None);
        assert_eq!(rows[2].run.engine, "TryLock");
        let refused = |json: &str| {
            format!(
                "{:#}",
                from_json(&run("a", 1, 1), json.as_bytes()).unwrap_err()
            )
        };
        let twice = all(&[row("trip", near, "1", rival), row("trip", near, "2", rival)]);
        assert_eq!(refused(&twice), "two rows of \"trip\" cannot be told");
        assert_eq!(refused(&all(&[])), "the program printed no rows");
        let quick = json.replace("false", "true");
        assert!(refused(&quick).contains("quick"));
        assert!(refused("{").contains("cannot read what the program printed"));
    }
}
