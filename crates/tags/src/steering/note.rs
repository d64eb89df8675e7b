//! What a request takes with it when it is submitted: the CPU, and the policy of that moment.

use super::{Seat, SpeedRule, Steering, SteeringPolicy};
use crate::grown::Grown;
use inflight_sync::atomic::{AtomicU32, AtomicU64, Ordering};
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

/// In a word of [`Policies`] only: some queue has a policy of its own.
const SOME_OWN: u32 = POLLED << 1;

/// The policies requests are submitted under: the set's, and those of queues that have their own.
/// Off until it matters, so that sets without steering do not ask for the CPU.
#[derive(Debug)]
pub(crate) struct Policies {
    set: AtomicU32,
    /// By seat. Zero: the set's.
    own: Grown<AtomicU32>,
}

impl Policies {
    pub(crate) fn new() -> Self {
        Self {
            set: AtomicU32::new(pack(SteeringPolicy::default())),
            own: Grown::new(),
        }
    }

    // Relaxed throughout: a request notes the policy it finds, whose change orders nothing else.

    pub(crate) fn set(&self, policy: SteeringPolicy) {
        let keeping = |word| Some(word & SOME_OWN | pack(policy) | ON);
        // Why ignored: it always has something to store.
        let _ = self
            .set
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, keeping);
    }

    pub(crate) fn get(&self) -> SteeringPolicy {
        unpack(self.set.load(Ordering::Relaxed))
    }

    /// From now on requests are noted. Nobody turns it off again.
    pub(crate) fn turn_on(&self) {
        self.set.fetch_or(ON, Ordering::Relaxed);
    }

    /// Whether requests are noted.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.set.load(Ordering::Relaxed) & ON != 0
    }

    /// The policy of one queue; none: the set's.
    pub(crate) fn set_own(&self, seat: Seat, policy: Option<SteeringPolicy>) {
        let word = policy.map_or(0, |policy| pack(policy) | ON);
        if word != 0 {
            let own = self.own.get_or_make(seat.index(), || AtomicU32::new(0));
            own.store(word, Ordering::Relaxed);
            self.set.fetch_or(ON | SOME_OWN, Ordering::Relaxed);
        } else if let Some(own) = self.own.get(seat.index()) {
            own.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn own(&self, seat: Seat) -> Option<SteeringPolicy> {
        self.own_word(seat).map(unpack)
    }

    fn own_word(&self, seat: Seat) -> Option<u32> {
        let word = self.own.get(seat.index())?.load(Ordering::Relaxed);
        (word != 0).then_some(word)
    }

    /// What a request of a queue notes now, if anything.
    #[inline]
    fn word(&self, seat: Seat) -> Option<u32> {
        let set = self.set.load(Ordering::Relaxed);
        if set & (ON | SOME_OWN) == ON {
            return Some(set);
        }
        (set & ON != 0).then(|| self.own_word(seat).unwrap_or(set & !SOME_OWN))
    }
}

/// Lies in the slot: the seat of its queue from the allocation on, and below it what the submission
/// notes, zero until then. Its owner writes it before the request is in flight (S1 publishes it)
/// and reads it after (S2 and S4 acquire it), so all accesses are Relaxed.
#[derive(Debug)]
pub(crate) struct Note(AtomicU64);

impl Note {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// A tag for a queue.
    #[inline]
    pub(crate) fn begin(&self, seat: Seat) {
        self.0.store(u64::from(seat.0) << 32, Ordering::Relaxed);
    }

    /// Whose it is. While it is no tag, whose it was last.
    pub(crate) fn seat(&self) -> Seat {
        Seat((self.0.load(Ordering::Relaxed) >> 32) as u32)
    }

    /// The request is submitted here and now.
    #[inline]
    pub(crate) fn write(&self, policies: &Policies, polled: impl FnOnce() -> bool) {
        let seat = self.seat();
        if let Some(word) = policies.word(seat) {
            let polled = if polled() { POLLED } else { 0 };
            let bits = word | polled | number(cpu::current());
            let bits = u64::from(seat.0) << 32 | u64::from(bits);
            self.0.store(bits, Ordering::Relaxed);
        }
    }

    /// None for a request that was submitted before anybody cared, or not yet.
    pub(crate) fn read(&self) -> Option<Noted> {
        let bits = self.0.load(Ordering::Relaxed) as u32;
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
        let (policies, note) = (Policies::new(), Note::new());
        note.begin(Seat(77));
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
                            let noted = Noted {
                                policy,
                                cpu,
                                polled,
                            };
                            assert_eq!(note.read(), Some(noted));
                            assert_eq!(note.seat(), Seat(77));
                        }
                    }
                }
            }
        }
        cpu::set_current_for_thread(None);
    }

    #[test]
    fn nothing_is_noted_until_somebody_cares() {
        let (policies, note) = (Policies::new(), Note::new());
        note.write(&policies, || false);
        assert_eq!(note.read(), None);
        assert_eq!(policies.get(), SteeringPolicy::default());
        policies.turn_on();
        note.write(&policies, || false);
        assert_eq!(note.read().unwrap().policy, SteeringPolicy::default());
    }

    #[test]
    fn a_queue_of_its_own_mind_notes_its_own_policy() {
        let policies = Policies::new();
        let notes = [Seat(0), Seat(5)].map(|seat| {
            let note = Note::new();
            note.begin(seat);
            note
        });
        let noted = || {
            notes.each_ref().map(|note| {
                note.write(&policies, || false);
                note.read().unwrap().policy.steering()
            })
        };
        policies.set_own(Seat(5), Some(Steering::Force.into()));
        assert_eq!(noted(), [Steering::SameCache, Steering::Force]);
        policies.set(Steering::Inline.into());
        assert_eq!(noted(), [Steering::Inline, Steering::Force]);
        policies.set_own(Seat(5), None);
        assert_eq!(noted(), [Steering::Inline; 2]);
        assert_eq!((policies.own(Seat(5)), policies.own(Seat(9))), (None, None));
        notes[1].begin(Seat(6));
        assert_eq!(notes[1].read(), None, "not submitted yet");
    }
}
