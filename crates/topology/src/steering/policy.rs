//! The policies of steering.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

/// Where completions run, relative to the CPU that submitted the request: the four settings of the
/// block layer's `rq_affinity`, and one stronger.
///
/// [`Into`] makes it a [`SteeringPolicy`], which has the finer settings.
///
/// ```
/// use inflight_topology::steering::Steering;
///
/// assert_eq!(Steering::default(), Steering::SameCache);
/// assert_eq!("same_cpu".parse(), Ok(Steering::SameCpu));
/// assert_eq!(Steering::Force.to_string(), "force");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Steering {
    /// `inline`: where the completion was seen.
    Inline,
    /// `same_cache`: where it was seen, if that CPU and the submitter's share their last-level
    /// cache; else on the submitter's CPU.
    #[default]
    SameCache,
    /// `same_cpu`: on the submitter's CPU, unless its worker sleeps and the cache is shared: then
    /// the wake costs thousands of times as much as the cache lines.
    SameCpu,
    /// `force`: always in the done list of the submitter's CPU, even from that CPU itself, for
    /// callbacks that rely on it. Inline only if there is no open done list.
    Force,
}

impl Steering {
    /// All of them, from the loosest to the strictest.
    ///
    /// ```
    /// use inflight_topology::steering::Steering;
    ///
    /// let names: Vec<&str> = Steering::ALL.iter().map(|steering| steering.name()).collect();
    /// assert_eq!(names, ["inline", "same_cache", "same_cpu", "force"]);
    /// ```
    pub const ALL: [Self; 4] = [Self::Inline, Self::SameCache, Self::SameCpu, Self::Force];

    /// Returns the name, as it is parsed and shown.
    ///
    /// ```
    /// assert_eq!(inflight_topology::steering::Steering::SameCache.name(), "same_cache");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::SameCache => "same_cache",
            Self::SameCpu => "same_cpu",
            Self::Force => "force",
        }
    }
}

impl fmt::Display for Steering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Steering {
    type Err = ParseSteeringError;

    fn from_str(name: &str) -> Result<Self, ParseSteeringError> {
        Self::ALL
            .into_iter()
            .find(|steering| steering.name() == name)
            .ok_or(ParseSteeringError)
    }
}

/// The text is not exactly the name of a [`Steering`].
///
/// ```
/// use inflight_topology::steering::{ParseSteeringError, Steering};
///
/// assert_eq!("near".parse::<Steering>(), Err(ParseSteeringError));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseSteeringError;

impl fmt::Display for ParseSteeringError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown steering; the names are inline, same_cache, same_cpu, force")
    }
}

impl Error for ParseSteeringError {}

/// Whether a CPU that shares the cache is near enough even if it is slower or faster than the
/// submitter's, for machines with unequal cores.
///
/// This is apart from the cache on purpose. If all interrupts are pinned to the fast cores, sending
/// completions back to slow ones has cost a tenth and more of the throughput.
///
/// ```
/// use inflight_topology::{Topology, steering::{SpeedRule, Steering, decide}};
///
/// let topo = Topology::synthetic("core:4 fast:0-1 slow:2-3")?;
/// let equal = Steering::SameCache.with_speed(SpeedRule::Equal);
/// let at_least = Steering::SameCache.with_speed(SpeedRule::AtLeast);
/// // Submitted on a slow core, seen on a fast one of the same cache:
/// assert_eq!(decide(0, 2, Steering::SameCache, &topo, true).redirect(), None);
/// assert_eq!(decide(0, 2, at_least, &topo, true).redirect(), None);
/// assert_eq!(decide(0, 2, equal, &topo, true).redirect(), Some(2));
/// # Ok::<(), inflight_topology::SyntheticError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SpeedRule {
    /// Speed has no effect.
    #[default]
    Ignore,
    /// Both CPUs are of one speed class.
    Equal,
    /// The CPU that saw the completion is at least as fast.
    AtLeast,
}

impl SpeedRule {
    /// All of them.
    ///
    /// ```
    /// assert_eq!(inflight_topology::steering::SpeedRule::ALL.len(), 3);
    /// ```
    pub const ALL: [Self; 3] = [Self::Ignore, Self::Equal, Self::AtLeast];
}

/// A [`Steering`] with its finer settings. It is a few bytes: a request stores a copy when it is
/// submitted, so that a change of the policy affects only later requests.
///
/// ```
/// use inflight_topology::steering::{SpeedRule, Steering, SteeringPolicy};
///
/// let policy: SteeringPolicy = Steering::SameCpu.into();
/// assert!(policy.only_if_awake());
/// assert_eq!(policy.speed(), SpeedRule::Ignore);
/// assert!(!policy.even_if_asleep().only_if_awake());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SteeringPolicy {
    steering: Steering,
    speed: SpeedRule,
    only_if_awake: bool,
}

impl Default for SteeringPolicy {
    fn default() -> Self {
        Self::from(Steering::default())
    }
}

impl From<Steering> for SteeringPolicy {
    fn from(steering: Steering) -> Self {
        Self {
            steering,
            speed: SpeedRule::Ignore,
            only_if_awake: true,
        }
    }
}

impl SteeringPolicy {
    /// Returns the steering itself.
    ///
    /// ```
    /// use inflight_topology::steering::{Steering, SteeringPolicy};
    ///
    /// assert_eq!(SteeringPolicy::default().steering(), Steering::SameCache);
    /// ```
    #[must_use]
    pub const fn steering(self) -> Steering {
        self.steering
    }

    /// Returns the rule about speed for CPUs of one cache; by default [`SpeedRule::Ignore`].
    ///
    /// ```
    /// use inflight_topology::steering::{SpeedRule, SteeringPolicy};
    ///
    /// assert_eq!(SteeringPolicy::default().speed(), SpeedRule::Ignore);
    /// ```
    #[must_use]
    pub const fn speed(self) -> SpeedRule {
        self.speed
    }

    /// Returns whether [`Steering::SameCpu`] leaves a sleeping worker of the same cache asleep; by
    /// default `true`. It has no effect on the other policies.
    ///
    /// ```
    /// assert!(inflight_topology::steering::SteeringPolicy::default().only_if_awake());
    /// ```
    #[must_use]
    pub const fn only_if_awake(self) -> bool {
        self.only_if_awake
    }

    /// Returns this policy with another rule about speed.
    ///
    /// ```
    /// use inflight_topology::steering::{SpeedRule, SteeringPolicy};
    ///
    /// let policy = SteeringPolicy::default().with_speed(SpeedRule::AtLeast);
    /// assert_eq!(policy.speed(), SpeedRule::AtLeast);
    /// ```
    #[must_use]
    pub const fn with_speed(mut self, speed: SpeedRule) -> Self {
        self.speed = speed;
        self
    }

    /// Returns this policy with redirects to sleeping workers, too.
    ///
    /// ```
    /// use inflight_topology::{Topology, steering::{Steering, SteeringPolicy, decide}};
    ///
    /// let topo = Topology::synthetic("core:4")?;
    /// let policy = SteeringPolicy::from(Steering::SameCpu);
    /// assert_eq!(decide(0, 1, policy, &topo, false).redirect(), None);
    /// assert_eq!(decide(0, 1, policy.even_if_asleep(), &topo, false).redirect(), Some(1));
    /// # Ok::<(), inflight_topology::SyntheticError>(())
    /// ```
    #[must_use]
    pub const fn even_if_asleep(mut self) -> Self {
        self.only_if_awake = false;
        self
    }
}

impl Steering {
    /// Returns this steering with a rule about speed.
    ///
    /// ```
    /// use inflight_topology::steering::{SpeedRule, Steering};
    ///
    /// let policy = Steering::SameCache.with_speed(SpeedRule::Equal);
    /// assert_eq!(policy.steering(), Steering::SameCache);
    /// ```
    #[must_use]
    pub fn with_speed(self, speed: SpeedRule) -> SteeringPolicy {
        SteeringPolicy::from(self).with_speed(speed)
    }
}
