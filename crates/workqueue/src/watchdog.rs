//! Notices when nothing moves.

use crate::busy_worker::BusyWorker;
use crate::reporter::Report;
use inflight_sync::atomic::{AtomicU64, Ordering};
use inflight_sync::time::{Clock, Instant};
use inflight_sync::{Arc, Mutex};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Items that wait and do not get on, as
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
    /// Where: `pool cpu 0`, or `queue NAME` if the items have not got to a pool.
    pub place: String,
    /// The item that waits longest, by the name of its queue and its own.
    pub item: String,
    /// How many wait.
    pub waiting: usize,
    /// The pool's workers that are busy, or those that run other items of the queue.
    pub running: Vec<BusyWorker>,
    /// For how long at least nothing has moved.
    pub since: Duration,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            place,
            item,
            waiting,
            running,
            since,
        } = self;
        write!(
            f,
            "{place}: {waiting} waiting, first {item}, nothing has moved for {since:?}"
        )?;
        running.iter().try_for_each(|busy| write!(f, "\n  {busy}"))
    }
}

pub(crate) type OnStall = Arc<dyn Fn(&Stall) + Send + Sync>;

/// What tells a place from others: queues may have the same name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StallSite {
    Pool(usize),
    Queue(u64),
}

/// A place with something that waits, at one moment.
pub(crate) struct Waiting {
    pub(crate) id: StallSite,
    pub(crate) place: String,
    /// Changes when something moves.
    pub(crate) progress: u64,
    pub(crate) item: String,
    pub(crate) waiting: usize,
    /// Who holds it up.
    pub(crate) running: Vec<BusyWorker>,
}

pub(crate) struct Watchdog {
    /// In ns; 0: it does not look.
    threshold: AtomicU64,
    on_stall: Option<OnStall>,
    /// When the tick comes that is planned, in ns; 0: none is.
    due: AtomicU64,
    seen: Mutex<Seen>,
}

/// What the last tick has seen.
#[derive(Default)]
struct Seen {
    at: Instant,
    /// Progress of places with something that waits, and when it was first seen so.
    places: BTreeMap<StallSite, (u64, Instant)>,
    /// Those that have not moved.
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

    /// After how long a stall is reported; `None` if stalls are not looked for.
    #[inline]
    pub(crate) fn threshold(&self) -> Option<Duration> {
        // Relaxed, here and below: who is late looks later.
        let ns = self.threshold.load(Ordering::Relaxed);
        (ns > 0).then(|| Duration::from_nanos(ns))
    }

    /// Zero switches it off. The tick that was planned is not any more.
    pub(crate) fn set_threshold(&self, threshold: Duration) {
        let ns = u64::try_from(threshold.as_nanos()).unwrap_or(u64::MAX);
        self.threshold.store(ns, Ordering::Relaxed);
        self.due.store(0, Ordering::Relaxed);
        if ns == 0 {
            *self.seen.lock() = Seen::default();
        }
    }

    /// Something waits. Returns when to look, if nobody has planned to.
    pub(crate) fn arm(&self, clock: &Clock) -> Option<Instant> {
        let threshold = self.threshold()?;
        if self.due.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let at = clock.now() + threshold;
        if !self.change_due(0, at.as_nanos()) {
            return None;
        }
        // Who has set another one meanwhile may not have seen this tick.
        if self.threshold() != Some(threshold) && self.disarm(at) {
            return self.arm(clock);
        }
        Some(at)
    }

    /// The tick that was planned for that time comes, or could not be planned. `false`: it is not
    /// planned any more.
    pub(crate) fn disarm(&self, at: Instant) -> bool {
        self.change_due(at.as_nanos(), 0)
    }

    fn change_due(&self, from: u64, to: u64) -> bool {
        let due = &self.due;
        due.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Compares what waits now with what waited before, and reports what has not moved.
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
            let stall = Stall {
                place: place.place,
                item: place.item,
                waiting: place.waiting,
                running: Vec::new(),
                since: now - since,
            };
            if let Some(on_stall) = self.on_stall.clone() {
                let (mut running, stall) = (place.running, stall.clone());
                report(Box::new(move || {
                    running.iter_mut().for_each(BusyWorker::read_stack);
                    on_stall(&Stall { running, ..stall });
                }));
            }
            seen.stalls.push(stall);
        }
    }

    /// When it looked last, and what it found. Without the workers, which the dump has.
    pub(crate) fn stalls(&self) -> (Instant, Vec<Stall>) {
        let seen = self.seen.lock();
        (seen.at, seen.stalls.clone())
    }
}

/// Who plans the looks of a system.
pub(crate) trait Watch: Send + Sync {
    /// Something waits or has begun: a tick is planned, unless one is.
    fn arm_watchdog(self: Arc<Self>);
}
