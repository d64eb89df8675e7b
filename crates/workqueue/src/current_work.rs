//! What the calling worker runs, for those who ask.

use crate::current;
use crate::item::ReusableRef;
use crate::work::Work;
use crate::work_item::WorkItem;
use inflight_topology::current_cpu;
use std::fmt;

/// What the calling thread runs. See [`current_item`].
///
/// ```
/// use inflight_workqueue::{WorkqueueSystem, current_item};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("scan").bound().build()?;
/// let described = wq.spawn(|| current_item().unwrap().to_string()).wait()?;
/// assert!(described.starts_with("scan on "), "{described}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CurrentItem {
    /// The queue that it came through.
    pub queue: String,
    /// Its name, by default the type of its function.
    pub item: String,
    /// The type of its function.
    pub function: &'static str,
    /// The pool whose worker runs it: `cpu 0`, `u2`.
    pub pool: String,
    /// The name of the worker's thread; `None` if that is a [poller](crate::BhPoller)'s.
    pub thread_name: Option<String>,
    /// The CPU that the worker is on.
    pub cpu: usize,
}

impl fmt::Display for CurrentItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            queue,
            item,
            pool,
            cpu,
            ..
        } = self;
        let thread = self.thread_name.as_deref().unwrap_or("a poller");
        write!(f, "{queue} on {pool}, {thread}, CPU {cpu}: {item}")
    }
}

/// What the calling worker runs, for a log or a dump. `None` on a thread that is no worker.
///
/// See [`CurrentItem`] for an example.
///
/// ```
/// assert_eq!(inflight_workqueue::current_item(), None);
/// ```
#[must_use]
pub fn current_item() -> Option<CurrentItem> {
    current::with_running(|_, pwq, context| CurrentItem {
        queue: pwq.wq().name().to_owned(),
        item: context.item_name(),
        pool: context.pool.attrs().name(context.pool.id()),
        thread_name: context.shared.thread_name.clone(),
        cpu: current_cpu(),
        function: context.function_name(),
    })
}

/// The work that the calling worker runs: so that a function can queue its own work without owning
/// a handle on it. `None` on a thread that is no worker, and inside functions and futures that were
/// spawned.
///
/// ```
/// use inflight_workqueue::{Work, WorkqueueSystem, current_work};
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// static RUNS: AtomicU32 = AtomicU32::new(0);
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("chain").bound().build()?;
/// let own = wq.clone();
/// let work = Work::new(move || {
///     if RUNS.fetch_add(1, Ordering::Relaxed) < 2 {
///         let me = current_work().expect("a work runs this");
///         let _ = own.queue(&me);
///     }
/// });
/// assert!(wq.queue(&work)?.is_queued());
/// wq.drain_blocking()?;
/// assert_eq!(RUNS.load(Ordering::Relaxed), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn current_work() -> Option<Work> {
    current::with_running(|item, _, context| {
        // SAFETY: the calling thread runs the item, and it says of itself that it is reusable.
        context
            .runs_work()
            .then(|| unsafe { ReusableRef::of_running(item) })
            .map(|item| WorkItem { item })
    })
    .flatten()
}
