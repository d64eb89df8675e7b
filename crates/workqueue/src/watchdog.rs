//! Detects stalls.

use crate::busy_worker::BusyWorker;
use crate::threads::Report;
use inflight_sync::Printed;
use inflight_sync::atomic::{AtomicU64, Ordering};
use inflight_sync::time::{Clock, Instant};
use inflight_sync::{Arc, Mutex};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Items that wait and make no progress, as
/// [`SystemBuilder::watchdog`](crate::SystemBuilder::watchdog) reports them.
///
/// ```
/// use inflight_workqueue::WorkqueueSystem;
/// use std::time::Duration;
///
/// let builder = WorkqueueSystem::builder();
/// let builder = builder.watchdog(Duration::from_secs(30), |stall| {
///     eprintln!("{stall}");
///     for busy in &stall.running {
///         eprintln!("{} of {} since {:?}", busy.item, busy.queue, busy.running_for);
///     }
/// });
/// let sys = builder.build()?;
/// # Ok::<(), inflight_workqueue::SystemError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stall {
    /// Where they wait: `pool cpu 0`, or `queue NAME` if the items have not reached a pool.
    pub place: String,
    /// The item that waits longest, by the names of its queue and of itself.
    pub item: String,
    /// How many items wait.
    pub waiting: usize,
    /// The pool's busy workers, or those that run other items of the queue.
    pub running: Vec<BusyWorker>,
    /// For how long at least nothing has moved.
    pub since: Duration,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (place, waiting, first) = (&self.place, self.waiting, Printed(&self.item));
        write!(f, "{place}: {waiting} waiting, first {first}, ")?;
        write!(f, "nothing has moved for {:?}", self.since)?;
        let mut running = self.running.iter();
        running.try_for_each(|busy| write!(f, "\n  {busy}"))
    }
}

pub(crate) type OnStall = Arc<dyn Fn(&Stall) + Send + Sync>;

/// Identifies a place; queues may have the same name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StallSite {
    Pool(usize),
    Queue(u64),
}

pub(crate) struct Waiting {
    pub(crate) id: StallSite,
    /// Changes when an item moves.
    pub(crate) progress: u64,
    /// What it is if nothing moves.
    pub(crate) stall: Stall,
}

pub(crate) struct Watchdog {
    /// In ns; 0 switches the watchdog off.
    threshold: AtomicU64,
    on_stall: Option<OnStall>,
    /// The time of the planned tick, in ns; 0 if none is planned.
    due: AtomicU64,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    at: Instant,
    /// For each place where items wait: its progress, and when this progress was first seen.
    places: BTreeMap<StallSite, (u64, Instant)>,
    stalls: Vec<Stall>,
}

impl Watchdog {
    pub(crate) fn new(on_stall: Option<(Duration, OnStall)>) -> Self {
        let (threshold, on_stall) = on_stall.unzip();
        let watchdog = Self {
            threshold: AtomicU64::new(0),
            on_stall,
            due: AtomicU64::new(0),
            seen: Mutex::default(),
        };
        watchdog.set_threshold(threshold.unwrap_or_default());
        watchdog
    }

    /// After how long a stall is reported; `None` if the watchdog is off.
    #[inline]
    pub(crate) fn threshold(&self) -> Option<Duration> {
        // Relaxed, here and below: a thread that sees an old value only looks later.
        let ns = self.threshold.load(Ordering::Relaxed);
        (ns > 0).then(|| Duration::from_nanos(ns))
    }

    /// Zero switches the watchdog off. Also cancels the planned tick.
    pub(crate) fn set_threshold(&self, threshold: Duration) {
        let ns = u64::try_from(threshold.as_nanos()).unwrap_or(u64::MAX);
        self.threshold.store(ns, Ordering::Relaxed);
        self.due.store(0, Ordering::Relaxed);
        if ns == 0 {
            *self.seen.lock() = Seen::default();
        }
    }

    /// Called when an item waits. Returns when to tick if no tick is planned.
    pub(crate) fn arm(&self, clock: &Clock) -> Option<Instant> {
        let threshold = self.threshold()?;
        if self.due.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let at = clock.now() + threshold;
        if !self.change_due(0, at.as_nanos()) {
            return None;
        }
        // Another thread that changed the threshold meanwhile may not have seen this tick.
        if self.threshold() != Some(threshold) && self.disarm(at) {
            return self.arm(clock);
        }
        Some(at)
    }

    /// The tick of that time begins, or failed. `false` if it is no longer planned.
    pub(crate) fn disarm(&self, at: Instant) -> bool {
        self.change_due(at.as_nanos(), 0)
    }

    fn change_due(&self, from: u64, to: u64) -> bool {
        let due = &self.due;
        due.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Compares the places with those of the last tick, and reports those that have not moved.
    pub(crate) fn tick(&self, now: Instant, places: Vec<Waiting>, report: &mut dyn FnMut(Report)) {
        let Some(threshold) = self.threshold() else {
            return;
        };
        let mut seen = self.seen.lock();
        let before = std::mem::take(&mut *seen).places;
        seen.at = now;
        for place in places {
            let since = match before.get(&place.id) {
                Some((progress, since)) if *progress == place.progress => *since,
                _ => now,
            };
            seen.places.insert(place.id, (place.progress, since));
            if now - since < threshold {
                continue;
            }
            let mut stall = place.stall;
            stall.since = now - since;
            if let Some(on_stall) = self.on_stall.clone() {
                let mut stall = stall.clone();
                report(Box::new(move || {
                    stall.running.iter_mut().for_each(BusyWorker::read_stack);
                    on_stall(&stall);
                }));
            }
            stall.running.clear();
            seen.stalls.push(stall);
        }
    }

    /// When the watchdog looked last, and what it found; without the workers, which the dump lists.
    pub(crate) fn stalls(&self) -> (Instant, Vec<Stall>) {
        let seen = self.seen.lock();
        (seen.at, seen.stalls.clone())
    }
}

pub(crate) trait Watch: Send + Sync {
    /// An item waits or has begun: plans a tick unless one is planned.
    fn arm_watchdog(self: Arc<Self>);
}
