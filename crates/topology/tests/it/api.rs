//! The lines of the design page, as a user writes them.

use std::error::Error;

use inflight_topology::{CpuSet, Scope, Topology};

use crate::tree::Tree;

/// Two sockets of eight caches, each with eight cores of two threads: 256 CPUs.
fn epyc_2s() -> Tree {
    let tree = Tree::new("0-255");
    for cpu in 0..256 {
        let core = cpu % 128;
        let socket = core / 64;
        let first = core / 8 * 8;
        let siblings = format!("{core},{}", core + 128);
        tree.core(cpu, &siblings, i64::try_from(socket).expect("0 or 1"));
        tree.cache(cpu, 0, 1, "Data", &siblings);
        tree.cache(cpu, 1, 1, "Instruction", &siblings);
        tree.cache(cpu, 2, 2, "Unified", &siblings);
        let shared = format!("{first}-{},{}-{}", first + 7, first + 128, first + 135);
        tree.cache(cpu, 3, 3, "Unified", &shared);
    }
    tree.node(0, "0-63,128-191");
    tree.node(1, "64-127,192-255");
    tree
}

#[test]
fn a_two_socket_machine_as_recorded() -> Result<(), Box<dyn Error>> {
    let tree = epyc_2s();
    let rec = Topology::from_sysfs(tree.root())?;
    assert_eq!(rec.assumptions(), []);
    assert_eq!(rec.pods(Scope::Cache).len(), 16);
    assert_eq!(rec.pods(Scope::CacheShard), rec.pods(Scope::Cache));
    assert_eq!(
        rec.pods(Scope::Cache)[8].cpus().to_string(),
        "64-71,192-199"
    );
    assert_eq!(rec.pods(Scope::Cache)[8].node(), Some(1));
    assert_eq!(rec.pods(Scope::Smt)[127].cpus(), &CpuSet::from([127, 255]));
    // The copied `/sys` itself will do as well.
    let same = Topology::from_sysfs(tree.root().join("sys"))?;
    assert_eq!(same.to_string(), rec.to_string());
    Ok(())
}

#[test]
fn the_lines_of_the_design_page() -> Result<(), Box<dyn Error>> {
    let topo = Topology::discover()?;
    let big = Topology::synthetic("numa:2 cache:2 core:6 smt:2")?;
    let mut lines = Vec::new();
    for pod in big.pods(Scope::Cache) {
        lines.push(format!("{} on node {:?}", pod.cpus(), pod.node()));
    }
    assert_eq!(lines[0], "0-5,24-29 on node Some(0)");
    assert!(big.shares_cache(0, 24));
    let set = "0-1".parse::<CpuSet>()?;
    assert_eq!(set, CpuSet::from([0, 1]));
    if cfg!(target_os = "linux") && !topo.cpus().is_disjoint(&set) {
        let guard = topo.pin_current_thread(&"0-1".parse::<CpuSet>()?)?;
        assert!(Topology::discover()?.cpus().is_subset(&set));
        drop(guard);
        assert_eq!(Topology::discover()?.cpus(), topo.cpus());
    }
    Ok(())
}
