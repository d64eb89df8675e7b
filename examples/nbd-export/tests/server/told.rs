//! What the server tells its user: messages and metrics.

use crate::{Server, engines, figure, free_address, noise, refused, scrape};
use nbd_export::proto;
use std::collections::HashMap;

/// `force` sends each completion through the worker of the CPU that submitted, `inline` none.
/// Without a ring, writes of an only client are done at once, so 16 reads are all that is steered.
#[test]
fn completions_go_on_where_they_are_steered() {
    for engine in engines() {
        let modes = [("inline", "seen"), ("force", "submitter")];
        for ((mode, cpu), alone) in modes.into_iter().flat_map(|m| [(m, true), (m, false)]) {
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
            let _other = (!alone).then(|| server.connect());
            let large = noise(1 << 20);
            assert_eq!(client.write(0, &large, proto::flag::FUA), 0);
            assert!(client.read_at(0, 1 << 20) == large);
            let counts = ["seen", "submitter"].map(|where_to| {
                let name = format!("nbd_completions_total{{cpu=\"{where_to}\"");
                let count = figure(&address, &name);
                (count, where_to == cpu)
            });
            let said = server.stop();
            let at_once = alone && said.contains("serving by psync");
            for (count, goes_on) in counts {
                let steered = if at_once { 16 } else { 32 };
                let expected = if goes_on { steered } else { 0 };
                assert_eq!(count, expected, "{engine}, {mode}: {said}");
            }
        }
    }
}

/// What may take long is not done by the thread that serves the client, also for files in memory:
/// it is steered to it when it has ended.
#[test]
fn reading_ahead_and_freeing_memory_are_for_others() {
    for engine in engines() {
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
            return;
        };
        let address = free_address();
        let more = ["--metrics", &address, "--steer", "inline"];
        let server = Server::start_in(folder, engine, "disk=disk", &more);
        let mut client = server.connect().go("disk");
        assert_eq!(client.write(0, &[1; 4096], 0), 0);
        for (n, command) in [4, 5, 6].into_iter().enumerate() {
            client.send(command, 0, 0, 4096, &[]);
            assert_eq!(client.error(), 0);
            let steered = figure(&address, "nbd_completions_total{cpu=\"seen\"");
            assert_eq!(steered, n as u64 + 1, "{engine}: command {command}");
        }
        assert_eq!(client.read_at(0, 4096), [0; 4096]);
        server.stop();
    }
}

#[test]
fn metrics_are_for_prometheus_and_workqueues_for_their_monitor() {
    let address = free_address();
    let odd = "od\\d \"\u{e9}\u{301}\n'";
    let second = format!("{odd}=big");
    let more = [
        "--metrics",
        &address,
        "--serve",
        "wq.sock",
        "--export",
        &second,
    ];
    let faults = ["--faults", "again=2", "--steer", "inline"];
    let server = Server::start("auto", "disk=disk", &[&more[..], &faults].concat());
    let mut client = server.connect().go("disk");
    for n in 0..4 {
        assert_eq!(client.write(n * 4096, &[1; 4096], proto::flag::FUA), 0);
    }
    let page = scrape(&address);
    let (head, body) = page.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let families = families(body);
    let value = |family: &str, name: &str, label: &str| {
        let samples = &families
            .get(family)
            .unwrap_or_else(|| panic!("{family} in {page}"));
        let of =
            |sample: &&Sample| sample.name == name && sample.labels.iter().any(|l| l.1 == label);
        let sample = samples.iter().find(of);
        sample
            .unwrap_or_else(|| panic!("{name} {label} in {page}"))
            .value
    };
    assert_eq!(value("nbd_writes_total", "nbd_writes_total", "disk"), 4.0);
    assert_eq!(value("nbd_writes_total", "nbd_writes_total", odd), 0.0);
    assert_eq!(
        value("nbd_requeued_total", "nbd_requeued_total", "disk"),
        3.0
    );
    assert_eq!(
        value("nbd_flush_issued_total", "nbd_flush_issued_total", "disk"),
        4.0
    );
    for name in ["deferred", "forced", "withdrawn"] {
        let name = format!("nbd_flush_{name}_total");
        assert_eq!(value(&name, &name, "disk"), 0.0);
    }
    assert_eq!(
        value("nbd_flush_seconds", "nbd_flush_seconds_count", "disk"),
        4.0
    );
    assert_eq!(
        value("nbd_flush_seconds", "nbd_flush_seconds_bucket", "+Inf"),
        4.0
    );
    let depths = &families["inflight_tags_depth"];
    assert!(depths.iter().all(|sample| sample.value == 128.0));
    assert_eq!(depths.len(), 1, "both exports are on one disk");
    assert!(server.path("wq.sock").exists());
    server.stop();
}

struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

/// A page of metrics, read as strictly as its format is described: all samples of a family are in
/// one group, behind the one line that says its type.
fn families(page: &str) -> HashMap<String, Vec<Sample>> {
    let mut families = HashMap::new();
    let (mut family, mut is_histogram) = (String::new(), false);
    for line in page.lines().filter(|line| !line.is_empty()) {
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, kind) = typed.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(!families.contains_key(name), "a second group: {line}");
            (family, is_histogram) = (name.to_owned(), kind == "histogram");
            families.insert(family.clone(), Vec::new());
        } else if !line.starts_with('#') {
            let sample = sample(line);
            let rest = sample.name.strip_prefix(&family);
            let fits = match is_histogram {
                true => ["_bucket", "_sum", "_count"].map(Some).contains(&rest),
                false => rest == Some(""),
            };
            assert!(
                fits,
                "{line} is of no family, or not beside its own ({family})"
            );
            families.get_mut(&family).unwrap().push(sample);
        }
    }
    families
}

/// `name{label="value",...} number`, where a backslash stands before backslashes and quotes in
/// values, and for a line's end.
fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(end);
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    assert!(name.chars().all(word), "{line}");
    let mut labels = Vec::new();
    while !rest.starts_with(['}', ' ']) {
        let (label, quoted) = rest[1..].split_once("=\"").unwrap();
        assert!(label.chars().all(word), "{line}");
        let (mut value, mut chars) = (String::new(), quoted.char_indices());
        rest = loop {
            match chars.next().unwrap() {
                (at, '"') => break &quoted[at + 1..],
                (_, '\\') => value.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    c @ ('"' | '\\') => c,
                    c => panic!("\\{c} in {line}"),
                }),
                (_, c) => value.push(c),
            }
        };
        labels.push((label.to_owned(), value));
    }
    let value = rest.trim_start_matches('}').trim().parse().unwrap();
    let name = name.to_owned();
    Sample {
        name,
        labels,
        value,
    }
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
