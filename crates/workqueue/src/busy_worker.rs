//! What the workers of a pool run, for those who ask: stalls, hogs and the dump.

use crate::sampler::proc;
use inflight_sync::Mutex;
use std::fmt;
use std::time::Duration;

/// A worker, and the item that it runs. See [`Stall::running`](crate::Stall::running).
///
/// ```
/// use inflight_workqueue::WorkqueueSystem;
/// use std::time::Duration;
///
/// let builder = WorkqueueSystem::builder().watchdog(Duration::from_secs(30), |stall| {
///     for busy in &stall.running {
///         eprintln!("{} of {} since {:?}", busy.item, busy.queue, busy.running_for);
///     }
/// });
/// let sys = builder.build()?;
/// # Ok::<(), inflight_workqueue::SystemError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BusyWorker {
    /// The queue that the item came through.
    pub queue: String,
    /// The item's name, by default the type of its function.
    pub item: String,
    /// For how long at least the item has run. Nobody notes when an item begins: this is the time
    /// since the system has first looked at it, so it is zero at the first look.
    pub running_for: Duration,
    /// The name of the worker's thread; `None` if that is a [poller](crate::BhPoller)'s.
    pub thread_name: Option<String>,
    /// The number of its thread, if threads have numbers.
    pub thread: Option<u32>,
    /// Where the kernel says that the thread is, if it says so.
    pub stack: Option<String>,
}

impl BusyWorker {
    /// Not under a lock: the kernel takes its time.
    pub(crate) fn read_stack(&mut self) {
        self.stack = self.thread.and_then(proc::stack);
    }
}

impl fmt::Display for BusyWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.thread_name.as_deref().unwrap_or("a poller"))?;
        if let Some(thread) = self.thread {
            write!(f, " ({thread})")?;
        }
        write!(f, " runs {}: {}", self.queue, self.item)?;
        if !self.running_for.is_zero() {
            write!(f, " for {:?}", self.running_for)?;
        }
        write_stack(f, self.stack.as_deref())
    }
}

pub(crate) fn write_stack(f: &mut fmt::Formatter<'_>, stack: Option<&str>) -> fmt::Result {
    let mut lines = stack.iter().flat_map(|stack| stack.lines());
    lines.try_for_each(|line| write!(f, "\n    {line}"))
}

/// What an item that has a name of its own, or describes itself, tells others while it runs. Those
/// that do neither do not come here.
#[derive(Default)]
pub(crate) struct Told(Mutex<Texts>);

#[derive(Default)]
struct Texts {
    /// Of which entry of the worker's batch they are. To all others they are as if empty.
    entry: Option<u32>,
    name: String,
}

impl Told {
    /// The item of that entry has a name.
    pub(crate) fn set_name(&self, entry: u32, name: &str) {
        let mut texts = self.0.lock();
        texts.entry = Some(entry);
        // In the same memory, unless it is longer.
        texts.name.clear();
        texts.name.push_str(name);
    }

    /// The name of that entry's item, if it has told one.
    pub(crate) fn name(&self, entry: u32) -> Option<String> {
        let texts = self.0.lock();
        (texts.entry == Some(entry)).then(|| texts.name.clone())
    }
}
