//! A machine that changes between two looks.

use std::fs;

use inflight_topology::{CpuSet, Refresh, RefreshError, Scope, SysfsError, Topology};

use crate::tree::Tree;

fn changed(topo: &Topology) -> Topology {
    match topo.refresh().expect("a machine") {
        Refresh::Changed(new) => new,
        Refresh::Unchanged => panic!("nothing has changed in {topo}"),
    }
}

fn flat() -> Tree {
    let tree = Tree::new("0-3");
    for cpu in 0..4 {
        tree.core(cpu, &cpu.to_string(), 0);
        tree.cache(cpu, 0, 3, "Unified", "0-3");
    }
    tree.node(0, "0-3");
    tree
}

#[test]
fn versions_count_changes_and_nothing_else() {
    let tree = flat();
    let first = tree.topology();
    assert_eq!(first.version(), 1);
    for _ in 0..3 {
        assert!(matches!(first.refresh(), Ok(Refresh::Unchanged)));
    }
    tree.write("cpu/online", "0-2");
    let second = changed(&first);
    tree.write("cpu/isolated", "2");
    let third = changed(&second);
    tree.write("cpu/cpu0/cpu_capacity", "2048");
    let fourth = changed(&third);
    assert_eq!(
        [second.version(), third.version(), fourth.version()],
        [2, 3, 4]
    );
    assert_eq!(fourth.clone().version(), 4);
    let cpus = [&first, &second, &third].map(|topo| topo.cpus().to_string());
    assert_eq!(cpus, ["0-3", "0-2", "0-1"]);
    assert_eq!(
        fourth.speed_classes(),
        [CpuSet::from([1, 2]), CpuSet::from([0])]
    );
    // From the first the way is longer, but the machine is the same. The version is another: who
    // knows what was between them?
    let fifth = changed(&first);
    assert_eq!(fifth, fourth);
    assert_eq!(fifth.version(), 5);
}

#[test]
fn what_a_table_was_made_from_stays_as_it_was() {
    let tree = flat();
    let old = tree.topology();
    let pod = old.pod_of(Scope::Cache, 3).cloned();
    tree.write("cpu/online", "0");
    let new = changed(&old);
    assert_eq!(old.pod_of(Scope::Cache, 3), pod.as_ref());
    assert_eq!(new.pod_of(Scope::Cache, 3), None);
    // A number of the old machine is asked of the new one: unknown, so shared.
    assert!(new.shares_cache(0, 3));
}

#[test]
fn a_tree_that_is_gone_is_an_error_and_the_old_snapshot_stays() {
    let tree = flat();
    let topo = tree.topology();
    fs::remove_dir_all(tree.root().join("sys")).expect("the tree");
    let error = topo.refresh().expect_err("there is nothing to read");
    let root = tree.root().to_owned();
    assert_eq!(error, RefreshError::Sysfs(SysfsError::NotATree { root }));
    assert_eq!(topo.cpus().len(), 4);
}

#[test]
fn this_machine_is_refreshed_too() {
    let topo = Topology::discover().expect("this machine has a CPU");
    let now = match topo.refresh().expect("it still has one") {
        Refresh::Unchanged => topo.clone(),
        Refresh::Changed(new) => new,
    };
    assert_eq!(now.version(), if now == topo { 1 } else { 2 });
    assert!(now.is_this_machine());
}
