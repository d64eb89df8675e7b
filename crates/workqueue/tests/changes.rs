//! Queues of each kind on random machines, while limits, attributes, masks and freezes change,
//! against naive oracles: as many items are active as they say, of each node and altogether, works
//! are in the state of their models, and as many threads stay as should.
#![cfg(not(any(loom, shuttle)))]

mod change_ops;
#[cfg(target_os = "linux")]
mod idle_ops;
mod state_ops;
mod support;

use change_ops::{Kind, Op, Setup, changes_as_the_oracle_says};
use proptest::prelude::*;

fn setup(kind: Kind) -> impl Strategy<Value = Setup> {
    let numbers = (any::<u8>(), any::<u8>(), any::<u8>(), 0..7u8);
    (numbers, any::<bool>()).prop_map(move |((nodes, cores, max, min), traced)| Setup {
        nodes,
        cores,
        kind,
        max,
        min,
        traced,
    })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        10 => any::<u8>().prop_map(Op::Queue),
        6 => any::<u8>().prop_map(Op::End),
        2 => any::<u8>().prop_map(Op::Cancel),
        2 => any::<u8>().prop_map(Op::Max),
        2 => (any::<u8>(), any::<bool>(), any::<u16>()).prop_map(|(s, t, m)| Op::Attrs(s, t, m)),
        1 => any::<u16>().prop_map(Op::Unbound),
        1 => Just(Op::Freeze),
        2 => Just(Op::Thaw),
    ]
}

fn machine() -> impl Strategy<Value = String> {
    (1..5usize, 1..3usize, 1..4usize)
        .prop_map(|(nodes, caches, cores)| format!("numa:{nodes} cache:{caches} core:{cores}"))
}

/// A call of one of the works.
fn call() -> impl Strategy<Value = (u8, state_ops::Op)> {
    use state_ops::Op;
    let call = prop_oneof![
        12 => (any::<u8>(), any::<u8>()).prop_map(|(queue, cpu)| Op::Queue(queue, cpu)),
        6 => Just(Op::Finish),
        2 => Just(Op::Cancel),
        2 => Just(Op::CancelSync),
        1 => Just(Op::Disable),
        1 => Just(Op::DisableSync),
        3 => Just(Op::Enable),
        3 => Just(Op::Flush),
        2 => Just(Op::Freeze),
        3 => Just(Op::Thaw),
        2 => (any::<u8>(), any::<u8>(), any::<bool>(), any::<u16>())
            .prop_map(|(queue, scope, strict, mask)| Op::Attrs(queue, scope, strict, mask)),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(queue, max)| Op::Max(queue, max)),
    ];
    (any::<u8>(), call)
}

#[cfg(target_os = "linux")]
fn load() -> impl Strategy<Value = idle_ops::Op> {
    use idle_ops::Op;
    prop_oneof![
        8 => (any::<u8>(), any::<u8>(), any::<u8>())
            .prop_map(|(queue, cpu, items)| Op::Burst(queue, cpu, items)),
        3 => (0..400u16).prop_map(Op::Pass),
        2 => (any::<u8>(), any::<u8>(), any::<bool>(), any::<u16>())
            .prop_map(|(queue, scope, strict, mask)| Op::Attrs(queue, scope, strict, mask)),
        1 => any::<u16>().prop_map(Op::Unbound),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// P1, P3, P6, P8.
    #[test]
    fn parts_of_nodes(
        setup in setup(Kind::PerNode),
        ops in proptest::collection::vec(op(), 0..50),
    ) {
        changes_as_the_oracle_says(setup, &ops);
    }

    /// P1, P3, P6: with lending the limit is exact.
    #[test]
    fn one_limit_for_all_nodes(
        setup in setup(Kind::Lend),
        ops in proptest::collection::vec(op(), 0..50),
    ) {
        changes_as_the_oracle_says(setup, &ops);
    }

    /// P2, P3.
    #[test]
    fn p2_a_limit_for_each_cpu(
        setup in setup(Kind::Bound),
        ops in proptest::collection::vec(op(), 0..50),
    ) {
        changes_as_the_oracle_says(setup, &ops);
    }

    /// P4.
    #[test]
    fn p4_one_at_a_time_in_order(
        setup in setup(Kind::Ordered),
        ops in proptest::collection::vec(op(), 0..50),
    ) {
        changes_as_the_oracle_says(setup, &ops);
    }

    #[test]
    fn p5_works_behave_like_their_models(
        machine in machine(),
        ops in proptest::collection::vec(call(), 0..60),
    ) {
        state_ops::works_behave_like_their_models(&machine, &ops);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn p7_two_stay_of_each_pool(
        machine in machine(),
        ops in proptest::collection::vec(load(), 0..12),
    ) {
        idle_ops::two_stay_of_each_pool(&machine, &ops);
    }
}
