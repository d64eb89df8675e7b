//! Masks applied to pods: what is asked for, what there is, and what to do if nothing is left.

use inflight_topology::{CpuSet, Scope, Topology};

fn set(list: &str) -> CpuSet {
    list.parse().expect("a good list")
}

#[test]
fn a_pod_mask_is_the_allowed_part_of_the_pod_or_the_whole_mask() {
    // Nodes 0-3,8-11 and 4-7,12-15; CPU 7 is offline, CPU 3 isolated.
    let topo = Topology::synthetic("numa:2 core:4 smt:2 offline:7 isolated:3").expect("a machine");
    for (scope, cpu, requested, expected) in [
        (Scope::Numa, 0, "0-15", "0-2,8-11"),
        (Scope::Numa, 0, "1,9,12", "1,9"),
        (Scope::Numa, 12, "1,9,12", "12"),
        // The pod has no part in the mask.
        (Scope::Numa, 12, "1,9", "1,9"),
        (Scope::Smt, 0, "1-2", "1-2"),
        // Part of the pod is offline or isolated.
        (Scope::Smt, 15, "0-15", "15"),
        (Scope::Smt, 11, "0-15", "11"),
        // The CPU itself has no pod.
        (Scope::Smt, 7, "4-7", "4-6"),
        (Scope::Cache, 3, "0-3", "0-2"),
        (Scope::Cpu, usize::MAX, "5", "5"),
        // Nothing of what is requested can be used.
        (Scope::Cache, 0, "3,7", "0-2,8-11"),
        (Scope::Cache, 0, "", "0-2,8-11"),
        (Scope::System, 0, "100-200", "0-2,4-6,8-15"),
    ] {
        let mask = topo.pod_mask(scope, cpu, &set(requested));
        assert_eq!(
            mask,
            set(expected),
            "{scope} pod of {cpu} within {requested:?}"
        );
    }
}

#[test]
fn an_effective_mask_is_never_empty_and_never_too_large() {
    let topo = Topology::synthetic("core:6 offline:4 isolated:5").expect("a machine");
    for (requested, expected) in [
        ("0-5", "0-3"),
        ("2,4", "2"),
        ("4-5", "0-3"),
        ("", "0-3"),
        ("64", "0-3"),
    ] {
        assert_eq!(
            topo.effective_mask(&set(requested)),
            set(expected),
            "{requested:?}"
        );
    }
}

#[test]
fn distances_are_those_of_the_tree() {
    let tree = crate::tree::Tree::new("0-3");
    tree.node(0, "0-1");
    tree.node(2, "2-3");
    tree.node(5, "");
    tree.write("node/node0/distance", "10 21 17");
    tree.write("node/node2/distance", "22 10 17");
    tree.write("node/node5/distance", "10 21");
    let topo = tree.topology();
    assert_eq!(topo.node_distance(0, 2), Some(21));
    assert_eq!(topo.node_distance(2, 0), Some(22));
    assert_eq!(topo.node_distance(0, 5), Some(17));
    // A row of another length was written while nodes came or went.
    assert_eq!(topo.node_distance(5, 0), None);
    assert_eq!(topo.node_distance(0, 1), None);
    let text = topo.to_string();
    assert!(
        text.contains("node5/distance (not one distance for each of 3 nodes)"),
        "{text}"
    );
}
