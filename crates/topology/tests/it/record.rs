//! `ci/record-topology`: what it records of this machine is this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use inflight_topology::{Scope, Topology};
use tempfile::TempDir;

/// The script, where the whole repository is at hand.
fn script() -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/record-topology");
    let there = cfg!(target_os = "linux") && script.is_file();
    if !there {
        eprintln!("skipped: not Linux, or not in the repository");
    }
    there.then_some(script)
}

fn record(script: &Path, to: &Path) -> Output {
    let mut command = Command::new("sh");
    command.arg(script).arg(to);
    command.output().expect("a shell")
}

fn assert_same(recorded: &Topology, topo: &Topology) {
    assert_eq!(recorded.cpus(), topo.cpus());
    assert_eq!(recorded.online(), topo.online());
    assert_eq!(recorded.possible(), topo.possible());
    assert_eq!(recorded.isolated(), topo.isolated());
    assert_eq!(recorded.nodes(), topo.nodes());
    assert_eq!(recorded.speed_classes(), topo.speed_classes());
    for scope in Scope::ALL {
        assert_eq!(recorded.pods(scope), topo.pods(scope), "{scope}");
    }
    for a in topo.nodes() {
        for b in topo.nodes() {
            let (ours, theirs) = (topo.node_distance(*a, *b), recorded.node_distance(*a, *b));
            assert_eq!(ours, theirs, "nodes {a} and {b}");
        }
    }
    // Some name files, which are elsewhere in the recorded tree.
    assert_eq!(recorded.assumptions().len(), topo.assumptions().len());
}

#[test]
fn a_recorded_directory_is_this_machine() {
    let Some(script) = script() else { return };
    let dir = TempDir::new().expect("a temporary directory");
    let tree = dir.path().join("a/machine");
    let output = record(&script, &tree);
    assert!(output.status.success(), "{output:?}");
    let recorded = Topology::from_sysfs(&tree).expect("a machine");
    let topo = Topology::discover().expect("this machine has a CPU");
    assert_same(&recorded, &topo);
}

#[test]
fn every_form_holds_the_same_files() {
    let Some(script) = script() else { return };
    let dir = TempDir::new().expect("a temporary directory");
    let [tree, archive, text] =
        ["machine", "machine.tar.gz", "machine.txt"].map(|name| dir.path().join(name));
    for to in [&tree, &archive, &text] {
        let output = record(&script, to);
        assert!(output.status.success(), "{output:?}");
    }
    let unpacked = dir.path().join("unpacked");
    fs::create_dir(&unpacked).expect("a directory");
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(&archive).arg("-C").arg(&unpacked);
    assert!(tar.status().expect("tar").success());
    let text = fs::read_to_string(&text).expect("the text");
    for line in text.lines() {
        let (path, content) = line.split_once('\t').expect("a path, a tab, a text");
        for root in [&tree, &unpacked] {
            let file = fs::read_to_string(root.join(path)).expect(path);
            assert_eq!(file.trim_end(), content, "{path}");
        }
    }
    assert!(text.contains("sys/devices/system/cpu/online\t"), "{text}");
}

#[test]
fn what_cannot_be_written_is_refused_in_one_line() {
    let Some(script) = script() else { return };
    let dir = TempDir::new().expect("a temporary directory");
    fs::write(dir.path().join("file"), "").expect("a file");
    for name in [
        "machine.tgz",
        "machine.json",
        "machine.txt.gz",
        "file/machine.txt",
    ] {
        let output = record(&script, &dir.path().join(name));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert_eq!(said.lines().count(), 1, "{name}: {said}");
    }
    let output = record(&script, &dir.path().join("new/machine.txt"));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn what_is_there_is_not_overwritten() {
    let Some(script) = script() else { return };
    let dir = TempDir::new().expect("a temporary directory");
    let output = record(&script, dir.path());
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("exists already"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}
