//! Functions that have been found to compute for long on a bound queue.

use crate::reporter::Reporter;
use crate::system_shared::SystemShared;
use inflight_sync::{Arc, Mutex};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// So many functions are remembered; further ones are not.
const FUNCTIONS: usize = 128;

/// A function that has been found to compute for longer than the
/// [threshold](crate::SystemBuilder::intensive_threshold) while other items of its CPU waited: it
/// should be on a queue that is `cpu_intensive` or unbound.
///
/// ```
/// use inflight_workqueue::WorkqueueSystem;
///
/// let sys = WorkqueueSystem::builder().build()?;
/// for hog in sys.hogs() {
///     println!("{hog}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Hog {
    /// The type of its function.
    pub item: String,
    /// The queue that it came through last.
    pub queue: String,
    /// How often it was found.
    pub count: u64,
    /// The thread that ran it last, if threads have numbers.
    pub thread: Option<u32>,
    /// How much CPU time that run had used when it was found.
    pub used: Duration,
    /// Where the kernel says that the thread was, if it says so.
    pub stack: Option<String>,
}

impl fmt::Display for Hog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            item,
            queue,
            count,
            used,
            ..
        } = self;
        write!(
            f,
            "{item} of {queue} used {used:?} of CPU time, found {count} times"
        )?;
        if let Some(thread) = self.thread {
            write!(f, ", thread {thread}")?;
        }
        if let Some(stack) = &self.stack {
            write!(f, "\n{stack}")?;
        }
        Ok(())
    }
}

pub(crate) type OnHog = Arc<dyn Fn(&Hog) + Send + Sync>;

/// What has been found, by function.
pub(crate) struct Hogs {
    found: Mutex<BTreeMap<usize, Hog>>,
    /// Who is told, and from which count on.
    on_hog: Option<(u64, OnHog)>,
}

/// Whether a report is due: at the first count, and then after 1, 2, 4, 8.. more.
fn is_due(count: u64, first: u64) -> bool {
    let first = first.max(1);
    count == first || (count > first && (count - first + 1).is_power_of_two())
}

impl Hogs {
    pub(crate) fn new(on_hog: Option<(u64, OnHog)>) -> Self {
        Self {
            found: Mutex::default(),
            on_hog,
        }
    }

    /// A function has been found once more.
    pub(crate) fn found(&self, shared: &Arc<SystemShared>, function: usize, hog: Hog) {
        let now = {
            let mut found = self.found.lock();
            if found.len() >= FUNCTIONS && !found.contains_key(&function) {
                return;
            }
            let count = found.get(&function).map_or(0, |before| before.count) + 1;
            let now = Hog { count, ..hog };
            found.insert(function, now.clone());
            now
        };
        if let Some((first, on_hog)) = &self.on_hog {
            if is_due(now.count, *first) {
                let on_hog = on_hog.clone();
                let reporter: &Reporter = &shared.reporter;
                reporter.send(shared, move || on_hog(&now));
            }
        }
    }

    /// All of them, those found most often first.
    pub(crate) fn all(&self) -> Vec<Hog> {
        let mut all: Vec<_> = self.found.lock().values().cloned().collect();
        all.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.item.cmp(&b.item)));
        all
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::is_due;

    #[test]
    fn reports_become_rare() {
        let due: Vec<_> = (0..40).filter(|count| is_due(*count, 4)).collect();
        assert_eq!(due, [4, 5, 7, 11, 19, 35]);
    }
}
