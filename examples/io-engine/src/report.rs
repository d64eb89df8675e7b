//! The result, as a table and as JSON.

use std::fmt;
use std::time::Duration;

use indicatif::BinaryBytes;
use serde::Serialize;

use crate::options::Config;
use crate::stats::{CpuTime, JobStats, Latencies, Samples, spread};

const MIB: f64 = (1 << 20) as f64;

/// Latencies of blocks in microseconds.
#[derive(Debug, Serialize)]
pub(crate) struct LatencyReport {
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

impl LatencyReport {
    /// None if there were none.
    fn new(latencies: &Latencies) -> Option<Self> {
        (latencies.count() > 0).then(|| Self {
            p50: latencies.micros_at(0.5),
            p99: latencies.micros_at(0.99),
            p999: latencies.micros_at(0.999),
            max: latencies.max_micros(),
        })
    }
}

/// CPU time as a share of the elapsed time; 100 is one CPU kept busy.
#[derive(Clone, Copy, Debug, Serialize)]
struct CpuReport {
    user_percent: f64,
    system_percent: f64,
}

#[derive(Debug, Serialize)]
struct TagReport {
    hw_queues: usize,
    /// Tags of each hardware queue.
    depth: usize,
    in_use_mean: Option<f64>,
    in_use_peak: Option<u64>,
}

#[derive(Debug, Serialize)]
struct JobReport {
    read_iops: f64,
    write_iops: f64,
    mib_s: f64,
}

/// To three decimals, which is more than a measurement is worth.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Everything a run has to tell. The field names are the keys of `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    file: String,
    engine: &'static str,
    rw: &'static str,
    bs: usize,
    size: u64,
    numjobs: usize,
    iodepth: usize,
    direct: bool,
    verify: &'static str,
    max_split_kib: usize,
    elapsed_s: f64,
    read_ios: u64,
    write_ios: u64,
    fsyncs: u64,
    requests: u64,
    read_iops: f64,
    write_iops: f64,
    read_mib_s: f64,
    write_mib_s: f64,
    lat_us: Option<LatencyReport>,
    read_lat_us: Option<LatencyReport>,
    write_lat_us: Option<LatencyReport>,
    fsync_lat_us: Option<LatencyReport>,
    cpu: Option<CpuReport>,
    tags: TagReport,
    tag_waits: u64,
    tag_wakeups: u64,
    job_spread: Option<f64>,
    jobs: Vec<JobReport>,
    verified_blocks: u64,
    never_written_blocks: u64,
    verify_errors: u64,
    interrupted: bool,
    error: Option<String>,
}

/// What a run measured.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) engine: &'static str,
    pub(crate) file: String,
    pub(crate) blocks: u64,
    /// The elapsed and the CPU time; none if the run was interrupted before it started.
    pub(crate) spent: Option<(Duration, CpuTime)>,
    pub(crate) tags_in_use: Samples,
    pub(crate) tag_waits: u64,
    pub(crate) tag_wakeups: u64,
    pub(crate) jobs: Vec<JobStats>,
    pub(crate) interrupted: bool,
    pub(crate) error: Option<String>,
}

impl Report {
    pub(crate) fn new(config: &Config, measured: Measured) -> Self {
        let mut all = JobStats::new();
        measured.jobs.iter().for_each(|job| all.add(job));
        let mut latencies = all.read_lat.clone();
        latencies.add(&all.write_lat);
        let elapsed = measured.spent.unwrap_or_default().0.as_secs_f64();
        let seconds = elapsed.max(1e-9);
        let per_second = |count: u64| rounded(count as f64 / seconds);
        let mib_s = |blocks: u64| rounded(blocks as f64 / seconds * config.bs as f64 / MIB);
        let percent = |time: Duration| rounded(time.as_secs_f64() / seconds * 100.0);
        let (reads, writes) = (all.read_lat.count(), all.write_lat.count());
        Self {
            file: measured.file,
            engine: measured.engine,
            rw: config.rw.name(),
            bs: config.bs,
            size: measured.blocks * config.bs as u64,
            numjobs: config.numjobs,
            iodepth: config.iodepth,
            direct: config.direct,
            verify: config.verify.name(),
            max_split_kib: config.max_split / 1024,
            elapsed_s: (elapsed * 1e6).round() / 1e6,
            read_ios: reads,
            write_ios: writes,
            fsyncs: all.sync_lat.count(),
            requests: all.requests,
            read_iops: per_second(reads),
            write_iops: per_second(writes),
            read_mib_s: mib_s(reads),
            write_mib_s: mib_s(writes),
            lat_us: LatencyReport::new(&latencies),
            read_lat_us: LatencyReport::new(&all.read_lat),
            write_lat_us: LatencyReport::new(&all.write_lat),
            fsync_lat_us: LatencyReport::new(&all.sync_lat),
            cpu: measured.spent.map(|(_, cpu)| CpuReport {
                user_percent: percent(cpu.user),
                system_percent: percent(cpu.system),
            }),
            tags: TagReport {
                hw_queues: config.hw_queues,
                depth: config.iodepth,
                in_use_mean: measured.tags_in_use.mean().map(rounded),
                in_use_peak: measured.tags_in_use.peak(),
            },
            tag_waits: measured.tag_waits,
            tag_wakeups: measured.tag_wakeups,
            job_spread: spread(measured.jobs.iter().map(JobStats::blocks)).map(rounded),
            jobs: measured
                .jobs
                .iter()
                .map(|job| JobReport {
                    read_iops: per_second(job.read_lat.count()),
                    write_iops: per_second(job.write_lat.count()),
                    mib_s: mib_s(job.blocks()),
                })
                .collect(),
            verified_blocks: all.intact,
            never_written_blocks: all.never_written,
            verify_errors: all.verify_errors,
            interrupted: measured.interrupted,
            error: measured.error,
        }
    }

    pub(crate) fn verify_errors(&self) -> u64 {
        self.verify_errors
    }

    pub(crate) fn read_ios(&self) -> u64 {
        self.read_ios
    }

    pub(crate) fn interrupted(&self) -> bool {
        self.interrupted
    }

    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    fn latency_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  latency us {:>11} {:>11} {:>11} {:>11}",
            "p50", "p99", "p99.9", "max"
        )?;
        for (name, latencies) in [
            ("read", &self.read_lat_us),
            ("write", &self.write_lat_us),
            ("fsync", &self.fsync_lat_us),
        ] {
            let Some(LatencyReport {
                p50,
                p99,
                p999,
                max,
            }) = latencies
            else {
                continue;
            };
            writeln!(
                f,
                "  {name:<10} {p50:>11.1} {p99:>11.1} {p999:>11.1} {max:>11.1}"
            )?;
        }
        Ok(())
    }

    fn resource_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(CpuReport {
            user_percent,
            system_percent,
        }) = self.cpu
        {
            writeln!(
                f,
                "  CPU        user {user_percent:.0} %, system {system_percent:.0} %"
            )?;
        }
        let tags = &self.tags;
        let sampled = |value: Option<f64>, digits: usize| {
            value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
        };
        writeln!(
            f,
            "  tags       {} x {}; in use: mean {}, peak {}; waits {}, wakeups {}",
            tags.hw_queues,
            tags.depth,
            sampled(tags.in_use_mean, 1),
            sampled(tags.in_use_peak.map(|peak| peak as f64), 0),
            self.tag_waits,
            self.tag_wakeups
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} {} blocks of {} over {}, {}, {} job(s) x iodepth {}, {}verify {}",
            self.file,
            self.rw,
            self.read_ios + self.write_ios,
            BinaryBytes(self.bs as u64),
            BinaryBytes(self.size),
            self.engine,
            self.numjobs,
            self.iodepth,
            if self.direct { "direct, " } else { "" },
            self.verify,
        )?;
        let state = if self.interrupted {
            ", interrupted"
        } else {
            ""
        };
        if self.lat_us.is_none() {
            let seconds = self.elapsed_s;
            return writeln!(f, "  no block was finished in {seconds:.2} s{state}");
        }
        writeln!(f, "  ran for {:.2} s{state}\n", self.elapsed_s)?;
        writeln!(
            f,
            "  {:<10} {:>11} {:>11} {:>11}",
            "", "IOPS", "MiB/s", "blocks"
        )?;
        for (name, iops, mib_s, count) in [
            ("read", self.read_iops, self.read_mib_s, self.read_ios),
            ("write", self.write_iops, self.write_mib_s, self.write_ios),
        ] {
            if count > 0 {
                writeln!(f, "  {name:<10} {iops:>11.0} {mib_s:>11.1} {count:>11}")?;
            }
        }
        writeln!(f)?;
        self.latency_rows(f)?;
        writeln!(f)?;
        self.resource_rows(f)?;
        writeln!(
            f,
            "  requests   {} of at most {} KiB",
            self.requests, self.max_split_kib
        )?;
        match self.job_spread {
            Some(spread) => writeln!(f, "  jobs       max/min throughput {spread:.2}")?,
            None => writeln!(f, "  jobs       some got nothing done")?,
        }
        if self.verify != "none" {
            writeln!(
                f,
                "  verify     {} intact, {} never written, {} corrupted",
                self.verified_blocks, self.never_written_blocks, self.verify_errors
            )?;
        }
        Ok(())
    }
}
