//! The program against running systems: this test process serves, the program asks.
#![cfg(target_os = "linux")]

use inflight_sync::{Arc, Mutex, thread};
use inflight_workqueue::{Attrs, Workqueue, WorkqueueSystem};
use inflight_workqueue_serve::{Serve, Server};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_inflight-wq");

/// A system with two queues that is served.
struct Served {
    dir: TempDir,
    sys: WorkqueueSystem,
    crypt: Workqueue,
    _events: Workqueue,
    server: Option<Server>,
}

impl Served {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sys = WorkqueueSystem::builder().build().unwrap();
        let crypt = sys.workqueue("crypt").unbound(Attrs::new()).max_active(8);
        let crypt = crypt.mem_reclaim().build().unwrap();
        let events = sys.workqueue("events").bound().build().unwrap();
        for _ in 0..3 {
            crypt.spawn(|| ()).wait().unwrap();
        }
        crypt.flush_blocking().unwrap();
        let server = sys.serve(dir.path().join("wq")).unwrap();
        Self {
            dir,
            sys,
            crypt,
            _events: events,
            server: Some(server),
        }
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("wq")
    }

    fn run(&self, options: &str) -> Ran {
        run(&self.socket(), options)
    }

    /// Begins to monitor and waits for the first table.
    fn watch(&self) -> (Child, BufReader<std::process::ChildStdout>) {
        let mut command = command(&self.socket(), "monitor --interval 0.01");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("CPUtime") {
            line.clear();
            assert!(out.read_line(&mut line).unwrap() > 0, "it has ended");
        }
        (child, out)
    }
}

fn command(socket: &Path, options: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("--socket").arg(socket);
    command.args(options.split_whitespace());
    command
}

fn run(socket: &Path, options: &str) -> Ran {
    Ran::new(&command(socket, options).output().unwrap())
}

#[derive(Debug)]
struct Ran {
    status: i32,
    out: String,
    err: String,
}

impl Ran {
    fn new(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Self {
            status: output.status.code().expect("no signal ended it"),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    fn printed(self) -> String {
        assert_eq!((self.status, self.err.as_str()), (0, ""), "{self:?}");
        self.out
    }

    /// It has ended so, with this in its one line.
    fn complained(self, status: i32, about: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.out, "", "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
        assert!(self.err.starts_with("inflight-wq: "), "{self:?}");
        assert!(self.err.contains(about), "{self:?} says nothing of {about}");
    }
}

#[test]
fn dump() {
    let served = Served::new();
    let text = served.run("dump").printed();
    for title in [
        "Affinity Scopes",
        "Worker Pools",
        "Workqueue CPU -> pool",
        "Workqueue -> rescuer",
        "Unbound workqueue -> node_nr/max_active",
        "State",
    ] {
        let underlined = format!("{title}\n{}\n", "=".repeat(title.len()));
        assert!(text.contains(&underlined), "{title}: {text}");
    }
    assert!(
        text.contains("queue crypt unbound default: 0 active, 0 inactive; 3 queued"),
        "{text}"
    );
    assert_eq!(served.sys.dump().lines().count(), text.lines().count());
}

#[test]
fn monitor_prints_tables() {
    let served = Served::new();
    let text = served.run("monitor --interval 0.01 --count 3").printed();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 3 * 4, "{text}");
    for table in lines.chunks(4) {
        let title = "total  infl  CPUtime CPUitsv CMW/RPR  mayday rescued";
        assert_eq!((table[0], table[1].trim()), ("", title));
        assert!(table[2].starts_with("crypt                           3     0      0.0       -"));
        assert!(table[3].starts_with("events                          0     0      0.0       0"));
        assert!(table[3].ends_with("       -       -"));
    }
    assert_eq!(served.run("monitor -i 0").printed().lines().count(), 4);
    let one = served.run("monitor -i 0 ^nobody$ ^ev").printed();
    assert_eq!(one.lines().count(), 3, "{one}");
    assert!(one.contains("events") && !one.contains("crypt"), "{one}");
}

/// For ever, with an interval, if that were no error.
#[test]
fn monitor_of_no_queue_is_an_error() {
    let served = Served::new();
    for options in ["monitor ^nobody$", "monitor -i 0 ^nobody$ --json"] {
        let why = "no queue's name has ^nobody$ in it; there are crypt, events";
        served.run(options).complained(1, why);
    }
    let why = "no queue's name has x1 or y2 in it";
    served.run("monitor -i 0 x1 y2").complained(1, why);
}

#[test]
fn monitor_prints_json() {
    let served = Served::new();
    let text = served
        .run("monitor --json --interval 0.01 --count 2 crypt")
        .printed();
    let values = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let values: Vec<serde_json::Value> = values.collect();
    assert_eq!(values.len(), 2, "{text}");
    assert_eq!(values[0]["name"], "crypt");
    assert_eq!(
        (&values[0]["unbound"], &values[0]["mem_reclaim"]),
        (&true.into(), &true.into())
    );
    assert_eq!(
        (&values[0]["started"], &values[1]["completed"]),
        (&3.into(), &3.into())
    );
    for key in ["remote_wakeups", "stolen", "cm_wakeup", "repatriated"] {
        assert_eq!(values[0][key], 0, "{key}");
    }
    assert!(values[0]["timestamp"].as_f64() < values[1]["timestamp"].as_f64());
}

#[test]
fn files_are_listed_and_written() {
    let served = Served::new();
    let text = served.run("files crypt").printed();
    assert_eq!(
        text.lines().nth(1),
        Some("crypt                    max_active       rw 8")
    );
    assert_eq!(served.run("set crypt max_active 16").printed(), "");
    let text = served.run("files").printed();
    assert!(
        text.contains("crypt                    max_active       rw 16\n"),
        "{text}"
    );
    assert!(
        text.contains("events                   per_cpu          r  1\n"),
        "{text}"
    );
    for (options, why) in [
        ("set crypt max_active zero", "not \"zero\""),
        ("set crypt max_active -3", "not \"-3\""),
        ("set crypt max_active 100000", "2048"),
        ("set crypt min_active 2", "it has per_cpu, max_active, nice"),
        ("set crypt nice 33", "nice 33 is not in -20 to 19"),
        ("set crypt per_cpu 1", "can only be read"),
        ("set crypt colour blue", "it has per_cpu, max_active"),
        (
            "set nobody max_active 3",
            "no queue has the name \"nobody\"",
        ),
        ("files nobody", "no queue has the name \"nobody\""),
    ] {
        served.run(options).complained(1, why);
    }
    assert!(
        served.run("files crypt").printed().contains("rw 16"),
        "nothing has changed"
    );
}

#[test]
fn the_system_is_shown_and_changed() {
    let served = Served::new();
    let scope = || {
        let text = served.run("system").printed();
        let line = text
            .lines()
            .find(|l| l.starts_with("default_affinity_scope"));
        line.unwrap().split_whitespace().last().unwrap().to_owned()
    };
    assert_eq!(scope(), "cache_shard");
    assert_eq!(
        served
            .run("set-system default_affinity_scope numa")
            .printed(),
        ""
    );
    assert_eq!(scope(), "numa");
    for (options, why) in [
        (
            "set-system default_affinity_scope far",
            "default_affinity_scope is cpu, smt",
        ),
        ("set-system cpumask 0", "none of these CPUs"),
        ("set-system trace maybe", "trace is 0 or 1"),
        (
            "set-system nice 3",
            "the system has no file \"nice\"; it has cpumask,",
        ),
    ] {
        served.run(options).complained(1, why);
    }
    let far = format!("cpumask 1{}", ",00000000".repeat(128));
    for file in ["set-system ", "set crypt "] {
        let why = "cpumask: there is no CPU 4096; the CPUs are 0";
        served.run(&format!("{file}{far}")).complained(1, why);
    }
}

/// The program has been built without a watchdog, and hangs.
#[test]
fn stalls_are_looked_for_when_somebody_asks() {
    let served = Served::new();
    let text = served.run("system").printed();
    assert!(text.contains("watchdog_thresh_ms       rw 0\n"), "{text}");
    let held = Arc::new(Mutex::new(()));
    let closed = held.lock();
    for _ in 0..9 {
        let held = held.clone();
        served.crypt.spawn(move || drop(held.lock())).detach();
    }
    served.run("set-system watchdog_thresh_ms 10").printed();
    let stall = "ago: queue crypt: 1 waiting, first crypt: cli::stalls_are_looked_for";
    while !served.run("dump").printed().contains(stall) {}
    drop(closed);
    served.crypt.flush_blocking().unwrap();
    served
        .run("set-system watchdog_thresh_ms soon")
        .complained(1, "watchdog_thresh_ms is a number of ms, 0 for never");
}

#[test]
fn steps_of_items_are_printed_while_they_are_recorded() {
    let served = Served::new();
    served.crypt.spawn(|| ()).wait().unwrap();
    assert_eq!(served.run("trace").printed(), "", "nothing is recorded");
    served.run("set-system trace 1").printed();
    let name = "seal\n[lost 7 steps]\u{1b}[2J";
    served.crypt.spawn_named(name, || ()).wait().unwrap();
    let text = served.run("trace").printed();
    assert!(
        text.contains(" seal\\n[lost 7 steps]\\u{1b}[2J\n"),
        "{text}"
    );
    for step in ["queued", "started", "ended"] {
        assert!(
            text.contains(&format!("crypt                    {step}")),
            "{text}"
        );
    }
    served.run("set-system trace 0").printed();
    served.run("trace").printed();
    served.crypt.spawn(|| ()).wait().unwrap();
    assert_eq!(served.run("trace").printed(), "");
}

#[test]
fn dropped_steps_are_told() {
    let served = Served::new();
    served.run("set-system trace 1").printed();
    for _ in 0..16_384 / 4 + 25 {
        served.crypt.spawn(|| ()).detach();
    }
    served.crypt.flush_blocking().unwrap();
    let text = served.run("trace").printed();
    assert_eq!(text.lines().next(), Some("[lost 100 steps]"));
    assert_eq!(text.lines().count(), 1 + 16_384);
}

#[test]
fn a_wrong_command_line_is_told_in_one_line() {
    let served = Served::new();
    for (options, why) in [
        (
            "",
            "no command: dump, monitor, files, set, system, set-system or trace;",
        ),
        ("juggle", "unrecognized subcommand 'juggle'\n"),
        (
            "dmup",
            "unrecognized subcommand 'dmup'; a similar subcommand exists: 'dump'\n",
        ),
        ("monitor --count x", "invalid digit found in string\n"),
        ("set crypt", "<FILE>"),
        ("monitor --interval -1", "0 to 86400"),
        ("monitor --interval soon", "0 to 86400"),
        ("monitor --count 0", "--count"),
        ("monitor (", "PATTERN"),
    ] {
        served.run(options).complained(2, why);
    }
    let alone = Command::new(PROGRAM).output().unwrap();
    Ran::new(&alone).complained(
        2,
        "no command: dump, monitor, files, set, system, set-system or trace;",
    );
    let nowhere = Command::new(PROGRAM).arg("dump").output().unwrap();
    Ran::new(&nowhere).complained(2, "--socket");
}

#[test]
fn where_nobody_serves() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wq");
    run(&path, "dump").complained(1, "no such socket");
    fs::write(&path, "a file").unwrap();
    run(&path, "dump").complained(1, "not a socket");
    fs::remove_file(&path).unwrap();
    drop(UnixListener::bind(&path).unwrap());
    run(&path, "dump").complained(1, "nobody listens");
    fs::remove_file(&path).unwrap();
    let listener = UnixListener::bind(&path).unwrap();
    let peer = thread::spawn(move || drop(listener.accept().unwrap()));
    run(&path, "monitor").complained(1, "gone away without an answer");
    peer.join().unwrap();
}

/// Another user's process is not shown. Root is not kept out, so as root the program runs as
/// somebody else.
#[test]
fn a_socket_without_permission() {
    let served = Served::new();
    let dir = served.dir.path();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = if fs::metadata("/proc/self").unwrap().uid() == 0 {
        let copy = dir.join("program");
        // By another process: children of other tests would inherit a file open for writing here,
        // and what is open for writing can't be run.
        let copied = Command::new("cp").arg(PROGRAM).arg(&copy).status().unwrap();
        assert!(copied.success());
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(copy);
        command.current_dir("/").uid(65534).gid(65534);
        command
    } else {
        fs::set_permissions(served.socket(), fs::Permissions::from_mode(0o000)).unwrap();
        Command::new(PROGRAM)
    };
    let output = command.arg("--socket").arg(served.socket()).arg("dump");
    Ran::new(&output.output().unwrap()).complained(1, "permission denied");
}

/// Nobody reads why, but the status says it.
#[test]
fn standard_error_that_takes_nothing() {
    for (options, status) in [("--socket nowhere dump", 1), ("--socket nowhere dmup", 2)] {
        let full = fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(options.split(' ')).stderr(full);
        assert_eq!(command.status().unwrap().code(), Some(status), "{options}");
    }
}

#[test]
fn help_that_cannot_be_printed_is_an_error() {
    for option in ["--help", "--version", "dump --help"] {
        let full = fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(option.split(' ')).stdout(full);
        let ran = Ran::new(&command.output().unwrap());
        ran.complained(1, "printing: No space left on device");
    }
}

/// The process ends while it is watched.
#[test]
fn a_process_that_vanishes() {
    let mut served = Served::new();
    let (mut child, mut out) = served.watch();
    drop(served.server.take());
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let mut err = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut err)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(err.starts_with("inflight-wq: "), "{err}");
    served.crypt.flush_blocking().unwrap();
}

/// Whoever read the tables has seen enough.
#[test]
fn a_reader_that_goes_away() {
    let served = Served::new();
    let (mut child, out) = served.watch();
    drop(out);
    let mut err = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut err)
        .unwrap();
    assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""));
}
