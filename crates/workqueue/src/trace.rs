//! Traces: the steps of items, reported to the user or recorded.

use crate::panics::contained;
use inflight_sync::atomic::{AtomicBool, Ordering};
use inflight_sync::time::Instant;
use inflight_sync::{Arc, Mutex};
use std::collections::VecDeque;
use std::fmt;

/// How many events a recording keeps; then it drops the oldest.
const RECORDED_MAX: usize = 16_384;

/// A step of an item, as [`SystemBuilder::trace`](crate::SystemBuilder::trace) reports it.
///
/// With the feature `tracing`, each step is also an event of that crate, at level `TRACE`, with the
/// target `inflight_workqueue`.
///
/// ```
/// use inflight_workqueue::{TraceStep, WorkqueueSystem};
///
/// let builder = WorkqueueSystem::builder().trace(|event| {
///     if event.step == TraceStep::Panicked {
///         eprintln!("{} of {} has panicked on CPU {}", event.item, event.queue, event.cpu);
///     }
/// });
/// let sys = builder.build()?;
/// # Ok::<(), inflight_workqueue::SystemError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceEvent<'a> {
    /// The workqueue's name.
    pub queue: &'a str,
    /// The item's name, by default the type of its function.
    pub item: &'a str,
    /// What happened to the item.
    pub step: TraceStep,
    /// The CPU on which the step was taken; for [`TraceStep::Queued`], the CPU that the item was
    /// queued on.
    pub cpu: usize,
}

/// A recorded [`TraceEvent`]. See
/// [`WorkqueueSystem::record_trace`](crate::WorkqueueSystem::record_trace).
///
/// ```
/// use inflight_workqueue::WorkqueueSystem;
///
/// let sys = WorkqueueSystem::builder().build()?;
/// sys.record_trace(true);
/// let wq = sys.workqueue("jobs").bound().build()?;
/// wq.spawn(|| ()).wait()?;
/// let steps = sys.take_trace().steps.into_iter();
/// let steps: Vec<_> = steps.map(|record| record.step.to_string()).collect();
/// assert_eq!(steps[..3], ["queued", "activated", "started"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceRecord {
    /// The time in ns of the system's clock.
    pub at_ns: u64,
    /// The workqueue's name.
    pub queue: String,
    /// The item's name.
    pub item: String,
    /// What happened to the item.
    pub step: TraceStep,
    /// The CPU, as in [`TraceEvent`].
    pub cpu: usize,
}

/// The steps recorded between two calls of [`take_trace`](crate::WorkqueueSystem::take_trace).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedTrace {
    /// Oldest first.
    pub steps: VecDeque<TraceRecord>,
    /// How many older steps were dropped for lack of room.
    pub dropped: u64,
}

/// A step of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceStep {
    /// The item is being queued. On a queue that takes all items this comes before all other steps.
    /// If the queue is closed at that moment, or another thread queues or cancels the item then, no
    /// other step follows from this one.
    Queued,
    /// A worker has taken the item, with a slot of `max_active`.
    Activated,
    /// The item's run begins.
    Started,
    /// The item's run has ended.
    Ended,
    /// The item's run has ended by panic.
    Panicked,
    /// The item was taken back before its run.
    Cancelled,
}

impl fmt::Display for TraceStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Queued => "queued",
            Self::Activated => "activated",
            Self::Started => "started",
            Self::Ended => "ended",
            Self::Panicked => "panicked",
            Self::Cancelled => "cancelled",
        })
    }
}

pub(crate) type Tracer = Arc<dyn Fn(&TraceEvent<'_>) + Send + Sync>;

pub(crate) struct Tracing {
    pub(crate) tracer: Option<Tracer>,
    recording: AtomicBool,
    recorded: Mutex<RecordedTrace>,
}

impl Tracing {
    pub(crate) fn new(tracer: Option<Tracer>) -> Self {
        Self {
            tracer,
            recording: AtomicBool::new(false),
            recorded: Mutex::default(),
        }
    }

    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        // The cached level: locks may be held here, so the subscriber is not called.
        #[cfg(feature = "tracing")]
        if tracing::level_filters::LevelFilter::current()
            == tracing::level_filters::LevelFilter::TRACE
        {
            return true;
        }
        // Relaxed: a thread that sees an old value misses a step.
        self.tracer.is_some() || self.recording.load(Ordering::Relaxed)
    }

    pub(crate) fn record(&self, on: bool) {
        if on && !self.recording.load(Ordering::Relaxed) {
            *self.recorded.lock() = RecordedTrace::default();
        }
        self.recording.store(on, Ordering::Relaxed);
    }

    pub(crate) fn is_recording(&self) -> bool {
        self.recording.load(Ordering::Relaxed)
    }

    /// What has been recorded since the last call, by the times.
    pub(crate) fn take(&self) -> RecordedTrace {
        let mut taken = std::mem::take(&mut *self.recorded.lock());
        // Threads note the time before they take the lock.
        let steps = taken.steps.make_contiguous();
        steps.sort_by_key(|step| step.at_ns);
        taken
    }

    pub(crate) fn push(&self, now: Instant, event: &TraceEvent<'_>) {
        let record = TraceRecord {
            at_ns: now.as_nanos(),
            queue: event.queue.to_owned(),
            item: event.item.to_owned(),
            step: event.step,
            cpu: event.cpu,
        };
        let mut recorded = self.recorded.lock();
        if recorded.steps.len() >= RECORDED_MAX {
            recorded.steps.pop_front();
            recorded.dropped += 1;
        }
        recorded.steps.push_back(record);
    }

    /// Tells the user's code: the subscriber of the `tracing` crate, and the tracer.
    pub(crate) fn tell(&self, event: &TraceEvent<'_>) {
        #[cfg(feature = "tracing")]
        contained(|| {
            let (queue, item, cpu) = (event.queue, event.item, event.cpu);
            tracing::trace!(target: "inflight_workqueue", queue, item, cpu, "{}", event.step);
        });
        if let Some(tracer) = &self.tracer {
            contained(|| tracer(event));
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// A thread that has noted the time may be the second to get the lock.
    #[test]
    fn a_recording_is_sorted_by_time() {
        let tracing = Tracing::new(None);
        for at in [7, 9, 8] {
            let event = TraceEvent {
                queue: "q",
                item: "i",
                step: TraceStep::Queued,
                cpu: 0,
            };
            tracing.push(Instant::from_nanos(at), &event);
        }
        let times: Vec<_> = tracing.take().steps.iter().map(|s| s.at_ns).collect();
        assert_eq!(times, [7, 8, 9]);
    }
}
