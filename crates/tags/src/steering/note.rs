//! What a request takes with it when it is submitted: the CPU, and the policy of that moment.

use super::{SpeedRule, Steering, SteeringPolicy};
use inflight_sync::atomic::{AtomicU32, Ordering};
use inflight_sync::cpu;

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
/// The submitter looks for the completion itself.
const POLLED: u32 = ALWAYS << 1;

fn pack(policy: SteeringPolicy) -> u32 {
    let which = match policy.steering() {
        Steering::Inline => 0,
        Steering::SameCache => 1,
        Steering::SameCpu => 2,
        Steering::Force => 3,
    };
    let speed = match policy.speed() {
        SpeedRule::Ignore => 0,
        SpeedRule::Equal => 1,
        SpeedRule::AtLeast => 2,
    };
    let always = if policy.only_if_awake() { 0 } else { ALWAYS };
    which << CPU_BITS | speed << SPEED | always
}

fn unpack(bits: u32) -> SteeringPolicy {
    let which = match bits >> CPU_BITS & 3 {
        0 => Steering::Inline,
        1 => Steering::SameCache,
        2 => Steering::SameCpu,
        _ => Steering::Force,
    };
    let speed = match bits >> SPEED & 3 {
        0 => SpeedRule::Ignore,
        1 => SpeedRule::Equal,
        _ => SpeedRule::AtLeast,
    };
    let policy = which.with_speed(speed);
    if bits & ALWAYS == 0 {
        policy
    } else {
        policy.even_if_asleep()
    }
}

/// The policy requests are submitted under, and whether they need a note at all. Off until it
/// matters, so that sets without steering do not ask for the CPU.
#[derive(Debug)]
pub(crate) struct Advice(AtomicU32);

impl Advice {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(pack(SteeringPolicy::default())))
    }

    // Relaxed throughout: a request notes the policy it finds, whose change orders nothing else.

    pub(crate) fn set(&self, policy: SteeringPolicy) {
        self.0.store(pack(policy) | ON, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> SteeringPolicy {
        unpack(self.0.load(Ordering::Relaxed))
    }

    /// From now on requests are noted. Nobody turns it off again.
    pub(crate) fn turn_on(&self) {
        self.0.fetch_or(ON, Ordering::Relaxed);
    }

    /// Whether requests are noted.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.current().is_some()
    }

    #[inline]
    fn current(&self) -> Option<u32> {
        let advice = self.0.load(Ordering::Relaxed);
        (advice & ON != 0).then_some(advice)
    }
}

/// Lies in the slot. Its owner writes it before the request is in flight (S1 publishes it) and
/// reads it after (S2 and S4 acquire it), so all accesses are Relaxed.
#[derive(Debug)]
pub(crate) struct Note(AtomicU32);

impl Note {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The request is submitted here and now.
    #[inline]
    pub(crate) fn write(&self, advice: &Advice, polled: impl FnOnce() -> bool) {
        if let Some(advice) = advice.current() {
            let polled = if polled() { POLLED } else { 0 };
            let bits = advice | polled | number(cpu::current());
            self.0.store(bits, Ordering::Relaxed);
        }
    }

    /// None for a request that was submitted before anybody cared.
    pub(crate) fn read(&self) -> Option<Noted> {
        let bits = self.0.load(Ordering::Relaxed);
        let cpu = bits & UNKNOWN;
        (bits & ON != 0).then(|| Noted {
            policy: unpack(bits),
            cpu: (cpu != UNKNOWN).then_some(cpu as usize),
            polled: bits & POLLED != 0,
        })
    }
}

/// What a note says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) policy: SteeringPolicy,
    /// None if it was not known.
    pub(crate) cpu: Option<usize>,
    pub(crate) polled: bool,
}

fn number(cpu: usize) -> u32 {
    u32::try_from(cpu).map_or(UNKNOWN, |cpu| cpu.min(UNKNOWN))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn every_policy_and_cpu_survives_the_note() {
        let (advice, note) = (Advice::new(), Note::new());
        for steering in Steering::ALL {
            for speed in SpeedRule::ALL {
                let policy = steering.with_speed(speed);
                for policy in [policy, policy.even_if_asleep()] {
                    advice.set(policy);
                    assert_eq!(advice.get(), policy);
                    for asked in [0, 1, 8191, 65_535, 1 << 20, usize::MAX] {
                        cpu::set_current_for_thread(Some(asked));
                        let cpu = (asked < UNKNOWN as usize).then_some(asked);
                        for polled in [true, false] {
                            note.write(&advice, || polled);
                            let noted = Noted {
                                policy,
                                cpu,
                                polled,
                            };
                            assert_eq!(note.read(), Some(noted));
                        }
                    }
                }
            }
        }
        cpu::set_current_for_thread(None);
    }

    #[test]
    fn nothing_is_noted_until_somebody_cares() {
        let (advice, note) = (Advice::new(), Note::new());
        note.write(&advice, || false);
        assert_eq!(note.read(), None);
        assert_eq!(advice.get(), SteeringPolicy::default());
        advice.turn_on();
        note.write(&advice, || false);
        assert_eq!(note.read().unwrap().policy, SteeringPolicy::default());
    }
}
