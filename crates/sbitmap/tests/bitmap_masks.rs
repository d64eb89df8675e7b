//! Several bits of one word, taken and put together.
#![cfg(not(any(loom, shuttle)))]

use inflight_sbitmap::{BitMask, PutError, Sbitmap};
use std::iter::from_fn;

fn map(depth: usize) -> Sbitmap {
    Sbitmap::builder(depth).build().unwrap()
}

fn all_of(map: &Sbitmap) -> Vec<usize> {
    let mut bits = Vec::new();
    assert_eq!(map.try_get_batch(map.depth(), &mut bits), map.depth());
    bits.sort_unstable();
    assert!(bits.iter().copied().eq(0..map.depth()));
    bits
}

#[test]
fn a_mask_has_holes_where_bits_are_taken() {
    let map = map(64);
    all_of(&map);
    // All is taken but, in the first word, 3, 4 and 6 to 15.
    let free: Vec<_> = [3, 4].into_iter().chain(6..16).collect();
    map.put_batch(&free).unwrap();
    let got = map.try_get_mask(4).unwrap();
    assert_eq!(
        got,
        BitMask {
            first: 3,
            mask: 0b1011
        }
    );
    assert_eq!(got.iter().collect::<Vec<_>>(), [3, 4, 6]);
    assert_eq!(got.count(), 3);
    map.put_mask(got).unwrap();
    assert_eq!(map.weight(), 64 - free.len());
}

#[test]
fn a_mask_sees_parked_bits() {
    let map = map(64);
    all_of(&map);
    (16..32).for_each(|bit| map.put(bit).unwrap());
    assert_eq!(map.snapshot().cleared, 16);
    let whole = BitMask {
        first: 16,
        mask: 0xffff,
    };
    assert_eq!(map.try_get_mask(64), Some(whole));
}

#[test]
fn a_mask_may_be_a_whole_word() {
    let map = Sbitmap::builder(128).shift(6).build().unwrap();
    let masks: Vec<_> = from_fn(|| map.try_get_mask(64)).collect();
    assert_eq!(masks.len(), 2);
    assert!(masks.iter().all(|m| m.mask == u64::MAX && m.count() == 64));
    masks.into_iter().for_each(|m| map.put_mask(m).unwrap());
    assert!(!map.is_any_set());
}

#[test]
fn a_mask_does_not_reach_past_the_map() {
    // One word with 3 bits: a range of 4 has no room.
    let map = map(3);
    assert_eq!(map.try_get_mask(4), None);
    assert_eq!(map.try_get_mask(3).map(|m| m.mask), Some(0b111));
    assert_eq!(map.try_get_mask(1), None);
}

#[test]
fn no_masks_in_turn_and_none_of_no_bits() {
    let in_turn = Sbitmap::builder(64).round_robin(true).build().unwrap();
    assert_eq!(in_turn.try_get_mask(4), None);
    assert_eq!(map(64).try_get_mask(0), None);
    assert_eq!(map(64).try_get_batch(0, &mut Vec::new()), 0);
}

#[test]
fn a_mask_put_is_inside_one_word_or_refused() {
    let map = map(64);
    all_of(&map);
    for (first, mask) in [
        (15, 0b11),
        (0, 1 << 16),
        (1, 1 << 15),
        (63, 0b10),
        (8, u64::MAX),
    ] {
        let bits = BitMask { first, mask };
        let error = match first {
            63 => PutError::OutOfRange { bit: 64 },
            _ => PutError::BeyondWord { bit: 16 },
        };
        assert_eq!(map.put_mask(bits), Err(error), "{bits:?}");
    }
    assert_eq!(map.weight(), 64, "nothing was given back");
    let bits = BitMask {
        first: 8,
        mask: 0b1010_0001,
    };
    assert_eq!(map.put_mask(bits), Ok(()));
    let overlapping = BitMask {
        first: 8,
        mask: 0b1011_0001,
    };
    assert!(matches!(
        map.put_mask(overlapping),
        Err(PutError::NotAllocated { .. })
    ));
    assert!(!map.is_set(12), "the good bit was given back");
    assert_eq!(map.weight(), 60);
}
