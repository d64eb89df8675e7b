//! The source of a wake, and the load of a worker.

/// The load of the workers of a CPU, or of a group of CPUs.
///
/// ```
/// use inflight_topology::wake::ShardLoad;
///
/// let load = ShardLoad::new(3, 1);
/// assert_eq!((load.queued(), load.active()), (3, 1));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ShardLoad {
    queued: u32,
    active: u32,
}

impl ShardLoad {
    /// Makes a load of waiting items and running items.
    ///
    /// ```
    /// assert_eq!(inflight_topology::wake::ShardLoad::new(0, 1).active(), 1);
    /// ```
    #[must_use]
    pub const fn new(queued: u32, active: u32) -> Self {
        Self { queued, active }
    }

    /// Returns the number of waiting items.
    ///
    /// ```
    /// assert_eq!(inflight_topology::wake::ShardLoad::new(5, 1).queued(), 5);
    /// ```
    #[must_use]
    pub const fn queued(self) -> u32 {
        self.queued
    }

    /// Returns the number of running items.
    ///
    /// ```
    /// assert_eq!(inflight_topology::wake::ShardLoad::new(5, 1).active(), 1);
    /// ```
    #[must_use]
    pub const fn active(self) -> u32 {
        self.active
    }

    /// Returns whether the worker sleeps after the item that it runs: one runs, no other, and none
    /// waits.
    ///
    /// ```
    /// use inflight_topology::wake::ShardLoad;
    ///
    /// assert!(ShardLoad::new(0, 1).sleeps_next());
    /// assert!(!ShardLoad::new(1, 1).sleeps_next());
    /// assert!(!ShardLoad::new(0, 2).sleeps_next());
    /// assert!(!ShardLoad::new(0, 0).sleeps_next()); // nothing runs, so no worker reports this
    /// ```
    #[must_use]
    pub const fn sleeps_next(self) -> bool {
        self.queued == 0 && self.active == 1
    }
}

/// The source of a wake.
///
/// ```
/// use inflight_topology::wake::{ShardLoad, WakeSource};
///
/// let source = WakeSource::BoundWorker(ShardLoad::new(0, 1));
/// assert_ne!(source, WakeSource::Thread);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WakeSource {
    /// An interrupt, or a stand-in for one: the CPU that took it may be idle.
    Interrupt,
    /// A thread about which nothing is known; it may run on for long.
    Thread,
    /// The worker bound to its CPU, from within an item, as the item's last act; with the load of
    /// its shard at that moment.
    BoundWorker(ShardLoad),
}
