//! A run from the open file to the report.

use std::ops::Range;
use std::sync::{Arc, RwLock};
use std::thread::{self, Scope as Scoped, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use inflight::tags::TagSet;
use inflight::topology::{Scope, Topology};
use inflight::workqueue::{Attrs, MAX_ACTIVE_LIMIT, Workqueue, WorkqueueSystem};

use crate::checksum::Checksum;
use crate::control::Control;
use crate::engine::{Engine, Psync, Uring};
use crate::job::{Job, Shared};
use crate::options::{Config, EngineChoice};
use crate::progress::Progress;
use crate::report::{Measured, Report};
use crate::slot::Slot;
use crate::stats::{CpuTime, JobStats, Live, Samples};
use crate::target::Target;

/// How often the main thread looks at the run.
const SAMPLE: Duration = Duration::from_millis(20);
/// Every how many looks it redraws the progress bar.
const LOOKS_PER_REDRAW: u32 = 10;

/// The engine chosen; `auto` is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EngineKind {
    IoUring,
    Psync,
}

impl EngineKind {
    fn choose(choice: EngineChoice) -> Result<Self> {
        let probe = || Uring::probe();
        match choice {
            EngineChoice::Psync => Ok(Self::Psync),
            EngineChoice::IoUring => probe()
                .map(|()| Self::IoUring)
                .context("io_uring cannot be used here; try --engine psync"),
            EngineChoice::Auto => Ok(probe().map_or_else(
                |error| {
                    eprintln!("io-engine: io_uring cannot be used here ({error}); using psync");
                    Self::Psync
                },
                |()| Self::IoUring,
            )),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::Psync => "psync",
        }
    }
}

/// Everything the jobs' threads use.
struct Machine {
    shared: Arc<Shared>,
    engine: EngineKind,
    set: TagSet<Slot>,
    /// Where psync carries out its requests.
    workers: Option<Workqueue>,
    regions: Vec<Range<u64>>,
    live: Vec<Live>,
    /// Keeps the workers of all workqueues; none if there is no work for them.
    _system: Option<WorkqueueSystem>,
}

/// The workqueues a run needs, and the system whose workers serve them.
struct Crew {
    /// None if there is no work for it.
    system: Option<WorkqueueSystem>,
    checksums: Option<Workqueue>,
    workers: Option<Workqueue>,
}

impl Crew {
    fn hire(config: &Config, topology: Topology, engine: EngineKind) -> Result<Self> {
        let verify = config.verify != Checksum::None;
        let psync = engine == EngineKind::Psync;
        if !verify && !psync {
            return Ok(Self {
                system: None,
                checksums: None,
                workers: None,
            });
        }
        let system = WorkqueueSystem::builder().topology(topology).build();
        let system = system.context("making the workers")?;
        // The tags bound what is under way, so the queues need no limit of their own.
        let max_active = (config.numjobs * config.iodepth).min(MAX_ACTIVE_LIMIT);
        let workqueue = |name: &str, scope| {
            let unbound = system.workqueue(name).unbound(Attrs::new().scope(scope));
            unbound
                .max_active(max_active)
                .build()
                .with_context(|| format!("making workqueue {name}"))
        };
        Ok(Self {
            checksums: verify
                .then(|| workqueue("checksums", config.workqueue_scope))
                .transpose()?,
            workers: psync
                .then(|| workqueue("psync", Scope::System))
                .transpose()?,
            system: Some(system),
        })
    }
}

/// Carries out a run. Its errors end up in the report, next to what was counted before them.
///
/// # Errors
/// The run could not even start.
pub(crate) fn run(config: Config) -> Result<Report> {
    let engine = EngineKind::choose(config.engine)?;
    let machine = Machine::build(config, engine)?;
    let shared = Arc::clone(&machine.shared);
    ctrlc::set_handler(move || {
        if !shared.control.interrupt() {
            // The second time: do not even wait for what is in flight.
            std::process::exit(i32::from(crate::EXIT_INTERRUPTED));
        }
    })
    .context("installing the signal handler")?;
    Ok(machine.run())
}

impl Machine {
    /// Makes everything. The file comes last, so that it is not created for nothing.
    fn build(config: Config, engine: EngineKind) -> Result<Self> {
        let topology = Topology::discover().context("looking at this machine's CPUs")?;
        let set = TagSet::builder()
            .hw_queues(config.hw_queues)
            .depth(config.iodepth)
            .topology(&topology)
            .build(|_hw_queue, _tag| Slot::default())
            .context("making the tags")?;
        let crew = Crew::hire(&config, topology, engine)?;
        let target = Target::open(&config)?;
        let jobs = config.numjobs;
        Ok(Self {
            engine,
            set,
            workers: crew.workers,
            regions: (0..jobs).map(|job| target.region(job, jobs)).collect(),
            live: (0..jobs).map(|_| Live::default()).collect(),
            _system: crew.system,
            shared: Arc::new(Shared {
                control: Control::new(jobs),
                run: fastrand::u64(..),
                file: Arc::new(target.file),
                name: target.name,
                checksums: crew.checksums,
                config,
            }),
        })
    }

    /// Runs all jobs and reports.
    fn run(&self) -> Report {
        // Closed while the jobs get ready, so that they start together.
        let gate = RwLock::new(());
        let control = &self.shared.control;
        let cpu = CpuTime::now();
        let mut tags_in_use = Samples::default();
        let (jobs, elapsed) = thread::scope(|scope| {
            let closed = gate.write();
            let threads: Vec<_> = (0..self.regions.len())
                .map(|job| self.spawn(scope, job, &gate))
                .collect();
            drop(closed);
            let elapsed = self.watch(&mut tags_in_use);
            let stats = |thread: Option<ScopedJoinHandle<'_, JobStats>>| {
                thread
                    .and_then(|thread| thread.join().ok())
                    .unwrap_or_else(JobStats::new)
            };
            (threads.into_iter().map(stats).collect::<Vec<_>>(), elapsed)
        });
        let tags = self.set.stats();
        Report::new(
            &self.shared.config,
            Measured {
                engine: self.engine.name(),
                file: self.shared.name.clone(),
                blocks: self.regions.last().map_or(0, |region| region.end),
                elapsed,
                cpu: CpuTime::now().since(cpu),
                tags_in_use,
                tag_waits: tags.waits,
                tag_wakeups: tags.wakeups,
                jobs,
                interrupted: control.interrupted(),
                error: control.take_failure().map(|error| format!("{error:#}")),
            },
        )
    }

    fn spawn<'scope, 'env>(
        &'env self,
        scope: &'scope Scoped<'scope, 'env>,
        job: usize,
        gate: &'env RwLock<()>,
    ) -> Option<ScopedJoinHandle<'scope, JobStats>> {
        let done = Done(&self.shared.control);
        let work = move || {
            let _done = done;
            self.job(job, gate).unwrap_or_else(|error| {
                self.shared.control.fail(error);
                JobStats::new()
            })
        };
        let spawned = thread::Builder::new()
            .name(format!("job-{job}"))
            .spawn_scoped(scope, work);
        spawned
            .map_err(|error| {
                let error = anyhow!("starting the thread of job {job}: {error}");
                self.shared.control.fail(error);
            })
            .ok()
    }

    /// The life of a job's thread.
    fn job(&self, index: usize, gate: &RwLock<()>) -> Result<JobStats> {
        let file = Arc::clone(&self.shared.file);
        match &self.workers {
            Some(workers) => self.drive(index, gate, Psync::new(file, workers.clone())),
            None => {
                let depth = self.shared.config.iodepth;
                let ring = Uring::new(file, self.set.clone(), depth).context("making a ring")?;
                self.drive(index, gate, ring)
            }
        }
    }

    fn drive(&self, index: usize, gate: &RwLock<()>, engine: impl Engine) -> Result<JobStats> {
        let queue = self.set.add_queue(format!("job-{index}"));
        let region = self.regions[index].clone();
        let job = Job::new(
            &self.shared,
            &self.live[index],
            queue,
            engine,
            index,
            region,
        )?;
        drop(gate.read());
        Ok(job.run())
    }

    /// Follows the run until every job is done; tells how long that took.
    fn watch(&self, tags_in_use: &mut Samples) -> Duration {
        let control = &self.shared.control;
        let runtime = self.shared.config.runtime.unwrap_or(Duration::MAX);
        let mut progress = Progress::new(&self.shared.config);
        let started = Instant::now();
        let mut looks = 0;
        let elapsed = loop {
            let left = runtime.saturating_sub(started.elapsed());
            let stopped = control.stopped();
            let running = control.wait(if stopped { SAMPLE } else { SAMPLE.min(left) });
            let elapsed = started.elapsed();
            for corruption in control.take_corruptions() {
                progress.say(&format!("io-engine: {}: {corruption}", self.shared.name));
            }
            if running == 0 {
                break elapsed;
            }
            if elapsed >= runtime {
                control.stop();
            }
            if !stopped {
                tags_in_use.take(self.set.in_use() as u64);
            }
            looks += 1;
            if looks % LOOKS_PER_REDRAW == 0 {
                progress.update(elapsed, &self.live);
            }
        };
        progress.finish();
        elapsed
    }
}

/// Counts a job as done, however its thread ends.
struct Done<'a>(&'a Control);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail(anyhow!("a job panicked"));
        }
        self.0.job_done();
    }
}
