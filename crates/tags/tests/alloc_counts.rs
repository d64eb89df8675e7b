//! How many tags each tenant got, whoever comes and goes.
#![cfg(not(any(loom, shuttle)))]

use inflight_sync::atomic::{AtomicBool, Ordering};
use inflight_sync::{Arc, thread};
use inflight_tags::{TagSet, Tenant};

fn alloc(queue: &Tenant<()>, n: usize) {
    for _ in 0..n {
        drop(queue.try_alloc().unwrap());
    }
}

#[test]
fn each_tenant_has_its_own_count_whoever_comes_and_goes() {
    for hw_queues in [1, 2] {
        let set = TagSet::builder().hw_queues(hw_queues).depth(64);
        let set = set.build(|_, _| ()).unwrap();
        let first = set.add_tenant("first").unwrap();
        alloc(&first, 3);
        let second = set.add_tenant("second").unwrap();
        alloc(&second, 5);
        alloc(&first, 2);
        drop(second.try_alloc_batch(4));
        assert_eq!((first.stats().allocs, second.stats().allocs), (5, 9));
        let clone = second.clone();
        drop(second);
        assert_eq!(clone.stats().allocs, 9);
        drop(clone);
        alloc(&first, 1);
        assert_eq!(first.stats().allocs, 6, "what is gone was not its own");
        let third = set.add_tenant("third").unwrap();
        alloc(&third, 7);
        drop(first);
        let fourth = set.add_tenant("fourth").unwrap();
        alloc(&fourth, 1);
        assert_eq!((third.stats().allocs, fourth.stats().allocs), (7, 1));
        assert_eq!(set.stats().allocs, 6 + 9 + 7 + 1);
    }
}

#[test]
fn one_after_another_they_do_not_inherit() {
    let set = TagSet::builder().depth(4).build(|_, _| ()).unwrap();
    let first = set.add_tenant("first").unwrap();
    alloc(&first, 3);
    let held = first.try_alloc().unwrap();
    drop(first);
    let second = set.add_tenant("second").unwrap();
    assert_eq!(second.stats().allocs, 0);
    alloc(&second, 2);
    drop(held);
    assert_eq!(second.stats().allocs, 2);
}

/// What was given out and not given back is in use, in one answer, whatever happens meanwhile.
#[test]
fn the_numbers_of_one_answer_agree() {
    let set = TagSet::builder().depth(64).build(|_, _| ()).unwrap();
    let dev = set.add_tenant("nvme0n1").unwrap();
    let run = Arc::new(AtomicBool::new(true));
    let user = thread::spawn({
        let run = run.clone();
        move || {
            while run.load(Ordering::Relaxed) {
                drop(dev.try_alloc_batch(64));
            }
        }
    });
    while set.stats().allocs == 0 {
        thread::yield_now();
    }
    for _ in 0..if cfg!(miri) { 20 } else { 20_000 } {
        let stats = set.stats();
        assert_eq!(stats.allocs - stats.frees, stats.in_use as u64);
    }
    run.store(false, Ordering::Relaxed);
    user.join().unwrap();
}
