//! Machines of unequal cores, and machines of which a process may use a part.

use inflight_topology::steering::{Steering, decide};
use inflight_topology::{Assumption, CpuSet, Scope, SysfsError, Topology};

use crate::tree::Tree;

fn tree(capacities: &[&str]) -> Tree {
    let tree = Tree::new(&CpuSet::from(0..capacities.len()).to_string());
    for (cpu, capacity) in capacities.iter().enumerate() {
        tree.core(cpu, &cpu.to_string(), 0);
        match *capacity {
            "" => tree.remove(&format!("cpu/cpu{cpu}/cpu_capacity")),
            text => tree.write(&format!("cpu/cpu{cpu}/cpu_capacity"), text),
        }
    }
    tree
}

fn classes(topo: &Topology) -> Vec<String> {
    topo.speed_classes()
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn speed_unknown(topo: &Topology) -> Option<String> {
    topo.assumptions().iter().find_map(|made| match made {
        Assumption::SpeedUnknown { cpus } => Some(cpus.to_string()),
        _ => None,
    })
}

#[test]
fn capacities_are_ranked() {
    for (capacities, expected) in [
        (["1024", "1024", "1024", "1024"], vec!["0-3"]),
        (["446", "446", "1024", "1024"], vec!["0-1", "2-3"]),
        (["1024", "250", "871", "250"], vec!["1,3", "2", "0"]),
    ] {
        let topo = tree(&capacities).topology();
        assert_eq!(classes(&topo), expected, "{capacities:?}");
        assert_eq!(speed_unknown(&topo), None);
    }
}

#[test]
fn half_a_comparison_is_none() {
    for bad in ["", "fast", "-3"] {
        let topo = tree(&["446", "446", "1024", bad]).topology();
        assert_eq!(classes(&topo), ["0-3"], "{bad:?}");
        assert_eq!(speed_unknown(&topo), Some("3".to_owned()), "{bad:?}");
    }
}

#[test]
fn kinds_of_core_serve_where_capacities_say_nothing() {
    for capacity in ["", "1024"] {
        let tree = tree(&[capacity; 4]);
        tree.write("../cpu_core/cpus", "0-1");
        tree.write("../cpu_atom/cpus", "2-3");
        let topo = tree.topology();
        assert_eq!(classes(&topo), ["2-3", "0-1"], "{capacity:?}");
        assert_eq!(speed_unknown(&topo), None, "{capacity:?}");
    }
    let tree = tree(&["1", "2", "3", "4"]);
    tree.write("../cpu_core/cpus", "0-1");
    assert_eq!(classes(&tree.topology()), ["0", "1", "2", "3"]);
}

#[test]
fn a_cpu_of_neither_kind_is_of_unknown_speed() {
    let tree = tree(&[""; 4]);
    tree.write("../cpu_core/cpus", "0");
    tree.write("../cpu_atom/cpus", "1-2");
    let topo = tree.topology();
    assert_eq!(classes(&topo), ["0-3"]);
    assert_eq!(speed_unknown(&topo), Some("3".to_owned()));
}

#[test]
fn a_recorded_process_has_its_mask_and_its_group() {
    let tree = tree(&["1024"; 4]);
    tree.write("cpu/isolated", "0");
    assert_eq!(tree.topology().cpus().to_string(), "1-3");
    tree.write(
        "../../../proc/self/status",
        "Name:\tx\nCpus_allowed_list:\t0,2",
    );
    let mount = "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
    tree.write("../../../proc/self/mountinfo", mount);
    tree.write("../../../proc/self/cgroup", "0::/jobs/a");
    tree.write("../../fs/cgroup/jobs/cpuset.cpus.effective", "0-2,9");
    let topo = tree.topology();
    assert_eq!(topo.cpus().to_string(), "0,2");
    assert_eq!(topo.allowed().to_string(), "0-2");
    assert_eq!(topo.online().to_string(), "0-3");
}

#[test]
fn a_group_narrower_than_the_mask_is_an_old_one() {
    // The mask was read after the group had changed, or the other way round.
    let tree = tree(&["1024"; 4]);
    tree.write("../../../proc/self/status", "Cpus_allowed_list:\t2-3");
    let mount = "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
    tree.write("../../../proc/self/mountinfo", mount);
    tree.write("../../../proc/self/cgroup", "0::/");
    tree.write("../../fs/cgroup/cpuset.cpus.effective", "0-2");
    let topo = tree.topology();
    assert_eq!(topo.cpus().to_string(), "2-3");
    assert!(topo.cpus().is_subset(topo.allowed()));
}

#[test]
fn a_tree_whose_only_file_is_damaged_is_an_error_that_names_it() {
    let tree = Tree::new("0-3,banana");
    let error = Topology::from_sysfs(tree.root()).expect_err("no CPU is described");
    let SysfsError::BadFile { file, reason } = &error else {
        panic!("{error}");
    };
    assert_eq!(file, &tree.path("cpu/online"));
    assert_eq!(
        reason,
        "item 2 of the CPU list is neither a number nor a range"
    );
    assert!(
        error.to_string().contains("cpu/online is damaged: item 2"),
        "{error}"
    );
}

#[test]
fn a_damaged_file_is_named_with_what_is_wrong() {
    for (file, text, reason) in [
        (
            "cpu/cpu1/topology/thread_siblings_list",
            "2-3",
            "the CPU is not in its own group",
        ),
        (
            "cpu/cpu1/topology/physical_package_id",
            "x",
            "invalid digit found in string",
        ),
        (
            "cpu/cpu1/cpu_capacity",
            "-1",
            "invalid digit found in string",
        ),
        ("cpu/cpu1/cache/index0/type", "Magic", "no type of cache"),
        (
            "cpu/isolated",
            "3-1",
            "item 1 of the CPU list ends before it begins",
        ),
        (
            "node/node0/cpulist",
            "0x3",
            "item 1 of the CPU list is neither a number nor a range",
        ),
    ] {
        let tree = tree(&["1024"; 4]);
        tree.cache(1, 0, 3, "Unified", "0-3");
        tree.write(file, text);
        let text = tree.topology().to_string();
        let path = tree.path(file);
        let named = format!("first {} ({reason}", path.display());
        assert!(text.contains(&named), "{named} in {text}");
    }
}

#[test]
fn a_limited_process_survives_being_written_down() {
    let tree = tree(&["446", "446", "1024", "1024"]);
    for cpu in 0..4 {
        tree.cache(cpu, 0, 3, "Unified", if cpu < 2 { "0-1" } else { "2-3" });
    }
    tree.node(0, "0-1");
    tree.node(1, "2-3");
    tree.write("../../../proc/self/status", "Cpus_allowed_list:\t1");
    let mount = "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
    tree.write("../../../proc/self/mountinfo", mount);
    tree.write("../../../proc/self/cgroup", "0::/");
    tree.write("../../fs/cgroup/cpuset.cpus.effective", "1-2");
    let topo = tree.topology();
    let root = tempfile::tempdir().expect("a temporary directory");
    topo.write_sysfs(root.path()).expect("a tree");
    assert_eq!(Topology::from_sysfs(root.path()), Ok(topo));
}

#[test]
fn a_second_tree_is_not_written_over_the_first() {
    let root = tempfile::tempdir().expect("a temporary directory");
    let (first, second) = ("numa:2 core:2", "core:3");
    let [first, second] =
        [first, second].map(|text| Topology::synthetic(text).expect("a good description"));
    first.write_sysfs(root.path()).expect("a tree");
    let error = second.write_sysfs(root.path()).expect_err("it is taken");
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(Topology::from_sysfs(root.path()), Ok(first));
}

/// Whoever polls on a CPU kept out of scheduling relies on what it shares.
#[test]
fn cpus_that_cannot_be_used_are_described_too() {
    let topo = Topology::synthetic("numa:2 core:4 isolated:5 offline:6 fast:4-5").expect("good");
    assert_eq!(topo.node_of(5), Some(1));
    assert!(topo.shares_cache(4, 5) && !topo.shares_cache(0, 5));
    assert_eq!(topo.speed_of(5), topo.speed_of(4));
    assert_eq!(
        topo.pod_of(Scope::Cache, 5),
        None,
        "pods are for usable CPUs"
    );
    assert_eq!((topo.node_of(6), topo.speed_of(6)), (None, None));
    assert!(topo.shares_cache(0, 6));
    let here = decide(5, 0, Steering::SameCache, &topo, true);
    assert_eq!(here.redirect(), Some(0));
    assert_eq!(
        decide(0, 5, Steering::Force, &topo, true).redirect(),
        Some(5)
    );
    assert!(decide(0, 6, Steering::Force, &topo, true).is_inline());
}

/// A container may see the directories of its own CPUs only, or parts of others.
#[test]
fn half_a_description_of_a_closed_cpu_changes_nothing() {
    for part in ["", "topology/physical_package_id", "cpu_capacity"] {
        let tree = Tree::new("0-3");
        for cpu in 0..2 {
            tree.core(cpu, &cpu.to_string(), 0);
            tree.cache(cpu, 0, 3, "Unified", &cpu.to_string());
        }
        tree.node(0, "0-3");
        tree.write("../../../proc/self/status", "Cpus_allowed_list:\t0-1");
        if !part.is_empty() {
            tree.write(&format!("cpu/cpu3/{part}"), "0");
        }
        let topo = tree.topology();
        assert_eq!(topo.assumptions(), [], "{part:?}");
        assert_eq!(topo.pods(Scope::Cache).len(), 2, "{part:?}");
        assert!(topo.shares_cache(0, 3), "{part:?}: unknown");
    }
}
