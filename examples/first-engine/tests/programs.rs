//! The programs run, and the book's chapter shows them as they are.

use std::process::{Command, Output};

fn run(program: &str) -> Output {
    Command::new(program).output().expect("it can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

fn prints(program: &str, expected: &str) {
    let output = run(program);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), expected);
}

/// What the engines print: they count the lines of the file `Cargo.toml` of their folder.
fn lines() -> String {
    format!("{} lines", include_str!("../Cargo.toml").lines().count())
}

#[test]
fn an_engine_on_threads() {
    prints(env!("CARGO_BIN_EXE_on_threads"), &lines());
}

#[test]
fn an_engine_on_tokio() {
    prints(env!("CARGO_BIN_EXE_on_tokio"), &lines());
}

#[test]
fn an_engine_on_io_uring() {
    if let Err(error) = io_uring::IoUring::new(8) {
        return println!("skipped: no ring can be had here: {error}");
    }
    prints(env!("CARGO_BIN_EXE_on_io_uring"), &lines());
}

#[test]
fn an_engine_with_a_ring_for_each_cpu() {
    if let Err(error) = io_uring::IoUring::new(9) {
        return println!("skipped: no ring can be had here: {error}");
    }
    let topo = inflight::prelude::Topology::discover().expect("a machine");
    prints(env!("CARGO_BIN_EXE_per_core"), &lines());
    for cpu in topo.cpus().iter().take(4) {
        // The program inherits the mask: a machine of one CPU, whose number need not be 0.
        let one = inflight::prelude::CpuSet::from([cpu]);
        let _pin = topo.pin_current_thread(&one).expect("a usable CPU");
        prints(env!("CARGO_BIN_EXE_per_core"), &lines());
    }
}

#[test]
fn a_request_of_a_slow_worker_is_answered_in_time() {
    prints(env!("CARGO_BIN_EXE_slow_worker"), "Err(\"timed out\")");
}

#[test]
fn an_engine_ends() {
    prints(env!("CARGO_BIN_EXE_ending"), "0 requests in flight");
}

#[test]
fn the_chapter_shows_the_programs() {
    let page = include_str!("../../../docs/first-engine.md");
    let programs = [
        include_str!("../src/bin/on_threads.rs"),
        include_str!("../src/bin/on_tokio.rs"),
        include_str!("../src/bin/on_io_uring.rs"),
        include_str!("../src/bin/per_core.rs"),
        include_str!("../src/bin/slow_worker.rs"),
        include_str!("../src/bin/ending.rs"),
    ];
    let shown: Vec<_> = page.split("```rust\n").skip(1).collect();
    assert_eq!(shown.len(), programs.len());
    for (shown, program) in shown.iter().zip(programs) {
        assert!(
            shown.starts_with(&format!("{program}```\n")),
            "not the same:\n{program}"
        );
    }
}
