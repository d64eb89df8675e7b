//! CPU hogs: which functions of CPU-intensive items are reported, and when.
//! The [`sampler`](crate::sampler) detects which items are CPU-intensive.

use crate::busy_worker::BusyWorker;
use inflight_sync::{Arc, Mutex};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// How many functions are remembered; further ones are only counted together.
const FUNCTIONS: usize = 128;

/// A function that was found to compute for longer than the
/// [threshold](crate::SystemBuilder::intensive_threshold) while other items of its CPU waited. It
/// should be on a queue that is `cpu_intensive` or unbound.
///
/// ```
/// use inflight_workqueue::WorkqueueSystem;
///
/// let sys = WorkqueueSystem::builder().build()?;
/// assert_eq!((sys.other_hogs(), sys.reports_dropped()), (0, 0));
/// for hog in sys.hogs() {
///     println!("{hog}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hog {
    /// The type of the function.
    pub function: &'static str,
    /// How often it was found, under any name.
    pub count: u64,
    /// How much CPU time the item had used when the function was found last.
    pub used: Duration,
    /// That item, and the worker that ran it.
    pub worker: BusyWorker,
}

impl fmt::Display for Hog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} used {:?} of CPU time, ", self.function, self.used)?;
        let (count, worker) = (self.count, &self.worker);
        write!(f, "found {count} times, the last time:\n  {worker}")
    }
}

pub(crate) type OnHog = Arc<dyn Fn(&Hog) + Send + Sync>;

#[derive(Default)]
struct HogTable {
    by_function: BTreeMap<usize, Hog>,
    /// How often functions were found for which there was no room.
    others: u64,
}

impl HogTable {
    /// Counts a function that was found. Returns `None` if there is no room for it.
    fn note(&mut self, function: usize, hog: Hog) -> Option<Hog> {
        let before = self.by_function.get(&function).map(|before| before.count);
        if before.is_none() && self.by_function.len() >= FUNCTIONS {
            self.others += 1;
            return None;
        }
        let count = before.unwrap_or(0) + 1;
        let now = Hog { count, ..hog };
        self.by_function.insert(function, now.clone());
        Some(now)
    }
}

pub(crate) struct Hogs {
    table: Mutex<HogTable>,
    /// The user's function, and the count of the first report.
    on_hog: Option<(u64, OnHog)>,
}

/// Whether a report is due: at the first count, and then after 1, 2, 4, 8.. more.
fn is_due(count: u64, first: u64) -> bool {
    let first = first.max(1);
    count == first || (count > first && (count - first + 1).is_power_of_two())
}

impl Hogs {
    pub(crate) fn new(on_hog: Option<(u64, OnHog)>) -> Self {
        let table = Mutex::default();
        Self { table, on_hog }
    }

    /// Counts a function that was found. Returns the report that is due.
    pub(crate) fn found(&self, function: usize, hog: Hog) -> Option<impl FnOnce() + Send + use<>> {
        let now = self.table.lock().note(function, hog)?;
        let (first, on_hog) = self.on_hog.as_ref()?;
        let on_hog = on_hog.clone();
        is_due(now.count, *first).then_some(move || on_hog(&now))
    }

    /// All functions, the most frequent first.
    pub(crate) fn all(&self) -> Vec<Hog> {
        let mut all: Vec<_> = self.table.lock().by_function.values().cloned().collect();
        all.sort_by_key(|hog| (std::cmp::Reverse(hog.count), hog.function));
        all
    }

    pub(crate) fn others(&self) -> u64 {
        self.table.lock().others
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// A program may have any number of functions, and item names; the table may not.
    #[test]
    fn what_finds_no_room_is_counted() {
        let mut table = HogTable::default();
        let hog = |seconds| Hog {
            function: "f",
            count: 0,
            used: Duration::from_secs(seconds),
            worker: BusyWorker::default(),
        };
        for function in 0..FUNCTIONS {
            assert!(table.note(function, hog(1)).is_some());
        }
        for function in [FUNCTIONS, FUNCTIONS + 1, FUNCTIONS] {
            assert_eq!(table.note(function, hog(2)), None);
        }
        let again = table.note(7, hog(3)).unwrap();
        assert_eq!((again.used.as_secs(), again.count), (3, 2));
        assert_eq!((table.by_function.len(), table.others), (FUNCTIONS, 3));
    }

    #[test]
    fn the_most_frequent_is_told_first() {
        let hogs = Hogs::new(None);
        for function in ["rare", "often", "rare", "often", "often", "once"] {
            let hog = Hog {
                function,
                count: 0,
                used: Duration::ZERO,
                worker: BusyWorker::default(),
            };
            assert!(hogs.found(function.as_ptr().addr(), hog).is_none());
        }
        let all = hogs.all().into_iter().map(|hog| (hog.function, hog.count));
        let order = [("often", 3), ("rare", 2), ("once", 1)];
        assert_eq!(all.collect::<Vec<_>>(), order);
    }

    #[test]
    fn reports_become_rare() {
        let hogs = Hogs::new(Some((4, Arc::new(|_| ()))));
        let hog = Hog {
            function: "f",
            count: 0,
            used: Duration::ZERO,
            worker: BusyWorker::default(),
        };
        let due = (1..40).filter(|_| hogs.found(1, hog.clone()).is_some());
        assert_eq!(due.collect::<Vec<_>>(), [4, 5, 7, 11, 19, 35]);
    }
}
