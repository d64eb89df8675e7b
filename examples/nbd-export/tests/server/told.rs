//! What the server tells its user: messages and metrics.

use crate::client::{Client, Stream};
use crate::{
    Server, addresses, engines, figure, free_address, noise, refused, refused_with, scrape,
};
use nbd_export::proto;
use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

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
            let _other = (!alone).then(|| server.connect().go("disk"));
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

#[test]
fn the_port_of_the_metrics_is_told() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let more = ["--metrics", "127.0.0.1:0"];
    let server = Server::start_in(folder, engines()[0], "disk=disk", &more);
    let said = server.stop();
    let at = said.split("metrics at http://").nth(1);
    let at = at.and_then(|rest| rest.split("/metrics").next());
    let at: std::net::SocketAddr = at.expect("it is told").parse().unwrap();
    assert_ne!(at.port(), 0);
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

/// One line names the option and the value; at most a hint follows.
#[test]
fn bad_input_is_told_in_a_line() {
    for (arguments, words) in [
        (
            "--export disk=/nonexistent --unix /tmp/never.sock",
            &["/nonexistent"][..],
        ),
        (
            "--export disk --unix x",
            &["--export", "'disk'", "NAME=FILE"],
        ),
        (
            "--export disk=/dev/null --unix x",
            &["/dev/null", "neither a file nor a block device"],
        ),
        ("--export a=/etc/hostname,ro", &["--unix", "--listen"]),
        (
            "--export a=/etc/hostname,ro --listen nowhere",
            &["--listen nowhere: "],
        ),
        ("--unix x", &["--export"]),
        (
            "--export a=/etc/hostname,ro --export a=/etc/passwd,ro --unix x",
            &["two exports are called a"],
        ),
        (
            "--export a=b,rw --unix x",
            &["--export", "a=b,rw", "\"rw\" is none of ro"],
        ),
        (
            "--export a=b,weight=0 --unix x",
            &["--export", "weight=0", "from 1 to 10000"],
        ),
        (
            "--export a=b,key= --unix x",
            &["--export", "key= ", "names no file"],
        ),
        (
            "--export a=b,format --unix x",
            &["--export", "format goes with"],
        ),
        (
            "--export a=b --unix x --engine steam",
            &["--engine", "'steam'", "psync"],
        ),
        (
            "--export a=b --unix x --depth 0",
            &["--depth", "'0'", "1..=10240"],
        ),
        (
            "--export a=b --unix x --max-connections 0",
            &["--max-connections", "'0'"],
        ),
        (
            "--export a=b --unix x --threads many",
            &["--threads", "'many'"],
        ),
        (
            "--export a=b --unix x --faults reed=1",
            &["--faults", "reed=1"],
        ),
        (
            "--export a=b --unix x --faults read=0",
            &["--faults", "\"read=0\": N is a whole number from 1"],
        ),
        (
            "--export a=b --unix x --unx y",
            &["--unx", "; tip: ", "--unix"],
        ),
        ("--export a=b --unix x y", &["'y'"]),
        ("--export a=b --unix", &["--unix", "value is required"]),
    ] {
        let said = refused(arguments);
        let mut lines = said.lines();
        let line = lines.next().unwrap_or_default();
        assert!(line.starts_with("nbd-export: "), "{arguments}: {said}");
        for word in words {
            assert!(line.contains(word), "{arguments}: {said}");
        }
        let hint = lines.next();
        assert!(hint.is_none_or(|hint| hint.contains("--help")), "{said}");
        assert_eq!(lines.next(), None, "{said}");
    }
}

/// Which of two would count is nothing to guess at.
#[test]
fn what_is_said_twice_is_refused() {
    for (arguments, twice) in [
        ("--export a=b,ro,ro", "ro"),
        ("--export a=b,weight=1,weight=2", "weight"),
        ("--export a=b,key=c,key=d", "key"),
        ("--export a=b,key=c,format,format", "format"),
        ("--export a=b,passphrase=c,passphrase=c", "passphrase"),
        ("--export a=b --faults read=1,read=2", "read"),
        ("--export a=b --faults export=a,export=b", "export"),
    ] {
        let said = refused(&format!("{arguments} --unix x"));
        let expected = format!("{twice} is given twice");
        assert!(said.contains(&expected), "{arguments}: {said}");
    }
    let said = refused("--export a=b,key=c,passphrase=d --unix x");
    assert!(
        said.contains("key and passphrase exclude each other"),
        "{said}"
    );
}

/// A name is not a line of the log, nor an order to the terminal.
#[test]
fn names_are_printed_in_a_line() {
    let server = Server::start("auto", "a\nb\u{1b}[31m=disk", &[]);
    drop(server.connect().go("a\nb\u{1b}[31m"));
    let said = server.stop();
    assert!(said.contains("a\\nb\\u{1b}[31m lies on disk"), "{said}");
    assert!(
        said.lines().all(|line| line.starts_with("nbd-export: ")),
        "{said}"
    );
    let said = refused_with(&["--export", "x=no\nfile", "--unix", "x"]);
    assert!(
        said.lines().all(|line| line.starts_with("nbd-export: ")),
        "{said}"
    );
}

#[test]
fn help_that_cannot_be_printed_is_an_error() {
    for option in ["--help", "--version"] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_nbd-export"));
        let output = command.arg(option).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{option}");
        let said = String::from_utf8_lossy(&output.stderr);
        let expected = "nbd-export: printing the help: No space left on device";
        assert!(said.starts_with(expected), "{option}: {said}");
    }
}

/// What is printed can be given to clients as it is.
#[test]
fn addresses_are_told_as_uris() {
    let address = free_address();
    let more = ["--listen", &address, "--export", "a/b-1=disk"];
    let server = Server::start("auto", "my disk?\u{e9}%#=big", &more);
    let said = server.stop();
    for uri in [
        "nbd+unix:///my%20disk%3F%C3%A9%25%23?socket=nbd.sock\n".to_owned(),
        format!("nbd://{address}/my%20disk%3F%C3%A9%25%23\n"),
        "nbd+unix:///a/b-1?socket=nbd.sock\n".to_owned(),
        format!("nbd://{address}/a/b-1\n"),
    ] {
        assert!(said.contains(&uri), "{uri}: {said}");
    }
}

/// Lines about a client say which one, and where it is.
#[test]
fn lines_about_clients_say_who_they_are() {
    let listen = free_address();
    let more = ["--listen", &listen, "--max-connections", "2"];
    let server = Server::start("auto", "disk=disk", &more);
    let [unix, tcp] = addresses(&server, &listen);
    let here = format!("(pid {}, uid ", std::process::id());
    let first = Client::new(&unix).go("disk");
    let mut second = Client::new(&tcp).go("disk");
    let Stream::Tcp(stream) = &second.stream else {
        panic!("it is for TCP");
    };
    let there = stream.local_addr().unwrap();
    // A third one is one too many.
    let mut third = UnixStream::connect(server.path("nbd.sock")).unwrap();
    assert_eq!(third.read(&mut [0]).unwrap(), 0);
    second.stream.write_all(&[9; 28]).unwrap();
    let mut rest = Vec::new();
    second.stream.read_to_end(&mut rest).unwrap();
    drop(first);
    let said = server.stop();
    for line in [
        format!("disk: client 1 {here}"),
        format!("disk: client 2 ({there}) has come, 2 in all"),
        format!("client 3 {here}"),
        format!("client 2 ({there}) was sent away: no request where one is due"),
        format!("disk: client 2 ({there}) has left, "),
    ] {
        assert!(said.contains(&line), "{line}: {said}");
    }
    let of = |line: &&str| line.contains(&format!("client 1 {here}"));
    let of_first: Vec<_> = said.lines().filter(of).collect();
    assert!(of_first[0].ends_with("has come, 1 in all"), "{said}");
    assert!(of_first[1].contains("has left, "), "{said}");
    assert!(
        said.contains(") was turned away: --max-connections"),
        "{said}"
    );
}

/// Who only asks what there is, and leaves, has done nothing wrong.
#[test]
fn a_client_that_leaves_without_an_export_is_not_sent_away() {
    let server = Server::start("auto", "disk=disk", &[]);
    let mut client = server.connect();
    client.option(proto::option::ABORT, &[]);
    assert_eq!(client.answer(), proto::reply::ACK);
    let mut rest = Vec::new();
    client.stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, []);
    let said = server.stop();
    assert!(!said.contains("client"), "{said}");
}

#[test]
fn faults_of_an_export_that_is_not_there_are_refused() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let [disk, socket] = ["disk", "socket"].map(|name| folder.path().join(name));
    std::fs::write(&disk, [0; 4096]).unwrap();
    let (disk, socket) = (disk.display(), socket.display());
    let said = refused(&format!(
        "--export a={disk} --faults read=1,export=b --unix {socket}"
    ));
    assert!(said.contains("--faults: no export is named b"), "{said}");
}
