//! What the calling worker runs, and functions by which an item describes itself.

use crate::current;
use crate::delayed_work::DelayedWork;
use crate::item::{OwnHandle, ReusableRef};
use crate::work::Work;
use crate::work_item::WorkItem;
use crate::workqueue_inner::Count;
use inflight_sync::Printed;
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
    /// The queue of the item.
    pub queue: String,
    /// The item's name, by default the type of its function.
    pub item: String,
    /// The type of the item's function.
    pub function: &'static str,
    /// The pool of the worker that runs it: `cpu 0`, `u2`.
    pub pool: String,
    /// The name of the worker's thread; `None` for a [poller](crate::BhPoller)'s thread.
    pub thread_name: Option<String>,
    /// The CPU that the worker is on.
    pub cpu: usize,
}

impl fmt::Display for CurrentItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let thread = self.thread_name.as_deref().unwrap_or("a poller");
        let (queue, pool, cpu, item) = (&self.queue, &self.pool, self.cpu, Printed(&self.item));
        write!(f, "{queue} on {pool}, {thread}, CPU {cpu}: {item}")
    }
}

/// What the calling worker runs, for a log or a dump. `None` on a thread that is not a worker.
///
/// See [`CurrentItem`] for an example.
#[must_use]
pub fn current_item() -> Option<CurrentItem> {
    current::with_running(|running, context| CurrentItem {
        queue: running.pwq().wq.name.to_owned(),
        item: context.item_name(),
        pool: context.pool.attrs.name(context.pool.id),
        thread_name: context.shared.thread_name.as_deref().map(str::to_owned),
        cpu: current_cpu(),
        function: context.function_name(),
    })
}

/// The work that the calling worker runs. With it a function can queue its own work without owning
/// a handle on it. `None` on a thread that is not a worker, once the run has ended (in a waker that
/// its end calls, and in a destructor of what the function owns), and inside spawned functions and
/// futures. Inside a delayed work there is [`current_delayed_work`] instead.
///
/// ```
/// # use inflight_workqueue::{Work, WorkqueueSystem, current_work};
/// # let sys = WorkqueueSystem::builder().build()?;
/// # let wq = sys.workqueue("chain").bound().build()?;
/// let own = wq.clone();
/// let work = Work::new(move || {
///     let me = current_work().expect("a work runs this");
///     if own.stats().started < 3 {
///         let _ = own.queue(&me);
///     }
/// });
/// assert!(wq.queue(&work)?.is_queued());
/// wq.drain_blocking()?;
/// assert_eq!(wq.stats().completed, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn current_work() -> Option<Work> {
    own_handle(OwnHandle::Work).map(|item| WorkItem { item })
}

/// The delayed work that the calling worker runs. With it a function can queue its own work again,
/// after a delay, without owning a handle on it. `None` on a thread that is not a worker, and
/// inside other works and spawned functions and futures.
///
/// ```
/// use inflight_workqueue::{DelayedWork, WorkqueueSystem, current_delayed_work};
/// use std::time::Duration;
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("poll").bound().build()?;
/// # let (looked, looks) = std::sync::mpsc::channel();
/// let own = wq.clone();
/// let poll = DelayedWork::new(move || {
///     println!("looks at the device");
/// #   let _ = looked.send(());
///     if let Some(me) = current_delayed_work() {
///         // An error if the queue or the system has ended: then the polling ends too.
///         let _ = own.queue_delayed(&me, Duration::from_millis(10));
///     }
/// });
/// wq.queue_delayed(&poll, Duration::ZERO)?;
/// # (0..3).for_each(|_| looks.recv().unwrap());
/// poll.cancel_sync_blocking()?; // it runs no more
/// # assert!(!poll.is_pending());
/// # drop(poll);
/// # (0..).find(|_| looks.recv().is_err()); // The function is dropped, and what it owns.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn current_delayed_work() -> Option<DelayedWork> {
    own_handle(OwnHandle::DelayedWork).map(|item| WorkItem { item })
}

fn own_handle(kind: OwnHandle) -> Option<ReusableRef> {
    current::with_running(|running, context| {
        let item = running.item.filter(|_| context.own_handle() == kind)?;
        // SAFETY: the calling thread runs the item, which has not ended, and only reusable items
        // have such a handle.
        Some(unsafe { ReusableRef::of_running(item) })
    })
    .flatten()
}

/// The longest description, in bytes.
const DESCRIPTION_LIMIT: usize = 128;

/// Describes what the calling item does, like the kernel's function of this name: which device, how
/// far it has got. [Stalls](crate::Stall) and the [dump](crate::WorkqueueSystem::dump) show the
/// first 128 bytes beside the item's name, until the item sets another description or ends.
///
/// The call takes a lock of the worker, and memory for the text, so do not call it in each step of
/// a loop. Items that do not call it pay nothing. On a thread that is not a worker it does nothing.
/// In a function that [`call_blocking`](crate::Workqueue::call_blocking) runs on the thread of an
/// item, it describes that item.
///
/// ```
/// use inflight_workqueue::{WorkqueueSystem, set_worker_desc};
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("scrub").bound().build()?;
/// let tool = sys.observer();
/// let dump = wq.spawn(move || {
///     set_worker_desc(format_args!("region {} of {}", 3, 8));
///     tool.dump()
/// });
/// assert!(dump.wait()?.contains("(region 3 of 8)"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn set_worker_desc(description: impl fmt::Display) {
    current::with_running(|_, context| {
        // Calls the user's code, so before the lock.
        let text = description.to_string();
        let is_end = |end: &usize| text.is_char_boundary(*end);
        let end = (0..=text.len().min(DESCRIPTION_LIMIT)).rev().find(is_end);
        let first = &text[..end.unwrap_or(0)];
        context.tell(|desc, entry| first.clone_into(&mut desc.of(entry).description));
    });
}

/// Reports that the calling item makes progress although it takes long. For another threshold the
/// [watchdog](crate::SystemBuilder::watchdog) then takes neither its pool nor its queue's limit for
/// stalled. It costs two additions, so do not call it in each step of a loop. On a thread that is
/// not a worker it does nothing.
///
/// ```
/// use inflight_workqueue::{WorkqueueSystem, touch_watchdog};
/// use std::time::Duration;
///
/// let builder = WorkqueueSystem::builder();
/// let sys = builder.watchdog(Duration::from_secs(30), |stall| eprintln!("{stall}")).build()?;
/// let wq = sys.workqueue("scrub").bound().build()?;
/// let scrubbed = wq.spawn(|| {
///     let regions = 0..8;
///     regions.map(|region| { touch_watchdog(); region * 2 }).sum::<u32>()
/// });
/// assert_eq!(scrubbed.wait()?, 56);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn touch_watchdog() {
    let _ = current::with_running(|running, context| {
        context.pool.touch();
        running.pwq().wq.counted(Count::Touched);
    });
}
