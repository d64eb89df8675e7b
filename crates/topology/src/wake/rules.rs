//! The rules of wake placement.

use crate::Topology;

/// How far a thread may be moved.
///
/// ```
/// use inflight_topology::{Topology, wake::Reach};
///
/// let topo = Topology::synthetic("cache:2 core:2")?;
/// assert!(Reach::SameCache.allows(0, 1, &topo));
/// assert!(!Reach::SameCache.allows(0, 2, &topo));
/// assert!(Reach::Anywhere.allows(0, 2, &topo));
/// # Ok::<(), inflight_topology::SyntheticError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Not at all.
    Nowhere,
    /// To CPUs of the same last-level cache.
    #[default]
    SameCache,
    /// To any CPU. A move to another cache loses the thread's cached data, so it must be chosen
    /// explicitly.
    Anywhere,
}

impl Reach {
    /// All of them.
    ///
    /// ```
    /// assert_eq!(inflight_topology::wake::Reach::ALL.len(), 3);
    /// ```
    pub const ALL: [Self; 3] = [Self::Nowhere, Self::SameCache, Self::Anywhere];

    /// Returns whether a thread that ran on CPU `from` may be moved to CPU `to`. Staying is always
    /// allowed; unknown CPUs share a cache with every CPU.
    ///
    /// ```
    /// use inflight_topology::{Topology, wake::Reach};
    ///
    /// let topo = Topology::synthetic("core:2")?;
    /// assert!(Reach::Nowhere.allows(1, 1, &topo));
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn allows(self, from: usize, to: usize, topology: &Topology) -> bool {
        from == to
            || match self {
                Self::Nowhere => false,
                Self::SameCache => topology.shares_cache(from, to),
                Self::Anywhere => true,
            }
    }
}

/// The CPU that is tried first when an interrupt wakes a thread: the idle CPU that took it, or an
/// idle previous CPU.
///
/// ```
/// use inflight_topology::{Topology, wake::{PullOrder, Wake, WakeRules, WakeSource}};
///
/// let topo = Topology::synthetic("core:4")?;
/// let wake = Wake::new(WakeSource::Interrupt, 0, 3);
/// let place = |pull_order| {
///     let rules = WakeRules { pull_order, ..WakeRules::default() };
///     wake.place(rules, &topo, |_| true).cpu
/// };
/// assert_eq!(place(PullOrder::PullFirst), 0);
/// assert_eq!(place(PullOrder::PreviousFirst), 3);
/// # Ok::<(), inflight_topology::SyntheticError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PullOrder {
    /// The CPU that took the interrupt: it is awake already.
    #[default]
    PullFirst,
    /// The previous CPU: its caches have the thread's data. The thread is pulled only if that CPU
    /// is busy.
    PreviousFirst,
}

impl PullOrder {
    /// All of them.
    ///
    /// ```
    /// assert_eq!(inflight_topology::wake::PullOrder::ALL.len(), 2);
    /// ```
    pub const ALL: [Self; 2] = [Self::PullFirst, Self::PreviousFirst];
}

/// The rules of [`Wake::place`](super::Wake::place) that can be switched.
///
/// ```
/// use inflight_topology::wake::{PullOrder, Reach, WakeRules};
///
/// let rules = WakeRules::default();
/// assert!(rules.stack && rules.recent);
/// assert_eq!((rules.pull, rules.load), (Reach::SameCache, Reach::SameCache));
/// assert_eq!(rules.pull_order, PullOrder::PullFirst);
/// let walk = WakeRules { stack: false, recent: false, ..rules }; // how it was before both
/// # let _ = walk;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WakeRules {
    /// The stack rule: the CPU of a bound worker that sleeps next.
    pub stack: bool,
    /// Go back to the CPU before the last one, if it is idle.
    pub recent: bool,
    /// The distance from which an interrupt on an idle CPU may pull a thread to that CPU.
    pub pull: Reach,
    /// Whether it pulls although the previous CPU is idle.
    pub pull_order: PullOrder,
    /// How far a thread may be moved towards the CPU of its waker, which has less to do by
    /// [`Wake::loads`](super::Wake::loads), when both that and the previous CPU are busy.
    pub load: Reach,
}

impl Default for WakeRules {
    fn default() -> Self {
        Self {
            stack: true,
            recent: true,
            pull: Reach::SameCache,
            pull_order: PullOrder::PullFirst,
            load: Reach::SameCache,
        }
    }
}
