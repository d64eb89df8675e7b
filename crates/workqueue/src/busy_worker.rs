//! What the workers of a pool run, for stall reports, hog reports and the dump.

use crate::proc;
use inflight_sync::Printed;
use std::fmt;
use std::time::Duration;

/// A worker, and the item that it runs. See [`Stall::running`](crate::Stall::running).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BusyWorker {
    /// The queue of the item.
    pub queue: String,
    /// The item's name, by default the type of its function.
    pub item: String,
    /// The item's [description](crate::set_worker_desc) of itself.
    pub description: Option<String>,
    /// For how long at least the item has run. The start of an item is not recorded: this is the
    /// time since the system first saw it run, so it is zero at the first tick.
    pub running_for: Duration,
    /// The name of the worker's thread; `None` for a [poller](crate::BhPoller)'s thread.
    pub thread_name: Option<String>,
    /// The number of the worker's thread, if threads have numbers.
    pub thread: Option<u32>,
    /// The kernel stack of the thread, if the kernel shows it.
    pub stack: Option<String>,
}

impl BusyWorker {
    /// Not under a lock, because the kernel may take long.
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
        write!(f, " runs {}: {}", self.queue, Printed(&self.item))?;
        if let Some(description) = &self.description {
            write!(f, " ({})", Printed(description))?;
        }
        if !self.running_for.is_zero() {
            write!(f, " for {:?}", self.running_for)?;
        }
        let mut stack = self.stack.iter().flat_map(|stack| stack.lines());
        stack.try_for_each(|line| write!(f, "\n    {line}"))
    }
}

/// The name and the description of a running item. Others do not touch it.
#[derive(Default)]
pub(crate) struct WorkerDesc {
    /// The item's entry in the worker's batch. For any other entry the texts count as empty.
    entry: Option<u32>,
    pub(crate) name: String,
    pub(crate) description: String,
}

impl WorkerDesc {
    /// The texts of that entry. Clears those of another entry.
    pub(crate) fn of(&mut self, entry: u32) -> &mut Self {
        if self.entry.replace(entry) != Some(entry) {
            // Keeps the memory for later texts.
            self.name.clear();
            self.description.clear();
        }
        self
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
