//! One job: `--iodepth` lanes, each a small async loop, run by one thread that also drives the
//! engine.
//!
//! A lane picks a block, has it sealed by the workqueue if it is to be written, sends its pieces
//! through the engine, one tag each, and has it checked by the workqueue if it was read. Whatever
//! a lane waits for (a tag, a completion, a checksum) wakes it alone.

mod lane;
mod lanes;
mod plan;

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use crate::checks::Checks;
use anyhow::{Context as _, Result};
use inflight::flush::FlushDomain;
use inflight::tags::{AllocOptions, Tag, Tenant};

use crate::block::Format;
use crate::control::Control;
use crate::engine::Engine;
use crate::options::Config;
use crate::slot::{Op, Progress, Slot};
use crate::stats::{JobStats, Live};

use lane::Flight;
use lanes::{Lanes, Woken};
use plan::Plan;

/// What all jobs of a run have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) file: Arc<File>,
    /// What to call the file in messages.
    pub(crate) name: String,
    /// Identifies this run in the headers it writes.
    pub(crate) run: u64,
    pub(crate) control: Arc<Control>,
    /// All jobs share the file's flushes.
    pub(crate) domain: FlushDomain,
    /// Where blocks are sealed and checked; none without `--verify`.
    pub(crate) checksums: Option<Checks>,
}

impl Shared {
    fn format(&self) -> Format {
        Format {
            kind: self.config.verify,
            block_len: self.config.bs,
        }
    }
}

/// One job, the property of one thread.
pub(crate) struct Job<'a, E> {
    shared: &'a Arc<Shared>,
    live: &'a Live,
    index_of_job: usize,
    /// The tenant of the tag set that this job is one of.
    queue: Tenant<Slot>,
    engine: RefCell<E>,
    plan: RefCell<Plan>,
    /// The first block of the region, for `generations`.
    first_block: u64,
    /// How often this run has written each block of the region. Empty without `--verify`.
    generations: RefCell<Vec<u32>>,
    /// What each lane has in flight.
    flights: Vec<RefCell<Flight>>,
    /// Lanes that wait until another has released its block.
    released: RefCell<Vec<usize>>,
    /// Lanes that this thread has woken.
    woken: Woken,
    writes_since_sync: Cell<u64>,
    stats: RefCell<JobStats>,
}

impl<'a, E: Engine> Job<'a, E> {
    /// Gets a job ready, down to the memory of its blocks. If the run is stopped meanwhile, the
    /// job is given back without all of its memory, and will do nothing.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(crate) fn new(
        shared: &'a Arc<Shared>,
        live: &'a Live,
        queue: Tenant<Slot>,
        engine: E,
        index: usize,
        region: std::ops::Range<u64>,
    ) -> Result<Self> {
        let config = &shared.config;
        let tracked = if shared.checksums.is_some() {
            region.end - region.start
        } else {
            0
        };
        Ok(Self {
            shared,
            live,
            index_of_job: index,
            queue,
            engine: RefCell::new(engine),
            first_block: region.start,
            // Zeroed memory costs nothing until a block is written.
            generations: RefCell::new(vec![0; usize::try_from(tracked).context("--size")?]),
            plan: RefCell::new(Plan::new(config, index, region)),
            flights: (0..config.iodepth)
                .map(|lane| Ok(RefCell::new(Flight::prepare(shared, lane)?)))
                .collect::<Result<_>>()?,
            released: RefCell::default(),
            woken: Woken::default(),
            writes_since_sync: Cell::new(0),
            stats: RefCell::new(JobStats::new()),
        })
    }

    /// Runs until time is up, the work is done or the run is stopped. What was counted is given
    /// back in any case; errors go to the run's control.
    pub(crate) fn run(self) -> JobStats {
        let waker = self.engine.borrow().waker();
        let futures = (0..self.flights.len()).map(|lane| self.lane(lane));
        let mut lanes = Lanes::new(waker, futures);
        let mut finished = Vec::new();
        let mut counts = self.shared.config.ramp.is_zero();
        loop {
            if !counts && self.shared.control.counts() {
                counts = true;
                self.stats.borrow_mut().forget_speed();
            }
            self.engine.borrow_mut().heed();
            lanes.poll_woken(&self.woken, |ended| {
                if let Err(error) = ended {
                    self.shared.control.fail(error);
                }
            });
            if lanes.have_ended() {
                drop(lanes);
                return self.counted(counts);
            }
            let waited = self.engine.borrow_mut().wait(&mut finished);
            if let Err(error) = waited {
                self.shared
                    .control
                    .fail(anyhow::Error::new(error).context("the engine broke"));
                drop(lanes);
                return self.counted(counts);
            }
            for tag in finished.drain(..) {
                self.finish(tag);
            }
        }
    }

    /// What was counted; without its speed if the ramp was not over.
    fn counted(self, counts: bool) -> JobStats {
        let mut stats = self.stats.into_inner();
        if !counts {
            stats.forget_speed();
        }
        stats.reaping = self.engine.borrow().reaping();
        stats
    }

    /// Which tags it asks for.
    fn tags(&self, op: Op) -> AllocOptions {
        let (config, job) = (&self.shared.config, self.index_of_job);
        AllocOptions::new().hw_queue(config.queues.of(job, job < config.poll, op))
    }

    /// Starts the rest of a short transfer, or gives the piece back to its lane. The tag is freed
    /// here, before the lane runs: a lane that waits for a tag must not sit on others.
    fn finish(&self, mut tag: Tag<Slot>) {
        let outcome = match tag.advance() {
            Progress::Again => return self.engine.borrow_mut().start(tag),
            Progress::Finished(outcome) => outcome,
        };
        let mut flight = self.flights[tag.lane].borrow_mut();
        flight.pieces[tag.piece] = mem::take(&mut tag.buf);
        flight.under_way -= 1;
        if let Err(error) = outcome {
            flight.failure.get_or_insert((tag.next_offset(), error));
        }
        let lane = tag.lane;
        drop(tag);
        if flight.under_way == 0 {
            flight.landed = Some(Instant::now());
            if mem::take(&mut flight.waits) {
                self.woken.push(lane);
            }
        }
    }
}

impl<E> std::fmt::Debug for Job<'_, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::Checksum;
    use crate::engine::{Inbox, Psync, deliver};
    use crate::options::Options;
    use clap::Parser as _;
    use inflight::tags::TagSet;
    use inflight::topology::{Scope, Topology};
    use inflight::workqueue::{Attrs, WorkqueueSystem};
    use std::time::Duration;

    const RUN: &str = "io-engine --size 1m --rw write --iodepth 4 --number_ios 100";

    /// What a job counts, which may find the run stopped, and the error it meets.
    fn job(
        is_stopped: bool,
        change: impl FnOnce(&mut Config),
    ) -> (JobStats, Option<anyhow::Error>) {
        let mut config = Options::try_parse_from(RUN.split(' '))
            .unwrap()
            .check()
            .unwrap();
        change(&mut config);
        let system = WorkqueueSystem::builder().build().unwrap();
        let queue = |name| {
            system
                .workqueue(name)
                .unbound(Attrs::new())
                .build()
                .unwrap()
        };
        let (set, live) = (
            TagSet::builder()
                .depth(4)
                .build(|_, _| Slot::default())
                .unwrap(),
            Live::default(),
        );
        let shared = Arc::new(Shared {
            control: Arc::new(Control::new(1)),
            domain: FlushDomain::builder().build(),
            run: 1,
            file: Arc::new(tempfile::tempfile().unwrap()),
            name: "f".to_owned(),
            checksums: (config.verify != Checksum::None).then(|| {
                let topology = Topology::synthetic("core:1").unwrap();
                Checks::new(queue("checksums"), &topology, Scope::Cache)
            }),
            config,
        });
        if is_stopped {
            shared.control.stop();
        }
        let inboxes: Arc<[Inbox]> = Arc::new([Inbox::default()]);
        let completions = set
            .completions(&Topology::synthetic("core:1").unwrap())
            .build({
                let inboxes = Arc::clone(&inboxes);
                move |tag| deliver(&inboxes, tag)
            });
        let file = Arc::clone(&shared.file);
        let engine = Psync::new(file, queue("psync"), completions, inboxes, 0, false);
        let job = Job::new(
            &shared,
            &live,
            set.add_tenant("job").unwrap(),
            engine,
            0,
            0..256,
        )
        .unwrap();
        let stats = job.run();
        let failure = shared.control.take_failure();
        (stats, failure)
    }

    #[test]
    fn a_job_of_a_stopped_run_does_not_even_make_its_buffers() {
        // More than any machine has: an attempt to make one would be an error.
        let (stats, failure) = job(true, |config| {
            config.bs = usize::MAX / 4;
            config.max_split = usize::MAX / 4;
        });
        assert!(failure.is_none(), "{failure:?}");
        assert_eq!((stats.blocks(), stats.requests), (0, 0));
    }

    #[test]
    fn a_job_that_ends_before_the_ramp_has_no_speed() {
        for (ramp, blocks) in [(Duration::ZERO, 100), (Duration::from_secs(60), 0)] {
            let (stats, failure) = job(false, |config| config.ramp = ramp);
            assert!(failure.is_none(), "{failure:?}");
            assert_eq!((stats.blocks(), stats.requests), (blocks, blocks));
        }
    }
}
