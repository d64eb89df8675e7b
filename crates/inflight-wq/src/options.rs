//! The command line.

use clap::{Args, Parser, Subcommand};
use regex::Regex;
use std::path::PathBuf;
use std::time::Duration;

/// No refresh is slower.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

const AFTER_HELP: &str = "\
The process must have opened a socket: io-engine --serve PATH, or WorkqueueSystem::serve(PATH).

Exit status: 0 it is done; 1 there is no answer, or a refusal; 2 a wrong command line.";

/// Shows the workqueues of a running process, and changes their limits.
#[derive(Clone, Debug, Parser)]
#[command(name = "inflight-wq", version, after_help = AFTER_HELP)]
pub(crate) struct Options {
    /// The socket on which the process serves
    #[arg(short, long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Print scopes, pools, queues, rescuers and limits, in the layout of the kernel's wq_dump
    Dump,
    /// Print each queue's counters again and again, in the layout of the kernel's wq_monitor
    Monitor(Monitor),
    /// Print the control files of each queue, or of one
    Files {
        /// The queue
        queue: Option<String>,
    },
    /// Write a control file of a queue: set crypt max_active 16
    Set {
        /// The queue
        queue: String,
        /// The file; `files` prints those that there are
        file: String,
        /// What is written
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Print the control files of the whole system
    System,
    /// Write one of them: set-system default_affinity_scope numa
    SetSystem {
        /// The file; `system` prints those that there are
        file: String,
        /// What is written
        #[arg(allow_hyphen_values = true)]
        value: String,
    },
    /// Print each step of each item since the last time, while the system's file trace is 1:
    /// nanoseconds, CPU, queue, step, item
    Trace,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct Monitor {
    /// Only queues whose names one of these regular expressions is found in
    #[arg(value_name = "PATTERN")]
    pub(crate) patterns: Vec<Regex>,

    /// Time from one table to the next; 0: one table only
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds,
          allow_hyphen_values = true)]
    pub(crate) interval: Duration,

    /// End after so many tables
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,

    /// Print a JSON object for each queue, a line each, instead of a table
    #[arg(short, long)]
    pub(crate) json: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || format!("a number of seconds from 0 to {}", LONGEST.as_secs());
    let number = text.parse().map_err(|_| wrong())?;
    let time = Duration::try_from_secs_f64(number).map_err(|_| wrong())?;
    if time > LONGEST {
        return Err(wrong());
    }
    Ok(time)
}

impl Options {
    /// Where to ask.
    pub(crate) fn socket(&self) -> Result<PathBuf, String> {
        let socket = self.socket.clone();
        socket.ok_or_else(|| "which process? --socket PATH says where it serves".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds("0"), Ok(Duration::ZERO));
        for wrong in ["-1", "nan", "inf", "soon", "86401", ""] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
