//! The model: two requests through one slot.
#![cfg(loom)]

use inflight::sync::thread;
use loom_downstream::Ring;
use std::process::Command;
use std::sync::Arc;

/// One slot, two requests: the second waits for the slot of the first.
fn two_requests_arrive<const PLANTED: bool>() {
    inflight::model::check(|| {
        let ring = Arc::new(Ring::<PLANTED>::new(1));
        let producer = thread::spawn({
            let ring = ring.clone();
            move || {
                ring.submit(1);
                ring.submit(2);
            }
        });
        assert_eq!((ring.next(), ring.next()), (1, 2));
        producer.join().unwrap();
    });
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
