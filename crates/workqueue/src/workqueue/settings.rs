//! What of a workqueue can be asked and changed while it is in use.

use super::Workqueue;
use crate::attrs::{Attrs, Mode};
use crate::consts::{DEFAULT_MAX_ACTIVE, MAX_ACTIVE_LIMIT};
use crate::error::{AttrsError, MaxActiveError, MinActiveError};
use crate::ordered::ORDERED_LIMIT;

impl Workqueue {
    /// Whether it was made with [`highpri`](crate::WorkqueueBuilder::highpri).
    #[must_use]
    pub fn is_highpri(&self) -> bool {
        self.inner().flags.highpri
    }

    /// Whether it has a rescuer: see [`mem_reclaim`](crate::WorkqueueBuilder::mem_reclaim).
    #[must_use]
    pub fn is_mem_reclaim(&self) -> bool {
        self.inner().rescuer.as_ref().is_some()
    }

    /// How many items may be active at once: for each CPU of a bound queue, altogether for an
    /// unbound one. `None` for a BH queue, which has no limit.
    #[must_use]
    pub fn max_active(&self) -> Option<usize> {
        self.inner().limit()
    }

    /// How many items may be active on each memory node, however few CPUs it has there. `None`
    /// unless the nodes have parts: see [`set_min_active`](Workqueue::set_min_active).
    #[must_use]
    pub fn min_active(&self) -> Option<usize> {
        self.inner().min_active()
    }

    /// Changes how many items may be active at once: for each CPU of a bound queue, altogether for
    /// an unbound one.
    ///
    /// A rise lets waiting items go at once, in their order. After a reduction the level falls as
    /// items end. 0 is the default, [`DEFAULT_MAX_ACTIVE`], as in the builder.
    ///
    /// # Errors
    ///
    /// [`MaxActiveError`] above [`MAX_ACTIVE_LIMIT`], and for ordered and BH queues.
    ///
    /// ```
    /// # use inflight_workqueue::MaxActiveError;
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// # let wq = sys.workqueue("jobs").bound().build()?;
    /// wq.set_max_active(16)?;
    /// assert_eq!(wq.max_active(), Some(16));
    /// assert_eq!(wq.set_max_active(4096), Err(MaxActiveError::OutOfRange { asked: 4096 }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_max_active(&self, max_active: usize) -> Result<(), MaxActiveError> {
        let max_active = checked_max_active(self.inner().mode, max_active)?;
        self.inner().set_max_active(max_active);
        Ok(())
    }

    /// Changes how many items may be active on each memory node, however few CPUs it has there:
    /// see [`WorkqueueBuilder::min_active`](crate::WorkqueueBuilder::min_active).
    ///
    /// A rise lets waiting items go at once, in their order. After a reduction the level falls as
    /// items end. A `max_active` below it takes it along.
    ///
    /// # Errors
    ///
    /// [`MinActiveError`] outside 1 to `max_active`, and for queues whose nodes have no parts: all
    /// but unbound ones with [`Share::PerNode`](crate::Share::PerNode).
    ///
    /// ```
    /// # use inflight_workqueue::{Attrs, Share};
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// let scan = sys.workqueue("scan").unbound(Attrs::new()).share(Share::PerNode).build()?;
    /// scan.set_min_active(48)?; // as many as wait for each other
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_min_active(&self, min_active: usize) -> Result<(), MinActiveError> {
        self.inner().set_min_active(min_active)
    }

    /// Changes where the queue's items run, while it is in use.
    ///
    /// All or nothing: it returns when every item queued from now on goes the new way, or with an
    /// error when nothing has changed. What has been queued before ends where it was to; an item
    /// that runs and is queued meanwhile goes the new way, and waits for the end of its run there.
    /// An ordered queue stays ordered across the change. Pools that no queue uses any more go, with
    /// their threads, when they are empty. From inside an item of the queue it may be called too.
    ///
    /// # Errors
    ///
    /// [`AttrsError::NotUnbound`] for a bound or BH queue, [`AttrsError::Nice`], and
    /// [`AttrsError::NoWorker`] if a pool that is needed at once can get no thread, or
    /// [`AttrsError::ShutDown`] if that is because the system has ended.
    ///
    /// ```
    /// # use inflight_topology::Scope;
    /// # use inflight_workqueue::{Attrs, Kind, WorkqueueSystem};
    /// # let sys = WorkqueueSystem::builder().build()?;
    /// let crypt = sys.workqueue("kcryptd").unbound(Attrs::new()).build()?;
    /// let numa = Attrs::new().scope(Scope::Numa);
    /// crypt.set_attrs(numa.clone())?;
    /// crypt.change_attrs(|attrs| attrs.nice(5))?;
    /// assert_eq!(crypt.kind(), Kind::Unbound(numa.nice(5)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_attrs(&self, attrs: Attrs) -> Result<(), AttrsError> {
        let system = &self.inner().host;
        system.set_attrs(self.inner(), attrs, None).map(drop)
    }

    /// As [`set_attrs`](Workqueue::set_attrs), from the attributes it has. If others change them
    /// meanwhile, `change` is called again, so that no change is lost.
    ///
    /// # Errors
    ///
    /// As [`set_attrs`](Workqueue::set_attrs).
    pub fn change_attrs(&self, change: impl Fn(Attrs) -> Attrs) -> Result<(), AttrsError> {
        let system = &self.inner().host;
        loop {
            let present = self.inner().attrs();
            let attrs = change(present.clone());
            if system.set_attrs(self.inner(), attrs, Some(&present))? {
                return Ok(());
            }
        }
    }
}

/// What a BH queue has instead of a limit.
pub(crate) const NO_LIMIT: usize = usize::MAX;

/// The limit that is asked for; 0 asks for the default.
pub(crate) fn checked_max_active(mode: Mode, asked: usize) -> Result<usize, MaxActiveError> {
    match mode {
        Mode::Bound | Mode::Unbound if asked == 0 => Ok(DEFAULT_MAX_ACTIVE),
        Mode::Ordered if asked == ORDERED_LIMIT => Ok(asked),
        Mode::Ordered => Err(MaxActiveError::Ordered),
        Mode::Bh if asked == NO_LIMIT => Ok(asked),
        Mode::Bh => Err(MaxActiveError::Bh),
        _ if (1..=MAX_ACTIVE_LIMIT).contains(&asked) => Ok(asked),
        _ => Err(MaxActiveError::OutOfRange { asked }),
    }
}
