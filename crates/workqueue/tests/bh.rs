//! BH queues: who runs their items, in which order, and what an item may not do. Spec B4, C1, C22,
//! A41.
#![cfg(not(any(loom, shuttle)))]

mod support;

use inflight_sync::thread::{self, ThreadId};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, Mutex, cpu};
use inflight_workqueue::{
    Attrs, AttrsError, BH_PATIENCE, BhPoller, BuildError, DelayedWork, JoinError, Kind,
    MaxActiveError, Polled, PollerError, Queued, Share, Work, Workqueue, WorkqueueSystem, blocking,
    current_item,
};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use support::{Inside, Level, Log, builder, rigged, system};

fn done(sys: &WorkqueueSystem) -> Workqueue {
    sys.workqueue("done").bh().build().unwrap()
}

/// A system whose time stands still: nobody is late.
fn still() -> (WorkqueueSystem, Clock) {
    let clock = Clock::manual();
    let builder = builder();
    (builder.clock(clock.clone()).build().unwrap(), clock)
}

/// A poller of CPU 0, and how often it has been called.
fn polled(sys: &WorkqueueSystem) -> (BhPoller, Level) {
    let calls = Level::new();
    let notify = calls.clone();
    (sys.bh_poller(0, move || notify.raise()).unwrap(), calls)
}

/// A work that tells where it runs.
fn telling(log: &Log<ThreadId>) -> Work {
    let log = log.clone();
    Work::new(move || log.push(thread::current_id()))
}

fn queue(wq: &Workqueue, work: &Work) {
    assert!(wq.queue_on(0, work).unwrap().is_queued());
}

const BH_2: &str = "inflight/bh:2";

fn thread_name() -> String {
    let name = std::fs::read_to_string("/proc/thread-self/comm");
    name.map_or_else(|_| BH_2.to_owned(), |name| name.trim_end().to_owned())
}

#[test]
fn b4_a_thread_runs_them_in_order_on_their_cpu() {
    let sys = system();
    let wq = done(&sys);
    assert_eq!(wq.kind(), Kind::Bh);
    let log = Log::new();
    for n in 0..100 {
        let log = log.clone();
        drop(wq.spawn_on(2, move || {
            log.push((n, cpu::current(), thread_name()));
        }));
    }
    wq.flush_blocking().unwrap();
    let all: Vec<_> = (0..100).map(|n| (n, 2, BH_2.to_owned())).collect();
    assert_eq!(log.entries(), all);
}

#[test]
fn b4_one_at_a_time_whatever_the_queue() {
    let sys = system();
    let queues = [done(&sys), sys.workqueue("more").bh().build().unwrap()];
    let inside = Inside::new();
    let items: Vec<_> = (0..200)
        .map(|n| {
            let inside = inside.clone();
            queues[n % 2].spawn_on(0, move || {
                inside.enter();
                thread::yield_now();
                inside.leave();
            })
        })
        .collect();
    items.into_iter().for_each(|item| item.wait().unwrap());
    assert_eq!(inside.most(), 1);
}

#[test]
fn b4_a_poller_runs_them_on_its_thread_and_no_thread_is_made() {
    let (sys, _clock) = still();
    let (mut poller, calls) = polled(&sys);
    let wq = done(&sys);
    let log = Log::new();
    let works: Vec<_> = (0..3).map(|_| telling(&log)).collect();
    works.iter().for_each(|work| queue(&wq, work));
    assert_eq!(calls.get(), 1, "once until it has polled");
    assert!(log.entries().is_empty());

    let first = poller.poll(2);
    assert_eq!((first.ran, first.more), (2, true));
    assert_eq!(calls.get(), 1, "it knows that more waits");
    let second = poller.poll(2);
    assert_eq!((second.ran, second.more), (1, false));
    assert_eq!(log.entries(), [thread::current_id(); 3]);

    queue(&wq, &works[0]);
    assert_eq!(calls.get(), 2, "called again after it had found nothing");
    assert_eq!(poller.poll(0).ran, 0);
    assert_eq!(poller.poll(1).ran, 1);
    assert!(
        sys.dump().contains("idle/workers=  1/  1 cpu=  0 bh"),
        "the poller alone:\n{}",
        sys.dump()
    );
    assert_eq!(wq.stats().completed, 4);
}

/// The loop has other things to do; but each poll runs an item.
#[test]
fn a_poll_begins_nothing_once_its_time_is_over() {
    let (sys, clock) = still();
    let (mut poller, _) = polled(&sys);
    let wq = done(&sys);
    for ms in [1, 1, 2, 1] {
        let clock = clock.clone();
        drop(wq.spawn_on(0, move || clock.advance(Duration::from_millis(ms))));
    }
    let polls = [(); 3].map(|()| poller.poll(10));
    let polls = polls.map(|polled| (polled.ran, polled.more));
    assert_eq!(polls, [(2, true), (1, true), (1, false)]);
}

#[test]
fn items_of_a_poll_queue_on_its_cpu() {
    let (sys, _clock) = still();
    let (mut poller, _) = polled(&sys);
    let wq = done(&sys);
    let log = Log::new();
    let second = {
        let log = log.clone();
        Work::new(move || log.push(cpu::current()))
    };
    let first = {
        let (wq, second, log) = (wq.clone(), second.clone(), log.clone());
        Work::new(move || {
            log.push(cpu::current());
            assert!(wq.queue(&second).unwrap().is_queued());
        })
    };
    queue(&wq, &first);
    cpu::set_current_for_thread(Some(3));
    assert_eq!(poller.poll(10).ran, 2);
    assert_eq!(cpu::current(), 3, "as before");
    cpu::set_current_for_thread(None);
    assert_eq!(log.entries(), [0, 0]);
}

#[test]
fn a_poller_that_does_not_come_is_relieved_by_the_thread() {
    let (sys, clock) = still();
    let (mut poller, calls) = polled(&sys);
    let wq = done(&sys);
    let log = Log::new();
    let work = telling(&log);
    queue(&wq, &work);
    assert_eq!((calls.get(), log.entries().len()), (1, 0));
    clock.advance(BH_PATIENCE);
    wq.flush_blocking().unwrap();
    assert_ne!(log.entries(), [thread::current_id()]);
    // Late is late: the thread goes on without a call.
    queue(&wq, &work);
    wq.flush_blocking().unwrap();
    assert_eq!(calls.get(), 1);
    // And in time again.
    assert_eq!(poller.poll(1).ran, 0);
    queue(&wq, &work);
    calls.wait(2); // By the thread, if it has not parked yet.
    assert_eq!(poller.poll(1).ran, 1);
    assert_eq!(log.entries()[2], thread::current_id());
    // And late again; the timer may be that of the call before, and ask again.
    queue(&wq, &work);
    while log.entries().len() < 4 {
        clock.advance(BH_PATIENCE);
        thread::yield_now();
    }
    assert_ne!(log.entries()[3], thread::current_id());
}

/// It has been told that more waits, and nobody asks any more whether it came when it was called.
#[test]
fn a_poller_that_does_not_come_again_is_relieved_by_the_thread() {
    let (sys, clock) = still();
    let (mut poller, _) = polled(&sys);
    let (wq, other) = (done(&sys), support::bound(&sys));
    let passed = Level::new();
    let first = {
        let (clock, other, passed) = (clock.clone(), other.clone(), passed.clone());
        Work::new(move || {
            let after = DelayedWork::new({
                let passed = passed.clone();
                move || passed.raise()
            });
            let queued = other.queue_delayed_on(1, &after, BH_PATIENCE);
            assert!(queued.unwrap().is_queued());
            clock.advance(BH_PATIENCE);
            passed.wait_silently(1); // The timer of its call came before.
        })
    };
    let log = Log::new();
    let second = telling(&log);
    queue(&wq, &first);
    queue(&wq, &second);
    assert!(poller.poll(1).more);
    clock.advance(BH_PATIENCE);
    wq.flush_blocking().unwrap();
    assert_ne!(log.entries(), [thread::current_id()]);
    assert_eq!(log.entries().len(), 1);
}

#[test]
fn the_thread_leaves_work_to_a_poller_that_comes_back() {
    let (sys, clock) = still();
    let (mut poller, calls) = polled(&sys);
    let wq = done(&sys);
    let (begun, open) = (Level::new(), Level::new());
    let long = {
        let (begun, open) = (begun.clone(), open.clone());
        Work::new(move || {
            begun.raise();
            open.wait_silently(1);
        })
    };
    queue(&wq, &long);
    clock.advance(BH_PATIENCE);
    begun.wait(1);
    let log = Log::new();
    let works: Vec<_> = (0..5).map(|_| telling(&log)).collect();
    works.iter().for_each(|work| queue(&wq, work));
    let none = poller.poll(10);
    assert_eq!((none.ran, none.more), (0, false), "one at a time");
    let last = telling(&log);
    queue(&wq, &last);
    let calls_in_vain = calls.get() - 1;
    open.raise();
    assert_eq!(calls_in_vain, 0, "the thread runs");
    calls.wait(2);
    assert_eq!(poller.poll(10).ran, 6);
    assert_eq!(log.entries(), [thread::current_id(); 6]);
}

#[test]
fn a_poller_that_goes_leaves_the_rest_to_the_thread() {
    let (sys, _clock) = still();
    let (mut poller, _) = polled(&sys);
    let wq = done(&sys);
    let log = Log::new();
    let works: Vec<_> = (0..4).map(|_| telling(&log)).collect();
    works.iter().for_each(|work| queue(&wq, work));
    assert!(poller.poll(1).more);
    drop(poller);
    wq.flush_blocking().unwrap();
    let here = thread::current_id();
    let by_me: Vec<_> = log.entries().iter().map(|id| *id == here).collect();
    assert_eq!(by_me, [true, false, false, false]);
    let again = sys.bh_poller(0, || ());
    assert!(again.is_ok(), "the place is free again");
}

/// Time stands still, and the poller has been called, has been told that more waits, or is inside
/// its poll.
#[test]
fn a_shutdown_does_not_need_the_poller() {
    let (sys, _clock) = still();
    let (mut poller, calls) = polled(&sys);
    let log = Log::new();
    let works: Vec<_> = (0..3).map(|_| telling(&log)).collect();
    let wq = done(&sys);
    works.iter().for_each(|work| queue(&wq, work));
    assert_eq!(calls.get(), 1);
    assert!(poller.poll(1).more);
    drop(sys);
    let me = thread::current_id();
    let by_me: Vec<_> = log.entries().iter().map(|id| *id == me).collect();
    assert_eq!(by_me, [true, false, false]);
    assert_eq!(poller.poll(10), Polled::default());
    drop(poller);
}

#[test]
fn a_shutdown_during_a_poll() {
    let (sys, _clock) = still();
    let (mut poller, _) = polled(&sys);
    let wq = done(&sys);
    let log = Log::new();
    let (begun, open) = (Level::new(), Level::new());
    let first = {
        let (begun, open) = (begun.clone(), open.clone());
        Work::new(move || {
            begun.raise();
            open.wait_silently(1);
        })
    };
    queue(&wq, &first);
    queue(&wq, &telling(&log));
    let polls = thread::spawn(move || poller.poll(1));
    begun.wait(1);
    // It says that it ends, and cannot yet.
    assert!(sys.shutdown_timeout(Duration::ZERO).is_err());
    assert!(matches!(
        sys.bh_poller(1, || ()),
        Err(PollerError::ShutDown)
    ));
    open.raise();
    let polled = polls.join().unwrap();
    assert_eq!(
        (polled.ran, polled.more),
        (1, false),
        "the thread runs the rest"
    );
    wq.flush_blocking().unwrap();
    assert_eq!(log.entries().len(), 1);
}

#[test]
fn highpri_items_come_first_in_a_poll() {
    let (sys, _clock) = still();
    let (mut poller, _) = polled(&sys);
    let wq = done(&sys);
    let urgent = sys.workqueue("urgent").bh().highpri().build().unwrap();
    let log = Log::new();
    let named = |name: &'static str| {
        let log = log.clone();
        Work::new(move || log.push(name))
    };
    let late = named("high, queued by an item");
    let normal = {
        let (log, urgent, late) = (log.clone(), urgent.clone(), late.clone());
        Work::new(move || {
            log.push("first");
            assert!(urgent.queue(&late).unwrap().is_queued());
        })
    };
    queue(&wq, &normal);
    let second = named("second");
    queue(&wq, &second);
    let high = named("high");
    queue(&urgent, &high);
    assert_eq!(poller.poll(10).ran, 4);
    let order = ["high", "first", "high, queued by an item", "second"];
    assert_eq!(log.entries(), order);
}

#[test]
fn b4_highpri_and_nothing_else() {
    let sys = system();
    let draft = || sys.workqueue("done").bh();
    for (builder, what) in [
        (draft().mem_reclaim(), "mem_reclaim"),
        (draft().cpu_intensive(), "cpu_intensive"),
        (draft().power_efficient(), "power_efficient"),
        (draft().freezable(), "freezable"),
        (draft().share(Share::PerNode), "share"),
        (draft().min_active(0), "min_active"),
    ] {
        assert_eq!(builder.build().unwrap_err(), BuildError::NotBh(what));
    }
    for limit in [0, 1, 16] {
        let refused = draft().max_active(limit).build().unwrap_err();
        assert_eq!(refused, BuildError::MaxActive(MaxActiveError::Bh));
    }
    let wq = draft().highpri().build().unwrap();
    assert_eq!(wq.set_max_active(16), Err(MaxActiveError::Bh), "C22");
    let refused = wq.set_attrs(Attrs::new()).unwrap_err();
    assert_eq!(refused, AttrsError::NotUnbound);
    let why = "only unbound and ordered workqueues have attributes";
    assert_eq!(refused.to_string(), why, "not that it is bound");
}

#[test]
fn c1_there_is_no_limit() {
    let (sys, _clock) = still();
    let (mut poller, _) = polled(&sys);
    let wq = done(&sys);
    let n = 3000;
    let items: Vec<_> = (0..n).map(|n| wq.spawn_on(0, move || n)).collect();
    assert_eq!((wq.stats().active, wq.stats().inactive), (n, 0));
    assert!(!wq.is_congested(0));
    while poller.poll(100).more {}
    for (n, item) in items.into_iter().enumerate() {
        assert_eq!(item.wait().unwrap(), n);
    }
}

#[test]
fn a_cpu_has_one_poller_and_exists() {
    let sys = system();
    let _first = sys.bh_poller(1, || ()).unwrap();
    assert_eq!(sys.bh_poller(1, || ()).unwrap_err(), PollerError::Taken(1));
    assert_eq!(
        sys.bh_poller(99, || ()).unwrap_err(),
        PollerError::NoSuchCpu(99)
    );
}

#[test]
fn a_panic_in_a_poll_is_the_items() {
    let (sys, _clock) = still();
    let (mut poller, _) = polled(&sys);
    let wq = done(&sys);
    let bad = wq.spawn_on(0, || panic!("bad"));
    let good = wq.spawn_on(0, || 7);
    assert_eq!(poller.poll(10).ran, 2);
    assert!(matches!(bad.wait(), Err(JoinError::Panicked(_))));
    assert_eq!(good.wait().unwrap(), 7);
    blocking(|| ()); // The poller's thread is no item.
}

#[test]
fn cancelled_and_disabled_works_do_not_run() {
    let (sys, _clock) = still();
    let (mut poller, _) = polled(&sys);
    let wq = done(&sys);
    let log = Log::new();
    let works = [telling(&log), telling(&log), telling(&log)];
    works.iter().for_each(|work| queue(&wq, work));
    assert!(works[0].cancel());
    assert!(works[1].disable().unwrap());
    assert_eq!(wq.queue(&works[1]).unwrap(), Queued::Disabled);
    assert!(poller.poll(10).ran <= 1);
    assert_eq!(log.entries().len(), 1);
    let stats = wq.stats();
    assert_eq!((stats.completed, stats.cancelled, stats.active), (1, 2, 0));
    wq.drain_blocking().unwrap();
}

#[test]
fn a_work_that_queues_itself_runs_again_after_the_others() {
    let (sys, _clock) = still();
    let (mut poller, _) = polled(&sys);
    let wq = done(&sys);
    let log = Log::new();
    let slot: Arc<Mutex<Option<Work>>> = Arc::default();
    let own = {
        let (wq, log, slot) = (wq.clone(), log.clone(), slot.clone());
        Work::new(move || {
            log.push("own");
            if let Some(me) = slot.lock().take() {
                assert!(wq.queue(&me).unwrap().is_queued());
            }
        })
    };
    *slot.lock() = Some(own.clone());
    queue(&wq, &own);
    let other = {
        let log = log.clone();
        Work::new(move || log.push("other"))
    };
    queue(&wq, &other);
    while poller.poll(1).more {}
    assert_eq!(log.entries(), ["own", "other", "own"]);
}

/// Pollers that come and go, are late at any time and come back, while several threads queue: each
/// item runs once, one at a time on each CPU, and each thread's items in their order.
#[test]
fn nothing_is_lost_between_pollers_and_threads() {
    const EACH: usize = 3000;
    let (sys, clock) = still();
    let wq = done(&sys);
    let order = Log::new();
    let inside = Inside::new();
    let ended = Level::new();
    let submitters: Vec<_> = (0..3)
        .map(|submitter| {
            let (wq, ended) = (wq.clone(), ended.clone());
            let (order, inside) = (order.clone(), inside.clone());
            thread::spawn(move || {
                for n in 0..EACH {
                    let (order, inside) = (order.clone(), inside.clone());
                    drop(wq.spawn_on(0, move || {
                        inside.enter();
                        order.push((submitter, n));
                        inside.leave();
                    }));
                }
                ended.raise();
            })
        })
        .collect();
    let mut random = fastrand::Rng::with_seed(7);
    while ended.get() < 3 || wq.stats().active > 0 {
        let mut poller = sys.bh_poller(0, || ()).unwrap();
        for _ in 0..random.usize(..20) {
            let _ = poller.poll(random.usize(..8));
            if random.bool() {
                clock.advance(BH_PATIENCE);
            }
            thread::yield_now();
        }
    }
    submitters.into_iter().for_each(|s| s.join().unwrap());
    assert_eq!(inside.most(), 1);
    let order = order.entries();
    for submitter in 0..3 {
        let mine = order.iter().filter(|(s, _)| *s == submitter);
        assert!(mine.map(|(_, n)| *n).eq(0..EACH), "each once, in order");
    }
}

/// Not that of the worker on which it was made.
#[test]
fn a_poller_has_no_thread_name() {
    let (sys, _) = still();
    let maker = sys.workqueue("maker").bound().build().unwrap();
    let own = sys.clone();
    let made = maker.spawn(move || own.bh_poller(0, || ()).unwrap());
    let mut poller = made.wait().unwrap();
    let told = done(&sys).spawn_on(0, || current_item().unwrap().thread_name);
    while poller.poll(10).more {}
    assert_eq!(told.wait().unwrap(), None);
}

/// Polls when its thread ends, and passes the poller on.
struct PollsAtEnd(Option<BhPoller>, Arc<Mutex<Option<BhPoller>>>);

impl Drop for PollsAtEnd {
    fn drop(&mut self) {
        let mut poller = self.0.take().unwrap();
        let _ = catch_unwind(AssertUnwindSafe(|| poller.poll(1)));
        *self.1.lock() = Some(poller);
    }
}

inflight_sync::thread_local! {
    static POLLS: RefCell<Option<PollsAtEnd>> = const { RefCell::new(None) };
}

/// The locals that a poll needs may be gone. Then it takes nothing: nobody would run what it has
/// taken, and the next poll would take it for ended, with the queue that it came from.
#[test]
fn a_poll_in_the_destructor_of_a_thread_local_loses_nothing() {
    let (sys, ..) = rigged(builder());
    let (poller, _) = polled(&sys);
    let wq = done(&sys);
    let items = [1, 2].map(|n| wq.spawn_on(0, move || n));
    let back = Arc::new(Mutex::new(None));
    let polls = PollsAtEnd(Some(poller), back.clone());
    let polling = thread::spawn(move || {
        POLLS.with(|slot| slot.replace(Some(polls)));
        // The locals that this makes are destroyed before the one above.
        let first = POLLS.with(|slot| slot.borrow_mut().as_mut()?.0.as_mut().map(|p| p.poll(1)));
        assert_eq!(first.unwrap().ran, 1);
    });
    polling.join().unwrap();
    drop(wq);
    let other = done(&sys);
    let last = other.spawn_on(0, || 3);
    let mut poller = back.lock().take().unwrap();
    while poller.poll(10).more {}
    assert_eq!(items.map(|item| item.wait().unwrap()), [1, 2]);
    assert_eq!(last.wait().unwrap(), 3);
}
