//! `--rw log`: committers append small records to a log with group commit and force them; now and
//! then one of them writes a checkpoint, and moves the log's tail up to it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use inflight::flush::log::{DirStorage, Durability, Log, LogCounters, LogOptions};
use serde::Serialize;

use crate::options::Config;
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
    commit_p50_us: f64,
    commit_p99_us: f64,
    commit_max_us: f64,
    /// Flushes for groups, for single commits, before buffers, of full segments; durable writes.
    flushes: u64,
    flushes_alone: u64,
    flushes_before: u64,
    flushes_of_full_segments: u64,
    durable_writes: u64,
    flushes_per_commit: f64,
    group_mean: f64,
    group_max: u64,
    buffers: u64,
    flush_p50_us: f64,
    flush_p99_us: f64,
    flush_max_us: f64,
}

struct Run<'a> {
    log: Log,
    load: &'a LogLoad,
    limit: Option<u64>,
    stop: AtomicBool,
    commits: AtomicU64,
    /// Bytes since the last checkpoint, and how many checkpoints there were.
    since_checkpoint: AtomicU64,
    checkpoints: AtomicU64,
}

/// Carries out a run.
///
/// # Errors
/// What the log says.
pub(crate) fn run(config: &Config, load: &LogLoad) -> Result<LogReport> {
    let temporary = match &config.filename {
        Some(_) => None,
        None => Some(tempfile::tempdir().context("making a temporary folder")?),
    };
    let folder: PathBuf = match (&config.filename, &temporary) {
        (Some(folder), _) => folder.clone(),
        (None, Some(folder)) => folder.path().to_owned(),
        (None, None) => bail!("--rw log needs a folder"),
    };
    let (log, _) = open(&folder)?;
    let run = Run {
        log,
        load,
        limit: config.number_ios,
        stop: AtomicBool::new(false),
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
            scope.spawn(move || run.committer(n, rng, deadline))
        };
        let threads: Vec<_> = (0..load.committers).map(committer).collect();
        let mut all = Latencies::new();
        for thread in threads {
            let latencies = thread.join().ok().context("a committer has panicked")?;
            all.add(&latencies?);
        }
        Ok::<_, anyhow::Error>(all)
    })?;
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
    fn committer(
        &self,
        number: usize,
        mut rng: fastrand::Rng,
        deadline: Option<Instant>,
    ) -> Result<Latencies> {
        let mut latencies = Latencies::new();
        let (least, most) = self.load.record;
        let bytes = vec![number as u8; most];
        while !self.stop.load(Ordering::Relaxed) {
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
            if let Err(error) = committed {
                self.stop.store(true, Ordering::Relaxed);
                return Err(error).context("committing");
            }
            latencies.record(begun.elapsed());
            self.checkpoint_if_due(len as u64)?;
        }
        Ok(latencies)
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
        let micros = |time: Duration| (time.as_secs_f64() * 1e9).round() / 1e3;
        let per = |count: u64, of: u64| (count as f64 / of.max(1) as f64 * 1e3).round() / 1e3;
        LogReport {
            folder: folder.display().to_string(),
            committers: self.load.committers,
            record: self.load.record,
            elapsed_s: elapsed.as_secs_f64(),
            commits,
            commits_per_s: (commits as f64 / elapsed.as_secs_f64()).round(),
            bytes: counters.bytes,
            checkpoints: self.checkpoints.load(Ordering::Relaxed),
            commit_p50_us: latencies.micros_at(0.5),
            commit_p99_us: latencies.micros_at(0.99),
            commit_max_us: latencies.max_micros(),
            flushes: counters.flushes,
            flushes_alone: counters.flushes_alone,
            flushes_before: counters.flushes_before,
            flushes_of_full_segments: counters.flushes_of_full_segments,
            durable_writes: counters.fua_writes,
            flushes_per_commit: per(forced, commits),
            group_mean: per(counters.grouped, counters.flushes),
            group_max: counters.max_group,
            buffers: counters.buffers,
            flush_p50_us: micros(counters.flush_time.quantile(0.5)),
            flush_p99_us: micros(counters.flush_time.quantile(0.99)),
            flush_max_us: micros(counters.flush_time.max()),
        }
    }
}

impl fmt::Display for LogReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = self.record;
        writeln!(
            f,
            "{}: log, {} committers, records of {least} to {most} bytes, {:.1} s",
            self.folder, self.committers, self.elapsed_s
        )?;
        writeln!(
            f,
            "  commits    {}, {:.0} a second; us p50 {:.0} p99 {:.0} max {:.0}",
            self.commits,
            self.commits_per_s,
            self.commit_p50_us,
            self.commit_p99_us,
            self.commit_max_us
        )?;
        writeln!(
            f,
            "  flushes    {} for groups, {} alone, {} before buffers, {} of full segments; \
             {} durable writes; {:.3} per commit",
            self.flushes,
            self.flushes_alone,
            self.flushes_before,
            self.flushes_of_full_segments,
            self.durable_writes,
            self.flushes_per_commit
        )?;
        writeln!(
            f,
            "  groups     shared by {:.2}, at most {}; {} buffers, {} checkpoints",
            self.group_mean, self.group_max, self.buffers, self.checkpoints
        )?;
        writeln!(
            f,
            "  flush us   p50 {:.0} p99 {:.0} max {:.0}",
            self.flush_p50_us, self.flush_p99_us, self.flush_max_us
        )
    }
}
