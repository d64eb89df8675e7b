//! Notices when nothing moves.

use crate::meter::Metering;
use crate::panics::contained;
use crate::stats::Counted;
use inflight_sync::Mutex;
use inflight_sync::atomic::{AtomicBool, Ordering};
use inflight_sync::time::Instant;
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
/// let sys = builder.watchdog(Duration::from_secs(30), |stall| eprintln!("{stall}")).build()?;
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
    /// The queues whose items the pool's workers run and have not ended, each once for each item;
    /// empty if the items have not got to a pool.
    pub running: Vec<String>,
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
        if running.is_empty() {
            return Ok(());
        }
        write!(f, "; running: {}", Counted(running))
    }
}

pub(crate) type OnStall = Box<dyn Fn(&Stall) + Send + Sync>;

/// A place with something that waits, at one moment.
pub(crate) struct Waiting {
    pub(crate) place: String,
    /// Changes when something moves.
    pub(crate) progress: u64,
    pub(crate) item: String,
    pub(crate) waiting: usize,
    /// The numbers of the queues whose items hold it up.
    pub(crate) running: Vec<u64>,
}

pub(crate) struct Watchdog {
    pub(crate) threshold: Duration,
    on_stall: OnStall,
    /// The timekeeper has an alarm.
    armed: AtomicBool,
    /// Progress of places with something that waits, and when it was first seen so.
    seen: Mutex<BTreeMap<String, (u64, Instant)>>,
}

impl Watchdog {
    pub(crate) fn new(threshold: Duration, on_stall: OnStall) -> Self {
        Self {
            threshold,
            on_stall,
            armed: AtomicBool::new(false),
            seen: Mutex::new(BTreeMap::new()),
        }
    }

    /// Something has been queued. Returns whether an alarm has to be set for it.
    ///
    /// Relaxed: the queue's lock orders this, after the queueing, with the one who looks whether
    /// the queue is idle after [`disarm`](Watchdog::disarm).
    pub(crate) fn arm(&self) -> bool {
        !self.armed.load(Ordering::Relaxed) && !self.armed.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn disarm(&self) {
        self.armed.store(false, Ordering::Relaxed);
    }

    /// Compares what waits now with what waited before, and reports what has not moved.
    pub(crate) fn look(&self, now: Instant, places: Vec<Waiting>, metering: &Metering) {
        let mut stalls = Vec::new();
        {
            let mut seen = self.seen.lock();
            let mut still = BTreeMap::new();
            for place in places {
                let before = seen.get(&place.place).copied();
                let since = match before {
                    Some((progress, since)) if progress == place.progress => since,
                    _ => now,
                };
                if now - since >= self.threshold {
                    stalls.push(Stall {
                        place: place.place.clone(),
                        item: place.item,
                        waiting: place.waiting,
                        running: metering.names(&place.running),
                        since: now - since,
                    });
                }
                still.insert(place.place, (place.progress, since));
            }
            *seen = still;
        }
        // Foreign code, so not under the lock.
        for stall in &stalls {
            contained(|| (self.on_stall)(stall));
        }
    }
}
