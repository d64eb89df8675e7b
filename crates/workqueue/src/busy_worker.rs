//! What the workers of a pool run, for those who ask: stalls, hogs and the dump.

use crate::proc;
use std::fmt;
use std::time::Duration;

/// A worker, and the item that it runs. See [`Stall::running`](crate::Stall::running).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BusyWorker {
    /// The queue that the item came through.
    pub queue: String,
    /// The item's name, by default the type of its function.
    pub item: String,
    /// What the item has [said](crate::set_worker_desc) that it does.
    pub description: Option<String>,
    /// For how long at least the item has run. Nobody notes when an item begins: this is the time
    /// since the system has first looked at it, so it is zero at the first tick.
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
        if let Some(description) = &self.description {
            write!(f, " ({description})")?;
        }
        if !self.running_for.is_zero() {
            write!(f, " for {:?}", self.running_for)?;
        }
        let mut stack = self.stack.iter().flat_map(|stack| stack.lines());
        stack.try_for_each(|line| write!(f, "\n    {line}"))
    }
}

/// What an item that has a name of its own, or describes itself, tells others while it runs. Those
/// that do neither do not come here.
#[derive(Default)]
pub(crate) struct WorkerDesc {
    /// The item's entry in the worker's batch. For all others the texts are as if empty.
    entry: Option<u32>,
    name: String,
    description: String,
}

impl WorkerDesc {
    /// Of the item of that entry; what others have told goes.
    fn of(&mut self, entry: u32) -> &mut Self {
        if self.entry.replace(entry) != Some(entry) {
            // The memory stays for texts of the same length.
            self.name.clear();
            self.description.clear();
        }
        self
    }

    pub(crate) fn set_name(&mut self, entry: u32, name: &str) {
        name.clone_into(&mut self.of(entry).name);
    }

    pub(crate) fn set_description(&mut self, entry: u32, description: &str) {
        description.clone_into(&mut self.of(entry).description);
    }

    pub(crate) fn name(&self, entry: u32) -> Option<String> {
        self.text(entry, &self.name)
    }

    pub(crate) fn description(&self, entry: u32) -> Option<String> {
        self.text(entry, &self.description)
    }

    fn text(&self, entry: u32, text: &str) -> Option<String> {
        let is_told = self.entry == Some(entry) && !text.is_empty();
        is_told.then(|| text.to_owned())
    }
}
