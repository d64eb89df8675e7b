//! A system that is served on a socket: who may ask, what is answered, and what is left behind.
#![cfg(target_os = "linux")]

#[path = "../../workqueue/tests/support/mod.rs"]
mod support;

use inflight_sync::thread;
use inflight_topology::Topology;
use inflight_workqueue::{Attrs, Concurrency, Kind, Share, Workqueue, WorkqueueSystem};
use inflight_workqueue_serve::{AskError, Reply, Request, Serve, ServeError, Server, ask};
use rustix::fs::{FlockOperation, flock};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;
use support::{Level, bound, system};
use tempfile::TempDir;

fn served(sys: &WorkqueueSystem) -> (TempDir, PathBuf, Server) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wq");
    let server = sys.serve(&path).unwrap();
    (dir, path, server)
}

fn set(path: &PathBuf, queue: &str, file: &str, value: &str) -> Result<(), String> {
    let request = Request::Set {
        queue: queue.to_owned(),
        file: file.to_owned(),
        value: value.to_owned(),
    };
    match ask(path, &request).unwrap() {
        Reply::Done => Ok(()),
        Reply::Error { error } => Err(error),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_asked_is_answered() {
    let sys = system();
    let wq = sys.workqueue("crypt").unbound(Attrs::new()).max_active(7);
    let wq = wq.mem_reclaim().build().unwrap();
    wq.spawn(|| ()).wait().unwrap();
    wq.flush_blocking().unwrap();
    let (_dir, path, _server) = served(&sys);
    let Reply::Dump { text } = ask(&path, &Request::Dump).unwrap() else {
        panic!("a dump was asked for");
    };
    assert_eq!(text.lines().next(), Some("Affinity Scopes"));
    assert!(
        text.contains("queue crypt unbound default: 0 active"),
        "{text}"
    );
    let Reply::Stats { queues } = ask(&path, &Request::Stats).unwrap() else {
        panic!("counters were asked for");
    };
    let [crypt] = &queues[..] else {
        panic!("there is one queue: {queues:?}");
    };
    assert_eq!((crypt.name.as_str(), crypt.max_active), ("crypt", Some(7)));
    assert_eq!((crypt.unbound, crypt.mem_reclaim), (true, true));
    assert_eq!((crypt.queued, crypt.started, crypt.completed), (1, 1, 1));
    assert!(crypt.cpu_time.is_some(), "who serves measures it");
    drop(sys);
    assert!(
        ask(&path, &Request::Dump).is_ok(),
        "the system may end first"
    );
}

/// Three kinds of queues, and two with the same name.
fn several() -> (WorkqueueSystem, Vec<Workqueue>) {
    let sys = system();
    let attrs = Attrs::new().strict(true);
    let slow = sys.workqueue("slow").unbound(attrs).max_active(1);
    let log = sys.workqueue("journal").ordered();
    let queues = vec![slow.build().unwrap(), log.build().unwrap()];
    let queues = [queues, vec![bound(&sys), bound(&sys)]].concat();
    (sys, queues)
}

#[test]
fn d4_control_files_are_shown() {
    let (sys, _queues) = several();
    let (_dir, path, _server) = served(&sys);
    let Reply::Files { queues } = ask(&path, &Request::Files).unwrap() else {
        panic!("files were asked for");
    };
    let text = |at: usize| {
        let files = queues[at].files.iter();
        let line = files.map(|f| {
            let writable = if f.writable { "!" } else { "" };
            format!("{}{writable}={}", f.name, f.value)
        });
        line.collect::<Vec<_>>().join(" ")
    };
    let rest = "nice!=0 cpumask!=0000000f affinity_scope!=default (cache_shard)";
    assert_eq!(
        text(0),
        format!("per_cpu=0 max_active!=1 {rest} affinity_strict!=1 concurrency!=managed")
    );
    assert_eq!(
        text(1),
        format!("per_cpu=0 max_active=1 {rest} affinity_strict!=0 concurrency!=managed")
    );
    assert_eq!(text(2), "per_cpu=1 max_active!=1024");
}

#[test]
fn d4_a_bh_queue_has_no_limit_to_read_or_write() {
    let (sys, _queues) = several();
    let _done = sys.workqueue("done").bh().build().unwrap();
    let (_dir, path, _server) = served(&sys);
    let Reply::Stats { queues } = ask(&path, &Request::Stats).unwrap() else {
        panic!("counters were asked for");
    };
    let done = queues.iter().find(|queue| queue.name == "done").unwrap();
    assert_eq!((done.max_active, done.unbound), (None, false));
    assert_eq!(
        set(&path, "done", "max_active", "3"),
        Err("done has no file \"max_active\"; it has per_cpu".to_owned())
    );
}

/// A limit that is raised lets waiting items go.
#[test]
fn d4_control_files_are_written() {
    let (sys, queues) = several();
    let (_dir, path, _server) = served(&sys);
    let slow = &queues[0];
    let (begun, open) = (Level::new(), Level::new());
    for _ in 0..3 {
        let (begun, open) = (begun.clone(), open.clone());
        drop(slow.spawn(move || {
            begun.raise();
            open.wait(1);
        }));
    }
    begun.wait(1);
    assert_eq!(set(&path, "slow", "max_active", "3"), Ok(()));
    begun.wait(3); // It has let the others go.
    open.raise();
    slow.flush_blocking().unwrap();
    let Reply::Stats { queues } = ask(&path, &Request::Stats).unwrap() else {
        panic!("counters were asked for");
    };
    assert_eq!(queues[0].max_active, Some(3));
}

/// It has no file in the kernel. Where nodes have parts a user looks for it beside `max_active`.
#[test]
fn min_active_is_written_where_nodes_have_parts() {
    let topology = Topology::synthetic("numa:2 core:2").unwrap();
    let sys = WorkqueueSystem::builder().topology(topology);
    let sys = sys.build().unwrap();
    let scan = sys.workqueue("scan").unbound(Attrs::new()).max_active(16);
    let _scan = scan.share(Share::PerNode).build().unwrap();
    let lend = sys.workqueue("lend").unbound(Attrs::new()).max_active(16);
    let _lend = lend.build().unwrap();
    let (_dir, path, _server) = served(&sys);
    let shown = || {
        let Reply::Files { queues } = ask(&path, &Request::Files).unwrap() else {
            panic!("files were asked for");
        };
        let scan = queues.into_iter().find(|queue| queue.name == "scan");
        let mut files = scan.unwrap().files.into_iter();
        let file = files.find(|file| file.name == "min_active").unwrap();
        (file.value, file.writable)
    };
    assert_eq!(shown(), ("8".to_owned(), true));
    assert_eq!(set(&path, "scan", "min_active", " 16\n"), Ok(()));
    assert_eq!(shown().0, "16");
    for (value, why) in [
        ("17", "min_active 17 is not in 1 to 16 (max_active)"),
        ("0", "min_active 0 is not in 1 to 16 (max_active)"),
        (
            "-1",
            "min_active is a number from 1 to max_active, not \"-1\"",
        ),
        (
            "few",
            "min_active is a number from 1 to max_active, not \"few\"",
        ),
    ] {
        assert_eq!(set(&path, "scan", "min_active", value), Err(why.to_owned()));
    }
    assert_eq!(shown().0, "16", "nothing has changed");
    let refused = set(&path, "lend", "min_active", "2").unwrap_err();
    assert!(
        refused.starts_with("lend has no file \"min_active\""),
        "{refused}"
    );
}

/// Each write re-applies all attributes, also those of an ordered queue.
#[test]
fn d4_attributes_are_written() {
    let (sys, queues) = several();
    let (_dir, path, _server) = served(&sys);
    for (file, value) in [
        ("nice", "5"),
        ("cpumask", "0000000c"),
        ("affinity_scope", "numa"),
        ("affinity_strict", "0"),
        ("concurrency", "unmanaged"),
    ] {
        assert_eq!(set(&path, "slow", file, value), Ok(()));
        assert_eq!(set(&path, "journal", file, value), Ok(()));
    }
    let cpus = inflight_topology::CpuSet::from([2, 3]);
    let attrs = Attrs::new().nice(5).cpumask(cpus);
    let attrs = attrs.concurrency(Concurrency::Unmanaged);
    let numa = attrs.clone().scope(inflight_topology::Scope::Numa);
    assert_eq!(queues[0].kind(), Kind::Unbound(numa.clone()));
    assert_eq!(queues[1].kind(), Kind::Ordered(numa));
    assert_eq!(set(&path, "slow", "affinity_scope", "default"), Ok(()));
    assert_eq!(queues[0].kind(), Kind::Unbound(attrs));
}

/// Who writes one file leaves the others as they are, whoever writes those at the same time.
#[test]
fn d4_writes_at_the_same_time_all_stay() {
    let sys = system();
    let wq = sys.workqueue("w").unbound(Attrs::new()).build().unwrap();
    let servers = [served(&sys), served(&sys)];
    for n in 0..200 {
        let expected = Attrs::new().nice(n % 20).strict(n % 2 == 1);
        let writers = [("nice", n % 20), ("affinity_strict", n % 2)];
        let writers = writers.into_iter().zip(&servers).map(|(file, served)| {
            let (path, value) = (served.1.clone(), file.1.to_string());
            thread::spawn(move || set(&path, "w", file.0, &value).unwrap())
        });
        let writers: Vec<_> = writers.collect();
        writers.into_iter().for_each(|w| w.join().unwrap());
        assert_eq!(wq.kind(), Kind::Unbound(expected), "round {n}");
    }
}

#[test]
fn d4_what_cannot_be_written_is_refused_in_one_line() {
    let (sys, _queues) = several();
    let (_dir, path, _server) = served(&sys);
    let files = "per_cpu, max_active, nice, cpumask, affinity_scope, affinity_strict, concurrency";
    let number = "max_active is a number from 1 to 2048, not";
    for (queue, file, value, why) in [
        (
            "nobody",
            "max_active",
            "3",
            "no queue has the name \"nobody\"",
        ),
        (
            "bound",
            "max_active",
            "3",
            "2 queues have the name \"bound\", so none can be changed by it",
        ),
        ("slow", "max_active", "many", &format!("{number} \"many\"")),
        ("slow", "max_active", "-1", &format!("{number} \"-1\"")),
        ("slow", "per_cpu", "3", "per_cpu of slow can only be read"),
        ("slow", "nice", "20", "nice 20 is not in -20 to 19"),
        (
            "slow",
            "cpumask",
            "x",
            "cpumask is a mask in hexadecimal without 0x (f is CPUs 0 to 3), not \"x\"",
        ),
        (
            "slow",
            "cpumask",
            "",
            "cpumask is a mask in hexadecimal without 0x (f is CPUs 0 to 3), not \"\"",
        ),
        (
            "slow",
            "cpumask",
            "0x3",
            "cpumask is a mask in hexadecimal without 0x (f is CPUs 0 to 3), not \"0x3\"",
        ),
        (
            "slow",
            "cpumask",
            "f6",
            "cpumask: there is no CPU 4-7; the CPUs are 0-3",
        ),
        (
            "slow",
            "affinity_scope",
            "Cache",
            "affinity_scope is default, cpu, smt, cache_shard, cache, numa or system, \
             not \"Cache\"",
        ),
        (
            "slow",
            "affinity_strict",
            "yes",
            "affinity_strict is a number, 0 for no, not \"yes\"",
        ),
        (
            "slow",
            "concurrency",
            "1",
            "concurrency is managed or unmanaged, not \"1\"",
        ),
        (
            "journal",
            "max_active",
            "3",
            "max_active of journal can only be read",
        ),
        (
            "slow",
            "numa",
            "1",
            &format!("slow has no file \"numa\"; it has {files}"),
        ),
    ] {
        assert_eq!(set(&path, queue, file, value), Err(why.to_owned()));
    }
    let too_many = set(&path, "slow", "max_active", "2049").unwrap_err();
    assert!(too_many.contains("2048"), "{too_many}");
    assert!(set(&path, "slow", "max_active", "0").is_err());
    let Reply::Stats { queues } = ask(&path, &Request::Stats).unwrap() else {
        panic!("counters were asked for");
    };
    assert_eq!(queues[0].max_active, Some(1), "nothing has changed");
}

#[test]
fn the_socket_is_the_owners_and_goes_with_the_server() {
    let sys = system();
    let (_dir, path, server) = served(&sys);
    let file = fs::symlink_metadata(&path).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    drop(server);
    assert_eq!(ask(&path, &Request::Dump), Err(AskError::NoSocket));
    // One that another has put in its place stays.
    let server = sys.serve(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    let number = fs::symlink_metadata(&path).unwrap().ino();
    drop(server);
    assert_eq!(fs::symlink_metadata(&path).unwrap().ino(), number);
    drop(other);
}

#[test]
fn only_a_socket_that_nobody_needs_is_replaced() {
    let sys = system();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wq");
    // A process has ended without removing it.
    drop(UnixListener::bind(&path).unwrap());
    assert_eq!(ask(&path, &Request::Dump), Err(AskError::NobodyListens));
    let server = sys.serve(&path).unwrap();
    assert!(ask(&path, &Request::Dump).is_ok());
    assert_eq!(sys.serve(&path).unwrap_err(), ServeError::InUse);
    assert!(ask(&path, &Request::Dump).is_ok(), "it goes on");
    drop(server);
    // Nobody accepts there, and no more can wait.
    let listener = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _waits = UnixStream::connect(&path).unwrap();
    assert_eq!(sys.serve(&path).unwrap_err(), ServeError::InUse);
    drop(listener);
    fs::remove_file(&path).unwrap();
    fs::write(&path, "precious").unwrap();
    assert_eq!(sys.serve(&path).unwrap_err(), ServeError::NotASocket);
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    assert_eq!(ask(&path, &Request::Dump), Err(AskError::NotASocket));
    let nowhere = dir.path().join("no/such/folder");
    let refused = sys.serve(nowhere).unwrap_err();
    assert_eq!(refused, ServeError::Io(std::io::ErrorKind::NotFound));
    assert_eq!(refused.to_string(), "its directory does not exist");
    let refused = sys.serve("").unwrap_err();
    assert_eq!(refused, ServeError::EmptyPath);
    assert_eq!(refused.to_string(), "the path of the socket is empty");
}

#[test]
fn what_can_be_served_can_be_asked_however_long_its_path() {
    let sys = system();
    let dir = tempfile::tempdir().unwrap();
    let of = |bytes| {
        let before = dir.path().as_os_str().len() + "/".len();
        dir.path().join("x".repeat(bytes - before))
    };
    let longest = of(107);
    let _server = sys.serve(&longest).unwrap();
    assert!(ask(&longest, &Request::Dump).is_ok());
    for bytes in [108, 109, 240] {
        let refused = sys.serve(of(bytes)).unwrap_err();
        assert_eq!(refused, ServeError::PathTooLong { bytes });
        let text = format!("the path of a socket has at most 107 bytes, not {bytes}");
        assert_eq!(refused.to_string(), text);
        let refused = ask(of(bytes), &Request::Dump).unwrap_err();
        assert_eq!(refused, AskError::PathTooLong { bytes });
        assert_eq!(refused.to_string(), text);
    }
}

/// Whoever can read the folder can lock it.
#[test]
fn a_folder_that_is_locked_is_not_waited_for_without_end() {
    let sys = system();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wq");
    let other = fs::File::open(dir.path()).unwrap();
    flock(&other, FlockOperation::LockShared).unwrap();
    let refused = sys.serve(&path).unwrap_err();
    assert_eq!(refused, ServeError::FolderLocked);
    assert_eq!(
        refused.to_string(),
        "another process has locked its directory"
    );
    drop(other);
    let server = sys.serve(&path).unwrap();
    let other = fs::File::open(dir.path()).unwrap();
    flock(&other, FlockOperation::LockExclusive).unwrap();
    drop(server);
    assert_eq!(ask(&path, &Request::Dump), Err(AskError::NobodyListens));
    drop(other);
    let _next = sys.serve(&path).unwrap();
    assert!(ask(&path, &Request::Dump).is_ok());
}

/// Of several that find the same stale socket one gets the name, and keeps it.
#[test]
fn one_server_gets_the_name() {
    let sys = system();
    for _ in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("wq");
        drop(UnixListener::bind(&path).unwrap());
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (sys, path) = (sys.clone(), path.clone());
                thread::spawn(move || sys.serve(path))
            })
            .collect();
        let results: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        let refused = results
            .iter()
            .filter(|r| matches!(r, Err(ServeError::InUse)));
        assert_eq!(refused.count(), 3, "{results:?}");
        assert!(ask(&path, &Request::Stats).is_ok());
    }
}

/// What a client sends that is no question is answered all the same, in one line.
#[test]
fn nonsense_is_refused_in_one_line() {
    let sys = system();
    let (_dir, path, _server) = served(&sys);
    let talk = |said: &[u8]| {
        let mut stream = UnixStream::connect(&path).unwrap();
        // The server may have closed already.
        let _ = stream.write_all(said);
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        match Reply::from_line(&answer) {
            Ok(Reply::Error { error }) => error,
            other => panic!("{other:?}"),
        }
    };
    assert!(talk(b"GET / HTTP/1.1\n").contains("not a line of this protocol"));
    assert!(talk(b"{\"version\":2,\"do\":\"dump\"}\n").contains("version 2"));
    assert!(talk(b"{\"version\":1,\"do\":\"dance\"}\n").contains("dance"));
    let long = "a request has at most 4096 bytes";
    assert_eq!(talk(&[0xff; 64 << 10]), long, "without an end");
    let mut padded = Request::Dump.to_line().into_bytes();
    padded.pop();
    padded.resize(4096, b' ');
    assert_eq!(talk(&[&padded[..], b" \n"].concat()), long);
    assert!(talk(b"\n").contains("not a line"));
    let two = br#"{"version":1,"do":"set_system","file":"trace","value":"2"}"#;
    assert_eq!(
        talk(&[two, &b"\n"[..]].concat()),
        "trace is 0 or 1, not \"2\""
    );
}

/// A client that closes its side has said all there is.
#[test]
fn a_request_without_a_line_s_end_is_answered_when_its_client_closes_its_side() {
    let sys = system();
    let (_dir, path, _server) = served(&sys);
    let talk = |said: &str| {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(said.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let line = Request::Dump.to_line();
    let whole = talk(line.trim_end());
    assert!(matches!(Reply::from_line(&whole), Ok(Reply::Dump { .. })));
    let half = talk(&line[..line.len() / 2]);
    let Ok(Reply::Error { error }) = Reply::from_line(&half) else {
        panic!("{half:?}");
    };
    assert!(error.contains("not a line of this protocol"), "{error}");
    assert_eq!(talk(""), "");
}

/// Clients that say nothing, take no answer or go away hold up neither others nor the work.
#[test]
fn slow_clients_hold_up_nobody() {
    let sys = system();
    let wq = bound(&sys);
    let (_dir, path, _server) = served(&sys);
    let mut silent: Vec<_> = (0..8)
        .map(|_| UnixStream::connect(&path).unwrap())
        .collect();
    for _ in 0..4 {
        let mut gone = UnixStream::connect(&path).unwrap();
        gone.write_all(Request::Dump.to_line().as_bytes()).unwrap();
    }
    for n in 0..200 {
        assert_eq!(wq.spawn(move || n).wait().unwrap(), n);
    }
    assert!(ask(&path, &Request::Dump).is_ok());
    // More than are served at a time: who comes after them waits until they are sent away.
    silent.extend((0..20).map_while(|_| {
        let stream = UnixStream::connect(&path).ok()?;
        Some(stream)
    }));
    while ask(&path, &Request::Stats).is_err() {}
    for mut stream in silent {
        let mut rest = Vec::new();
        // Closed by the server, with or without notice.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty());
    }
}

/// A peer that is no server of this kind.
#[test]
fn a_process_that_vanishes_is_told_from_one_that_says_nonsense() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wq");
    let listener = UnixListener::bind(&path).unwrap();
    let peer = thread::spawn(move || {
        drop(listener.accept().unwrap());
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.write_all(b"220 mail\n");
    });
    assert_eq!(ask(&path, &Request::Dump), Err(AskError::Vanished));
    assert!(matches!(ask(&path, &Request::Dump), Err(AskError::Wire(_))));
    peer.join().unwrap();
}

/// What is read can be written back.
#[test]
fn a_threshold_below_a_millisecond_is_not_shown_as_never() {
    let sys = WorkqueueSystem::builder().watchdog(Duration::from_micros(500), |_| ());
    let sys = sys.build().unwrap();
    let (_dir, path, _server) = served(&sys);
    let Reply::SystemFiles { files } = ask(&path, &Request::SystemFiles).unwrap() else {
        panic!("another reply")
    };
    let of_watchdog = files.iter().find(|file| file.name == "watchdog_thresh_ms");
    assert_eq!(of_watchdog.unwrap().value, "1");
}
