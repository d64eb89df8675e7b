//! [`Fairness::Fair`](crate::Fairness::Fair) and [`Fairness::Fifo`](crate::Fairness::Fifo): one
//! list, ids granted to its head, turns.
//!
//! Waking a thread costs more than everything else here, so one wake gives the thread a *turn*: it
//! may take some more ids and overtake the waiters. At most one woken thread has not run yet at a
//! time (it holds the *token*); when it runs, it serves the next. `PROTOCOL-turns.md` has the steps
//! and the proof.

mod close;
mod get_many;
mod linger;
mod list;
mod mode_rules;
mod next_waiter;
mod overtake;
mod put;
mod resize;
mod stall_watchdog;
mod turn;
mod wait;
mod wait_queue;
mod wake;

pub(crate) use mode_rules::ModeRules;
pub(crate) use wait::TurnsWaiter;

use crate::share_limiter::ShareLimiter;
use crate::snapshot::{QueueSnapshot, QueueStats};
use crate::store::Store;
use inflight_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use inflight_sync::time::{Clock, Instant};
use inflight_sync::{Arc, CachePadded, Mutex, cpu};
use wait_queue::WaitQueue;

/// The state that puts and turns read without the lock; written with it.
#[derive(Debug)]
struct UnlockedState {
    /// Whether the head waits for the token of a thread that will serve it.
    awaits_token: AtomicBool,
    /// Whether there are waiters, and none can be served.
    held_up: AtomicBool,
    /// The serial of the last grant.
    grants: AtomicU32,
    /// How many waiters have been woken.
    wakeups: AtomicU64,
    /// The CPU of the last put that saw a waiter.
    putter: AtomicU32,
}

impl UnlockedState {
    /// Notes the CPU that puts come from.
    fn note_putter(&self) {
        let here = cpu::current() as u32;
        // Relaxed, here and below: a hint. Written only when it changes, because turns read its
        // cache line.
        if self.putter.load(Ordering::Relaxed) != here {
            self.putter.store(here, Ordering::Relaxed);
        }
    }

    /// Whether puts come from the CPU that the calling thread runs on.
    fn is_putter_here(&self) -> bool {
        self.putter.load(Ordering::Relaxed) == cpu::current() as u32
    }

    fn set_awaits_token(&self, on: bool) {
        // Relaxed, as the load: written only with the lock, and ordered by V2 and P2.
        if self.awaits_token() != on {
            self.awaits_token.store(on, Ordering::Relaxed);
        }
    }

    #[inline]
    fn awaits_token(&self) -> bool {
        self.awaits_token.load(Ordering::Relaxed)
    }

    fn hold_up(&self, on: bool) {
        // Relaxed, as the load: a thread that reads it late looks in vain, or finds out with the
        // lock. Written only when it changes, because gets read its cache line.
        if self.is_held_up() != on {
            self.held_up.store(on, Ordering::Relaxed);
        }
    }

    fn is_held_up(&self) -> bool {
        self.held_up.load(Ordering::Relaxed)
    }

    /// Moves the serial on. The lock makes the load and the store one step.
    fn add_grants(&self, n: u32) -> u32 {
        let serial = self.grants().wrapping_add(n);
        // Relaxed: a thread that reads it late takes one more id, like one that has just read it.
        self.grants.store(serial, Ordering::Relaxed);
        serial
    }

    fn add_wakeup(&self) {
        // Relaxed, as the load: a statistic, written only with the lock.
        self.wakeups.store(self.wakeups() + 1, Ordering::Relaxed);
    }

    fn wakeups(&self) -> u64 {
        self.wakeups.load(Ordering::Relaxed)
    }

    #[inline]
    fn grants(&self) -> u32 {
        self.grants.load(Ordering::Relaxed)
    }
}

/// A store of ids with fair waiting.
#[derive(Debug)]
pub(crate) struct Turns<S> {
    store: S,
    rules: ModeRules,
    shares: Option<Arc<dyn ShareLimiter>>,
    clock: Clock,
    /// Identifies the turns of this queue.
    number: u64,
    unlocked: CachePadded<UnlockedState>,
    /// Puts that found the token out since the last grant.
    skipped: CachePadded<AtomicU32>,
    wait_queue: CachePadded<Mutex<WaitQueue>>,
}

impl<S: Store> Turns<S> {
    pub(crate) fn new(
        store: S,
        rules: ModeRules,
        clock: Clock,
        shares: Option<Arc<dyn ShareLimiter>>,
    ) -> Self {
        // A model must do the same in every execution. Otherwise a turn at a queue that is gone
        // must not be mistaken for one at a new queue.
        let (number, serial) = if cfg!(any(loom, shuttle)) {
            (1, 0)
        } else {
            (fastrand::u64(1..), fastrand::u32(..))
        };
        Self {
            store,
            rules,
            shares,
            clock,
            number,
            unlocked: CachePadded::new(UnlockedState {
                awaits_token: AtomicBool::new(false),
                held_up: AtomicBool::new(false),
                grants: AtomicU32::new(serial),
                wakeups: AtomicU64::new(0),
                putter: AtomicU32::new(u32::MAX),
            }),
            skipped: CachePadded::new(AtomicU32::new(0)),
            wait_queue: CachePadded::new(Mutex::new(WaitQueue::new())),
        }
    }

    pub(crate) const fn store(&self) -> &S {
        &self.store
    }

    /// Idle tenants leave more for the others, which are served then.
    fn look_for_idle(&self, now: Instant) {
        if self.shares.look_for_idle(now) {
            self.serve_all();
        }
    }

    /// In the terms of the wait queues: there is one, and a wake is one grant.
    pub(crate) fn fill_snapshot(&self, snapshot: &mut QueueSnapshot) {
        let queue = self.wait_queue.lock();
        (snapshot.granted, snapshot.collected) = queue.list.unfetched();
        snapshot.ws_active = queue.list.len();
        // Wraps, as for the batches.
        snapshot.wakeups = self.unlocked.wakeups() as u32;
        snapshot.waiters = vec![queue.list.len()];
    }

    pub(crate) fn stats(&self) -> QueueStats {
        let queue = self.wait_queue.lock();
        QueueStats {
            waits: queue.waits,
            wakeups: self.unlocked.wakeups(),
        }
    }
}
