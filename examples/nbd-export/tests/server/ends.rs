//! How the server ends when it is told to.

use crate::{Server, engines, refused_with, signal};
use nbd_export::proto;
use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread;

/// From the moment that there is something to clean up a signal is a wish to end, not an end.
#[test]
fn a_signal_that_comes_with_the_socket_leaves_nothing_behind() {
    for round in 0..40 {
        let folder = tempfile::tempdir().unwrap();
        let disk = std::fs::File::create(folder.path().join("disk")).unwrap();
        disk.set_len(1 << 20).unwrap();
        let mut program = Command::new(env!("CARGO_BIN_EXE_nbd-export"))
            .current_dir(folder.path())
            .args(["--export", "disk=disk", "--unix", "nbd.sock"])
            .args(["--serve", "wq.sock"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let sockets = ["nbd.sock", "wq.sock"].map(|name| folder.path().join(name));
        while !sockets[0].exists() {
            assert!(program.try_wait().unwrap().is_none());
        }
        signal(program.id(), [libc::SIGTERM, libc::SIGINT][round % 2]);
        let ended = program.wait().unwrap();
        assert_eq!(ended.code(), Some(0), "round {round}: {ended}");
        assert!(sockets.iter().all(|socket| !socket.exists()), "{round}");
    }
}

/// What comes within a tenth of a second of the first signal does not count, so this signals again
/// and again. Returns the exit status.
fn signal_until_it_ends(child: &mut Child) -> Option<i32> {
    loop {
        if let Some(ended) = child.try_wait().unwrap() {
            return ended.code();
        }
        signal(child.id(), libc::SIGTERM);
        thread::yield_now();
    }
}

/// `timeout` of GNU signals a program, and then its whole group: that is one wish to end. A server
/// that hears of the second one late takes it for another wish, so one of several has to do. The
/// unit test of `is_another` has the times.
#[test]
fn two_signals_at_once_are_one() {
    let is_one = || {
        let mut server = Server::start("auto", "disk=disk", &[]);
        let id = server.child.id();
        signal(id, libc::SIGTERM);
        signal(id, libc::SIGTERM);
        server.child.wait().unwrap().code() == Some(0)
    };
    assert!((0..20).any(|_| is_one()));
}

/// A client does not take its answers, so the end takes seconds. Who does not want to wait for it
/// says so again.
#[test]
fn a_second_signal_ends_it_at_once_and_says_so() {
    for engine in engines() {
        let mut server = Server::start(engine, "disk=disk", &[]);
        let mut client = server.connect().go("disk");
        for _ in 0..100 {
            client.send(0, 0, 0, 1 << 20, &[]);
        }
        let mut other = server.connect().go("disk");
        assert_eq!(other.write(0, b"fine", 0), 0);
        client.read(1); // An answer has begun, and the client takes no more of it.
        let id = server.child.id();
        let mut said = BufReader::new(server.child.stderr.take().unwrap()).lines();
        let mut until = |what: &str| {
            let found = said.by_ref().map(Result::unwrap).any(|l| l.contains(what));
            assert!(found, "{what}");
        };
        signal(id, libc::SIGTERM);
        until("draining");
        assert_eq!(signal_until_it_ends(&mut server.child), Some(1));
        until("a second signal: not everything is answered and flushed");
        assert!(!server.path("nbd.sock").exists());
    }
}

/// So does one that nobody could hear of.
#[test]
fn a_second_signal_ends_it_though_nobody_reads_its_log() {
    let mut server = Server::start("auto", "disk=disk", &[]);
    let mut client = server.connect().go("disk");
    for _ in 0..100 {
        client.send(0, 0, 0, 1 << 20, &[]);
    }
    client.read(1);
    let id = server.child.id();
    let mut said = BufReader::new(server.child.stderr.take().unwrap()).lines();
    signal(id, libc::SIGTERM);
    assert!(said.any(|line| line.unwrap().contains("draining")));
    drop(said);
    assert_eq!(signal_until_it_ends(&mut server.child), Some(1));
}

/// The server ends because a thread has ended, and waits for a client of another thread that does
/// not take its answer. The first signal is no second one.
#[test]
fn a_signal_to_a_server_that_ends_by_itself_is_the_first() {
    let more = ["--threads", "2", "--faults", "thread=50"];
    let mut server = Server::start("auto", "disk=disk", &more);
    let mut dies = server.connect().go("disk");
    let mut lives = server.connect().go("disk");
    // Less than 50 operations, and more than a socket holds.
    lives.send(0, 0, 0, 1 << 20, &[]);
    lives.read(1); // The answer has begun, and the client takes no more of it.
    for n in 0..50 {
        dies.send(1, 0, n * 512, 512, &[1; 512]);
    }
    let mut said = BufReader::new(server.child.stderr.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("a thread has ended")));
    signal(server.child.id(), libc::SIGTERM);
    let rest: Vec<_> = said.map(Result::unwrap).collect();
    assert_eq!(server.child.wait().unwrap().code(), Some(2), "{rest:?}");
    assert!(!rest.iter().any(|line| line.contains("second signal")));
}

#[test]
fn bad_options_end_with_2_though_nobody_reads_why() {
    let (reader, writer) = UnixStream::pair().unwrap();
    drop(reader);
    let status = Command::new(env!("CARGO_BIN_EXE_nbd-export"))
        .arg("--nonsense")
        .stderr(OwnedFd::from(writer))
        .status();
    assert_eq!(status.unwrap().code(), Some(2));
}

/// What is wrong is told in any case.
#[test]
fn quiet_is_about_clients_only() {
    let more = ["--faults", "flush=1", "--quiet"];
    let server = Server::start("auto", "disk=disk", &more);
    let mut client = server.connect().go("disk");
    let error = client.write(0, b"lost", proto::flag::FUA);
    assert_eq!(error, proto::Errno::Io as u32);
    drop(client);
    let said = server.stop_with(2);
    assert!(said.contains("disk: a flush has failed"), "{said}");
    assert!(!said.contains("client"), "{said}");
}

#[test]
fn the_exit_statuses_are_in_the_help() {
    let help = Command::new(env!("CARGO_BIN_EXE_nbd-export"))
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let (_, statuses) = help.split_once("Exit status:").unwrap();
    for status in ["0 ", "1 ", "2 "] {
        assert!(statuses.lines().any(|l| l.trim().starts_with(status)));
    }
    assert_eq!(refused_with(&["--nonsense"]).lines().count(), 2);
}
