//! Freezing all freezable queues of a system, before a snapshot or before the machine sleeps.

use crate::pool_attrs::Settings;
use crate::pool_core::PwqState;
use crate::pwq::FROZEN;
use crate::system_inner::SystemInner;
use crate::worker_pool::QueueDeferred;
use crate::workqueue_inner::WorkqueueInner;
use inflight_sync::Arc;

/// While it exists, no item of a [`freezable`](crate::WorkqueueBuilder::freezable) queue begins.
///
/// Made by [`WorkqueueSystem::freeze`](crate::WorkqueueSystem::freeze). When the last one is
/// dropped, the items queued meanwhile run in their order. It does not keep the system alive; a
/// shutdown of the system ends the freeze.
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
        system.change_freezes(|settings| settings.freezes += 1);
        Self {
            system: system.clone(),
        }
    }

    /// Whether items that began before the freeze still run. After a `false` none does.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.system.freezable().any(|queue| queue.is_active())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.system.change_freezes(|settings| settings.freezes -= 1);
    }
}

inflight_sync::debug_fields!(Frozen);

impl SystemInner {
    /// Changes the number of freezes, and so perhaps freezes or thaws the freezable queues.
    pub(crate) fn change_freezes(&self, change: impl FnOnce(&mut Settings)) {
        let mut deferred = QueueDeferred::default();
        let mut settings = self.settings.lock();
        let before = settings.is_frozen();
        change(&mut settings);
        let now = settings.is_frozen();
        if before != now {
            for queue in self.freezable() {
                queue.set_frozen(now, &mut deferred);
            }
        }
    }

    fn freezable(&self) -> impl Iterator<Item = Arc<WorkqueueInner>> {
        let queues = self.queues().into_iter();
        queues.filter(|queue| queue.flags.freezable)
    }
}

impl WorkqueueInner {
    /// *freeze*: once this returns, no further item begins. *thaw*: items may begin again.
    pub(crate) fn set_frozen(&self, frozen: bool, deferred: &mut QueueDeferred) {
        let mut control = self.control.lock();
        control.frozen = frozen;
        for pwq in &control.pwqs {
            // A freeze takes back the items that workers have taken but not begun.
            pwq.change(frozen, deferred, |state| {
                pwq.set_flag(FROZEN, frozen);
                let set = |pwq: &mut PwqState<_>| pwq.frozen = frozen;
                state.core.set_stopped(pwq.index, set);
            });
        }
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.control.lock().frozen
    }
}
