//! The queues that every system has, made on first use.

use crate::attrs::{Attrs, Kind};
use crate::consts::{DEFAULT_MAX_ACTIVE, MAX_ACTIVE_LIMIT};
use crate::system::WorkqueueSystem;
use crate::system_inner::SystemInner;
use crate::workqueue::Workqueue;
use crate::workqueue_inner::{ActiveLimit, Flags, WorkqueueInner};
use crate::wq_builder::{WorkqueueBuilder, WorkqueueDraft};
use inflight_sync::Arc;

/// A queue of a system that has been shut down: it refuses everything.
fn closed(name: &str, system: &Arc<SystemInner>) -> Workqueue {
    let (kind, flags, mut limit) = (Kind::Bound, Flags::default(), ActiveLimit::default());
    limit.max_active = DEFAULT_MAX_ACTIVE;
    let (name, settings) = (name.to_owned(), system.settings());
    let inner = WorkqueueInner::new(name, &kind, flags, limit, None, system.clone(), &settings);
    inner.shut_down();
    Workqueue::new(inner)
}

/// Queues for everybody, as in Linux: for short and few items that wait for nothing else queued
/// here. Make your own queue for an engine with many items, for flushes and drains, and for work on
/// whose progress others depend.
///
/// Each queue is made on first use and lives as long as the system. After a shutdown they refuse
/// items, as all queues do.
impl WorkqueueSystem {
    fn system_queue(
        &self,
        name: &'static str,
        describe: fn(WorkqueueDraft) -> WorkqueueBuilder,
    ) -> Workqueue {
        let mut queues = self.inner.system_queues.lock();
        if let Some(queue) = queues.get(name) {
            return queue.clone();
        }
        // After a shutdown no queue can be made; a closed one stands in.
        match describe(self.workqueue(name)).build() {
            Ok(made) => queues.entry(name).or_insert(made).clone(),
            Err(_) => closed(name, &self.inner),
        }
    }

    /// Bound, for short items.
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// assert_eq!(sys.events().spawn(|| 6 * 7).wait()?, 42);
    /// sys.events_highpri().spawn(|| println!("at once")).wait()?;
    /// sys.events_long().spawn(|| println!("rescanned")).wait()?;
    /// sys.events_unbound().spawn(|| println!("anywhere")).wait()?;
    /// sys.events_power_efficient().spawn(|| println!("where a CPU is awake")).wait()?;
    /// assert_eq!(sys.events_bh().spawn(|| 1 + 2).wait()?, 3);
    /// let frozen = sys.freeze();
    /// let later = sys.events_freezable().spawn(|| 7);
    /// drop(frozen);
    /// assert_eq!(later.wait()?, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn events(&self) -> Workqueue {
        self.system_queue("events", WorkqueueDraft::bound)
    }

    /// Bound, with high priority.
    #[must_use]
    pub fn events_highpri(&self) -> Workqueue {
        self.system_queue("events_highpri", |named| named.bound().highpri())
    }

    /// Bound, for items that may take long.
    #[must_use]
    pub fn events_long(&self) -> Workqueue {
        self.system_queue("events_long", WorkqueueDraft::bound)
    }

    /// Unbound, with the largest limit.
    #[must_use]
    pub fn events_unbound(&self) -> Workqueue {
        self.system_queue("events_unbound", |named| {
            named.unbound(Attrs::new()).max_active(MAX_ACTIVE_LIMIT)
        })
    }

    /// Bound and [freezable](WorkqueueBuilder::freezable).
    #[must_use]
    pub fn events_freezable(&self) -> Workqueue {
        self.system_queue("events_freezable", |named| named.bound().freezable())
    }

    /// Bound, or unbound if the system [saves power](crate::SystemBuilder::power_efficient).
    #[must_use]
    pub fn events_power_efficient(&self) -> Workqueue {
        self.system_queue("events_power_efficient", |named| {
            named.bound().power_efficient()
        })
    }

    /// For items that never sleep: see [`WorkqueueDraft::bh`].
    #[must_use]
    pub fn events_bh(&self) -> Workqueue {
        self.system_queue("events_bh", WorkqueueDraft::bh)
    }
}
