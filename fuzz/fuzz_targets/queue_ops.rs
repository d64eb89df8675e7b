//! Any calls on any queue, in every mode, agree with sets and a line of waiters.
#![no_main]

#[path = "../../crates/sbitmap/tests/common/queue_ops.rs"]
mod queue_ops;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|case: (queue_ops::Setup, Vec<queue_ops::Op>)| queue_ops::run(case.0, &case.1));
