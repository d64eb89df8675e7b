//! The model: two requests through one slot.
#![cfg(loom)]

use loom_downstream::Ring;
use std::process::Command;
// The count must survive from one execution to the next, so it is not loom's.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One slot, two requests: the second waits for the slot of the first.
fn two_requests_arrive<const PLANTED: bool>() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 20_000;
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = executions.clone();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let ring = Arc::new(Ring::<PLANTED>::new(1));
        let producer = loom::thread::spawn({
            let ring = ring.clone();
            move || {
                ring.submit(1);
                ring.submit(2);
            }
        });
        assert_eq!((ring.next(), ring.next()), (1, 2));
        producer.join().unwrap();
    });
    let executions = executions.load(Ordering::Relaxed);
    println!("model the_ring_delivers bound 2 executions {executions}");
}

#[test]
fn the_ring_delivers() {
    two_requests_arrive::<false>();
}

/// loom finds the planted bug as a deadlock. It may abort the process while unwinding, so the model
/// runs in a child.
#[test]
fn planted_bug_is_found() {
    const CHILD: &str = "LOOM_DOWNSTREAM_PLANTED";
    if std::env::var_os(CHILD).is_some() {
        return two_requests_arrive::<true>();
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "planted_bug_is_found", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&child.stderr);
    assert!(!child.status.success(), "the model must fail");
    assert!(
        printed.contains("deadlock"),
        "and it must be the lost wakeup: {printed}"
    );
}
