//! How the users of a stack exclude each other.

#[cfg(not(loom))]
use crate::rseq::Rseq;

/// How the users of a stack exclude each other.
///
/// ```
/// use inflight_sync::percpu::Backend;
/// println!("this machine: {:?}", Backend::best());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// Restartable sequences: plain loads and stores, no locked instruction.
    Rseq,
    /// A lock word for each stack; whoever finds it taken is refused.
    TryLock,
    /// One user for each stack, a flag and a full fence: the model of `Rseq`.
    #[cfg(loom)]
    BusyFlag,
}

impl Backend {
    /// The fastest that works here: asks the system once.
    #[must_use]
    pub fn best() -> Self {
        #[cfg(loom)]
        {
            Self::BusyFlag
        }
        #[cfg(not(loom))]
        if Rseq::probe().is_some() {
            Self::Rseq
        } else {
            Self::TryLock
        }
    }
}
