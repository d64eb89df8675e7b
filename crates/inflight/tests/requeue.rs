//! Requests that were refused are sent again, each once, oldest first, whatever ends meanwhile.

use inflight::Requeue;
use inflight::prelude::*;
use inflight::sync::time::Clock;
use inflight::sync::{Arc, Mutex, thread};
use std::collections::VecDeque;
use std::time::Duration;

/// A device: takes what is sent to it.
#[derive(Clone, Default)]
struct Device(Arc<Mutex<VecDeque<Tag<u32>>>>);

impl Device {
    fn send(&self, tag: Tag<u32>) {
        self.0.lock().push_back(tag);
    }

    /// Waits for the next request.
    fn recv(&self) -> Tag<u32> {
        loop {
            if let Some(tag) = self.0.lock().pop_front() {
                return tag;
            }
            thread::yield_now();
        }
    }
}

const MS: Duration = Duration::from_millis(1);

struct Setup {
    clock: Clock,
    system: WorkqueueSystem,
    queue: Workqueue,
    set: TagSet<u32>,
    requeue: Requeue<u32>,
    sent: Device,
}

fn setup() -> Setup {
    let clock = Clock::manual();
    let system = WorkqueueSystem::builder()
        .clock(clock.clone())
        .build()
        .unwrap();
    let queue = system
        .workqueue("requeue")
        .bound()
        .highpri()
        .build()
        .unwrap();
    let set = TagSet::builder().depth(8).build(|_, _| 0).unwrap();
    let sent = Device::default();
    let device = sent.clone();
    let requeue = Requeue::with_clock(&queue, &clock, move |tag| device.send(tag));
    Setup {
        clock,
        system,
        queue,
        set,
        requeue,
        sent,
    }
}

impl Setup {
    fn hand_in(&self, number: u32, delay: Duration) {
        let mut tag = self
            .set
            .add_tenant("disk")
            .unwrap()
            .alloc_blocking()
            .unwrap();
        *tag = number;
        self.requeue.requeue(tag, delay);
    }
}

#[test]
fn they_are_sent_when_their_time_has_come_and_oldest_first() {
    let setup = setup();
    for (number, delay) in [(1, 5 * MS), (2, 9 * MS), (3, MS), (4, 5 * MS)] {
        setup.hand_in(number, delay);
    }
    setup.clock.advance(MS);
    assert_eq!(*setup.sent.recv(), 3);
    assert_eq!(setup.requeue.waiting(), 3);
    setup.clock.advance(20 * MS);
    let rest: Vec<u32> = (0..3).map(|_| *setup.sent.recv()).collect();
    assert_eq!(rest, [1, 2, 4]);
    assert_eq!(setup.requeue.waiting(), 0);
}

#[test]
fn a_freeze_waits_for_what_waits_here() {
    let setup = setup();
    setup.hand_in(1, MS);
    assert!(setup.set.try_freeze().is_err(), "it has its tag");
    setup.clock.advance(MS);
    drop(setup.sent.recv());
    assert!(setup.set.try_freeze().is_ok());
}

#[test]
fn the_end_of_the_queue_or_of_the_handle_loses_nothing() {
    let setup = setup();
    setup.hand_in(1, MS);
    let (sent, queue) = (setup.sent, setup.queue);
    drop(setup.requeue);
    assert_eq!(*sent.recv(), 1, "sent by the one who dropped it");

    let device = Device::default();
    let own = device.clone();
    let requeue = Requeue::new(&queue, move |tag: Tag<u32>| own.send(tag));

    drop(setup.system);
    let tag = setup
        .set
        .add_tenant("disk")
        .unwrap()
        .alloc_blocking()
        .unwrap();
    requeue.requeue(tag, Duration::ZERO);
    drop(device.recv()); // by a worker, or by the caller
    drop(queue);
}
