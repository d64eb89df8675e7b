//! Holding all freezable queues of a system, before a snapshot or a sleep of the machine.

use crate::system_inner::SystemInner;
use inflight_sync::Arc;
use std::fmt;

/// While it lives, no item of a [`freezable`](crate::WorkqueueBuilder::freezable) queue begins.
///
/// Made by [`WorkqueueSystem::freeze`](crate::WorkqueueSystem::freeze). When the last of them is
/// dropped, what has been queued meanwhile goes on, in its order. Does not keep the system alive;
/// the end of the system lets everything go.
///
/// ```
/// # use inflight_workqueue::WorkqueueSystem;
/// let sys = WorkqueueSystem::builder().build()?;
/// let wq = sys.workqueue("writeback").unbound(Default::default()).freezable().build()?;
/// let frozen = sys.freeze();
/// let handle = wq.spawn(|| 7);
/// assert_eq!((wq.stats().inactive, wq.stats().started), (1, 0));
/// assert!(!frozen.is_busy());
/// drop(frozen);
/// assert_eq!(handle.wait()?, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "it thaws when it is dropped"]
pub struct Frozen {
    system: Arc<SystemInner>,
}

impl Frozen {
    pub(crate) fn new(system: &Arc<SystemInner>) -> Self {
        system.freeze();
        Self {
            system: system.clone(),
        }
    }

    /// Whether items that had begun before still run. Once it is `false` it stays so until the
    /// thaw.
    ///
    /// ```
    /// # use inflight_workqueue::WorkqueueSystem;
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// let frozen = sys.freeze();
    /// assert!(!frozen.is_busy(), "there is no queue");
    /// # Ok::<(), inflight_workqueue::SystemError>(())
    /// ```
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.system.is_freezing()
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.system.thaw();
    }
}

impl fmt::Debug for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frozen").finish_non_exhaustive()
    }
}
