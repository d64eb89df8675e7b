//! Models of requests that are sent again: handed in by two at once, beside the work that sends
//! them, a drain, a system that ends, and a kick beside a send that is refused.
//!
//! | what is weakened | model that fails |
//! |---|---|
//! | the work is armed after the lock is let go | `two_hand_in_beside_the_work` |
//! | what a drain refuses is not armed again | `a_drain_beside_one_who_hands_in` |
//! | what the queue refuses stays in the list | `the_system_ends_beside_one_who_hands_in` |
//! | what is refused again does not go back into the list | `a_kick_beside_a_send_that_is_refused` |
#![cfg(loom)]

use inflight::prelude::*;
use inflight::sync::atomic::{AtomicUsize, Ordering};
use inflight::sync::model::{Bound, check};
use inflight::sync::time::Clock;
use inflight::sync::wait::Event;
use inflight::sync::{Arc, thread};
use inflight::topology::Topology;
use std::time::Duration;

const ONE: Bound = Bound {
    quick: Some(1),
    deep: Some(2),
};
const TWO: Bound = Bound {
    quick: Some(2),
    deep: Some(3),
};
const THREE: Bound = Bound {
    quick: Some(3),
    deep: None,
};
const MS: Duration = Duration::from_millis(1);

struct Setup {
    clock: Clock,
    system: WorkqueueSystem,
    queue: Workqueue,
    requeue: Requeue<usize>,
    set: TagSet<usize>,
    /// A bit for each request that was sent.
    sent: Arc<(AtomicUsize, Event)>,
}

fn system(clock: &Clock) -> (WorkqueueSystem, Workqueue) {
    let topology = Topology::synthetic("core:1").unwrap();
    let system = WorkqueueSystem::builder()
        .topology(topology)
        .clock(clock.clone())
        .idle_timeout(Duration::MAX)
        .build()
        .unwrap();
    let queue = system.workqueue("model").bound().build().unwrap();
    (system, queue)
}

/// The device refuses so many times.
fn setup(refusals: usize) -> Setup {
    let clock = Clock::manual();
    let (system, queue) = system(&clock);
    let set = TagSet::builder().depth(2).build(|_, _| 0).unwrap();
    let sent = Arc::new((AtomicUsize::new(0), Event::new()));
    let left = AtomicUsize::new(refusals);
    let requeue = Requeue::with_clock(&queue, &clock, {
        let sent = sent.clone();
        move |tag: Tag<usize>| {
            // Relaxed: used by one thread at a time.
            if left.load(Ordering::Relaxed) > 0 {
                left.fetch_sub(1, Ordering::Relaxed);
                return Err((tag, Duration::ZERO));
            }
            let before = sent.0.fetch_or(*tag, Ordering::AcqRel);
            sent.1.notify_all();
            assert_eq!(before & *tag, 0, "sent twice");
            Ok(())
        }
    });
    Setup {
        clock,
        system,
        queue,
        requeue,
        set,
        sent,
    }
}

fn tag(set: &TagSet<usize>, bit: usize) -> Tag<usize> {
    let mut tag = set.add_tenant("disk").unwrap().try_alloc().unwrap();
    *tag = bit;
    tag
}

/// One hands in a request for later and another one a request for now, while the work may be
/// at it. Now is now: the clock stands. The other one is sent with the last handle.
#[test]
fn two_hand_in_beside_the_work() {
    check("two_hand_in_beside_the_work", ONE, || {
        let setup = setup(0);
        let (now, later) = (tag(&setup.set, 1), tag(&setup.set, 2));
        let other = thread::spawn({
            let requeue = setup.requeue.clone();
            move || requeue.requeue(now, Duration::ZERO)
        });
        setup.requeue.requeue(later, MS);
        other.join().unwrap();
        let (bits, event) = &*setup.sent;
        event.wait_while(|| bits.load(Ordering::Acquire) != 1);
        drop(setup.system);
        drop(setup.requeue);
        assert_eq!(bits.load(Ordering::Acquire), 3);
    });
}

/// The queue is drained while one hands in a request that the device refuses once: it is sent all
/// the same, before, during or after the drain.
#[test]
fn a_drain_beside_one_who_hands_in() {
    check("a_drain_beside_one_who_hands_in", TWO, || {
        let setup = setup(1);
        let now = tag(&setup.set, 1);
        let other = thread::spawn({
            let requeue = setup.requeue.clone();
            move || requeue.requeue(now, Duration::ZERO)
        });
        setup.queue.drain_blocking().unwrap();
        other.join().unwrap();
        setup.clock.advance(MS);
        let (bits, event) = &*setup.sent;
        event.wait_while(|| bits.load(Ordering::Acquire) != 1);
        drop(setup.system);
    });
}

/// The system ends while one hands in: the request is sent by the work, or by who handed it
/// in.
#[test]
fn the_system_ends_beside_one_who_hands_in() {
    check("the_system_ends_beside_one_who_hands_in", THREE, || {
        let setup = setup(0);
        let now = tag(&setup.set, 1);
        let other = thread::spawn({
            let requeue = setup.requeue.clone();
            move || requeue.requeue(now, Duration::ZERO)
        });
        drop(setup.system);
        other.join().unwrap();
        assert_eq!(setup.sent.0.load(Ordering::Acquire), 1);
    });
}

/// The queue takes no work. One hands in a request that the device refuses once, and one kicks: it
/// is sent by the kick, or still waits, and is not in the hands of nobody.
#[test]
fn a_kick_beside_a_send_that_is_refused() {
    check("a_kick_beside_a_send_that_is_refused", TWO, || {
        let set = TagSet::builder().depth(1).build(|_, _| 0).unwrap();
        let clock = Clock::manual();
        let (system, queue) = system(&clock);
        drop(system);
        let sends = Arc::new(AtomicUsize::new(0));
        let requeue = Requeue::with_clock(&queue, &clock, {
            let sends = sends.clone();
            move |tag: Tag<usize>| match sends.fetch_add(1, Ordering::Relaxed) {
                0 => Err((tag, MS)),
                _ => Ok(()),
            }
        });
        let tag = tag(&set, 1);
        let other = thread::spawn({
            let requeue = requeue.clone();
            move || requeue.kick()
        });
        requeue.requeue(tag, MS);
        other.join().unwrap();
        let sent = sends.load(Ordering::Relaxed);
        assert_eq!((sent + requeue.waiting(), set.in_use()), (2, 2 - sent));
        requeue.kick();
        assert_eq!((sends.load(Ordering::Relaxed), set.in_use()), (2, 0));
    });
}
