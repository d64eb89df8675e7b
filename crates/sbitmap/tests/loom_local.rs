//! Models of the local engine: its owners, movers, freezers, deciders and sleepers.
//!
//! Names of events are those of `PROTOCOL-local.md`. Each model runs with the busy flag, which
//! stands for restartable sequences, and with the try-lock.
//!
//! | weaken | fails, among others |
//! |---|---|
//! | busy flag: no fence after it | `i1_pop_steal`, `h4_put_sleep` |
//! | flag or lock: Release of the user | `i1_pop_steal`, `i1_pop_steal_locked` |
//! | limit: Acquire of `pop` and `push`, or Release of `open` | `i1_remote_activate` |
//! | `pop` does not look at the limit | `i1_pop_steal` |
//! | `push` reads the length before the limit | `i1_reopened_under_a_put` |
//! | B missing, or D does not wait for the flag | `i1_pop_steal`, `h4_put_sleep` |
//! | D: Acquire of the flag | `i1_pop_steal` |
//! | lock: Acquire of a user | `h1_exact_warm_locked` |
//! | P2 missing | `h4_warm_words_put`, `h1_summary_put` |
//! | P2 after PM missing | `h4_summary_put_sleep` |
//! | A1: Acquire | `h1_rotate` |
//! | get: Acquire of its RMW | `h1_exact_cold` |
//! | get: Release of its RMW | `h1_put_then_taken` |
//! | put: Release of its RMW | `h1_exact_cold_locked` |
//! | put without count, or sums not compared | `h1_rotate` |
//! | no A2 | `h1_exact_cold`, `h1_rotate` |
//! | no A3 | `h1_thaw_twice` |
//! | P3 does not look at the waiters | `h4_cold_put` |
//! | activation ignores COLD, or F1 comes with Z | `h1_exact_warm` |
//! | MR before the pushes, or no K | `h1_exact_warm` |
//! | Z: Release, or A0: Acquire | `i1_pop_steal` |
//! | T although somebody waits | `h4_thaw_beside_a_waiter` |
//! | no R2 | `h4_cold_put` |
//! | no R3 | `h4_thaw_before_sleep` |
//! | PM missing, or content with CLOSING | `h1_summary_rotate`, `h4_summary_put_sleep` |
//! | X1 missing, no X2, CLOSING read as no bit | `h1_summary_rotate` |
//! | X3 does not look | `h1_summary_rotate_locked` |
//! | X4 clears whatever has happened | `h1_summary_put` |
//! | PT missing | `h1_two_summaries_*`, `h4_two_summaries_*` |
//! | no X2 or X3 of a group | `h1_two_summaries_put` |
//! | the look at what is free: Acquire | `a_free_id_shows_its_last_writes` |
//! | D without the lock where stacks are locked | `i1_locked_steal`, `h4_locked_put_sleep` |
//! | activation for sections where stacks are locked | `i1_locked_fast_path` |
//!
//! Seen to survive, and kept: A2's Acquire (A3 must come after it); Acquire of the put's RMW (the
//! chain of proof 3). Of the summary, which needs three threads and three preemptions to go wrong:
//! the count of changes to SET and both sums of a pass; X3's and the reading's Acquire and X4's
//! Release, which carry the chain of proof 3 and are covered by fences in these models. Of the
//! groups: the fence of PT, for which a third thread must have set the bit that PM reads (not seen
//! with three preemptions either), and A2, which one reading is as good as up to 256 words.
#![cfg(loom)]

#[path = "common/local_models.rs"]
mod local_models;

use inflight_sbitmap::BitMask;
use inflight_sbitmap::model_support::ModelConfig;
use inflight_sync::model::{Bound, check};
use inflight_sync::percpu::Backend;
use local_models::{NEVER, Queue, on, pair_beside_another, rotate_beside_another, spawn, visit};

const TWO: Bound = Bound {
    quick: Some(2),
    deep: Some(3),
};

const ONE: Bound = Bound {
    quick: Some(1),
    deep: Some(2),
};

/// Thaw with the first put.
const AT_ONCE: u32 = 0;

/// One model, one test for each back end.
macro_rules! models {
    ($(
        $(#[$doc:meta])*
        $name:ident / $locked:ident ($bound:ident, $other:ident) $body:expr;
    )*) => {$(
        $(#[$doc])*
        #[test]
        fn $name() {
            check(stringify!($name), $bound, || $body(Backend::BusyFlag));
        }
        /// The same under the try-lock.
        #[test]
        fn $locked() {
            check(stringify!($locked), $other, || $body(Backend::TryLock));
        }
    )*};
}

models! {
    /// Two ids taken together, one of which another thread puts, while the first is put, taken in
    /// a mask again and put: no put of an owner is refused,
    /// and none is taken for good afterwards.
    a_mask_put_in_parts / a_mask_put_in_parts_locked (TWO, TWO) |backend| {
        let queue = Queue::over(ModelConfig {
            shift: 1,
            cap: 4,
            checked: true,
            ..ModelConfig::new(backend, 2)
        });
        let both = queue.get_mask(2);
        assert_eq!((both.first, both.mask), (0, 0b11));
        let [first, second] = [0b01, 0b10].map(|mask| BitMask { first: 0, mask });
        let other = spawn(&queue, 1, move |queue| queue.put_mask(second));
        queue.put_mask(first);
        let again = queue.get_mask(1);
        queue.put_mask(again);
        other.join().unwrap();
        assert!((0..2).all(|id| queue.store.put(id).is_err()));
        queue.assert_free(2);
    };

    /// Two ids in the stack of CPU 0: its owner pops while another freezes and takes the rest.
    /// No id twice, none lost.
    i1_pop_steal / i1_pop_steal_locked (TWO, TWO) |backend| {
        let queue = Queue::new(backend, 2, 1, 4, NEVER);
        queue.pair();
        let owner = spawn(&queue, 0, Queue::get);
        on(1);
        queue.store.freeze();
        let here = queue.get();
        let there = owner.join().unwrap();
        assert_ne!(here, there);
        queue.assert_free(0);
    };

    /// The owner's put (P1 in the stack) against a getter that goes to sleep (R1 to R4): one id.
    h4_put_sleep / h4_put_sleep_locked (TWO, TWO) |backend| {
        let queue = Queue::new(backend, 1, 0, 2, NEVER);
        queue.pair();
        let id = queue.get();
        let other = spawn(&queue, 1, visit);
        queue.put(id);
        other.join().unwrap();
        queue.assert_free(1);
    };

    /// Cold: whoever sees that an id is free sees what its last owner wrote.
    a_free_id_shows_its_last_writes / a_free_id_shows_its_last_writes_locked (TWO, TWO) |backend| {
        let queue = Queue::new(backend, 1, 0, 2, NEVER);
        let id = queue.get();
        queue.store.freeze();
        // In the other order loom forgets this load over the load that comes before the exchange.
        let other = spawn(&queue, 1, move |queue| {
            if queue.store.free() == 1 {
                queue.touch(id);
            }
        });
        queue.put(id);
        other.join().unwrap();
    };

    /// Already cold: P1 P2 P3 against R1 R2, with a thaw (T) at the first chance.
    h4_cold_put / h4_cold_put_locked (TWO, TWO) |backend| {
        let queue = Queue::new(backend, 1, 0, 2, AT_ONCE);
        let id = queue.get();
        queue.store.freeze();
        let other = spawn(&queue, 1, visit);
        queue.put(id);
        other.join().unwrap();
        queue.assert_free(1);
    };

    /// Warm, cold, warm again: two blockers and one id.
    h4_thaw_cycle / h4_thaw_cycle_locked (TWO, TWO) |backend| {
        let queue = Queue::new(backend, 1, 0, 2, AT_ONCE);
        let other = spawn(&queue, 1, visit);
        visit(&queue);
        other.join().unwrap();
        queue.assert_free(1);
    };

    /// A thaw between a getter's "none" and its R1.
    h4_late_register / h4_late_register_locked (TWO, ONE) |backend| {
        let queue = Queue::new(backend, 1, 0, 2, AT_ONCE);
        let id = queue.get();
        queue.store.freeze();
        let other = spawn(&queue, 1, visit);
        queue.put(id);
        if let Some(id) = queue.store.get() {
            queue.put(id);
        }
        other.join().unwrap();
        queue.assert_free(1);
    };

    /// A putter that saw nobody thaws (T) when somebody waits by now: its next put must not go into
    /// a stack.
    h4_thaw_beside_a_waiter / h4_thaw_beside_a_waiter_locked (ONE, ONE) |backend| {
        let queue = Queue::new(backend, 2, 1, 2, AT_ONCE);
        let ids = [queue.get(), queue.get()];
        queue.store.freeze();
        let other = spawn(&queue, 1, |queue| [queue.get_blocking(), queue.get_blocking()]);
        ids.iter().for_each(|&id| queue.put(id));
        let got = other.join().unwrap();
        assert_ne!(got[0], got[1]);
        queue.assert_free(0);
    };

    /// A put into the words in warm mode (no stack takes it) against a sleeper: the light fence
    /// against B.
    h4_warm_words_put / h4_warm_words_put_locked (TWO, TWO) |backend| {
        let queue = Queue::new(backend, 1, 0, 2, NEVER);
        let id = queue.get();
        let other = spawn(&queue, 1, |queue| {
            let id = queue.get_blocking();
            queue.touch(id);
        });
        queue.touch(id);
        if queue.store.put_batch(&[id]) {
            queue.serve();
        }
        other.join().unwrap();
        queue.assert_free(0);
    };

    /// Cold, two ids in two words, two threads with one each: "none" is never right.
    h1_exact_cold / h1_exact_cold_locked (TWO, TWO) |backend| {
        let queue = Queue::new(backend, 2, 0, 2, NEVER);
        queue.store.freeze();
        on(1);
        let id = queue.get();
        let other = spawn(&queue, 1, Queue::pair);
        queue.put(id);
        on(0);
        queue.pair();
        other.join().unwrap();
        queue.assert_free(2);
    };

    /// Thread A, the first of the model, puts the second id. Thread B (`taker`) starts after that
    /// put, and takes the first id. Thread C (`other`) looks for an id meanwhile. If C finds the
    /// first id gone, it must find the second. No fence of a put stands between B's take and C.
    h1_put_then_taken / h1_put_then_taken_locked (TWO, TWO) |backend| {
        let queue = Queue::new(backend, 2, 0, 2, NEVER);
        queue.store.freeze();
        on(1);
        let id = queue.get();
        let other = spawn(&queue, 0, Queue::get);
        queue.put(id);
        let taker = spawn(&queue, 0, Queue::get);
        assert_ne!(other.join().unwrap(), taker.join().unwrap());
        queue.assert_free(0);
    };

    /// As before, with a summary: a bit that is cleared (X1 to X4) hides no id that came meanwhile.
    h1_summary_cold / h1_summary_cold_locked (TWO, ONE) |backend| {
        let queue = Queue::with_summaries(1, backend, 2);
        on(1);
        let id = queue.get();
        let other = spawn(&queue, 1, Queue::pair);
        queue.put(id);
        on(0);
        queue.pair();
        other.join().unwrap();
        queue.assert_free(2);
    };

    /// A getter that finds nothing clears the summary bit while the id comes back (P1 P2 PM against
    /// X1 to X4). It is not free and unseen afterwards.
    h1_summary_put / h1_summary_put_locked (TWO, TWO) |backend| {
        let queue = Queue::with_summaries(1, backend, 2);
        let id = queue.take_with_bit();
        let other = spawn(&queue, 0, move |queue| queue.put(id));
        on(1);
        let early = queue.store.get();
        other.join().unwrap();
        let late = queue.store.get();
        assert!(early.is_some() != late.is_some(), "one id, {early:?} and {late:?}");
    };

    /// A put into a word that has lost its summary bit (P1 P2 PM P3) against a getter that goes to
    /// sleep and looks at words with a bit only.
    h4_summary_put_sleep / h4_summary_put_sleep_locked (TWO, ONE) |backend| {
        let queue = Queue::with_summaries(1, backend, 2);
        let (id, _kept) = (queue.get(), queue.get());
        assert_eq!(queue.store.get(), None);
        let other = spawn(&queue, 1, |queue| {
            let id = queue.get_blocking();
            queue.touch(id);
        });
        queue.put(id);
        other.join().unwrap();
        queue.assert_free(0);
    };

    /// As `h1_summary_put`, with a bit for the group: it is cleared too (X1 to X4 of the group
    /// against P2 PM PT).
    h1_two_summaries_put / h1_two_summaries_put_locked (TWO, TWO) |backend| {
        let queue = Queue::with_summaries(2, backend, 2);
        let id = queue.take_with_bit();
        let other = spawn(&queue, 0, move |queue| queue.put(id));
        on(1);
        let early = queue.store.get();
        other.join().unwrap();
        let late = queue.store.get();
        assert!(early.is_some() != late.is_some(), "one id, {early:?} and {late:?}");
    };

    /// As it, where the group has lost its bit before the put, and is not cleared again.
    h1_two_summaries_none / h1_two_summaries_none_locked (TWO, TWO) |backend| {
        let queue = Queue::with_summaries(2, backend, 2);
        let (id, _kept) = (queue.get(), queue.get());
        assert_eq!(queue.store.get(), None);
        let other = spawn(&queue, 0, move |queue| queue.put(id));
        on(1);
        let early = queue.store.get();
        other.join().unwrap();
        let late = queue.store.get();
        assert!(early.is_some() != late.is_some(), "one id, {early:?} and {late:?}");
    };

    /// A put into a group that has lost its bit against a getter that goes to sleep and looks at
    /// groups with a bit only.
    h4_two_summaries_put_sleep / h4_two_summaries_put_sleep_locked (TWO, ONE) |backend| {
        let queue = Queue::with_summaries(2, backend, 2);
        let (id, _kept) = (queue.get(), queue.get());
        assert_eq!(queue.store.get(), None);
        let other = spawn(&queue, 1, |queue| {
            let id = queue.get_blocking();
            queue.touch(id);
        });
        queue.put(id);
        other.join().unwrap();
        queue.assert_free(0);
    };

    /// One id moves from word to word behind the scanner's back, and the group loses its bit
    /// whenever nobody has put it back yet.
    h1_two_summaries_rotate / h1_two_summaries_rotate_locked (TWO, ONE) |backend| {
        let queue = Queue::with_summaries(2, backend, 2);
        rotate_beside_another(&queue);
    };

    /// One id moves from word to word behind the scanner's back, and words without ids lose their
    /// bits meanwhile.
    h1_summary_rotate / h1_summary_rotate_locked (TWO, ONE) |backend| {
        let queue = Queue::with_summaries(1, backend, 2);
        rotate_beside_another(&queue);
    };

    /// Warm, two ids of one word, which a refill takes both.
    h1_exact_warm / h1_exact_warm_locked (TWO, TWO) |backend| {
        let queue = Queue::new(backend, 2, 1, 4, NEVER);
        pair_beside_another(&queue, 1);
    };

    /// Cold, and thawed by the first put.
    h1_exact_thaw / h1_exact_thaw_locked (TWO, TWO) |backend| {
        let queue = Queue::new(backend, 2, 1, 4, AT_ONCE);
        queue.store.freeze();
        pair_beside_another(&queue, 1);
    };

    /// Cold: one id moves behind the scanner's back, three times (A1, A2, the counts).
    h1_rotate / h1_rotate_locked (TWO, TWO) |backend| {
        let queue = Queue::new(backend, 2, 0, 2, NEVER);
        queue.store.freeze();
        rotate_beside_another(&queue);
    };

    /// Thaw and refill while another decides (A0 and A3).
    h1_thaw_twice / h1_thaw_twice_locked (TWO, TWO) |backend| {
        let queue = Queue::new(backend, 2, 1, 4, AT_ONCE);
        queue.store.freeze();
        let other = spawn(&queue, 1, Queue::get);
        queue.pair();
        queue.pair();
        other.join().unwrap();
        queue.assert_free(1);
    };

    /// A stack is drained, thawed and opened again by a thread that has moved, under its owner:
    /// the limit before the length.
    i1_remote_activate / i1_remote_activate_locked (TWO, TWO) |backend| {
        let queue = Queue::new(backend, 2, 1, 4, AT_ONCE);
        queue.pair();
        let owner = spawn(&queue, 0, Queue::pair);
        on(1);
        queue.store.freeze();
        queue.store.thaw();
        queue.store.activate(0);
        owner.join().unwrap();
        queue.assert_free(2);
    };

    /// As before, while the owner puts: a length read before the limit would bring the drained id
    /// back.
    i1_reopened_under_a_put / i1_reopened_under_a_put_locked (TWO, TWO) |backend| {
        let queue = Queue::new(backend, 2, 1, 4, NEVER);
        queue.pair();
        let id = queue.get();
        let owner = spawn(&queue, 0, move |queue| queue.put(id));
        on(1);
        queue.store.freeze();
        queue.store.thaw();
        queue.store.activate(0);
        owner.join().unwrap();
        // To move an id to a word that has it already would hide it: so they are taken out.
        on(0);
        assert_eq!(std::iter::from_fn(|| queue.store.get()).count(), 2);
    };

    /// A thaw between "none" and R1, and a put into a stack that was opened after it: R3 freezes
    /// again.
    h4_thaw_before_sleep / h4_thaw_before_sleep_locked (ONE, ONE) |backend| {
        let queue = Queue::over(ModelConfig {
            thaw_after: AT_ONCE,
            ..ModelConfig::new(backend, 1)
        });
        let id = queue.get();
        queue.store.freeze();
        let other = spawn(&queue, 1, visit);
        queue.put(id);
        visit(&queue);
        other.join().unwrap();
        queue.assert_free(1);
    };

    /// A full stack is flushed (MA to MR) while another goes to sleep.
    h4_flush_steal / h4_flush_steal_locked (ONE, ONE) |backend| {
        let queue = Queue::new(backend, 3, 2, 2, NEVER);
        let ids = [queue.get(), queue.get(), queue.get()];
        let other = spawn(&queue, 1, Queue::get_blocking);
        ids.iter().for_each(|&id| queue.put(id));
        let id = other.join().unwrap();
        queue.put(id);
        queue.assert_free(3);
    };
}

/// Locked, two ids in the stack of CPU 0: its owner pops while another freezes and takes the rest.
#[test]
fn i1_locked_steal() {
    check("i1_locked_steal", TWO, || {
        let queue = Queue::locked(2, 1, NEVER, NEVER);
        queue.pair();
        let owner = spawn(&queue, 0, Queue::get);
        on(1);
        queue.store.freeze();
        let here = queue.get();
        let there = owner.join().unwrap();
        assert_ne!(here, there);
        queue.assert_free(0);
    });
}

/// As before, while the owner tries the fast path, which asks nobody whether stacks are locked: it
/// is a section, and shut out.
#[test]
fn i1_locked_fast_path() {
    check("i1_locked_fast_path", TWO, || {
        let queue = Queue::locked(2, 1, NEVER, NEVER);
        queue.pair();
        let owner = spawn(&queue, 0, |queue| {
            let id = queue.store.get_fast().or_else(|| queue.store.get());
            queue.touch(id.expect("an id is free at any moment"));
            id
        });
        on(1);
        queue.store.freeze();
        let here = queue.get();
        let there = owner.join().unwrap();
        assert_ne!(Some(here), there);
        queue.assert_free(0);
    });
}

/// Locked: the owner's put (C) against a getter that goes to sleep (R1 to R4): one id.
#[test]
fn h4_locked_put_sleep() {
    check("h4_locked_put_sleep", TWO, || {
        let queue = Queue::locked(1, 0, NEVER, NEVER);
        queue.pair();
        let id = queue.get();
        let other = spawn(&queue, 1, visit);
        queue.put(id);
        other.join().unwrap();
        queue.assert_free(1);
    });
}

/// Sections, locked, sections again, under two getters of two ids: "none" is never right.
#[test]
fn h1_locked_and_back() {
    check("h1_locked_and_back", ONE, || {
        let queue = Queue::locked(2, 1, AT_ONCE, 1);
        let other = spawn(&queue, 1, Queue::pair);
        queue.pair();
        queue.pair();
        other.join().unwrap();
        queue.assert_free(2);
    });
}

/// Sections are let in by the put that another goes to sleep for.
#[test]
fn h4_sections_let_in() {
    check("h4_sections_let_in", TWO, || {
        let queue = Queue::locked(1, 0, AT_ONCE, 1);
        let other = spawn(&queue, 1, visit);
        visit(&queue);
        other.join().unwrap();
        queue.assert_free(1);
    });
}

/// A stack opened late, by a thread that has moved away from it, while its owner lets sections in:
/// it is open to one kind of users.
#[test]
fn i1_locked_remote_activate() {
    check("i1_locked_remote_activate", TWO, || {
        let queue = Queue::locked(2, 1, AT_ONCE, 1);
        queue.pair();
        let owner = spawn(&queue, 0, Queue::pair);
        on(1);
        queue.store.freeze();
        queue.store.thaw();
        queue.store.activate(0);
        owner.join().unwrap();
        on(0);
        assert_eq!(std::iter::from_fn(|| queue.store.get()).count(), 2);
    });
}

/// Two getters clear the same summary bit while the id comes back: the slower one must not clear
/// what the other has seen set again.
#[test]
fn h1_summary_two_clearers() {
    check("h1_summary_two_clearers", TWO, || {
        let queue = Queue::with_summaries(1, Backend::BusyFlag, 2);
        let id = queue.take_with_bit();
        let others = [1, 1].map(|cpu| spawn(&queue, cpu, |queue| queue.store.get()));
        queue.put(id);
        on(1);
        let got = others.map(|other| other.join().unwrap());
        let last = queue.store.get();
        let owners = got.iter().chain([&last]).flatten().count();
        assert_eq!(owners, 1, "one id, {got:?} and {last:?}");
    });
}

/// Two ids of one word come back, the second put reads the bit that the first has set, and the
/// group loses its bit meanwhile: whoever has put an id gets one, or the third thread has it.
#[test]
fn h1_two_summaries_two_putters() {
    check("h1_two_summaries_two_putters", TWO, || {
        let queue = Queue::over(ModelConfig {
            shift: 1,
            summaries: 2,
            ..ModelConfig::new(Backend::BusyFlag, 2)
        });
        queue.store.freeze();
        let (first, second) = (queue.get(), queue.get());
        let putter = spawn(&queue, 0, move |queue| queue.put(first));
        let getter = spawn(&queue, 1, |queue| queue.store.get());
        on(0);
        queue.put(second);
        let got = queue.store.get();
        let other = getter.join().unwrap();
        putter.join().unwrap();
        assert!(
            got.is_some() || other.is_some(),
            "an id is free and not seen"
        );
    });
}

/// Two threads on one CPU. Only the try-lock: with restartable sequences the kernel keeps them
/// apart, and the busy flag does not model that.
#[test]
fn i1_one_cpu_locked() {
    check("i1_one_cpu_locked", TWO, || {
        let queue = Queue::new(Backend::TryLock, 2, 1, 4, NEVER);
        queue.pair();
        pair_beside_another(&queue, 0);
    });
}
