//! Settings of a workqueue that can be read and changed while it is in use.

use super::Workqueue;
use crate::attrs::{Attrs, Mode};
use crate::consts::{DEFAULT_MAX_ACTIVE, MAX_ACTIVE_LIMIT};
use crate::error::{AttrsError, MaxActiveError, MinActiveError};
use crate::ordered::ORDERED_LIMIT;

impl Workqueue {
    /// Whether the queue was built with [`highpri`](crate::WorkqueueBuilder::highpri).
    #[must_use]
    pub fn is_highpri(&self) -> bool {
        self.inner().flags.highpri
    }

    /// Whether the queue has a rescuer: see [`mem_reclaim`](crate::WorkqueueBuilder::mem_reclaim).
    #[must_use]
    pub fn is_mem_reclaim(&self) -> bool {
        self.inner().rescuer.as_ref().is_some()
    }

    /// How many items may be active at once: for each CPU of a bound queue, in total for an unbound
    /// one. `None` for a BH queue, which has no limit.
    #[must_use]
    pub fn max_active(&self) -> Option<usize> {
        self.inner().limit()
    }

    /// The [`min_active`](crate::WorkqueueBuilder::min_active) of the queue. `None` unless its
    /// limit is split among the nodes: see [`set_min_active`](Workqueue::set_min_active).
    #[must_use]
    pub fn min_active(&self) -> Option<usize> {
        self.inner().min_active()
    }

    /// Changes the [`max_active`](Workqueue::max_active).
    ///
    /// After a raise, waiting items become active at once, in their order. After a reduction what
    /// runs goes on, and from the return of this call on nothing begins while as many items run as
    /// the new limit allows. 0 sets the default, [`DEFAULT_MAX_ACTIVE`].
    ///
    /// # Errors
    ///
    /// [`MaxActiveError`] above [`MAX_ACTIVE_LIMIT`], for an ordered queue above 1, and for a BH
    /// queue.
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

    /// Changes the [`min_active`](crate::WorkqueueBuilder::min_active), with raises and reductions
    /// like those of [`set_max_active`](Workqueue::set_max_active). A later `max_active` below it
    /// lowers it too.
    ///
    /// # Errors
    ///
    /// [`MinActiveError`] outside 1 to `max_active`, and for queues whose limit is not split among
    /// the nodes: all but unbound ones with [`Share::PerNode`](crate::Share::PerNode).
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

    /// Changes where the queue's items run, while the queue is in use.
    ///
    /// All or nothing: on return every item queued from now on uses the new attributes, or nothing
    /// has changed and the result is an error. Items queued before run where they were queued. An
    /// item that is queued again while it runs goes to its new pool and waits there for the end of
    /// that run. An ordered queue stays ordered across the change. A pool that no queue uses any
    /// more goes away with its threads once it is empty. Items of the queue may call this too.
    ///
    /// # Errors
    ///
    /// [`AttrsError::NotUnbound`] for a bound or BH queue. [`AttrsError::Nice`] for a nice value
    /// out of range. [`AttrsError::NoWorker`] if a pool that is needed at once gets no thread, or
    /// [`AttrsError::ShutDown`] if the reason is that the system has ended.
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

    /// As [`set_attrs`](Workqueue::set_attrs), computed from the present attributes. If others
    /// change them meanwhile, `change` is called again, so that no change is lost.
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

/// The limit of a BH queue, which has none.
pub(crate) const NO_LIMIT: usize = usize::MAX;

/// The limit to use for the one that was asked for; 0 asks for the default.
pub(crate) fn checked_max_active(mode: Mode, asked: usize) -> Result<usize, MaxActiveError> {
    match mode {
        Mode::Bound | Mode::Unbound if asked == 0 => Ok(DEFAULT_MAX_ACTIVE),
        Mode::Ordered if [0, ORDERED_LIMIT].contains(&asked) => Ok(ORDERED_LIMIT),
        Mode::Ordered => Err(MaxActiveError::Ordered),
        Mode::Bh if asked == NO_LIMIT => Ok(asked),
        Mode::Bh => Err(MaxActiveError::Bh),
        _ if (1..=MAX_ACTIVE_LIMIT).contains(&asked) => Ok(asked),
        _ => Err(MaxActiveError::OutOfRange { asked }),
    }
}

/// Whether a `min_active` is from 1 to the limit.
pub(crate) fn checked_min_active(asked: usize, max_active: usize) -> Result<(), MinActiveError> {
    if (1..=max_active).contains(&asked) {
        Ok(())
    } else {
        Err(MinActiveError::OutOfRange { asked, max_active })
    }
}
