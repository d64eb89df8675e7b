//! `--rw log`: committers append small records to a log with group commit and force them; now and
//! then one of them writes a checkpoint, and moves the log's tail up to it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use inflight::flush::log::{DirStorage, Durability, Log, LogCounters, LogOptions};
use serde::Serialize;

use crate::control::Control;
use crate::options::Config;
use crate::run::heed_signals;
use crate::stats::Latencies;

/// The records of a checkpoint are as long as a block of a file system.
const CHECKPOINT_RECORD: usize = 4000;

/// What the command line says of the log.
#[derive(Clone, Debug)]
pub(crate) struct LogLoad {
    /// Lengths of records, in bytes: from the first to the second.
    pub(crate) record: (usize, usize),
    /// A checkpoint of so many bytes after as many bytes of records.
    pub(crate) checkpoint: Option<u64>,
    pub(crate) committers: usize,
}

/// What a run has to tell. The field names are the keys of `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct LogReport {
    folder: String,
    committers: usize,
    record: (usize, usize),
    elapsed_s: f64,
    commits: u64,
    commits_per_s: f64,
    bytes: u64,
    checkpoints: u64,
    /// None if there were no commits; so of all that has no base.
    commit_p50_us: Option<f64>,
    commit_p99_us: Option<f64>,
    commit_max_us: Option<f64>,
    /// Flushes for groups, for single commits, before buffers, of full segments; durable writes.
    flushes: u64,
    flushes_alone: u64,
    flushes_before: u64,
    flushes_of_full_segments: u64,
    durable_writes: u64,
    flushes_per_commit: Option<f64>,
    group_mean: Option<f64>,
    group_max: u64,
    buffers: u64,
    flush_p50_us: Option<f64>,
    flush_p99_us: Option<f64>,
    flush_max_us: Option<f64>,
    interrupted: bool,
    error: Option<String>,
}

impl LogReport {
    pub(crate) fn interrupted(&self) -> bool {
        self.interrupted
    }

    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

struct Run<'a> {
    log: Log,
    load: &'a LogLoad,
    limit: Option<u64>,
    control: Arc<Control>,
    commits: AtomicU64,
    /// Bytes since the last checkpoint, and how many checkpoints there were.
    since_checkpoint: AtomicU64,
    checkpoints: AtomicU64,
}

/// Carries out a run. What goes wrong after the start ends up in the report, next to what was
/// counted before.
///
/// # Errors
/// The run could not even start.
pub(crate) fn run(config: &Config, load: &LogLoad) -> Result<LogReport> {
    let control = Arc::new(Control::new(0));
    let interrupted = Arc::clone(&control);
    heed_signals(move || interrupted.interrupt())?;
    let temporary = match &config.filename {
        Some(_) => None,
        None => Some(tempfile::tempdir().context("making a temporary folder")?),
    };
    let folder: PathBuf = match (&config.filename, &temporary) {
        (Some(folder), _) => folder.clone(),
        (None, Some(folder)) => folder.path().to_owned(),
        (None, None) => bail!("--rw log needs a folder"),
    };
    ensure!(
        folder.is_dir() || !folder.exists(),
        "--filename {} is no folder, and --rw log makes several files",
        folder.display()
    );
    let (log, _) = open(&folder)?;
    let run = Run {
        log,
        load,
        limit: config.number_ios,
        control,
        commits: AtomicU64::new(0),
        since_checkpoint: AtomicU64::new(0),
        checkpoints: AtomicU64::new(0),
    };
    let started = Instant::now();
    let deadline = config.runtime.map(|runtime| started + runtime);
    let seed = config.randseed;
    let latencies = thread::scope(|scope| {
        let run = &run;
        let committer = |n: usize| {
            let rng = fastrand::Rng::with_seed(seed.wrapping_add(n as u64));
            let spawned = thread::Builder::new()
                .name(format!("committer-{n}"))
                .spawn_scoped(scope, move || run.committer(n, rng, deadline));
            let refused = |error| anyhow!("starting the thread of committer {n}: {error}");
            spawned.map_err(|error| run.control.fail(refused(error)))
        };
        let threads: Vec<_> = (0..load.committers)
            .map_while(|n| committer(n).ok())
            .collect();
        let mut all = Latencies::new();
        for thread in threads {
            match thread.join() {
                Ok(latencies) => all.add(&latencies),
                Err(_) => run.control.fail(anyhow!("a committer has panicked")),
            }
        }
        all
    });
    Ok(run.report(&folder, started.elapsed(), &latencies))
}

fn open(folder: &Path) -> Result<(Log, inflight::flush::log::Recovery)> {
    let shown = folder.display();
    let storage = DirStorage::new(folder).with_context(|| format!("{shown}"))?;
    LogOptions::new()
        .open(storage)
        .with_context(|| format!("{shown}"))
}

impl Run<'_> {
    /// What it has committed until the run ends; errors go to the run's control.
    fn committer(
        &self,
        number: usize,
        mut rng: fastrand::Rng,
        deadline: Option<Instant>,
    ) -> Latencies {
        let mut latencies = Latencies::new();
        let (least, most) = self.load.record;
        let bytes = vec![number as u8; most];
        while !self.control.stopped() {
            let begun = Instant::now();
            if deadline.is_some_and(|deadline| begun >= deadline) {
                break;
            }
            let count = self.commits.fetch_add(1, Ordering::Relaxed);
            if self.limit.is_some_and(|limit| count >= limit) {
                self.commits.fetch_sub(1, Ordering::Relaxed);
                break;
            }
            let len = rng.usize(least..=most);
            let committed = self
                .log
                .append_blocking(&bytes[..len])
                .and_then(|lsn| self.log.commit_blocking(lsn, Durability::Flushed));
            let done = committed.context("committing").and_then(|()| {
                latencies.record(begun.elapsed());
                self.checkpoint_if_due(len as u64)
            });
            if let Err(error) = done {
                self.control.fail(error);
            }
        }
        latencies
    }

    fn checkpoint_if_due(&self, more: u64) -> Result<()> {
        let since = self.since_checkpoint.fetch_add(more, Ordering::Relaxed) + more;
        let Some(size) = self.load.checkpoint.filter(|&size| since >= size) else {
            return Ok(());
        };
        // Of those who find it due, the one who sets it back writes it.
        let due =
            self.since_checkpoint
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |since| {
                    since.checked_sub(size)
                });
        if due.is_err() {
            return Ok(());
        }
        let tail = self.log.end();
        let mut checkpoint = self.log.checkpoint();
        let record = [7; CHECKPOINT_RECORD];
        for _ in 0..size.div_ceil(CHECKPOINT_RECORD as u64) {
            if self.control.stopped() {
                return Ok(()); // Without its end it does not count.
            }
            checkpoint
                .append_blocking(&record)
                .context("writing a checkpoint")?;
        }
        checkpoint
            .commit_blocking()
            .context("writing a checkpoint")?;
        // What the checkpoint holds is not needed twice.
        self.log.set_tail(tail);
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn report(&self, folder: &Path, elapsed: Duration, latencies: &Latencies) -> LogReport {
        let counters: LogCounters = self.log.counters();
        let commits = latencies.count();
        let forced = counters.flushes + counters.flushes_alone + counters.fua_writes;
        let any = |value: f64| (commits > 0).then_some(value);
        let flushed = counters.flush_time.count() > 0;
        let micros = |time: Duration| flushed.then(|| (time.as_secs_f64() * 1e9).round() / 1e3);
        let per =
            |count: u64, of: u64| (of > 0).then(|| (count as f64 / of as f64 * 1e3).round() / 1e3);
        let failure = self.control.take_failure();
        LogReport {
            folder: folder.display().to_string(),
            committers: self.load.committers,
            record: self.load.record,
            elapsed_s: elapsed.as_secs_f64(),
            commits,
            commits_per_s: (commits as f64 / elapsed.as_secs_f64()).round(),
            bytes: counters.bytes,
            checkpoints: self.checkpoints.load(Ordering::Relaxed),
            commit_p50_us: any(latencies.micros_at(0.5)),
            commit_p99_us: any(latencies.micros_at(0.99)),
            commit_max_us: any(latencies.max_micros()),
            flushes: counters.flushes,
            flushes_alone: counters.flushes_alone,
            flushes_before: counters.flushes_before,
            flushes_of_full_segments: counters.flushes_of_full_segments,
            durable_writes: counters.fua_writes,
            flushes_per_commit: per(forced, commits),
            group_mean: per(counters.grouped, counters.group_sizes.iter().sum()),
            group_max: counters.max_group,
            buffers: counters.buffers,
            flush_p50_us: micros(counters.flush_time.quantile(0.5)),
            flush_p99_us: micros(counters.flush_time.quantile(0.99)),
            flush_max_us: micros(counters.flush_time.max()),
            interrupted: self.control.interrupted(),
            error: failure.map(|error| crate::explain(&error)),
        }
    }
}

impl fmt::Display for LogReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: Option<f64>, digits: usize| {
            value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let (least, most) = self.record;
        let state = if self.interrupted {
            ", interrupted"
        } else {
            ""
        };
        writeln!(
            f,
            "{}: log, {} committers, records of {least} to {most} bytes, {:.1} s{state}",
            self.folder, self.committers, self.elapsed_s
        )?;
        writeln!(
            f,
            "  commits    {}, {:.0} a second; us p50 {} p99 {} max {}",
            self.commits,
            self.commits_per_s,
            shown(self.commit_p50_us, 0),
            shown(self.commit_p99_us, 0),
            shown(self.commit_max_us, 0)
        )?;
        writeln!(
            f,
            "  flushes    {} for groups, {} alone, {} before buffers, {} of full segments; \
             {} durable writes; {} per commit",
            self.flushes,
            self.flushes_alone,
            self.flushes_before,
            self.flushes_of_full_segments,
            self.durable_writes,
            shown(self.flushes_per_commit, 3)
        )?;
        writeln!(
            f,
            "  groups     shared by {}, at most {}; {} buffers, {} checkpoints",
            shown(self.group_mean, 2),
            self.group_max,
            self.buffers,
            self.checkpoints
        )?;
        writeln!(
            f,
            "  flush us   p50 {} p99 {} max {}",
            shown(self.flush_p50_us, 0),
            shown(self.flush_p99_us, 0),
            shown(self.flush_max_us, 0)
        )
    }
}
