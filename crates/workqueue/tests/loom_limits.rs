//! Models of `max_active` for a whole queue, driving the shipped `Slots`. Step names as in
//! `PROTOCOL-limits.md`.
//!
//! | weaken | fails |
//! |---|---|
//! | no retry after joining (B) | `i6_…`, `lend_h7_…` |
//! | the marks are read before the token is published (R3 before R2) | `i6_…` |
//! | R3 does not see the own line | `lend_h2_…` |
//! | the mark is set after the retry (J after B) | `i6_…` |
//! | a mark is cleared without the lock (R6) | `lend_h3_…` |
//! | releases do not see the debt | `lend_h4_…` |
//! | a token is lost at a stale mark | `lend_h3_…`, `lend_h5_…` |
//! | what is left of a batch is put down without a look | `lend_h6_…` |
//! | what was gathered is put into the stock without a look | `lend_h8_…` |
//! | a line is told empty before what it gave has been handed on | `i14_…` |
//! | a freeze does not hold the lines (F1) | `f1_a_freeze_against_…` |
//! | a held line is told empty | `f1_a_freeze_against_release` |
//! | a freeze does not ask for the gates (F2, in the model itself) | `f2_…` |
//! | a thaw raises the limit before it lets the lines go | `f1_a_freeze_…`, `f1_a_thaw_…` |
//! | the mark of a held line is cleared | `f1_a_freeze_against_those_who_wait` |

#![cfg(loom)]

mod model_support;

use inflight_sync::model::{Bound, check};
use inflight_sync::{Arc, Mutex, thread};
use inflight_workqueue::modelled::{Full, Share, Slots, Tuning, Waits};
use model_support::{Count, FOUR, THREE, THREE_OR_ALL, TWO};

#[derive(Debug)]
struct Item;

impl Waits for Item {
    fn waits_at(&self, _ticket: u64) {}
}

/// No constants in the way: no reserve, nothing by turns, and a group's own count.
const BARE: Tuning = Tuning {
    central_below: 0,
    reserve_divisor: 0,
    give_every: 0,
    batch: 32,
};

/// A queue and how many of its items have become active.
#[derive(Clone)]
struct Queue {
    slots: Arc<Slots<Item>>,
    started: Count,
}

impl Queue {
    /// With a front end on each node.
    fn new(limit: usize, nodes: usize, tuning: Tuning) -> Self {
        Self::of(Slots::tuned(Share::Lend, limit, &vec![1; nodes], tuning))
    }

    fn of(slots: Slots<Item>) -> Self {
        Self {
            slots: Arc::new(slots),
            started: Count::new(),
        }
    }

    /// One for each node.
    fn front(&self, gate: usize) -> usize {
        self.slots.front(gate, Some(gate))
    }

    fn admit(&self, gate: usize) {
        let front = self.front(gate);
        if let Err(why) = self.slots.try_admit(front) {
            self.admit_slowly(front, why);
        } else {
            self.started.add();
        }
    }

    fn admit_slowly(&self, front: usize, why: Full) {
        let mut started = |_, _| _ = self.started.add();
        self.slots.admit_slowly(front, Item, why, &mut started);
    }

    fn leave(&self, gate: usize) {
        let front = self.front(gate);
        let mut started = |_, _| _ = self.started.add();
        self.slots.leave(front, &mut started);
    }

    fn set_max_active(&self, limit: usize) {
        let mut started = |_, _| _ = self.started.add();
        self.slots.set_max_active(limit, &mut started);
    }

    /// F, F1.
    fn set_frozen(&self, frozen: bool) {
        let mut started = |_, _| _ = self.started.add();
        self.slots.set_frozen(frozen, &mut started);
    }

    /// Another thread does something with it.
    fn beside<R: Send + 'static>(
        &self,
        f: impl FnOnce(Self) -> R + Send + 'static,
    ) -> thread::JoinHandle<R> {
        let queue = self.clone();
        thread::spawn(move || f(queue))
    }

    /// I1, at rest.
    fn assert_sum(&self, limit: usize) {
        let (active, idle) = (self.slots.active(), self.slots.idle_tokens());
        assert_eq!(active + idle, limit, "{active} active, {idle} idle");
    }
}

fn run(name: &str, bound: Bound, queue: impl Fn() -> Queue + Sync + Send + 'static, f: fn(&Queue)) {
    check(name, bound, move || f(&queue()));
}

/// One slot, that is taken; then somebody joins while its holder leaves.
fn join_against_leave(name: &str, bound: Bound, nodes: usize, tuning: Tuning) {
    let queue = move || Queue::new(1, nodes, tuning);
    let central = tuning.central_below > 0;
    check(name, bound, move || {
        let queue = queue();
        assert_eq!(queue.slots.is_central(), central);
        queue.admit(0);
        let other = queue.beside(|queue| queue.leave(0));
        queue.admit(nodes - 1);
        other.join().unwrap();
        assert_eq!(queue.started.get(), 2);
        queue.assert_sum(1);
    });
}

/// H1 with one group, I.13 and I.6: a token is published while an item joins; J and B against R2
/// and R3.
#[test]
fn i6_join_against_publish() {
    join_against_leave("i6_join_against_publish", FOUR, 1, BARE);
}

/// H1 between groups: the mark, not the line, tells whoever publishes.
#[test]
fn i6_join_against_publish_elsewhere() {
    join_against_leave("i6_join_against_publish_elsewhere", THREE, 2, BARE);
}

/// H1 with one central count: the token is published in the stock.
#[test]
fn i6_join_against_the_stock() {
    let central = Tuning {
        central_below: 32,
        ..BARE
    };
    join_against_leave("i6_join_against_the_stock", THREE, 2, central);
}

/// H2, I.15: somebody waits already, and a second one joins the same line while two tokens come
/// back, one after the other.
#[test]
fn lend_h2_the_own_line_is_looked_at() {
    let queue = || Queue::new(1, 1, BARE);
    run("lend_h2_the_own_line_is_looked_at", THREE, queue, |queue| {
        queue.admit(0);
        queue.admit(0);
        let other = queue.beside(|queue| {
            queue.leave(0);
            queue.leave(0);
        });
        queue.admit(0);
        other.join().unwrap();
        assert_eq!(queue.started.get(), 3);
        queue.assert_sum(1);
    });
}

/// H2, H1: two join at once, as letters of one mailbox do, while both tokens come back.
#[test]
fn lend_h2_several_join_at_once() {
    let queue = || Queue::new(2, 1, BARE);
    run("lend_h2_several_join_at_once", THREE, queue, |queue| {
        queue.admit(0);
        queue.admit(0);
        let other = queue.beside(|queue| {
            queue.leave(0);
            queue.leave(0);
        });
        let mut started = |_, _| _ = queue.started.add();
        queue
            .slots
            .join_all(0, [Item, Item].into_iter(), &mut started);
        other.join().unwrap();
        assert_eq!(queue.started.get(), 4);
        queue.assert_sum(2);
    });
}

/// H3: a stale mark is cleared while somebody joins under it.
#[test]
fn lend_h3_clear_against_join() {
    let queue = || Queue::new(1, 2, BARE);
    run("lend_h3_clear_against_join", THREE, queue, |queue| {
        queue.admit(0);
        // Group 1 is marked, and empty again.
        queue.admit(1);
        queue.leave(0);
        queue.leave(1);
        queue.admit(0);
        let other = queue.beside(|queue| queue.leave(0));
        queue.admit(1);
        other.join().unwrap();
        assert_eq!(queue.started.get(), 4);
        queue.assert_sum(1);
    });
}

/// H4, I.16: the limit is lowered while an item ends: the debt is paid.
#[test]
fn lend_h4_lower_against_release() {
    let queue = || Queue::new(2, 1, BARE);
    run(
        "lend_h4_lower_against_release",
        THREE_OR_ALL,
        queue,
        |queue| {
            queue.admit(0);
            queue.admit(0);
            let other = queue.beside(|queue| queue.leave(0));
            queue.set_max_active(1);
            other.join().unwrap();
            queue.assert_sum(1);
        },
    );
}

/// H4: the limit is lowered while somebody who waits tries once more: the token that lowering has
/// collected too much, or a release between, still gets to him.
#[test]
fn lend_h4_lower_against_retry() {
    let queue = || Queue::new(2, 1, BARE);
    run("lend_h4_lower_against_retry", TWO, queue, |queue| {
        queue.admit(0);
        queue.admit(0);
        let other = queue.beside(|queue| {
            queue.leave(0);
            queue.leave(0);
        });
        let joins = queue.beside(|queue| queue.admit(0));
        queue.set_max_active(1);
        other.join().unwrap();
        joins.join().unwrap();
        assert_eq!(queue.started.get(), 3);
        queue.assert_sum(1);
    });
}

/// H5: two give to the same one who waits; one token comes back.
#[test]
fn lend_h5_two_give_to_one() {
    let queue = || Queue::new(2, 3, BARE);
    run("lend_h5_two_give_to_one", TWO, queue, |queue| {
        queue.admit(0);
        queue.admit(1);
        queue.admit(2);
        let other = queue.beside(|queue| queue.leave(0));
        queue.leave(1);
        other.join().unwrap();
        assert_eq!(queue.started.get(), 3);
        queue.assert_sum(2);
    });
}

/// H6: a batch comes from the stock while somebody of another group joins: what is left of the
/// batch is published, and whoever publishes looks.
#[test]
fn lend_h6_what_is_left_of_a_batch() {
    // A batch is two.
    let queue = || {
        let queue = Queue::new(16, 2, BARE);
        // All but the last four are active, on the node that asks for no more.
        while queue.slots.active() < 14 {
            queue.admit(0);
        }
        queue
    };
    run("lend_h6_what_is_left_of_a_batch", TWO, queue, |queue| {
        let had = queue.started.get();
        let other = queue.beside(|queue| queue.admit(1));
        queue.admit(0);
        other.join().unwrap();
        assert_eq!(queue.started.get(), had + 2);
        queue.assert_sum(16);
    });
}

/// H7, I.36: the limit is raised while somebody joins.
#[test]
fn lend_h7_raise_against_join() {
    let queue = || Queue::new(1, 1, BARE);
    run("lend_h7_raise_against_join", FOUR, queue, |queue| {
        queue.admit(0);
        let other = queue.beside(|queue| queue.set_max_active(2));
        queue.admit(0);
        other.join().unwrap();
        assert_eq!(queue.started.get(), 2);
        queue.assert_sum(2);
    });
}

/// H7 with nodes that do not lend: what waits is served in rounds.
#[test]
fn lend_h7_raise_of_parts_against_join() {
    let queue = || Queue::of(Slots::tuned(Share::PerNode, 1, &[1], BARE));
    run(
        "lend_h7_raise_of_parts_against_join",
        FOUR,
        queue,
        |queue| {
            queue.admit(0);
            let other = queue.beside(|queue| queue.set_max_active(2));
            queue.admit(0);
            other.join().unwrap();
            assert_eq!(queue.started.get(), 2);
        },
    );
}

/// H8: the central count is switched on, and what lies with a group goes to the stock, while
/// somebody joins.
#[test]
fn lend_h8_switch_against_join() {
    // Four for each node is one count; the limit is lowered below that.
    let tuning = Tuning {
        central_below: 2,
        ..BARE
    };
    let queue = move || {
        let queue = Queue::new(4, 2, tuning);
        for _ in 0..4 {
            queue.admit(0);
        }
        queue.leave(0);
        queue.leave(0);
        queue
    };
    run("lend_h8_switch_against_join", TWO, queue, |queue| {
        assert!(!queue.slots.is_central());
        let other = queue.beside(|queue| queue.set_max_active(3));
        queue.admit(1);
        other.join().unwrap();
        assert!(queue.slots.is_central());
        assert_eq!(queue.started.get(), 5);
        queue.assert_sum(3);
    });
}

/// I.14: whoever finds a line empty comes after those who stood in it: `started` has been told of
/// them, which is where they go to their pool.
#[test]
fn i14_nobody_passes_those_who_waited() {
    let queue = || Queue::new(2, 1, BARE);
    run("i14_nobody_passes_those_who_waited", FOUR, queue, |queue| {
        for _ in 0..3 {
            queue.admit(0);
        }
        let newcomer = queue.beside(|queue| {
            if queue.slots.try_admit(0).is_ok() {
                assert_eq!(queue.started.get(), 3, "the third one waited");
            }
        });
        queue.leave(0);
        queue.leave(0);
        newcomer.join().unwrap();
    });
}

/// The same of newcomers whom a visit takes at once.
#[test]
fn i14_no_visit_passes_those_who_waited() {
    let queue = || Queue::new(2, 1, BARE);
    run(
        "i14_no_visit_passes_those_who_waited",
        FOUR,
        queue,
        |queue| {
            for _ in 0..3 {
                queue.admit(0);
            }
            let visit = queue.beside(|queue| {
                let taken = queue.slots.try_admit_many(0, |free| free);
                if taken > 0 {
                    assert_eq!((queue.started.get(), taken), (3, 1), "the third one waited");
                }
            });
            queue.leave(0);
            queue.leave(0);
            visit.join().unwrap();
        },
    );
}

/// Two front ends of one node, with one item that is active and one that waits in each.
fn two_waiting() -> Queue {
    let slots = Slots::tuned(Share::Lend, 2, &[1], BARE);
    let queue = Queue::of(slots);
    for front in [0, 1, 0, 1] {
        queue.admit(front);
    }
    queue
}

/// I.15: both active items end while what waits in one of the front ends is cancelled: each slot
/// goes to one item at most, and none stays idle while somebody waits.
#[test]
fn i15_i36_two_ends_and_a_cancel() {
    run("i15_i36_two_ends_and_a_cancel", TWO, two_waiting, |queue| {
        let other = queue.beside(|queue| queue.leave(1));
        let canceller = queue.beside(|queue| queue.slots.remove(0, 0, |_| true).is_some());
        queue.leave(0);
        other.join().unwrap();
        let cancelled = usize::from(canceller.join().unwrap());
        assert_eq!(queue.started.get() + cancelled, 4);
        queue.assert_sum(2);
    });
}

/// I.16: the front end whose turn it is loses its only item: the next one has the slot.
#[test]
fn i16_the_first_of_the_line_is_cancelled() {
    run(
        "i16_the_first_of_the_line_is_cancelled",
        FOUR,
        two_waiting,
        |queue| {
            let canceller = queue.beside(|queue| queue.slots.remove(0, 0, |_| true).is_some());
            queue.leave(1);
            let cancelled = canceller.join().unwrap();
            assert_eq!(queue.started.get(), 3, "one of those who waited");
            assert_eq!(queue.slots.inactive_at(0), 0, "it was the first");
            assert_eq!(queue.slots.inactive_at(1), usize::from(!cancelled));
        },
    );
}

/// F1: the holder of the only slot leaves while the queue is frozen. What comes after the freeze
/// waits, whatever token it finds, and goes on with the thaw.
#[test]
fn f1_a_freeze_against_release() {
    let queue = || Queue::new(1, 2, BARE);
    run("f1_a_freeze_against_release", THREE, queue, |queue| {
        queue.admit(0);
        let other = queue.beside(|queue| queue.leave(0));
        queue.set_frozen(true);
        queue.admit(0);
        assert_eq!(queue.started.get(), 1, "nothing starts once it is frozen");
        other.join().unwrap();
        assert_eq!((queue.started.get(), queue.slots.active()), (1, 0));
        queue.set_frozen(false);
        assert_eq!(queue.started.get(), 2);
        queue.assert_sum(1);
    });
}

/// F1 between groups: somebody waits elsewhere, and either has the slot before the freeze has
/// returned or after the thaw. His mark stays.
#[test]
fn f1_a_freeze_against_those_who_wait() {
    let queue = || Queue::new(1, 2, BARE);
    run(
        "f1_a_freeze_against_those_who_wait",
        THREE,
        queue,
        |queue| {
            queue.admit(0);
            queue.admit(1);
            let other = queue.beside(|queue| queue.leave(0));
            queue.set_frozen(true);
            let started = queue.started.get();
            other.join().unwrap();
            assert_eq!(
                queue.started.get(),
                started,
                "nothing starts once it is frozen"
            );
            queue.set_frozen(false);
            assert_eq!(queue.started.get(), 2);
            queue.assert_sum(1);
        },
    );
}

/// F2: a newcomer has found nobody waiting, and takes the token that the only active item puts
/// back, both on their way through the freeze. Gates are locked from A to the pool, and each is
/// asked for its lock (as here) before the freeze returns: so what is not busy then stays so.
#[test]
fn f2_a_freeze_waits_for_who_is_at_a_gate() {
    let queue = || Queue::new(1, 1, BARE);
    let name = "f2_a_freeze_waits_for_who_is_at_a_gate";
    run(name, TWO, queue, |queue| {
        queue.admit(0);
        let gate = Arc::new(Mutex::new(()));
        let newcomer = queue.beside({
            let gate = gate.clone();
            move |queue| {
                let _at_the_gate = gate.lock();
                queue.admit(0);
            }
        });
        let leaver = queue.beside(|queue| queue.leave(0));
        queue.set_frozen(true);
        drop(gate.lock());
        let busy = queue.slots.active() > 0;
        let started = queue.started.get();
        newcomer.join().unwrap();
        leaver.join().unwrap();
        if !busy {
            assert_eq!(queue.started.get(), started, "it starts in a freeze");
        }
    });
}

/// I.13 for a thaw: somebody joins meanwhile.
#[test]
fn f1_a_thaw_against_join() {
    let queue = || {
        let queue = Queue::new(1, 2, BARE);
        queue.set_frozen(true);
        queue
    };
    run("f1_a_thaw_against_join", THREE, queue, |queue| {
        let other = queue.beside(|queue| queue.set_frozen(false));
        queue.admit(1);
        other.join().unwrap();
        assert_eq!(queue.started.get(), 1);
        queue.assert_sum(1);
    });
}
