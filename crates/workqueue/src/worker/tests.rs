//! Blocking sections end with their items.

use crate::Work;
use crate::test_support::{Rigged, Signal, until};
use inflight_sync::thread;

/// Fails if it never becomes true: it looks far more often than necessary.
fn look_until(is_so: impl Fn() -> bool, what: &str) {
    let mut looks = 0;
    while !is_so() {
        looks += 1;
        assert!(looks < 20_000_000, "{what}");
        thread::yield_now();
    }
}

/// A function that is known to sleep runs inside a blocking section. Its entry is taken and parked
/// while the item runs elsewhere, and a run that is itself inside a section puts it back. Neither
/// worker may stay in a section: the next item that sleeps there would let no other worker run.
#[test]
fn a_known_sleeper_that_is_parked_leaves_no_section_open() {
    let sys = Rigged::new("core:2", |builder| builder);
    let wq = sys.0.workqueue("sleepers").bound().build().unwrap();
    let [begun, open] = [(); 2].map(|()| Signal::default());
    let work = Work::new(until(&begun, &open, 1));
    let item = work.item.ptr();
    // SAFETY: the handle keeps the item alive.
    let function = unsafe { item.function() }.key();
    let known_blockers = &wq.inner().shared.known_blockers;
    (0..2).for_each(|_| known_blockers.found_asleep(function));
    assert!(known_blockers.knows(function));
    assert!(wq.queue_on(0, &work).unwrap().is_queued());
    look_until(|| begun.get() == 1, "it does not begin");
    assert!(wq.queue_on(1, &work).unwrap().is_queued());
    // The worker that runs this has taken the other one before.
    let behind = wq.spawn_on(1, || ());
    look_until(
        || behind.is_finished(),
        "what is behind a parked entry waits",
    );
    assert!(work.is_pending());
    open.raise();
    look_until(
        || begun.get() == 2 && !work.is_running(),
        "it does not go on",
    );
    for cpu in 0..2 {
        let nested = wq.spawn_on(cpu, {
            let wq = wq.clone();
            move || wq.spawn_on(cpu, || ()).wait().unwrap()
        });
        look_until(|| nested.is_finished(), "nobody runs beside who sleeps");
    }
}
