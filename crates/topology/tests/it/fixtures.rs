//! The trees `tests/fixtures/synthetic-*`: machines that could not be had, so nothing of them is
//! recorded.
//!
//! Each is described in one line below and was written by `Topology::write_sysfs`; the test writes
//! it again and compares. With `INFLIGHT_WRITE_FIXTURES` set, it replaces the files first.

use std::fs;
use std::path::{Path, PathBuf};

use inflight_topology::{Assumption, Scope, Topology};
use tempfile::TempDir;

/// Name, description, parts of the paths of files that are left out.
const SYNTHETIC: [(&str, &str, &[&str]); 4] = [
    ("synthetic-split-llc", "cache:2 core:2 smt:2", &[]),
    ("synthetic-huge-llc", "core:12", &[]),
    (
        "synthetic-hybrid",
        "core:6 smt:2,2,1,1,1,1 fast:0-1,6-7",
        &[],
    ),
    ("synthetic-no-cache", "numa:2 core:2", &["/cache/"]),
];

fn fixture(name: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    fixtures.join(format!("{name}.txt"))
}

/// The files of a described machine as lines of path, tab and text, in the form in which
/// `ci/record-topology` records one.
fn text_of(description: &str, without: &[&str]) -> String {
    let root = TempDir::new().expect("a temporary directory");
    let topo = Topology::synthetic(description).expect("a good description");
    topo.write_sysfs(root.path()).expect("a tree");
    let mut lines = Vec::new();
    let mut dirs = vec![root.path().to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                dirs.push(path);
                continue;
            }
            let name = path.strip_prefix(root.path()).expect("below the root");
            let name = name.to_str().expect("plain letters");
            if without.iter().any(|&part| name.contains(part)) {
                continue;
            }
            let text = fs::read_to_string(&path).expect("a text");
            lines.push(format!("{name}\t{text}"));
        }
    }
    lines.sort();
    lines.concat()
}

#[test]
fn synthetic_trees_are_what_their_descriptions_say() {
    for (name, description, without) in SYNTHETIC {
        let text = text_of(description, without);
        if std::env::var_os("INFLIGHT_WRITE_FIXTURES").is_some() {
            fs::write(fixture(name), &text).expect("a fixture");
        }
        let committed = fs::read_to_string(fixture(name)).expect("a fixture");
        assert_eq!(committed, text, "{name}: {description}");
    }
}

fn read(name: &str) -> Topology {
    let text = fs::read_to_string(fixture(name)).expect("a fixture");
    let root = TempDir::new().expect("a temporary directory");
    for line in text.lines() {
        let (file, text) = line.split_once('\t').expect("a path, a tab, a text");
        let file = root.path().join(file);
        fs::create_dir_all(file.parent().expect("below the root")).expect("a directory");
        fs::write(file, format!("{text}\n")).expect("a file");
    }
    Topology::from_sysfs(root.path()).expect("a good tree")
}

fn pods(topo: &Topology, scope: Scope) -> Vec<String> {
    topo.pods(scope)
        .iter()
        .map(|pod| pod.cpus().to_string())
        .collect()
}

#[test]
fn two_caches_in_one_package() {
    let topo = read("synthetic-split-llc");
    assert_eq!(pods(&topo, Scope::Cache), ["0-1,4-5", "2-3,6-7"]);
    assert_eq!(pods(&topo, Scope::Numa), ["0-7"]);
    assert_eq!(topo.assumptions(), []);
}

#[test]
fn one_large_cache_in_two_shards() {
    let topo = read("synthetic-huge-llc");
    assert_eq!(pods(&topo, Scope::Cache), ["0-11"]);
    assert_eq!(pods(&topo, Scope::CacheShard), ["0-5", "6-11"]);
}

#[test]
fn fast_cores_with_two_threads_and_slow_ones_with_one() {
    let topo = read("synthetic-hybrid");
    assert_eq!(pods(&topo, Scope::Smt), ["0,6", "1,7", "2", "3", "4", "5"]);
    assert!(topo.shares_cache(0, 5) && topo.speed_of(0) > topo.speed_of(5));
    assert_eq!(topo.speed_of(0), topo.speed_of(7));
}

#[test]
fn without_caches_the_packages_count() {
    let topo = read("synthetic-no-cache");
    assert_eq!(pods(&topo, Scope::Cache), ["0-1", "2-3"]);
    let cpus = topo.cpus().clone();
    assert_eq!(topo.assumptions(), [Assumption::CacheUnknown { cpus }]);
}
