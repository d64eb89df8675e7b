//! Any calls on any bitmap agree with a set of numbers.
#![no_main]

#[path = "../../crates/sbitmap/tests/common/ops.rs"]
mod ops;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|case: (ops::MapShape, Vec<ops::Op>)| ops::run(&case.0, &case.1));
