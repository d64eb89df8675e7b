//! The machine the tests run on: whatever it is, these hold.

use inflight_topology::{Scope, Topology};

use crate::synthetic::assert_partition;

#[test]
fn this_machine_is_split_into_pods() {
    let topo = Topology::discover().expect("this machine has a CPU");
    assert!(!topo.cpus().is_empty());
    assert!(topo.cpus().is_subset(topo.online()));
    assert!(topo.online().is_subset(topo.possible()));
    assert!(topo.is_this_machine());
    assert_partition(&topo);
}

#[test]
fn every_node_listed_has_a_pod_and_the_other_way_round() {
    let topo = Topology::discover().expect("this machine has a CPU");
    let by_pod: Vec<_> = topo
        .pods(Scope::Numa)
        .iter()
        .filter_map(|pod| pod.node())
        .collect();
    let mut sorted = by_pod.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, topo.nodes());
}

#[test]
fn display_names_every_assumption() {
    let topo = Topology::discover().expect("this machine has a CPU");
    let text = topo.to_string();
    for assumption in topo.assumptions() {
        assert!(text.contains(&format!("\nassumed: {assumption}")), "{text}");
    }
}

// Outside a model, the checkers have no thread to ask about.
#[cfg(not(any(loom, shuttle)))]
#[test]
fn the_current_cpu_is_a_number_that_can_be_asked_about() {
    let topo = Topology::discover().expect("this machine has a CPU");
    let cpu = inflight_topology::current_cpu();
    assert!(topo.shares_cache(cpu, cpu));
    if cfg!(target_os = "linux") {
        assert!(
            topo.cpus().contains(cpu),
            "CPU {cpu} is not among {}",
            topo.cpus()
        );
    }
}
