//! What a timed shutdown leaves behind.

use std::error::Error;
use std::fmt;

/// What had not ended when a timed shutdown returned.
///
/// ```
/// use inflight_workqueue::WorkqueueSystem;
/// use std::time::Duration;
///
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("jobs").bound().build()?;
/// let left = wq.spawn(move || sys.shutdown_timeout(Duration::MAX)).wait()?.unwrap_err();
/// assert_eq!(left.items(), 1, "the caller itself");
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

    /// How many items were queued or running. 0 if all had ended but not all worker threads.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// let left = sys.shutdown_timeout(std::time::Duration::from_secs(60));
    /// assert_eq!(left.map_or_else(|left| left.items(), |()| 0), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn items(&self) -> u64 {
        self.queues.iter().map(|(_, items)| items).sum()
    }

    /// The queues that had items left, with their number.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// if let Err(left) = sys.shutdown_timeout(std::time::Duration::from_secs(60)) {
    ///     left.queues().for_each(|(name, items)| eprintln!("{name}: {items}"));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn queues(&self) -> impl Iterator<Item = (&str, u64)> {
        self.queues
            .iter()
            .map(|(name, items)| (name.as_str(), *items))
    }

    /// Whether the caller was one of the system's own workers, or inside a
    /// [`call_blocking`](crate::Workqueue::call_blocking), whose end cannot be waited for.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// # use std::time::Duration;
    /// let sys = WorkqueueSystem::builder().build()?;
    /// let wq = sys.workqueue("jobs").bound().build()?;
    /// let last = wq.spawn(move || sys.shutdown_timeout(Duration::MAX)).wait()?;
    /// assert!(last.unwrap_err().is_own_worker());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_own_worker(&self) -> bool {
        self.own_worker
    }
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.items() == 0 {
            return f.write_str("all items, but not all worker threads had ended");
        }
        write!(f, "{} items had not ended", self.items())?;
        for (at, (name, items)) in self.queues.iter().enumerate() {
            write!(f, "{} {name} {items}", if at == 0 { ":" } else { "," })?;
        }
        Ok(())
    }
}

impl Error for Leftover {}
