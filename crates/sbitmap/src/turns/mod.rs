//! [`Fairness::Fair`](crate::Fairness::Fair) and [`Fairness::Fifo`](crate::Fairness::Fifo): one
//! list, ids handed to its head, turns.
//!
//! The wake of a thread costs more than everything else here, so one wake buys a *turn*: the woken
//! thread may take some more ids past those who wait. At most one woken thread is under way at a
//! time (it holds the *token*), and when it runs it serves the next. `PROTOCOL-turns.md` has the
//! steps and the proof.

mod credits;
mod list;
mod order;
mod owned;
mod wait;
mod wait_queue;
mod wake_set;

pub(crate) use wait::TurnsWaiter;

use crate::error::{PutError, ResizeError};
use crate::mask::BitMask;
use crate::request::ShareLimiter;
use crate::snapshot::{QueueSnapshot, QueueStats};
use crate::store::Store;
use inflight_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use inflight_sync::time::{Clock, Instant};
use inflight_sync::wait::Wakers;
use inflight_sync::{CachePadded, Mutex, MutexGuard, cpu};
use std::ops::Deref;
use wait_queue::WaitQueue;
use wake_set::WakeSet;

/// How many ids a turn of `Fair` has.
const QUANTUM: u32 = if cfg!(loom) { 2 } else { 13 };

/// For how many grants it lasts.
const TURN_LIFE: u32 = 11;

/// After how many puts that found its token out that is given up.
const STALL_LIMIT: u32 = if cfg!(loom) { 2 } else { 64 };

/// What a mode allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModeRules {
    /// How many ids one wake brings a thread, the granted one included.
    pub(crate) quantum: u32,
    /// For how many grants a turn lasts.
    pub(crate) life: u32,
    /// How many woken threads may be under way.
    pub(crate) tokens: u32,
    /// After how many puts that found the token out it is given up.
    pub(crate) stall_limit: u32,
    /// How long a turn that finds no id looks on before it waits, while puts come from another CPU:
    /// in steps of some 0.1 us. In all about what it costs to wake a thread on another CPU.
    pub(crate) spins: u32,
    /// How often it lends its CPU instead, while puts come from its own.
    pub(crate) yields: u32,
}

impl ModeRules {
    pub(crate) const FAIR: Self = Self {
        quantum: QUANTUM,
        life: TURN_LIFE,
        tokens: 1,
        stall_limit: STALL_LIMIT,
        // Why: a model checker's CPU does nothing else meanwhile, and its CPUs are made up.
        spins: if cfg!(any(loom, shuttle)) { 0 } else { 200 },
        yields: if cfg!(any(loom, shuttle)) { 0 } else { 2 },
    };

    pub(crate) const FAIR_POLLED: Self = Self {
        spins: Self::FAIR.spins * 2,
        yields: Self::FAIR.yields * 4,
        ..Self::FAIR
    };

    pub(crate) const FIFO: Self = Self {
        quantum: 1,
        life: 0,
        tokens: u32::MAX,
        stall_limit: 1,
        spins: 0,
        yields: 0,
    };
}

/// The rules of a queue, and which of its tenants may be served.
#[derive(Debug)]
pub(crate) struct Policy {
    rules: ModeRules,
    shares: Option<Box<dyn ShareLimiter>>,
}

impl Deref for Policy {
    type Target = ModeRules;

    fn deref(&self) -> &ModeRules {
        &self.rules
    }
}

/// What puts and turns read without the lock; written with it.
#[derive(Debug)]
struct UnlockedState {
    /// Whether the head waits for the token of a thread that will serve it.
    closed: AtomicBool,
    /// Whether somebody waits, and nobody can be served.
    held_up: AtomicBool,
    /// The serial of the last grant.
    grants: AtomicU32,
    /// The CPU of the last put that saw somebody wait.
    putter: AtomicU32,
}

impl UnlockedState {
    /// Notes where puts come from.
    fn note_putter(&self) {
        let here = cpu::current() as u32;
        // Relaxed, here and below: a hint. Written only when it changes, for turns read its
        // cache line.
        if self.putter.load(Ordering::Relaxed) != here {
            self.putter.store(here, Ordering::Relaxed);
        }
    }

    /// Whether puts come from the CPU that the calling thread runs on.
    fn is_putter_here(&self) -> bool {
        self.putter.load(Ordering::Relaxed) == cpu::current() as u32
    }

    fn close(&self, on: bool) {
        // Relaxed, as the load: written with the lock only, and ordered by V2 and P2.
        if self.is_closed() != on {
            self.closed.store(on, Ordering::Relaxed);
        }
    }

    #[inline]
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    fn hold_up(&self, on: bool) {
        // Relaxed, as the load: who reads it late looks in vain, or finds out with the lock.
        self.held_up.store(on, Ordering::Relaxed);
    }

    fn is_held_up(&self) -> bool {
        self.held_up.load(Ordering::Relaxed)
    }

    fn set_grants(&self, serial: u32) {
        // Relaxed: who reads it late takes one id more, as one who has just looked.
        self.grants.store(serial, Ordering::Relaxed);
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
    rules: Policy,
    clock: Clock,
    /// Tells the turns of this queue from those of others.
    number: u64,
    gate: CachePadded<UnlockedState>,
    /// Puts that found the gate closed since it last was opened.
    skipped: CachePadded<AtomicU32>,
    wait_queue: CachePadded<Mutex<WaitQueue>>,
}

impl<S: Store> Turns<S> {
    pub(crate) fn new(
        store: S,
        rules: ModeRules,
        clock: Clock,
        shares: Option<Box<dyn ShareLimiter>>,
    ) -> Self {
        // A model must do the same in every execution. Elsewhere a turn at a queue that is gone
        // must not be mistaken for one at a new queue.
        let (number, serial) = if cfg!(any(loom, shuttle)) {
            (1, 0)
        } else {
            (fastrand::u64(1..), fastrand::u32(..))
        };
        Self {
            store,
            rules: Policy { rules, shares },
            clock,
            number,
            gate: CachePadded::new(UnlockedState {
                closed: AtomicBool::new(false),
                held_up: AtomicBool::new(false),
                grants: AtomicU32::new(serial),
                putter: AtomicU32::new(u32::MAX),
            }),
            skipped: CachePadded::new(AtomicU32::new(0)),
            wait_queue: CachePadded::new(Mutex::new(WaitQueue::new(serial))),
        }
    }

    pub(crate) const fn store(&self) -> &S {
        &self.store
    }

    /// Tenants that have gone idle leave more for the others, who are served then.
    fn look_for_idle(&self, now: Instant) {
        if self.rules.shares.look_for_idle(now) {
            self.serve_all();
        }
    }

    /// G1 and G2.
    #[inline]
    pub(crate) fn try_get(&self) -> Option<usize> {
        let id = self.store.try_get();
        if id.is_some() || self.store.waiters() == 0 {
            return id;
        }
        self.take_in_turn()
    }

    /// G2: takes an id past those who wait, if the calling thread has its turn.
    #[cold]
    #[inline(never)]
    fn take_in_turn(&self) -> Option<usize> {
        let turn = self.turn()?;
        let id = self.store.take()?;
        self.store.set_owned(id);
        credits::set(self.number, turn.serial, turn.credits - 1);
        Some(id)
    }

    /// The calling thread's turn, if it has one and it is not over.
    fn turn(&self) -> Option<credits::Turn> {
        let age = |turn: &credits::Turn| self.gate.grants().wrapping_sub(turn.serial);
        credits::of(self.number).filter(|turn| age(turn) < self.rules.life)
    }

    pub(crate) fn try_get_mask(&self, n: usize) -> BitMask {
        self.store.try_get_mask(n)
    }

    pub(crate) fn try_get_shallow(&self, limit: usize) -> Option<usize> {
        self.store.try_get_shallow(limit)
    }

    pub(crate) fn try_get_batch(&self, n: usize, ids: &mut Vec<usize>) -> usize {
        let got = self.store.try_get_batch(n, ids);
        if got > 0 || self.store.waiters() == 0 {
            return got;
        }
        let before = ids.len();
        ids.extend(std::iter::from_fn(|| self.take_in_turn()).take(n));
        ids.len() - before
    }

    pub(crate) fn put(&self, id: usize) -> Result<(), PutError> {
        self.finish_put(self.store.put(id))
    }

    /// P4 and P5 after what the store has said of one id.
    pub(crate) fn finish_put(&self, put: Result<bool, PutError>) -> Result<(), PutError> {
        if put? {
            self.after_put(1);
        }
        Ok(())
    }

    pub(crate) fn put_batch(&self, ids: &[usize]) -> Result<(), PutError> {
        self.finish_puts(self.store.put_batch(ids))
    }

    pub(crate) fn put_mask(&self, ids: BitMask) -> Result<(), PutError> {
        self.finish_puts(self.store.put_mask(ids))
    }

    fn finish_puts<T>(&self, (freed, somebody_waits, result): (usize, bool, T)) -> T {
        if freed > 0 && somebody_waits {
            self.after_put(freed);
        }
        result
    }

    /// P4 and P5: somebody may wait for the `n` ids that were given.
    #[cold]
    fn after_put(&self, n: usize) {
        if self.gate.is_closed() {
            self.gate.note_putter();
            let n = u32::try_from(n).expect("a map has at most 2^24 bits");
            // Relaxed: a count; whoever reaches the limit looks again under the lock.
            let skipped = self
                .skipped
                .fetch_add(n, Ordering::Relaxed)
                .saturating_add(n);
            if skipped < self.rules.stall_limit {
                return;
            }
        }
        let mut queue = self.wait_queue.lock();
        self.gate.note_putter();
        let mut chosen = WakeSet::default();
        // P5. Puts that have waited for the lock may find that others did it.
        if self.gate.is_closed() {
            if self.skipped.load(Ordering::Relaxed) >= self.rules.stall_limit {
                queue.give_up_tokens();
                self.serve(&mut queue, None, &mut chosen);
            }
        } else if self.rules.shares.is_some() {
            // Another tenant may be served by now, or its own was at its limit.
            self.serve(&mut queue, None, &mut chosen);
        } else {
            self.hand_out(&mut queue, n, None, &mut chosen);
        }
        self.wake(queue, chosen, Wakers::default());
    }

    fn serve_and_wake(&self, mut queue: MutexGuard<'_, WaitQueue>, wakers: Wakers) {
        let mut chosen = WakeSet::default();
        self.serve(&mut queue, None, &mut chosen);
        self.wake(queue, chosen, wakers);
    }

    /// Tells those who are chosen, and serves until nobody more can be granted.
    ///
    /// # Panics
    ///
    /// With the first panic of a waker, after all are told.
    fn wake<'a>(
        &'a self,
        mut queue: MutexGuard<'a, WaitQueue>,
        mut chosen: WakeSet,
        mut wakers: Wakers,
    ) {
        loop {
            let again = chosen.is_full();
            drop(queue);
            wakers.wake(chosen.drain());
            if !again {
                break;
            }
            queue = self.wait_queue.lock();
            self.serve(&mut queue, None, &mut chosen);
        }
        wakers.finish();
    }

    pub(crate) fn resize(&self, depth: usize) -> Result<(), ResizeError> {
        self.store.resize(depth)?;
        let mut queue = self.wait_queue.lock();
        // Whoever joins after this sees the depth; whoever joined before is in the list.
        let refused = queue.refuse_above(self.store.depth());
        let mut wakers = Wakers::default();
        if !refused.is_empty() {
            drop(queue);
            wakers.wake(refused);
            queue = self.wait_queue.lock();
        }
        self.serve_and_wake(queue, wakers);
        Ok(())
    }

    /// Nobody gets an id from now on, and all who wait are told so.
    ///
    /// Gets find that somebody waits, for good: that refuses them, and keeps the store drained.
    pub(crate) fn close(&self) {
        let mut queue = self.wait_queue.lock();
        if std::mem::replace(&mut queue.closed, true) {
            return;
        }
        self.end_turns(&mut queue);
        let refused = queue.refuse_all();
        let mut chosen = WakeSet::default();
        self.serve(&mut queue, None, &mut chosen);
        // Wakers run without the lock, and at the end: one may panic.
        drop(queue);
        self.store.drain_percpu();
        let mut wakers = Wakers::default();
        wakers.wake(refused);
        self.wake(self.wait_queue.lock(), chosen, wakers);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.wait_queue.lock().closed
    }

    /// Makes every waiter look again, and counts no longer on woken threads that do not run. Nobody
    /// loses a place.
    pub(crate) fn wake_all(&self) {
        let all = self.wait_queue.lock().list.notify_all();
        let mut wakers = Wakers::default();
        wakers.wake(all);
        let mut queue = self.wait_queue.lock();
        queue.give_up_tokens();
        self.serve_and_wake(queue, wakers);
    }

    /// In the terms of the wait queues: there is one, and a wake is one grant.
    pub(crate) fn look_at(&self, snapshot: &mut QueueSnapshot) {
        let queue = self.wait_queue.lock();
        (snapshot.granted, snapshot.collected) = queue.list.unfetched();
        snapshot.ws_active = queue.list.len();
        // Wraps, as those of the batches do.
        snapshot.wakeups = queue.wakeups as u32;
        snapshot.waiters = vec![queue.list.len()];
    }

    pub(crate) fn stats(&self) -> QueueStats {
        let queue = self.wait_queue.lock();
        QueueStats {
            waits: queue.waits,
            wakeups: queue.wakeups,
        }
    }
}
