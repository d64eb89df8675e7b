use super::magazines::{CLASSES, Depot, ROUNDS, ThreadCache, class_of};
use super::slab::{blocks_in_slab, cut, release};
use super::{allocate, free};
use std::alloc::Layout;
use std::collections::HashSet;
use std::ptr::NonNull;
use std::sync::mpsc;
use std::thread;

const MANY: usize = if cfg!(miri) { 150 } else { 20_000 };

/// A pointer that crosses threads.
struct SendPtr(NonNull<u64>);

// SAFETY: each is used by one thread at a time.
unsafe impl Send for SendPtr {}

#[test]
fn classes_hold_their_layouts() {
    let of = |size, align| class_of(Layout::from_size_align(size, align).unwrap());
    for size in 1..=256 {
        let class = of(size, 64).expect("small");
        assert!((class + 1) * 64 >= size && class * 64 < size);
    }
    assert_eq!(of(257, 1), None);
    assert_eq!(of(64, 128), None);
    assert_eq!(of(0, 1), None);
}

#[test]
fn blocks_of_all_sizes_are_aligned_and_apart() {
    for size in [1, 40, 64, 65, 128, 200, 256, 257, 5000] {
        let layout = Layout::from_size_align(size, 16).unwrap();
        let blocks: Vec<_> = (0..100).map(|_| allocate(layout)).collect();
        for (n, block) in (0..).zip(&blocks) {
            assert!(block.cast::<u128>().is_aligned());
            // SAFETY: the block has this size and is ours.
            unsafe { block.write_bytes(n, size) };
        }
        for (n, block) in (0..).zip(blocks) {
            // SAFETY: as above.
            let first = unsafe { block.read() };
            // SAFETY: as above.
            let last = unsafe { block.add(size - 1) };
            // SAFETY: as above; what was written is there.
            assert_eq!((first, unsafe { last.read() }), (n, n));
            // SAFETY: it is freed once.
            unsafe { free(block, layout) };
        }
    }
}

/// What one thread allocates another one frees, and no block has two owners.
#[test]
fn threads_free_what_others_allocated() {
    let layout = Layout::new::<u64>();
    thread::scope(|scope| {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..2).map(|_| mpsc::channel()).unzip();
        for receiver in receivers {
            scope.spawn(move || {
                for (n, SendPtr(block)) in (0..).zip(receiver) {
                    // SAFETY: it was written by the thread that sent it.
                    assert_eq!(unsafe { block.read() }, n);
                    // SAFETY: nobody else has it now.
                    unsafe { free(block.cast(), layout) };
                }
            });
        }
        for sender in senders {
            scope.spawn(move || {
                for n in 0..MANY as u64 {
                    let block = allocate(layout).cast();
                    // SAFETY: it is ours.
                    unsafe { block.write(n) };
                    sender.send(SendPtr(block)).unwrap();
                }
            });
        }
    });
}

/// A slab is freed after all that threads did with its blocks: Miri and ThreadSanitizer report it
/// if the count orders less.
#[test]
fn a_slab_goes_after_all_that_was_done_with_its_blocks() {
    const CLASS: usize = CLASSES - 1;
    for _ in 0..MANY / 150 {
        let mut blocks: Vec<_> = cut(CLASS).map(|block| SendPtr(block.cast())).collect();
        assert_eq!(blocks.len(), blocks_in_slab(CLASS));
        let others = blocks.split_off(blocks.len() / 2);
        thread::scope(|scope| {
            for blocks in [blocks, others] {
                scope.spawn(move || {
                    for (n, SendPtr(block)) in (0..).zip(blocks) {
                        // SAFETY: no other thread has this block.
                        unsafe { block.write(n) };
                        // SAFETY: it is from `cut` with this class, and not used any more.
                        unsafe { release(CLASS, block.cast()) };
                    }
                });
            }
        });
    }
}

/// Memory is kept up to the bound, and what is more goes back: Miri reports what is lost.
#[test]
fn a_depot_keeps_so_much_and_no_more() {
    for class in 0..4 {
        let two_magazines = 2 * ROUNDS * 64 * (class + 1);
        let depot = Depot::new(class, two_magazines);
        let mut cache = ThreadCache::EMPTY;
        let blocks: Vec<_> = (0..6 * ROUNDS)
            .map(|_| depot.allocate(&mut cache))
            .collect();
        let apart: HashSet<_> = blocks.iter().collect();
        assert_eq!(apart.len(), blocks.len());
        for block in blocks {
            // SAFETY: from this depot, freed once.
            unsafe { depot.free(&mut cache, block) };
        }
        assert_eq!(depot.full(), 2);
        let again = depot.allocate(&mut cache);
        // SAFETY: as above.
        unsafe { depot.free(&mut cache, again) };
        depot.clear(&mut cache);
        assert_eq!(depot.full(), 2);
    }
}

/// Magazines go through the depot from the thread that frees to the one that allocates, and slabs
/// go back whoever gives the last of their blocks back: Miri and ThreadSanitizer see each step.
#[test]
fn threads_exchange_magazines_at_a_depot() {
    let depot = Depot::new(0, 2 * ROUNDS * 64);
    let (send, received) = mpsc::channel();
    thread::scope(|scope| {
        let depot = &depot;
        scope.spawn(move || {
            let mut cache = ThreadCache::EMPTY;
            for (n, SendPtr(block)) in (0..).zip(received) {
                // SAFETY: it was written by the thread that sent it.
                assert_eq!(unsafe { block.read() }, n);
                // SAFETY: from this depot, freed once.
                unsafe { depot.free(&mut cache, block.cast()) };
            }
            depot.clear(&mut cache);
        });
        scope.spawn(move || {
            let mut cache = ThreadCache::EMPTY;
            for n in 0..MANY.max(6 * ROUNDS) as u64 {
                let block = depot.allocate(&mut cache).cast();
                // SAFETY: it is ours.
                unsafe { block.write(n) };
                send.send(SendPtr(block)).unwrap();
            }
            depot.clear(&mut cache);
        });
    });
    assert!(depot.full() <= 2);
}

/// A thread takes what others have freed before it asks the allocator.
#[test]
fn what_is_freed_is_used_again() {
    let depot = Depot::new(0, 1 << 16);
    let (mut makes, mut frees) = (ThreadCache::EMPTY, ThreadCache::EMPTY);
    let mut seen = HashSet::new();
    for _ in 0..20 * blocks_in_slab(0) {
        let block = depot.allocate(&mut makes);
        seen.insert(block);
        // SAFETY: from this depot, freed once.
        unsafe { depot.free(&mut frees, block) };
    }
    assert!(seen.len() <= 4 * blocks_in_slab(0), "{} blocks", seen.len());
    depot.clear(&mut makes);
    depot.clear(&mut frees);
}
