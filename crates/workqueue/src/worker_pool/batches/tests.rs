//! Groups of settled entries, counted in two ways.

use super::*;
use inflight_sync::asym::AsymFence;
use proptest::prelude::*;

/// This test does not access the item of an entry.
fn entry(colour: u8, counted: bool) -> Entry {
    Entry {
        item: crate::item::ItemPtr::dangling(),
        seq: 0,
        colour,
        counted,
    }
}

proptest! {
    /// For entries of one pwq and one colour, the owner counts without looking at each of them.
    #[test]
    fn a_batch_of_one_kind_is_counted_as_any_other(
        pwqs in prop::collection::vec((0_usize..2, 0_u8..2, 1_usize..4), 1..5),
        alike in any::<bool>(),
        rounds in 1_usize..4,
        appended in 0_usize..8,
        recalled in prop::option::of(0_usize..20),
        skipped in prop::option::weighted(0.2, 0_usize..20),
    ) {
        let dangling = [64_usize, 128].map(|addr| {
            NonNull::new(std::ptr::without_provenance_mut::<Pwq>(addr)).unwrap()
        });
        let batch = Batch::new(AsymFence::new());
        let mut settlement = Settlement::default();
        for _ in 0..rounds {
            let begin = batch.next();
            let mut fill = batch.fill();
            for &(pwq, colour, entries) in &pwqs {
                let (pwq, colour) = if alike { (0, 1) } else { (pwq, colour) };
                fill.extend(dangling[pwq], &vec![Some(entry(colour, true)); entries]);
            }
            let taken = fill.finish();
            let mut ran = 0;
            while batch.next() != batch.end() {
                let i = batch.next();
                if recalled == Some(ran) {
                    // The rest has been put back.
                    batch.resume(i);
                    break;
                }
                batch.start(i);
                let Taken { entry: running, pwq } = batch.get(i);
                if skipped == Some(ran) {
                    batch.mark_skipped(i);
                } else if ran < appended {
                    let entry = entry(running.colour, false);
                    batch.append(begin, Taken { entry, pwq });
                }
                ran += 1;
            }
            settlement.count_all(&batch, begin, &taken);
            let mut each = Vec::new();
            for_each_group(&batch, begin, batch.end(), 0, |group| each.push(group));
            let some = settlement.groups.iter().copied().filter(|group| group.ran > 0);
            if each.is_empty() {
                prop_assert_eq!(some.count(), 0);
            } else {
                prop_assert_eq!(&settlement.groups, &each);
            }
        }
    }
}
