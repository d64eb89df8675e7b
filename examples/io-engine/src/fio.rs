//! What users of fio type besides: what is taken, what it means here, and what to use instead.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Args;

use crate::values::{parse_percent, parse_runtime, parse_switch};

/// Options of fio that are accepted too.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "For users of fio")]
pub(crate) struct FioOptions {
    /// Name of the run in its report; one job, see --numjobs
    #[arg(long, value_name = "NAME")]
    name: Vec<String>,

    /// Run this long before --runtime begins, and count no block of that time
    #[arg(long = "ramp_time", alias = "ramp-time", value_name = "SECONDS",
          allow_hyphen_values = true, value_parser = parse_runtime)]
    ramp_time: Option<Duration>,

    /// The opposite of --direct
    #[arg(long, value_name = "0|1", num_args = 0..=1, default_missing_value = "1",
          value_parser = parse_switch)]
    buffered: Option<bool>,

    /// The folder of --filename
    #[arg(long, value_name = "PATH")]
    directory: Option<PathBuf>,

    /// Percentage of writes in randrw and rw; see --rwmixread
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true,
          value_parser = parse_percent)]
    rwmixwrite: Option<u8>,

    /// Drop the page cache of the file before the run; fio does so by default
    #[arg(long, value_name = "0|1", num_args = 0..=1, default_value = "0",
          default_missing_value = "1", value_parser = parse_switch)]
    invalidate: bool,

    /// fsync the file after a run that writes; this counts in no rate and no latency
    #[arg(long = "end_fsync", alias = "end-fsync", value_name = "0|1", num_args = 0..=1,
          default_value = "0", default_missing_value = "1", value_parser = parse_switch)]
    end_fsync: bool,

    /// Accepted, always 1: a run lasts --runtime whatever the size of the file
    #[arg(long = "time_based", alias = "time-based", value_name = "0|1", num_args = 0..=1,
          default_missing_value = "1", value_parser = parse_switch)]
    time_based: Option<bool>,

    /// Accepted, always 1: the report has all jobs together, and each
    #[arg(long = "group_reporting", alias = "group-reporting", value_name = "0|1",
          num_args = 0..=1, default_missing_value = "1", value_parser = parse_switch)]
    group_reporting: Option<bool>,

    /// Accepted, always 1: jobs are threads
    #[arg(long, value_name = "0|1", num_args = 0..=1, default_missing_value = "1",
          value_parser = parse_switch)]
    thread: Option<bool>,

    /// Accepted, always 1: random offsets are drawn anew each time, without a map
    #[arg(long, value_name = "0|1", num_args = 0..=1, default_missing_value = "1",
          value_parser = parse_switch)]
    norandommap: Option<bool>,

    /// With 1 every run draws the same offsets; as --randseed 1
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
    /// Drop the page cache first.
    pub(crate) invalidate: bool,
    /// Flush at the end.
    pub(crate) end_fsync: bool,
    buffered: Option<bool>,
    directory: Option<PathBuf>,
    rwmixwrite: Option<u8>,
}

impl Checked {
    /// Whether the page cache is bypassed, if --direct says so, or says not, or nothing.
    ///
    /// # Errors
    /// --direct and --buffered say opposite things.
    pub(crate) fn direct(&self, direct: Option<bool>) -> Result<bool> {
        let unbuffered = self.buffered.map(|buffered| !buffered);
        ensure!(
            direct.is_none() || unbuffered.is_none() || direct == unbuffered,
            "--direct and --buffered are opposites; leave one out"
        );
        Ok(direct.or(unbuffered).unwrap_or(false))
    }

    /// The file, in its folder.
    ///
    /// # Errors
    /// There is a folder alone.
    pub(crate) fn filename(&self, filename: Option<PathBuf>) -> Result<Option<PathBuf>> {
        let Some(directory) = &self.directory else {
            return Ok(filename);
        };
        ensure!(
            filename.is_some(),
            "--directory {} needs --filename: without it the file is temporary, in TMPDIR",
            directory.display()
        );
        Ok(filename.map(|name| directory.join(name)))
    }

    /// How many of 100 operations are reads, if --rwmixread or --rwmixwrite says so.
    ///
    /// # Errors
    /// They do not fit together.
    pub(crate) fn rwmixread(&self, read: Option<u8>) -> Result<Option<u8>> {
        let (Some(write), Some(read)) = (self.rwmixwrite, read) else {
            return Ok(read.or(self.rwmixwrite.map(|write| 100 - write)));
        };
        ensure!(
            read + write == 100,
            "--rwmixread {read} and --rwmixwrite {write} are not 100 together; give one of them"
        );
        Ok(Some(read))
    }
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
            invalidate: self.invalidate,
            end_fsync: self.end_fsync,
            buffered: self.buffered,
            directory: self.directory,
            rwmixwrite: self.rwmixwrite,
        })
    }
}

/// Options of fio that are not here, and what to use.
const ADVICE: [(&str, &str); 24] = [
    ("blocksize_range", ONE_SIZE),
    ("bsrange", ONE_SIZE),
    ("bssplit", ONE_SIZE),
    (
        "create_on_open",
        "a run that writes makes the file; leave it out",
    ),
    (
        "do_verify",
        "with --verify each block is checked when it is read; use --rw randrw",
    ),
    (
        "exitall",
        "there is one job, and a run ends when its time is over; leave it out",
    ),
    (
        "fallocate",
        "a file is extended without data; write it first with --rw write",
    ),
    ("file_service_type", ONE_FILE),
    ("filesize", "use --size"),
    ("fixedbufs", "buffers are not registered; leave it out"),
    ("hipri", "use --poll N for the first N jobs"),
    ("io_size", BLOCKS),
    (
        "iodepth_batch",
        "--direct submits each request at once, a buffered run all that wait",
    ),
    (
        "iodepth_batch_submit",
        "--direct submits each request at once, a buffered run all that wait",
    ),
    ("loops", BLOCKS),
    ("nrfiles", ONE_FILE),
    (
        "offset",
        "a run begins at the start of the file; use another file",
    ),
    (
        "rate",
        "a run is as fast as it can be; use --iodepth for less",
    ),
    (
        "rate_iops",
        "a run is as fast as it can be; use --iodepth for less",
    ),
    ("registerfiles", "the file is not registered; leave it out"),
    ("sqthread_poll", "use --poll N for the first N jobs"),
    ("sync", "use --fua, or --fsync 1"),
    (
        "thinktime",
        "a run is as fast as it can be; use --iodepth for less",
    ),
    (
        "verify_fatal",
        "a run goes on, counts what is corrupted, and ends with status 1",
    ),
];

const BLOCKS: &str = "a run ends after --runtime; use --number_ios to end each job after so many \
                      blocks, of which a pass over the file has --size / --bs / --numjobs";
pub(crate) const ONE_FILE: &str = "a run has one file; start one run for each";
const ONE_SIZE: &str = "a run has one block size; use --bs";

/// What to use instead of an option of fio that is not supported, as `--loops` or `--loops=3`.
pub(crate) fn advice(option: &str) -> Option<&'static str> {
    let name = option
        .trim_start_matches('-')
        .split('=')
        .next()?
        .replace('-', "_");
    let found = ADVICE.iter().find(|(other, _)| *other == name);
    found.map(|(_, advice)| *advice)
}

/// What to use instead of an engine of fio that is not supported.
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
