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

/// Also while others allocate: the count never goes back, and never counts what others got.
#[test]
fn the_first_tenant_counts_its_own_only() {
    let set = TagSet::builder().depth(64).build(|_, _| ()).unwrap();
    let (first, second) = (
        set.add_tenant("first").unwrap(),
        set.add_tenant("second").unwrap(),
    );
    alloc(&first, 1);
    drop(first.try_alloc_batch(2));
    assert_eq!(first.stats().allocs, 3);
    let stop = Arc::new(AtomicBool::new(false));
    let others: Vec<_> = (0..2)
        .map(|_| {
            let (second, stop) = (second.clone(), stop.clone());
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    drop(second.try_alloc_batch(8));
                }
            })
        })
        .collect();
    while second.stats().allocs < 1_000 {
        thread::yield_now();
    }
    let counts: Vec<u64> = (0..1_000).map(|_| first.stats().allocs).collect();
    stop.store(true, Ordering::Relaxed);
    others.into_iter().for_each(|other| other.join().unwrap());
    assert!(
        counts.iter().all(|&count| count == 3),
        "{:?}",
        counts.iter().max()
    );
}
