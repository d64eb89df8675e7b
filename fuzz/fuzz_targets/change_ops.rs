//! Any changes of limits, attributes, masks and freezes under any load agree with a naive oracle.
#![no_main]

#[path = "../../crates/workqueue/tests/change_ops/mod.rs"]
mod change_ops;
#[path = "../../crates/workqueue/tests/support/mod.rs"]
mod support;

use change_ops::{Op, Setup, changes_as_the_oracle_says};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|case: (Setup, Vec<Op>)| {
    // What is longer finds nothing that is new, and takes a thread for each active item.
    let ops = &case.1[..case.1.len().min(100)];
    changes_as_the_oracle_says(case.0, ops);
});
