//! The record of a request's submission: the CPU, and the policy of that moment.

use crate::item::TenantId;
use inflight_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use inflight_sync::{Grown, cpu};
use inflight_topology::steering::{SpeedRule, Steering, SteeringPolicy};

/// ```text
///  31  30       29       28   27..26  25..24  23        0
/// +---+--------+--------+----+-------+-------+-----------+
/// | 0 | polled | always | on | speed | which | CPU       |
/// +---+--------+--------+----+-------+-------+-----------+
/// ```
const CPU_BITS: u32 = 24;
/// As the number of a CPU: not known.
const UNKNOWN: u32 = (1 << CPU_BITS) - 1;
const SPEED: u32 = CPU_BITS + 2;
const ON: u32 = 1 << (SPEED + 2);
/// Redirect also if that wakes a worker.
const ALWAYS: u32 = ON << 1;
/// The submitter polls for the completion.
const POLLED: u32 = ALWAYS << 1;

fn pack(policy: SteeringPolicy) -> u32 {
    // Both stand in `ALL` in the order of their numbers, of two bits.
    const { assert!(Steering::ALL.len() <= 4 && SpeedRule::ALL.len() <= 4) };
    let (which, speed) = (policy.steering() as u32, policy.speed() as u32);
    let always = if policy.only_if_awake() { 0 } else { ALWAYS };
    which << CPU_BITS | speed << SPEED | always
}

fn unpack(bits: u32) -> SteeringPolicy {
    let which = Steering::ALL[(bits >> CPU_BITS & 3) as usize];
    let speed = SpeedRule::ALL[((bits >> SPEED & 3) as usize).min(SpeedRule::ALL.len() - 1)];
    let policy = which.with_speed(speed);
    if bits & ALWAYS == 0 {
        policy
    } else {
        policy.even_if_asleep()
    }
}

/// In a word of [`Policies`] only: some tenant has a policy of its own.
const SOME_OWN: u32 = POLLED << 1;

/// The policies of submissions: the set's, and those of tenants that have their own. Off at first,
/// so that sets without steering do not read the CPU.
///
/// ```
/// use inflight_steering::{Policies, Steering, TenantId};
/// let policies = Policies::new();
/// policies.set_own(TenantId::FIRST, Some(Steering::Force.into()));
/// assert_eq!(policies.get().steering(), Steering::SameCache);
/// assert!(policies.own(TenantId::FIRST).is_some() && policies.is_on());
/// ```
#[derive(Debug)]
pub struct Policies {
    set: AtomicU32,
    /// By tenant. Zero means the set's policy.
    own: Grown<AtomicU32>,
}

impl Default for Policies {
    fn default() -> Self {
        Self::new()
    }
}

impl Policies {
    /// Makes policies with the default for all, off.
    #[must_use]
    pub fn new() -> Self {
        Self {
            set: AtomicU32::new(pack(SteeringPolicy::default())),
            own: Grown::new(),
        }
    }

    // Relaxed throughout: a request notes the policy it finds, whose change orders nothing else.

    /// Sets the policy of all tenants without their own, from now on.
    pub fn set(&self, policy: SteeringPolicy) {
        let keeping = |word| Some(word & SOME_OWN | pack(policy) | ON);
        // Why ignored: it always has something to store.
        let _ = self
            .set
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, keeping);
    }

    /// Returns the policy of all tenants without their own.
    #[must_use]
    pub fn get(&self) -> SteeringPolicy {
        unpack(self.set.load(Ordering::Relaxed))
    }

    /// Records submissions from now on. It cannot be turned off again.
    pub fn turn_on(&self) {
        self.set.fetch_or(ON, Ordering::Relaxed);
    }

    /// Returns whether submissions are recorded.
    #[must_use]
    #[inline]
    pub fn is_on(&self) -> bool {
        self.set.load(Ordering::Relaxed) & ON != 0
    }

    /// Sets the policy of one tenant; `None`: the set's.
    pub fn set_own(&self, tenant: TenantId, policy: Option<SteeringPolicy>) {
        let word = policy.map_or(0, |policy| pack(policy) | ON);
        if word != 0 {
            let own = self
                .own
                .get_or_make(tenant.get() as usize, || AtomicU32::new(0));
            own.store(word, Ordering::Relaxed);
            self.set.fetch_or(ON | SOME_OWN, Ordering::Relaxed);
        } else if let Some(own) = self.own.get(tenant.get() as usize) {
            own.store(0, Ordering::Relaxed);
        }
    }

    /// Returns the policy of one tenant, if it has its own.
    #[must_use]
    pub fn own(&self, tenant: TenantId) -> Option<SteeringPolicy> {
        self.own_word(tenant).map(unpack)
    }

    fn own_word(&self, tenant: TenantId) -> Option<u32> {
        let word = self.own.get(tenant.get() as usize)?.load(Ordering::Relaxed);
        (word != 0).then_some(word)
    }

    /// Returns the word that a request of a tenant records now, if any.
    #[inline]
    fn word(&self, tenant: TenantId) -> Option<u32> {
        let set = self.set.load(Ordering::Relaxed);
        if set & (ON | SOME_OWN) == ON {
            return Some(set);
        }
        (set & ON != 0).then(|| self.own_word(tenant).unwrap_or(set & !SOME_OWN))
    }
}

/// The record in a request: its tenant from its beginning on, and the submission.
///
/// Its owner writes it before the request is in flight, which publishes it, and reads it after the
/// completing thread has acquired the request: so all accesses are Relaxed.
///
/// ```
/// use inflight_steering::{Policies, SubmitInfo, TenantId};
/// let (policies, info) = (Policies::new(), SubmitInfo::new());
/// info.begin(TenantId::new(7));
/// info.write(&policies, || false);
/// assert!(info.read().is_none(), "nobody cares yet");
/// policies.turn_on();
/// info.write(&policies, || false);
/// assert!(info.read().is_some_and(|submission| !submission.polled));
/// assert_eq!(info.tenant(), TenantId::new(7));
/// ```
#[derive(Debug, Default)]
pub struct SubmitInfo(AtomicU64);

impl SubmitInfo {
    /// Makes the record of a request without a tenant.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records the tenant when a request begins.
    #[inline]
    pub fn begin(&self, tenant: TenantId) {
        self.0
            .store(u64::from(tenant.get()) << 32, Ordering::Relaxed);
    }

    /// Returns the tenant of the request; while it is free, the last one.
    #[must_use]
    pub fn tenant(&self) -> TenantId {
        TenantId::new((self.0.load(Ordering::Relaxed) >> 32) as u32)
    }

    /// Records that the request is submitted here and now.
    #[inline]
    pub fn write(&self, policies: &Policies, polled: impl FnOnce() -> bool) {
        let tenant = self.tenant();
        if let Some(word) = policies.word(tenant) {
            let polled = if polled() { POLLED } else { 0 };
            let bits = word | polled | number(cpu::current());
            let bits = u64::from(tenant.get()) << 32 | u64::from(bits);
            self.0.store(bits, Ordering::Relaxed);
        }
    }

    /// Returns the submission; `None` if the policies were off then, or before a submission.
    #[must_use]
    pub fn read(&self) -> Option<Submission> {
        let bits = self.0.load(Ordering::Relaxed) as u32;
        let cpu = bits & UNKNOWN;
        (bits & ON != 0).then(|| Submission {
            policy: unpack(bits),
            cpu: (cpu != UNKNOWN).then_some(cpu as usize),
            polled: bits & POLLED != 0,
        })
    }
}

/// The submission of a request.
///
/// ```
/// use inflight_steering::{Steering, Submission};
/// let submission = Submission::on(3).policy(Steering::Force);
/// assert_eq!((submission.cpu, submission.policy.steering()), (Some(3), Steering::Force));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Submission {
    /// The policy by which it is steered.
    pub policy: SteeringPolicy,
    /// The CPU of the submission. `None` if it was not known.
    pub cpu: Option<usize>,
    /// The submitter polls for the completion.
    pub polled: bool,
}

impl Submission {
    /// Makes a submission on a CPU, with the default policy.
    #[must_use]
    pub fn on(cpu: usize) -> Self {
        Self {
            policy: SteeringPolicy::default(),
            cpu: Some(cpu),
            polled: false,
        }
    }

    /// Sets the policy.
    #[must_use]
    pub fn policy(mut self, policy: impl Into<SteeringPolicy>) -> Self {
        self.policy = policy.into();
        self
    }
}

fn number(cpu: usize) -> u32 {
    u32::try_from(cpu).map_or(UNKNOWN, |cpu| cpu.min(UNKNOWN))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn every_policy_and_cpu_survives_the_note() {
        let (policies, note) = (Policies::new(), SubmitInfo::new());
        note.begin(TenantId::new(77));
        for steering in Steering::ALL {
            for speed in SpeedRule::ALL {
                let policy = steering.with_speed(speed);
                for policy in [policy, policy.even_if_asleep()] {
                    policies.set(policy);
                    assert_eq!(policies.get(), policy);
                    for asked in [0, 1, 8191, 65_535, 1 << 20, usize::MAX] {
                        cpu::set_current_for_thread(Some(asked));
                        let cpu = (asked < UNKNOWN as usize).then_some(asked);
                        for polled in [true, false] {
                            note.write(&policies, || polled);
                            let noted = Submission {
                                policy,
                                cpu,
                                polled,
                            };
                            assert_eq!(note.read(), Some(noted));
                            assert_eq!(note.tenant(), TenantId::new(77));
                        }
                    }
                }
            }
        }
        cpu::set_current_for_thread(None);
    }

    #[test]
    fn nothing_is_noted_until_somebody_cares() {
        let (policies, note) = (Policies::new(), SubmitInfo::new());
        note.write(&policies, || false);
        assert_eq!(note.read(), None);
        assert_eq!(policies.get(), SteeringPolicy::default());
        policies.turn_on();
        note.write(&policies, || false);
        assert_eq!(note.read().unwrap().policy, SteeringPolicy::default());
    }

    #[test]
    fn a_tenant_of_its_own_mind_notes_its_own_policy() {
        let policies = Policies::new();
        let notes = [TenantId::new(0), TenantId::new(5)].map(|tenant| {
            let note = SubmitInfo::new();
            note.begin(tenant);
            note
        });
        let noted = || {
            notes.each_ref().map(|note| {
                note.write(&policies, || false);
                note.read().unwrap().policy.steering()
            })
        };
        policies.set_own(TenantId::new(5), Some(Steering::Force.into()));
        assert_eq!(noted(), [Steering::SameCache, Steering::Force]);
        policies.set(Steering::Inline.into());
        assert_eq!(noted(), [Steering::Inline, Steering::Force]);
        policies.set_own(TenantId::new(5), None);
        assert_eq!(noted(), [Steering::Inline; 2]);
        assert_eq!(
            (
                policies.own(TenantId::new(5)),
                policies.own(TenantId::new(9))
            ),
            (None, None)
        );
        notes[1].begin(TenantId::new(6));
        assert_eq!(notes[1].read(), None, "not submitted yet");
    }
}
