//! The CPU for a thread that is woken.

use super::{PullOrder, WakeRules, WakeSource};
use crate::{CpuSet, Scope, SpeedClass, Topology};

/// A wake and the facts about it: the input of [`place`](Wake::place).
///
/// ```
/// use inflight_topology::{Topology, wake::{PlaceReason, Wake, WakeRules, WakeSource}};
///
/// let topo = Topology::synthetic("core:4")?;
/// let place = Wake::new(WakeSource::Thread, 0, 3).place(WakeRules::default(), &topo, |_| true);
/// assert_eq!((place.cpu, place.reason), (3, PlaceReason::PreviousIdle));
/// # Ok::<(), inflight_topology::SyntheticError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Wake<'a> {
    source: WakeSource,
    waker: usize,
    previous: usize,
    recent: Option<usize>,
    loads: Option<(usize, usize)>,
    needs: Option<SpeedClass>,
    allowed: Option<&'a CpuSet>,
}

impl<'a> Wake<'a> {
    /// Makes a wake from CPU `waker` of a thread that ran on CPU `previous` last.
    ///
    /// ```
    /// use inflight_topology::wake::{Wake, WakeSource};
    ///
    /// let wake = Wake::new(WakeSource::Interrupt, 0, 1);
    /// # let _ = wake;
    /// ```
    #[must_use]
    pub const fn new(source: WakeSource, waker: usize, previous: usize) -> Self {
        Self {
            source,
            waker,
            previous,
            recent: None,
            loads: None,
            needs: None,
            allowed: None,
        }
    }

    /// Sets the CPU on which the woken thread ran before the previous one.
    ///
    /// ```
    /// use inflight_topology::{Topology, wake::{Wake, WakeRules, WakeSource}};
    ///
    /// let topo = Topology::synthetic("core:8")?;
    /// let wake = Wake::new(WakeSource::Thread, 0, 3).recent(1);
    /// // CPU 3 is busy: back to 1, not on to 4.
    /// assert_eq!(wake.place(WakeRules::default(), &topo, |cpu| cpu != 3).cpu, 1);
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub const fn recent(mut self, cpu: usize) -> Self {
        self.recent = Some(cpu);
        self
    }

    /// Sets how many threads run and wait on the CPU of the waker, and on the previous one. Used if
    /// both are busy; by default not known.
    ///
    /// ```
    /// use inflight_topology::{Topology, wake::{PlaceReason, Wake, WakeRules, WakeSource}};
    ///
    /// let topo = Topology::synthetic("core:4")?;
    /// let wake = Wake::new(WakeSource::Thread, 0, 3).loads(1, 4);
    /// let place = wake.place(WakeRules::default(), &topo, |_| false);
    /// assert_eq!((place.cpu, place.reason), (0, PlaceReason::LessLoaded));
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub const fn loads(mut self, waker: usize, previous: usize) -> Self {
        self.loads = Some((waker, previous));
        self
    }

    /// Sets the least speed of a CPU for the woken thread.
    ///
    /// ```
    /// use inflight_topology::{Topology, wake::{Wake, WakeRules, WakeSource}};
    ///
    /// let topo = Topology::synthetic("core:4 slow:0-1")?;
    /// let fast = topo.speed_of(3).unwrap();
    /// let wake = Wake::new(WakeSource::Thread, 1, 0).needs(fast);
    /// assert_eq!(wake.place(WakeRules::default(), &topo, |_| true).cpu, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn needs(mut self, speed: SpeedClass) -> Self {
        self.needs = Some(speed);
        self
    }

    /// Sets the CPUs on which the woken thread may run; by default those of the topology.
    ///
    /// ```
    /// use inflight_topology::{CpuSet, Topology, wake::{Wake, WakeRules, WakeSource}};
    ///
    /// let topo = Topology::synthetic("core:4")?;
    /// let allowed = CpuSet::from([1, 2]);
    /// let wake = Wake::new(WakeSource::Thread, 0, 3).allowed(&allowed);
    /// assert!(allowed.contains(wake.place(WakeRules::default(), &topo, |_| false).cpu));
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub const fn allowed(mut self, cpus: &'a CpuSet) -> Self {
        self.allowed = Some(cpus);
        self
    }

    /// Chooses the CPU; `idle` returns whether a CPU runs nothing.
    ///
    /// In this order: the idle CPU that took the interrupt, within the [`Reach`](super::Reach) of
    /// the rules; the previous CPU if idle ([`PullOrder`] may exchange the two); the stack rule;
    /// the recent CPU if idle; in the cache of the previous CPU, in a circle from there, a core of
    /// which all threads are idle, an idle thread of the previous core, any idle CPU; and if no CPU
    /// is idle, the previous one. CPUs that are too slow come after all others.
    ///
    /// If the CPU of the waker and the previous one are busy, and the waker's has less to do, the
    /// search from the recent CPU on is for a CPU near the waker's instead, unless the waker's is
    /// too slow and the previous one is not.
    ///
    /// ```
    /// use inflight_topology::{Topology, wake::{PlaceReason, Wake, WakeRules, WakeSource}};
    ///
    /// let topo = Topology::synthetic("cache:2 core:2")?;
    /// let wake = Wake::new(WakeSource::Thread, 0, 1);
    /// // The other cache is idle, but a move there would cost what is warm here.
    /// let place = wake.place(WakeRules::default(), &topo, |cpu| cpu >= 2);
    /// assert_eq!((place.cpu, place.reason), (1, PlaceReason::NothingIdle));
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn place(
        &self,
        rules: WakeRules,
        topology: &Topology,
        idle: impl Fn(usize) -> bool,
    ) -> Placement {
        let search = Search {
            wake: self,
            topology,
            idle: &idle,
        };
        if !search.usable(self.previous) {
            return search.without_previous();
        }
        search
            .ordinary(rules)
            .or_else(|| search.too_slow(rules))
            .unwrap_or_else(|| search.nothing_idle(rules))
    }
}

struct Search<'a, I> {
    wake: &'a Wake<'a>,
    topology: &'a Topology,
    idle: &'a I,
}

impl<I: Fn(usize) -> bool> Search<'_, I> {
    fn usable(&self, cpu: usize) -> bool {
        self.topology.pod_of(Scope::Cpu, cpu).is_some()
            && self
                .wake
                .allowed
                .is_none_or(|allowed| allowed.contains(cpu))
    }

    fn idle(&self, cpu: usize) -> bool {
        self.usable(cpu) && (self.idle)(cpu)
    }

    fn fits(&self, cpu: usize) -> bool {
        self.topology.speed_of(cpu) >= self.wake.needs
    }

    fn ordinary(&self, rules: WakeRules) -> Option<Placement> {
        let Wake {
            source,
            waker,
            previous,
            recent,
            ..
        } = *self.wake;
        let good = |cpu| self.idle(cpu) && self.fits(cpu);
        let target = self.target(rules);
        let near = |cpu| self.topology.shares_cache(target, cpu);
        let pulled = source == WakeSource::Interrupt
            && rules.pull.allows(previous, waker, self.topology)
            && good(waker);
        let pulled_first = pulled && rules.pull_order == PullOrder::PullFirst;
        let stacked = rules.stack
            && matches!(source, WakeSource::BoundWorker(load) if load.sleeps_next())
            && waker == previous
            && self.fits(previous);
        let recent = recent.filter(|&cpu| rules.recent && near(cpu) && good(cpu));
        let (cpu, reason) = match recent {
            _ if pulled_first && waker != previous => (waker, PlaceReason::Pulled),
            _ if good(previous) => (previous, PlaceReason::PreviousIdle),
            _ if pulled => (waker, PlaceReason::Pulled),
            _ if stacked => (previous, PlaceReason::Stacked),
            Some(cpu) => (cpu, PlaceReason::RecentIdle),
            None => (self.scan(target, good)?, PlaceReason::CacheIdle),
        };
        Some(Placement { cpu, reason })
    }

    /// The CPU near which to search: the previous one, or the waker's if both are busy, the waker's
    /// has less to do, and it is fast enough or neither is.
    fn target(&self, rules: WakeRules) -> usize {
        let Wake {
            waker, previous, ..
        } = *self.wake;
        let less = self.wake.loads.is_some_and(|(here, there)| here < there);
        let moves = less
            && rules.load.allows(previous, waker, self.topology)
            && self.usable(waker)
            && self.fits(waker) >= self.fits(previous)
            && !(self.idle)(waker)
            && !(self.idle)(previous);
        if moves { waker } else { previous }
    }

    fn nothing_idle(&self, rules: WakeRules) -> Placement {
        let cpu = self.target(rules);
        let reason = if cpu == self.wake.previous {
            PlaceReason::NothingIdle
        } else {
            PlaceReason::LessLoaded
        };
        Placement { cpu, reason }
    }

    /// An idle CPU that is too slow is better than one that is busy.
    fn too_slow(&self, rules: WakeRules) -> Option<Placement> {
        let idle = |cpu| self.idle(cpu);
        let previous = Some(self.wake.previous).filter(|&cpu| idle(cpu));
        let cpu = previous.or_else(|| self.scan(self.target(rules), idle))?;
        Some(Placement {
            cpu,
            reason: PlaceReason::TooSlow,
        })
    }

    /// A whole core, a thread of the target's core, any: in the cache of the target.
    fn scan(&self, target: usize, good: impl Fn(usize) -> bool) -> Option<usize> {
        let in_cache = |scope| self.round(scope, target);
        let core = |cpu| self.topology.pod_of(Scope::Smt, cpu);
        let whole = |&cpu: &usize| {
            core(cpu).is_some_and(|core| core.cpus().iter().all(|cpu| (self.idle)(cpu)))
        };
        in_cache(Scope::Cache)
            .filter(|&cpu| good(cpu))
            .find(whole)
            .or_else(|| in_cache(Scope::Smt).find(|&cpu| good(cpu)))
            .or_else(|| in_cache(Scope::Cache).find(|&cpu| good(cpu)))
    }

    /// The CPUs of the pod of `start`, from the one after it round to itself.
    fn round(&self, scope: Scope, start: usize) -> impl Iterator<Item = usize> + '_ {
        let pod = self.topology.pod_of(scope, start);
        let half = move |upper: bool| {
            pod.into_iter()
                .flat_map(|pod| pod.cpus().iter())
                .filter(move |&cpu| (cpu > start) == upper)
        };
        half(true).chain(half(false))
    }

    /// The previous CPU cannot be used: chooses the nearest CPU to it, or to the waker's if the
    /// topology does not know the previous one.
    fn without_previous(&self) -> Placement {
        let anchors = [self.wake.previous, self.wake.waker];
        let known = |cpu: &usize| self.topology.pod_of(Scope::Cpu, *cpu).is_some();
        let anchor = anchors.into_iter().find(known);
        let anchor = anchor.or_else(|| self.topology.cpus().first());
        for scope in [Scope::Cache, Scope::Numa, Scope::System] {
            let Some(anchor) = anchor else { break };
            // The anchor itself comes first, the others go round from it.
            let near = || std::iter::once(anchor).chain(self.round(scope, anchor));
            let find = |good: &dyn Fn(usize) -> bool| near().find(|&cpu| good(cpu));
            let found = find(&|cpu| self.idle(cpu) && self.fits(cpu))
                .or_else(|| find(&|cpu| self.idle(cpu)))
                .or_else(|| find(&|cpu| self.usable(cpu) && self.fits(cpu)))
                .or_else(|| find(&|cpu| self.usable(cpu)));
            if let Some(cpu) = found {
                return Placement {
                    cpu,
                    reason: PlaceReason::PreviousGone,
                };
            }
        }
        Placement {
            cpu: self.wake.previous,
            reason: PlaceReason::NoCpu,
        }
    }
}

/// The CPU for a woken thread, and the reason.
///
/// ```
/// use inflight_topology::{Topology, wake::{Placement, PlaceReason, Wake, WakeRules, WakeSource}};
///
/// let topo = Topology::synthetic("core:4")?;
/// let place = Wake::new(WakeSource::Thread, 0, 2).place(WakeRules::default(), &topo, |_| false);
/// assert_eq!(place, Placement { cpu: 2, reason: PlaceReason::NothingIdle });
/// # Ok::<(), inflight_topology::SyntheticError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Placement {
    /// The CPU.
    pub cpu: usize,
    /// The reason.
    pub reason: PlaceReason,
}

/// The reason for the CPU of a woken thread.
///
/// ```
/// use inflight_topology::{Topology, wake::{PlaceReason, Wake, WakeRules, WakeSource}};
///
/// let topo = Topology::synthetic("core:4")?;
/// let place = Wake::new(WakeSource::Thread, 0, 9).place(WakeRules::default(), &topo, |_| true);
/// assert_eq!(place.reason, PlaceReason::PreviousGone);
/// # Ok::<(), inflight_topology::SyntheticError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PlaceReason {
    /// The CPU that took the interrupt is idle and near enough, and not the previous one.
    Pulled,
    /// The previous CPU is idle.
    PreviousIdle,
    /// The worker that wakes sleeps next, on the CPU the thread ran on.
    Stacked,
    /// The CPU before the previous one is idle.
    RecentIdle,
    /// It is idle and in the cache of the previous CPU, or of the waker's if that one has less to
    /// do.
    CacheIdle,
    /// As before, but it is slower than asked for; all fast enough are busy.
    TooSlow,
    /// No CPU of the cache is idle: the previous one. A pool may leave the choice to the system.
    NothingIdle,
    /// No CPU of the cache is idle, and the waker's has less to do than the previous one: that one.
    LessLoaded,
    /// The previous CPU may not be used, or is unknown: the nearest that may.
    PreviousGone,
    /// No CPU may be used at all: the system decides.
    NoCpu,
}
