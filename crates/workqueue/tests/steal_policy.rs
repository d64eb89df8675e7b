//! Who is woken for an item, and whose items an idle worker takes: the rules on the published
//! machine, and any loads.
#![cfg(not(any(loom, shuttle)))]

use inflight_topology::{Scope, Topology};
use inflight_workqueue::unstable::{Costs, Load, StealPolicy, WakeTarget};
use proptest::prelude::*;

/// The published machine: 4 caches of 3 cores of 2 threads.
fn policy() -> StealPolicy {
    let topology = Topology::synthetic("cache:4 core:3 smt:2").unwrap();
    StealPolicy::new(&topology, Scope::Cache, Costs::default())
}

fn idle() -> [Load; 4] {
    let load = Load {
        service: 174_000,
        ..Load::default()
    };
    [load; 4]
}

#[test]
fn an_item_stays_while_a_core_is_free() {
    let mut loads = idle();
    for awake in 0..3 {
        loads[0].awake = awake;
        assert_eq!(policy().wake_for(0, &loads), WakeTarget::Own);
    }
}

#[test]
fn a_whole_core_elsewhere_is_better_than_a_sibling_in_its_own_pod() {
    let mut loads = idle();
    loads[0].awake = 3;
    loads[0].waiting = 1;
    let sent = WakeTarget::Other(1);
    assert_eq!(policy().wake_for(0, &loads), sent);
    loads[1].awake = 1; // the one that was woken
    assert_eq!(policy().victim(1, &loads), Some(0));
    // Not for short items, and not if those are busy too.
    loads[0].service = 8_000;
    assert_eq!(policy().wake_for(0, &loads), WakeTarget::Own);
    loads[0].service = 174_000;
    loads[1..].iter_mut().for_each(|load| load.awake = 3);
    assert_eq!(policy().wake_for(0, &loads), WakeTarget::Own);
}

#[test]
fn submitters_keep_their_cores() {
    let mut loads = idle();
    loads[0].submitters = 2;
    loads[0].awake = 1;
    let sent = WakeTarget::Other(1);
    assert_eq!(policy().wake_for(0, &loads), sent);
    // No CPU is left: items of any length leave, as long as somebody of the pod is awake.
    loads.iter_mut().for_each(|load| load.service = 2_000);
    loads[0].submitters = 6;
    let sent = WakeTarget::Other(1);
    assert_eq!(policy().wake_for(0, &loads), sent);
    loads[0].awake = 0;
    assert_eq!(policy().wake_for(0, &loads), WakeTarget::Own);
    // Not to where submitters have all CPUs, too.
    loads[0].awake = 1;
    loads[1..].iter_mut().for_each(|load| load.submitters = 6);
    assert_eq!(policy().wake_for(0, &loads), WakeTarget::Own);
    loads[3].submitters = 5;
    assert_eq!(policy().wake_for(0, &loads), WakeTarget::Other(3));
    // Half of the CPUs is enough.
    (loads[0].submitters, loads[0].awake) = (3, 3);
    assert_eq!(policy().wake_for(0, &loads), WakeTarget::Other(3));
    (loads[0].submitters, loads[0].awake) = (2, 4);
    assert_eq!(policy().wake_for(0, &loads), WakeTarget::Own);
}

#[test]
fn a_backlog_is_shared_when_all_workers_are_awake() {
    let mut loads = idle();
    loads.iter_mut().for_each(|load| load.service = 9_000);
    loads[0].awake = 12;
    loads[0].waiting = 133;
    assert_eq!(policy().wake_for(0, &loads), WakeTarget::Nobody);
    loads[0].waiting = 134;
    let sent = WakeTarget::Other(1);
    assert_eq!(policy().wake_for(0, &loads), sent);
    loads[1].awake = 1;
    assert_eq!(policy().victim(1, &loads), Some(0));
    // From exactly 200 us on, as its pool is told.
    loads[0].service = 10_000;
    let help_from = policy().needs_help_from(0, &loads[0]);
    for (waiting, takes) in [(help_from - 1, None), (help_from, Some(0))] {
        loads[0].waiting = waiting;
        assert_eq!((help_from, policy().victim(1, &loads)), (120, takes));
    }
}

#[test]
fn nothing_moves_when_all_are_saturated() {
    let mut loads = idle();
    for load in &mut loads {
        *load = Load {
            waiting: 20,
            awake: 12,
            submitters: 6,
            ..*load
        };
    }
    assert_eq!(policy().wake_for(0, &loads), WakeTarget::Nobody);
}

#[test]
fn other_nodes_come_last_and_only_for_long_items() {
    let topology = Topology::synthetic("numa:2 cache:2 core:3 smt:2").unwrap();
    let policy = StealPolicy::new(&topology, Scope::Cache, Costs::default());
    let mut loads = idle();
    loads[0].awake = 3;
    loads[1].awake = 3;
    assert_eq!(policy.wake_for(0, &loads), WakeTarget::Other(2));
    loads[0].service = 90_000; // 36 us would be saved; 40 us are asked for
    assert_eq!(policy.wake_for(0, &loads), WakeTarget::Own);
    loads[1].awake = 0;
    assert_eq!(policy.wake_for(0, &loads), WakeTarget::Other(1));
    loads[0].service = 174_000; // each of them would do
    assert_eq!(policy.wake_for(0, &loads), WakeTarget::Other(1));
}

/// Of the same node if there is one; of these the one with most to do.
#[test]
fn a_thief_takes_from_the_longest_list_of_its_node() {
    let topology = Topology::synthetic("numa:2 cache:3 core:6").unwrap();
    let policy = StealPolicy::new(&topology, Scope::Cache, Costs::default());
    let full = |waiting| Load {
        waiting,
        awake: 6,
        service: 174_000,
        ..Load::default()
    };
    let mut loads = [0, 40, 50, 90, 100, 100].map(full);
    loads[0].awake = 1;
    assert_eq!(policy.victim(0, &loads), Some(2));
    loads[2].waiting = 0;
    assert_eq!(policy.victim(0, &loads), Some(1));
    loads[1].waiting = 0;
    assert_eq!(
        policy.victim(0, &loads),
        Some(4),
        "the first of the longest"
    );
    // The thief is awake itself.
    loads[0].awake = 6;
    assert_eq!(policy.victim(0, &loads), Some(4));
    loads[0].awake = 7;
    assert_eq!(policy.victim(0, &loads), None);
}

/// Its own workers are on their way: they are nearer.
#[test]
fn a_backlog_is_its_own_while_workers_are_to_be_had() {
    let mut loads = idle();
    loads[0].waiting = 1_000;
    loads[1].awake = 1;
    loads[0].awake = 5;
    // With cores of one thread each, so that only the length of the list counts.
    let topology = Topology::synthetic("cache:4 core:6").unwrap();
    let policy = StealPolicy::new(&topology, Scope::Cache, Costs::default());
    assert_eq!(policy.victim(1, &loads), None);
    loads[0].awake = 6;
    assert_eq!(policy.victim(1, &loads), Some(0));
}

fn load() -> impl Strategy<Value = Load> {
    let counts = (0..30usize, 0..14usize, 0..8usize);
    (counts, 0..400_000u64).prop_map(|(counts, service)| Load {
        waiting: counts.0,
        awake: counts.1,
        submitters: counts.2,
        service,
    })
}

proptest! {
    /// Whoever is woken for an item of another pod finds something. Nobody is sent away from a pod
    /// in which nobody is awake.
    #[test]
    fn who_is_woken_finds_something(
        two_nodes in any::<bool>(),
        own in 0..4usize,
        mut loads in proptest::array::uniform4(load()),
    ) {
        let description = if two_nodes { "numa:2 cache:2" } else { "cache:4" };
        let topology = Topology::synthetic(&format!("{description} core:3 smt:2")).unwrap();
        let policy = StealPolicy::new(&topology, Scope::Cache, Costs::default());
        loads[own].waiting += 1;
        match policy.wake_for(own, &loads) {
            WakeTarget::Other(to) => {
                prop_assert!(loads[own].waiting >= policy.needs_help_from(own, &loads[own]));
                prop_assert!(to != own && loads[own].awake > 0);
                prop_assert_eq!(loads[to].waiting, 0);
                loads[to].awake += 1;
                prop_assert!(policy.victim(to, &loads).is_some());
            }
            WakeTarget::Own => prop_assert!(loads[own].awake < policy.cpus(own)),
            WakeTarget::Nobody => prop_assert!(loads[own].awake >= policy.cpus(own)),
        }
    }

    /// A thief never finds its own pod, nor one that has nothing, nor one whose own workers are
    /// on their way to it.
    #[test]
    fn a_victim_has_something(thief in 0..4usize, loads in proptest::array::uniform4(load())) {
        if let Some(from) = policy().victim(thief, &loads) {
            prop_assert!(from != thief && loads[from].waiting > 0);
            let help_from = policy().needs_help_from(from, &loads[from]);
            prop_assert!(loads[from].awake > 0 && loads[from].waiting >= help_from);
        }
    }
}
