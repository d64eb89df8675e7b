//! A load generator for files, in the manner of fio, built on `inflight`: one tag set bounds what
//! is in flight, its tokens are the user data of the rings, checksums run on a workqueue.
//!
//! ```text
//! options ─▶ run ─▶ job: lanes ─▶ engine (uring | psync) ─▶ file (target)
//!             │       └─ plan: which block next; block: seal and check (header, pattern, checksum)
//!             └─▶ stats, progress, report
//! ```

#[cfg(not(target_os = "linux"))]
compile_error!("io-engine is for Linux: io_uring, O_DIRECT, eventfd");

mod block;
mod buffer;
mod checks;
mod checksum;
mod choices;
mod control;
mod engine;
mod fio;
mod header;
mod job;
mod job_file;
mod log_load;
mod memory;
mod options;
mod pattern;
mod progress;
mod queues;
mod report;
mod run;
mod slot;
mod stats;
mod steering_report;
mod target;
mod values;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow};
use clap::Parser as _;
use nix::sys::signal::{SigHandler, Signal, signal};

use crate::options::{Options, Pattern};

const EXIT_CORRUPT: u8 = 1;
const EXIT_ERROR: u8 = 2;
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let options = match options() {
        Ok(Asked::Run(options)) => options,
        Ok(Asked::Help(help)) => return print_help(&help),
        Err(error) => return refuse(&explain(&error)),
    };
    match start(*options) {
        Ok(status) => status,
        Err(error) => refuse(&explain(&error)),
    }
}

/// What the command line asks for.
enum Asked {
    Run(Box<Options>),
    /// `--help` or `--version`.
    Help(clap::Error),
}

/// The command line; what a job file says comes first, so that the rest of the line overrides it.
fn options() -> Result<Asked> {
    let options = match parse(std::env::args_os())? {
        Asked::Run(options) => options,
        help => return Ok(help),
    };
    let Some(file) = &options.job_file else {
        return Ok(Asked::Run(options));
    };
    let mut line = std::env::args_os();
    let program = line.next().into_iter();
    let of_file = job_file::arguments(file)?.into_iter().map(OsString::from);
    let options = parse(program.chain(of_file).chain(line));
    let asked = options.with_context(|| format!("with {}", file.display()))?;
    if let Asked::Run(options) = &asked {
        if let Some(note) = options.unlike_fio() {
            say(&format!("{}: {note}", file.display()));
        }
    }
    Ok(asked)
}

fn parse(line: impl Iterator<Item = OsString>) -> Result<Asked> {
    match Options::try_parse_from(line) {
        Ok(options) => Ok(Asked::Run(Box::new(options))),
        Err(error) if error.use_stderr() => Err(anyhow!(values::one_line(&error))),
        Err(help) => Ok(Asked::Help(help)),
    }
}

fn print_help(help: &clap::Error) -> ExitCode {
    let printed = help.print().and_then(|()| std::io::stdout().flush());
    match printed.context("printing the help") {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(&explain(&error)),
    }
}

fn start(options: Options) -> Result<ExitCode> {
    let config = options.check()?;
    report_file_too_large_as_an_error()?;
    let json = config.json;
    if config.rw == Pattern::Log {
        let report = log_load::run(&config, &config.log)?;
        print(&report, json)?;
        return Ok(conclude(report.error(), false, report.interrupted()));
    }
    let report = run::run(config)?;
    print(&report, json)?;
    let bad = report.verify_errors();
    if bad > 0 {
        say(&format!(
            "corrupted: {bad} of {} blocks read",
            report.checked()
        ));
    }
    Ok(conclude(report.error(), bad > 0, report.interrupted()))
}

fn print(report: &(impl serde::Serialize + std::fmt::Display), json: bool) -> Result<()> {
    let mut text = if json {
        serde_json::to_string_pretty(report)?
    } else {
        report.to_string()
    };
    if json {
        text.push('\n');
    }
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("printing the result")
}

/// The exit status of a run; its error is told.
fn conclude(error: Option<&str>, is_corrupt: bool, is_interrupted: bool) -> ExitCode {
    match error {
        Some(error) => refuse(error),
        None if is_corrupt => EXIT_CORRUPT.into(),
        None if is_interrupted => EXIT_INTERRUPTED.into(),
        None => ExitCode::SUCCESS,
    }
}

fn refuse(what: &str) -> ExitCode {
    say(what);
    ExitCode::from(EXIT_ERROR)
}

/// A line on standard error.
pub(crate) fn say(what: &str) {
    // Why ignored: who has closed standard error does not want to read it.
    let _ = writeln!(std::io::stderr(), "io-engine: {what}");
}

/// An error and its causes in one line. Some errors already tell their cause; it is not repeated.
pub(crate) fn explain(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !line.ends_with(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

/// A write beyond the file size limit shall fail like any other, not kill the program.
fn report_file_too_large_as_an_error() -> Result<()> {
    // SAFETY: ignoring a signal installs no handler that could run at a bad moment.
    unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) }.context("ignoring SIGXFSZ")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use inflight::workqueue::{JoinError, QueueError};

    #[test]
    fn every_cause_is_told_once() {
        let refused = JoinError::Rejected(QueueError::Destroyed);
        let error = anyhow::Error::new(refused).context("sealing a block");
        let line = explain(&error);
        assert!(line.starts_with("sealing a block: a function was not queued, "));
        let cause = QueueError::Destroyed.to_string();
        assert_eq!(line.matches(&cause).count(), 1, "{line}");
    }
}
