//! What happens to items, told to whoever wants to know.

use crate::panics::contained;
use crate::pool::Env;
use std::fmt;

/// A step of an item, as [`SystemBuilder::trace`](crate::SystemBuilder::trace) tells it.
///
/// With the feature `tracing` each is also an event of that crate, at level `TRACE`, with the
/// target `inflight_workqueue`.
///
/// ```
/// use inflight_workqueue::{TraceStep, WorkqueueSystem};
///
/// let builder = WorkqueueSystem::builder().trace(|event| {
///     if event.step == TraceStep::Panicked {
///         eprintln!("{} of {} has panicked", event.item, event.queue);
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
    /// What has happened to it.
    pub step: TraceStep,
}

/// What has happened to an item.
///
/// ```
/// use inflight_workqueue::TraceStep;
///
/// assert_eq!(TraceStep::Started.to_string(), "started");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceStep {
    /// It has been queued.
    Queued,
    /// It has been handed to a pool: `max_active` has room for it.
    Activated,
    /// Its run begins.
    Started,
    /// Its run has ended.
    Ended,
    /// Its run has ended by panic.
    Panicked,
    /// It was taken back before its run.
    Cancelled,
}

impl fmt::Display for TraceStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queued => "queued",
            Self::Activated => "activated",
            Self::Started => "started",
            Self::Ended => "ended",
            Self::Panicked => "panicked",
            Self::Cancelled => "cancelled",
        })
    }
}

pub(crate) type Tracer = Box<dyn Fn(&TraceEvent<'_>) + Send + Sync>;

/// Whether anybody wants to know.
pub(crate) fn is_on(env: &Env) -> bool {
    // What the subscriber has said before: it is not asked, because locks may be held here.
    #[cfg(feature = "tracing")]
    if tracing::level_filters::LevelFilter::current() == tracing::level_filters::LevelFilter::TRACE
    {
        return true;
    }
    env.tracer.is_some()
}

/// Tells it. No lock may be held: the one who is told is foreign.
pub(crate) fn tell(env: &Env, queue: &str, item: &str, step: TraceStep) {
    #[cfg(feature = "tracing")]
    tracing::trace!(target: "inflight_workqueue", queue, item, "{step}");
    if let Some(tracer) = &env.tracer {
        contained(|| tracer(&TraceEvent { queue, item, step }));
    }
}
