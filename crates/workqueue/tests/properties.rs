//! One work against the sequential reference model, over random histories.
#![cfg(not(any(loom, shuttle)))]

mod support;
mod work_ops;

use inflight_workqueue::{DelayedWork, Work};
use proptest::prelude::*;
use work_ops::{Op, behaves_like_its_model};

fn delayed_op() -> impl Strategy<Value = Op> {
    let delay = || prop_oneof![2 => Just(0), 3 => 1..5u8];
    prop_oneof![
        12 => op(),
        4 => (0..2u8, delay()).prop_map(|(n, delay)| Op::Queue(n, delay)),
        3 => (0..2u8, delay()).prop_map(|(n, delay)| Op::Modify(n, delay)),
        4 => (1..4u8).prop_map(Op::Advance),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..2u8).prop_map(|n| Op::Queue(n, 0)),
        3 => Just(Op::Plug),
        3 => Just(Op::Unplug),
        4 => Just(Op::Finish),
        2 => Just(Op::Cancel),
        2 => Just(Op::CancelSync),
        1 => Just(Op::Disable),
        1 => Just(Op::DisableSync),
        3 => Just(Op::Enable),
        2 => Just(Op::Flush),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_work_behaves_like_its_model(ops in proptest::collection::vec(op(), 0..60)) {
        behaves_like_its_model::<Work>(&ops);
    }

    #[test]
    fn a_delayed_work_behaves_like_its_model(
        ops in proptest::collection::vec(delayed_op(), 0..60),
    ) {
        behaves_like_its_model::<DelayedWork>(&ops);
    }
}
