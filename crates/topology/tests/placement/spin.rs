//! Spin or sleep, and what is published in one word.

use std::time::Duration;

use inflight_topology::wake::{ParkReason, Peer, PinPolicy, Reach, ShardLoad, Spin, SpinGate};
use inflight_topology::{CpuSet, Scope, wake::shard_of};
use proptest::prelude::*;

use crate::machine::MACHINES;

/// Spinning is allowed only if every one of the conditions holds.
#[test]
fn every_condition_is_needed() {
    let budget = SpinGate::BUDGET;
    for allowed in 0..5 {
        for spinners in 0..5 {
            for own in 0..3 {
                for peer_cpu in 0..3 {
                    for running in [true, false] {
                        for spent in [Duration::ZERO, budget / 2, budget, budget * 2] {
                            let cpu = peer_cpu;
                            let peer = if running {
                                Peer::Running { cpu }
                            } else {
                                Peer::Parked { cpu }
                            };
                            let decision =
                                SpinGate::new(allowed).decide(own, peer, spinners, spent);
                            let may = allowed > 1
                                && running
                                && own != cpu as usize
                                && spinners + 1 < allowed
                                && spent < budget;
                            match decision {
                                Spin::For(longest) => assert!(may && longest == budget - spent),
                                Spin::Park(_) => assert!(!may),
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Two numbers that name no CPU may well stand for one and the same.
#[test]
fn unknown_cpus_are_not_taken_to_be_different() {
    let gate = SpinGate::new(8);
    for (own, cpu) in [(usize::MAX, 0), (0, u32::MAX), (usize::MAX, u32::MAX)] {
        let decision = gate.decide(own, Peer::Running { cpu }, 0, Duration::ZERO);
        assert_eq!(decision, Spin::Park(ParkReason::SameCpu), "{own} and {cpu}");
    }
}

#[test]
fn a_budget_is_at_most_the_cost_of_sleeping() {
    let us = Duration::from_micros;
    let peer = Peer::Running { cpu: 1 };
    let longest = |budget, cost| {
        SpinGate::new(4)
            .budget(budget, cost)
            .decide(0, peer, 0, us(0))
    };
    assert_eq!(longest(us(3), us(20)), Spin::For(us(3)));
    assert_eq!(longest(us(30), us(20)), Spin::For(us(20)));
    assert_eq!(longest(us(0), us(20)), Spin::Park(ParkReason::BudgetSpent));
}

proptest! {
    #[test]
    fn words_keep_what_they_hold(queued: u32, active: u32, cpu: u32, running: bool) {
        let load = ShardLoad::new(queued, active);
        prop_assert_eq!(ShardLoad::from_bits(load.to_bits()), load);
        prop_assert_eq!(load.sleeps_next(), queued == 0 && active == 1);
        let peer = if running { Peer::Running { cpu } } else { Peer::Parked { cpu } };
        prop_assert_eq!(Peer::from_bits(peer.to_bits()), peer);
    }

    #[test]
    fn any_hint_names_a_shard(machine in 0..MACHINES.len(), cpu: usize) {
        let topo = MACHINES[machine].topology();
        for scope in Scope::ALL {
            let shard = shard_of(&topo, scope, cpu);
            prop_assert!(shard < topo.pods(scope).len());
            prop_assert_eq!(shard, shard_of(&topo, scope, cpu));
        }
    }
}

#[test]
fn every_pin_policy_on_every_machine() {
    for machine in &MACHINES {
        let topo = machine.topology();
        let all: Vec<usize> = machine.numbers().collect();
        for &current in &all {
            for &shard in &all {
                for reach in Reach::ALL {
                    let reached = current == shard
                        || reach == Reach::Anywhere
                        || (reach == Reach::SameCache
                            && (!machine.knows(current) || machine.same_cache(current, shard)));
                    let movable = reached && machine.knows(shard);
                    let set = |near: &dyn Fn(usize) -> bool| -> Option<CpuSet> {
                        movable.then(|| all.iter().copied().filter(|&cpu| near(cpu)).collect())
                    };
                    let cpus =
                        |policy: PinPolicy| policy.cpus(current, shard, reach, &topo).cloned();
                    assert_eq!(cpus(PinPolicy::None), None);
                    let cache = set(&|cpu| machine.same_cache(cpu, shard));
                    assert_eq!(cpus(PinPolicy::CacheOfShard), cache);
                    assert_eq!(cpus(PinPolicy::CpuOfShard), set(&|cpu| cpu == shard));
                }
            }
        }
    }
}
