//! Splits under every policy: all tags come, in order, and nothing is lost whatever is dropped.

#![cfg(not(any(loom, shuttle)))]

use inflight_sbitmap::Engine;
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, block_on, thread};
use inflight_tags::{
    Admission, AllocError, AllocOptions, Force, NoPreempt, Tag, TagSet, Tenant, WakeAccounting,
};
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const PLAIN: AllocOptions = AllocOptions::new();

fn policies() -> [Admission; 5] {
    let base = NoPreempt::default();
    [
        Admission::WholeIo,
        Admission::preempt(),
        Admission::NoPreempt(base.accounting(WakeAccounting::PerTag)),
        Admission::NoPreempt(
            base.accounting(WakeAccounting::PerWaiter)
                .force(Force::Never),
        ),
        Admission::elastic_overcommit(4),
    ]
}

fn queue(depth: usize, admission: Admission) -> Tenant<u32> {
    let set = TagSet::builder().depth(depth).admission(admission);
    set.build(|_, _| 0).unwrap().add_tenant("q").unwrap()
}

#[derive(Default)]
struct Counts(AtomicUsize);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll<F: Future>(future: Pin<&mut F>, counts: &Arc<Counts>) -> Poll<F::Output> {
    let waker = Waker::from(counts.clone());
    future.poll(&mut Context::from_waker(&waker))
}

/// Nothing is in use, and as many tags as the depth can be had.
fn assert_whole(dev: &Tenant<u32>, depth: usize) {
    assert_eq!(dev.set().in_use(), 0);
    let all: Vec<_> = std::iter::from_fn(|| dev.try_alloc().ok()).collect();
    assert_eq!(all.len(), depth);
}

#[test]
fn a_split_that_fits_gets_all_its_tags_at_once() {
    for policy in policies() {
        let dev = queue(8, policy);
        for n in [0, 1, 7, 8] {
            let mut split = dev.split(n);
            let mut tags = Vec::new();
            for left in (0..n).rev() {
                tags.extend(split.try_next().unwrap());
                assert_eq!((tags.len(), split.remaining()), (n - left, left));
            }
            assert!(split.try_next().unwrap().is_none());
            assert!(split.next_blocking().unwrap().is_none());
        }
        assert_whole(&dev, 8);
    }
}

#[test]
fn d26_a_split_of_more_pieces_than_tags_goes_on_as_they_complete() {
    for policy in policies() {
        let dev = queue(4, policy);
        let mut split = dev.split(23);
        let mut in_flight: Vec<Tag<u32>> = Vec::new();
        let mut got = 0;
        while split.remaining() > 0 {
            match split.try_next() {
                Ok(tag) => {
                    in_flight.extend(tag);
                    got += 1;
                }
                Err(AllocError::Exhausted) => drop(in_flight.remove(0)),
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(got, 23);
        drop((split, in_flight));
        assert_whole(&dev, 4);
    }
}

#[test]
fn a_split_with_its_first_part_at_once_hears_of_tags_that_are_put_later() {
    for policy in policies() {
        for depth in 1..=9 {
            let dev = queue(depth, policy);
            // Where ids are kept by CPU, these are now with this one.
            drop(dev.try_alloc_batch(depth));
            let others = dev.try_alloc_batch(depth / 2);
            let mut split = dev.split(3 * depth);
            let mut tags = Vec::new();
            while split.remaining() > 0 {
                let counts = Arc::new(Counts::default());
                let mut next = pin!(split.next());
                let tag = match poll(next.as_mut(), &counts) {
                    Poll::Ready(tag) => tag,
                    Poll::Pending => {
                        tags.clear();
                        assert_eq!(counts.0.load(Ordering::Relaxed), 1, "{policy:?}, {depth}");
                        block_on(next)
                    }
                };
                tags.extend(tag.unwrap());
            }
            drop((split, tags, others));
            assert_whole(&dev, depth);
        }
    }
}

#[test]
fn d26_threads_with_splits_of_any_size_all_get_through() {
    for policy in policies() {
        let dev = queue(4, policy);
        let threads: Vec<_> = [1, 3, 4, 9]
            .map(|n| {
                let dev = dev.clone();
                thread::spawn(move || {
                    for round in 0..50 {
                        let mut split = dev.split(n);
                        while let Some(tag) = match round % 2 {
                            0 => block_on(split.next()).unwrap(),
                            _ => split.next_blocking().unwrap(),
                        } {
                            drop(dev.set().redeem(tag.into_token()).unwrap());
                        }
                    }
                })
            })
            .into_iter()
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_whole(&dev, 4);
    }
}

/// A split that has been given a part and does not come for it: its tenant's small requests get
/// what is free, by every form; its large ones wait, in their order. When it comes it is the next.
#[test]
fn a_part_that_nobody_asks_for_holds_up_large_requests_only() {
    let woken = Arc::new(Counts::default());
    for engine in [Engine::Shared, Engine::Local] {
        for tenants in 1..=2 {
            let set = TagSet::builder().depth(16).engine(engine);
            let set = set.build(|_, _| 0u32).unwrap();
            let dev = set.add_tenant("q").unwrap();
            let other = (tenants == 2).then(|| set.add_tenant("other").unwrap());
            let active = other.map(|other| (other.try_alloc().unwrap(), other));
            // With two tenants its share is half of them.
            let room = 16 / tenants;
            let mut held = dev.try_alloc_batch(room).into_iter().collect::<Vec<_>>();
            assert_eq!(held.len(), room);
            let mut late = dev.split(9);
            let mut behind = dev.split(3);
            let mut next = Box::pin(late.next());
            assert!(poll(next.as_mut(), &woken).is_pending());
            let mut next_behind = Box::pin(behind.next());
            assert!(poll(next_behind.as_mut(), &woken).is_pending());
            // A part of a quarter of the depth is granted, and four are free.
            // At once, for at its limit a class is given less than a part.
            Tag::free_batch(held.split_off(room - 8));
            let what = format!("{engine:?}, {tenants}");
            let passes = dev.split(1).try_next();
            assert_eq!(passes.unwrap_err(), AllocError::Exhausted, "{what}");
            let tried = dev.try_alloc().expect(&what);
            let batch = dev.try_alloc_batch(2);
            assert_eq!(batch.len(), 2, "{what}");
            let Poll::Ready(Ok(waited)) = poll(pin!(dev.alloc()), &woken) else {
                panic!("{what}: a small request passes");
            };
            assert!(dev.try_alloc().is_err(), "{what}: all are in use");
            drop((tried, batch, waited));
            assert!(poll(next_behind.as_mut(), &woken).is_pending(), "{what}");
            // It comes: the rest of its pieces, then the one behind it.
            let Poll::Ready(Ok(Some(first))) = poll(next.as_mut(), &woken) else {
                panic!("{what}: its part is there");
            };
            drop(next);
            let mut tags = vec![first];
            tags.extend((0..7).map(|_| late.try_next().expect(&what).unwrap()));
            let mut last = Box::pin(late.next());
            assert!(poll(last.as_mut(), &woken).is_pending(), "{what}");
            assert!(dev.try_alloc().is_err(), "{what}");
            tags.truncate(4);
            assert!(poll(last.as_mut(), &woken).is_ready(), "{what}");
            drop(last);
            assert!(poll(next_behind.as_mut(), &woken).is_ready(), "{what}");
            drop(next_behind);
            drop((behind, late, tags, held, active));
            assert_whole(&dev, 16);
        }
    }
}

/// Two requests of the whole depth, which keep their tags until they have all: they would wait for
/// each other if each had some.
#[test]
fn d25_two_splits_never_wait_for_each_other() {
    let dev = queue(4, Admission::WholeIo);
    let threads = [(); 2].map(|()| {
        let dev = dev.clone();
        thread::spawn(move || {
            for _ in 0..200 {
                let mut split = dev.split(4);
                let mut tags = Vec::new();
                while let Some(tag) = split.next_blocking().unwrap() {
                    tags.push(tag);
                }
                assert_eq!(tags.len(), 4);
            }
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
    assert_whole(&dev, 4);
}

#[test]
fn a_dropped_future_and_a_dropped_split_lose_nothing() {
    for policy in policies() {
        let dev = queue(4, policy);
        let woken = Arc::new(Counts::default());
        let held: Vec<_> = (0..4).map(|_| dev.try_alloc().unwrap()).collect();
        let mut split = dev.split(4);
        let mut behind = pin!(dev.alloc());
        {
            let mut next = pin!(split.next());
            assert!(poll(next.as_mut(), &woken).is_pending());
            assert!(poll(behind.as_mut(), &woken).is_pending());
            drop(held);
        }
        let Poll::Ready(Ok(tag)) = poll(behind.as_mut(), &woken) else {
            panic!("{policy:?}: what the dropped future was given goes to the next");
        };
        drop(tag);
        drop(split.try_next().unwrap());
        assert!(split.remaining() == 3);
        drop(split);
        assert_whole(&dev, 4);
    }
}

#[test]
fn while_frozen_a_split_gives_back_what_it_has_collected() {
    for policy in policies() {
        let dev = queue(4, policy);
        let set = dev.set();
        let mut split = dev.split(4);
        drop(split.try_next().unwrap());
        let woken = Arc::new(Counts::default());
        let mut freeze = pin!(set.freeze());
        let at_once = poll(freeze.as_mut(), &woken);
        assert_eq!(split.try_next().unwrap_err(), AllocError::Frozen);
        let mut next = Box::pin(split.next());
        assert!(poll(next.as_mut(), &woken).is_pending());
        let frozen = match at_once {
            Poll::Ready(frozen) => frozen,
            Poll::Pending => block_on(freeze),
        };
        assert_eq!(set.in_use(), 0);
        drop(frozen);
        assert!(matches!(
            poll(next.as_mut(), &woken),
            Poll::Ready(Ok(Some(_)))
        ));
        drop(next);
        assert_eq!(split.remaining(), 2);
        drop(split);
        assert_whole(&dev, 4);
    }
}

#[test]
fn a_wait_that_times_out_can_go_on() {
    for policy in policies() {
        let clock = Clock::manual();
        let set = TagSet::builder()
            .depth(2)
            .admission(policy)
            .clock(clock.clone());
        let dev = set.build(|_, _| 0).unwrap().add_tenant("q").unwrap();
        let held = [(); 2].map(|()| dev.try_alloc().unwrap());
        let mut split = dev.split(2);
        let late = split.next_timeout(Duration::ZERO).unwrap_err();
        assert_eq!(late, AllocError::TimedOut);
        drop(held);
        let tags = [(); 2].map(|()| split.next_timeout(Duration::ZERO).unwrap().unwrap());
        assert!(split.try_next().unwrap().is_none());
        drop(tags);
        assert_whole(&dev, 2);
    }
}

#[test]
fn what_the_set_does_not_have_is_refused() {
    let dev = queue(2, Admission::WholeIo);
    let mut split = dev.split_with(2, PLAIN.reserved());
    assert_eq!(split.next_blocking().unwrap_err(), AllocError::NoReserved);
    let mut split = dev.split_with(2, PLAIN.hw_queue(1));
    assert!(matches!(
        split.try_next().unwrap_err(),
        AllocError::NoSuchHwQueue { .. }
    ));
    assert_eq!(split.remaining(), 2);
}

/// Followers of a request that has begun go beyond the depth, and nobody else does.
#[test]
fn d9_followers_take_extra_tags() {
    let dev = queue(2, Admission::elastic_overcommit(3));
    let held = dev.try_alloc().unwrap();
    let mut split = dev.split(8);
    let mut tags = Vec::new();
    for _ in 0..4 {
        tags.extend(split.try_next().unwrap());
    }
    let numbers: Vec<_> = tags.iter().map(Tag::index).collect();
    assert!(numbers[0] < 2 && numbers[1..] == [2, 3, 4], "{numbers:?}");
    assert_eq!(split.try_next().unwrap_err(), AllocError::Exhausted);
    assert_eq!(dev.try_alloc().unwrap_err(), AllocError::Exhausted);
    drop(tags.remove(1));
    assert_eq!(dev.try_alloc().unwrap_err(), AllocError::Exhausted);
    assert_eq!(dev.split(1).try_next().unwrap_err(), AllocError::Exhausted);
    assert_eq!(split.try_next().unwrap().unwrap().index(), 2);
    drop((held, tags, split));
    assert_whole(&dev, 2);
}

/// D24, H27: one wake for eight tags, and nobody takes them. They are for those behind, in the
/// hardware queue where the split waited.
#[test]
fn h27_a_split_that_goes_after_its_wake_hands_all_of_it_on() {
    for hwq in 0..2 {
        let rules = NoPreempt::default().accounting(WakeAccounting::PerTag);
        let set = TagSet::builder().hw_queues(2).depth(64);
        let set = set.admission(Admission::NoPreempt(rules));
        let dev = set.build(|_, _| 0u32).unwrap().add_tenant("q").unwrap();
        let here = PLAIN.hw_queue(hwq);
        let mut held: Vec<_> = (0..64).map(|_| dev.try_alloc_with(here).unwrap()).collect();
        let mut split = dev.split_with(8, here);
        let mut next = Box::pin(split.next());
        let (one, others) = (Arc::new(Counts::default()), Arc::new(Counts::default()));
        assert!(poll(next.as_mut(), &one).is_pending());
        let mut behind: Vec<_> = (0..8).map(|_| Box::pin(dev.alloc_with(here))).collect();
        for waiter in &mut behind {
            assert!(poll(waiter.as_mut(), &others).is_pending());
        }
        held.truncate(56);
        let woken = |counts: &Counts| counts.0.load(Ordering::Relaxed);
        assert_eq!((woken(&one), woken(&others)), (1, 0));
        drop(next);
        drop(split);
        assert_eq!(woken(&others), 8, "hardware queue {hwq}");
    }
}

/// H28: who was woken and does not run keeps no newcomer out.
#[test]
fn h28_who_was_woken_and_does_not_run_keeps_nobody_out() {
    let rules = NoPreempt::default().threshold(0).force(Force::Never);
    let dev = queue(2, Admission::NoPreempt(rules));
    let _held = dev.try_alloc().unwrap();
    let second = dev.try_alloc().unwrap();
    let counts = Arc::new(Counts::default());
    let mut woken = pin!(dev.alloc());
    assert!(poll(woken.as_mut(), &counts).is_pending());
    drop(second);
    assert_eq!(counts.0.load(Ordering::Relaxed), 1);
    assert!(poll(pin!(dev.alloc()), &counts).is_ready());
}
