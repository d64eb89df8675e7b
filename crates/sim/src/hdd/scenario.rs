//! One run: so many jobs under one policy.

use super::disk::Disk;
use super::job::{Job, Piece, Stage};
use super::measure::{Counters, Outcome, jain};
use super::model::{MIB, Model};
use super::policy::Policy;
use crate::exec::{End, Executor, SchedulerLatency};
use fastrand::Rng;
use inflight_sbitmap::Engine;
use inflight_sync::time::Instant;
use inflight_tags::{BuildError, TagSet};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// What is to be simulated.
#[derive(Clone, Debug)]
#[must_use = "a scenario does nothing until it is run"]
pub struct Scenario {
    jobs: usize,
    policy: Policy,
    seed: u64,
    warm_up: f64,
    seconds: f64,
    small_every: Option<usize>,
    one_piece: bool,
    model: Model,
}

/// A run that could not be made, or came to no end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunError {
    /// The set refused its numbers.
    Set(BuildError),
    /// At this time of the simulation all that could happen had happened, and so many jobs
    /// waited: the policy has lost a wakeup.
    Stuck {
        /// Jobs that wait.
        jobs: usize,
        /// Since the start.
        after: Duration,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(error) => write!(f, "no tag set can be built: {error}"),
            Self::Stuck { jobs, after } => {
                write!(f, "{jobs} jobs wait for ever from {after:?} on")
            }
        }
    }
}

impl std::error::Error for RunError {}

impl Scenario {
    /// `jobs` jobs on the published machine: 10 seconds of warm-up, then 25 seconds that count,
    /// seed 1.
    pub fn new(jobs: usize, policy: Policy) -> Self {
        Self {
            jobs,
            policy,
            seed: 1,
            warm_up: 10.0,
            seconds: 25.0,
            small_every: None,
            one_piece: false,
            model: Model::default(),
        }
    }

    /// Where the random numbers begin.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// How long to measure, in seconds of the simulation.
    pub fn seconds(mut self, seconds: f64) -> Self {
        self.seconds = seconds;
        self
    }

    /// How long to run before that, in seconds of the simulation.
    pub fn warm_up(mut self, seconds: f64) -> Self {
        self.warm_up = seconds;
        self
    }

    /// Every `n`th job does small IOs. `n` is not 0.
    pub fn small_every(mut self, n: usize) -> Self {
        self.small_every = Some(n);
        self
    }

    /// Breaks the policy: a job asks for its next tag when the piece before is acknowledged. For
    /// tests that must fail.
    pub fn one_piece_at_a_time(mut self) -> Self {
        self.one_piece = true;
        self
    }

    /// Another disk or machine.
    pub fn model(mut self, model: Model) -> Self {
        self.model = model;
        self
    }

    /// Simulates it.
    ///
    /// # Errors
    ///
    /// [`RunError::Set`] if the model's number of tags is none a set can have, and
    /// [`RunError::Stuck`] if jobs wait that nobody will wake.
    pub fn run(&self) -> Result<Outcome, RunError> {
        let mut seeds = Rng::with_seed(self.seed);
        let latency = SchedulerLatency {
            rank: self.model.wake_rank,
            mean: self.model.wake_mean,
        };
        let mut executor = Executor::new(seeds.u64(..), latency);
        let stage = Rc::new(self.stage(&executor)?);
        for job in 0..self.jobs {
            let rng = Rng::with_seed(seeds.u64(..));
            executor.spawn(job % self.model.cpus, stage.clone().run_job(job, rng));
        }
        self.advance(&mut executor, self.warm_up)?;
        let issued = stage.disk.borrow().issued();
        *stage.counters.borrow_mut() = self.counters();
        self.advance(&mut executor, self.warm_up + self.seconds)?;
        let after = stage.disk.borrow().issued();
        let requests = (after.requests - issued.requests).max(1);
        let sequential = (after.sequential - issued.sequential) as f64 / requests as f64;
        Ok(self.outcome(&stage, sequential))
    }

    fn stage(&self, executor: &Executor) -> Result<Stage, RunError> {
        let world = executor.world().clone();
        let builder = TagSet::builder()
            .depth(self.model.tags)
            .admission(self.policy.admission(&self.model))
            .engine(Engine::Shared)
            .clock(world.clock())
            .ages(false);
        let set = builder
            .build(|_, _| Piece::default())
            .map_err(RunError::Set)?;
        let small = |job: usize| self.small_every.is_some_and(|n| job % n == n - 1);
        Ok(Stage {
            world,
            one_piece: self.one_piece,
            later_pieces_wait: self.policy.later_pieces_wait(),
            model: self.model.clone(),
            device: set.add_tenant("disk").expect("the only one"),
            set,
            disk: RefCell::new(Disk::new(self.model.clone(), self.seed)),
            counters: RefCell::new(self.counters()),
            jobs: (0..self.jobs).map(|job| Job::new(small(job))).collect(),
        })
    }

    fn counters(&self) -> Counters {
        Counters {
            ios: vec![0; self.jobs],
            ..Counters::default()
        }
    }

    fn advance(&self, executor: &mut Executor, to_s: f64) -> Result<(), RunError> {
        let to = Instant::default() + Duration::from_secs_f64(to_s);
        match executor.run_until(to) {
            End::Stuck { tasks } => Err(RunError::Stuck {
                jobs: tasks,
                after: executor.world().now() - Instant::default(),
            }),
            End::Deadline | End::Finished => Ok(()),
        }
    }

    fn outcome(&self, stage: &Stage, sequential: f64) -> Outcome {
        let counters = stage.counters.borrow();
        let ios_of = |small| {
            let jobs = stage.jobs.iter().zip(&counters.ios);
            jobs.filter(move |(job, _)| job.small == small)
                .map(|(_, &ios)| ios)
        };
        Outcome {
            mib_s: counters.bytes as f64 / MIB as f64 / self.seconds,
            wakes_per_s: counters.wakes as f64 / self.seconds,
            sequential,
            longest_wait_s: counters.large.longest.as_secs_f64(),
            mean_wait_s: counters.large.mean_s(),
            small_longest_wait_s: counters.small.longest.as_secs_f64(),
            small_mean_wait_s: counters.small.mean_s(),
            jain: jain(ios_of(false)),
            large_ios: ios_of(false).sum(),
            small_ios: ios_of(true).sum(),
        }
    }
}
