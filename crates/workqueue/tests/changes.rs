//! Queues of each kind on random machines, while limits, attributes, masks and freezes change,
//! against a naive oracle: as many items are active as it says, of each node and altogether.
#![cfg(not(any(loom, shuttle)))]

mod change_ops;
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
}
