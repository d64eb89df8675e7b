//! Joint models: waiting in turns over the local engine, whose stacks are open when somebody comes
//! to wait. Events as in `PROTOCOL-turns.md` and `PROTOCOL-local.md`.
//!
//! Seen to fail, at the quick bound:
//!
//! | weaken | fails |
//! |---|---|
//! | P2, the fence after a put into a word | all but `h20_*`, `h8_*` |
//! | V2, the fence of the service | all but `h20_*`, `h8_*` |
//! | V1, `waiters` written after V3 | `h4_*` but two puts for two, `h6_*` |
//! | G4, no `drain_percpu` | `d25_joint_two_collectors` |
//! | G4, not for one that has its first part | `h4_joint_first_part_at_once` |
//! | G4, a task does not drain | `h4_joint_task_opens` |
//! | G5, no service after `drain_percpu` | `d25_joint_two_collectors` |
//! | G5, a newcomer does not serve | all but `h20_*` |
//! | G5, not where the store is drained after the first look | `h4_joint_opens_beside_a_drain` |
//! | the id of a dropped future not put | `h6_joint_dropped_future` |
//! | shrink refuses nobody | `h20_joint_shrink` |
//! | a close refuses before the store is drained | `h6_joint_two_closers`, `h6_joint_closed_for_*` |
//!
//! A thaw beside a waiter is not seen here but in `loom_local.rs`.
#![cfg(loom)]

#[path = "common/turn_models.rs"]
mod models;

use inflight_sbitmap::model_support::{LocalStore, ModelConfig};
use inflight_sbitmap::tenancy::{Request, Tenancy};
use inflight_sbitmap::{Fairness, SbitmapQueue};
use inflight_sync::model::{Bound, check};
use inflight_sync::percpu::Backend;
use inflight_sync::time::Clock;
use inflight_sync::{Arc, block_on, cpu, thread};

const ONE: Bound = Bound {
    quick: Some(1),
    deep: Some(2),
};
const TWO: Bound = Bound {
    quick: Some(2),
    deep: Some(3),
};

/// Two stacks, warm at first; every put in the words tries to thaw.
fn local(depth: usize, max_depth: usize, mode: Fairness, clock: Clock) -> SbitmapQueue {
    assert_eq!(depth, max_depth);
    let store = LocalStore::new(ModelConfig {
        cpus: 3,
        shift: 1,
        cap: 1,
        thaw_after: 0,
        ..ModelConfig::new(Backend::BusyFlag, depth)
    });
    store.into_queue(mode, clock)
}

macro_rules! models {
    ($($(#[$doc:meta])* $name:ident, $bound:expr, $body:ident $(, $arg:expr)?;)*) => {
        $($(#[$doc])*
        #[test]
        fn $name() {
            check(stringify!($name), $bound, || models::$body(local $(, $arg)?));
        })*
    };
}

models! {
    /// A put into an open stack, or into the words, against G3 G4 G5.
    h4_joint_waiter_against_put, TWO, waiter_against_put;
    /// The same with a task.
    h4_joint_task_against_put, TWO, task_against_put;
    /// A. Thaw and freeze between the two.
    h4_joint_two_threads, TWO, two_threads_one_id;
    /// I. Both keep what they get: one may be in a stack, one in the words.
    h4_joint_two_puts_for_two, ONE, two_puts_for_two_that_keep, Fairness::fair();
    /// G.
    h8_joint_batch_for_two, ONE, batch_for_two_that_keep;
    /// E.
    h6_joint_dropped_future, ONE, dropped_future_against_grant;
    /// D25.
    d25_joint_two_collectors, ONE, two_collectors;
    /// H20.
    h20_joint_shrink, ONE, shrink_against_collector;
    /// The first comes while the stacks are open.
    h4_joint_newcomer_against_grant, ONE, newcomer_against_grant;
    /// G3 by one that has not looked before (G1), which would have drained the store.
    h4_joint_task_opens, TWO, opening_against_put;
    /// A place that is given up.
    h6_joint_dropped_task, ONE, dropped_task_against_grant;
    /// A close against G3 and a put into an open stack.
    h6_joint_close, ONE, close_against_waiter;
    /// A close beside another one, whose stacks are open.
    h6_joint_two_closers, TWO, two_closers;
    /// A close seen by one that puts into an open stack.
    h6_joint_closed_for_who_is_told, TWO, closed_for_who_is_told;
    /// Everybody looks.
    h6_joint_wake_all, ONE, wake_all_against_put;
}

/// A request that has its first part on joining, while the stacks are open, against the put of its
/// last one.
#[test]
fn h4_joint_first_part_at_once() {
    check("h4_joint_first_part_at_once", TWO, || {
        let queue = Arc::new(local(3, 3, Fairness::fair(), Clock::manual()));
        let held = queue.try_get().expect("all are free");
        let other = queue.clone();
        let putter = thread::spawn(move || other.put(held).expect("it was held"));
        let mut waiter = queue.waiter(Request {
            want: 3,
            part: 1,
            large: true,
            ..Request::one(0)
        });
        let mut ids = Vec::new();
        while ids.len() < 3 {
            waiter.block_part(&queue, None, &mut ids).unwrap();
        }
        putter.join().expect("it does not panic");
        ids.sort_unstable();
        assert_eq!(ids, [0, 1, 2]);
    });
}

/// G3 to G5 of one that has not looked before, while a get of another CPU takes the id out of the
/// stack of a third one.
#[test]
fn h4_joint_opens_beside_a_drain() {
    check("h4_joint_opens_beside_a_drain", TWO, || {
        let on = |cpu| cpu::set_current_for_thread(Some(cpu));
        on(1);
        let queue = Arc::new(local(1, 1, Fairness::fair(), Clock::manual()));
        let id = queue.try_get().expect("it is free");
        queue.put(id).expect("it was held"); // into the stack of CPU 1
        let other = queue.clone();
        let waiter = thread::spawn(move || {
            on(0);
            block_on(other.get_many(1)).unwrap()
        });
        on(2);
        if let Some(id) = queue.try_get() {
            queue.put(id).expect("it was held");
        }
        assert_eq!(waiter.join().expect("it does not panic"), [id]);
    });
}
