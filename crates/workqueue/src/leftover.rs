//! What has not ended after a timed shutdown.

use std::error::Error;
use std::fmt;

/// What had not ended when a shutdown returned.
///
/// ```
/// use inflight_workqueue::WorkqueueSystem;
/// use std::time::Duration;
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("jobs").bound().build()?;
/// let left = wq.spawn(move || sys.shutdown_timeout(Duration::MAX)).wait()?.unwrap_err();
/// assert_eq!(left.items(), 1, "the caller itself");
/// assert_eq!(left.queues().collect::<Vec<_>>(), [("jobs", 1)]);
/// assert!(left.is_own_worker());
/// let text = "1 item had not ended: 1 of jobs; the caller is on a worker of this system";
/// assert_eq!(left.to_string(), text);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    queues: Vec<(String, u64)>,
    own_worker: bool,
}

impl Leftover {
    pub(crate) fn new(queues: Vec<(String, u64)>, own_worker: bool) -> Self {
        Self { queues, own_worker }
    }

    /// How many items were queued or running, or had been cancelled in a batch that a worker had
    /// taken. 0 if all items had ended, but not all worker threads.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.queues.iter().map(|(_, items)| items).sum()
    }

    /// The queues that had items left, with the number of items.
    pub fn queues(&self) -> impl Iterator<Item = (&str, u64)> {
        self.queues
            .iter()
            .map(|(name, items)| (name.as_str(), *items))
    }

    /// Whether the caller was one of the system's own workers, or inside a
    /// [`call_blocking`](crate::Workqueue::call_blocking): it cannot wait for its own end.
    #[must_use]
    pub fn is_own_worker(&self) -> bool {
        self.own_worker
    }
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.items() {
            0 => f.write_str("all items had ended, but not all worker threads")?,
            1 => f.write_str("1 item had not ended")?,
            items => write!(f, "{items} items had not ended")?,
        }
        for (at, (name, items)) in self.queues.iter().enumerate() {
            write!(f, "{} {items} of {name}", if at == 0 { ":" } else { "," })?;
        }
        if self.own_worker {
            f.write_str("; the caller is on a worker of this system")?;
        }
        Ok(())
    }
}

impl Error for Leftover {}
