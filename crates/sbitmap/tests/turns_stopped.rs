//! A thread has been granted and holds the token. It does not run, or it panics: others are served
//! all the same.
#![cfg(not(any(loom, shuttle)))]

#[path = "common/turn_rig.rs"]
mod turn_rig;

use inflight_sbitmap::tenancy::{Request, Rules, ShareLimiter, Tenancy, TenantIndex};
use inflight_sbitmap::{Engine, Fairness, SbitmapQueue};
use inflight_sync::atomic::{AtomicBool, Ordering};
use inflight_sync::time::{Clock, Instant};
use inflight_sync::{Arc, Mutex, Weak, thread};
use std::fmt;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use turn_rig::{Stop, builder, poll, taken, wait_for_waiters};

/// A thread that sleeps until it is granted, and then does not run.
fn stopped_thread(queue: &Arc<SbitmapQueue>) -> (Arc<Stop>, thread::JoinHandle<usize>) {
    let stop = Arc::new(Stop::default());
    let stopped = stop.spawn({
        let queue = queue.clone();
        move || queue.get_blocking().unwrap()
    });
    stop.wait_until_asleep();
    (stop, stopped)
}

/// A thread is granted, holds the token and does not run: another is served after 64 puts, and
/// after a while without any.
#[test]
fn l4_a_granted_thread_that_does_not_run_stops_nobody() {
    const DEPTH: usize = 80;
    for engine in [Engine::Shared, Engine::Local] {
        for by_puts in [true, false] {
            let clock = Clock::manual();
            let queue = builder(DEPTH, (Fairness::fair(), engine)).clock(clock.clone());
            let queue = Arc::new(queue.build().unwrap());
            let bits: Vec<_> = (0..DEPTH).map(|_| queue.try_get().unwrap()).collect();
            let (stop, stopped) = stopped_thread(&queue);
            let other = thread::spawn({
                let queue = queue.clone();
                move || queue.get_blocking().unwrap()
            });
            wait_for_waiters(&queue, 2);
            queue.put(bits[0]).unwrap();
            stop.wait_until_reached();
            queue.put(bits[1]).unwrap();
            assert_eq!(queue.snapshot().ws_active, 1, "the token is out");
            if by_puts {
                queue.put_batch(&bits[2..65]).unwrap();
            }
            while !by_puts && !other.is_finished() {
                clock.advance(Duration::from_millis(20));
                thread::yield_now();
            }
            let bit = other.join().unwrap();
            stop.go_on();
            assert_ne!(bit, stopped.join().unwrap());
        }
    }
}

/// The watchdog is granted, holds the token and does not run. A thread that comes in its turn, to
/// the front, watches in its place.
#[test]
fn l4_a_thread_at_the_front_watches_after_the_watchdog_was_granted() {
    for engine in [Engine::Shared, Engine::Local] {
        let clock = Clock::manual();
        let queue = builder(3, (Fairness::fair(), engine)).clock(clock.clone());
        let queue = Arc::new(queue.build().unwrap());
        let bits: Vec<_> = (0..3).map(|_| queue.try_get().unwrap()).collect();
        let goes_on = Arc::new(AtomicBool::new(false));
        let in_turn = thread::spawn({
            let (queue, goes_on) = (queue.clone(), goes_on.clone());
            move || {
                let first = queue.get_blocking().unwrap();
                // Ordering: pairs with the Release below.
                while !goes_on.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                (first, queue.get_blocking().unwrap())
            }
        });
        wait_for_waiters(&queue, 1);
        queue.put(bits[0]).unwrap();
        while queue.snapshot().granted > 0 {
            thread::yield_now();
        }
        let (stop, stopped) = stopped_thread(&queue);
        queue.put(bits[1]).unwrap();
        stop.wait_until_reached();
        // Ordering: pairs with the Acquire above.
        goes_on.store(true, Ordering::Release);
        wait_for_waiters(&queue, 1);
        queue.put(bits[2]).unwrap();
        assert_eq!(queue.snapshot().ws_active, 1, "the token is out");
        while !in_turn.is_finished() {
            clock.advance(Duration::from_millis(20));
            thread::yield_now();
        }
        assert_eq!(in_turn.join().unwrap(), (bits[0], bits[2]), "{engine:?}");
        stop.go_on();
        assert_eq!(stopped.join().unwrap(), bits[1]);
    }
}

/// The watchdog wants more than there is after a shrink, and is refused. The thread before it
/// watches in its place.
#[test]
fn l4_another_thread_watches_after_the_watchdog_was_refused() {
    for engine in [Engine::Shared, Engine::Local] {
        let clock = Clock::manual();
        let queue = builder(3, (Fairness::fair(), engine)).clock(clock.clone());
        let queue = Arc::new(queue.build().unwrap());
        let mut bits: Vec<_> = (0..3).map(|_| queue.try_get().unwrap()).collect();
        bits.sort_unstable();
        let (stop, stopped) = stopped_thread(&queue);
        queue.put(bits[0]).unwrap();
        stop.wait_until_reached();
        let wait_for = |n| {
            let queue = queue.clone();
            thread::spawn(move || queue.get_many_blocking(n))
        };
        let other = wait_for(1);
        wait_for_waiters(&queue, 1);
        let watchdog = wait_for(3);
        wait_for_waiters(&queue, 2);
        queue.resize(2).unwrap();
        assert!(watchdog.join().unwrap().is_err());
        queue.put(bits[1]).unwrap();
        assert_eq!(queue.snapshot().ws_active, 1, "the token is out");
        while !other.is_finished() {
            clock.advance(Duration::from_millis(20));
            thread::yield_now();
        }
        assert_eq!(other.join().unwrap().unwrap(), [bits[1]], "{engine:?}");
        stop.go_on();
        assert_eq!(stopped.join().unwrap(), bits[0]);
    }
}

/// The token is out, and its thread does not run: a task at the head is served all the same.
#[test]
fn a_task_needs_no_token() {
    for engine in [Engine::Shared, Engine::Local] {
        let (queue, bits) = taken(2, (Fairness::fair(), engine));
        let (stop, stopped) = stopped_thread(&queue);
        let mut task = pin!(queue.get());
        assert!(poll(task.as_mut()).is_pending());
        queue.put(bits[0]).unwrap();
        queue.put(bits[1]).unwrap();
        assert_eq!(poll(task.as_mut()), Poll::Ready(Ok(bits[1])), "{engine:?}");
        stop.go_on();
        assert_eq!(stopped.join().unwrap(), bits[0]);
    }
}

/// The token is out, so the head waits for it with a bit free. It leaves: the task behind it needs
/// no token.
#[test]
fn a_head_that_leaves_lets_the_next_one_be_served() {
    for engine in [Engine::Shared, Engine::Local] {
        let clock = Clock::manual();
        let queue = builder(2, (Fairness::fair(), engine)).clock(clock.clone());
        let queue = Arc::new(queue.build().unwrap());
        let bits = [queue.try_get().unwrap(), queue.try_get().unwrap()];
        let (stop, stopped) = stopped_thread(&queue);
        let timed = thread::spawn({
            let queue = queue.clone();
            move || queue.get_timeout(Duration::from_millis(1)).ok()
        });
        wait_for_waiters(&queue, 2);
        let mut task = pin!(queue.get());
        assert!(poll(task.as_mut()).is_pending());
        queue.put(bits[0]).unwrap();
        queue.put(bits[1]).unwrap();
        assert!(poll(task.as_mut()).is_pending(), "not past the head");
        // Less than the watchdog waits.
        clock.advance(Duration::from_millis(2));
        assert_eq!(timed.join().unwrap(), None);
        let Poll::Ready(Ok(bit)) = poll(task.as_mut()) else {
            panic!("{engine:?}: a bit is free, and nobody is before the task")
        };
        stop.go_on();
        assert_ne!(bit, stopped.join().unwrap());
    }
}

/// Looks for idle tenants by letting all be served, and panics.
#[derive(Default)]
struct PanickingLook {
    allowed: AtomicBool,
    queue: Mutex<Weak<SbitmapQueue>>,
}

impl fmt::Debug for PanickingLook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PanickingLook").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Limits(Arc<PanickingLook>);

impl ShareLimiter for Limits {
    fn may_take(&self, _: TenantIndex) -> bool {
        self.0.allowed.load(Ordering::Relaxed)
    }

    fn took(&self, _: TenantIndex, _: usize) {}

    fn gives(&self, _: usize) {}

    fn look_every(&self, tenant: TenantIndex) -> Option<Duration> {
        (tenant == 0).then_some(Duration::from_secs(1))
    }

    fn look_for_idle(&self, _: Instant) -> bool {
        self.0.allowed.store(true, Ordering::Relaxed);
        let queue = self.0.queue.lock().upgrade().expect("it is waited for");
        queue.shares_changed();
        panic!("this look panics on purpose");
    }
}

/// A thread that panics in its wait has been granted by then, and holds the token for which the
/// next one waits: that one is served.
#[test]
fn a_thread_that_panics_hands_the_token_on() {
    for engine in [Engine::Shared, Engine::Local] {
        let (clock, look) = (Clock::manual(), Arc::new(PanickingLook::default()));
        let queue = builder(4, (Fairness::fair(), engine)).clock(clock.clone());
        let rules = Rules {
            shares: Some(Arc::new(Limits(look.clone()))),
            ..Rules::default()
        };
        let queue = Arc::new(queue.build_with_rules(rules).unwrap());
        *look.queue.lock() = Arc::downgrade(&queue);
        let waits = [0, 1].map(|tenant| {
            let waits = thread::spawn({
                let queue = queue.clone();
                move || {
                    let mut waiter = queue.waiter(Request::one(tenant));
                    waiter.block_one(&queue, None).unwrap()
                }
            });
            wait_for_waiters(&queue, tenant as usize + 1);
            waits
        });
        // Both sleep: the one until it looks, the other one until it asks for lost tokens.
        while clock.sleepers() < 2 {
            thread::yield_now();
        }
        clock.advance(Duration::from_secs(1));
        let [panics, other] = waits;
        assert!(panics.join().is_err());
        assert_eq!(queue.snapshot().ws_active, 0, "{engine:?}: ids are free");
        queue.put(other.join().unwrap()).unwrap();
        assert_eq!(queue.weight(), 0, "{engine:?}: what it had is back");
    }
}

/// A limit that is not there at first. Who looks for idle tenants lifts it.
#[derive(Clone, Debug, Default)]
struct LaterLimit(Arc<AtomicBool>);

impl ShareLimiter for LaterLimit {
    fn may_take(&self, _: TenantIndex) -> bool {
        !self.0.load(Ordering::Relaxed)
    }

    fn took(&self, _: TenantIndex, _: usize) {}

    fn gives(&self, _: usize) {}

    fn look_every(&self, tenant: TenantIndex) -> Option<Duration> {
        (!self.may_take(tenant)).then_some(Duration::from_secs(1))
    }

    fn look_for_idle(&self, _: Instant) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

/// A limit begins while a thread sleeps, and then no other thread does anything: the sleeper finds
/// out that it is to look for idle tenants.
#[test]
fn a_thread_that_slept_before_the_limit_began_looks_for_idle_tenants() {
    for fairness in [Fairness::fair(), Fairness::fifo()] {
        for engine in [Engine::Shared, Engine::Local] {
            let (clock, limit) = (Clock::manual(), LaterLimit::default());
            let queue = builder(1, (fairness, engine)).clock(clock.clone());
            let rules = Rules {
                shares: Some(Arc::new(limit.clone())),
                ..Rules::default()
            };
            let queue = Arc::new(queue.build_with_rules(rules).unwrap());
            let bit = queue.try_get().unwrap();
            let waits = thread::spawn({
                let queue = queue.clone();
                move || {
                    let mut waiter = queue.waiter(Request::one(0));
                    waiter.block_one(&queue, None).unwrap()
                }
            });
            wait_for_waiters(&queue, 1);
            while clock.sleepers() == 0 {
                thread::yield_now();
            }
            limit.0.store(true, Ordering::Relaxed);
            queue.put(bit).unwrap();
            while !waits.is_finished() {
                clock.advance(Duration::from_millis(100));
                thread::yield_now();
            }
            assert_eq!(waits.join().unwrap(), bit, "{fairness:?} {engine:?}");
        }
    }
}
