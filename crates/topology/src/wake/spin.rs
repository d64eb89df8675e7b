//! Spin, or sleep at once?

use std::time::Duration;

/// What a worker publishes about itself: whether it runs, and on which CPU it was last. One word,
/// so that both are of one moment; stale as soon as it is read.
///
/// ```
/// use inflight_topology::wake::Peer;
///
/// let peer = Peer::Running { cpu: 5 };
/// assert_eq!(Peer::from_bits(peer.to_bits()), peer);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// It runs.
    Running {
        /// The CPU it said it runs on; [`u32::MAX`] is none.
        cpu: u32,
    },
    /// It sleeps.
    Parked {
        /// The CPU it said it ran on last.
        cpu: u32,
    },
}

impl Peer {
    /// As one word.
    ///
    /// ```
    /// use inflight_topology::wake::Peer;
    ///
    /// assert_ne!(Peer::Running { cpu: 0 }.to_bits(), Peer::Parked { cpu: 0 }.to_bits());
    /// ```
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        match self {
            Self::Parked { cpu } => cpu as u64,
            Self::Running { cpu } => 1 << 32 | cpu as u64,
        }
    }

    /// From one word; every word is a peer.
    ///
    /// ```
    /// use inflight_topology::wake::Peer;
    ///
    /// assert_eq!(Peer::from_bits(0), Peer::Parked { cpu: 0 });
    /// ```
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        let cpu = bits as u32;
        if bits >> 32 == 0 {
            Self::Parked { cpu }
        } else {
            Self::Running { cpu }
        }
    }
}

/// Decides whether a waiter spins before it sleeps.
///
/// Spinning helps only if the peer runs at the same time, on another CPU; on the waiter's own CPU
/// each spin keeps the peer from running, and a round trip costs exactly the wasted budgets.
///
/// ```
/// use std::time::Duration;
/// use inflight_topology::wake::{ParkReason, Peer, Spin, SpinGate};
///
/// let gate = SpinGate::new(8);
/// let peer = Peer::Running { cpu: 1 };
/// assert_eq!(gate.decide(0, peer, 0, Duration::ZERO), Spin::For(SpinGate::BUDGET));
/// let alone = SpinGate::new(1);
/// assert_eq!(alone.decide(0, peer, 0, Duration::ZERO), Spin::Park(ParkReason::OneCpu));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpinGate {
    allowed_cpus: usize,
    budget: Duration,
}

impl SpinGate {
    /// The budget of a gate that was given none: 5 µs.
    ///
    /// ```
    /// assert_eq!(inflight_topology::wake::SpinGate::BUDGET.as_micros(), 5);
    /// ```
    pub const BUDGET: Duration = Duration::from_micros(5);

    /// A gate for threads that may run on `allowed_cpus` CPUs.
    ///
    /// ```
    /// use inflight_topology::{Topology, wake::SpinGate};
    ///
    /// let topo = Topology::discover()?;
    /// let gate = SpinGate::new(topo.cpus().len());
    /// # let _ = gate;
    /// # Ok::<(), inflight_topology::DiscoverError>(())
    /// ```
    #[must_use]
    pub const fn new(allowed_cpus: usize) -> Self {
        Self {
            allowed_cpus,
            budget: Self::BUDGET,
        }
    }

    /// Another budget, at most `sleep_cost`: what it costs to sleep and be woken, as measured. To
    /// spin for longer than that can only lose.
    ///
    /// ```
    /// use std::time::Duration;
    /// use inflight_topology::wake::{Peer, Spin, SpinGate};
    ///
    /// let us = Duration::from_micros;
    /// let gate = SpinGate::new(8).budget(us(50), us(20));
    /// let peer = Peer::Running { cpu: 1 };
    /// assert_eq!(gate.decide(0, peer, 0, us(0)), Spin::For(us(20)));
    /// ```
    #[must_use]
    pub fn budget(mut self, budget: Duration, sleep_cost: Duration) -> Self {
        self.budget = budget.min(sleep_cost);
        self
    }

    /// Decides for a waiter on CPU `own_cpu` that waits for `peer` while `spinners` others spin,
    /// and that has spun for `spent` in this wait already.
    ///
    /// A peer that was taken off its CPU still says "running": the budget is spent once, and then
    /// the waiter sleeps.
    ///
    /// ```
    /// use inflight_topology::wake::{ParkReason, Peer, Spin, SpinGate};
    ///
    /// let (gate, peer) = (SpinGate::new(4), Peer::Running { cpu: 1 });
    /// let spent = gate.decide(0, peer, 0, SpinGate::BUDGET);
    /// assert_eq!(spent, Spin::Park(ParkReason::BudgetSpent));
    /// ```
    #[must_use]
    pub fn decide(&self, own_cpu: usize, peer: Peer, spinners: usize, spent: Duration) -> Spin {
        let park = match peer {
            _ if self.allowed_cpus <= 1 => Some(ParkReason::OneCpu),
            Peer::Parked { .. } => Some(ParkReason::PeerParked),
            Peer::Running { cpu } if !apart(own_cpu, cpu) => Some(ParkReason::SameCpu),
            // One CPU is left for those who work.
            _ if spinners >= self.allowed_cpus - 1 => Some(ParkReason::TooManySpinners),
            _ if spent >= self.budget => Some(ParkReason::BudgetSpent),
            Peer::Running { .. } => None,
        };
        match park {
            Some(reason) => Spin::Park(reason),
            None => Spin::For(self.budget - spent),
        }
    }
}

/// Whether the two are known to be different CPUs.
fn apart(own: usize, peer: u32) -> bool {
    let known = own < u32::MAX as usize && peer < u32::MAX;
    known && own != peer as usize
}

/// What a waiter does next.
///
/// ```
/// use std::time::Duration;
/// use inflight_topology::wake::{Peer, Spin, SpinGate};
///
/// let peer = Peer::Parked { cpu: 1 };
/// match SpinGate::new(2).decide(0, peer, 0, Duration::ZERO) {
///     Spin::For(longest) => println!("look again and again, for {longest:?}"),
///     Spin::Park(reason) => println!("sleep: {reason:?}"),
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spin {
    /// Spin, for this long at most; then ask again.
    For(Duration),
    /// Sleep.
    Park(ParkReason),
}

/// Why a waiter sleeps instead of spinning.
///
/// ```
/// use std::time::Duration;
/// use inflight_topology::wake::{ParkReason, Peer, Spin, SpinGate};
///
/// let same = SpinGate::new(2).decide(1, Peer::Running { cpu: 1 }, 0, Duration::ZERO);
/// assert_eq!(same, Spin::Park(ParkReason::SameCpu));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParkReason {
    /// There is one CPU: the peer cannot run while the waiter does.
    OneCpu,
    /// The peer sleeps.
    PeerParked,
    /// The peer was last on the waiter's CPU, or one of them gave a number that names no CPU.
    SameCpu,
    /// All CPUs but one are taken by spinners.
    TooManySpinners,
    /// It has spun enough in this wait.
    BudgetSpent,
}
