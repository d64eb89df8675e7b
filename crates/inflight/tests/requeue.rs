//! Requests that were refused are sent again, each once, oldest first, whatever ends meanwhile.
#![cfg(not(any(loom, shuttle)))]

use inflight::prelude::*;
use inflight::sync::atomic::{AtomicUsize, Ordering};
use inflight::sync::time::Clock;
use inflight::sync::wait::Event;
use inflight::sync::{Arc, Mutex, thread};
use inflight::workqueue::{Wait, WaitError};
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// A device: takes what is sent to it.
#[derive(Clone, Default)]
struct Device(Arc<Mutex<VecDeque<Tag<u32>>>>);

impl Device {
    fn send(&self, tag: Tag<u32>) -> Result<(), (Tag<u32>, Duration)> {
        self.0.lock().push_back(tag);
        Ok(())
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
    fn tag(&self, number: u32) -> Tag<u32> {
        let disk = self.set.add_tenant("disk").unwrap();
        let mut tag = disk.alloc_blocking().unwrap();
        *tag = number;
        tag
    }

    fn hand_in(&self, number: u32, delay: Duration) {
        self.requeue.requeue(self.tag(number), delay);
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

/// Two sends panic, and what they throw panics when it is dropped. The third request is sent, and
/// the next call sends what comes later.
#[test]
fn what_a_send_throws_takes_no_others_along() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("as the test wants it");
        }
    }

    let setup = setup();
    let sent = setup.sent.clone();
    let requeue = Requeue::with_clock(&setup.queue, &setup.clock, move |tag| {
        if *tag < 3 {
            std::panic::panic_any(Bomb);
        }
        sent.send(tag)
    });
    for number in 1..=3 {
        requeue.requeue(setup.tag(number), MS);
    }
    setup.queue.destroy_blocking().unwrap();
    let kicked = catch_unwind(AssertUnwindSafe(|| requeue.kick()));
    // Not dropped here: it would panic.
    std::mem::forget(kicked.expect_err("the first panic comes out"));
    assert_eq!(*setup.sent.recv(), 3);
    requeue.requeue(setup.tag(4), MS);
    assert_eq!((*setup.sent.recv(), requeue.waiting()), (4, 0));
}

#[test]
fn one_whose_sending_panics_does_not_take_others_along() {
    let setup = setup();
    let device = setup.sent.clone();
    let requeue = Requeue::with_clock(&setup.queue, &setup.clock, move |tag: Tag<u32>| {
        assert!(*tag != 2, "on purpose");
        device.send(tag)
    });
    for number in 1..=3 {
        requeue.requeue(setup.tag(number), MS);
    }
    setup.clock.advance(MS);
    assert_eq!([*setup.sent.recv(), *setup.sent.recv()], [1, 3]);
    setup.queue.flush_blocking().unwrap();
    assert_eq!(setup.queue.stats().panicked, 1, "the work's own");
    // Also those that the last handle sends.
    for number in 1..=3 {
        requeue.requeue(setup.tag(number), MS);
    }
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(requeue)));
    assert!(dropped.is_err());
    assert_eq!([*setup.sent.recv(), *setup.sent.recv()], [1, 3]);
}

/// It is not in flight while it waits. One that had timed out goes back the same way.
#[test]
fn no_timeout_is_about_a_request_that_waits_here() {
    let setup = setup();
    let tag = setup.tag(1);
    let token = tag.into_token();
    setup.set.for_each_in_flight(|tag| {
        tag.mark_timed_out();
    });
    let late = setup.set.redeem(token);
    assert!(late.is_err(), "its completion comes too late: {late:?}");
    let handled = setup.set.redeem_timed_out(token).unwrap();
    setup.requeue.requeue(handled, MS);
    setup
        .set
        .for_each_in_flight(|_| panic!("nothing is in flight"));
    setup.clock.advance(MS);
    let again = setup.sent.recv();
    assert_eq!(*again, 1);
    let token = again.into_token();
    assert_eq!(
        *setup.set.redeem(token).unwrap(),
        1,
        "it goes its way again"
    );
}

#[test]
fn threads_hand_in_at_once_and_each_request_is_sent_once() {
    let system = WorkqueueSystem::builder().build().unwrap();
    let queue = system.workqueue("requeue").bound().build().unwrap();
    let set = TagSet::builder().depth(8).build(|_, _| 0).unwrap();
    let sent = Arc::new(Mutex::new(Vec::new()));
    let numbers = sent.clone();
    let requeue = Requeue::new(&queue, move |tag: Tag<u32>| {
        numbers.lock().push(*tag);
        Ok(())
    });
    let threads: Vec<_> = (0..4)
        .map(|id| {
            let (set, requeue) = (set.clone(), requeue.clone());
            thread::spawn(move || {
                let disk = set.add_tenant(format!("disk{id}")).unwrap();
                for n in 0..250 {
                    let mut tag = disk.alloc_blocking().unwrap();
                    *tag = id * 250 + n;
                    requeue.requeue(tag, Duration::from_micros(u64::from(n % 3) * 50));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    while set.in_use() > 0 {
        thread::yield_now();
    }
    let mut sent = sent.lock().clone();
    sent.sort_unstable();
    assert_eq!(sent, Vec::from_iter(0..1000));
    let stats = requeue.stats();
    assert_eq!(
        (stats.requeued, stats.waiting, stats.sent_early),
        (1000, 0, 0)
    );
}

/// The system takes back what is not due. It is sent with the next request, by who hands that in.
#[test]
fn a_system_that_ends_first_loses_nothing() {
    for with_another in [true, false] {
        let setup = setup();
        setup.hand_in(1, MS);
        setup.hand_in(2, 2 * MS);
        let Setup {
            clock,
            system,
            set,
            requeue,
            sent,
            ..
        } = setup;
        drop(system);
        clock.advance(5 * MS);
        assert_eq!(requeue.stats().waiting, 2, "nobody is there to send them");
        let expected = if with_another {
            let disk = set.add_tenant("disk").unwrap();
            let mut tag = disk.alloc_blocking().unwrap();
            *tag = 3;
            requeue.requeue(tag, MS);
            assert_eq!((requeue.waiting(), requeue.stats().sent_early), (0, 1));
            vec![1, 2, 3]
        } else {
            drop(requeue);
            vec![1, 2]
        };
        let all: Vec<u32> = expected.iter().map(|_| *sent.recv()).collect();
        assert_eq!(all, expected);
        assert_eq!(set.in_use(), 0);
    }
}

/// A queue that was destroyed takes no work: all that wait are sent at once, oldest first.
#[test]
fn a_queue_that_refuses_has_the_caller_send_all() {
    let setup = setup();
    setup.hand_in(1, 5 * MS);
    setup.hand_in(2, MS);
    setup.queue.clone().destroy_blocking().unwrap();
    setup.hand_in(3, MS);
    let all: Vec<u32> = (0..3).map(|_| *setup.sent.recv()).collect();
    assert_eq!(all, [1, 2, 3]);
    assert_eq!((setup.requeue.waiting(), setup.set.in_use()), (0, 0));
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

/// A device that refuses so many times, and hands back in the one way or the other.
fn refusing(queue: &Workqueue, refusals: usize, by_handle: bool) -> (Requeue<u32>, Device) {
    let sent = Device::default();
    let (device, left) = (sent.clone(), AtomicUsize::new(refusals));
    let own = Arc::new(Mutex::new(None::<Requeue<u32>>));
    let handle = by_handle.then(|| own.clone());
    let requeue = Requeue::new(queue, move |tag| {
        // Ordering: a count alone, used by one thread at a time.
        let refuses = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        match (&handle, refuses) {
            (_, Err(_)) => device.send(tag),
            (None, Ok(_)) => Err((tag, Duration::ZERO)),
            (Some(own), Ok(_)) => {
                let own = own.lock().clone();
                own.expect("the device is open")
                    .requeue(tag, Duration::ZERO);
                Ok(())
            }
        }
    });
    if by_handle {
        *own.lock() = Some(requeue.clone());
    }
    (requeue, sent)
}

/// The stack of a test's thread, 2 MiB, has no room for so many calls in each other.
const REFUSALS: usize = 100_000;

/// Each call sends a request once, however often the device refuses it.
#[test]
fn refusals_after_the_end_of_the_queue_wait_for_the_next_call() {
    for by_handle in [false, true] {
        let setup = setup();
        let (requeue, sent) = refusing(&setup.queue, REFUSALS, by_handle);
        setup.queue.clone().destroy_blocking().unwrap();
        requeue.requeue(setup.tag(7), MS);
        for kicks in 1..=REFUSALS {
            assert_eq!(requeue.waiting(), 1, "it is kept, after {kicks} refusals");
            requeue.kick();
        }
        assert_eq!((requeue.waiting(), *sent.recv()), (0, 7));
    }
}

/// A drain of the queue that goes on until `end_drain` is called.
struct HeldDrain {
    item: JoinHandle<()>,
    done: Arc<(AtomicUsize, Event)>,
    drain: Wait<'static, Result<(), WaitError>>,
}

fn begin_drain(queue: &Workqueue) -> HeldDrain {
    let done = Arc::new((AtomicUsize::new(0), Event::new()));
    let hold = done.clone();
    let item = queue.spawn(move || {
        let (done, event) = &*hold;
        event.wait_while(|| done.load(Ordering::Relaxed) == 0);
    });
    let drain = queue.drain();
    HeldDrain { item, done, drain }
}

fn end_drain(held: HeldDrain) {
    held.done.0.store(1, Ordering::Relaxed);
    held.done.1.notify_all();
    held.item.wait().unwrap();
    inflight::sync::block_on(held.drain).unwrap();
}

/// What comes due while its queue drains is sent at the end of that, without a kick, so a freeze
/// that began during the drain ends too. What comes due later is sent in its time.
#[test]
fn what_comes_due_around_a_drain() {
    let setup = setup();
    setup.hand_in(1, MS);
    let drain = begin_drain(&setup.queue);
    setup.hand_in(2, 2 * MS);
    setup.clock.advance(2 * MS);
    // Long enough for the timer to have come.
    let later = setup.system.workqueue("later").bound().build().unwrap();
    let seen = DelayedWork::new(|| ());
    later.queue_delayed(&seen, MS).unwrap();
    setup.clock.advance(MS);
    while seen.is_pending() {
        thread::yield_now();
    }
    assert_eq!((setup.requeue.waiting(), setup.set.in_use()), (2, 2));
    let mut freeze = setup.set.freeze();
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(std::pin::Pin::new(&mut freeze).poll(&mut cx).is_pending());
    end_drain(drain);
    assert_eq!([*setup.sent.recv(), *setup.sent.recv()], [1, 2]);
    drop(inflight::sync::block_on(freeze));

    setup.hand_in(3, 5 * MS);
    setup.queue.drain_blocking().unwrap();
    assert_eq!(setup.requeue.waiting(), 1);
    setup.clock.advance(5 * MS);
    assert_eq!(*setup.sent.recv(), 3);
    assert_eq!(setup.requeue.stats().sent_early, 0);
}

/// Nothing is sent while the queue drains, whoever requeues or kicks. Then all are, however often
/// the device refuses.
#[test]
fn refusals_around_a_drain_need_no_kick() {
    const REFUSALS: usize = 100;
    for by_handle in [false, true] {
        let setup = setup();
        let (requeue, sent) = refusing(&setup.queue, REFUSALS, by_handle);
        let drain = begin_drain(&setup.queue);
        requeue.requeue(setup.tag(7), Duration::ZERO);
        requeue.kick();
        assert_eq!((requeue.waiting(), requeue.stats().requeued), (1, 1));
        end_drain(drain);
        setup.clock.advance(MS);
        assert_eq!(*sent.recv(), 7);
        assert_eq!(requeue.stats().requeued, 1 + REFUSALS as u64);
    }
}

/// A queue that ends while `send` runs does not wait for a device that always refuses. Each request
/// is sent once, and waits then.
#[test]
fn refusals_without_a_delay_keep_no_queue_from_ending() {
    for (destroyed, by_handle) in [(false, false), (false, true), (true, false), (true, true)] {
        let setup = setup();
        let sends = Arc::new(AtomicUsize::new(0));
        let begun = Arc::new((AtomicUsize::new(0), Event::new()));
        let own = Arc::new(Mutex::new(None::<Requeue<u32>>));
        let requeue = Requeue::with_clock(&setup.queue, &setup.clock, {
            let (sends, begun, own) = (sends.clone(), begun.clone(), own.clone());
            move |tag| {
                begun.1.wait_while(|| begun.0.load(Ordering::Relaxed) == 0);
                // An end, so that the test fails and does not hang.
                if sends.fetch_add(1, Ordering::Relaxed) == 100 {
                    return Ok(());
                }
                let own = own.lock().clone();
                let Some(own) = own else {
                    return Err((tag, Duration::ZERO));
                };
                own.requeue(tag, Duration::ZERO);
                Ok(())
            }
        });
        if by_handle {
            *own.lock() = Some(requeue.clone());
        }
        requeue.requeue(setup.tag(7), Duration::ZERO);
        while requeue.waiting() == 1 {
            thread::yield_now(); // until the work sends it
        }
        let queue = setup.queue.clone();
        let end = if destroyed {
            queue.destroy()
        } else {
            queue.drain()
        };
        begun.0.store(1, Ordering::Relaxed);
        begun.1.notify_all();
        inflight::sync::block_on(end).unwrap();
        let sent = |sends: &AtomicUsize| sends.load(Ordering::Relaxed);
        assert_eq!((sent(&sends), requeue.waiting()), (1, 1));
        if destroyed {
            requeue.kick();
            assert_eq!((sent(&sends), requeue.waiting()), (2, 1));
        } else {
            setup.clock.advance(MS);
            while sent(&sends) <= 100 {
                thread::yield_now(); // sent again and again: the queue is open
            }
        }
        *own.lock() = None;
    }
}

/// A queue that takes work has the request sent again when its delay is over.
#[test]
fn what_is_refused_again_is_sent_again_after_its_delay() {
    let setup = setup();
    let (device, first) = (setup.sent.clone(), AtomicUsize::new(1));
    let requeue = Requeue::with_clock(&setup.queue, &setup.clock, move |tag| {
        if first.swap(0, Ordering::Relaxed) == 1 {
            return Err((tag, 5 * MS));
        }
        device.send(tag)
    });
    requeue.requeue(setup.tag(3), MS);
    setup.clock.advance(MS);
    while requeue.stats().requeued < 2 {
        thread::yield_now();
    }
    assert_eq!(requeue.waiting(), 1);
    setup.clock.advance(5 * MS);
    assert_eq!(*setup.sent.recv(), 3);
}

#[test]
fn a_kick_sends_all_before_their_time_and_oldest_first() {
    let setup = setup();
    for (number, delay) in [(1, 9 * MS), (2, MS), (3, 5 * MS)] {
        setup.hand_in(number, delay);
    }
    setup.requeue.kick();
    let all: Vec<u32> = (0..3).map(|_| *setup.sent.recv()).collect();
    assert_eq!(all, [1, 2, 3]);
    assert_eq!(setup.requeue.stats().sent_early, 3);
    setup.hand_in(4, MS);
    drop(setup.system);
    setup.requeue.kick();
    assert_eq!(*setup.sent.recv(), 4, "by who kicked: the system has gone");
}

/// Nobody is left to keep it.
#[test]
fn what_is_refused_when_the_last_handle_goes_is_dropped() {
    let setup = setup();
    let requeue = Requeue::with_clock(&setup.queue, &setup.clock, |tag| Err((tag, MS)));
    requeue.requeue(setup.tag(1), MS);
    drop(requeue);
    assert_eq!(setup.set.in_use(), 0);
}

/// The last handle goes while its thread unwinds, and a send panics: the thread's own panic goes
/// on.
#[test]
fn the_last_handle_goes_in_a_panic() {
    let setup = setup();
    let requeue = Requeue::with_clock(&setup.queue, &setup.clock, |_: Tag<u32>| panic!("send"));
    requeue.requeue(setup.tag(1), MS);
    let told = catch_unwind(AssertUnwindSafe(|| {
        let _engine = requeue;
        panic!("the engine");
    }));
    assert_eq!(told.unwrap_err().downcast_ref(), Some(&"the engine"));
    assert!(setup.set.try_freeze().is_ok());
}
