//! The bitmap, item by item: `docs/sbitmap-items.md` says what each item is and which tests show
//! it. Here are the items that the other files do not name.
#![cfg(not(any(loom, shuttle)))]

use inflight_sbitmap::{BitMask, BuildError, Hint, PutError, ResizeError, Sbitmap};
use inflight_sync::cpu;
use std::iter::from_fn;

/// On one CPU, with the hint at 0.
fn map(depth: usize) -> Sbitmap {
    in_one_place(Sbitmap::builder(depth).build().unwrap())
}

fn in_one_place(map: Sbitmap) -> Sbitmap {
    cpu::set_current_for_thread(Some(0));
    if let Some(bit) = map.try_get_with(&mut Hint::at(0)) {
        assert_eq!(bit, 0);
        map.put_batch(&[bit]).unwrap();
    }
    map
}

fn hint(map: &Sbitmap) -> u32 {
    map.snapshot().alloc_hint[0]
}

fn take_all(map: &Sbitmap) -> Vec<usize> {
    let mut bits = Vec::new();
    map.try_get_batch(map.depth(), &mut bits);
    assert_eq!(bits.len(), map.depth());
    bits
}

#[test]
fn a5_a_map_of_no_bits_is_an_error() {
    let none = Sbitmap::builder(0).max_depth(8).build();
    assert_eq!(none.unwrap_err(), BuildError::Depth { depth: 0 });
}

#[test]
fn a8_cpus_begin_apart_and_in_turn_at_0() {
    let begin = |turns| {
        let map = Sbitmap::builder(1024).round_robin(turns).build();
        let hints = map.unwrap().snapshot().alloc_hint;
        hints.into_iter().map(|hint| hint as usize)
    };
    let cpus = begin(false).count();
    assert!(begin(false).eq((0..cpus).map(|cpu| 1024 * cpu / cpus)));
    assert!(begin(true).all(|hint| hint == 0));
}

#[test]
fn a9_a_hint_above_a_shrunken_depth_is_folded_back() {
    let map = in_one_place(Sbitmap::builder(64).build().unwrap());
    let bits = take_all(&map);
    map.put_batch(&bits).unwrap(); // the hint is at the last bit of the batch
    assert_eq!(hint(&map), 63);
    map.resize(10).unwrap();
    // 63 % 10 is in word 0.
    assert_eq!(map.try_get(), Some(0));
    assert!((hint(&map) as usize) < 10);
}

#[test]
fn a10_g8_bits_come_in_order_from_a_hint_that_moves_when_it_hits() {
    let map = map(8);
    let mut hint = Hint::at(0);
    let order: Vec<_> = from_fn(|| map.try_get_with(&mut hint)).collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(hint, Hint::at(0), "none was left");
}

/// The hint may rest on the last bit.
#[test]
fn a10_the_last_bit_is_reached_by_the_hint() {
    let map = Sbitmap::builder(8).round_robin(true).build().unwrap();
    let mut hint = Hint::at(0);
    for bit in (0..8).chain(0..8) {
        assert_eq!(hint, Hint::at(bit));
        assert_eq!(map.try_get_with(&mut hint), Some(bit));
        map.put_batch(&[bit]).unwrap();
    }
}

/// A search that had to leave its word takes the hint along; a bit of the hint's word leaves it.
#[test]
fn a10_a_search_that_leaves_its_word_takes_the_hint_along() {
    let map = Sbitmap::builder(64).build().unwrap();
    let word_0 = map.try_get_mask(16).unwrap();
    let mut at = Hint::at(word_0.first);
    let bit = map.try_get_with(&mut at).unwrap();
    assert_ne!(bit / 16, word_0.first / 16);
    assert_eq!(at, Hint::at(bit));
    map.put_batch(&[bit]).unwrap();
    let mut inside = Hint::at(bit + 3);
    assert_eq!(map.try_get_with(&mut inside), Some(bit));
    assert_eq!(inside, Hint::at(bit + 3));
}

#[test]
fn a11_g9_a_put_points_at_its_bit_and_a_batch_at_its_last() {
    let map = map(8);
    let _all = take_all(&map);
    map.put(5).unwrap();
    map.put(2).unwrap();
    assert_eq!(hint(&map), 2);
    assert_eq!(map.try_get(), Some(2));
    assert_eq!(map.try_get(), Some(5));
    map.put_batch(&[1, 7, 4]).unwrap();
    assert_eq!(hint(&map), 4);
    map.put_mask(BitMask {
        first: 2,
        mask: 0b11,
    })
    .unwrap();
    assert_eq!(hint(&map), 2);
}

/// Who allocated a bit may keep the hint, and whoever frees it points there.
#[test]
fn a11_a12_a_callers_hint_is_pointed_at_the_bit() {
    let map = map(64);
    let mut hint = Hint::at(40);
    let bit = map.try_get_with(&mut hint).unwrap();
    let own = self::hint(&map);
    map.put_with(bit, &mut hint).unwrap();
    assert_eq!(hint, Hint::at(bit));
    assert_eq!(self::hint(&map), own, "the map's own hint is not moved");
    assert!(matches!(
        map.put_with(bit, &mut hint),
        Err(PutError::NotAllocated { .. })
    ));
}

#[test]
fn a13_the_place_within_the_word_does_not_matter() {
    let map = map(64);
    assert_eq!(map.try_get_with(&mut Hint::at(23)), Some(16));
}

#[test]
fn a14_g10_in_turn_the_place_matters_and_what_is_free_behind_waits() {
    let map = Sbitmap::builder(8).round_robin(true).build().unwrap();
    let mut hint = Hint::at(0);
    let get = |hint: &mut Hint| map.try_get_with(hint);
    assert_eq!(
        [0, 1, 2].map(|_| get(&mut hint)),
        [Some(0), Some(1), Some(2)]
    );
    map.put(0).unwrap();
    let rest: Vec<_> = (0..6).map(|_| get(&mut hint).unwrap()).collect();
    assert_eq!(rest, [3, 4, 5, 6, 7, 0]);
}

#[test]
fn a16_a23_a24_g11_parked_bits_are_free_and_come_back_when_a_word_is_full() {
    let map = in_one_place(Sbitmap::builder(6).shift(3).build().unwrap());
    let _all = take_all(&map);
    map.put(0).unwrap();
    let parked = map.snapshot();
    assert_eq!(
        (parked.busy, parked.cleared, parked.words),
        (5, 1, vec![0b11_1110])
    );
    assert_eq!(map.iter_set(0).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    assert_eq!(map.try_get(), Some(0));
    assert_eq!(map.snapshot().cleared, 0);
    // Up to four are taken where they are, one by one.
    [3, 1, 2, 5].iter().for_each(|&bit| map.put(bit).unwrap());
    for (bit, left) in [(1, 3), (2, 2), (3, 1)] {
        assert_eq!((map.try_get(), map.snapshot().cleared), (Some(bit), left));
    }
    // More are moved back together.
    [3, 1, 2, 0].iter().for_each(|&bit| map.put(bit).unwrap());
    assert_eq!(map.snapshot().cleared, 5);
    assert_eq!(map.try_get(), Some(0));
    assert_eq!(map.snapshot().cleared, 0);
}

/// Also bits the limit does not open are moved back.
#[test]
fn a21_a_limited_get_moves_back_all_parked_bits() {
    let map = in_one_place(Sbitmap::builder(16).shift(4).build().unwrap());
    let _all = take_all(&map);
    let parked = [1, 3, 5, 6, 7, 9];
    parked.iter().for_each(|&bit| map.put(bit).unwrap());
    assert_eq!(map.try_get_shallow(1), None);
    assert_eq!(map.snapshot().cleared, 6, "none is open to this limit");
    assert_eq!(map.try_get_shallow(8), Some(1));
    assert_eq!(map.snapshot().cleared, 0);
    map.put(0).unwrap();
    let open: Vec<_> = std::iter::from_fn(|| map.try_get_shallow(8)).collect();
    assert_eq!(open, [3, 5, 6, 7, 0], "the last one was parked");
    assert_eq!(map.try_get(), Some(9));
}

#[test]
fn a29_a_batch_put_does_not_park() {
    let map = map(64);
    let bits = take_all(&map);
    map.put_batch(&bits[..40]).unwrap();
    assert_eq!(map.snapshot().cleared, 0);
    assert_eq!(map.weight(), 24);
}

#[test]
fn a39_g12_a_range_begins_at_the_first_free_bit_and_may_have_holes() {
    let map = in_one_place(Sbitmap::builder(64).shift(6).build().unwrap());
    let all = take_all(&map);
    map.put_batch(&all).unwrap();
    let mut bits = Vec::new();
    assert_eq!(map.try_get_batch(6, &mut bits), 6);
    map.put_batch(&[3, 4]).unwrap();
    let first = BitMask {
        first: 3,
        mask: 0b1011,
    };
    assert_eq!(map.try_get_mask(4), Some(first));
}

/// Where the first free bit is near the end of each word no range is found, though many are free.
#[test]
fn a40_no_range_although_bits_are_free() {
    let map = in_one_place(Sbitmap::builder(8).shift(3).build().unwrap());
    let _all = take_all(&map);
    map.put_batch(&[5, 7]).unwrap();
    assert_eq!(map.try_get_mask(4), None);
    assert_eq!(
        map.try_get_mask(3),
        Some(BitMask {
            first: 5,
            mask: 0b101
        })
    );
}

#[test]
fn a41_a_word_with_one_free_bit_gives_it() {
    let map = in_one_place(Sbitmap::builder(8).shift(3).build().unwrap());
    let _all = take_all(&map);
    map.put_batch(&[7]).unwrap();
    assert_eq!(map.try_get_mask(1), Some(BitMask { first: 7, mask: 1 }));
}

#[test]
fn a46_bits_are_set_and_cleared_by_number() {
    let pending = map(100);
    assert_eq!(
        [70, 70, 3].map(|bit| pending.set(bit)),
        [Ok(true), Ok(false), Ok(true)]
    );
    assert!(pending.is_set(70) && pending.is_any_set());
    assert_eq!(pending.iter_set(50).collect::<Vec<_>>(), [70, 3]);
    assert_eq!(pending.clear(70), Ok(true));
    assert_eq!(pending.clear(70), Ok(false));
    assert_eq!(pending.weight(), 1);
    assert!(matches!(pending.set(100), Err(PutError::OutOfRange { .. })));
    assert!(matches!(
        pending.clear(100),
        Err(PutError::OutOfRange { .. })
    ));
}

#[test]
fn a47_the_text_of_a_map() {
    let map = in_one_place(Sbitmap::builder(200).shift(4).build().unwrap());
    let mut bits = Vec::new();
    map.try_get_batch(200, &mut bits);
    bits.sort_unstable();
    map.put_batch(&bits[1..8]).unwrap();
    map.put(9).unwrap(); // parked shows free
    let text = map.snapshot().to_string();
    assert!(text.starts_with("depth=200\nbusy=192\ncleared=1\nbits_per_word=16\nmap_nr=13\n"));
    assert_eq!(
        map.snapshot().hex_dump(),
        "00000000: 01fd ffff ffff ffff ffff ffff ffff ffff\n\
         00000010: ffff ffff ffff ffff ff\n"
    );
}

#[test]
fn a48_a50_a_shrink_moves_parked_bits_back() {
    let map = in_one_place(Sbitmap::builder(64).build().unwrap());
    let bits = take_all(&map);
    for bit in &bits[..60] {
        map.put(*bit).unwrap();
    }
    assert!(map.snapshot().cleared > 0);
    map.resize(2).unwrap();
    assert_eq!(map.snapshot().cleared, 0);
    assert_eq!(map.weight(), 4);
    assert_eq!(map.snapshot().map_nr, 1);
}

/// H21. Bits above the new depth stay with their owners, count, and vanish when they are put.
#[test]
fn h21_a49_bits_above_a_shrunken_depth() {
    let map = in_one_place(Sbitmap::builder(8).build().unwrap());
    let _all = take_all(&map);
    map.put(7).unwrap();
    map.resize(4).unwrap();
    let before = hint(&map);
    assert_eq!((map.depth(), map.weight()), (4, 7));
    assert_eq!(map.iter_set(5).collect::<Vec<_>>(), [5, 6, 0, 1, 2, 3, 4]);
    assert_eq!(map.snapshot().hex_dump(), "00000000: 7f\n");
    map.put(6).unwrap();
    assert_eq!(hint(&map), before, "no search shall begin there");
    assert!(matches!(map.put(6), Err(PutError::NotAllocated { .. })));
    assert!(map.is_set(5) && !map.is_set(6));
    assert_eq!((map.try_get(), map.weight()), (None, 6));
    map.put(1).unwrap();
    assert_eq!(map.try_get(), Some(1));
    map.resize(8).unwrap();
    let mut rest: Vec<_> = from_fn(|| map.try_get()).collect();
    rest.sort_unstable();
    assert_eq!(rest, [6, 7], "each once");
}

#[test]
fn a51_what_cannot_be_resized_is_said() {
    let map = Sbitmap::builder(8).max_depth(16).build().unwrap();
    assert!(matches!(map.resize(0), Err(ResizeError::Depth { .. })));
    assert!(matches!(map.resize(17), Err(ResizeError::Depth { .. })));
    assert_eq!(map.depth(), 8);
    map.resize(16).unwrap();
    assert_eq!(take_all(&map).len(), 16);
    let small = Sbitmap::builder(8).max_depth(7).build();
    assert!(matches!(small.unwrap_err(), BuildError::MaxDepth { .. }));
    let large = Sbitmap::builder(8).max_depth(usize::MAX).build();
    assert!(matches!(
        large.unwrap_err(),
        BuildError::Depth { .. } | BuildError::MaxDepth { .. }
    ));
}

/// In turn, and by limits, the depth of the moment counts.
#[test]
fn a51_turns_and_limits_follow_the_depth() {
    let map = Sbitmap::builder(4)
        .max_depth(64)
        .shift(2)
        .round_robin(true)
        .build()
        .unwrap();
    map.resize(40).unwrap();
    assert_eq!(from_fn(|| map.try_get_shallow(10)).count(), 10);
    map.resize(6).unwrap();
    let held: Vec<_> = map.iter_set(0).collect();
    map.put_batch(&held).unwrap();
    let mut hint = Hint::at(0);
    let turns = (0..8).map(|_| {
        let bit = map.try_get_with(&mut hint).unwrap();
        map.put(bit).unwrap();
        bit
    });
    let turns: Vec<_> = turns.collect();
    assert_eq!(turns, [0, 1, 2, 3, 4, 5, 0, 1]);
}
