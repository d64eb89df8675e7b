//! Models of the per-CPU stacks and counts (`percpu`), driving the shipped types: the try-lock, and
//! the busy flag, which stands for restartable sequences.
//!
//! | weaken | fails |
//! |---|---|
//! | the limit: Acquire of `pop`, or Release of `open` | `a_pop_after_a_reopening` |
//! | the limit: Acquire of `push` | `a_push_after_a_reopening` |
//! | the fence of `barrier` | both |
//! | lock: Release of the user | `a_pop_after_a_reopening_locked` |
//! | lock: Acquire, Release of the drain | `a_push_after_a_reopening_locked` |
//! | a limit for users with the lock read as one for sections, or the other way round | `a_pop_after_another_opening`, `a_push_after_another_opening` |
//! | no barrier before sections' ids are taken; `drain` for `drain_locked` | the same |
//! | count: Release of `add`, Acquire of `close` | `a_close_sees_what_adders_did` |
//! | count: the fence of `close` | `a_close_or_who_asks_sees_the_other` |
#![cfg(loom)]

use inflight_sync::atomic::{AtomicU32, Ordering, fence};
use inflight_sync::cell::UnsafeCell;
use inflight_sync::model::{Bound, check};
use inflight_sync::percpu::{Backend, PerCpuCounter, Stacks};
use inflight_sync::{Arc, cpu, thread};

const UNBOUNDED: Bound = Bound {
    quick: None,
    deep: None,
};

const THREE: Bound = Bound {
    quick: Some(3),
    deep: Some(5),
};

/// Closes the only stack, takes everything out and opens it again. What was in it.
fn drain_and_reopen(stacks: &Stacks) -> Vec<u32> {
    let mut ids = Vec::new();
    stacks.close(0);
    stacks.barrier();
    stacks.drain(0, |id| ids.push(id));
    stacks.open(0, 2);
    ids
}

/// An open stack with one id.
fn filled(backend: Backend) -> Arc<Stacks> {
    cpu::set_current_for_thread(Some(0));
    let stacks = Stacks::new(backend, 1);
    stacks.open(0, 2);
    assert!(stacks.push(7));
    Arc::new(stacks)
}

/// The owner of the stack.
fn owner<T: Send + 'static>(
    stacks: &Arc<Stacks>,
    body: impl FnOnce(&Stacks) -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let stacks = stacks.clone();
    thread::spawn(move || {
        cpu::set_current_for_thread(Some(0));
        body(&stacks)
    })
}

/// One pops while another drains and opens again: the id is popped, or drained, or neither if it
/// still lies there.
fn pop_after_reopening(backend: Backend) {
    let stacks = filled(backend);
    let owner = owner(&stacks, Stacks::pop);
    let mut ids = drain_and_reopen(&stacks);
    ids.extend(owner.join().unwrap());
    ids.extend(drain_and_reopen(&stacks));
    assert_eq!(ids, [7]);
}

/// One pushes meanwhile: no drained id comes back with what it pushes.
fn push_after_reopening(backend: Backend) {
    let stacks = filled(backend);
    let owner = owner(&stacks, |stacks| stacks.push(8));
    let mut ids = drain_and_reopen(&stacks);
    let pushed = owner.join().unwrap();
    ids.extend(drain_and_reopen(&stacks));
    ids.sort_unstable();
    assert_eq!(ids, [7, 8][..=usize::from(pushed)]);
}

/// As `filled`; then closed, and opened again for users with the lock.
fn filled_and_locked() -> Arc<Stacks> {
    let stacks = filled(Backend::BusyFlag);
    assert_eq!(drain_and_reopen_locked(&stacks, true), [7]);
    assert!(stacks.push(7));
    stacks
}

/// As `drain_and_reopen`, of a stack that was opened for sections, or else for users with the lock,
/// which then is opened for those with the lock.
fn drain_and_reopen_locked(stacks: &Stacks, sections: bool) -> Vec<u32> {
    let mut ids = Vec::new();
    stacks.close(0);
    if sections {
        stacks.barrier();
        stacks.drain(0, |id| ids.push(id));
    } else {
        stacks.drain_locked(0, |id| ids.push(id));
    }
    stacks.open_locked(0, 2);
    ids
}

/// Locked, then for sections, then locked again, under a user of either kind.
fn turn_round(stacks: &Stacks) -> Vec<u32> {
    let mut found = drain_and_reopen_locked(stacks, false);
    stacks.close(0);
    stacks.drain_locked(0, |id| found.push(id));
    stacks.open(0, 2);
    found.extend(drain_and_reopen_locked(stacks, true));
    found
}

/// A stack changes from one kind of users to the other and back while one pops.
#[test]
fn a_pop_after_another_opening() {
    check("a_pop_after_another_opening", THREE, || {
        let stacks = filled_and_locked();
        let owner = owner(&stacks, Stacks::pop);
        let mut ids = turn_round(&stacks);
        ids.extend(owner.join().unwrap());
        ids.extend(drain_and_reopen_locked(&stacks, false));
        assert_eq!(ids, [7]);
    });
}

/// One pushes meanwhile.
#[test]
fn a_push_after_another_opening() {
    check("a_push_after_another_opening", THREE, || {
        let stacks = filled_and_locked();
        let owner = owner(&stacks, |stacks| stacks.push(8));
        let mut ids = turn_round(&stacks);
        let pushed = owner.join().unwrap();
        ids.extend(drain_and_reopen_locked(&stacks, false));
        ids.sort_unstable();
        assert_eq!(ids, [7, 8][..=usize::from(pushed)]);
    });
}

macro_rules! both {
    ($($name:ident / $locked:ident $body:ident;)*) => {$(
        #[test]
        fn $name() {
            check(stringify!($name), UNBOUNDED, || $body(Backend::BusyFlag));
        }
        #[test]
        fn $locked() {
            check(stringify!($locked), UNBOUNDED, || $body(Backend::TryLock));
        }
    )*};
}

both! {
    a_pop_after_a_reopening / a_pop_after_a_reopening_locked pop_after_reopening;
    a_push_after_a_reopening / a_push_after_a_reopening_locked push_after_reopening;
}

/// Plain data of whoever adds, and of whoever closes.
struct Counted {
    counter: PerCpuCounter,
    adder: UnsafeCell<u32>,
    closer: UnsafeCell<u32>,
}

// SAFETY: who touches which cell, and when, is what the model checks.
unsafe impl Sync for Counted {}

/// What an adder did before an addition that counts is visible to the one who closed; and an adder
/// that is refused sees, after a fence, that it is closed, and what was done before.
#[test]
fn a_close_sees_what_adders_did() {
    check("a_close_sees_what_adders_did", UNBOUNDED, || {
        let counted = Arc::new(Counted {
            counter: PerCpuCounter::new(Backend::TryLock, 1),
            adder: UnsafeCell::new(0),
            closer: UnsafeCell::new(0),
        });
        let adder = thread::spawn({
            let counted = counted.clone();
            move || {
                // SAFETY: the closer reads it once the addition counts.
                counted.adder.with_mut(|d| unsafe { *d = 1 });
                if !counted.counter.add(1) {
                    // Ordering: as a caller of `is_closed` is told to.
                    fence(Ordering::SeqCst);
                    assert!(counted.counter.is_closed());
                    // SAFETY: the closer wrote it before the close.
                    assert_eq!(counted.closer.with(|d| unsafe { *d }), 1);
                }
            }
        });
        // SAFETY: the adder reads it after a refusal.
        counted.closer.with_mut(|d| unsafe { *d = 1 });
        if counted.counter.close() == 1 {
            // SAFETY: the addition counts.
            assert_eq!(counted.adder.with(|d| unsafe { *d }), 1);
        }
        adder.join().unwrap();
    });
}

/// Who asks whether it is closed, after a fence, or the one who closes: one of the two sees what
/// the other did before.
#[test]
fn a_close_or_who_asks_sees_the_other() {
    check("a_close_or_who_asks_sees_the_other", UNBOUNDED, || {
        let shared = Arc::new((PerCpuCounter::new(Backend::TryLock, 1), AtomicU32::new(0)));
        let asker = thread::spawn({
            let shared = shared.clone();
            move || {
                let (counter, word) = &*shared;
                word.store(1, Ordering::Relaxed);
                // Ordering: as a caller of `is_closed` is told to.
                fence(Ordering::SeqCst);
                counter.is_closed()
            }
        });
        let (counter, word) = &*shared;
        assert_eq!(counter.close(), 0);
        let seen = word.load(Ordering::Relaxed) == 1;
        assert!(asker.join().unwrap() || seen);
    });
}
