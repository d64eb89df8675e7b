//! The decision for one completion, and its reason.

use super::{SpeedRule, Steering, SteeringPolicy};
use crate::Topology;

/// Decides where the completion of a request runs that was submitted on CPU `submitter` and seen
/// on CPU `observer`.
///
/// `target_awake` is whether the worker that empties the done list of the submitter's CPU runs.
/// Both numbers are hints: any number gets an answer, and [`Topology`] has the other facts. For the
/// circumstances that this form leaves out, build a [`Completion`].
///
/// ```
/// use inflight_topology::steering::{Decision, InlineReason, RedirectReason, Steering, decide};
/// use inflight_topology::Topology;
///
/// let topo = Topology::synthetic("cache:2 core:4")?;
/// let here = decide(0, 3, Steering::SameCache, &topo, true);
/// assert_eq!(here, Decision::Inline(InlineReason::SameCache));
/// let there = decide(0, 4, Steering::SameCache, &topo, true);
/// assert_eq!(there, Decision::Redirect { cpu: 4, reason: RedirectReason::OtherCache });
/// // A stale or missing hint: run it here.
/// let unknown = decide(0, usize::MAX, Steering::Force, &topo, true);
/// assert_eq!(unknown, Decision::Inline(InlineReason::UnknownCpu));
/// # Ok::<(), inflight_topology::SyntheticError>(())
/// ```
#[inline]
#[must_use]
pub fn decide(
    observer: usize,
    submitter: usize,
    policy: impl Into<SteeringPolicy>,
    topology: &Topology,
    target_awake: bool,
) -> Decision {
    let list = if target_awake {
        DoneList::Awake
    } else {
        DoneList::Asleep
    };
    Completion::new(observer, submitter)
        .policy(policy)
        .done_list(list)
        .decide(topology)
}

/// The state of the done list of the submitter's CPU.
///
/// ```
/// use inflight_topology::{Topology, steering::{Completion, DoneList, Steering}};
///
/// let topo = Topology::synthetic("core:2")?;
/// let done = Completion::new(0, 1).policy(Steering::Force);
/// assert_eq!(done.done_list(DoneList::Asleep).decide(&topo).redirect(), Some(1));
/// assert_eq!(done.done_list(DoneList::Closed).decide(&topo).redirect(), None);
/// # Ok::<(), inflight_topology::SyntheticError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DoneList {
    /// Its worker runs and will read it without a wake.
    #[default]
    Awake,
    /// Its worker sleeps; a push would have to wake it.
    Asleep,
    /// It has no worker any more, or there never was one.
    Closed,
}

/// One completion and its circumstances: the input of [`decide`](Completion::decide).
///
/// ```
/// use inflight_topology::{Topology, steering::{Completion, Decision, InlineReason, Steering}};
///
/// let topo = Topology::synthetic("cache:2 core:4")?;
/// let polled = Completion::new(0, 7).policy(Steering::SameCpu).polled(true);
/// assert_eq!(polled.decide(&topo), Decision::Inline(InlineReason::Polled));
/// # Ok::<(), inflight_topology::SyntheticError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Completion {
    observer: usize,
    submitter: usize,
    policy: SteeringPolicy,
    list: DoneList,
    one_shard: bool,
    polled: bool,
    depth: u32,
}

impl Completion {
    /// The number of nested completions from which the next one waits in a done list. Each is a
    /// frame, or several, of the caller's callbacks on one stack.
    ///
    /// ```
    /// assert_eq!(inflight_topology::steering::Completion::MAX_DEPTH, 8);
    /// ```
    pub const MAX_DEPTH: u32 = 8;

    /// Makes a completion seen on CPU `observer` of a request submitted on CPU `submitter`, of a
    /// queue with the default policy, several shards and an open done list whose worker runs.
    ///
    /// ```
    /// use inflight_topology::{Topology, steering::Completion};
    ///
    /// let topo = Topology::synthetic("core:2")?;
    /// assert!(Completion::new(1, 1).decide(&topo).is_inline());
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn new(observer: usize, submitter: usize) -> Self {
        Self {
            observer,
            submitter,
            policy: SteeringPolicy::default(),
            list: DoneList::Awake,
            one_shard: false,
            polled: false,
            depth: 0,
        }
    }

    /// Sets the policy that the request had when it was submitted.
    ///
    /// ```
    /// use inflight_topology::{Topology, steering::{Completion, Steering}};
    ///
    /// let topo = Topology::synthetic("cache:2 core:1")?;
    /// assert!(Completion::new(0, 1).policy(Steering::Inline).decide(&topo).is_inline());
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn policy(mut self, policy: impl Into<SteeringPolicy>) -> Self {
        self.policy = policy.into();
        self
    }

    /// Sets the state of the done list of the submitter's CPU.
    ///
    /// ```
    /// use inflight_topology::{Topology, steering::{Completion, DoneList}};
    ///
    /// let topo = Topology::synthetic("cache:2 core:1")?;
    /// assert!(Completion::new(0, 1).done_list(DoneList::Closed).decide(&topo).is_inline());
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub const fn done_list(mut self, list: DoneList) -> Self {
        self.list = list;
        self
    }

    /// Sets whether one shard alone uses the queue, so that there is no other to steer to.
    ///
    /// ```
    /// use inflight_topology::{Topology, steering::Completion};
    ///
    /// let topo = Topology::synthetic("cache:2 core:1")?;
    /// assert!(Completion::new(0, 1).one_shard(true).decide(&topo).is_inline());
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub const fn one_shard(mut self, one_shard: bool) -> Self {
        self.one_shard = one_shard;
        self
    }

    /// Sets whether the submitter polls for this request, and so has found it itself.
    ///
    /// ```
    /// use inflight_topology::{Topology, steering::Completion};
    ///
    /// let topo = Topology::synthetic("cache:2 core:1")?;
    /// assert!(Completion::new(0, 1).polled(true).decide(&topo).is_inline());
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub const fn polled(mut self, polled: bool) -> Self {
        self.polled = polled;
        self
    }

    /// Sets how many completions run on this stack already, inside whose callbacks this one was
    /// seen.
    ///
    /// From [`MAX_DEPTH`](Self::MAX_DEPTH) on, a completion that would run inline waits in the done
    /// list of the CPU that saw it instead, or of the submitter's if that CPU is unknown. Whether
    /// the former is open is known here only if both are the same; otherwise the pusher finds out,
    /// and runs the completion inline.
    ///
    /// ```
    /// use inflight_topology::{Topology, steering::Completion};
    ///
    /// let topo = Topology::synthetic("core:2")?;
    /// let own_done_list = Completion::new(1, 1).depth(Completion::MAX_DEPTH).decide(&topo);
    /// assert_eq!(own_done_list.redirect(), Some(1));
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub const fn depth(mut self, depth: u32) -> Self {
        self.depth = depth;
        self
    }

    /// Returns the decision.
    ///
    /// ```
    /// use inflight_topology::{Topology, steering::{Completion, Decision, InlineReason}};
    ///
    /// let topo = Topology::synthetic("cache:2 core:4")?;
    /// let decision = Completion::new(2, 1).decide(&topo);
    /// assert_eq!(decision, Decision::Inline(InlineReason::SameCache));
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn decide(&self, topology: &Topology) -> Decision {
        let decision = self.steer(topology);
        if decision.is_inline() && self.depth >= Self::MAX_DEPTH {
            // The submitter's done list is the next best if the topology does not know the
            // observer.
            let open = |&cpu: &usize| {
                let closed = cpu == self.submitter && self.list == DoneList::Closed;
                topology.knows(cpu) && !closed
            };
            if let Some(cpu) = [self.observer, self.submitter].into_iter().find(open) {
                let reason = RedirectReason::Depth;
                return Decision::Redirect { cpu, reason };
            }
        }
        decision
    }

    fn steer(&self, topology: &Topology) -> Decision {
        let (observer, submitter) = (self.observer, self.submitter);
        let forced = self.policy.steering() == Steering::Force;
        let inline = match () {
            () if self.one_shard && !forced => Some(InlineReason::OneShard),
            () if self.polled && !forced => Some(InlineReason::Polled),
            () if self.list == DoneList::Closed => Some(InlineReason::Closed),
            () if !topology.knows(submitter) => Some(InlineReason::UnknownCpu),
            () => None,
        };
        if let Some(reason) = inline {
            return Decision::Inline(reason);
        }
        let redirect = |reason| Decision::Redirect {
            cpu: submitter,
            reason,
        };
        let asleep = self.policy.only_if_awake() && self.list == DoneList::Asleep;
        match self.policy.steering() {
            Steering::Force => redirect(RedirectReason::Forced),
            Steering::Inline => Decision::Inline(InlineReason::Policy),
            _ if observer == submitter => Decision::Inline(InlineReason::SameCpu),
            Steering::SameCpu if asleep && topology.shares_cache(observer, submitter) => {
                Decision::Inline(InlineReason::Asleep)
            }
            steering => match (self.distance(topology), steering) {
                (Some(reason), _) => redirect(reason),
                (None, Steering::SameCache) if !topology.knows(observer) => {
                    Decision::Inline(InlineReason::UnknownCpu)
                }
                (None, Steering::SameCache) => Decision::Inline(InlineReason::SameCache),
                (None, _) => redirect(RedirectReason::OtherCpu),
            },
        }
    }

    /// Why the observer is not near enough; `None` if it is.
    fn distance(&self, topology: &Topology) -> Option<RedirectReason> {
        if !topology.shares_cache(self.observer, self.submitter) {
            return Some(RedirectReason::OtherCache);
        }
        let (here, there) = (
            topology.speed_of(self.observer),
            topology.speed_of(self.submitter),
        );
        let (Some(here), Some(there)) = (here, there) else {
            return None;
        };
        let near = match self.policy.speed() {
            SpeedRule::Ignore => true,
            SpeedRule::Equal => here == there,
            SpeedRule::AtLeast => here >= there,
        };
        (!near).then_some(RedirectReason::OtherSpeed)
    }
}

/// The CPU on which a completion runs, and the reason, for the counters of a queue.
///
/// ```
/// use inflight_topology::{Topology, steering::{Decision, Steering, decide}};
///
/// let topo = Topology::synthetic("cache:2 core:4")?;
/// match decide(0, 5, Steering::SameCache, &topo, true) {
///     Decision::Inline(reason) => println!("here: {reason:?}"),
///     Decision::Redirect { cpu, reason } => println!("into the done list of {cpu}: {reason:?}"),
/// }
/// # Ok::<(), inflight_topology::SyntheticError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Here and now, on the CPU that saw it.
    Inline(InlineReason),
    /// Into the done list of a CPU. If the list is closed: inline.
    Redirect {
        /// The CPU whose done list it is.
        cpu: usize,
        /// The reason.
        reason: RedirectReason,
    },
}

impl Decision {
    /// Returns whether the completion runs where it was seen.
    ///
    /// ```
    /// use inflight_topology::{Topology, steering::{Steering, decide}};
    ///
    /// let topo = Topology::synthetic("core:4")?;
    /// assert!(decide(0, 1, Steering::Inline, &topo, true).is_inline());
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub const fn is_inline(self) -> bool {
        matches!(self, Self::Inline(_))
    }

    /// Returns the CPU whose done list gets the completion, if it does not run inline.
    ///
    /// ```
    /// use inflight_topology::{Topology, steering::{Steering, decide}};
    ///
    /// let topo = Topology::synthetic("core:4")?;
    /// assert_eq!(decide(0, 1, Steering::Force, &topo, false).redirect(), Some(1));
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub const fn redirect(self) -> Option<usize> {
        match self {
            Self::Inline(_) => None,
            Self::Redirect { cpu, .. } => Some(cpu),
        }
    }

    /// Returns this decision for the shards of another snapshot, perhaps a newer one with fewer
    /// CPUs: a redirect to a CPU that `now` does not have becomes inline.
    ///
    /// ```
    /// use inflight_topology::{Topology, steering::{Decision, InlineReason, Steering, decide}};
    ///
    /// let before = Topology::synthetic("cache:2 core:4")?;
    /// let after = Topology::synthetic("core:4")?;
    /// let decision = decide(0, 7, Steering::SameCache, &before, true);
    /// assert_eq!(decision.on(&before), decision);
    /// assert_eq!(decision.on(&after), Decision::Inline(InlineReason::UnknownCpu));
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub fn on(self, now: &Topology) -> Self {
        match self {
            Self::Redirect { cpu, .. } if !now.knows(cpu) => Self::Inline(InlineReason::UnknownCpu),
            decision => decision,
        }
    }
}

/// The reason for running a completion where it was seen.
///
/// ```
/// use inflight_topology::{Topology, steering::{Decision, InlineReason, Steering, decide}};
///
/// let topo = Topology::synthetic("core:4")?;
/// let asleep = decide(0, 1, Steering::SameCpu, &topo, false);
/// assert_eq!(asleep, Decision::Inline(InlineReason::Asleep));
/// # Ok::<(), inflight_topology::SyntheticError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InlineReason {
    /// One shard alone uses the queue.
    OneShard,
    /// The submitter found it itself, by polling.
    Polled,
    /// The done list of the submitter's CPU is closed: its worker has ended, or there never was
    /// one, as without a sink.
    Closed,
    /// The topology does not know one of the two CPUs: offline, removed, or never recorded.
    UnknownCpu,
    /// The policy is inline.
    Policy,
    /// It was seen on the submitter's CPU.
    SameCpu,
    /// It was seen on a CPU of the same cache.
    SameCache,
    /// The worker of the submitter's CPU sleeps, and the completion was seen on a CPU of the same
    /// cache, or on an unknown one.
    Asleep,
}

/// The reason for putting a completion into a done list.
///
/// ```
/// use inflight_topology::{Topology, steering::{Decision, RedirectReason, Steering, decide}};
///
/// let topo = Topology::synthetic("core:4")?;
/// let forced = decide(1, 1, Steering::Force, &topo, true);
/// assert_eq!(forced, Decision::Redirect { cpu: 1, reason: RedirectReason::Forced });
/// # Ok::<(), inflight_topology::SyntheticError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RedirectReason {
    /// The submitter's CPU has another last-level cache.
    OtherCache,
    /// The cache is the same, but the [`SpeedRule`] is not met.
    OtherSpeed,
    /// The policy requires the submitter's CPU.
    OtherCpu,
    /// The policy forces it.
    Forced,
    /// Too many completions run inside each other; this one waits in the done list of the CPU that
    /// saw it, or of the submitter's if that CPU is unknown.
    Depth,
}
