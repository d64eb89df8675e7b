//! The command line, checked until nothing in it can surprise the rest of the program.

mod dmcrypt;
mod enqueue;
mod flush;
mod hdd;
mod limit;
mod placement;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand};
pub(crate) use dmcrypt::Dmcrypt;
pub(crate) use enqueue::Enqueue;
pub(crate) use flush::Flush;
pub(crate) use hdd::Hdd;
use inflight_sim::Seeds;
pub(crate) use limit::Limit;
pub(crate) use placement::Placement;
use std::path::PathBuf;

/// A day of the simulation.
const MAX_SECONDS: f64 = 86_400.0;

/// Simulations in virtual time over the shipped types.
#[derive(Debug, Parser)]
#[command(name = "inflight-sim", version)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Split IO on one hard disk, under each admission policy.
    Hdd(Hdd),
    /// Encryption by worker pools, under each affinity scope.
    Dmcrypt(Dmcrypt),
    /// What queueing costs when more and more CPUs share a pool.
    Enqueue(Enqueue),
    /// What a journal pays that flushes its disk's cache too early.
    Flush(Flush),
    /// What it costs that a queue's limit counts the items of each CPU.
    Limit(Limit),
    /// On which CPU a woken thread runs, and what a load file costs by that.
    Placement(Placement),
}

/// What each simulation can give out.
#[derive(Debug, Args)]
pub(crate) struct Output {
    /// Say of each thing that must be seen whether it is, and end with status 1 if one is not.
    #[arg(long)]
    pub(crate) check: bool,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the result into this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Seed {
    /// Where the random numbers begin: the same seed gives the same output.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = seed,
        allow_negative_numbers = true
    )]
    pub(crate) seed: u64,
}

impl Seed {
    /// This one and those after it: so many in all.
    fn and_following(self, count: usize) -> Seeds {
        Seeds {
            first: self.seed,
            count: count as u64,
        }
    }
}

fn number<const MIN: usize, const MAX: usize>(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (MIN..=MAX).contains(&n) => Ok(n),
        _ => Err(format!("not a whole number within {MIN} to {MAX}")),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(s) if s > 0.0 && s <= MAX_SECONDS => Ok(s),
        _ => Err(format!(
            "not a number of seconds above 0, up to {MAX_SECONDS}"
        )),
    }
}

fn seed(text: &str) -> Result<u64, String> {
    let refused = |_| format!("not a whole number within 0 to {}", u64::MAX);
    text.parse().map_err(refused)
}

/// What clap has to say, without the lines of usage.
pub(crate) fn one_line(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "what shall be simulated? one of hdd, dmcrypt, enqueue, flush, limit, placement"
            .to_owned();
    }
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    let mut line = line.strip_prefix("error: ").unwrap_or(line).to_owned();
    for (kind, value) in error.context() {
        match (kind, value) {
            (ContextKind::ValidValue, ContextValue::Strings(valid)) if !valid.is_empty() => {
                line += &format!("; one of {}", valid.join(", "));
            }
            (ContextKind::ValidSubcommand, ContextValue::Strings(valid)) if !valid.is_empty() => {
                line += &format!("; one of {}", valid.join(", "));
            }
            (
                ContextKind::SuggestedValue | ContextKind::SuggestedArg,
                ContextValue::String(meant),
            ) => line += &format!("; did you mean '{meant}'?"),
            _ => {}
        }
    }
    line
}
