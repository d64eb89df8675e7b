//! Items whose instructions are counted: no clock, and nothing of the load's own that is locked.

use super::loads::captured;
use super::ours::OwnWork;
use super::{Own, Pool};
use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, Thread};

/// How many items are submitted before the submitter waits.
const WINDOW: usize = 256;

/// How often the item with each index has run. No two with the same index run at once.
static RUNS: [AtomicU32; WINDOW] = [const { AtomicU32::new(0) }; WINDOW];

/// The submitter, which waits for the last item of a window.
static SUBMITTER: OnceLock<Thread> = OnceLock::new();

/// What an item does; whoever counts instructions knows by its name the threads that run items.
#[inline(never)]
fn counted_item(index: u64) {
    let runs = &RUNS[black_box(index) as usize];
    // Ordering: Release, pairs with the submitter's load. Only this item changes it at the moment.
    runs.store(runs.load(Ordering::Relaxed) + 1, Ordering::Release);
    if index == LAST {
        SUBMITTER.get().expect("it has submitted").unpark();
    }
}

const LAST: u64 = WINDOW as u64 - 1;

/// One submitter's items: closures of 32 bytes, or works.
#[derive(Debug)]
pub struct Submitted {
    own: Own,
    works: Option<Vec<OwnWork>>,
}

impl Submitted {
    /// One for a process.
    #[must_use]
    pub fn new(own: Own, reusable: bool) -> Self {
        let work = |index| OwnWork::new(move || counted_item(index));
        let works = reusable.then(|| (0..=LAST).map(work).collect());
        Self { own, works }
    }

    /// Submits this many items, rounded down to whole windows, and waits for each window.
    ///
    /// # Panics
    ///
    /// If an item has not run once, or on the second call.
    pub fn run(&self, items: usize) {
        let first = SUBMITTER.set(thread::current());
        assert!(first.is_ok(), "one run in a process");
        let windows = (items / WINDOW) as u32;
        // Ordering: Acquire, pairs with the items' stores.
        let runs = |index: usize| RUNS[index].load(Ordering::Acquire);
        for window in 1..=windows {
            self.submit();
            while runs(LAST as usize) < window {
                thread::park();
            }
            // Another worker may have one that came before.
            while (0..WINDOW).any(|index| runs(index) < window) {
                thread::yield_now();
            }
        }
        self.own.flush();
        for index in 0..WINDOW {
            assert_eq!(runs(index), windows, "item {index} ran once in each window");
        }
    }

    fn submit(&self) {
        match &self.works {
            Some(works) => works.iter().for_each(|work| work.queue(&self.own)),
            None => (0..=LAST).for_each(|index| {
                let captured = captured(index);
                self.own
                    .spawn(move || counted_item(black_box(&captured)[0]));
            }),
        }
    }
}
