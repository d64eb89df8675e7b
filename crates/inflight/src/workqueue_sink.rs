//! Completions of tags on the workers of a workqueue.

use inflight_tags::steering::{CompletionSink, DoneListHandle, Runner};
use inflight_topology::CpuSet;
use inflight_workqueue::{Queued, Work, Workqueue};

/// Runs completions on a workqueue: a [`Work`] of each done list empties it, queued for the CPU
/// that submitted.
///
/// A [bound](inflight_workqueue::WorkqueueDraft::bound) queue runs it on that very CPU; an unbound
/// one in the CPU's pod, for which [`scope`](inflight_tags::steering::CompletionsBuilder::scope)
/// `Cache` is a good choice. A queue with [wake
/// rules](inflight_workqueue::WorkqueueBuilder::wake_rules) runs it where the rules place it: the
/// previous CPU is the one that submitted, and the completing thread counts as an interrupt, or as
/// the bound worker that it is. A worker that runs completions may block and may wait, as in any
/// work; for requests on which the system's memory depends, give the queue `mem_reclaim`.
///
/// When the queue takes no more work (it drains, it was destroyed, its system has ended)
/// completions run where they are seen. A callback that panics is that work's panic, which the
/// queue counts once for a batch; the other completions of the batch have run, and
/// [`SteeringStats::panicked`](inflight_tags::steering::SteeringStats::panicked) counts each. The
/// callbacks of one done list never run at the same time on the queue's workers, because a work
/// never runs twice at once.
///
/// ```
/// use inflight::prelude::*;
///
/// struct Request { result: i32 }
/// let topo = Topology::discover()?;
/// let system = WorkqueueSystem::builder().topology(topo.clone()).build()?;
/// let done = system.workqueue("complete").bound().highpri().build()?;
/// let set = TagSet::builder()
///     .topology(&topo)
///     .steering(Steering::Force) // always by way of the submitter's worker
///     .build(|_hwq, _tag| Request { result: 0 })?;
/// let disk = set.add_tenant("disk0")?;
/// let completions = set
///     .completions(&topo)
///     .sink(WorkqueueSink::new(&done))
///     .build(|req: Tag<Request>| assert_eq!(req.result, 4096)); // on inflight/CPU:N
///
/// let token = disk.alloc_blocking()?.into_token();
/// completions.complete(token, |req| req.result = 4096)?; // as the reaper does
/// done.flush_blocking()?;
/// assert_eq!(set.in_use(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct WorkqueueSink(Workqueue);

impl WorkqueueSink {
    /// Makes a sink over `queue`.
    ///
    /// ```
    /// # use inflight::prelude::*;
    /// let system = WorkqueueSystem::builder().build()?;
    /// let sink = WorkqueueSink::new(&system.workqueue("complete").bound().build()?);
    /// # let _ = sink;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn new(queue: &Workqueue) -> Self {
        Self(queue.clone())
    }

    /// Returns the queue on which it runs completions.
    #[must_use]
    pub fn workqueue(&self) -> &Workqueue {
        &self.0
    }
}

impl From<Workqueue> for WorkqueueSink {
    fn from(queue: Workqueue) -> Self {
        Self(queue)
    }
}

impl CompletionSink for WorkqueueSink {
    fn runner(&self, cpus: &CpuSet, list: DoneListHandle) -> Option<Box<dyn Runner>> {
        let work = Work::named(format!("completions of {cpus}"), move || list.run());
        Some(Box::new(Emptier {
            queue: self.0.clone(),
            work,
        }))
    }
}

/// Has one done list emptied.
struct Emptier {
    queue: Workqueue,
    work: Work,
}

impl Runner for Emptier {
    fn wake(&self, cpu: usize) -> bool {
        // One that is pending has not begun, so it will find what was pushed.
        let queued = self.queue.queue_near(cpu, &self.work);
        matches!(queued, Ok(Queued::Queued | Queued::AlreadyPending))
    }

    fn is_awake(&self) -> bool {
        self.work.is_running() || self.work.is_pending()
    }
}
