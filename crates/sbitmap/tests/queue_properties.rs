//! Any sequence of calls on a queue gives what sets and a list would give, in every mode.
#![cfg(not(any(loom, shuttle)))]

#[path = "common/queue_ops.rs"]
mod queue_ops;

use proptest::collection::vec;
use proptest::prelude::*;
use queue_ops::{Mode, Op, Setup};

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::TryGet),
        1 => Just(Op::GetInNoTime),
        2 => (0..8_u8).prop_map(Op::TryGetBatch),
        5 => Just(Op::Begin),
        2 => (0..10_u8).prop_map(Op::BeginMany),
        6 => any::<u8>().prop_map(Op::Poll),
        2 => any::<u8>().prop_map(Op::Drop),
        6 => any::<u8>().prop_map(Op::Put),
        2 => vec(any::<u8>(), 0..6).prop_map(Op::PutBatch),
        1 => any::<u64>().prop_map(Op::PutNonsense),
        1 => any::<u8>().prop_map(Op::Resize),
        1 => Just(Op::WakeAll),
        1 => any::<u16>().prop_map(Op::Advance),
    ]
}

fn setup(mode: Mode) -> impl Strategy<Value = Setup> {
    let depth = prop_oneof![0..6_u8, 0..=Setup::MAX_DEPTH as u8];
    (depth, any::<bool>()).prop_map(move |(depth, checked)| Setup {
        depth,
        mode,
        checked,
    })
}

proptest! {
    // Failures are shown, not kept in a file.
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 128 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Waiters are served in order and told, none is overtaken, no bit is lost.
    #[test]
    fn any_calls_agree_with_a_list_fair(setup in setup(Mode::Fair), ops in vec(op(), 0..120)) {
        queue_ops::run(setup, &ops);
    }

    /// The same for strict order.
    #[test]
    fn any_calls_agree_with_a_list_fifo(setup in setup(Mode::Fifo), ops in vec(op(), 0..120)) {
        queue_ops::run(setup, &ops);
    }

    /// The same on the local engine.
    #[test]
    fn any_calls_agree_with_a_list_fair_local(
        setup in setup(Mode::FairLocal),
        ops in vec(op(), 0..120),
    ) {
        queue_ops::run(setup, &ops);
    }

    /// The same for strict order on the local engine.
    #[test]
    fn any_calls_agree_with_a_list_fifo_local(
        setup in setup(Mode::FifoLocal),
        ops in vec(op(), 0..120),
    ) {
        queue_ops::run(setup, &ops);
    }

    /// In batches a free bit is for whoever comes, and everybody finishes.
    #[test]
    fn any_calls_agree_with_a_set_batched(
        setup in setup(Mode::Batched),
        ops in vec(op(), 0..120),
    ) {
        queue_ops::run(setup, &ops);
    }
}
