//! Machines with gaps, holes and contradictions, as written into temporary trees.

use std::fs;
use std::path::PathBuf;

use inflight_topology::{Assumption, CpuSet, Scope, SysfsError, Topology};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tempfile::TempDir;

use crate::synthetic::assert_partition;
use crate::tree::Tree;

fn pods(topo: &Topology, scope: Scope) -> Vec<String> {
    assert_partition(topo);
    topo.pods(scope)
        .iter()
        .map(|pod| pod.cpus().to_string())
        .collect()
}

fn set(list: &str) -> CpuSet {
    list.parse().expect("a good list")
}

/// The first damaged file, and how many there are.
fn damaged(topo: &Topology) -> Option<(PathBuf, usize)> {
    topo.assumptions().iter().find_map(|a| match a {
        Assumption::Unreadable { first, files, .. } => Some((first.clone(), *files)),
        _ => None,
    })
}

/// A small complete machine: 4 cores of 2 threads (CPU n and n + 4), 2 nodes, one L3 per node.
fn complete() -> Tree {
    let tree = Tree::new("0-7");
    tree.write("cpu/possible", "0-15");
    tree.write("cpu/isolated", "");
    for cpu in 0..8 {
        let core = cpu % 4;
        let (socket, siblings) = (core / 2, format!("{core},{}", core + 4));
        tree.core(cpu, &siblings, i64::from(core >= 2));
        tree.cache(cpu, 0, 1, "Data", &siblings);
        tree.cache(cpu, 1, 1, "Instruction", &siblings);
        tree.cache(cpu, 2, 2, "Unified", &siblings);
        let shared = if socket == 0 { "0-1,4-5" } else { "2-3,6-7" };
        tree.cache(cpu, 3, 3, "Unified", shared);
    }
    tree.node(0, "0-1,4-5");
    tree.node(1, "2-3,6-7");
    tree
}

#[test]
fn a_complete_machine_needs_no_assumption() {
    let topo = complete().topology();
    assert_eq!(topo.assumptions(), []);
    assert_eq!(pods(&topo, Scope::Smt), ["0,4", "1,5", "2,6", "3,7"]);
    assert_eq!(pods(&topo, Scope::Cache), ["0-1,4-5", "2-3,6-7"]);
    assert_eq!(pods(&topo, Scope::Numa), ["0-1,4-5", "2-3,6-7"]);
    assert_eq!(topo.possible(), &set("0-15"));
    assert!(topo.isolated().is_empty());
    assert_eq!(topo.nodes(), [0, 1]);
}

#[test]
fn a_flat_virtual_machine_without_caches_goes_by_package() {
    let tree = Tree::new("0-3");
    for cpu in 0..4 {
        tree.core(cpu, &cpu.to_string(), i64::from(cpu >= 2));
    }
    let topo = tree.topology();
    assert_eq!(pods(&topo, Scope::Cache), ["0-1", "2-3"]);
    assert_eq!(pods(&topo, Scope::Numa), ["0-3"]);
    assert_eq!(
        topo.assumptions(),
        [
            Assumption::CacheUnknown { cpus: set("0-3") },
            Assumption::NodeUnknown {
                cpus: set("0-3"),
                node: 0
            },
        ]
    );
    let text = topo.to_string();
    assert!(text.starts_with("recorded machine: 4 CPUs (0-3), 4 cores, 2 caches, 1 node"));
    for assumption in topo.assumptions() {
        assert!(text.contains(&assumption.to_string()));
    }
}

#[test]
fn a_machine_that_says_nothing_is_flat() {
    let topo = Tree::new("0-3").topology();
    assert_eq!(pods(&topo, Scope::Smt), ["0", "1", "2", "3"]);
    assert_eq!(pods(&topo, Scope::Cache), ["0-3"]);
    assert!(topo.shares_cache(0, 3));
    assert_eq!(
        topo.assumptions(),
        [
            Assumption::SiblingsUnknown { cpus: set("0-3") },
            Assumption::PackageUnknown { cpus: set("0-3") },
            Assumption::NodeUnknown {
                cpus: set("0-3"),
                node: 0
            },
            Assumption::SpeedUnknown { cpus: set("0-3") },
        ]
    );
}

#[test]
fn package_minus_one_is_unknown() {
    let tree = Tree::new("0-1");
    tree.core(0, "0", -1);
    tree.core(1, "1", -1);
    let topo = tree.topology();
    assert_eq!(pods(&topo, Scope::Cache), ["0-1"]);
    assert!(
        topo.assumptions()
            .contains(&Assumption::PackageUnknown { cpus: set("0-1") })
    );
}

#[test]
fn ids_may_be_sparse() {
    let tree = Tree::new("3,64,200-201");
    for (cpu, siblings, cache) in [
        (3, "3,64", "3,64"),
        (64, "3,64", "3,64"),
        (200, "200-201", "200-201"),
        (201, "200-201", "200-201"),
    ] {
        tree.core(cpu, siblings, 0);
        tree.cache(cpu, 0, 2, "Unified", cache);
    }
    tree.node(2, "3,64,200-201");
    let topo = tree.topology();
    assert_eq!(topo.assumptions(), []);
    assert_eq!(topo.cpus(), &set("3,64,200-201"));
    assert_eq!(pods(&topo, Scope::Cache), ["3,64", "200-201"]);
    assert_eq!(topo.pod_of(Scope::Cache, 201).map(|pod| pod.id()), Some(1));
    assert_eq!(topo.pod_of(Scope::Cache, 4), None);
    assert_eq!(topo.nodes(), [2]);
}

#[test]
fn an_offline_cpu_has_no_pod_even_where_others_still_list_it() {
    let tree = complete();
    tree.write("cpu/online", "0-4,6-7");
    fs::remove_dir_all(tree.path("cpu/cpu5/topology")).expect("the directory");
    fs::remove_dir_all(tree.path("cpu/cpu5/cache")).expect("the directory");
    let topo = tree.topology();
    assert_eq!(topo.assumptions(), []);
    assert_eq!(topo.online(), &set("0-4,6-7"));
    assert!(topo.possible().contains(5));
    assert_eq!(topo.pod_of(Scope::Cpu, 5), None);
    assert_eq!(pods(&topo, Scope::Smt), ["0,4", "1", "2,6", "3,7"]);
    assert_eq!(pods(&topo, Scope::Cache), ["0-1,4", "2-3,6-7"]);
}

#[test]
fn index_numbers_and_instruction_caches_do_not_count() {
    let tree = Tree::new("0-1");
    for cpu in 0..2 {
        tree.core(cpu, &cpu.to_string(), 0);
        tree.cache(cpu, 0, 2, "Unified", "0-1");
        tree.cache(cpu, 1, 1, "Data", &cpu.to_string());
        tree.cache(cpu, 7, 3, "Instruction", &cpu.to_string());
    }
    let topo = tree.topology();
    assert_eq!(pods(&topo, Scope::Cache), ["0-1"]);
    assert!(
        !topo
            .assumptions()
            .iter()
            .any(|a| matches!(a, Assumption::CacheUnknown { .. }))
    );
}

#[test]
fn garbage_counts_as_absent_and_is_reported() {
    let tree = complete();
    tree.write("cpu/cpu1/cache/index3/shared_cpu_list", "1-banana");
    tree.write("cpu/cpu2/topology/thread_siblings_list", "7-3");
    let topo = tree.topology();
    // CPU 1 says nothing believable, so its package is one cache; the other package is untouched.
    assert_eq!(pods(&topo, Scope::Cache), ["0-1,4-5", "2-3,6-7"]);
    assert_eq!(pods(&topo, Scope::Smt), ["0,4", "1,5", "2", "3,7", "6"]);
    assert!(topo.assumptions().contains(&Assumption::CacheUnknown {
        cpus: set("0-1,4-5")
    }));
    assert!(
        topo.assumptions()
            .contains(&Assumption::SiblingsUnknown { cpus: set("2") })
    );
    let first = tree.path("cpu/cpu1/cache/index3/shared_cpu_list");
    assert_eq!(damaged(&topo), Some((first, 2)));
}

#[test]
fn a_file_that_cannot_be_read_counts_as_absent_and_is_reported() {
    let tree = complete();
    let path = tree.path("cpu/cpu0/topology/physical_package_id");
    fs::remove_file(&path).expect("the file");
    // A directory in its place fails to be read for every user, root too.
    fs::create_dir(&path).expect("a directory");
    let topo = tree.topology();
    assert_eq!(damaged(&topo), Some((path, 1)));
    assert_eq!(topo.assumptions().len(), 1);
    assert_eq!(pods(&topo, Scope::Cache), ["0-1,4-5", "2-3,6-7"]);
}

#[test]
fn a_lower_level_never_stands_in_for_a_damaged_one() {
    for file in ["level", "type", "shared_cpu_list"] {
        let tree = complete();
        for cpu in 0..8 {
            tree.remove(&format!("cpu/cpu{cpu}/cache/index3/{file}"));
        }
        let topo = tree.topology();
        assert_eq!(
            pods(&topo, Scope::Cache),
            ["0-1,4-5", "2-3,6-7"],
            "without {file}"
        );
        assert!(
            topo.assumptions()
                .contains(&Assumption::CacheUnknown { cpus: set("0-7") })
        );
    }
}

#[test]
fn cpus_without_the_entry_of_their_neighbours_go_by_package() {
    let tree = Tree::new("0-3");
    for cpu in 0..4 {
        tree.core(cpu, &cpu.to_string(), 0);
        tree.cache(cpu, 0, 2, "Unified", &cpu.to_string());
    }
    tree.cache(0, 1, 3, "Unified", "0-3");
    tree.cache(1, 1, 3, "Unified", "0-3");
    tree.node(0, "0-3");
    let topo = tree.topology();
    assert_eq!(pods(&topo, Scope::Cache), ["0-3"]);
    assert_eq!(
        topo.assumptions(),
        [Assumption::CacheUnknown { cpus: set("0-3") }]
    );
}

#[test]
fn a_cluster_of_small_cores_without_the_big_cache_is_believed() {
    let tree = Tree::new("0-5");
    for cpu in 0..6 {
        tree.core(cpu, &cpu.to_string(), 0);
        if cpu < 4 {
            tree.cache(cpu, 0, 2, "Unified", &cpu.to_string());
            tree.cache(cpu, 1, 3, "Unified", "0-3");
        } else {
            tree.cache(cpu, 0, 2, "Unified", "4-5");
        }
    }
    tree.node(0, "0-5");
    let topo = tree.topology();
    assert_eq!(pods(&topo, Scope::Cache), ["0-3", "4-5"]);
    assert_eq!(topo.assumptions(), []);
}

#[test]
fn lists_that_are_not_mutual_are_intersected() {
    let tree = Tree::new("0-3");
    for (cpu, cache) in [(0, "0-3"), (1, "0-1"), (2, "2-3"), (3, "2-3")] {
        tree.core(cpu, &cpu.to_string(), 0);
        tree.cache(cpu, 0, 3, "Unified", cache);
    }
    tree.node(0, "0-3");
    let topo = tree.topology();
    assert_eq!(pods(&topo, Scope::Cache), ["0-1", "2-3"]);
    let disagree = Assumption::ListsDisagree {
        scope: Scope::Cache,
        cpus: set("0"),
    };
    assert_eq!(topo.assumptions(), [disagree]);
}

#[test]
fn a_claim_that_a_lower_cpu_does_not_return_is_not_sharing() {
    let tree = Tree::new("0-3");
    for (cpu, cache) in [(0, "0-1"), (1, "0-1"), (2, "1-3"), (3, "2-3")] {
        tree.core(cpu, &cpu.to_string(), 0);
        tree.cache(cpu, 0, 3, "Unified", cache);
    }
    let topo = tree.topology();
    assert_eq!(pods(&topo, Scope::Cache), ["0-1", "2-3"]);
    let disagree = Assumption::ListsDisagree {
        scope: Scope::Cache,
        cpus: set("2"),
    };
    assert!(topo.assumptions().contains(&disagree));
}

#[test]
fn a_group_without_its_own_cpu_is_damaged() {
    let tree = complete();
    tree.write("cpu/cpu2/topology/thread_siblings_list", "6");
    tree.write("cpu/cpu3/cache/index3/shared_cpu_list", "");
    let topo = tree.topology();
    assert!(
        topo.assumptions()
            .contains(&Assumption::SiblingsUnknown { cpus: set("2") })
    );
    assert!(topo.assumptions().contains(&Assumption::CacheUnknown {
        cpus: set("2-3,6-7")
    }));
    let first = tree.path("cpu/cpu2/topology/thread_siblings_list");
    assert_eq!(damaged(&topo), Some((first, 2)));
}

#[test]
fn a_cpu_without_a_node_or_with_two_goes_to_the_first() {
    let tree = complete();
    tree.node(0, "0-1,4");
    tree.node(1, "1-3,6-7");
    let topo = tree.topology();
    assert_eq!(pods(&topo, Scope::Numa), ["0-1,4-5", "2-3,6-7"]);
    assert_eq!(
        topo.assumptions(),
        [
            Assumption::ListsDisagree {
                scope: Scope::Numa,
                cpus: set("1")
            },
            Assumption::NodeUnknown {
                cpus: set("5"),
                node: 0
            },
        ]
    );
}

#[test]
fn memory_only_nodes_are_not_nodes_of_cpus() {
    let tree = complete();
    tree.node(2, "");
    let topo = tree.topology();
    assert_eq!(topo.nodes(), [0, 1]);
    assert_eq!(topo.assumptions(), []);
}

#[test]
fn masks_serve_where_lists_are_missing() {
    let tree = complete();
    for cpu in 0..8 {
        let core = cpu % 4;
        tree.remove(&format!("cpu/cpu{cpu}/topology/thread_siblings_list"));
        let siblings = CpuSet::from([core, core + 4]).to_mask_string();
        tree.write(&format!("cpu/cpu{cpu}/topology/thread_siblings"), &siblings);
        tree.remove(&format!("cpu/cpu{cpu}/cache/index3/shared_cpu_list"));
        let shared = if core < 2 { "00000033" } else { "cc" };
        tree.write(&format!("cpu/cpu{cpu}/cache/index3/shared_cpu_map"), shared);
    }
    tree.remove("node/node1/cpulist");
    tree.write("node/node1/cpumap", "00000000,000000cc");
    let (topo, reference) = (tree.topology(), complete().topology());
    assert_eq!(topo.assumptions(), []);
    for scope in Scope::ALL {
        assert_eq!(topo.pods(scope), reference.pods(scope), "{scope}");
    }
}

#[test]
fn directories_serve_where_the_online_list_is_missing_or_damaged() {
    for online in [None, Some(""), Some("banana")] {
        let tree = complete();
        match online {
            None => tree.remove("cpu/online"),
            Some(text) => tree.write("cpu/online", text),
        }
        tree.write("cpu/cpu6/online", "1");
        tree.write("cpu/cpu7/online", "0");
        tree.write("cpu/cpufreq/boost", "1");
        let topo = tree.topology();
        assert_eq!(topo.cpus(), &set("0-6"), "{online:?}");
        let unknown = Assumption::OnlineUnknown { cpus: set("0-6") };
        assert!(topo.assumptions().contains(&unknown), "{online:?}");
    }
}

#[test]
fn isolated_cpus_are_shown() {
    let tree = complete();
    tree.write("cpu/isolated", "6-7");
    let topo = tree.topology();
    assert_eq!(topo.isolated(), &set("6-7"));
}

/// A machine that may get more CPUs than it has.
#[test]
fn cpus_that_were_never_there_are_not_called_offline() {
    let tree = complete();
    tree.write("cpu/possible", "0-127");
    let text = tree.topology().to_string();
    assert!(text.contains("\nnot online: CPUs 8-127"), "{text}");
}

#[test]
fn what_is_no_tree_is_an_error() {
    let dir = TempDir::new().expect("a temporary directory");
    let root = dir.path().to_owned();
    let error = Topology::from_sysfs(&root).expect_err("an empty directory");
    assert_eq!(error, SysfsError::NotATree { root: root.clone() });
    fs::create_dir_all(root.join("devices/system/cpu")).expect("a directory");
    let error = Topology::from_sysfs(&root).expect_err("a tree without CPUs");
    assert_eq!(error, SysfsError::NoCpus { root });
}

/// A pipe with nobody at its other end, and one whose writer says nothing.
#[cfg(target_os = "linux")]
#[test]
fn a_pipe_in_a_tree_is_a_damaged_file() {
    let tree = complete();
    let mut writers = Vec::new();
    for (file, has_writer) in [("cpu/isolated", false), ("cpu/possible", true)] {
        tree.remove(file);
        let path = tree.path(file);
        let name = path.to_str().expect("plain letters").to_owned() + "\0";
        // SAFETY: the call reads the text up to its zero, which was put there.
        let made = unsafe { libc::mkfifo(name.as_ptr().cast(), 0o600) };
        assert_eq!(made, 0);
        if has_writer {
            let mut both_ways = fs::OpenOptions::new();
            let both_ways = both_ways.read(true).write(true);
            writers.push(both_ways.open(path).expect("a pipe"));
        }
    }
    let topo = tree.topology();
    assert_eq!(damaged(&topo), Some((tree.path("cpu/possible"), 2)));
    assert!(topo.to_string().contains("(not a regular file)"), "{topo}");
    assert_eq!(topo.cpus(), &set("0-7"));
}

#[test]
fn a_recorded_machine_is_not_this_machine() {
    assert!(!complete().topology().is_this_machine());
}

/// Whatever nonsense the files hold, each CPU has exactly one pod per scope.
#[test]
fn any_damage_leaves_a_partition() {
    // One tree for all cases: to write it takes longer than all else.
    let tree = complete();
    let text = "[0-9]{1,2}(-[0-9]{1,2})?|x|";
    let damage = vec((0..8_usize, 0..5_usize, text), 0..12);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(64));
    let outcome = runner.run(&damage, |damage| {
        let mut before = Vec::new();
        for (cpu, file, text) in damage {
            let file = match file {
                0 => format!("cpu/cpu{cpu}/topology/thread_siblings_list"),
                1 => format!("cpu/cpu{cpu}/topology/physical_package_id"),
                2 => format!("cpu/cpu{cpu}/cache/index3/shared_cpu_list"),
                3 => format!("cpu/cpu{cpu}/cache/index3/level"),
                _ => format!("node/node{}/cpulist", cpu % 2),
            };
            let path = tree.path(&file);
            before.push((fs::read(&path).expect("a file of the whole machine"), path));
            tree.write(&file, &text);
        }
        let topo = Topology::from_sysfs(tree.root());
        for (text, path) in before.into_iter().rev() {
            fs::write(path, text).expect("a file");
        }
        let topo = topo.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(topo.cpus(), &set("0-7"));
        assert_partition(&topo);
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(tree.topology(), complete().topology(), "the damage stayed");
}
