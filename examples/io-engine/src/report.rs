//! The result, as a table and as JSON.

use std::fmt;
use std::time::Duration;

use indicatif::BinaryBytes;
use serde::Serialize;

use inflight::flush::Counters;
use inflight::sync::Printed;
use inflight::tags::TenantStats;
use inflight::tags::steering::SteeringStats;

use crate::checks::CheckReport;
use crate::options::Config;
use crate::stats::{CpuTime, JobStats, Latencies, Reaping, Samples, spread};
use crate::steering_report::SteeringReport;

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
    /// All, and of these for reads of jobs that wait, and for jobs that poll.
    hw_queues: usize,
    read_queues: usize,
    poll_queues: usize,
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

/// A group of jobs.
#[derive(Debug, Serialize)]
struct TenantReport {
    name: String,
    jobs: usize,
    iops: f64,
    mib_s: f64,
    /// Of all that the run moved; none if that is nothing.
    share_percent: Option<f64>,
    /// Allocations, and how many of them had to wait.
    tags: u64,
    tag_waits: u64,
    /// From the wish for a block's first tag until it had its last.
    tag_wait_us: Option<LatencyReport>,
}

#[derive(Debug, Serialize)]
struct PollReport {
    jobs: usize,
    /// How often the threads of these jobs slept until something came, how many requests they took
    /// off their own rings, and how many of these without having slept for them.
    sleeps: u64,
    reaped: u64,
    reaped_awake: u64,
    /// The same of the others.
    other_sleeps: u64,
    other_reaped: u64,
    other_reaped_awake: u64,
}

impl PollReport {
    fn new(config: &Config, jobs: &[JobStats]) -> Self {
        let (poll, others) = jobs.split_at(config.poll);
        let (poll, others) = (reaping(poll), reaping(others));
        Self {
            jobs: config.poll,
            sleeps: poll.sleeps,
            reaped: poll.reaped,
            reaped_awake: poll.reaped_awake,
            other_sleeps: others.sleeps,
            other_reaped: others.reaped,
            other_reaped_awake: others.reaped_awake,
        }
    }
}

fn reaping(jobs: &[JobStats]) -> Reaping {
    let mut sum = Reaping::default();
    jobs.iter().for_each(|job| sum.add(job.reaping));
    sum
}

/// Flushes of the file.
#[derive(Debug, Serialize)]
struct FlushReport {
    /// Asked for, by `--fsync` and `--fua`.
    asked: u64,
    issued: u64,
    /// How many shared one.
    merged_mean: f64,
    merged_max: u64,
    /// How long they took; bounds, not more than twice too high.
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
}

impl FlushReport {
    /// None if none was asked for.
    fn new(counters: &Counters) -> Option<Self> {
        let micros = |time: Duration| rounded(time.as_secs_f64() * 1e6);
        (counters.requested() > 0).then(|| Self {
            asked: counters.requested(),
            issued: counters.issued,
            merged_mean: rounded(counters.mean_merged()),
            merged_max: counters.max_merged,
            p50_us: micros(counters.flush_time.quantile(0.5)),
            p99_us: micros(counters.flush_time.quantile(0.99)),
            max_us: micros(counters.flush_time.max()),
        })
    }
}

/// To three decimals, which is more than a measurement is worth.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Everything a run has to tell. The field names are the keys of `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    name: Option<String>,
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
    fua: bool,
    flushes: Option<FlushReport>,
    cpu: Option<CpuReport>,
    tags: TagReport,
    tag_waits: u64,
    tag_wakeups: u64,
    admission: &'static str,
    tenants: Vec<TenantReport>,
    #[serde(skip)]
    by_tenant: bool,
    steering: SteeringReport,
    checksums: Option<CheckReport>,
    #[serde(skip)]
    by_scope: bool,
    poll: PollReport,
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
    /// The name of each group of jobs, and what it counted.
    pub(crate) tenants: Vec<(String, TenantStats)>,
    pub(crate) steering: SteeringStats,
    /// Wakeups for another CPU than the one that submitted.
    pub(crate) placed: u64,
    pub(crate) flushes: Counters,
    /// None without `--verify`.
    pub(crate) checks: Option<CheckReport>,
    pub(crate) jobs: Vec<JobStats>,
    pub(crate) interrupted: bool,
    pub(crate) error: Option<String>,
}

/// Job J is of tenant J modulo their number.
fn tenant_reports(
    config: &Config,
    measured: &Measured,
    blocks: u64,
    seconds: f64,
) -> Vec<TenantReport> {
    let tenants = measured.tenants.iter().enumerate();
    let report = |(tenant, (name, tags)): (usize, &(String, TenantStats))| {
        let mut sum = JobStats::new();
        let jobs = measured.jobs.iter().skip(tenant).step_by(config.tenants);
        let count = jobs.inspect(|job| sum.add(job)).count();
        let iops = sum.blocks() as f64 / seconds;
        TenantReport {
            name: name.clone(),
            jobs: count,
            iops: rounded(iops),
            mib_s: rounded(iops * config.bs as f64 / MIB),
            share_percent: (blocks > 0)
                .then(|| rounded(sum.blocks() as f64 / blocks as f64 * 100.0)),
            tags: tags.allocs,
            tag_waits: tags.waits,
            tag_wait_us: LatencyReport::new(&sum.tag_wait),
        }
    };
    tenants.map(report).collect()
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
        let tenants = tenant_reports(config, &measured, all.blocks(), seconds);
        Self {
            name: config.name.clone(),
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
            fua: config.fua,
            flushes: FlushReport::new(&measured.flushes),
            cpu: measured.spent.map(|(_, cpu)| CpuReport {
                user_percent: percent(cpu.user),
                system_percent: percent(cpu.system),
            }),
            tags: TagReport {
                hw_queues: config.queues.total(),
                read_queues: config.queues.read,
                poll_queues: config.queues.poll,
                depth: config.iodepth,
                in_use_mean: measured.tags_in_use.mean().map(rounded),
                in_use_peak: measured.tags_in_use.peak(),
            },
            tag_waits: measured.tag_waits,
            tag_wakeups: measured.tag_wakeups,
            admission: config.admission.name(),
            by_tenant: config.by_tenant,
            tenants,
            steering: SteeringReport::new(config, &measured.steering, measured.placed),
            checksums: measured.checks,
            by_scope: config.by_scope,
            poll: PollReport::new(config, &measured.jobs),
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

    /// Reads that were checked, also those that count in no rate.
    pub(crate) fn checked(&self) -> u64 {
        self.verified_blocks + self.never_written_blocks + self.verify_errors
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

    fn flush_row(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(flushes) = &self.flushes else {
            return Ok(());
        };
        writeln!(
            f,
            "  flushes    {} asked for, {} issued; shared by {:.2}, at most {}; us p50 {:.0} p99 \
             {:.0} max {:.0}",
            flushes.asked,
            flushes.issued,
            flushes.merged_mean,
            flushes.merged_max,
            flushes.p50_us,
            flushes.p99_us,
            flushes.max_us
        )
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

impl Report {
    /// What is only told if it was asked for.
    fn sharing_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.by_tenant {
            let (admission, n) = (self.admission, self.tenants.len());
            writeln!(f, "  tenants    {n}; admission {admission}")?;
            for tenant in &self.tenants {
                let share = tenant.share_percent.unwrap_or(0.0);
                write!(
                    f,
                    "  {:<10} {} job(s), {:.1} MiB/s, share {share:.1} %, tag waits {} of {}",
                    tenant.name, tenant.jobs, tenant.mib_s, tenant.tag_waits, tenant.tags
                )?;
                match &tenant.tag_wait_us {
                    Some(wait) => writeln!(
                        f,
                        ", us p50 {:.1} p99 {:.1} max {:.1}",
                        wait.p50, wait.p99, wait.max
                    )?,
                    None => writeln!(f)?,
                }
            }
        }
        if let Some(row) = self.steering.row() {
            writeln!(f, "  steering   {row}")?;
        }
        if let Some(checks) = self.checksums.as_ref().filter(|_| self.by_scope) {
            writeln!(f, "  checksums  {}", checks.row())?;
        }
        let poll = &self.poll;
        if poll.jobs > 0 {
            writeln!(
                f,
                "  poll       {} job(s) slept {} times, reaped {} themselves, {} of them awake; \
                 the others slept {}, reaped {}, {} awake",
                poll.jobs,
                poll.sleeps,
                poll.reaped,
                poll.reaped_awake,
                poll.other_sleeps,
                poll.other_reaped,
                poll.other_reaped_awake
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            writeln!(f, "{}", Printed(name))?;
        }
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
        self.flush_row(f)?;
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
        self.sharing_rows(f)?;
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
