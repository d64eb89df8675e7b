//! Completion steering: tables a person can check, then everything against an oracle.

use inflight_topology::Topology;
use inflight_topology::steering::{
    Completion, Decision, DoneList, InlineReason, RedirectReason, SpeedRule, Steering,
    SteeringPolicy, decide,
};

use crate::machine::{MACHINES, Machine};

/// A line for each observer, a column for each submitter: `.` runs inline, `R` is redirected.
fn table(topo: &Topology, policy: impl Into<SteeringPolicy>, awake: bool) -> String {
    let policy = policy.into();
    let cell = |observer, submitter| {
        let decision = decide(observer, submitter, policy, topo, awake);
        match decision.redirect() {
            None => '.',
            Some(cpu) => {
                assert_eq!(cpu, submitter);
                'R'
            }
        }
    };
    let line = |observer| -> String { topo.cpus().iter().map(|s| cell(observer, s)).collect() };
    let lines: Vec<String> = topo.cpus().iter().map(line).collect();
    lines.join(" ")
}

#[test]
fn two_caches_of_two_cpus() {
    let topo = Topology::synthetic("cache:2 core:2").expect("a good description");
    let all = ".... .... .... ....";
    for awake in [true, false] {
        assert_eq!(table(&topo, Steering::Inline, awake), all);
        assert_eq!(
            table(&topo, Steering::SameCache, awake),
            "..RR ..RR RR.. RR.."
        );
        assert_eq!(table(&topo, Steering::Force, awake), "RRRR RRRR RRRR RRRR");
    }
    assert_eq!(table(&topo, Steering::SameCpu, true), ".RRR R.RR RR.R RRR.");
    assert_eq!(
        table(&topo, Steering::SameCpu, false),
        "..RR ..RR RR.. RR.."
    );
    let always = SteeringPolicy::from(Steering::SameCpu).even_if_asleep();
    assert_eq!(table(&topo, always, false), ".RRR R.RR RR.R RRR.");
}

#[test]
fn fast_and_slow_cores_around_one_cache() {
    let topo = Topology::synthetic("core:4 slow:2-3").expect("a good description");
    let same_cache = |rule| Steering::SameCache.with_speed(rule);
    assert_eq!(
        table(&topo, same_cache(SpeedRule::Ignore), true),
        ".... .... .... ...."
    );
    assert_eq!(
        table(&topo, same_cache(SpeedRule::Equal), true),
        "..RR ..RR RR.. RR.."
    );
    // Seen on a slow core, submitted on a fast one: back to the fast one. Not the other way round.
    assert_eq!(
        table(&topo, same_cache(SpeedRule::AtLeast), true),
        ".... .... RR.. RR.."
    );
    // A sleeping worker of the same cache is not worth waking, whatever its speed.
    let same_cpu = Steering::SameCpu.with_speed(SpeedRule::AtLeast);
    assert_eq!(table(&topo, same_cpu, false), ".... .... .... ....");
    assert_eq!(table(&topo, same_cpu, true), ".RRR R.RR RR.R RRR.");
    let woken = same_cpu.even_if_asleep();
    assert_eq!(table(&topo, woken, false), ".RRR R.RR RR.R RRR.");
}

#[test]
fn on_a_machine_without_caches_the_default_is_inline() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let cpu = root.path().join("sys/devices/system/cpu");
    std::fs::create_dir_all(&cpu).expect("a directory");
    std::fs::write(cpu.join("online"), "0-3\n").expect("a file");
    let topo = Topology::from_sysfs(root.path()).expect("four CPUs");
    let inline = table(&topo, Steering::Inline, true);
    assert_eq!(table(&topo, Steering::SameCache, true), inline);
}

/// Whether the done list of the submitter gets the completion, told in one sentence per policy.
fn wanted(machine: &Machine, o: usize, s: usize, policy: SteeringPolicy, asleep: bool) -> bool {
    let unknown = !machine.knows(o) || !machine.knows(s);
    let fast_enough = match policy.speed() {
        SpeedRule::Ignore => true,
        SpeedRule::Equal => machine.speed(o) == machine.speed(s),
        SpeedRule::AtLeast => machine.speed(o) >= machine.speed(s),
    };
    let shared = unknown || machine.same_cache(o, s);
    let near = unknown || (shared && fast_enough);
    match policy.steering() {
        Steering::Inline => false,
        Steering::SameCache => !near,
        Steering::SameCpu if shared && asleep && policy.only_if_awake() => false,
        Steering::SameCpu => o != s,
        Steering::Force => true,
    }
}

fn policies() -> Vec<SteeringPolicy> {
    let mut policies = Vec::new();
    for steering in Steering::ALL {
        for speed in SpeedRule::ALL {
            let policy = steering.with_speed(speed);
            policies.extend([policy, policy.even_if_asleep()]);
        }
    }
    policies
}

/// Everything that is a short cut or comes after the policy, around [`wanted`].
fn oracle(machine: &Machine, o: usize, s: usize, case: &Case) -> Option<usize> {
    let closed = case.list == DoneList::Closed;
    let short_cut = (case.one_shard || case.polled) && case.policy.steering() != Steering::Force;
    let asleep = case.list == DoneList::Asleep;
    if machine.knows(s) && !closed && !short_cut && wanted(machine, o, s, case.policy, asleep) {
        return Some(s);
    }
    let open = |&cpu: &usize| machine.knows(cpu) && !(closed && cpu == s);
    [o, s].into_iter().find(open).filter(|_| case.depth >= 8)
}

struct Case {
    policy: SteeringPolicy,
    list: DoneList,
    one_shard: bool,
    polled: bool,
    depth: u32,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for policy in policies() {
        for list in [DoneList::Awake, DoneList::Asleep, DoneList::Closed] {
            for short_cuts in 0..4 {
                for depth in [0, 7, 8, 9] {
                    cases.push(Case {
                        policy,
                        list,
                        one_shard: short_cuts & 1 != 0,
                        polled: short_cuts & 2 != 0,
                        depth,
                    });
                }
            }
        }
    }
    cases
}

/// A reason must be true.
fn check_reason(machine: &Machine, o: usize, s: usize, case: &Case, decision: Decision) {
    let closed = case.list == DoneList::Closed;
    let known = machine.knows(o) && machine.knows(s);
    let true_reason = match decision {
        Decision::Inline(reason) => match reason {
            InlineReason::OneShard => case.one_shard,
            InlineReason::Polled => case.polled,
            InlineReason::Closed => closed,
            InlineReason::UnknownCpu => !known,
            InlineReason::Policy => case.policy.steering() == Steering::Inline,
            InlineReason::SameCpu => o == s,
            InlineReason::SameCache => o != s && machine.same_cache(o, s),
            InlineReason::Asleep => {
                case.list == DoneList::Asleep && (!known || machine.same_cache(o, s))
            }
            other => panic!("a reason without a check: {other:?}"),
        },
        Decision::Redirect { cpu, reason } => match reason {
            RedirectReason::OtherCache => !machine.same_cache(o, s) && cpu == s,
            RedirectReason::OtherSpeed => machine.speed(o) != machine.speed(s) && cpu == s,
            RedirectReason::OtherCpu => o != s && cpu == s,
            RedirectReason::Forced => case.policy.steering() == Steering::Force && cpu == s,
            RedirectReason::Depth => {
                case.depth >= 8 && (cpu == o || (cpu == s && !machine.knows(o)))
            }
            other => panic!("a reason without a check: {other:?}"),
        },
    };
    assert!(
        true_reason,
        "{}: {o} {s}: {decision:?}",
        machine.description
    );
}

#[test]
fn every_case_on_every_machine() {
    for machine in &MACHINES {
        let topo = machine.topology();
        for case in cases() {
            for o in machine.numbers() {
                for s in machine.numbers() {
                    let decision = Completion::new(o, s)
                        .policy(case.policy)
                        .done_list(case.list)
                        .one_shard(case.one_shard)
                        .polled(case.polled)
                        .depth(case.depth)
                        .decide(&topo);
                    let expected = oracle(machine, o, s, &case);
                    let note = format!("{}: {o} {s} {:?}", machine.description, case.policy);
                    assert_eq!(decision.redirect(), expected, "{note}: {decision:?}");
                    check_reason(machine, o, s, &case, decision);
                }
            }
        }
    }
}

#[test]
fn the_short_form_is_the_long_one_without_circumstances() {
    for machine in &MACHINES {
        let topo = machine.topology();
        for policy in policies() {
            for (awake, list) in [(true, DoneList::Awake), (false, DoneList::Asleep)] {
                for o in machine.numbers() {
                    for s in machine.numbers() {
                        let long = Completion::new(o, s).policy(policy).done_list(list);
                        assert_eq!(decide(o, s, policy, &topo, awake), long.decide(&topo));
                    }
                }
            }
        }
    }
}

#[test]
fn names_are_parsed_exactly() {
    for steering in Steering::ALL {
        assert_eq!(steering.name().parse(), Ok(steering));
        assert!(steering.name().to_uppercase().parse::<Steering>().is_err());
        assert!(steering.name()[1..].parse::<Steering>().is_err());
    }
}
