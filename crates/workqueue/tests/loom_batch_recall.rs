//! Models of a batch by itself: its owner, who recalls it and who appends to it. Entries are
//! numbers, and a lock stands for the pool's. Events as in `PROTOCOL.md`, part *take and recall*.
#![cfg(loom)]

mod model_support;

use inflight_sync::model::check;
use inflight_sync::{Arc, Mutex, thread};
use inflight_workqueue::unstable::NumberBatch;
use model_support::{ALL, Touched};

/// Who has which numbers, and what the lock guards.
struct Numbers {
    batch: NumberBatch,
    /// What the recaller has taken: from, to.
    recalled: Mutex<Option<(u32, u32)>>,
    runs: Vec<Touched>,
}

impl Numbers {
    fn new() -> Arc<Self> {
        let batch = NumberBatch::of_numbers();
        for number in 0..2 {
            assert!(batch.append_number(0, number));
        }
        Arc::new(Self {
            batch,
            recalled: Mutex::new(None),
            runs: (0..4).map(|_| Touched::new()).collect(),
        })
    }

    /// The owner: runs what it has, and appends number 2 in the first, if it runs that.
    fn own(&self) {
        let batch = &self.batch;
        let mut i = 0;
        while i != batch.end() {
            if !batch.start(i) && !self.answer(i) {
                break;
            }
            let number = batch.number(i);
            self.runs[number as usize].touch();
            if number == 0 {
                assert!(batch.append_number(0, 2));
                if batch.is_recalled_now() {
                    self.answer_in(i);
                }
            }
            i += 1;
        }
        // *end of the batch*, under the lock: what was appended since a recall is the owner's.
        let recalled = self.recalled.lock().take();
        if let Some((_, to)) = recalled {
            for i in to..batch.end() {
                self.runs[batch.number(i) as usize].touch();
            }
        }
    }

    /// It has started entry `i`: whether that is its own. The rest goes back, and is run here.
    fn answer(&self, i: u32) -> bool {
        let recalled = *self.recalled.lock();
        let (from, _) = recalled.expect("recalled under the lock");
        if from != i {
            self.answer_in(i);
        }
        from != i
    }

    fn answer_in(&self, i: u32) {
        let mut recalled = self.recalled.lock();
        let from = recalled.take().map_or(i + 1, |(_, to)| to);
        for i in from..self.batch.end() {
            self.runs[self.batch.number(i) as usize].touch();
        }
        self.batch.resume(i + 1);
    }

    /// X1 to X3.
    fn range(&self) -> (u32, u32) {
        self.batch.recall();
        self.batch.fence();
        (self.batch.next(), self.batch.end())
    }

    fn recall(&self) {
        let mut recalled = self.recalled.lock();
        let (from, to) = self.range();
        *recalled = Some((from, to));
        for i in from..to {
            self.runs[self.batch.number(i) as usize].touch();
        }
    }
}

/// *recall* against *start* and *append*: each number is run once, by the owner or by who has
/// recalled it, and none is left.
#[test]
fn recall_against_start_and_append() {
    check("recall_against_start_and_append", ALL, || {
        let numbers = Numbers::new();
        let owner = thread::spawn({
            let numbers = numbers.clone();
            move || numbers.own()
        });
        numbers.recall();
        owner.join().unwrap();
        let runs: Vec<_> = numbers.runs.iter().map(Touched::times).collect();
        let appended = runs[2];
        assert_eq!((runs[0], runs[1], runs[3]), (1, 1, 0), "{runs:?}");
        assert!(appended <= 1, "{runs:?}");
    });
}

/// *append* against *recall*: the owner sees the recall right after the append, or who has recalled
/// sees the entry.
#[test]
fn an_append_or_the_recall_is_seen() {
    check("an_append_or_the_recall_is_seen", ALL, || {
        let numbers = Numbers::new();
        let owner = thread::spawn({
            let numbers = numbers.clone();
            move || {
                assert!(numbers.batch.append_number(0, 2));
                numbers.batch.is_recalled_now()
            }
        });
        let (_, to) = numbers.range();
        assert!(owner.join().unwrap() || to == 3);
    });
}

/// What the owner says of an entry that it has not run is seen by who settles it.
#[test]
fn a_skipped_entry_is_known() {
    check("a_skipped_entry_is_known", ALL, || {
        let numbers = Numbers::new();
        let owner = thread::spawn({
            let numbers = numbers.clone();
            move || {
                if numbers.batch.start(0) {
                    numbers.batch.mark_skipped(0);
                    numbers.batch.start(1);
                }
            }
        });
        let (from, _) = numbers.range();
        if from == 2 {
            assert!(
                numbers.batch.is_skipped(0),
                "entries below `next - 1` have ended"
            );
        }
        owner.join().unwrap();
    });
}
