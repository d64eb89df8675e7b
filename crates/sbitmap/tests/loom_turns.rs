//! Models of waiting in turns over the shared bitmap. Events as in `PROTOCOL-turns.md`.
//!
//! Seen to fail, at the quick bound:
//!
//! | weaken | fails |
//! |---|---|
//! | P2, the fence in `put` | `h4_*` but Fifo's and `second_poll`, `h6_*` but a task's, `d25_*` |
//! | V2, the fence of the service | the same |
//! | V1, `waiters` written after V3 | `h4_*` but four, `h6_*` but a task's, `d25_*` |
//! | V1, `closed` written after V3 only | `h4_turns_are_spent`, `h4_turns_two_puts_for_two` |
//! | G5, a newcomer does not serve | all but `h20_turns_shrink`, `h6_turns_wake_all_task` |
//! | A1, the token is kept | five, `h8_turns_batch_for_two` and `h6_turns_deadline` among them |
//! | A3, an arriving thread does not serve | four, `h8_turns_batch_for_two` among them |
//! | P4, stall_limit without end | `l4_turns_token_given_up_by_puts` |
//! | a token of an old period counts | `l4_*`, `h6_turns_wake_all` |
//! | the watchdog gives no token up | `l4_turns_token_given_up_by_watchdog` |
//! | P5 hands out one id, however many came | `d25_turns_two_collectors` |
//! | a half-fed collector loses the head | `d25_*`, `h6_turns_dropped_collector` |
//! | a dropped collector keeps its ids | `h6_turns_dropped_collector` |
//! | the id of a dropped future not put | `h6_turns_dropped_future`, `h6_turns_dropped_task` |
//! | a new waker is not kept | `h4_turns_second_poll` |
//! | growth serves nobody | `h20_turns_growth` |
//! | shrink refuses nobody | `h20_turns_shrink` |
//! | a newcomer reads the depth once to be refused and once for its part | `h20_turns_shrink_newcomer` |
//!
//! Not seen by any model: `closed` also when the head is a task, and `leave` that does not serve
//! (whoever holds the token serves later, so both are delays), and no second section after a full
//! array. `tests/turns.rs` has tests of them.
#![cfg(loom)]

#[path = "common/turn_models.rs"]
mod models;

use inflight_sbitmap::{Engine, Fairness, SbitmapQueue};
use inflight_sync::model::{Bound, check};
use inflight_sync::time::Clock;

const ONE: Bound = Bound {
    quick: Some(1),
    deep: Some(2),
};
const UNBOUNDED: Bound = Bound {
    quick: None,
    deep: None,
};
const TWO: Bound = Bound {
    quick: Some(2),
    deep: Some(3),
};
const THREE: Bound = Bound {
    quick: Some(3),
    deep: Some(4),
};

/// One word.
fn shared(depth: usize, max_depth: usize, mode: Fairness, clock: Clock) -> SbitmapQueue {
    SbitmapQueue::builder(depth)
        .max_depth(max_depth)
        .shift(1)
        .engine(Engine::Shared)
        .fairness(mode)
        .clock(clock)
        .trusted(true)
        .build()
        .unwrap()
}

macro_rules! models {
    ($($(#[$doc:meta])* $name:ident, $bound:expr, $body:ident $(, $arg:expr)?;)*) => {
        $($(#[$doc])*
        #[test]
        fn $name() {
            check(stringify!($name), $bound, || models::$body(shared $(, $arg)?));
        })*
    };
}

models! {
    /// A. Two threads share an id.
    h4_turns_two_threads, UNBOUNDED, two_threads_one_id;
    /// B. Three threads share an id.
    h4_turns_three_threads, ONE, three_threads_one_id;
    /// P1 P2 P3 against G3 V2 V3.
    h4_turns_waiter_against_put, UNBOUNDED, waiter_against_put;
    /// The same with a task.
    h4_turns_task_against_put, UNBOUNDED, task_against_put;
    /// C. G2 while others are served.
    h4_turns_are_spent, ONE, turns_are_spent;
    /// E. The granted future is dropped: its id and the service go on.
    h6_turns_dropped_future, THREE, dropped_future_against_grant;
    /// The deadline meets the grant.
    h6_turns_deadline, TWO, deadline_against_grant;
    /// G. One service grants one, the baton the other.
    h8_turns_batch_for_two, ONE, batch_for_two_that_keep;
    /// I. P4 against A1 A2 A3.
    h4_turns_two_puts_for_two, ONE, two_puts_for_two_that_keep, Fairness::fair();
    /// The same without tokens.
    h4_fifo_two_puts_for_two, ONE, two_puts_for_two_that_keep, Fairness::fifo();
    /// `closed` asks for a thread at the head.
    h4_turns_thread_and_task, ONE, thread_and_task_that_keep;
    /// H. The second id of a turn.
    h4_turns_from_the_front, ONE, turn_goes_on_from_the_front;
    /// D25.
    d25_turns_two_collectors, TWO, two_collectors;
    /// H6 for one that collects.
    h6_turns_dropped_collector, THREE, dropped_collector;
    /// H20.
    h20_turns_growth, UNBOUNDED, growth_against_newcomer;
    /// H20.
    h20_turns_shrink, TWO, shrink_against_collector;
    /// A shrink against G3.
    h20_turns_shrink_newcomer, TWO, shrink_against_newcomer_for_two;
    /// `wake_all`.
    h6_turns_wake_all, TWO, wake_all_against_put;
    /// `wake_all` takes the waker.
    h6_turns_wake_all_task, UNBOUNDED, wake_all_against_task;
    /// A waker is exchanged.
    h4_turns_second_poll, UNBOUNDED, second_poll_with_another_waker;
    /// G3 against P5.
    h4_turns_newcomer_against_grant, TWO, newcomer_against_grant;
    /// Two services, for two tasks.
    h4_turns_two_puts_for_tasks, TWO, two_puts_for_tasks, 2;
    /// The same, and one of them finds nobody.
    h4_turns_two_puts_for_a_task, TWO, two_puts_for_tasks, 1;
    /// A place that is given up.
    h6_turns_dropped_task, TWO, dropped_task_against_grant;
    /// Threads and tasks in one list.
    h4_turns_thread_and_tasks, TWO, thread_and_tasks_that_keep;
    /// A close against G3 and P5.
    h6_turns_close, ONE, close_against_waiter;
    /// L4. P4.
    l4_turns_token_given_up_by_puts, ONE, token_is_given_up_by_puts;
    /// L4. The watchdog.
    l4_turns_token_given_up_by_watchdog, ONE, token_is_given_up_by_watchdog;
}
