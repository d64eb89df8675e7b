//! Simulations in virtual time over the shipped types, from the command line.

mod options;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use inflight_sim::{Goal, dmcrypt, enqueue, flush, hdd, limit, placement};
use options::{Command, Dmcrypt, Enqueue, Flush, Hdd, Limit, Options, Output, Placement, one_line};
use serde_json::json;
use std::fs::{File, OpenOptions};
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
        Err(error) => {
            let printed = error.print().and_then(|()| std::io::stdout().flush());
            return match printed.context("printing the help") {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => refuse(&format!("{error:#}")),
            };
        }
    };
    let result = match &options.command {
        Command::Hdd(hdd) => run_hdd(hdd),
        Command::Dmcrypt(dmcrypt) => run_dmcrypt(dmcrypt),
        Command::Enqueue(enqueue) => run_enqueue(enqueue),
        Command::Flush(flush) => run_flush(flush),
        Command::Limit(limit) => run_limit(limit),
        Command::Placement(placement) => run_placement(placement),
    };
    match result {
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
fn run_hdd(options: &Hdd) -> Result<bool> {
    let mut drawing = Drawing::open(options.output.plot.as_ref())?;
    if options.single {
        return run_single(options, &mut drawing);
    }
    let (jobs, policies) = (options.job_counts(), options.policies());
    let progress = progress(jobs.len() * policies.len());
    let table = hdd::Table::run(
        &jobs,
        &policies,
        |jobs, policy| options.scenario(jobs, policy),
        || progress.inc(1),
    )?;
    progress.finish_and_clear();
    drawing.write(|| hdd::plot(&table))?;
    let goals = options.output.goals(|| match options.splits() {
        true => table.goals(),
        false => table.unsplit_goals(),
    });
    let json = json!({
        "seed": options.seed.seed,
        "seconds": options.seconds,
        "settings": options.settings(),
        "rows": table.rows,
        "goals": goals,
    });
    options
        .output
        .print(&json, &format!("{options}{table}"), &goals)
}

fn run_single(options: &Hdd, drawing: &mut Drawing) -> Result<bool> {
    let rows = hdd::singles();
    drawing.write(|| hdd::plot_single(&rows))?;
    let goals = options.output.goals(|| hdd::single_goals(&rows));
    let json = json!({ "rows": rows, "goals": goals });
    options.output.print(
        &json,
        &format!("one write at a time{}", hdd::Singles(&rows)),
        &goals,
    )
}

fn run_dmcrypt(options: &Dmcrypt) -> Result<bool> {
    let mut drawing = Drawing::open(options.output.plot.as_ref())?;
    let (issuers, scopes) = (options.issuers(), options.scopes());
    let progress = progress(issuers.len() * scopes.len());
    let mut table = dmcrypt::Table::run(
        &issuers,
        &scopes,
        options.seeds as u64,
        |issuers, scope| options.scenario(issuers, scope),
        || progress.inc(1),
    );
    progress.finish_and_clear();
    if !options.is_published() {
        table = table.of_another_machine();
    }
    drawing.write(|| dmcrypt::plot(&table))?;
    let goals = options.output.goals(|| table.goals());
    let json = json!({
        "seeds": options.seeds,
        "seconds": options.seconds,
        "settings": options.settings(),
        "rows": table.rows,
        "goals": goals,
    });
    options
        .output
        .print(&json, &format!("{options}{table}"), &goals)
}

fn run_enqueue(options: &Enqueue) -> Result<bool> {
    let mut drawing = Drawing::open(options.output.plot.as_ref())?;
    let (cpus, scopes) = (options.cpus(), options.scopes());
    let progress = progress(cpus.len() * scopes.len());
    let model = enqueue::Model::default();
    let done = || progress.inc(1);
    let table = enqueue::Table::run(&model, &cpus, &scopes, options.seed.seed, done);
    progress.finish_and_clear();
    drawing.write(|| enqueue::plot(&table))?;
    let goals = options.output.goals(|| table.goals());
    let json = json!({
        "seed": options.seed.seed,
        "rows": table.rows,
        "goals": goals,
    });
    options
        .output
        .print(&json, &format!("{options}{table}"), &goals)
}

fn run_flush(options: &Flush) -> Result<bool> {
    let mut drawing = Drawing::open(options.output.plot.as_ref())?;
    let progress = progress(flush::cil_flush().len());
    let models = flush::Model::published();
    let table = flush::Table::run(&models, options.seeds(), || progress.inc(1));
    progress.finish_and_clear();
    drawing.write(|| flush::plot(&table))?;
    let goals = options.output.goals(|| table.goals());
    let json = json!({
        "seed": options.seed.seed,
        "seeds": options.seeds,
        "flush_ratio": table.flush_ratio,
        "published_flush_ratio": flush::FLUSH_RATIO,
        "mean_error_pct": table.mean_error_pct(),
        "rows": table.rows,
        "goals": goals,
    });
    options
        .output
        .print(&json, &format!("{options}{table}"), &goals)
}

fn run_limit(options: &Limit) -> Result<bool> {
    let mut drawing = Drawing::open(options.output.plot.as_ref())?;
    let (counted, limits) = (options.counted(), options.max_active());
    let progress = progress(counted.len() * limits.len());
    let model = limit::Model::default();
    let table = limit::Table::run(&model, &counted, &limits, options.seed.seed, || {
        progress.inc(1)
    });
    progress.finish_and_clear();
    drawing.write(|| limit::plot(&table))?;
    let goals = options.output.goals(|| table.goals());
    let json = json!({
        "seed": options.seed.seed,
        "rows": table.rows,
        "goals": goals,
    });
    options
        .output
        .print(&json, &format!("{options}{table}"), &goals)
}

fn run_placement(options: &Placement) -> Result<bool> {
    options.refuse_unpublished()?;
    let mut drawing = Drawing::open(options.output.plot.as_ref())?;
    let controls = if options.no_controls {
        Vec::new()
    } else {
        placement::controls()
    };
    let rows = options.tables().into_iter().flat_map(placement::published);
    let rows = rows.filter(|row| options.wants(row.clients)).count();
    let progress = progress(rows + controls.len() * placement::CONTROL_CLIENTS.len());
    let table = placement::Table::run(
        &options.tables(),
        |clients| options.wants(clients),
        |side| options.change(side),
        options.seeds(),
        || progress.inc(1),
    )
    .with_controls(&controls, options.seeds(), || progress.inc(1));
    progress.finish_and_clear();
    drawing.write(|| placement::plot(&table))?;
    let goals = options.output.goals(|| table.goals());
    let (near, _) = table.within(placement::POINTS);
    let json = json!({
        "seed": options.seed.seed,
        "seeds": options.seeds,
        "settings": options.settings(),
        "within_6_points": near,
        "rows": table.rows,
        "controls": table.controls,
        "goals": goals,
    });
    options
        .output
        .print(&json, &format!("{options}{table}"), &goals)
}

impl Output {
    /// What must be seen, if it is to be checked.
    fn goals(&self, goals: impl FnOnce() -> Vec<Goal>) -> Vec<Goal> {
        self.check.then(goals).unwrap_or_default()
    }

    /// Returns whether everything that was to be checked holds.
    fn print(&self, json: &serde_json::Value, text: &str, goals: &[Goal]) -> Result<bool> {
        if self.json {
            print_json(json)?;
        } else {
            print_text(text, goals)?;
        }
        Ok(goals.iter().all(|goal| goal.holds))
    }
}

/// The file of a drawing that was asked for. It is opened before the runs: who waited for them does
/// not learn afterwards that the path is wrong. An old drawing stays until there is a new one.
struct Drawing(Option<(PathBuf, File)>);

impl Drawing {
    fn open(path: Option<&PathBuf>) -> Result<Self> {
        let Some(path) = path else {
            return Ok(Self(None));
        };
        let mut options = OpenOptions::new();
        let opened = options.create(true).truncate(false).write(true).open(path);
        let file = opened.with_context(|| writing(path))?;
        Ok(Self(Some((path.clone(), file))))
    }

    fn write(
        &mut self,
        draw: impl FnOnce() -> Result<String, Box<dyn std::error::Error>>,
    ) -> Result<()> {
        let Some((path, file)) = &mut self.0 else {
            return Ok(());
        };
        let curves = draw().map_err(|error| anyhow::anyhow!("drawing: {error}"))?;
        let mut replace = || {
            // A device or a pipe has no length.
            if file.metadata()?.is_file() {
                file.set_len(0)?;
            }
            file.write_all(curves.as_bytes())
        };
        let written: std::io::Result<()> = replace();
        written.with_context(|| writing(path))
    }
}

fn writing(file: &std::path::Path) -> String {
    format!("writing the drawing to {}", file.display())
}

fn print_json(value: &serde_json::Value) -> Result<()> {
    print_text(&serde_json::to_string_pretty(value)?, &[])
}

fn print_text(text: &str, goals: &[Goal]) -> Result<()> {
    let mut text = format!("{text}\n");
    text.extend(goals.iter().map(|goal| format!("{goal}\n")));
    let printed = std::io::stdout().write_all(text.as_bytes());
    printed.context("printing the result")
}

fn progress(runs: usize) -> ProgressBar {
    // A bar draws nothing unless standard error is a terminal.
    let bar = ProgressBar::with_draw_target(Some(runs as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{elapsed:>4} [{bar:30}] {pos} of {len} runs");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
