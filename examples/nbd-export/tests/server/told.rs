//! What the server tells its user: messages and metrics.

use crate::{Server, engines, figure, free_address, noise, scrape};
use nbd_export::proto;
use std::process::{Command, Output};

/// `force` sends each completion through the worker of the CPU that submitted, `inline` none.
/// Writes of an only client are done at once, so 16 reads are all that is steered then.
#[test]
fn completions_go_on_where_they_are_steered() {
    for engine in engines() {
        let modes = [("inline", "seen"), ("force", "submitter")];
        for ((mode, cpu), steered) in modes.into_iter().flat_map(|m| [(m, 16), (m, 32)]) {
            let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let address = free_address();
            let more = [
                "--steer",
                mode,
                "--metrics",
                &address,
                "--max-split",
                "64",
                "--threads",
                "1",
            ];
            let server = Server::start_in(folder, engine, "disk=disk", &more);
            let mut client = server.connect().go("disk");
            let _other = (steered == 32).then(|| server.connect());
            let large = noise(1 << 20);
            assert_eq!(client.write(0, &large, proto::flag::FUA), 0);
            assert!(client.read_at(0, 1 << 20) == large);
            for where_to in ["seen", "submitter"] {
                let name = format!("nbd_completions_total{{cpu=\"{where_to}\"}}");
                let expected = if where_to == cpu { steered } else { 0 };
                assert_eq!(
                    figure(&address, &name),
                    expected,
                    "{engine}, {mode}: {where_to}"
                );
            }
            server.stop();
        }
    }
}

#[test]
fn metrics_are_for_prometheus_and_workqueues_for_their_monitor() {
    let address = free_address();
    let more = ["--metrics", &address, "--serve", "wq.sock"];
    let server = Server::start("auto", "disk=disk", &more);
    let mut client = server.connect().go("disk");
    assert_eq!(client.write(0, &[1; 4096], proto::flag::FUA), 0);
    let page = scrape(&address);
    for line in [
        "nbd_writes_total{export=\"disk\"} 1",
        "nbd_flush_issued_total{export=\"disk\"} 1",
        "nbd_flush_seconds_count{export=\"disk\"} 1",
        "inflight_tags_depth{set=\"nbd\"} 128",
    ] {
        assert!(page.contains(line), "{line} is missing in {page}");
    }
    assert!(server.path("wq.sock").exists());
    server.stop();
}

fn refused(arguments: &str) -> String {
    let Output { status, stderr, .. } = Command::new(env!("CARGO_BIN_EXE_nbd-export"))
        .args(arguments.split_whitespace())
        .output()
        .unwrap();
    assert_eq!(status.code(), Some(2), "{arguments}");
    String::from_utf8(stderr).unwrap()
}

#[test]
fn bad_input_is_told_in_a_line() {
    for (arguments, word) in [
        (
            "--export disk=/nonexistent --unix /tmp/never.sock",
            "/nonexistent",
        ),
        ("--export disk --unix x", "NAME=FILE"),
        (
            "--export disk=/dev/null --unix x",
            "neither a file nor a block device",
        ),
        ("--export a=/etc/hostname,ro", "--unix"),
        ("--unix x", "--export"),
        (
            "--export a=/etc/hostname,ro --export a=/etc/passwd,ro --unix x",
            "two exports are called a",
        ),
    ] {
        let said = refused(arguments);
        assert!(said.contains(word), "{arguments}: {said}");
    }
}
