//! The sizes of groups of CPUs.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

/// The size of groups of CPUs, the [pods](crate::Pod): the affinity scopes of concurrency-managed
/// workqueues, from the narrowest to the widest.
///
/// The names are exact: `cache` is never read as the beginning of `cache_shard`, and case matters.
///
/// ```
/// use inflight_topology::Scope;
///
/// assert_eq!("cache_shard".parse(), Ok(Scope::CacheShard));
/// assert!("Cache".parse::<Scope>().is_err());
/// assert_eq!(Scope::Numa.to_string(), "numa");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// `cpu`: each CPU alone.
    Cpu,
    /// `smt`: the hardware threads of one core.
    Smt,
    /// `cache_shard`: about eight cores of one last-level cache, so that a very large cache does
    /// not mean one lock with many users. Threads of one core are never split.
    CacheShard,
    /// `cache`: CPUs that share their last-level cache.
    Cache,
    /// `numa`: CPUs of one memory node.
    Numa,
    /// `system`: all CPUs in one pod that belongs to no node.
    System,
}

impl Scope {
    /// All scopes, from the narrowest to the widest.
    ///
    /// ```
    /// use inflight_topology::Scope;
    ///
    /// let names: Vec<&str> = Scope::ALL.iter().map(|scope| scope.name()).collect();
    /// assert_eq!(names, ["cpu", "smt", "cache_shard", "cache", "numa", "system"]);
    /// ```
    pub const ALL: [Self; 6] = [
        Self::Cpu,
        Self::Smt,
        Self::CacheShard,
        Self::Cache,
        Self::Numa,
        Self::System,
    ];

    /// Returns the name, as it is parsed and shown.
    ///
    /// ```
    /// use inflight_topology::Scope;
    ///
    /// assert_eq!(Scope::CacheShard.name(), "cache_shard");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Smt => "smt",
            Self::CacheShard => "cache_shard",
            Self::Cache => "cache",
            Self::Numa => "numa",
            Self::System => "system",
        }
    }

    /// Position in [`Scope::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Scope {
    type Err = ParseScopeError;

    fn from_str(name: &str) -> Result<Self, ParseScopeError> {
        Self::ALL
            .into_iter()
            .find(|scope| scope.name() == name)
            .ok_or(ParseScopeError)
    }
}

/// The text is not exactly the name of a [`Scope`].
///
/// ```
/// use inflight_topology::{ParseScopeError, Scope};
///
/// assert_eq!("llc".parse::<Scope>(), Err(ParseScopeError));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseScopeError;

impl fmt::Display for ParseScopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown scope; the names are cpu, smt, cache_shard, cache, numa, system")
    }
}

impl Error for ParseScopeError {}
