//! Tasks that wait where they came: a home for each CPU. Events N1 to N5.
//!
//! An id that is put on a CPU goes straight to a task that came to wait there: the id is never
//! free, no lock or line of another CPU is touched, and the task runs where its memory is. Ages
//! keep the CPUs from drifting apart: nobody at home is served while somebody at another home is
//! older by [`AHEAD`] ages or more.

use super::tasks::{Spot, Tasks};
use crate::store::Store;
use inflight_sync::atomic::{AtomicU64, Ordering};
use inflight_sync::wait::Notify;
use inflight_sync::{CachePadded, Mutex, cpu};

/// The most homes; CPUs beyond share them.
const MOST: usize = 16;

/// How many tasks of all homes have the same age, at most.
const SAME_AGE: u32 = 64;

/// A home's head may be served while it is younger than the oldest by fewer ages than this.
///
/// So a task is overtaken by fewer than `AHEAD * SAME_AGE` that came after it. With one age only,
/// CPUs of unequal speed would meet at the end of each.
const AHEAD: u64 = 2;

/// The age of the head of a home without any.
const NOBODY: u64 = u64::MAX;

#[derive(Debug)]
struct Home {
    /// The age of the head, or [`NOBODY`]. Written with the lock of `tasks`.
    oldest: AtomicU64,
    tasks: Mutex<Tasks>,
}

impl Home {
    fn oldest(&self) -> u64 {
        // Relaxed: a hint to those who have neither lock. With the line's lock "nobody" is exact
        // the one way that matters: only its holders make this another value than that.
        self.oldest.load(Ordering::Relaxed)
    }

    /// After each change of the head.
    fn set_oldest(&self, tasks: &Tasks) {
        let oldest = tasks.oldest().unwrap_or(NOBODY);
        if self.oldest() != oldest {
            // Relaxed: as above.
            self.oldest.store(oldest, Ordering::Relaxed);
        }
    }
}

/// What serving the homes came to.
#[derive(Debug)]
pub(super) enum Served {
    /// Nobody is at home.
    Nobody,
    /// Somebody is, and no id is free.
    NoId,
    /// A task has an id. `None`: it needs no news.
    One(Option<Notify>),
}

/// What a task finds.
#[derive(Debug)]
pub(super) struct Found {
    /// It has an id, and its place is gone; else it waits.
    pub(super) id: Option<usize>,
    /// It is told by this no longer. To be dropped without a lock: a waker may run anything.
    pub(super) unused: Option<Notify>,
}

#[derive(Debug)]
pub(super) struct Homes {
    /// A power of two of them.
    all: Box<[CachePadded<Home>]>,
    /// The age of newcomers. Only grows.
    now: CachePadded<AtomicU64>,
    /// No task at home is older. Written with the line's lock; only grows.
    due: CachePadded<AtomicU64>,
    /// How many tasks of a home have the same age, at most.
    share: u32,
}

impl Homes {
    pub(super) fn new() -> Self {
        let homes = cpu::possible().next_power_of_two().min(MOST);
        let home = || Home {
            oldest: AtomicU64::new(NOBODY),
            tasks: Mutex::default(),
        };
        Self {
            all: (0..homes).map(|_| CachePadded::new(home())).collect(),
            now: CachePadded::new(AtomicU64::new(0)),
            due: CachePadded::new(AtomicU64::new(0)),
            share: if cfg!(loom) {
                1
            } else {
                SAME_AGE / homes as u32
            },
        }
    }

    fn here(&self) -> usize {
        cpu::current() & (self.all.len() - 1)
    }

    /// Heads of this age are not yet due.
    fn end_of_due(&self) -> u64 {
        // Relaxed: who reads it late takes the long way.
        self.due.load(Ordering::Relaxed) + AHEAD
    }

    /// Whether nobody is at home. For holders of the line's lock; "somebody" may be late.
    pub(super) fn are_empty(&self) -> bool {
        self.all.iter().all(|home| home.oldest() == NOBODY)
    }

    /// N1: the caller's id goes to the head of this CPU's home, if it is due. Returns how to tell
    /// it. `None`: nothing has happened, the caller still owns the id or never did.
    #[inline]
    pub(super) fn hand_over<S: Store>(&self, id: usize, store: &S) -> Option<Option<Notify>> {
        let home = &self.all[self.here()];
        // A look that may be old spares others the lock.
        if home.oldest() >= self.end_of_due() {
            return None;
        }
        let mut tasks = home.tasks.lock();
        let is_due = tasks.oldest().is_some_and(|age| age < self.end_of_due());
        if !is_due || !store.retire(id) {
            return None;
        }
        let notify = tasks.grant(id);
        home.set_oldest(&tasks);
        Some(notify)
    }

    /// N2: a newcomer stands behind others at home, if there are any and the home is open.
    pub(super) fn join(&self, notify: Notify) -> Result<Spot, Notify> {
        let here = self.here();
        let home = &self.all[here];
        if home.oldest() == NOBODY {
            return Err(notify);
        }
        let mut tasks = home.tasks.lock();
        if !tasks.open || tasks.oldest().is_none() {
            return Err(notify);
        }
        tasks.waits += 1;
        Ok(self.push(here, &mut tasks, Some(notify), 0))
    }

    /// N3: a newcomer opens the home of its CPU. For holders of the line's lock. It is served
    /// without news until it says by [`stay`](Homes::stay) how it wants to be told.
    pub(super) fn enter(&self) -> Spot {
        let here = self.here();
        let mut tasks = self.all[here].tasks.lock();
        tasks.open = true;
        // Relaxed: exact with the line's lock.
        let due = self.due.load(Ordering::Relaxed);
        self.push(here, &mut tasks, None, due)
    }

    fn push(&self, at: usize, tasks: &mut Tasks, notify: Option<Notify>, least: u64) -> Spot {
        // Relaxed, here and below: ages steer the order of service. One that is read late is made
        // up for by those of the task before it, and by what is due.
        let now = self.now.load(Ordering::Relaxed);
        let (spot, full) = tasks.push(at, now.max(least), self.share, notify);
        if let Some(age) = full {
            self.now.fetch_max(age + 1, Ordering::Relaxed);
        }
        self.all[at].set_oldest(tasks);
        spot
    }

    /// N4: serves one task with an id of the store. For holders of the line's lock.
    pub(super) fn serve<S: Store>(&self, store: &S) -> Served {
        loop {
            let Some(at) = self.next() else {
                return Served::Nobody;
            };
            let home = &self.all[at];
            let mut tasks = home.tasks.lock();
            if tasks.oldest().is_none() {
                // Served from its own CPU meanwhile.
                continue;
            }
            let Some(id) = store.take() else {
                return Served::NoId;
            };
            let notify = tasks.grant(id);
            home.set_oldest(&tasks);
            return Served::One(notify);
        }
    }

    /// The home that is served next: the caller's own, unless its head is not yet due.
    fn next(&self) -> Option<usize> {
        let here = self.here();
        if self.all[here].oldest() < self.end_of_due() {
            return Some(here);
        }
        let ages = self.all.iter().map(|home| home.oldest()).zip(0..);
        let (oldest, at) = ages.min().filter(|&(oldest, _)| oldest != NOBODY)?;
        // Relaxed, both: with the line's lock.
        if oldest > self.due.load(Ordering::Relaxed) {
            self.due.store(oldest, Ordering::Relaxed);
        }
        let mine = self.all[here].oldest() < self.end_of_due();
        Some(if mine { here } else { at })
    }

    /// N5: nobody joins a home from now on until one is opened again. For holders of the line's
    /// lock.
    pub(super) fn close(&self) {
        for home in &self.all {
            home.tasks.lock().open = false;
        }
    }

    /// What the task at this place has. `None`: it is to say anew how it is told.
    pub(super) fn fetch(&self, spot: Spot, same: impl FnOnce(&Notify) -> bool) -> Option<Found> {
        let mut tasks = self.all[spot.home].tasks.lock();
        let id = tasks.fetch(spot);
        let known = id.is_some() || tasks.is_told_by(spot, same);
        known.then_some(Found { id, unused: None })
    }

    /// What the task at this place has; if nothing, it is told by `notify` from now on.
    pub(super) fn stay(&self, spot: Spot, notify: Notify) -> Found {
        self.all[spot.home].tasks.lock().fetch_or_stay(spot, notify)
    }

    /// As `stay` for one that has come to wait just now.
    pub(super) fn settle_in(&self, spot: Spot, notify: Notify) -> Found {
        let mut tasks = self.all[spot.home].tasks.lock();
        let found = tasks.fetch_or_stay(spot, notify);
        tasks.waits += u64::from(found.id.is_none());
        found
    }

    /// Gives up a place. Whether it was granted meanwhile, then its id.
    pub(super) fn leave(&self, spot: Spot) -> Found {
        let home = &self.all[spot.home];
        let mut tasks = home.tasks.lock();
        let found = tasks.leave(spot);
        home.set_oldest(&tasks);
        found
    }

    /// How to tell everybody at home: they say anew how they want to be told.
    pub(super) fn notify_all(&self) -> Vec<Notify> {
        let of = |home: &CachePadded<Home>| home.tasks.lock().take_notifies();
        self.all.iter().flat_map(of).collect()
    }

    /// Adds up what each home knows.
    pub(super) fn census(&self) -> Census {
        let mut sum = Census::default();
        for home in &self.all {
            let tasks = home.tasks.lock();
            sum.waiting += tasks.len();
            sum.granted += tasks.granted();
            sum.waits += tasks.waits;
            sum.wakeups += tasks.wakeups;
        }
        sum
    }
}

/// How many there are at home, and have been.
#[derive(Debug, Default)]
pub(super) struct Census {
    pub(super) waiting: usize,
    /// Ids that were granted and not yet fetched.
    pub(super) granted: usize,
    pub(super) waits: u64,
    pub(super) wakeups: u64,
}
