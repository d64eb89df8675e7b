//! Any calls on any work, plain or delayed, agree with the sequential reference model.
#![no_main]

#[path = "../../crates/workqueue/tests/support/mod.rs"]
mod support;
#[path = "../../crates/workqueue/tests/work_ops/mod.rs"]
mod work_ops;

use inflight_workqueue::{DelayedWork, Work};
use libfuzzer_sys::fuzz_target;
use work_ops::{Op, behaves_like_its_model};

fuzz_target!(|case: (bool, Vec<Op>)| {
    let (delayed, ops) = case;
    if delayed {
        behaves_like_its_model::<DelayedWork>(&ops);
    } else {
        behaves_like_its_model::<Work>(&ops);
    }
});
