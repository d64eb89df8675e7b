use super::magazines::{CLASSES, Depot, ROUNDS, Shelf, class_of};
use super::{KEPT, Recycled};
use crate::atomic::{AtomicUsize, Ordering};
use proptest::prelude::*;
use std::alloc::Layout;
use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::fmt::{Debug, Display};
use std::panic::{AssertUnwindSafe, UnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::{Barrier, mpsc};
use std::thread;

const MANY: usize = if cfg!(miri) { 150 } else { 20_000 };

/// Counts how often it is dropped.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn the_last_pointer_drops_the_value() {
    let drops = AtomicUsize::new(0);
    let seen = || drops.load(Ordering::Relaxed);
    let one = Recycled::new(Counted(&drops));
    let other = one.clone();
    drop(one);
    assert_eq!(seen(), 0);
    drop(other);
    assert_eq!(seen(), 1);

    let (one, other) = Recycled::two(Counted(&drops));
    drop(one);
    let other: Recycled<dyn Send> = Recycled::unsize(other, |block| block);
    let third = other.clone();
    drop(other);
    assert_eq!(seen(), 1);
    drop(third);
    assert_eq!(seen(), 2);
}

#[test]
fn both_types_are_the_same_value() {
    trait Tells: Display {
        fn tells(&self) -> usize;
    }
    impl Tells for String {
        fn tells(&self) -> usize {
            self.len()
        }
    }
    let text = Recycled::new("four".to_owned());
    let tells: Recycled<dyn Tells> = Recycled::unsize(text.clone(), |block| block);
    assert_eq!(tells.tells(), 4);
    assert_eq!(format!("{text:?}"), "\"four\"");
    assert!(std::ptr::addr_eq(&raw const *text, &raw const *tells));
    drop(text);
    assert_eq!(tells.to_string(), "four");

    let bytes: Recycled<[u8]> = Recycled::unsize(Recycled::new([1, 2, 3]), |block| block);
    assert_eq!(*bytes, [1, 2, 3]);
    let other: Recycled<[u8]> = Recycled::unsize(Recycled::new([1, 2, 3]), |block| block);
    assert!(Recycled::ptr_eq(&bytes, &bytes.clone()) && !Recycled::ptr_eq(&bytes, &other));
}

/// Whatever its destructor does, memory comes back: Miri reports what is lost.
#[test]
fn a_destructor_may_panic() {
    struct Panics<'a>(#[allow(dead_code, reason = "dropped")] Counted<'a>);
    impl Drop for Panics<'_> {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("dropped"));
        }
    }
    let drops = AtomicUsize::new(0);
    for n in 1..=100 {
        let value = Recycled::new(Panics(Counted(&drops)));
        let other = value.clone();
        drop(other);
        assert!(catch_unwind(AssertUnwindSafe(|| drop(value))).is_err());
        assert_eq!(drops.load(Ordering::Relaxed), n);
    }
}

#[test]
fn who_does_not_return_the_block_keeps_the_value() {
    let drops = AtomicUsize::new(0);
    let value = Recycled::new(Counted(&drops));
    let other = value.clone();
    let failed = catch_unwind(AssertUnwindSafe(|| {
        let _: Recycled<dyn Send> = Recycled::unsize(value, |_| panic!("no block"));
    }));
    assert!(failed.is_err());
    assert_eq!(drops.load(Ordering::Relaxed), 0);
    drop(other);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

/// What lies at an address that its alignment allows, and keeps its content beside others.
#[test]
fn all_sizes_and_alignments() {
    #[derive(Debug, PartialEq)]
    #[repr(align(16))]
    struct Sixteen([u8; 20]);
    #[derive(Debug, PartialEq)]
    #[repr(align(256))]
    struct Far(u8);

    fn keeps<T: PartialEq + Debug>(make: impl Fn(u8) -> T) {
        let all: Vec<_> = (0..40).map(|n| Recycled::new(make(n))).collect();
        for (n, value) in (0..).zip(&all) {
            assert_eq!(**value, make(n));
            assert!((&raw const **value).is_aligned());
        }
    }
    keeps(|_| ());
    keeps(|n| n);
    keeps(|n| [n; 40]);
    keeps(|n| [n; 41]);
    keeps(|n| [n; 104]);
    keeps(|n| [u64::from(n); 61]);
    keeps(|n| [n; 5000]);
    keeps(|n| Sixteen([n; 20]));
    keeps(Far);
}

#[test]
fn classes_hold_their_layouts() {
    let of = |size, align| class_of(Layout::from_size_align(size, align).unwrap());
    for size in 1..=504 {
        let class = of(size, 16).expect("small");
        assert!((class + 1) * 64 - 8 >= size && class * 64 < size + 8);
    }
    assert_eq!(of(505, 1), None);
    assert_eq!(of(64, 32), None);
}

/// Values made by one thread are dropped by others, and by none twice.
#[test]
fn threads_drop_what_others_made() {
    let drops = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..2).map(|_| mpsc::channel()).unzip();
        for receiver in receivers {
            scope.spawn(move || {
                for value in receiver {
                    let value: Recycled<(usize, Counted<'_>)> = value;
                    assert!(value.0 < MANY);
                }
            });
        }
        for _ in 0..2 {
            let (senders, drops) = (senders.clone(), &drops);
            scope.spawn(move || {
                for n in 0..MANY {
                    let value = Recycled::new((n, Counted(drops)));
                    senders[n % 2].send(value.clone()).unwrap();
                    assert_eq!(value.0, n);
                }
            });
        }
        drop(senders);
    });
    assert_eq!(drops.load(Ordering::Relaxed), 2 * MANY);
}

/// Pointers to one value, in several threads at once.
#[test]
fn threads_share_one_value() {
    for _ in 0..MANY / 100 {
        let drops = AtomicUsize::new(0);
        let value = Recycled::new(Counted(&drops));
        let together = Barrier::new(3);
        thread::scope(|scope| {
            for value in [value.clone(), value.clone(), value] {
                let together = &together;
                scope.spawn(move || {
                    together.wait();
                    let other = value.clone();
                    drop(value);
                    assert_eq!(other.0.load(Ordering::Relaxed), 0);
                });
            }
        });
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    }
}

/// A thread's locals go in an order that nobody knows: what is dropped or made meanwhile is whole.
#[test]
fn a_thread_may_end_with_values() {
    struct Late<'a>(Recycled<Counted<'a>>);
    impl Drop for Late<'_> {
        fn drop(&mut self) {
            drop(Recycled::new(Counted(self.0.0)));
        }
    }
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static BEFORE: RefCell<Vec<Late<'static>>> = const { RefCell::new(Vec::new()) };
        static AFTER: RefCell<Vec<Late<'static>>> = const { RefCell::new(Vec::new()) };
    }
    let late = || {
        (0..100)
            .map(|_| Late(Recycled::new(Counted(&DROPS))))
            .collect()
    };
    thread::spawn(move || {
        BEFORE.with(|values| assert!(values.borrow().is_empty()));
        let values: Vec<_> = late();
        drop::<Vec<_>>(late());
        AFTER.set(values);
        BEFORE.set(late());
    })
    .join()
    .unwrap();
    assert_eq!(DROPS.load(Ordering::Relaxed), 3 * 2 * 100);
}

/// What a thread has dropped it makes the next values of.
#[test]
fn memory_is_used_again() {
    if KEPT == 0 {
        return;
    }
    let make = || Recycled::new([0_u8; 100]);
    // From here on the thread has magazines.
    drop((0..ROUNDS).map(|_| make()).collect::<Vec<_>>());
    let addresses = |all: &[Recycled<[u8; 100]>]| -> HashSet<usize> {
        all.iter()
            .map(|value| (&raw const **value).addr())
            .collect()
    };
    let first: Vec<_> = (0..ROUNDS).map(|_| make()).collect();
    let were = addresses(&first);
    drop(first);
    let again: Vec<_> = (0..ROUNDS).map(|_| make()).collect();
    assert_eq!(addresses(&again), were);
}

#[test]
fn it_is_as_free_as_an_arc() {
    fn is<T: Send + Sync + Unpin + UnwindSafe>() {}
    is::<Recycled<u8>>();
    is::<Recycled<[u8]>>();
    let any: Recycled<dyn Any + Send + Sync> = Recycled::unsize(Recycled::new(1), |block| block);
    assert!(thread::spawn(move || any.is::<i32>()).join().unwrap());
}

#[derive(Clone, Debug)]
enum Op {
    Alloc,
    /// That one of those that are in use.
    Free(usize),
    /// So many at once.
    Many(usize),
    FreeAll,
    /// The thread ends, and another one begins.
    End,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Alloc),
        4 => any::<usize>().prop_map(Op::Free),
        2 => (1..if cfg!(miri) { 70 } else { 3 * ROUNDS }).prop_map(Op::Many),
        1 => Just(Op::FreeAll),
        1 => Just(Op::End),
    ]
}

/// Blocks that are in use, by their address, with what was written to them.
#[derive(Default)]
struct InUse(BTreeMap<NonNull<u8>, u8>, u8);

/// So much of a block is written: all of it, but Miri is slow.
fn written(size: usize) -> usize {
    if cfg!(miri) { 8 } else { size }
}

impl InUse {
    /// It overlaps with no other, and is written from end to end.
    fn add(&mut self, block: NonNull<u8>, size: usize) {
        let (start, end) = (block.addr().get(), block.addr().get() + size);
        assert_eq!(start % 16, 0);
        let before = self.0.range(..=block).next_back();
        assert!(before.is_none_or(|(other, _)| other.addr().get() + size <= start));
        let after = self.0.range(block..).next();
        assert!(after.is_none_or(|(other, _)| end <= other.addr().get()));
        self.1 = self.1.wrapping_add(1);
        // SAFETY: the block is that large, and ours.
        unsafe { block.write_bytes(self.1, written(size)) };
        self.0.insert(block, self.1);
    }

    /// It has its content still.
    fn take(&mut self, which: usize, size: usize) -> Option<NonNull<u8>> {
        let which = which.checked_rem(self.0.len())?;
        let block = *self.0.keys().nth(which)?;
        let byte = self.0.remove(&block)?;
        // SAFETY: the block is that large and ours, and so much of it has been written.
        let content = unsafe { std::slice::from_raw_parts(block.as_ptr(), written(size)) };
        assert!(content.iter().all(|b| *b == byte));
        Some(block)
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Two threads, one after the other, and one depot: no block is given twice, and each is whole.
    #[test]
    fn no_block_is_in_use_twice(
        class in 0..CLASSES,
        most in 0_usize..4,
        ops in prop::collection::vec((any::<bool>(), op()), 1..if cfg!(miri) { 20 } else { 200 }),
    ) {
        let size = (class + 1) * 64 - 8;
        let depot = Depot::new(class, most * ROUNDS * size);
        let mut shelves = [Shelf::new(), Shelf::new()];
        let mut used = InUse::default();
        let free = |shelf: &mut Shelf, used: &mut InUse, which| {
            if let Some(block) = used.take(which, size) {
                // SAFETY: it was in use, and is not any more.
                unsafe { depot.free(shelf, block) };
            }
        };
        for (first, op) in ops {
            let shelf = &mut shelves[usize::from(first)];
            match op {
                Op::Alloc => used.add(depot.alloc(shelf), size),
                Op::Many(n) => (0..n).for_each(|_| used.add(depot.alloc(shelf), size)),
                Op::Free(which) => free(shelf, &mut used, which),
                Op::FreeAll => (0..used.0.len()).for_each(|_| free(shelf, &mut used, 0)),
                Op::End => {
                    depot.clear(shelf);
                    *shelf = Shelf::new();
                }
            }
            prop_assert!(depot.full() <= depot.most());
        }
        (0..used.0.len()).for_each(|_| free(&mut shelves[0], &mut used, 0));
        shelves.iter_mut().for_each(|shelf| depot.clear(shelf));
        prop_assert!(depot.full() <= most);
    }
}

/// One thread makes, the other drops: after a while nothing comes from the allocator.
#[test]
fn magazines_go_round() {
    let depot = Depot::new(1, KEPT.max(128 << 10));
    let (mut maker, mut dropper) = (Shelf::new(), Shelf::new());
    let mut round = || -> HashSet<NonNull<u8>> {
        let blocks: Vec<_> = (0..2 * ROUNDS).map(|_| depot.alloc(&mut maker)).collect();
        for block in &blocks {
            // SAFETY: it is from there, and nobody uses it any more.
            unsafe { depot.free(&mut dropper, *block) };
        }
        blocks.into_iter().collect()
    };
    let known: HashSet<_> = (0..8).flat_map(|_| round()).collect();
    for _ in 0..8 {
        assert!(round().is_subset(&known));
    }
    depot.clear(&mut maker);
    depot.clear(&mut dropper);
}
