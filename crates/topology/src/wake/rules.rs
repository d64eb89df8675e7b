//! Which of the rules are in force.

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
    /// To any CPU. A move to another cache costs what the thread has warm; ask for it explicitly.
    Anywhere,
}

impl Reach {
    /// All of them.
    ///
    /// ```
    /// assert_eq!(inflight_topology::wake::Reach::ALL.len(), 3);
    /// ```
    pub const ALL: [Self; 3] = [Self::Nowhere, Self::SameCache, Self::Anywhere];

    /// Whether a thread that ran on CPU `from` may be moved to CPU `to`. To stay is always allowed;
    /// unknown CPUs share a cache with everyone.
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

/// The rules of [`Wake::place`](super::Wake::place) that can be switched.
///
/// ```
/// use inflight_topology::wake::{Reach, WakeRules};
///
/// let rules = WakeRules::default();
/// assert!(rules.stack && rules.recent);
/// assert_eq!(rules.pull, Reach::SameCache);
/// let walk = WakeRules { stack: false, recent: false, ..rules }; // how it was before both
/// # let _ = walk;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WakeRules {
    /// The stack rule: the CPU of a bound worker that sleeps next.
    pub stack: bool,
    /// Go back to the CPU before the last one, if it is idle.
    pub recent: bool,
    /// From how far an interrupt on an idle CPU may pull a thread to that CPU.
    pub pull: Reach,
}

impl Default for WakeRules {
    fn default() -> Self {
        Self {
            stack: true,
            recent: true,
            pull: Reach::SameCache,
        }
    }
}
