use std::collections::BTreeSet;

use inflight_topology::{CpuSet, ParseCpuSetError};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

fn list(text: &str) -> Result<Vec<usize>, ParseCpuSetError> {
    text.parse::<CpuSet>().map(|set| set.iter().collect())
}

#[test]
fn lists_as_sysfs_writes_them() {
    assert_eq!(list("\n"), Ok(vec![]));
    assert_eq!(list("0\n"), Ok(vec![0]));
    assert_eq!(list("0-2,5,7-8\n"), Ok(vec![0, 1, 2, 5, 7, 8]));
    assert_eq!(list("  1 , 3-4 \t"), Ok(vec![1, 3, 4]));
    assert_eq!(list("4,2,4,0-2"), Ok(vec![0, 1, 2, 4]));
    assert_eq!(list("65535"), Ok(vec![65535]));
}

#[test]
fn groups_take_the_first_of_every_few() {
    assert_eq!(list("0-9:2/4"), Ok(vec![0, 1, 4, 5, 8, 9]));
    assert_eq!(list("3-9:1/3,20"), Ok(vec![3, 6, 9, 20]));
    assert_eq!(list("0-4:4/4"), Ok(vec![0, 1, 2, 3, 4]));
    assert_eq!(list("0-4:1/99999"), Ok(vec![0]));
}

/// As large as a file may be for the reader of a machine. With the CPUs put in one by one, this
/// takes minutes.
#[test]
fn a_megabyte_of_the_largest_range_is_read_at_once() {
    let items = if cfg!(miri) { 4 } else { (1 << 20) / 13 };
    let text = "0-65535:2/3,".repeat(items) + "2-65535:1/3,0-65535";
    assert_eq!(text.parse::<CpuSet>().map(|set| set.len()), Ok(65_536));
    let groups = format!("0-65535:64/{}", usize::MAX);
    assert_eq!(list(&groups), Ok((0..64).collect()));
}

#[test]
fn bad_lists_say_which_item_is_bad() {
    use ParseCpuSetError::{BadGroup, NotANumber, Reversed, TooLarge};
    for (text, error) in [
        ("x", NotANumber { item: 1 }),
        ("1,,2", NotANumber { item: 2 }),
        ("1,", NotANumber { item: 2 }),
        ("+1", NotANumber { item: 1 }),
        ("0-1,-3", NotANumber { item: 2 }),
        ("0-1-2", NotANumber { item: 1 }),
        ("0x3", NotANumber { item: 1 }),
        ("7-6", Reversed { item: 1 }),
        ("0-7:0/4", BadGroup { item: 1 }),
        ("0-7:1/0", BadGroup { item: 1 }),
        ("0-7:5/4", BadGroup { item: 1 }),
        ("0-7:", BadGroup { item: 1 }),
        ("3:1/2", BadGroup { item: 1 }),
        ("65536", TooLarge { item: 1 }),
        ("0,1-99999999999999999999999", TooLarge { item: 2 }),
    ] {
        assert_eq!(list(text), Err(error), "{text:?}");
    }
}

#[test]
fn masks_as_sysfs_writes_them() {
    let mask = |text| CpuSet::from_mask_str(text).map(|set| set.to_string());
    assert_eq!(mask("\n"), Ok(String::new()));
    assert_eq!(mask("3\n"), Ok("0-1".to_owned()));
    assert_eq!(
        mask("00000000,0000000f,3f00003f"),
        Ok("0-5,24-29,32-35".to_owned())
    );
    assert_eq!(mask("FFFFFFFF"), Ok("0-31".to_owned()));
}

#[test]
fn bad_masks_say_which_word_is_bad() {
    use ParseCpuSetError::{BadMaskWord, TooLarge};
    for text in ["x", "0x3", "1,,2", "123456789", "+1", "1, 2"] {
        assert!(
            matches!(CpuSet::from_mask_str(text), Err(BadMaskWord { .. })),
            "{text:?}"
        );
    }
    let zeros = ",00000000".repeat(2048);
    assert_eq!(
        CpuSet::from_mask_str(&format!("1{zeros}")),
        Err(TooLarge { item: 1 })
    );
    assert_eq!(
        CpuSet::from_mask_str(&format!("0{zeros}")),
        Ok(CpuSet::new())
    );
}

#[test]
#[should_panic(expected = "CPU id 65536 is above 65535")]
fn an_id_beyond_the_limit_cannot_be_put_in() {
    CpuSet::new().insert(CpuSet::ID_LIMIT);
}

#[test]
fn equal_sets_are_equal_however_they_came_about() {
    let mut shrunk = CpuSet::from([1, 9999]);
    shrunk.remove(9999);
    assert_eq!(shrunk, CpuSet::from([1]));
    assert_eq!(
        CpuSet::from([1, 500]).difference(&CpuSet::from([500])),
        CpuSet::from([1])
    );
    assert!(
        CpuSet::from([100])
            .intersection(&CpuSet::from([101]))
            .is_empty()
    );
}

/// Ids close together, and now and then far away.
fn ids() -> impl Strategy<Value = BTreeSet<usize>> {
    let id = prop_oneof![9 => 0..150_usize, 1 => 0..CpuSet::ID_LIMIT];
    btree_set(id, 0..40)
}

fn to_set(ids: &BTreeSet<usize>) -> CpuSet {
    ids.iter().copied().collect()
}

proptest! {
    #[test]
    fn both_text_forms_come_back_unchanged(ids in ids()) {
        let set = to_set(&ids);
        prop_assert_eq!(set.to_string().parse::<CpuSet>(), Ok(set.clone()));
        prop_assert_eq!(CpuSet::from_mask_str(&set.to_mask_string()), Ok(set));
    }

    #[test]
    fn algebra_is_that_of_sets(a in ids(), b in ids()) {
        let (x, y) = (to_set(&a), to_set(&b));
        prop_assert_eq!(x.union(&y), to_set(&a.union(&b).copied().collect()));
        prop_assert_eq!(x.intersection(&y), to_set(&a.intersection(&b).copied().collect()));
        prop_assert_eq!(x.difference(&y), to_set(&a.difference(&b).copied().collect()));
        let either = to_set(&a.symmetric_difference(&b).copied().collect());
        prop_assert_eq!(x.symmetric_difference(&y), either);
        prop_assert_eq!(&x | &y, x.union(&y));
        prop_assert_eq!(&x & &y, x.intersection(&y));
        prop_assert_eq!(&x - &y, x.difference(&y));
        prop_assert_eq!(&x ^ &y, x.symmetric_difference(&y));
        let mut changed = x.clone();
        changed |= &y;
        changed -= &x;
        changed ^= &y;
        changed &= &x;
        prop_assert_eq!(changed, x.intersection(&y));
        prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
        prop_assert_eq!(x.is_superset(&y), a.is_superset(&b));
        let mut kept = x.clone();
        kept.retain(|cpu| b.contains(&cpu));
        prop_assert_eq!(kept, x.intersection(&y));
        prop_assert!(x.intersection(&y).is_subset(&y));
        prop_assert_eq!(x.is_disjoint(&y), a.is_disjoint(&b));
        prop_assert_eq!(x == y, a == b);
    }

    #[test]
    fn questions_are_answered_as_by_a_set(ids in ids(), probe in 0..200_usize) {
        let set = to_set(&ids);
        prop_assert!(set.iter().eq(ids.iter().copied()));
        prop_assert_eq!(set.len(), ids.len());
        prop_assert_eq!(set.is_empty(), ids.is_empty());
        prop_assert_eq!(set.first(), ids.first().copied());
        prop_assert_eq!(set.last(), ids.last().copied());
        prop_assert_eq!(set.contains(probe), ids.contains(&probe));
        let round = ids.range(probe..).next().or(ids.first()).copied();
        prop_assert_eq!(set.next_round(probe), round);
        prop_assert_eq!(set.next_round(usize::MAX), ids.first().copied());
        prop_assert_eq!(ids.iter().collect::<CpuSet>(), set.clone());
        prop_assert_eq!(CpuSet::from(ids.into_iter().collect::<Vec<_>>()), set);
    }

    #[test]
    fn a_history_of_changes_ends_as_with_a_set(
        steps in vec((any::<bool>(), 0..130_usize), 0..200)
    ) {
        let (mut set, mut oracle) = (CpuSet::new(), BTreeSet::new());
        for (insert, cpu) in steps {
            if insert {
                prop_assert_eq!(set.insert(cpu), oracle.insert(cpu));
            } else {
                prop_assert_eq!(set.remove(cpu), oracle.remove(&cpu));
            }
        }
        prop_assert_eq!(set, to_set(&oracle));
    }

    #[test]
    fn ranges_and_groups_are_read_as_arithmetic_says(
        start in 0..300_usize, length in 0..300_usize,
        (used, group) in (1..150_usize).prop_flat_map(|group| (1..=group, Just(group))),
    ) {
        let end = start + length;
        prop_assert_eq!(list(&format!("{start}-{end}")), Ok((start..=end).collect()));
        prop_assert_eq!(CpuSet::from(start..=end), CpuSet::from(start..end + 1));
        let chosen = (start..=end).filter(|cpu| (cpu - start) % group < used).collect();
        prop_assert_eq!(list(&format!("{start}-{end}:{used}/{group}")), Ok(chosen));
    }

    #[test]
    fn no_text_makes_the_parsers_panic(text in "[-0-9a-f:/, ]{0,24}") {
        if let Ok(set) = text.parse::<CpuSet>() {
            prop_assert_eq!(set.to_string().parse::<CpuSet>(), Ok(set));
        }
        if let Ok(set) = CpuSet::from_mask_str(&text) {
            prop_assert_eq!(CpuSet::from_mask_str(&set.to_mask_string()), Ok(set));
        }
    }
}
