//! What users of fio type besides: what is taken, what it means here, and what to use instead.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Args;

use crate::values::{parse_runtime, parse_switch};

/// Options of fio that are taken too.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "For users of fio")]
pub(crate) struct FioOptions {
    /// What to call the run in its report; one job, see --numjobs
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,

    /// Run as long before --runtime begins, and count no block of this time
    #[arg(long = "ramp_time", alias = "ramp-time", value_name = "SECONDS",
          allow_hyphen_values = true, value_parser = parse_runtime)]
    ramp_time: Option<Duration>,

    /// Taken and always so: a run lasts --runtime however large the file is
    #[arg(long = "time_based", alias = "time-based", value_name = "0|1", num_args = 0..=1,
          default_missing_value = "1", value_parser = parse_switch)]
    time_based: Option<bool>,

    /// Taken and always so: the report is about all jobs together, and about each
    #[arg(long = "group_reporting", alias = "group-reporting", value_name = "0|1",
          num_args = 0..=1, default_missing_value = "1", value_parser = parse_switch)]
    group_reporting: Option<bool>,

    /// Taken and always so: jobs are threads
    #[arg(long, value_name = "0|1", num_args = 0..=1, default_missing_value = "1",
          value_parser = parse_switch)]
    thread: Option<bool>,

    /// Taken and always so: random places are drawn anew each time, without a map
    #[arg(long, value_name = "0|1", num_args = 0..=1, default_missing_value = "1",
          value_parser = parse_switch)]
    norandommap: Option<bool>,

    /// With 1 every run draws the same places; as --randseed 1
    #[arg(long, value_name = "0|1", num_args = 0..=1, default_missing_value = "1",
          value_parser = parse_switch)]
    randrepeat: Option<bool>,

    /// normal or json; json as --json
    #[arg(long = "output-format", value_name = "FORMAT")]
    output_format: Option<String>,

    // Refused with what to use.
    #[arg(
        long = "offset_increment",
        alias = "offset-increment",
        value_name = "BYTES",
        hide = true
    )]
    offset_increment: Option<String>,
}

/// What of them matters to a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checked {
    pub(crate) name: Option<String>,
    pub(crate) ramp: Duration,
    pub(crate) randseed: Option<u64>,
    pub(crate) json: bool,
}

impl FioOptions {
    /// # Errors
    /// What is not done here, and what to use.
    pub(crate) fn check(self) -> Result<Checked> {
        ensure!(
            self.name.len() <= 1,
            "--name {} begins a second job: a run is one job, --numjobs times",
            self.name[1]
        );
        ensure!(
            self.offset_increment.is_none(),
            "--offset_increment: each of --numjobs works on a part of its own already, a share of \
             --size; leave it out"
        );
        ensure!(
            self.time_based != Some(false),
            "--time_based 0: a run lasts --runtime; use --number_ios to end it after so many blocks"
        );
        ensure!(
            self.group_reporting != Some(false),
            "--group_reporting 0: the report is about all jobs together; --json lists each under \
             \"jobs\""
        );
        ensure!(
            self.thread != Some(false),
            "--thread 0: jobs are threads, never processes"
        );
        ensure!(
            self.norandommap != Some(false),
            "--norandommap 0: there is no map of the places visited; use --rw read or write to \
             visit each"
        );
        let json = match self.output_format.as_deref() {
            None | Some("normal") => false,
            Some("json") => true,
            Some(other) => bail!("--output-format '{other}' is none of normal, json"),
        };
        Ok(Checked {
            name: self.name.into_iter().next(),
            ramp: self.ramp_time.unwrap_or_default(),
            randseed: (self.randrepeat == Some(true)).then_some(1),
            json,
        })
    }
}

/// fio's name of an engine that is not here: what to use.
pub(crate) fn engine_advice(engine: &str) -> Option<&'static str> {
    match engine {
        "libaio" | "posixaio" | "io_uring_cmd" => {
            Some("use io_uring, which has the same depth of requests")
        }
        "sync" | "pvsync" | "pvsync2" | "vsync" => Some("use psync"),
        "mmap" => Some("use psync, which reads and writes through the page cache"),
        _ => None,
    }
}
