//! A run whose workqueues are shown on a socket.

use std::fs;
use std::io::Read as _;

use inflight::serve::{AskError, QueueCounters, Reply, Request, ask};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::program::Place;

const RUN: &str = "--size 1m --runtime 600 --engine psync --verify crc32c --serve wq";

fn counters(place: &Place) -> Vec<QueueCounters> {
    match ask(place.path("wq"), &Request::Stats).unwrap() {
        Reply::Stats { queues } => queues,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_run_shows_its_workqueues_and_takes_limits() {
    let place = Place::new();
    let mut child = place.start(RUN);
    let busy = |queues: &[QueueCounters]| queues.iter().all(|queue| queue.completed > 100);
    while !busy(&counters(&place)) {}
    let names: Vec<_> = counters(&place).into_iter().map(|q| q.name).collect();
    assert_eq!(names, ["checksums", "psync"]);
    let set = Request::Set {
        queue: "checksums".to_owned(),
        file: "max_active".to_owned(),
        value: "1".to_owned(),
    };
    assert_eq!(ask(place.path("wq"), &set), Ok(Reply::Done));
    assert_eq!(counters(&place)[0].max_active, Some(1));
    let before = counters(&place)[0].completed;
    while counters(&place)[0].completed < before + 100 {}
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let mut err = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut err)
        .unwrap();
    assert!(!err.contains("panicked"), "{err}");
    assert_eq!(place.files(), 0, "the socket goes with the run");
}

/// A process that is killed leaves its socket, which the next one takes over.
#[test]
fn a_killed_run_leaves_a_socket_that_is_taken_over() {
    let place = Place::new();
    let mut child = place.start(RUN);
    while counters(&place)[0].completed == 0 {}
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(
        ask(place.path("wq"), &Request::Dump),
        Err(AskError::NobodyListens)
    );
    place.run("--size 64k --number_ios 50 --serve wq").expect(0);
    assert!(!place.path("wq").exists());
}

#[test]
fn what_cannot_be_served_is_told_in_one_line() {
    let place = Place::new();
    fs::write(place.path("file"), "precious").unwrap();
    let run = |path: &str| place.run(&format!("--size 64k --number_ios 50 --serve {path}"));
    run("file")
        .expect(2)
        .complains("--serve file: a file that is no socket has that name");
    run("no/folder").expect(2).complains("--serve no/folder");
    assert_eq!(fs::read_to_string(place.path("file")).unwrap(), "precious");
    // Without other work for workers too.
    run("wq --verify none --engine auto").expect(0);
}
