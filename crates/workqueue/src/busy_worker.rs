//! What the workers of a pool run, for those who ask: stalls, hogs and the dump.

use crate::current::with_running;
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
    /// What the item has [said](set_worker_desc) that it does.
    pub description: Option<String>,
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
        if let Some(description) = &self.description {
            write!(f, " ({description})")?;
        }
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
pub(crate) struct Told(Mutex<(Option<u32>, Texts)>);

/// Empty ones are none.
#[derive(Clone, Default)]
pub(crate) struct Texts {
    pub(crate) name: String,
    pub(crate) description: String,
}

impl Told {
    /// The item of that entry of the worker's batch tells something. What others have told before
    /// goes.
    pub(crate) fn tell(&self, entry: u32, tell: impl FnOnce(&mut Texts)) {
        let mut told = self.0.lock();
        let (of, texts) = &mut *told;
        if of.replace(entry) != Some(entry) {
            // The memory stays for names of the same length.
            texts.name.clear();
            texts.description.clear();
        }
        tell(texts);
    }

    /// What the item of that entry has told.
    pub(crate) fn of(&self, entry: u32) -> Texts {
        let told = self.0.lock();
        let (of, texts) = &*told;
        let texts = (*of == Some(entry)).then(|| texts.clone());
        texts.unwrap_or_default()
    }
}

impl Texts {
    /// The item's own name, or else that of its function.
    pub(crate) fn name_or(self, function: &str) -> String {
        match self.name.is_empty() {
            true => function.to_owned(),
            false => self.name,
        }
    }
}

/// A description is not longer, in bytes.
const DESCRIPTION_LIMIT: usize = 128;

/// Says what the calling item is about, as the kernel's function of this name does: which device,
/// how far it has got. [Stalls](crate::Stall) and the [dump](crate::WorkqueueSystem::dump) tell it
/// beside the item's name, until the item says something else or ends. They tell its first 128
/// bytes.
///
/// To say it takes a lock of the worker's own, and memory for the text: it is not for each step of
/// a loop. Items that say nothing pay nothing. On a thread that is no worker nothing is done.
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
    with_running(|_, _, context| {
        // Foreign code, so before the lock.
        let text = description.to_string();
        let is_end = |end: &usize| text.is_char_boundary(*end);
        let end = (0..=text.len().min(DESCRIPTION_LIMIT)).rev().find(is_end);
        let first = &text[..end.unwrap_or(0)];
        context.tell(|told| first.clone_into(&mut told.description));
    });
}
