//! A17. Getting and putting allocates nothing. In a file of its own: the allocator counts for the
//! whole process.
#![cfg(not(any(loom, shuttle, miri)))]

use inflight_sbitmap::{Fairness, Sbitmap, SbitmapQueue};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

inflight_sync::thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; the count is a thread-local without
// a destructor, so it can be used at any time.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations(f: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.with(Cell::get);
    f();
    ALLOCATIONS.with(Cell::get) - before
}

#[test]
fn a17_getting_and_putting_allocates_nothing() {
    let map = Sbitmap::builder(256).max_depth(512).build().unwrap();
    let mut bits = Vec::with_capacity(512);
    let made = allocations(|| {
        for _ in 0..3 {
            while let Some(bit) = map.try_get() {
                bits.push(bit);
            }
            map.put(bits.pop().unwrap()).unwrap();
            map.put_batch(&bits).unwrap();
            let range = map.try_get_mask(20).unwrap();
            map.put_mask(range).unwrap();
            bits.clear();
            bits.extend(map.try_get_shallow(5));
            map.try_get_batch(100, &mut bits);
            map.resize(500).unwrap();
            assert_eq!(map.weight(), bits.len());
            map.put_batch(&bits).unwrap();
            map.resize(256).unwrap();
            bits.clear();
        }
    });
    assert_eq!(made, 0);
    assert!(allocations(|| drop(Box::new(bits))) > 0, "the count works");
}

#[test]
fn a17_a_batched_queue_allocates_nothing_while_bits_are_free() {
    let queue = SbitmapQueue::builder(8)
        .fairness(Fairness::batched())
        .build()
        .unwrap();
    let made = allocations(|| {
        let bits = [(); 8].map(|()| queue.get_blocking().unwrap());
        assert_eq!(queue.try_get(), None);
        bits.iter().for_each(|&bit| queue.put(bit).unwrap());
    });
    assert_eq!(made, 0);
}
