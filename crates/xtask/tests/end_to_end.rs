//! The commands on a small workspace of their own: real Cargo, real processes, no dependencies.
//!
//! Its `inflight-sync` stands in for the real one: orderings are answered instead of used and a
//! model is a loop, so that every outcome is certain.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

const MANIFEST: &str = r#"
[workspace]
resolver = "3"
members = ["crates/sync", "crates/sbitmap"]
[workspace.lints.rust]
unexpected_cfgs = { level = "warn", check-cfg = ['cfg(loom)'] }
[profile.loom]
inherits = "dev"
"#;

const SYNC: &str = r#"
#![deny(missing_docs, dead_code)]
//! Stand-in.
/// Orderings and a fence that remembers.
pub mod atomic {
    pub use std::sync::atomic::Ordering;
    use std::cell::Cell;
    thread_local!(static LAST: Cell<Option<Ordering>> = const { Cell::new(None) });
    /// Remembers.
    pub fn fence(ordering: Ordering) { LAST.set(Some(ordering)); }
    /// What it remembers.
    pub fn last() -> Option<Ordering> { LAST.get() }
}
/// The other price.
pub mod asym {
    /// A fence of that ordering.
    pub struct AsymFence(pub super::atomic::Ordering);
    impl AsymFence {
        /// The frequent side.
        pub fn light(&self) { crate::atomic::fence(self.0); }
        /// The rare side.
        pub fn heavy(&self) { crate::atomic::fence(self.0); }
    }
}
pub mod wait;
/// Models.
#[cfg(loom)]
pub mod model {
    /// Runs the model.
    pub fn check(name: &str, times: u32, model: impl Fn()) {
        (0..times).for_each(|_| model());
        println!("model {name} bound 2 executions {times}");
    }
}
"#;

const WAIT: &str = r#"
//! Waiting.
use crate::atomic::{Ordering, fence};
/// Tells.
pub fn notify() { fence(Ordering::SeqCst); }
/// Tells often.
pub fn often(fence: &crate::asym::AsymFence) { fence.light(); }
"#;

const SBITMAP: &str = r#"
//! Stand-in.
use inflight_sync::atomic::Ordering;
/// Takes.
pub fn take() -> [Ordering; 2] { [Ordering::AcqRel, Ordering::Relaxed] }
/// Comes by, proves nothing.
pub fn lazy() -> Ordering { Ordering::Acquire }
/// Nobody comes by.
pub fn lonely() -> Ordering { Ordering::Release }
/// Not in any model.
#[cfg(not(loom))]
pub fn asm() -> Ordering { Ordering::Acquire }
"#;

const MODELS: &str = r#"
#![cfg(loom)]
use inflight_sync::asym::AsymFence;
use inflight_sync::{atomic::{Ordering, last}, model::check, wait::{notify, often}};
#[test]
fn h1_take() { check("h1_take", 7, || assert_eq!(sample_sbitmap::take()[0], Ordering::AcqRel)); }
#[test]
fn h2_i3_notify() {
    check("h2_i3_notify", 5, || {
        notify();
        assert_eq!(last(), Some(Ordering::SeqCst), "no full fence");
    });
}
#[test]
fn h5_often() {
    check("h5_often", 3, || {
        often(&AsymFence(Ordering::SeqCst));
        assert_eq!(last(), Some(Ordering::SeqCst), "no full fence");
    });
}
#[test]
fn lazy() { check("lazy", 2, || drop(sample_sbitmap::lazy())); }
"#;

const BAD_MODELS: &str = r#"
#![cfg(loom)]
use inflight_sync::model::check;
#[test]
fn h4_fails() { check("h4_fails", 3, || assert!(false, "lost wakeup")); }
#[test]
fn h5_aborts() { println!("before"); std::process::abort(); }
#[test]
fn h6_empty() { check("h6_empty", 1, || ()); }
#[test]
fn h7_silent() {}
#[test]
fn h8_endless() { loop { std::hint::spin_loop(); } }
#[test]
fn planted_bug() { panic!(); }
"#;

const MODELS_ABOVE: &str = r#"
#![cfg(loom)]
use inflight_sync::{atomic::Ordering, model::check};
#[test]
fn h9_take() { check("h9_take", 7, || assert_eq!(sample_sbitmap::take()[0], Ordering::AcqRel)); }
#[test]
fn h9_lonely() {
    check("h9_lonely", 7, || assert_eq!(sample_sbitmap::lonely(), Ordering::Release));
}
"#;

const ARGUED: &str = "
# Orderings
- survivor: `crates/sbitmap/src/lib.rs lazy Acquire #1 -> Relaxed`: needed by hardware only.
- survivor: `crates/sbitmap/src/lib.rs lonely Release #1 -> Relaxed`: nobody calls this yet.
- unmodelled: `crates/sbitmap/src/lib.rs asm Acquire #1`: the proof is in the document.
";

fn package(name: &str, more: &str) -> String {
    format!(
        "[package]\nname = \"{name}\"\nedition = \"2024\"\n\
         [lints]\nworkspace = true\n[dependencies]\n{more}"
    )
}

struct Sample {
    folder: TempDir,
}

impl Sample {
    fn new() -> Self {
        let sample = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        sample.write("Cargo.toml", MANIFEST);
        sample.write("crates/sync/Cargo.toml", &package("inflight-sync", ""));
        sample.write("crates/sync/src/lib.rs", SYNC);
        sample.write("crates/sync/src/wait.rs", WAIT);
        let door = "inflight-sync = { path = \"../sync\" }\n";
        sample.write(
            "crates/sbitmap/Cargo.toml",
            &package("sample-sbitmap", door),
        );
        sample.write("crates/sbitmap/src/lib.rs", SBITMAP);
        sample.write("crates/sbitmap/tests/loom_sample.rs", MODELS);
        sample
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The exit code and what was printed.
    fn run(&self, arguments: &[&str]) -> (i32, String) {
        let out = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(arguments)
            .current_dir(self.path())
            .env("CARGO_TARGET_DIR", self.path().join("target"))
            .env("CARGO_NET_OFFLINE", "true")
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let code = out.status.code().unwrap();
        assert!(code < 2, "{}", String::from_utf8_lossy(&out.stderr));
        (code, text)
    }

    fn json(&self, arguments: &[&str]) -> (i32, serde_json::Value) {
        let (code, text) = self.run(arguments);
        (code, serde_json::from_str(&text).unwrap())
    }
}

#[test]
fn models_are_run_and_judged() {
    let sample = Sample::new();
    let (code, text) = sample.run(&["models", "--require", "H1,I.3"]);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.contains("models: 4 of 4 passed, 17 executions"),
        "{text}"
    );
    let row = text.lines().find(|l| l.contains("h2_i3_notify")).unwrap();
    let cells: Vec<_> = row.split_whitespace().collect();
    assert_eq!(
        cells[..6],
        ["sample-sbitmap", "h2_i3_notify", "H2", "I.3", "2", "5"]
    );
    let (code, text) = sample.run(&["models", "--list", "--require", "H9"]);
    assert_eq!(code, 1, "{text}");

    sample.write("crates/sbitmap/tests/loom_bad.rs", BAD_MODELS);
    let (code, found) = sample.json(&["models", "--json", "--limit", "1", "--crate", "sbitmap"]);
    assert_eq!(code, 1);
    let results: Vec<(&str, &str)> = found["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| (m["model"].as_str().unwrap(), m["result"].as_str().unwrap()))
        .collect();
    let expected = [
        ("h4_fails", "FAILED"),
        ("h5_aborts", "FAILED"),
        ("h6_empty", "EMPTY"),
        ("h7_silent", "EMPTY"),
        ("h8_endless", "timeout"),
        ("h1_take", "ok"),
        ("h2_i3_notify", "ok"),
        ("h5_often", "ok"),
        ("lazy", "ok"),
    ];
    assert_eq!(results, expected);
    let message = found["models"][0]["message"].as_str().unwrap();
    assert!(message.ends_with("lost wakeup"), "{message}");
    assert!(message.contains("loom_bad.rs:5"), "{message}");
}

#[test]
fn mutants_are_killed_argued_or_reported() {
    let sample = Sample::new();
    let (code, text) = sample.run(&["mutants", "--list"]);
    assert_eq!(code, 0);
    let census = "all: 7 sites: 5 weakenable (8 mutants), 1 Relaxed, 1 not modelled";
    assert_eq!(text.lines().last().unwrap(), census, "{text}");

    let (code, found) = sample.json(&["mutants", "--json"]);
    assert_eq!(code, 1);
    assert_eq!(found["all"]["killed"], 6);
    assert_eq!(found["all"]["mutants"], 8);
    assert_eq!(found["unargued"].as_array().unwrap().len(), 3);
    let results: Vec<_> = found["mutants"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| {
            format!(
                "{} {}",
                m["weakened"].as_str().unwrap(),
                m["result"].as_str().unwrap()
            )
        })
        .collect();
    let expected = [
        "Acquire killed by h1_take",
        "Release killed by h1_take",
        "Relaxed survived 1 models",
        "Relaxed survived: no model comes by",
        "removed killed by h2_i3_notify",
        "fence(AcqRel) killed by h2_i3_notify",
        "removed killed by h5_often",
        "fence(AcqRel) killed by h5_often",
    ];
    assert_eq!(results, expected);

    sample.write("docs/orderings.md", ARGUED);
    let (code, text) = sample.run(&["mutants"]);
    assert_eq!(code, 0, "{text}");
    let sums = "all: killed 6 of 8, argued 2; beside them 1 Relaxed, 1 not modelled (1 argued)";
    assert_eq!(text.lines().last().unwrap(), sums);

    let stale = "- survivor: crates/sync/src/wait.rs notify fence(SeqCst) #1 -> removed: \
                 nobody needs it.\n";
    sample.write("docs/orderings.md", &format!("{ARGUED}{stale}"));
    let (code, text) = sample.run(&["mutants", "--filter", "notify"]);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("STALE docs/orderings.md:6: crates/sync/src/wait.rs notify"),
        "{text}"
    );
}

#[test]
fn what_survives_meets_the_models_of_the_crate_above() {
    let sample = Sample::new();
    let members = MANIFEST.replace("\"crates/sync\"", "\"crates/above\", \"crates/sync\"");
    sample.write("Cargo.toml", &members);
    let needs = "inflight-sync = { path = \"../sync\" }\n\
                 sample-sbitmap = { path = \"../sbitmap\" }\n";
    sample.write("crates/above/Cargo.toml", &package("sample-above", needs));
    sample.write("crates/above/src/lib.rs", "//! Stand-in.");
    sample.write("crates/above/tests/loom_above.rs", MODELS_ABOVE);

    let (code, text) = sample.run(&["mutants", "--filter", "sbitmap/src"]);
    assert_eq!(code, 1, "{text}");
    for result in [
        "killed by h1_take",
        "killed by h9_lonely",
        "survived 1 models",
        "killed 3 of 4",
    ] {
        assert!(text.contains(result), "no {result} in {text}");
    }
    assert!(!text.contains("h9_take"), "{text}");
}

#[test]
fn tidy_exits_by_what_it_finds() {
    let sample = Sample::new();
    let (code, text) = sample.run(&["tidy"]);
    assert_eq!(code, 1);
    assert!(
        text.contains("crates/sbitmap/src/lib.rs:5: ordering-comment: AcqRel"),
        "{text}"
    );
    assert!(text.contains("crates/sync/Cargo.toml:1: crate-files: the crate has no README.md"));
    fs::remove_dir_all(sample.path().join("crates")).unwrap();
    let (code, text) = sample.run(&["tidy"]);
    assert_eq!((code, text.as_str()), (0, "tidy: 0 findings in 1 files\n"));
}
