//! Descriptions that contradict themselves, or of which a part is missing: nothing of it passes
//! without a word.

use std::fs;

use inflight_topology::{Assumption, CpuSet, Scope, Topology};

use crate::tree::Tree;

fn set(list: &str) -> CpuSet {
    list.parse().expect("a good list")
}

fn caches(topo: &Topology) -> Vec<String> {
    let pods = topo.pods(Scope::Cache).iter();
    pods.map(|pod| pod.cpus().to_string()).collect()
}

/// The named CPUs are cores of their own in one package and on one node; their caches are missing.
fn cores(cpus: &str) -> Tree {
    let tree = Tree::new(cpus);
    for cpu in &set(cpus) {
        tree.core(cpu, &cpu.to_string(), 0);
    }
    tree.node(0, cpus);
    tree
}

/// Half of the CPUs lack the entry of the large cache, which is said to serve them too.
fn without_half_the_entries() -> Tree {
    let tree = cores("0-7");
    for cpu in 0..8 {
        let pair = cpu / 2 * 2;
        tree.cache(cpu, 0, 2, "Unified", &format!("{pair}-{}", pair + 1));
        if cpu < 4 {
            tree.cache(cpu, 1, 3, "Unified", "0-7");
        }
    }
    tree
}

#[test]
fn a_cache_below_one_that_serves_the_cpu_too_is_not_the_last() {
    let topo = without_half_the_entries().topology();
    assert_eq!(caches(&topo), ["0-7"]);
    let taken = Assumption::CacheUnknown { cpus: set("0-7") };
    assert_eq!(topo.assumptions(), [taken]);
}

/// The cache is shared by two threads, but of that they are threads of a core nothing is known.
#[test]
fn a_private_cache_is_found_out_without_the_threads_of_its_core() {
    let tree = cores("0-3");
    for cpu in 0..2 {
        tree.cache(cpu, 0, 3, "Unified", "0-3");
    }
    for cpu in 2..4 {
        tree.cache(cpu, 0, 2, "Unified", "2-3");
        tree.remove(&format!("cpu/cpu{cpu}/topology/thread_siblings_list"));
    }
    let topo = tree.topology();
    assert_eq!(caches(&topo), ["0-3"]);
    let taken = Assumption::CacheUnknown { cpus: set("0-3") };
    assert!(topo.assumptions().contains(&taken), "{topo}");
}

#[test]
fn what_is_shared_does_not_depend_on_who_asks() {
    for mask in ["0-7", "0-3", "4-7", "2,5,7", "6-7"] {
        let tree = without_half_the_entries();
        let status = format!("Cpus_allowed_list:\t{mask}");
        tree.write("../../../proc/self/status", &status);
        let topo = tree.topology();
        assert_eq!(topo.cpus(), &set(mask));
        assert_eq!(caches(&topo), [mask]);
        let taken = Assumption::CacheUnknown { cpus: set("0-7") };
        assert_eq!(topo.assumptions(), [taken], "{mask}");
    }
}

#[test]
fn the_threads_of_a_core_are_never_in_two_caches() {
    let tree = cores("0-11");
    for cpu in 0..12 {
        let pair = cpu / 2 * 2;
        tree.cache(cpu, 0, 3, "Unified", &format!("{pair}-{}", pair + 1));
    }
    for siblings in ["1,2", "5,8"] {
        for cpu in &set(siblings) {
            tree.core(cpu, siblings, 0);
        }
    }
    let topo = tree.topology();
    assert_eq!(caches(&topo), ["0-3", "4-5,8-9", "6-7", "10-11"]);
    let cpus = set("0-5,8-9");
    assert_eq!(topo.assumptions(), [Assumption::CoreAcrossCaches { cpus }]);
    for core in topo.pods(Scope::Smt) {
        let shards = topo.pods(Scope::CacheShard).iter();
        let whole = shards.filter(|shard| core.cpus().is_subset(shard.cpus()));
        assert_eq!(whole.count(), 1, "{core:?}");
    }
}

#[test]
fn cpus_that_are_online_are_possible_whatever_is_listed() {
    let tree = cores("0-3");
    for cpu in 0..4 {
        tree.cache(cpu, 0, 3, "Unified", "0-3");
    }
    let told = |unlisted: &str| {
        let topo = tree.topology();
        let cpus = set(unlisted);
        assert_eq!(topo.assumptions(), [Assumption::PossibleUnknown { cpus }]);
        assert!(topo.online().is_subset(topo.possible()));
    };
    tree.write("cpu/possible", "0,2-9");
    told("1");
    tree.remove("cpu/possible");
    told("0-3");
}

#[test]
fn a_cpu_of_both_kinds_of_core_is_of_unknown_speed() {
    let tree = cores("0-3");
    for cpu in 0..4 {
        tree.cache(cpu, 0, 3, "Unified", "0-3");
    }
    tree.write("../cpu_core/cpus", "0-2");
    tree.write("../cpu_atom/cpus", "2-3");
    let topo = tree.topology();
    let cpus = set("2");
    assert_eq!(topo.assumptions(), [Assumption::SpeedUnknown { cpus }]);
    assert_eq!(topo.speed_classes(), [set("0-3")]);
}

/// With the damaged mask taken for absent, more CPUs are usable than before.
#[test]
fn a_damaged_status_or_group_is_named() {
    let mount = "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
    for (file, text, reason) in [
        (
            "proc/self/status",
            &b"Cpus_allowed_list:\tgarbage\n"[..],
            "Cpus_allowed_list: item 1",
        ),
        (
            "proc/self/status",
            b"Cpus_allowed_list:\n",
            "Cpus_allowed_list: no CPU",
        ),
        ("proc/self/status", &[0xff, 0xfe, 0], "no line has \":\""),
        ("proc/self/cgroup", &[0xff, 0xfe, 0], "no line has \":\""),
        (
            "proc/self/mountinfo",
            &[0xff, 0xfe, 0],
            "no line has \" - \"",
        ),
        ("sys/fs/cgroup/a/cpuset.cpus.effective", b"0-zz\n", "item 1"),
    ] {
        let tree = cores("0-3");
        for cpu in 0..4 {
            tree.cache(cpu, 0, 3, "Unified", "0-3");
        }
        tree.write("../../../proc/self/status", "Cpus_allowed_list:\t1-2");
        tree.write("../../../proc/self/cgroup", "0::/a");
        tree.write("../../../proc/self/mountinfo", mount);
        tree.write("../../fs/cgroup/a/cpuset.cpus.effective", "0-2");
        assert_eq!(tree.topology().assumptions(), []);
        let path = tree.root().join(file);
        fs::write(&path, text).expect("a file");
        let topo = tree.topology();
        let [
            Assumption::Unreadable {
                first,
                reason: said,
                files: 1,
            },
        ] = topo.assumptions()
        else {
            panic!("{file}: {topo}");
        };
        assert_eq!(first, &path);
        assert!(said.contains(reason), "{said}");
    }
}
