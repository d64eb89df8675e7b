//! A run from the open file to the report.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, Scope as Scoped, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use inflight::WorkqueueSink;
use inflight::flush::FlushDomain;
use inflight::serve::{Serve, Server};
use inflight::tags::{Completions, Steering, TagSet, Tenant};
use inflight::topology::{Scope, Topology};
use inflight::workqueue::{Attrs, MAX_ACTIVE_LIMIT, Workqueue, WorkqueueSystem};
use nix::fcntl::Flock;

use crate::checks::Checks;
use crate::checksum::Checksum;
use crate::choices::EngineChoice;
use crate::control::{Control, Starter};
use crate::engine::{Engine, Inbox, Psync, Ring, Uring, deliver};
use crate::job::{Job, Shared};
use crate::memory;
use crate::options::Config;
use crate::progress::Progress;
use crate::report::{Measured, Report};
use crate::slot::Slot;
use crate::stats::{CpuTime, JobStats, Live, Samples};
use crate::target::Target;

/// How often the main thread looks at the run.
const SAMPLE: Duration = Duration::from_millis(20);
/// Every how many looks it redraws the progress bar.
const LOOKS_PER_REDRAW: u32 = 10;

/// The rings of all jobs, or none if psync is to be used; `auto` is settled. They are made here and
/// not by the jobs, because a limit may allow one ring and not all of them. If the run is stopped
/// meanwhile there are fewer.
fn choose_engine(config: &Config, control: &Control) -> Result<Option<Vec<Ring>>> {
    let rings = || -> io::Result<Vec<Ring>> {
        Uring::probe()?;
        let jobs = (0..config.numjobs).take_while(|_| !control.stopped());
        jobs.map(|job| Ring::new(config.iodepth, job < config.poll))
            .collect()
    };
    match config.engine {
        EngineChoice::Psync => Ok(None),
        EngineChoice::IoUring => {
            let rings = rings().context("io_uring cannot be used here; try --engine psync")?;
            Ok(Some(rings))
        }
        EngineChoice::Auto => Ok(rings().map_or_else(
            |error| {
                crate::say(&format!(
                    "io_uring cannot be used here ({error}); using psync"
                ));
                None
            },
            Some,
        )),
    }
}

/// Everything the jobs' threads use.
struct Machine {
    shared: Arc<Shared>,
    set: TagSet<Slot>,
    /// Groups of jobs.
    tenants: Vec<Tenant<Slot>>,
    /// Brings requests back to the jobs' inboxes.
    completions: Completions<Slot>,
    inboxes: Arc<[Inbox]>,
    /// Where psync carries out its requests; none with io_uring.
    workers: Option<Workqueue>,
    /// Runs completions that were steered.
    complete: Option<Workqueue>,
    regions: Vec<Range<u64>>,
    live: Vec<Live>,
    /// Keeps the workers of all workqueues; none if there is no work for them.
    _system: Option<WorkqueueSystem>,
    /// Shows them; none if nobody asked.
    _server: Option<Server>,
    /// Keeps other runs away from the file, also while workers still write.
    _lock: Option<Flock<File>>,
}

/// The workqueues a run needs, and the system whose workers serve them.
struct Crew {
    /// None if there is no work for it.
    system: Option<WorkqueueSystem>,
    server: Option<Server>,
    checksums: Option<Checks>,
    workers: Option<Workqueue>,
    /// Runs completions that were steered.
    complete: Option<Workqueue>,
}

impl Crew {
    fn hire(config: &Config, topology: Topology, psync: bool) -> Result<Self> {
        let verify = config.verify != Checksum::None;
        let steered = config.steering != Steering::Inline;
        if !verify && !psync && !steered && config.serve.is_none() {
            return Ok(Self {
                system: None,
                server: None,
                checksums: None,
                workers: None,
                complete: None,
            });
        }
        let system = WorkqueueSystem::builder().topology(&topology).build();
        let system = system.context("making the workers")?;
        // The tags bound what is under way, so the queues need no limit of their own.
        let max_active = (config.numjobs * config.iodepth).min(MAX_ACTIVE_LIMIT);
        let workqueue = |name: &str, attrs: Attrs| {
            let unbound = system.workqueue(name).unbound(attrs);
            unbound
                .max_active(max_active)
                .build()
                .with_context(|| format!("making workqueue {name}"))
        };
        Ok(Self {
            checksums: verify
                .then(|| {
                    let scope = config.workqueue_scope;
                    let attrs = Attrs::new().scope(scope).strict(config.strict);
                    let queue = workqueue("checksums", attrs)?;
                    Ok::<_, anyhow::Error>(Checks::new(queue, &topology, scope))
                })
                .transpose()?,
            workers: psync
                .then(|| workqueue("psync", Attrs::new().scope(Scope::System)))
                .transpose()?,
            complete: steered
                .then(|| {
                    let queue = system.workqueue("complete").bound().highpri();
                    match config.wake.rules() {
                        Some(rules) => queue.wake_rules(rules).build(),
                        None => queue.build(),
                    }
                })
                .transpose()
                .context("making workqueue complete")?,
            server: config
                .serve
                .as_ref()
                .map(|path| serve(&system, path))
                .transpose()?,
            system: Some(system),
        })
    }
}

fn serve(system: &WorkqueueSystem, path: &Path) -> Result<Server> {
    let served = system.serve(path);
    served.with_context(|| format!("--serve {}", path.display()))
}

/// Carries out a run. What goes wrong after the start ends up in the report, next to what was
/// counted before.
///
/// # Errors
/// The run could not even start.
pub(crate) fn run(config: Config) -> Result<Report> {
    memory::check(&config)?;
    let control = Arc::new(Control::new(config.numjobs));
    let heeding = Arc::clone(&control);
    heed_signals(move || heeding.interrupt())?;
    let rings = choose_engine(&config, &control)?;
    Machine::build(config, control, rings.is_none())?.run(rings)
}

/// What comes within this time of the first signal is the same signal: `timeout` of GNU signals the
/// program, and then its whole group.
const ONE_SIGNAL: Duration = Duration::from_millis(100);

/// Calls `interrupt` when the user wants the run to end.
pub(crate) fn heed_signals(mut interrupt: impl FnMut() + Send + 'static) -> Result<()> {
    let mut first = None;
    let handler = move || {
        interrupt();
        let now = Instant::now();
        if now - *first.get_or_insert(now) >= ONE_SIGNAL {
            // The second time: do not even wait for what is in flight.
            std::process::exit(i32::from(crate::EXIT_INTERRUPTED));
        }
    };
    ctrlc::set_handler(handler).context("installing the signal handler")
}

impl Machine {
    /// Makes everything. The file comes last, so that it is not created for nothing.
    fn build(config: Config, control: Arc<Control>, psync: bool) -> Result<Self> {
        let topology = Topology::discover().context("looking at this machine's CPUs")?;
        let set = TagSet::builder()
            .hw_queues(config.queues.options())
            .depth(config.iodepth)
            .topology(&topology)
            .admission(config.admission.policy(config.iodepth))
            .steering(config.steering)
            .build(|_hw_queue, _tag| Slot::default())
            .with_context(|| {
                let (queues, depth) = (config.queues.total(), config.iodepth);
                format!("--hw-queues {queues} x --iodepth {depth}")
            })?;
        let crew = Crew::hire(&config, topology.clone(), psync)?;
        let target = Target::open(&config)?;
        let jobs = config.numjobs;
        let inboxes: Arc<[Inbox]> = (0..jobs).map(|_| Inbox::default()).collect();
        let callback = {
            let inboxes = Arc::clone(&inboxes);
            move |tag| deliver(&inboxes, tag)
        };
        let completions = set.completions(&topology);
        let completions = match &crew.complete {
            Some(queue) => completions.sink(WorkqueueSink::new(queue)).build(callback),
            None => completions.build(callback),
        };
        let tenant = |tenant| set.add_tenant(format!("tenant-{tenant}"));
        Ok(Self {
            tenants: (0..config.tenants).map(tenant).collect::<Result<_, _>>()?,
            set,
            completions,
            inboxes,
            workers: crew.workers,
            complete: crew.complete,
            regions: (0..jobs).map(|job| target.region(job, jobs)).collect(),
            live: (0..jobs).map(|_| Live::default()).collect(),
            _lock: target.lock,
            _system: crew.system,
            _server: crew.server,
            shared: Arc::new(Shared {
                control,
                domain: FlushDomain::builder().build(),
                run: fastrand::u64(..),
                file: Arc::new(target.file),
                name: target.name,
                checksums: crew.checksums,
                config,
            }),
        })
    }

    /// Runs all jobs, each on its ring if there are any, and reports.
    ///
    /// # Errors
    /// A job could not get ready.
    fn run(&self, rings: Option<Vec<Ring>>) -> Result<Report> {
        let control = &self.shared.control;
        let engine = rings.as_ref().map_or("psync", |_| "io_uring");
        let mut rings = rings.into_iter().flatten();
        let mut tags_in_use = Samples::default();
        let (jobs, spent) = thread::scope(|scope| {
            let threads: Vec<_> = (0..self.regions.len())
                .map(|job| self.spawn(scope, job, rings.next()))
                .collect();
            let spent = control.begin().map(|started| {
                let started = self.ramp(started);
                let cpu = CpuTime::now();
                let elapsed = self.watch(started, &mut tags_in_use);
                (elapsed, CpuTime::now().since(cpu))
            });
            let stats = |thread: Option<ScopedJoinHandle<'_, JobStats>>| {
                thread
                    .and_then(|thread| thread.join().ok())
                    .unwrap_or_else(JobStats::new)
            };
            (threads.into_iter().map(stats).collect::<Vec<_>>(), spent)
        });
        let failure = control.take_failure().or_else(|| self.end_fsync().err());
        let failure = match (spent, failure) {
            (None, Some(failure)) => return Err(failure),
            (_, failure) => failure.map(|error| crate::explain(&error)),
        };
        let tags = self.set.stats();
        let config = &self.shared.config;
        let elapsed = spent.unwrap_or_default().0;
        let checks = self.shared.checksums.as_ref();
        let checks = checks.map(|c| c.report(config.workqueue_scope, config.strict, elapsed));
        let tenants = self.tenants.iter();
        Ok(Report::new(
            &self.shared.config,
            Measured {
                engine,
                file: self.shared.name.clone(),
                blocks: self.regions.last().map_or(0, |region| region.end),
                spent,
                tags_in_use,
                tag_waits: tags.waits,
                tag_wakeups: tags.wakeups,
                tenants: tenants.map(|t| (t.name().to_owned(), t.stats())).collect(),
                steering: self.completions.stats(),
                placed: self.complete.as_ref().map_or(0, |q| q.stats().placed),
                flushes: self.shared.domain.counters(),
                checks,
                jobs,
                interrupted: control.interrupted(),
                error: failure,
            },
        ))
    }

    /// Flushes the file if it is to be flushed at the end.
    fn end_fsync(&self) -> Result<()> {
        if !self.shared.config.end_fsync {
            return Ok(());
        }
        let flushed = self.shared.file.sync_all();
        flushed.with_context(|| format!("{}: --end_fsync", self.shared.name))
    }

    fn spawn<'scope, 'env>(
        &'env self,
        scope: &'scope Scoped<'scope, 'env>,
        job: usize,
        ring: Option<Ring>,
    ) -> Option<ScopedJoinHandle<'scope, JobStats>> {
        let mut starter = Starter::new(&self.shared.control);
        if self.shared.control.stopped() {
            return None;
        }
        let work = move || {
            self.job(job, ring, &mut starter).unwrap_or_else(|error| {
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
    fn job(&self, index: usize, ring: Option<Ring>, starter: &mut Starter<'_>) -> Result<JobStats> {
        let file = Arc::clone(&self.shared.file);
        let (completions, inboxes) = (self.completions.clone(), Arc::clone(&self.inboxes));
        if let Some(ring) = ring {
            let overlaps = self.shared.config.direct;
            let engine = Uring::new(ring, file, completions, inboxes, index, overlaps);
            return self.drive(index, starter, engine.context("taking over a ring")?);
        }
        let workers = self.workers.clone().context("psync without workers")?;
        let polls = index < self.shared.config.poll;
        let engine = Psync::new(file, workers, completions, inboxes, index, polls);
        self.drive(index, starter, engine)
    }

    fn drive(
        &self,
        index: usize,
        starter: &mut Starter<'_>,
        engine: impl Engine,
    ) -> Result<JobStats> {
        let queue = self.tenants[index % self.tenants.len()].clone();
        let region = self.regions[index].clone();
        let job = Job::new(
            &self.shared,
            &self.live[index],
            queue,
            engine,
            index,
            region,
        )?;
        starter.line_up();
        Ok(job.run())
    }

    /// Lets the jobs run for the time that does not count; tells when that was over.
    fn ramp(&self, started: Instant) -> Instant {
        let control = &self.shared.control;
        loop {
            let left = (self.shared.config.ramp).saturating_sub(started.elapsed());
            if left.is_zero() || control.stopped() || control.wait(left) == 0 {
                break;
            }
        }
        control.count_from_now();
        Instant::now()
    }

    /// Follows the run until every job is done; tells how long that took.
    fn watch(&self, started: Instant, tags_in_use: &mut Samples) -> Duration {
        let control = &self.shared.control;
        let runtime = self.shared.config.runtime.unwrap_or(Duration::MAX);
        let mut progress = Progress::new(&self.shared.config);
        let mut looks = 0;
        let elapsed = loop {
            let left = runtime.saturating_sub(started.elapsed());
            let stopped = control.stopped();
            let running = control.wait(if stopped { SAMPLE } else { SAMPLE.min(left) });
            let elapsed = started.elapsed();
            for corruption in control.take_corruptions() {
                progress.say(&format!("{}: {corruption}", self.shared.name));
            }
            if running == 0 {
                break elapsed;
            }
            if elapsed >= runtime {
                control.stop();
            }
            // Asked again: while it waited, the run may have been stopped and the tags put back.
            if !control.stopped() {
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
