//! Simulations in virtual time over the shipped types, from the command line.

mod options;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use inflight_sim::hdd::{Table, svg};
use options::{Command, Hdd, Options, one_line};
use serde_json::json;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

const EXIT_GOAL: u8 = 1;
const EXIT_ERROR: u8 = 2;

fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) if error.use_stderr() => return refuse(&one_line(&error)),
        // --help and --version
        Err(error) => error.exit(),
    };
    let Command::Hdd(hdd) = options.command;
    match run(&hdd) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_GOAL),
        Err(error) => refuse(&format!("{error:#}")),
    }
}

fn refuse(why: &str) -> ExitCode {
    // Nothing can be done if this cannot be written either.
    let _ = writeln!(std::io::stderr(), "inflight-sim: {why}");
    ExitCode::from(EXIT_ERROR)
}

/// Whether everything that was to be checked holds.
fn run(hdd: &Hdd) -> Result<bool> {
    // Before the runs: who waited for them does not learn afterwards that the path is wrong. An old
    // drawing stays until there is a new one.
    let open = |file| {
        OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(file)
    };
    let writing = |file: &PathBuf| format!("writing the drawing to {}", file.display());
    let mut drawing = match &hdd.svg {
        Some(file) => Some(open(file).with_context(|| writing(file))?),
        None => None,
    };
    let progress = progress(hdd);
    let table = Table::run(
        &hdd.job_counts(),
        &hdd.policies(),
        |jobs, policy| hdd.scenario(jobs, policy),
        || progress.inc(1),
    )?;
    progress.finish_and_clear();
    if let (Some(file), Some(drawing)) = (&hdd.svg, &mut drawing) {
        let curves = svg(&table).map_err(|error| anyhow::anyhow!("drawing: {error}"))?;
        drawing
            .set_len(0)
            .and_then(|()| drawing.write_all(curves.as_bytes()))
            .with_context(|| writing(file))?;
    }
    let goals = if hdd.check { table.goals() } else { Vec::new() };
    let mut text = if hdd.json {
        serde_json::to_string_pretty(&json!({
            "seed": hdd.seed,
            "seconds": hdd.seconds,
            "settings": hdd.settings(),
            "rows": table.rows,
            "goals": goals,
        }))?
    } else {
        format!("{hdd}{table}")
    };
    text.push('\n');
    if !hdd.json {
        text.extend(goals.iter().map(|goal| format!("{goal}\n")));
    }
    let printed = std::io::stdout().write_all(text.as_bytes());
    printed.context("printing the result")?;
    Ok(goals.iter().all(|goal| goal.holds))
}

fn progress(hdd: &Hdd) -> ProgressBar {
    let runs = hdd.job_counts().len() * hdd.policies().len();
    // A bar draws nothing unless standard error is a terminal.
    let bar = ProgressBar::with_draw_target(Some(runs as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{elapsed:>4} [{bar:30}] {pos} of {len} runs");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
