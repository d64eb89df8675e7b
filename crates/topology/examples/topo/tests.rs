//! The program from its arguments to what it prints.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::process::Command;

use inflight_topology::{Assumption, Scope, Topology};
use serde_json::Value;

use super::run;

const BIG: &str = "numa:2 cache:2 core:6 smt:2";

fn topo(args: &[&str]) -> Result<String, String> {
    let args = ["topo"].iter().chain(args).map(OsString::from);
    let mut out = Vec::new();
    run(args, &mut out).map_err(|error| error.to_string())?;
    Ok(String::from_utf8(out).expect("the output is text"))
}

fn json(args: &[&str]) -> Value {
    let text = topo(&[args, &["--json"]].concat()).expect("a machine");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_described_machine_has_the_pods_of_its_description() {
    let machine = json(&["--synthetic", BIG]);
    assert_eq!(machine["cpus"], 48);
    let expected = [
        ("cpu", 48),
        ("smt", 24),
        ("cache_shard", 4),
        ("cache", 4),
        ("numa", 2),
        ("system", 1),
    ];
    for (scope, pods) in expected {
        let found = machine["scopes"][scope]["pods"].as_array().map(Vec::len);
        assert_eq!(found, Some(pods), "{scope}");
    }
    assert_eq!(
        machine["scopes"]["smt"]["pods"][1],
        serde_json::json!([1, 25])
    );
    assert_eq!(
        machine["scopes"]["cache"]["nodes"],
        serde_json::json!([0, 0, 1, 1])
    );
    assert_eq!(
        machine["scopes"]["system"]["nodes"],
        serde_json::json!([null])
    );
    assert_eq!(machine["assumptions"], serde_json::json!([]));
}

#[test]
fn the_layout_is_that_of_the_workqueue_dump() {
    let text = topo(&["--synthetic", "numa:2 core:2"]).expect("a machine");
    let cache = "\
CACHE (default)
  nr_pods  2
  pod_cpus [0]=00000003 [1]=0000000c
  pod_node [0]=0 [1]=1
  cpu_pod  [0]=0 [1]=0 [2]=1 [3]=1
";
    let start = "Affinity Scopes\n===============\nwq_unbound_cpumask=0000000f\n\nCPU\n";
    assert!(text.starts_with(start), "{text}");
    assert!(text.contains(&format!("\n\n{cache}\nNUMA\n")), "{text}");
    assert!(text.contains("\n\nSYSTEM\n  nr_pods  1\n"), "{text}");
    assert!(text.contains("  pod_node [0]=-1\n"), "{text}");
}

#[test]
fn masks_above_32_cpus_are_comma_groups() {
    let text = topo(&["--synthetic", BIG]).expect("a machine");
    assert!(text.contains("wq_unbound_cpumask=0000ffff,ffffffff\n"));
    assert!(text.contains("[3]=0000fc00,00fc0000\n"));
}

/// What `lscpu` says of one CPU, under the names of scopes.
fn lscpu() -> Option<BTreeMap<usize, [(Scope, String); 3]>> {
    let output = Command::new("lscpu").arg("-p=CPU,NODE,CORE,CACHE").output();
    let output = output.ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.map(|row| {
        let mut columns = row.split(',');
        let cpu = columns.next()?.parse().ok()?;
        let (node, core, caches) = (columns.next()?, columns.next()?, columns.next()?);
        let last_cache = caches.rsplit(':').next()?;
        let groups = [
            (Scope::Numa, node),
            (Scope::Smt, core),
            (Scope::Cache, last_cache),
        ];
        Some((cpu, groups.map(|(scope, group)| (scope, group.to_owned()))))
    })
    .collect()
}

#[test]
fn this_machine_is_the_one_lscpu_describes() {
    let topo = Topology::discover().expect("this machine has a CPU");
    let speed = |assumption: &Assumption| matches!(assumption, Assumption::SpeedUnknown { .. });
    let known = topo.assumptions().iter().all(speed);
    let Some(rows) = lscpu().filter(|_| known) else {
        eprintln!("skipped: no lscpu, or a machine that does not say all about itself");
        return;
    };
    for a in topo.cpus() {
        for b in topo.cpus() {
            for ((scope, of_a), (_, of_b)) in rows[&a].iter().zip(&rows[&b]) {
                if of_a.is_empty() || of_b.is_empty() {
                    continue; // lscpu does not know
                }
                let together = topo.pod_of(*scope, a) == topo.pod_of(*scope, b);
                assert_eq!(together, of_a == of_b, "scope {scope}, CPUs {a} and {b}");
            }
        }
    }
}

#[test]
fn this_machine_and_its_own_tree_are_the_same() {
    let topo = Topology::discover().expect("this machine has a CPU");
    if !cfg!(target_os = "linux") || topo.cpus() != topo.online() {
        eprintln!("skipped: no /sys, or not all CPUs are for this process");
        return;
    }
    let (ours, tree) = (json(&[]), json(&["--sysfs", "/sys"]));
    for part in [
        "cpus",
        "scopes",
        "online",
        "possible",
        "isolated",
        "assumptions",
    ] {
        assert_eq!(ours[part], tree[part], "{part}");
    }
    assert_eq!(ours["this_machine"], true);
    assert_eq!(tree["this_machine"], false);
}

#[test]
fn what_makes_no_machine_is_refused_in_one_line() {
    for (args, part) in [
        (&["--synthetic", "numa:0"][..], "`numa` must be at least 1"),
        (&["--synthetic", "numa:2 cores:4"], "cores"),
        (&["--synthetic", "numa:2\ncores:\n"], "cores"),
        (&["--synthetic", "core:5000"], "1024"),
        (&["--synthetic"], "--synthetic"),
        (&["--sysfs", "/no/such/tree"], "/no/such/tree"),
        (&["--sysfs", "/", "--synthetic", "core:1"], "--synthetic"),
        (
            &["--synthetic", "core:1", "--svg", "/no/such/file.svg"],
            "/no/such/file.svg",
        ),
        (&["--frobnicate"], "--frobnicate"),
        (&["machine"], "machine"),
    ] {
        let error = topo(args).expect_err("a refusal");
        assert!(error.contains(part), "{args:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{args:?}: {error}");
    }
    assert!(topo(&["--help"]).expect("help").contains("--synthetic"));
}

/// A recording in one file.
fn recording(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), text).expect("a file");
    file
}

const RECORDED: &str = "\
sys/devices/system/cpu/online\t0-3
sys/devices/system/cpu/possible\t0-5
sys/devices/system/cpu/isolated\t3
sys/devices/system/node/node0/cpulist\t0-3
";

#[test]
fn a_recording_in_one_file_is_a_machine() {
    let file = recording(RECORDED);
    let machine = json(&["--sysfs", &file.path().display().to_string()]);
    assert_eq!(machine["cpus"], 3);
    assert_eq!(machine["isolated"], serde_json::json!([3]));
    assert_ne!(machine["assumptions"], serde_json::json!([]));
}

#[test]
fn an_archive_is_to_be_unpacked_first() {
    let file = recording("");
    fs::write(file.path(), [0x1f, 0x8b, 0x08, 0x00]).expect("a file");
    let error = topo(&["--sysfs", &file.path().display().to_string()]).expect_err("no text");
    assert!(error.ends_with("no text: unpack it first"), "{error}");
}

#[test]
fn a_recording_that_is_none_is_refused() {
    for (text, part) in [
        ("../../outside\t1\n", "line 1 names no file of the tree"),
        (
            "sys/devices/a\t1\n/etc/outside\t1\n",
            "line 2 names no file of the tree",
        ),
        (
            "sys/devices/a\t1\nsys/devices/b 1\n",
            "line 2 is not a path",
        ),
        ("", "describes no CPU"),
    ] {
        let file = recording(text);
        let error = topo(&["--sysfs", &file.path().display().to_string()]).expect_err(text);
        assert!(error.contains(part), "{text:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

fn drawing(args: &[&str]) -> String {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("machine.svg");
    let svg = [
        "--svg",
        file.to_str().expect("a temporary directory has a name"),
    ];
    let printed = topo(&[args, &svg].concat()).expect("a drawing");
    assert_eq!(printed, "");
    fs::read_to_string(file).expect("the drawing")
}

#[test]
fn a_drawing_shows_each_cpu_core_cache_and_node_once() {
    let svg = drawing(&["--synthetic", BIG]);
    for cpu in 0..48 {
        let label = format!(">{cpu}</text>");
        assert_eq!(svg.matches(&label).count(), 1, "CPU {cpu}");
    }
    // One of each is in the legend.
    for (class, count) in [
        ("core", 24 + 1),
        ("cache", 4 + 1),
        ("node", 2 + 1),
        ("cpu", 48 + 1),
    ] {
        let class = format!("class=\"{class}\"");
        assert_eq!(svg.matches(&class).count(), count, "{class}");
    }
    for tag in ["svg", "g", "text", "title", "style"] {
        let opened =
            svg.matches(&format!("<{tag}>")).count() + svg.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, svg.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}

/// The drawing in the docs is the one the program makes.
#[test]
fn the_drawing_of_the_docs_is_up_to_date() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/topology.svg");
    let Ok(committed) = fs::read_to_string(docs) else {
        eprintln!("skipped: not in the repository");
        return;
    };
    assert!(drawing(&["--synthetic", BIG]) == committed, "draw it anew");
}

#[test]
fn a_drawing_marks_what_is_not_ordinary() {
    let file = recording(RECORDED);
    let svg = drawing(&["--sysfs", &file.path().display().to_string()]);
    assert!(svg.contains("CPU 3: isolated"), "{svg}");
    assert!(svg.contains("not in use: CPUs 3-5 (3)"), "{svg}");
    assert!(svg.contains("CPU 5: offline"), "{svg}");
    assert!(svg.contains("assumed:"), "{svg}");
    let svg = drawing(&["--synthetic", "core:8 slow:4-7 offline:7"]);
    assert!(svg.contains("CPU 4: slower thread; pods: numa 0"), "{svg}");
    assert!(svg.contains("CPU 7: offline"), "{svg}");
    let svg = drawing(&["--synthetic", BIG]);
    for class in ["offline", "isolated", "slow", "closed"] {
        assert!(!svg.contains(&format!("class=\"{class}\"")), "{class}");
    }
}

#[test]
fn a_drawing_and_json_go_together() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("machine.svg").display().to_string();
    let machine = json(&["--synthetic", "core:2", "--svg", &file]);
    assert_eq!(machine["cpus"], 2);
    assert!(
        fs::read_to_string(file)
            .expect("the drawing")
            .starts_with("<svg ")
    );
}
