//! Machines as QEMU showed them to a kernel, recorded there by `ci/qemu-topology --record`.

use std::fs;
use std::path::Path;

use inflight_topology::{Assumption, CpuSet, Scope, Topology};
use tempfile::TempDir;

use crate::synthetic::assert_partition;

/// A recorded machine, and the tree that refreshing it would read again.
fn machine(name: &str) -> (Topology, TempDir) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let text = fs::read_to_string(fixtures.join(format!("qemu-{name}.txt"))).expect("a fixture");
    let dir = TempDir::new().expect("a temporary directory");
    for line in text.lines() {
        let (path, content) = line.split_once('\t').expect("a path, a tab, a text");
        let file = dir.path().join(path);
        fs::create_dir_all(file.parent().expect("below the root")).expect("a directory");
        fs::write(file, format!("{content}\n")).expect("a file");
    }
    let topo = Topology::from_sysfs(dir.path()).expect("a machine");
    let file = fixtures.join(format!("qemu-{name}.txt"));
    assert_eq!(Topology::from_sysfs(file), Ok(topo.clone()), "as one file");
    // A PC's kernel does not say how fast its CPUs are; all else is there.
    let speed = |assumption: &Assumption| matches!(assumption, Assumption::SpeedUnknown { .. });
    assert!(topo.assumptions().iter().all(speed), "{name}: {topo}");
    assert_partition(&topo);
    (topo, dir)
}

fn pods(topo: &Topology, scope: Scope) -> String {
    let pods: Vec<String> = topo
        .pods(scope)
        .iter()
        .map(|p| p.cpus().to_string())
        .collect();
    pods.join(" ")
}

fn set(list: &str) -> CpuSet {
    list.parse().expect("a list")
}

#[test]
fn two_sockets_with_two_nodes_and_two_threads_a_core() {
    let (topo, _dir) = machine("two-sockets");
    assert_eq!(topo.cpus(), &set("0-7"));
    assert_eq!(pods(&topo, Scope::Smt), "0-1 2-3 4-5 6-7");
    assert_eq!(pods(&topo, Scope::Cache), "0-3 4-7");
    assert_eq!(pods(&topo, Scope::Numa), "0-3 4-7");
    assert_eq!(topo.node_distance(0, 0), Some(10));
    assert_eq!(topo.node_distance(0, 1), Some(20));
    assert_eq!(topo.speed_classes(), [set("0-7")]);
    assert!(topo.shares_cache(0, 3));
    assert!(!topo.shares_cache(3, 4));
}

#[test]
fn the_same_with_its_second_threads_off() {
    let (topo, _dir) = machine("smt-off");
    assert_eq!(topo.cpus(), &set("0,2,4,6"));
    assert_eq!(topo.possible(), &set("0-7"));
    assert_eq!(pods(&topo, Scope::Smt), "0 2 4 6");
    assert_eq!(pods(&topo, Scope::Cache), "0,2 4,6");
    assert_eq!(topo.pod_of(Scope::Smt, 1), None);
}

#[test]
fn the_same_with_a_process_shut_into_two_cpus() {
    let (topo, _dir) = machine("cpuset");
    assert_eq!(topo.cpus(), &set("1-2"));
    assert_eq!(topo.online(), &set("0-7"));
    assert_eq!(pods(&topo, Scope::Smt), "1 2");
    assert_eq!(pods(&topo, Scope::Cache), "1-2");
    assert_eq!(topo.nodes(), [0]);
}

#[test]
fn the_same_with_a_core_isolated() {
    let (topo, _dir) = machine("isolated");
    assert_eq!(topo.isolated(), &set("6-7"));
    assert_eq!(topo.cpus(), &set("0-5"));
    assert_eq!(topo.online(), &set("0-7"));
    assert_eq!(pods(&topo, Scope::Cache), "0-3 4-5");
}

#[test]
fn the_same_with_two_cpus_offline() {
    let (topo, _dir) = machine("offline");
    assert_eq!(topo.online(), &set("0-2,4,6-7"));
    assert_eq!(topo.possible(), &set("0-7"));
    assert_eq!(pods(&topo, Scope::Smt), "0-1 2 4 6-7");
    assert_eq!(pods(&topo, Scope::Cache), "0-2 4,6-7");
    assert_eq!(pods(&topo, Scope::Numa), "0-2 4,6-7");
}

#[test]
fn a_machine_with_room_for_more_cpus_and_a_node_of_memory_only() {
    let (topo, _dir) = machine("possible-8-of-4");
    assert_eq!(topo.cpus(), &set("0-3"));
    assert_eq!(topo.possible(), &set("0-7"));
    assert_eq!(topo.nodes(), [0]);
    assert_eq!(topo.pod_of(Scope::System, 4), None);
    assert!(topo.shares_cache(0, 4));
}

#[test]
fn one_socket_is_one_cache_in_two_shards() {
    let (topo, _dir) = machine("one-socket");
    assert_eq!(topo.pods(Scope::Smt).len(), 16);
    assert_eq!(pods(&topo, Scope::CacheShard), "0-7 8-15");
    assert_eq!(pods(&topo, Scope::Cache), "0-15");
}

#[test]
fn forty_eight_cpus_in_four_nodes() {
    let (topo, _dir) = machine("four-nodes");
    assert_eq!(topo.pods(Scope::Cpu).len(), 48);
    assert_eq!(topo.pods(Scope::Smt).len(), 24);
    assert_eq!(pods(&topo, Scope::Cache), "0-11 12-23 24-35 36-47");
    assert_eq!(pods(&topo, Scope::Numa), "0-11 12-23 24-35 36-47");
    assert_eq!(topo.nodes(), [0, 1, 2, 3]);
    assert_eq!(topo.node_of(47), Some(3));
}

#[test]
fn three_sockets() {
    let (topo, _dir) = machine("three-sockets");
    assert_eq!(topo.cpus(), &set("0-11"));
    assert_eq!(pods(&topo, Scope::Smt), "0-1 2-3 4-5 6-7 8-9 10-11");
    assert_eq!(pods(&topo, Scope::Cache), "0-3 4-7 8-11");
    assert_eq!(pods(&topo, Scope::Numa), "0-3 4-7 8-11");
    assert_eq!(topo.nodes(), [0, 1, 2]);
    assert_eq!(topo.node_distance(0, 2), Some(20));
}

/// Memory of its own that no CPU is near to: nobody runs there, so it is no pod. How far it is from
/// the others is known.
#[test]
fn a_node_without_cpus() {
    let (topo, _dir) = machine("node-without-cpus");
    assert_eq!(topo.cpus(), &set("0-7"));
    assert_eq!(pods(&topo, Scope::Numa), "0-3 4-7");
    assert_eq!(topo.nodes(), [0, 1]);
    assert_eq!(topo.node_of(7), Some(1));
    assert_eq!(topo.node_distance(0, 1), Some(20));
    assert_eq!(topo.node_distance(0, 2), Some(20));
}
