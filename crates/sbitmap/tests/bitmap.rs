//! What users of the bitmap rely on, call by call.
//!
//! Items (`docs/sbitmap-items.md`): A1, A2, A5, A10-A14, A18, A20, A30, A31, A39, A40, A42,
//! A45, A47.
#![cfg(not(any(loom, shuttle)))]

use inflight_sbitmap::{BitMask, BuildError, Hint, MAX_DEPTH, PutError, Sbitmap, SbitmapBuilder};
use inflight_sync::cpu;
use std::iter::from_fn;

fn map(depth: usize) -> Sbitmap {
    Sbitmap::builder(depth).build().unwrap()
}

/// The calling thread stays on one CPU, so the map's own hints are predictable.
fn stay_on_cpu_0() {
    cpu::set_current_for_thread(Some(0));
}

fn all_of(map: &Sbitmap) -> Vec<usize> {
    let mut bits = Vec::new();
    assert_eq!(map.try_get_batch(map.depth(), &mut bits), map.depth());
    bits.sort_unstable();
    assert!(bits.iter().copied().eq(0..map.depth()));
    bits
}

fn set_bits(map: &Sbitmap, start: usize) -> Vec<usize> {
    let mut seen = Vec::new();
    map.for_each_set(start, |bit| {
        seen.push(bit);
        true
    });
    seen
}

/// Three builders that differ in how puts are checked.
fn checks(depth: usize) -> [SbitmapBuilder; 3] {
    [
        Sbitmap::builder(depth),
        Sbitmap::builder(depth).checked(true),
        Sbitmap::builder(depth).trusted(true),
    ]
}

#[test]
fn small_maps_spread_over_four_words() {
    let bits_and_words = [
        (1, 64, 1),
        (3, 64, 1),
        (4, 1, 4),
        (8, 2, 4),
        (10, 2, 5),
        (16, 4, 4),
        (31, 4, 8),
        (32, 8, 4),
        (64, 16, 4),
        (127, 16, 8),
        (128, 32, 4),
        (256, 64, 4),
        (1023, 64, 16),
        (1024, 64, 16),
        (2048, 64, 32),
        (10_240, 64, 160),
    ];
    for (depth, bits, words) in bits_and_words {
        let map = map(depth);
        assert_eq!(map.bits_per_word(), bits, "depth {depth}");
        assert_eq!(map.snapshot().words.len(), words, "depth {depth}");
        let text =
            format!("depth={depth}\nbusy=0\ncleared=0\nbits_per_word={bits}\nmap_nr={words}\n");
        assert!(
            map.snapshot().to_string().starts_with(&text),
            "{}",
            map.snapshot()
        );
    }
}

#[test]
fn a_chosen_shift_is_used() {
    for shift in 0..=6 {
        let map = Sbitmap::builder(100).shift(shift).build().unwrap();
        assert_eq!(map.bits_per_word(), 1 << shift);
        assert_eq!(map.snapshot().words.len(), 100_usize.div_ceil(1 << shift));
        all_of(&map);
    }
}

#[test]
fn what_cannot_be_built_is_said() {
    for shift in [7, 63, 64, u32::MAX] {
        let error = Sbitmap::builder(64).shift(shift).build().unwrap_err();
        assert!(matches!(error, BuildError::Shift { .. }));
    }
    for depth in [MAX_DEPTH + 1, usize::MAX] {
        let error = Sbitmap::builder(depth).build().unwrap_err();
        assert_eq!(error, BuildError::Depth { depth });
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn an_empty_map_cannot_be_built() {
    for builder in checks(0) {
        assert_eq!(builder.build().unwrap_err(), BuildError::Depth { depth: 0 });
    }
    let error = Sbitmap::builder(8).max_depth(7).build().unwrap_err();
    let expected = BuildError::MaxDepth {
        max_depth: 7,
        depth: 8,
    };
    assert_eq!(error, expected);
    assert!(error.to_string().contains('7') && error.to_string().contains('8'));
}

#[test]
fn the_largest_map_works_at_both_ends() {
    // Under an interpreter a part must do.
    let depth = if cfg!(miri) { 1 << 12 } else { MAX_DEPTH };
    let map = Sbitmap::builder(depth).trusted(true).build().unwrap();
    let last = depth - 1;
    assert_eq!(map.try_get_with(&mut Hint::at(last)), Some(last - 63));
    assert_eq!(map.try_get_with(&mut Hint::at(0)), Some(0));
    assert_eq!(map.weight(), 2);
    assert_eq!(set_bits(&map, 1), [last - 63, 0]);
    map.put_batch(&[0, last - 63]).unwrap();
    assert!(matches!(map.put(depth), Err(PutError::OutOfRange { .. })));
    assert!(!map.is_any_set());
}

#[test]
fn every_bit_is_handed_out_once() {
    for depth in 1..=70 {
        let map = map(depth);
        let mut bits: Vec<_> = from_fn(|| map.try_get()).collect();
        bits.sort_unstable();
        assert!(bits.into_iter().eq(0..depth));
        assert_eq!(map.weight(), depth);
    }
}

#[test]
fn a_hint_walks_through_the_map() {
    let (map, mut hint) = (map(8), Hint::at(0));
    let order: Vec<_> = from_fn(|| map.try_get_with(&mut hint)).collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(map.try_get_with(&mut hint), None);
}

#[test]
fn a_hint_wraps_round_the_map() {
    let (map, mut hint) = (map(8), Hint::at(6));
    let order: Vec<_> = from_fn(|| map.try_get_with(&mut hint)).collect();
    assert_eq!(order, [6, 7, 0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_hint_beyond_the_map_begins_at_0() {
    for beyond in [8, 9, 1 << 40, usize::MAX] {
        assert_eq!(
            map(8).try_get_with(&mut Hint::at(beyond)),
            Some(0),
            "hint {beyond}"
        );
    }
}

#[test]
fn the_bit_last_put_is_found_first() {
    stay_on_cpu_0();
    let map = map(8);
    all_of(&map);
    map.put(5).unwrap();
    map.put(2).unwrap();
    assert_eq!(map.try_get(), Some(2));
    assert_eq!(map.try_get(), Some(5));
    assert_eq!(map.try_get(), None);
}

#[test]
fn each_cpu_has_its_own_hint() {
    let map = map(256);
    all_of(&map);
    // More CPUs than there are: numbers may be sparse.
    for cpu in 0..4 * cpu::possible() + 3 {
        cpu::set_current_for_thread(Some(cpu));
        map.put(cpu % 256).unwrap();
        assert_eq!(map.try_get(), Some(cpu % 256), "CPU {cpu}");
    }
    for far in [usize::MAX, 1 << 32] {
        cpu::set_current_for_thread(Some(far));
        assert_eq!(map.try_get(), None);
    }
}

#[test]
fn parked_bits_show_free() {
    stay_on_cpu_0();
    let map = map(4);
    all_of(&map);
    map.put(0).unwrap();
    let parked = map.snapshot();
    assert_eq!((map.weight(), parked.busy, parked.cleared), (3, 3, 1));
    assert_eq!(parked.words, [0, 1, 1, 1]);
    assert_eq!(parked.hex_dump(), "00000000: 0e\n");
    assert!(!map.is_set(0) && map.is_set(1));
    assert_eq!(set_bits(&map, 0), [1, 2, 3]);
    assert_eq!(map.try_get(), Some(0));
    assert_eq!(map.snapshot().cleared, 0);
}

#[test]
fn turns_go_on_past_what_is_free() {
    let map = Sbitmap::builder(8).round_robin(true).build().unwrap();
    let mut hint = Hint::at(0);
    let mut next = || map.try_get_with(&mut hint);
    assert_eq!([next(), next(), next()], [Some(0), Some(1), Some(2)]);
    map.put(0).unwrap();
    let order: Vec<_> = (0..5).map(|_| next().unwrap()).collect();
    assert_eq!(
        order,
        [3, 4, 5, 6, 7],
        "0 is free and has to wait for its turn"
    );
    assert_eq!(next(), Some(0));
    assert_eq!(next(), None);
}

#[test]
fn turns_begin_at_0_on_every_cpu() {
    let map = Sbitmap::builder(64).round_robin(true).build().unwrap();
    for cpu in 0..cpu::possible() {
        cpu::set_current_for_thread(Some(cpu));
        assert_eq!(map.try_get(), Some(0));
        assert_eq!(map.try_get(), Some(1));
        // A batch is not parked, so the next CPU's search sees the bits as free.
        map.put_batch(&[0, 1]).unwrap();
    }
}

/// A search that begins in the middle of a word looks at the bits before its start last.
#[test]
fn in_turn_the_bits_before_the_start_come_last() {
    for shift in [2, 3, 6] {
        let depth = 1 << shift;
        let map = Sbitmap::builder(depth)
            .shift(shift)
            .round_robin(true)
            .build()
            .unwrap();
        all_of(&map);
        map.put_batch(&[0, depth - 1]).unwrap();
        let mut hint = Hint::at(depth - 1);
        assert_eq!(map.try_get_with(&mut hint), Some(depth - 1));
        let mut hint = Hint::at(depth - 1);
        assert_eq!(map.try_get_with(&mut hint), Some(0));
        assert_eq!(map.try_get_with(&mut hint), None);
    }
}

/// A batch takes all there is, also where the turn stands behind it.
#[test]
fn in_turn_a_batch_takes_all_there_is() {
    stay_on_cpu_0();
    let map = Sbitmap::builder(8)
        .shift(3)
        .round_robin(true)
        .build()
        .unwrap();
    (0..5).for_each(|bit| assert_eq!(map.try_get(), Some(bit)));
    let mut elsewhere = Hint::at(5);
    (5..8).for_each(|bit| assert_eq!(map.try_get_with(&mut elsewhere), Some(bit)));
    map.put(0).unwrap();
    // The turn is at 5, and only 0 is free.
    assert_eq!(map.try_get_batch(1, &mut Vec::new()), 1);
}

#[test]
fn a_limit_is_spread_over_the_words() {
    let spread = |depth, limit| {
        let map = map(depth);
        let bits: Vec<_> = from_fn(|| map.try_get_shallow(limit)).collect();
        assert_eq!(bits.len(), map.weight());
        map.snapshot()
            .words
            .iter()
            .map(|w| w.count_ones())
            .collect::<Vec<_>>()
    };
    assert_eq!(spread(64, 0), [0, 0, 0, 0]);
    assert_eq!(spread(64, 1), [1, 0, 0, 0]);
    assert_eq!(spread(64, 6), [2, 2, 1, 1]);
    assert_eq!(spread(64, 48), [12, 12, 12, 12]);
    assert_eq!(spread(64, 63), [16, 16, 16, 15]);
    assert_eq!(spread(64, 64), [16, 16, 16, 16]);
    assert_eq!(spread(19, 10), [3, 2, 2, 2, 1]);
    assert_eq!(spread(64, usize::MAX), [16, 16, 16, 16]);
}

#[test]
fn a_limit_is_exact_for_every_small_map_and_some_large_ones() {
    let large: &[usize] = if cfg!(miri) { &[] } else { &[300, 511] };
    let small = 1..=if cfg!(miri) { 9 } else { 70 };
    for depth in small.chain(large.iter().copied()) {
        let map = map(depth);
        for limit in 0..=depth + 1 {
            let bits: Vec<_> = from_fn(|| map.try_get_shallow(limit)).collect();
            assert_eq!(bits.len(), limit.min(depth), "depth {depth} limit {limit}");
            map.put_batch(&bits).unwrap();
        }
    }
}

#[test]
fn what_a_limit_keeps_free_is_there_for_others() {
    for round_robin in [false, true] {
        let map = Sbitmap::builder(64)
            .round_robin(round_robin)
            .build()
            .unwrap();
        assert_eq!(from_fn(|| map.try_get_shallow(16)).count(), 16);
        assert_eq!(map.try_get_shallow(16), None);
        assert_eq!(from_fn(|| map.try_get()).count(), 48);
    }
}

#[test]
fn a_limited_user_gets_parked_bits_back() {
    let map = map(64);
    let bits: Vec<_> = from_fn(|| map.try_get_shallow(3)).collect();
    map.put(bits[1]).unwrap();
    assert_eq!(map.try_get_shallow(3), Some(bits[1]));
    assert_eq!(map.try_get_shallow(3), None);
}

#[test]
fn a_double_put_is_an_error() {
    for (builder, parked) in checks(8).into_iter().take(2).zip([true, false]) {
        let map = builder.build().unwrap();
        assert!(
            matches!(map.put(3), Err(PutError::NotAllocated { .. })),
            "never handed out"
        );
        all_of(&map);
        map.put(3).unwrap();
        assert!(
            matches!(map.put(3), Err(PutError::NotAllocated { .. })),
            "parked"
        );
        if parked {
            map.put(2).unwrap();
        }
        // Moves what is parked back; 3 stays free.
        while map.try_get().is_some_and(|bit| bit != 3) {}
        map.put(3).unwrap();
        map.put_mask(BitMask { first: 3, mask: 1 }).unwrap_err();
        map.put_batch(&[3]).unwrap_err();
        assert!(matches!(map.put(3), Err(PutError::NotAllocated { .. })));
        assert_eq!(map.weight(), 7, "the failed puts changed nothing");
    }
}

#[test]
fn a_number_that_is_no_bit_is_an_error() {
    for builder in checks(10) {
        let map = builder.build().unwrap();
        all_of(&map);
        // 10 and 11 would fit in the map's words of two bits each, 12 would not.
        for bit in [10, 11, 12, 64, 1 << 32, usize::MAX] {
            assert!(
                matches!(map.put(bit), Err(PutError::OutOfRange { .. })),
                "{bit}"
            );
            assert!(
                matches!(map.put_batch(&[bit]), Err(PutError::OutOfRange { .. })),
                "{bit}"
            );
            let mask = BitMask {
                first: bit,
                mask: 1,
            };
            assert!(
                matches!(map.put_mask(mask), Err(PutError::OutOfRange { .. })),
                "{bit}"
            );
            assert!(!map.is_set(bit));
        }
        assert_eq!(map.weight(), 10);
    }
    assert_ne!(
        PutError::OutOfRange { bit: 9 }.to_string(),
        PutError::NotAllocated { bit: 9 }.to_string()
    );
}

#[test]
fn a_batch_reports_the_first_bad_bit_and_returns_the_good_ones() {
    for builder in checks(16).into_iter().take(2) {
        let map = builder.build().unwrap();
        all_of(&map);
        assert!(
            matches!(map.put_batch(&[1, 1]), Err(PutError::NotAllocated { .. })),
            "twice in one batch"
        );
        assert!(matches!(
            map.put_batch(&[2, 1, 99, 3]),
            Err(PutError::NotAllocated { .. })
        ));
        assert!(matches!(
            map.put_batch(&[99, 4, 4]),
            Err(PutError::OutOfRange { .. })
        ));
        assert_eq!(set_bits(&map, 0), [vec![0], (5..16).collect()].concat());
        assert_eq!(
            map.put_batch(&[15, 0, 9, 5, 14]),
            Ok(()),
            "any order is legal"
        );
        assert_eq!(map.weight(), 7);
    }
}

#[test]
fn visits_wrap_and_stop_early() {
    let map = map(16);
    all_of(&map);
    map.put_batch(&[0, 2, 3, 4, 6, 7, 8, 9, 10, 12, 13, 14])
        .unwrap();
    assert_eq!(set_bits(&map, 0), [1, 5, 11, 15]);
    assert_eq!(set_bits(&map, 5), [5, 11, 15, 1]);
    assert_eq!(
        set_bits(&map, 6),
        [11, 15, 1, 5],
        "the first word's rest comes last"
    );
    assert_eq!(set_bits(&map, 15), [15, 1, 5, 11]);
    assert_eq!(set_bits(&map, 16), [1, 5, 11, 15], "beyond the map is 0");
    assert_eq!(set_bits(&map, usize::MAX), [1, 5, 11, 15]);
    for stop in 1..4 {
        let mut seen = Vec::new();
        map.for_each_set(11, |bit| {
            seen.push(bit);
            seen.len() < stop
        });
        assert_eq!(seen, [11, 15, 1, 5][..stop]);
    }
}

/// The visitor may use the map.
#[test]
fn a_visitor_may_put_what_it_sees() {
    let map = map(64);
    all_of(&map);
    map.for_each_set(20, |bit| map.put(bit).is_ok());
    assert_eq!(map.weight(), 0);
}

#[test]
fn the_dump_packs_bits_densely() {
    // Words of 2 bits, 4 of them in a byte.
    let map10 = map(10);
    all_of(&map10);
    map10.put_batch(&[1, 4, 9]).unwrap();
    assert_eq!(map10.snapshot().hex_dump(), "00000000: ed01\n");

    let map = map(8 * 35);
    let full = "ffff ".repeat(8);
    all_of(&map);
    map.put_batch(&[0, 8 * 16]).unwrap();
    let lines = [
        format!("00000000: fe{}\n", &full.trim_end()[2..]),
        format!("00000010: fe{}\n", &full.trim_end()[2..]),
        "00000020: ffff ff\n".to_owned(),
    ];
    assert_eq!(map.snapshot().hex_dump(), lines.concat());
}

#[test]
fn hints_are_shown_for_every_cpu() {
    stay_on_cpu_0();
    let map = map(64);
    all_of(&map);
    map.put(33).unwrap();
    let hints = map.snapshot().alloc_hint;
    assert!(hints.len() >= cpu::possible());
    assert_eq!(hints[0], 33);
    assert!(hints.iter().all(|&hint| hint < 64));
}

#[test]
fn everything_is_sharable_and_shows_itself() {
    fn check<T: Send + Sync + std::fmt::Debug + 'static>(value: T) {
        assert!(!format!("{value:?}").is_empty());
    }
    check(Sbitmap::builder(4));
    check(map(4));
    check(map(4).snapshot());
    check(Hint::at(1));
    check(BitMask { first: 0, mask: 1 });
    check(Box::<dyn std::error::Error + Send + Sync>::from(
        BuildError::Depth { depth: 0 },
    ));
    check(Box::<dyn std::error::Error + Send + Sync>::from(
        PutError::OutOfRange { bit: 9 },
    ));
}
