//! Notices when nothing moves.

use crate::busy_worker::BusyWorker;
use crate::current::with_running;
use crate::system_shared::SystemShared;
use crate::workqueue_inner::Count;
use inflight_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use inflight_sync::time::Instant;
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
pub(crate) enum PlaceId {
    Pool(usize),
    Queue(u64),
}

/// A place with something that waits, at one moment.
pub(crate) struct Waiting {
    pub(crate) id: PlaceId,
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
    /// A look is planned.
    armed: AtomicBool,
    /// Progress of places with something that waits, and when it was first seen so.
    seen: Mutex<BTreeMap<PlaceId, (u64, Instant)>>,
}

impl Watchdog {
    pub(crate) fn new(on_stall: Option<(Duration, OnStall)>) -> Self {
        let (threshold, on_stall) = match on_stall {
            Some((threshold, on_stall)) => (threshold, Some(on_stall)),
            None => (Duration::ZERO, None),
        };
        let watchdog = Self {
            threshold: AtomicU64::new(0),
            on_stall,
            armed: AtomicBool::new(false),
            seen: Mutex::new(BTreeMap::new()),
        };
        watchdog.set_threshold(threshold);
        watchdog
    }

    /// After how long a stall is reported; `None` if stalls are not looked for.
    #[inline]
    pub(crate) fn threshold(&self) -> Option<Duration> {
        // Relaxed, here and below: who is late looks later.
        let ns = self.threshold.load(Ordering::Relaxed);
        (ns > 0).then(|| Duration::from_nanos(ns))
    }

    /// Whether somebody is to be told of stalls.
    pub(crate) fn tells_somebody(&self) -> bool {
        self.on_stall.is_some()
    }

    /// Zero switches it off. Without somebody to be told it stays off.
    pub(crate) fn set_threshold(&self, threshold: Duration) {
        let ns = u64::try_from(threshold.as_nanos()).unwrap_or(u64::MAX);
        let ns = if self.on_stall.is_some() { ns } else { 0 };
        self.threshold.store(ns, Ordering::Relaxed);
    }

    /// Something waits. Returns when to look, if nobody has planned to.
    pub(crate) fn arm(&self) -> Option<Duration> {
        let threshold = self.threshold()?;
        let armed = self.armed.load(Ordering::Relaxed) || self.armed.swap(true, Ordering::Relaxed);
        (!armed).then_some(threshold)
    }

    /// The planned look comes, or could not be planned.
    pub(crate) fn disarm(&self) {
        self.armed.store(false, Ordering::Relaxed);
    }

    /// Compares what waits now with what waited before, and reports what has not moved.
    pub(crate) fn look(&self, shared: &Arc<SystemShared>, places: Vec<Waiting>) {
        let (Some(threshold), Some(on_stall)) = (self.threshold(), &self.on_stall) else {
            return;
        };
        let now = shared.clock.now();
        let mut seen = self.seen.lock();
        let mut still = BTreeMap::new();
        for place in places {
            let before = seen.get(&place.id).copied();
            let since = match before {
                Some((progress, since)) if progress == place.progress => since,
                _ => now,
            };
            still.insert(place.id, (place.progress, since));
            if now - since >= threshold {
                let on_stall = on_stall.clone();
                let mut stall = Stall {
                    place: place.place,
                    item: place.item,
                    waiting: place.waiting,
                    running: place.running,
                    since: now - since,
                };
                shared.reporter.send(shared, move || {
                    stall.running.iter_mut().for_each(BusyWorker::read_stack);
                    on_stall(&stall);
                });
            }
        }
        *seen = still;
    }
}

/// Says that the calling item gets on, though it takes long: the
/// [watchdog](crate::SystemBuilder::watchdog) takes neither its pool nor its queue's limit for
/// stalled for another threshold. Costs two additions; not for each step of a loop. On a thread
/// that is no worker it does nothing.
///
/// ```
/// use inflight_workqueue::{WorkqueueSystem, touch_watchdog};
/// use std::time::Duration;
///
/// let builder = WorkqueueSystem::builder();
/// let sys = builder.watchdog(Duration::from_secs(30), |stall| eprintln!("{stall}")).build()?;
/// let wq = sys.workqueue("scrub").bound().build()?;
/// let scrubbed = wq.spawn(|| {
///     let regions = 0..8;
///     regions.map(|region| { touch_watchdog(); region * 2 }).sum::<u32>()
/// });
/// assert_eq!(scrubbed.wait()?, 56);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn touch_watchdog() {
    let _ = with_running(|_, pwq, context| {
        context.pool.touch();
        pwq.wq().counted(Count::Touched, 1);
    });
}
