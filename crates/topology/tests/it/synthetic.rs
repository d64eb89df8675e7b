use inflight_topology::{CpuSet, ParseCpuSetError, Scope, SyntheticError, Topology};
use proptest::collection::vec;
use proptest::prelude::*;

fn machine(description: &str) -> Topology {
    Topology::synthetic(description).expect("a good description")
}

/// The pods of a scope as text, with their nodes.
fn pods(topo: &Topology, scope: Scope) -> Vec<(String, Option<usize>)> {
    topo.pods(scope)
        .iter()
        .map(|pod| (pod.cpus().to_string(), pod.node()))
        .collect()
}

fn on(node: usize, cpus: &str) -> (String, Option<usize>) {
    (cpus.to_owned(), Some(node))
}

#[test]
fn two_nodes_two_caches_six_cores_two_threads() {
    let topo = machine("numa:2 cache:2 core:6 smt:2");
    let caches = [
        on(0, "0-5,24-29"),
        on(0, "6-11,30-35"),
        on(1, "12-17,36-41"),
        on(1, "18-23,42-47"),
    ];
    assert_eq!(topo.cpus().to_string(), "0-47");
    assert_eq!(pods(&topo, Scope::Cpu).len(), 48);
    assert_eq!(pods(&topo, Scope::Cpu)[36], on(1, "36"));
    assert_eq!(pods(&topo, Scope::Smt).len(), 24);
    assert_eq!(pods(&topo, Scope::Smt)[23], on(1, "23,47"));
    assert_eq!(pods(&topo, Scope::CacheShard), caches);
    assert_eq!(pods(&topo, Scope::Cache), caches);
    assert_eq!(
        pods(&topo, Scope::Numa),
        [on(0, "0-11,24-35"), on(1, "12-23,36-47")]
    );
    assert_eq!(pods(&topo, Scope::System), [("0-47".to_owned(), None)]);
    assert_eq!(topo.nodes(), [0, 1]);
    assert!(topo.shares_cache(0, 24) && topo.shares_cache(5, 29));
    assert!(!topo.shares_cache(5, 6) && !topo.shares_cache(0, 47));
}

#[test]
fn one_big_cache_is_cut_into_shards_of_whole_cores() {
    let topo = machine("core:20 smt:2");
    assert_eq!(pods(&topo, Scope::Cache), [on(0, "0-39")]);
    let shards = [
        on(0, "0-6,20-26"),
        on(0, "7-13,27-33"),
        on(0, "14-19,34-39"),
    ];
    assert_eq!(pods(&topo, Scope::CacheShard), shards);
}

#[test]
fn shards_of_every_core_count_follow_the_table() {
    let table: &[(usize, &[usize])] = &[
        (1, &[1]),
        (9, &[9]),
        (11, &[11]),
        (12, &[6, 6]),
        (13, &[7, 6]),
        (16, &[8, 8]),
        (20, &[7, 7, 6]),
        (24, &[8, 8, 8]),
        (32, &[8, 8, 8, 8]),
        (36, &[8, 7, 7, 7, 7]),
        (59, &[9, 9, 9, 8, 8, 8, 8]),
        (60, &[8, 8, 8, 8, 7, 7, 7, 7]),
        (72, &[8; 9]),
        (96, &[8; 12]),
    ];
    for (cores, sizes) in table {
        let topo = machine(&format!("core:{cores}"));
        let shards = topo
            .pods(Scope::CacheShard)
            .iter()
            .map(|pod| pod.cpus().len());
        assert!(shards.eq(sizes.iter().copied()), "{cores} cores");
    }
}

#[test]
fn shards_restart_in_every_cache() {
    let topo = machine("cache:2 core:12");
    let shards = [on(0, "0-5"), on(0, "6-11"), on(0, "12-17"), on(0, "18-23")];
    assert_eq!(pods(&topo, Scope::CacheShard), shards);
}

#[test]
fn a_single_cpu_is_a_pod_of_every_scope() {
    let topo = machine("core:1");
    for scope in Scope::ALL {
        let node = if scope == Scope::System {
            None
        } else {
            Some(0)
        };
        assert_eq!(pods(&topo, scope), [("0".to_owned(), node)], "{scope}");
    }
}

#[test]
fn keys_stand_in_any_order_and_default_to_one() {
    let reference = machine("numa:2 cache:1 core:3 smt:2");
    let other = machine("  smt:2\tcore:3\nnuma:2 ");
    for scope in Scope::ALL {
        assert_eq!(reference.pods(scope), other.pods(scope), "{scope}");
    }
}

#[test]
fn unknown_numbers_have_no_pod_and_share_with_everyone() {
    let topo = machine("cache:2 core:2");
    for scope in Scope::ALL {
        for cpu in [4, 63, 64, 65_536, usize::MAX] {
            assert_eq!(topo.pod_of(scope, cpu), None);
        }
    }
    assert_eq!(topo.node_of(4), None);
    assert!(topo.shares_cache(0, 4) && topo.shares_cache(usize::MAX, 0));
    assert!(topo.shares_cache(4, 5));
}

#[test]
fn bad_descriptions_say_what_is_wrong() {
    use SyntheticError::{Duplicate, Empty, Malformed, TooLarge, UnknownKey, Zero};
    for (text, error) in [
        ("", Empty),
        (" \n", Empty),
        (
            "cpu:4",
            UnknownKey {
                key: "cpu".to_owned(),
            },
        ),
        (
            "Core:4",
            UnknownKey {
                key: "Core".to_owned(),
            },
        ),
        ("core:0", Zero { key: "core" }),
        ("smt:2 core:2 smt:2", Duplicate { key: "smt" }),
        (
            "core",
            Malformed {
                item: "core".to_owned(),
            },
        ),
        (
            "core:",
            Malformed {
                item: "core:".to_owned(),
            },
        ),
        (
            "core:+4",
            Malformed {
                item: "core:+4".to_owned(),
            },
        ),
        (
            "core:4,smt:2",
            Malformed {
                item: "core:4,smt:2".to_owned(),
            },
        ),
        ("core:1025", TooLarge),
        ("numa:2 core:513", TooLarge),
        ("core:99999999999999999999999", TooLarge),
        ("numa:4294967296 cache:4294967296 core:4294967296", TooLarge),
    ] {
        assert_eq!(Topology::synthetic(text).err(), Some(error), "{text:?}");
    }
    assert_eq!(machine("numa:8 cache:8 core:8 smt:2").cpus().len(), 1024);
}

#[test]
fn bad_lists_say_what_is_wrong() {
    use SyntheticError::{
        BadList, Duplicate, FastAndSlow, NoCpuLeft, NoSuchCpu, TooLarge, WrongLength, Zero,
    };
    let wrong = |key, given, needed| WrongLength { key, given, needed };
    let absent = |key, cpu| NoSuchCpu { key, cpu };
    let bad = |key, error| BadList { key, error };
    for (text, error) in [
        ("numa:1,2", wrong("numa", 2, 1)),
        ("numa:3 cache:1,2", wrong("cache", 2, 3)),
        ("numa:2 cache:1,2 core:4,4", wrong("core", 2, 3)),
        ("core:2 smt:1,2,1", wrong("smt", 3, 2)),
        ("core:2 smt:2,0", Zero { key: "smt" }),
        ("cache:2 core:1000,25", TooLarge),
        ("core:4 offline:4", absent("offline", 4)),
        ("core:4 fast:0-9", absent("fast", 4)),
        (
            "core:4 slow:x",
            bad("slow", ParseCpuSetError::NotANumber { item: 1 }),
        ),
        (
            "core:4 isolated:3-1",
            bad("isolated", ParseCpuSetError::Reversed { item: 1 }),
        ),
        ("core:4 fast:0 fast:1", Duplicate { key: "fast" }),
        ("core:4 fast:0-2 slow:2-3", FastAndSlow { cpu: 2 }),
        ("core:4 offline:0-3", NoCpuLeft),
        ("core:4 offline:0-1 isolated:2-3", NoCpuLeft),
    ] {
        assert_eq!(Topology::synthetic(text).err(), Some(error), "{text:?}");
    }
}

#[test]
fn uneven_machines_have_one_count_for_each() {
    let topo = machine("numa:2 cache:1,2 core:3,1,2 smt:2,2,2,1,1,1");
    // Cores 0-2 have second threads: CPUs 6 to 8.
    assert_eq!(topo.cpus().to_string(), "0-8");
    assert_eq!(
        pods(&topo, Scope::Cache),
        [on(0, "0-2,6-8"), on(1, "3"), on(1, "4-5")]
    );
    assert_eq!(pods(&topo, Scope::Numa), [on(0, "0-2,6-8"), on(1, "3-5")]);
    let smt = [
        on(0, "0,6"),
        on(0, "1,7"),
        on(0, "2,8"),
        on(1, "3"),
        on(1, "4"),
        on(1, "5"),
    ];
    assert_eq!(pods(&topo, Scope::Smt), smt);
}

#[test]
fn offline_and_isolated_cpus_are_in_no_pod() {
    let topo = machine("cache:2 core:2 smt:2 offline:5 isolated:2,6");
    assert_eq!(topo.cpus().to_string(), "0-1,3-4,7");
    assert_eq!(topo.possible().to_string(), "0-7");
    assert_eq!(topo.online().to_string(), "0-4,6-7");
    assert_eq!(topo.isolated().to_string(), "2,6");
    assert_eq!(topo.allowed(), topo.online());
    assert_eq!(
        pods(&topo, Scope::Smt),
        [on(0, "0,4"), on(0, "1"), on(0, "3,7")]
    );
    assert_eq!(pods(&topo, Scope::Cache), [on(0, "0-1,4"), on(0, "3,7")]);
    assert_eq!(topo.assumptions(), []);
    for cpu in [2, 5, 6] {
        assert_eq!(topo.pod_of(Scope::Cpu, cpu), None);
    }
    assert!(topo.shares_cache(0, 5), "offline: unknown");
    assert!(!topo.shares_cache(0, 6), "isolated: in the other cache");
}

#[test]
fn a_whole_cache_may_be_offline() {
    let topo = machine("numa:2 cache:2 core:2 offline:0-3");
    assert_eq!(topo.nodes(), [1]);
    assert_eq!(pods(&topo, Scope::Cache), [on(1, "4-5"), on(1, "6-7")]);
    assert_eq!(topo.node_distance(1, 0), Some(20));
}

#[test]
fn speed_classes_are_ranks_from_the_slowest() {
    let classes = |text| -> Vec<String> {
        machine(text)
            .speed_classes()
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    assert_eq!(classes("core:8"), ["0-7"]);
    assert_eq!(classes("core:8 fast:0-3"), ["4-7", "0-3"]);
    assert_eq!(classes("core:8 slow:4-7"), ["4-7", "0-3"]);
    assert_eq!(classes("core:8 fast:0 slow:6-7"), ["6-7", "1-5", "0"]);
    assert_eq!(classes("core:8 fast:0 offline:0"), ["1-7"]);
    let topo = machine("core:8 fast:0 slow:6-7");
    let rank = |cpu| topo.speed_of(cpu).map(|class| class.rank());
    assert_eq!(
        [rank(6), rank(3), rank(0), rank(8)],
        [Some(0), Some(1), Some(2), None]
    );
}

#[test]
fn a_topology_is_cheap_to_share() {
    fn shared<T: Clone + Send + Sync + 'static>(_: &T) {}
    let topo = machine("core:2");
    shared(&topo);
    assert!(std::ptr::eq(topo.clone().cpus(), topo.cpus()));
}

/// Each CPU in exactly one pod, and all three ways of asking agree.
pub(crate) fn assert_partition(topo: &Topology) {
    for scope in Scope::ALL {
        let mut seen = CpuSet::new();
        for (id, pod) in topo.pods(scope).iter().enumerate() {
            assert_eq!(pod.id(), id);
            assert!(!pod.cpus().is_empty());
            assert!(
                pod.cpus().is_disjoint(&seen),
                "{scope} pod {id} overlaps an earlier one"
            );
            seen = seen.union(pod.cpus());
            for cpu in pod.cpus() {
                assert_eq!(topo.pod_of(scope, cpu), Some(pod));
            }
            let node = pod.cpus().last().and_then(|cpu| topo.node_of(cpu));
            assert_eq!(pod.node(), if scope == Scope::System { None } else { node });
        }
        assert_eq!(&seen, topo.cpus(), "{scope}");
        let firsts: Vec<_> = topo
            .pods(scope)
            .iter()
            .map(|pod| pod.cpus().first())
            .collect();
        assert!(
            firsts.is_sorted(),
            "{scope} pods are numbered by their lowest CPU"
        );
    }
}

/// Narrower scopes lie within wider ones.
fn assert_nested(topo: &Topology) {
    for pair in Scope::ALL.windows(2) {
        for pod in topo.pods(pair[0]) {
            let cpu = pod.cpus().first().expect("a pod has a CPU");
            let wider = topo.pod_of(pair[1], cpu).expect("the same CPU");
            assert!(
                pod.cpus().is_subset(wider.cpus()),
                "{} in {}",
                pair[0],
                pair[1]
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pods_partition_every_regular_machine(
        nodes in 1..5_usize, caches in 1..5_usize, cores in 1..22_usize, threads in 1..5_usize,
    ) {
        prop_assume!(nodes * caches * cores * threads <= 1024);
        let topo =
            machine(&format!("core:{cores} numa:{nodes} smt:{threads} cache:{caches}"));
        assert_partition(&topo);
        assert_nested(&topo);
        prop_assert_eq!(topo.cpus().len(), nodes * caches * cores * threads);
        prop_assert_eq!(topo.pods(Scope::Smt).len(), nodes * caches * cores);
        prop_assert_eq!(topo.pods(Scope::Cache).len(), nodes * caches);
        prop_assert_eq!(topo.nodes().len(), nodes);
        for pod in topo.pods(Scope::Smt) {
            prop_assert_eq!(pod.cpus().len(), threads);
        }
        // The answer by arithmetic: thread t of core c is CPU t * all + c.
        let all = nodes * caches * cores;
        for a in topo.cpus() {
            prop_assert_eq!(topo.node_of(a), Some(a % all / (caches * cores)));
            for b in topo.cpus().iter().step_by(7) {
                let same = a % all / cores == b % all / cores;
                prop_assert_eq!(topo.shares_cache(a, b), same);
            }
        }
    }

}

proptest! {
    // Each case writes hundreds of files.
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Described, written as a tree, read back: the same machine.
    #[test]
    fn every_machine_survives_the_reader(
        caches in vec(1..4_usize, 1..3), cores in 1..14_usize, threads in 1..4_usize,
        offline in vec(0..6_usize, 0..3), isolated in vec(0..6_usize, 0..3), fast in 0..9_usize,
    ) {
        let join = |counts: &[usize]| -> String {
            counts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        };
        let nodes = caches.len();
        let all: usize = caches.iter().sum::<usize>() * cores * threads;
        let cpus = |ids: &[usize]| ids.iter().copied().filter(|&cpu| cpu < all).collect::<CpuSet>();
        let text = format!(
            "numa:{nodes} cache:{} core:{cores} smt:{threads} offline:{} isolated:{} fast:{}",
            join(&caches), cpus(&offline), cpus(&isolated), CpuSet::from(0..fast.min(all)),
        );
        let Ok(topo) = Topology::synthetic(&text) else {
            prop_assert!(all <= 6, "{}", text);
            return Ok(());
        };
        let read = written_and_read(&topo);
        prop_assert_eq!(&read, &topo, "{}", text);
        assert_partition(&read);
    }
}

fn written_and_read(topo: &Topology) -> Topology {
    let dir = tempfile::tempdir().expect("a temporary directory");
    topo.write_sysfs(dir.path()).expect("a tree");
    Topology::from_sysfs(dir.path()).expect("a machine")
}

#[test]
fn a_node_whose_cpus_are_all_offline_keeps_its_distances() {
    let topo = machine("numa:2 core:1 offline:0");
    assert_eq!(topo.node_distance(1, 0), Some(20));
    assert_eq!(written_and_read(&topo), topo);
}
