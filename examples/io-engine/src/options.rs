//! The command line, checked until nothing in it can surprise the rest of the program.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use clap::builder::PossibleValuesParser;
use clap::{Parser, ValueEnum};
use inflight::tags::Steering;
use inflight::topology::Scope;

use crate::checksum::Checksum;
use crate::choices::{AdmissionChoice, EngineChoice, WakeChoice};
use crate::fio::{self, FioOptions};
use crate::log_load::LogLoad;
use crate::queues::Queues;
use crate::values::{
    parse_count, parse_number, parse_percent, parse_range, parse_runtime, parse_size, parse_switch,
};

/// Blocks and pieces are multiples of this, the smallest sector there is.
pub(crate) const SECTOR: u64 = 512;
const MAX_BLOCK: u64 = 1 << 30;
const MAX_JOBS: usize = 4096;
/// As many tags as a hardware queue can have.
const MAX_IODEPTH: usize = 10_240;
/// The size of the temporary file, if none is given.
const DEFAULT_SIZE: u64 = 256 << 20;
const DEFAULT_RUNTIME: Duration = Duration::from_secs(10);

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pattern {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Random reads.
    Randread,
    /// Random writes.
    Randwrite,
    /// Random reads and writes.
    Randrw,
    /// Sequential reads and writes.
    #[value(alias = "readwrite")]
    Rw,
    /// A log with group commit: --committers append records and force each.
    Log,
}

impl Pattern {
    pub(crate) fn reads(self) -> bool {
        !matches!(self, Self::Write | Self::Randwrite | Self::Log)
    }

    pub(crate) fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::Randread)
    }

    pub(crate) fn random(self) -> bool {
        matches!(self, Self::Randread | Self::Randwrite | Self::Randrw)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Randread => "randread",
            Self::Randwrite => "randwrite",
            Self::Randrw => "randrw",
            Self::Rw => "rw",
            Self::Log => "log",
        }
    }
}

const AFTER_HELP: &str = "\
With no --filename the job runs on a temporary file: --rw randrw --verify crc32c --size 256m.
With one, the defaults are --rw read --verify none, and the size of the file.
Sizes take the suffixes k, m, g and t (powers of 1024).

Exit status: 0 everything went well; 1 --verify found corrupted blocks; 2 bad input or an IO error;
130 interrupted (Ctrl-C or SIGTERM; a second one, 0.1 s later or more, ends the program at once).
An IO error outranks corruption, corruption outranks an interrupt.";

/// Load generator for files, in the manner of fio, built on inflight.
#[derive(Clone, Debug, Parser)]
#[command(name = "io-engine", version, args_override_self = true, after_help = AFTER_HELP)]
pub(crate) struct Options {
    /// A job file of fio with one job; options of the command line override its own
    #[arg(value_name = "JOBFILE")]
    pub(crate) job_file: Option<PathBuf>,

    /// File or block device; written to if --rw writes [default: a temporary file]
    #[arg(long, value_name = "PATH")]
    filename: Option<PathBuf>,

    /// Size of the used part of the file; a run that writes creates or extends the file if needed
    /// [default: all of it]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = parse_size)]
    size: Option<u64>,

    /// Block size, a multiple of 512
    #[arg(long, visible_alias = "blocksize", value_name = "BYTES", default_value = "4k",
          allow_hyphen_values = true, value_parser = parse_size)]
    bs: u64,

    /// The operations [default: read; randrw on a temporary file]
    #[arg(long, visible_alias = "readwrite", value_enum)]
    rw: Option<Pattern>,

    /// Percentage of reads in randrw and rw [default: 50]
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true,
          value_parser = parse_percent)]
    rwmixread: Option<u8>,

    /// The number of blocks that a job has under way at the same time
    #[arg(long, value_name = "N", default_value_t = 16, allow_negative_numbers = true,
          value_parser = parse_count)]
    iodepth: usize,

    /// The number of jobs, each on its own part of the file. Each has a thread and a ring: a
    /// thousand need a gigabyte, and seconds before they begin
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true,
          value_parser = parse_count)]
    numjobs: usize,

    /// End after this time; fractions allowed [default: 10; no limit with --number_ios]
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true,
          value_parser = parse_runtime)]
    runtime: Option<Duration>,

    /// End each job after this many blocks
    #[arg(long = "number_ios", alias = "number-ios", value_name = "N",
          allow_negative_numbers = true, value_parser = parse_number)]
    number_ios: Option<u64>,

    /// Bypass the page cache (O_DIRECT)
    #[arg(long, value_name = "0|1", num_args = 0..=1, default_missing_value = "1",
          value_parser = parse_switch)]
    direct: Option<bool>,

    /// fdatasync after every N writes of a job, shared with other jobs; 0 never
    #[arg(long, visible_alias = "fdatasync", value_name = "N", default_value_t = 0,
          allow_negative_numbers = true, value_parser = parse_number)]
    fsync: u64,

    /// Make each write durable before the next of its lane
    #[arg(long, value_name = "0|1", num_args = 0..=1, default_value = "0",
          default_missing_value = "1", value_parser = parse_switch)]
    fua: bool,

    /// Put a header and a checksum in every block written, and check every block read
    /// [default: none; crc32c on a temporary file]
    #[arg(long, value_enum)]
    verify: Option<Checksum>,

    /// How requests are passed to the kernel
    #[arg(long, visible_alias = "ioengine", value_name = "ENGINE", default_value = "auto",
          value_parser = parse_engine)]
    engine: EngineChoice,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,

    /// Split blocks larger than this many KiB into several requests
    #[arg(long, value_name = "KIB", default_value_t = 256, allow_negative_numbers = true,
          value_parser = parse_number)]
    max_split: u64,

    /// Hardware queues of the tag set for jobs that wait, each with --iodepth tags [default: one
    /// per job; 1 with --tenants]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_count)]
    hw_queues: Option<usize>,

    /// Additional hardware queues for the reads of jobs that wait
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true,
          value_parser = parse_count)]
    read_queues: usize,

    /// The order in which waiting requests get tags
    #[arg(long, value_enum, default_value = "whole_io")]
    admission: AdmissionChoice,

    /// Groups of jobs that share the tags: job J is of group J mod N [default: each job its own]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_count)]
    tenants: Option<usize>,

    /// Where completions run: inline, same_cache, same_cpu, force
    #[arg(long, value_name = "POLICY", default_value = "inline")]
    steering: String,

    /// Which CPU runs a completion that is sent to the CPU that submitted: that one (affine); the
    /// one that saw it, if that one runs no other completion and they share a cache (pull); if the
    /// one that submitted runs others, the waker's own or an idle one of its cache (stack)
    #[arg(long, value_enum, default_value = "affine")]
    wake: WakeChoice,

    /// The number of jobs, from the first on, that poll their own ring for completions instead of
    /// waiting; they have poll queues of their own, as many as --hw-queues allows
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true,
          value_parser = parse_count)]
    poll: usize,

    /// CPUs that share a pool of checksum workers: cpu, smt, cache_shard, cache, numa, system; the
    /// table then shows where the checksums ran [default: cache_shard]
    #[arg(long, value_name = "SCOPE", hide_possible_values = true,
          value_parser = PossibleValuesParser::new(Scope::ALL.map(Scope::name)))]
    workqueue_scope: Option<String>,

    /// Pin the checksum workers to the CPUs that share their pool
    #[arg(long, value_name = "0|1", num_args = 0..=1, default_value = "0",
          default_missing_value = "1", value_parser = parse_switch)]
    strict: bool,

    /// Show the workqueues on a socket during the run: inflight-wq --socket PATH monitor
    #[arg(long, value_name = "PATH")]
    serve: Option<PathBuf>,

    /// With --rw log: the lengths of records, in bytes
    #[arg(long, value_name = "MIN..MAX", default_value = "300..1000", value_parser = parse_range)]
    record: (usize, usize),

    /// With --rw log: a checkpoint of this many bytes after as many bytes of records [default:
    /// none]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = parse_size)]
    checkpoint: Option<u64>,

    /// With --rw log: the number of threads that commit
    #[arg(long, value_name = "N", default_value_t = 8, allow_negative_numbers = true,
          value_parser = parse_count)]
    committers: usize,

    /// Seed of the random offsets [default: a new one for each run]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_number)]
    randseed: Option<u64>,

    #[command(flatten)]
    fio: FioOptions,
}

/// A checked command line.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// What to call the run, if it has a name.
    pub(crate) name: Option<String>,
    /// How long it runs before anything counts.
    pub(crate) ramp: Duration,
    /// Drop what the page cache has of the file first.
    pub(crate) invalidate: bool,
    /// fsync at the end of a run that writes.
    pub(crate) end_fsync: bool,
    pub(crate) filename: Option<PathBuf>,
    pub(crate) size: Option<u64>,
    pub(crate) bs: usize,
    pub(crate) rw: Pattern,
    pub(crate) rwmixread: u8,
    pub(crate) iodepth: usize,
    pub(crate) numjobs: usize,
    pub(crate) runtime: Option<Duration>,
    pub(crate) number_ios: Option<u64>,
    pub(crate) direct: bool,
    pub(crate) fsync: u64,
    pub(crate) fua: bool,
    /// Of `--rw log`, whose --filename is a folder.
    pub(crate) log: LogLoad,
    pub(crate) verify: Checksum,
    pub(crate) engine: EngineChoice,
    pub(crate) json: bool,
    /// The longest request, in bytes.
    pub(crate) max_split: usize,
    pub(crate) queues: Queues,
    pub(crate) admission: AdmissionChoice,
    pub(crate) tenants: usize,
    /// Whether somebody asked for tenants, and so wants to see them.
    pub(crate) by_tenant: bool,
    pub(crate) steering: Steering,
    pub(crate) wake: WakeChoice,
    /// The first so many jobs poll.
    pub(crate) poll: usize,
    pub(crate) workqueue_scope: Scope,
    pub(crate) strict: bool,
    /// Where the checksums ran is told in the table.
    pub(crate) by_scope: bool,
    pub(crate) serve: Option<PathBuf>,
    pub(crate) randseed: u64,
}

impl Options {
    /// How many hardware queues of each kind the jobs need.
    fn queues(&self, numjobs: usize) -> Result<Queues> {
        let waiting = (numjobs - self.poll).max(1);
        let default = self
            .hw_queues
            .unwrap_or(self.tenants.map_or(waiting, |_| 1));
        let poll = self.hw_queues.or(self.tenants.map(|_| 1));
        let read = self.read_queues;
        ensure!(
            read <= MAX_JOBS,
            "--read-queues {read} is more than {MAX_JOBS}"
        );
        Ok(Queues {
            default: within("--hw-queues", default, MAX_JOBS)?,
            read,
            poll: self.poll.min(poll.unwrap_or(MAX_JOBS)),
        })
    }

    /// What a job file means here that it does not mean to fio.
    pub(crate) fn unlike_fio(&self) -> Option<String> {
        let parts = self.size.is_some() && self.numjobs > 1;
        parts.then(|| {
            format!(
                "note: each of numjobs={} works on a part of size; with fio each works on all \
                 of it",
                self.numjobs
            )
        })
    }

    fn check_blocks(&self) -> Result<()> {
        ensure!(self.bs > 0, "--bs must not be zero");
        ensure!(
            self.bs % SECTOR == 0,
            "--bs {} is not a multiple of {SECTOR}",
            self.bs
        );
        ensure!(self.bs <= MAX_BLOCK, "--bs {} is more than 1g", self.bs);
        ensure!(self.max_split > 0, "--max-split must not be zero");
        ensure!(self.number_ios != Some(0), "--number_ios must not be zero");
        ensure!(self.checkpoint != Some(0), "--checkpoint must not be zero");
        Ok(())
    }

    /// How much of the file is used, if the options say so.
    fn size_of(&self, temporary: bool) -> Result<Option<u64>> {
        let size = self.size.or(temporary.then_some(DEFAULT_SIZE));
        if let Some(size) = size {
            ensure!(
                size >= self.bs,
                "--size {size} is less than one block of {}",
                self.bs
            );
        }
        Ok(size)
    }

    /// Fills in the defaults that depend on other options and refuses what makes no sense.
    ///
    /// # Errors
    /// The first option that is wrong, and why.
    pub(crate) fn check(self) -> Result<Config> {
        self.check_blocks()?;
        let fio = self.fio.clone().check()?;
        let filename = fio.filename(self.filename.clone())?;
        let rwmixread = fio.rwmixread(self.rwmixread)?;
        let temporary = filename.is_none();
        let size = self.size_of(temporary)?;
        let rw = self.rw.unwrap_or(if temporary {
            Pattern::Randrw
        } else {
            Pattern::Read
        });
        ensure!(
            rwmixread.is_none() || (rw.reads() && rw.writes()),
            "--rwmixread (and --rwmixwrite) is for --rw randrw and rw, not for {}",
            rw.name()
        );
        let (log, iodepth) = (self.log()?, within("--iodepth", self.iodepth, MAX_IODEPTH)?);
        let numjobs = within("--numjobs", self.numjobs, MAX_JOBS)?;
        let tenants = within("--tenants", self.tenants.unwrap_or(numjobs), MAX_JOBS)?;
        ensure!(
            tenants <= numjobs,
            "--tenants {tenants} is more than --numjobs {numjobs}"
        );
        ensure!(
            self.poll <= numjobs,
            "--poll {} is more than --numjobs {numjobs}",
            self.poll
        );
        let queues = self.queues(numjobs)?;
        ensure!(
            fio.ramp.is_zero() || (self.number_ios.is_none() && rw != Pattern::Log),
            "--ramp_time cannot be used with --number_ios or --rw log"
        );
        let direct = fio.direct(self.direct)?;
        Ok(Config {
            name: fio.name,
            ramp: fio.ramp,
            invalidate: fio.invalidate,
            end_fsync: fio.end_fsync && rw.writes(),
            filename,
            size,
            bs: usize::try_from(self.bs).context("--bs")?,
            rw,
            rwmixread: rwmixread.unwrap_or(50),
            iodepth,
            numjobs,
            runtime: self
                .runtime
                .or(self.number_ios.is_none().then_some(DEFAULT_RUNTIME)),
            number_ios: self.number_ios,
            direct,
            fsync: self.fsync,
            fua: self.fua,
            log,
            verify: self.verify.unwrap_or(if temporary {
                Checksum::Crc32c
            } else {
                Checksum::None
            }),
            engine: self.engine,
            json: self.json || fio.json,
            max_split: usize::try_from(self.max_split.min(MAX_BLOCK / 1024) * 1024)
                .context("--max-split")?,
            queues,
            admission: self.admission,
            tenants,
            by_tenant: self.tenants.is_some(),
            steering: self.steering.parse().ok().with_context(|| {
                let names = Steering::ALL.map(Steering::name).join(", ");
                format!("--steering '{}' is none of {names}", self.steering)
            })?,
            wake: self.wake,
            poll: self.poll,
            by_scope: self.workqueue_scope.is_some() || self.strict,
            workqueue_scope: match &self.workqueue_scope {
                Some(scope) => scope.parse().context("--workqueue-scope")?,
                None => Scope::CacheShard,
            },
            strict: self.strict,
            serve: self.serve,
            randseed: (self.randseed.or(fio.randseed)).unwrap_or_else(|| fastrand::u64(..)),
        })
    }

    fn log(&self) -> Result<LogLoad> {
        Ok(LogLoad {
            record: self.record,
            checkpoint: self.checkpoint,
            committers: within("--committers", self.committers, MAX_JOBS)?,
        })
    }
}

/// An engine by its name.
fn parse_engine(text: &str) -> Result<EngineChoice> {
    EngineChoice::from_str(text, false).map_err(|_| match fio::engine_advice(text) {
        Some(advice) => anyhow!("not supported: {advice}"),
        None => anyhow!("none of io_uring, psync, auto"),
    })
}

fn within(name: &str, value: usize, most: usize) -> Result<usize> {
    ensure!(value > 0, "{name} must not be zero");
    ensure!(value <= most, "{name} {value} is more than {most}");
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(args: &[&str]) -> Result<Config> {
        let args = std::iter::once("io-engine").chain(args.iter().copied());
        Options::try_parse_from(args)?.check()
    }

    fn refusal(args: &[&str]) -> String {
        config(args)
            .expect_err("should have been refused")
            .to_string()
    }

    #[test]
    fn defaults_of_a_temporary_file_write_and_verify() {
        let config = config(&[]).unwrap();
        assert_eq!(
            (config.rw, config.verify),
            (Pattern::Randrw, Checksum::Crc32c)
        );
        assert_eq!((config.size, config.bs), (Some(256 << 20), 4096));
        assert_eq!(config.runtime, Some(Duration::from_secs(10)));
    }

    #[test]
    fn defaults_of_a_named_file_only_read() {
        let config = config(&["--filename", "/x"]).unwrap();
        assert_eq!((config.rw, config.verify), (Pattern::Read, Checksum::None));
        assert_eq!(config.size, None);
    }

    #[test]
    fn hardware_queues_follow_the_jobs_unless_told() {
        for (args, default, read, poll) in [
            ("--numjobs 3", 3, 0, 0),
            ("--numjobs 3 --hw-queues 2", 2, 0, 0),
            ("--numjobs 3 --poll 2", 1, 0, 2),
            ("--numjobs 3 --poll 3 --read-queues 2", 1, 2, 3),
            ("--numjobs 3 --poll 3 --hw-queues 2", 2, 0, 2),
            ("--numjobs 4 --tenants 2", 1, 0, 0),
            ("--numjobs 4 --tenants 2 --poll 3", 1, 0, 1),
            ("--numjobs 4 --tenants 2 --hw-queues 3", 3, 0, 0),
        ] {
            let found = config(&args.split(' ').collect::<Vec<_>>()).unwrap();
            let queues = Queues {
                default,
                read,
                poll,
            };
            assert_eq!(found.queues, queues, "{args}");
        }
        assert_eq!(
            config(&["--numjobs", "4", "--tenants", "2"])
                .unwrap()
                .tenants,
            2
        );
        assert_eq!(config(&["--numjobs", "4"]).unwrap().tenants, 4);
    }

    #[test]
    fn number_ios_lifts_the_time_limit() {
        assert_eq!(config(&["--number_ios", "5"]).unwrap().runtime, None);
        let both = config(&["--number-ios", "5", "--runtime", "0.5"]).unwrap();
        assert_eq!(both.runtime, Some(Duration::from_millis(500)));
    }

    #[test]
    fn the_switch_direct_takes_fios_forms() {
        assert!(!config(&[]).unwrap().direct);
        assert!(config(&["--direct"]).unwrap().direct);
        assert!(config(&["--direct=1", "--json"]).unwrap().direct);
        assert!(!config(&["--direct", "0"]).unwrap().direct);
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (args, word) in [
            (&["--bs", "0"][..], "--bs"),
            (&["--bs", "1000"], "multiple of 512"),
            (&["--bs", "2g"], "--bs"),
            (&["--bs", "8k", "--size", "4k"], "--size"),
            (&["--iodepth", "0"], "--iodepth"),
            (&["--numjobs", "0"], "--numjobs"),
            (&["--numjobs", "100000"], "--numjobs"),
            (&["--hw-queues", "0"], "--hw-queues"),
            (&["--max-split", "0"], "--max-split"),
            (
                &["--read-queues", "9999"],
                "--read-queues 9999 is more than 4096",
            ),
            (&["--runtime", "0"], "--runtime"),
            (&["--runtime", "-1"], "must not be negative"),
            (&["--size", "-1"], "must not be negative"),
            (&["--iodepth", "-1"], "must not be negative"),
            (&["--size", "99999999999999999999"], "too large"),
            (&["--randseed", "x"], "not a whole number"),
            (
                &["--iodepth", "10241"],
                "--iodepth 10241 is more than 10240",
            ),
            (&["--rw", "write", "--rwmixread", "70"], "not for write"),
            (&["--filename", "/x", "--rwmixread", "70"], "not for read"),
            (&["--runtime", "nan"], "--runtime"),
            (&["--number_ios", "0"], "--number_ios"),
            (&["--verify", "md5"], "--verify"),
            (&["--engine", "aio"], "--engine"),
            (&["--rw", "trim"], "--rw"),
            (&["--rwmixread", "101"], "--rwmixread"),
            (&["--workqueue-scope", "moon"], "--workqueue-scope"),
            (&["--admission", "fifo"], "--admission"),
            (&["--tenants", "0"], "--tenants must not be zero"),
            (&["--checkpoint", "0"], "--checkpoint must not be zero"),
            (&["--tenants", "2"], "--tenants 2 is more than --numjobs 1"),
            (
                &["--steering", "moon"],
                "--steering 'moon' is none of inline",
            ),
            (&["--wake", "moon"], "--wake"),
            (&["--poll", "2"], "--poll 2 is more than --numjobs 1"),
        ] {
            let refusal = refusal(args);
            assert!(refusal.contains(word), "{args:?}: {refusal}");
        }
    }
}
