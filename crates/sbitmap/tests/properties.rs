//! Any sequence of calls gives what a set of numbers would give.
#![cfg(not(any(loom, shuttle)))]

#[path = "common/ops.rs"]
mod ops;

use inflight_sbitmap::Sbitmap;
use ops::{Check, MapShape, Op, Pick};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn geometry() -> impl Strategy<Value = MapShape> {
    // Small maps more often: that is where words are short, single or missing.
    let depth = prop_oneof![1..4_u16, 4..40_u16, 1..=MapShape::MAX_DEPTH as u16];
    let check = prop_oneof![
        Just(Check::Default),
        Just(Check::Checked),
        Just(Check::Trusted)
    ];
    let growth = prop_oneof![Just(0_u16), 0..40_u16, 0..=MapShape::MAX_DEPTH as u16];
    (depth, growth, option::of(0..=6_u8), any::<bool>(), check).prop_map(
        |(depth, growth, shift, round_robin, check)| MapShape {
            depth,
            growth,
            shift,
            round_robin,
            check,
        },
    )
}

fn pick() -> impl Strategy<Value = Pick> {
    prop_oneof![
        8 => any::<u16>().prop_map(Pick::Held),
        2 => any::<u16>().prop_map(Pick::Near),
        1 => any::<u64>().prop_map(Pick::Any),
        1 => Just(Pick::Any(u64::MAX)),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let mask = prop_oneof![any::<u64>(), 0..16_u64, Just(u64::MAX)];
    prop_oneof![
        1 => (0..5_u8).prop_map(Op::MoveTo),
        6 => Just(Op::Get),
        4 => option::of(0..320_u16).prop_map(Op::GetWith),
        3 => (0..320_u16).prop_map(Op::Shallow),
        2 => (0..100_u16).prop_map(Op::Batch),
        3 => (0..80_u8).prop_map(Op::Mask),
        6 => pick().prop_map(Op::Put),
        3 => vec(pick(), 0..12).prop_map(Op::PutBatch),
        3 => (pick(), mask).prop_map(|(first, mask)| Op::PutMask(first, mask)),
        1 => prop_oneof![0..40_u16, 0..620_u16].prop_map(Op::Resize),
        1 => (0..320_u16, 0..20_u16).prop_map(|(start, stop)| Op::Visit(start, stop)),
        1 => Just(Op::Snapshot),
    ]
}

/// Failures are shown, not kept in a file.
fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases: if cfg!(miri) { 3 } else { cases },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(384))]

    /// No bit twice, no free bit withheld, errors for exactly the bad puts, nothing lost, whatever
    /// the depth becomes meanwhile. A13-A23, A31, A39-A40, A42-A45, A48-A51.
    #[test]
    fn any_calls_agree_with_a_set(geometry in geometry(), ops in vec(op(), 0..120)) {
        ops::run(&geometry, &ops);
    }

    /// A18, A20. Users of a limit alone get exactly that many bits, and the rest stays for others.
    #[test]
    fn a_limit_is_exact(geometry in geometry(), limit in 0..320_usize) {
        let depth = usize::from(geometry.depth);
        let map = Sbitmap::builder(depth).round_robin(geometry.round_robin);
        let map = match geometry.shift {
            Some(shift) => map.shift(shift.into()),
            None => map,
        };
        let map = map.build().unwrap();
        let got = std::iter::from_fn(|| map.try_get_shallow(limit)).count();
        prop_assert_eq!(got, limit.min(depth));
        let mut rest = Vec::new();
        prop_assert_eq!(map.try_get_batch(depth, &mut rest), depth - got);
    }
}
