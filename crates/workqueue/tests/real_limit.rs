//! A real limit on the number of threads, in a process of its own.
//!
//! The child gives up its privileges, then forbids itself to start threads (`RLIMIT_NPROC`).
#![cfg(all(target_os = "linux", not(any(loom, shuttle))))]

mod support;

use inflight_sync::thread;
use inflight_topology::Topology;
use inflight_workqueue::{JoinError, QueueError, WorkqueueSystem, blocking};
use rustix::process::{Resource, Rlimit, getrlimit, getuid, setrlimit};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use support::Level;

const CHILD: &str = "INFLIGHT_TEST_REAL_LIMIT";
const PASSED: &str = "the child has passed";

/// Nobody's: what others run under a user's name counts against its limit.
const UNPRIVILEGED: u32 = 61_437;

#[test]
fn a_rescuer_works_when_the_system_really_refuses_threads() {
    if std::env::var_os(CHILD).is_some() {
        return; // The child runs the other test alone.
    }
    let exe = std::env::current_exe().unwrap();
    let mut child = Command::new(exe);
    child.args(["--exact", "under_a_real_limit", "--nocapture"]);
    child.env(CHILD, "1").current_dir("/");
    if getuid().is_root() {
        child.gid(UNPRIVILEGED).uid(UNPRIVILEGED);
    }
    let output = match child.output() {
        Ok(output) => output,
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            println!("skipped: an unprivileged user may not run this test's own program: {e}");
            return;
        }
        Err(e) => panic!("{e}"),
    };
    let said = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains(PASSED),
        "{said}\n{error}"
    );
}

/// The child.
#[test]
fn under_a_real_limit() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let topo = Topology::synthetic("core:2").unwrap();
    let sys = WorkqueueSystem::builder().topology(topo).build().unwrap();
    let safe = sys.workqueue("safe").bound().mem_reclaim().build().unwrap();
    let other = sys.workqueue("other").bound().build().unwrap();
    other.spawn_on(0, || ()).wait().unwrap();

    let before = getrlimit(Resource::Nproc);
    setrlimit(
        Resource::Nproc,
        Rlimit {
            current: Some(0),
            ..before
        },
    )
    .unwrap();
    let refused = thread::Builder::new()
        .spawn(|| ())
        .expect_err("a thread in spite of the limit");
    assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);

    // CPU 1 has no worker, and CPU 0's is blocked by an item that waits for the next one.
    let sent = Level::new();
    let got = sent.clone();
    let waits = other.spawn_on(0, move || blocking(|| got.wait_silently(1)));
    let next = safe.spawn_on(0, move || sent.raise());
    let alone = safe.spawn_on(1, || 4);
    waits.wait().unwrap();
    next.wait().unwrap();
    assert_eq!(alone.wait().unwrap(), 4);
    assert!(safe.stats().rescued > 0);
    let without = other.spawn_on(1, || ()).wait();
    let told = JoinError::Rejected(QueueError::NoWorker(io::ErrorKind::WouldBlock));
    assert_eq!(format!("{:?}", without.unwrap_err()), format!("{told:?}"));

    setrlimit(Resource::Nproc, before).unwrap();
    other.spawn_on(1, || ()).wait().unwrap();
    drop(sys);
    println!("{PASSED}");
}
