//! The queues that every system has, made when they are first asked for.

use crate::attrs::{Attrs, Kind};
use crate::consts::{DEFAULT_MAX_ACTIVE, MAX_ACTIVE_LIMIT};
use crate::system::WorkqueueSystem;
use crate::system_inner::SystemInner;
use crate::workqueue::Workqueue;
use crate::workqueue_inner::{ActiveLimit, Flags, Share, WorkqueueInner};
use crate::wq_builder::WorkqueueBuilder;
use inflight_sync::Arc;

/// Which of them.
#[derive(Clone, Copy)]
enum Which {
    Events,
    Highpri,
    Long,
    Unbound,
    Freezable,
    PowerEfficient,
    Bh,
}

impl Which {
    const fn name(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Highpri => "events_highpri",
            Self::Long => "events_long",
            Self::Unbound => "events_unbound",
            Self::Freezable => "events_freezable",
            Self::PowerEfficient => "events_power_efficient",
            Self::Bh => "events_bh",
        }
    }

    fn describe(self, system: &WorkqueueSystem) -> WorkqueueBuilder {
        let named = system.workqueue(self.name());
        match self {
            Self::Events | Self::Long => named.bound(),
            Self::Highpri => named.bound().highpri(),
            Self::Unbound => named.unbound(Attrs::new()).max_active(MAX_ACTIVE_LIMIT),
            Self::Freezable => named.bound().freezable(),
            Self::PowerEfficient => named.bound().power_efficient(),
            Self::Bh => named.bh(),
        }
    }
}

/// A queue of a system that has been shut down: it takes nothing.
fn closed(name: &str, system: &Arc<SystemInner>) -> Workqueue {
    let limit = ActiveLimit {
        max_active: DEFAULT_MAX_ACTIVE,
        share: Share::Lend,
        min_active: None,
    };
    let (kind, flags) = (Kind::Bound, Flags::default());
    let (name, settings) = (name.to_owned(), system.settings());
    let inner = WorkqueueInner::new(name, &kind, flags, limit, None, system.clone(), &settings);
    inner.shut_down();
    Workqueue::new(inner)
}

/// Queues for everybody, as Linux has them: for items that are short, few, and wait for nothing
/// that is queued here too. An engine whose items may be as many as a limit, that flushes or
/// drains, or on whose progress others depend, makes queues of its own.
///
/// Each is made when it is first asked for, and lives as long as the system. After the system has
/// been shut down they refuse what is queued, as all queues.
impl WorkqueueSystem {
    fn system_queue(&self, which: Which) -> Workqueue {
        let mut queues = self.inner.system_queues.0.lock();
        if let Some(queue) = &queues[which as usize] {
            return queue.clone();
        }
        // A system that has been shut down makes no more queues; one that refuses stands for them.
        match which.describe(self).build() {
            Ok(made) => queues[which as usize].insert(made).clone(),
            Err(_) => closed(which.name(), &self.inner),
        }
    }

    /// Bound, for everything that is short.
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// assert_eq!(sys.events().spawn(|| 6 * 7).wait()?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn events(&self) -> Workqueue {
        self.system_queue(Which::Events)
    }

    /// Bound, of high priority.
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// sys.events_highpri().spawn(|| println!("at once")).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn events_highpri(&self) -> Workqueue {
        self.system_queue(Which::Highpri)
    }

    /// Bound, for items that may take long.
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// sys.events_long().spawn(|| println!("rescanned")).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn events_long(&self) -> Workqueue {
        self.system_queue(Which::Long)
    }

    /// Unbound, with the largest limit.
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// sys.events_unbound().spawn(|| println!("anywhere")).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn events_unbound(&self) -> Workqueue {
        self.system_queue(Which::Unbound)
    }

    /// Bound and [freezable](WorkqueueBuilder::freezable).
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// let frozen = sys.freeze();
    /// let later = sys.events_freezable().spawn(|| 7);
    /// drop(frozen);
    /// assert_eq!(later.wait()?, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn events_freezable(&self) -> Workqueue {
        self.system_queue(Which::Freezable)
    }

    /// Bound, or unbound where the system [saves power](crate::SystemBuilder::power_efficient).
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// sys.events_power_efficient().spawn(|| println!("where a CPU is awake")).wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn events_power_efficient(&self) -> Workqueue {
        self.system_queue(Which::PowerEfficient)
    }

    /// For items that never sleep: see [`WorkqueueDraft::bh`](crate::WorkqueueDraft::bh).
    ///
    /// ```
    /// # let sys = inflight_workqueue::WorkqueueSystem::builder().build()?;
    /// assert_eq!(sys.events_bh().spawn(|| 1 + 2).wait()?, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn events_bh(&self) -> Workqueue {
        self.system_queue(Which::Bh)
    }
}
