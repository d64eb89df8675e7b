//! All tags of a split at once: all or none, and no two halves.
#![cfg(not(any(loom, shuttle)))]

use inflight_sync::Arc;
use inflight_sync::atomic::{AtomicBool, Ordering};
use inflight_tags::{Admission, AllocError, SharePolicy, Tag, TagSet, Tenant};
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

#[derive(Default)]
struct Told(AtomicBool);

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn set(depth: usize, admission: Admission) -> (TagSet<()>, Tenant<()>) {
    let set = TagSet::builder().depth(depth).max_depth(16);
    let set = set.admission(admission).build(|_, _| ()).unwrap();
    let dev = set.add_tenant("sda").unwrap();
    (set, dev)
}

/// Those that do not go beyond the depth.
fn policies() -> [Admission; 3] {
    [
        Admission::WholeIo,
        Admission::preempt(),
        Admission::NoPreempt(inflight_tags::NoPreempt::default()),
    ]
}

/// Tags beyond the depth are some of all.
#[test]
fn a_join_may_go_beyond_the_depth() {
    let (set, dev) = set(8, Admission::elastic_overcommit(2));
    let held = dev.split(5).join_blocking().unwrap();
    assert_eq!(dev.split(6).try_join().unwrap_err(), AllocError::Exhausted);
    assert_eq!(set.in_use(), 5);
    assert_eq!(dev.split(5).try_join().unwrap().len(), 5);
    drop(held);
}

#[test]
fn all_come_or_none_is_taken() {
    for policy in policies() {
        let (set, dev) = set(8, policy);
        let held: Vec<Tag<()>> = dev.split(5).join_blocking().unwrap();
        assert_eq!((held.len(), set.in_use()), (5, 5));
        let mut split = dev.split(4);
        assert_eq!(split.try_join().unwrap_err(), AllocError::Exhausted);
        let late = split.join_timeout(Duration::ZERO).unwrap_err();
        assert_eq!(late, AllocError::TimedOut);
        assert_eq!((set.in_use(), split.remaining()), (5, 4));
        drop(held);
        assert_eq!(split.join_blocking().unwrap().len(), 4);
        assert_eq!((set.in_use(), split.remaining()), (0, 0));
        assert!(split.try_join().unwrap().is_empty(), "there is no more");
    }
}

/// Each of two that need more than half of the tags gets all of them, one after the other.
#[test]
fn two_that_wait_do_not_hold_halves() {
    let set = TagSet::builder().depth(8).share(SharePolicy::None);
    let set = set.build(|_, _| ()).unwrap();
    let (dev, other) = (set.add_tenant("sda"), set.add_tenant("sdb"));
    let (dev, other) = (dev.unwrap(), other.unwrap());
    let mut cx = Context::from_waker(Waker::noop());
    let held: Vec<Tag<()>> = dev.try_alloc_batch(8);
    let (mut one, mut two) = (dev.split(5), other.split(5));
    let mut waiting = [Some(Box::pin(one.join())), Some(Box::pin(two.join()))];
    for join in waiting.iter_mut().flatten() {
        assert!(join.as_mut().poll(&mut cx).is_pending());
    }
    let mut served = 0;
    for tag in held {
        drop(tag);
        for join in &mut waiting {
            if let Some(Poll::Ready(tags)) = join.as_mut().map(|join| join.as_mut().poll(&mut cx)) {
                assert_eq!(tags.unwrap().len(), 5);
                served += 1;
                *join = None;
            }
        }
    }
    assert_eq!((served, set.in_use()), (2, 0));
}

#[test]
fn a_join_that_is_dropped_leaves_nothing() {
    for policy in policies() {
        let (set, dev) = set(8, policy);
        let mut cx = Context::from_waker(Waker::noop());
        let held = dev.try_alloc_batch(5);
        let mut split = dev.split(6);
        {
            let mut join = pin!(split.join());
            assert!(join.as_mut().poll(&mut cx).is_pending());
        }
        assert_eq!((set.in_use(), split.remaining()), (5, 6));
        assert_eq!(dev.try_alloc_batch(8).len(), 3, "nobody stands before them");
        drop(held);
        assert_eq!(split.try_join().unwrap().len(), 6);
    }
}

/// It holds nothing that a freeze would wait for.
#[test]
fn a_freeze_does_not_wait_for_a_join() {
    for policy in policies() {
        let (set, dev) = set(8, policy);
        let mut cx = Context::from_waker(Waker::noop());
        let held = dev.try_alloc_batch(4);
        let mut split = dev.split(6);
        let mut join = pin!(split.join());
        assert!(join.as_mut().poll(&mut cx).is_pending());
        let mut freeze = pin!(set.freeze());
        assert!(freeze.as_mut().poll(&mut cx).is_pending());
        drop(held);
        let frozen = loop {
            assert!(join.as_mut().poll(&mut cx).is_pending());
            if let Poll::Ready(frozen) = freeze.as_mut().poll(&mut cx) {
                break frozen;
            }
        };
        assert_eq!(set.in_use(), 0);
        drop(frozen);
        let Poll::Ready(Ok(tags)) = join.as_mut().poll(&mut cx) else {
            panic!("all are free");
        };
        assert_eq!(tags.len(), 6);
    }
}

#[test]
fn more_than_there_are() {
    let (set, dev) = set(4, Admission::WholeIo);
    let too_many = |depth| AllocError::TooMany { pieces: 5, depth };
    let mut split = dev.split(5);
    assert_eq!(split.try_join().unwrap_err(), too_many(4));
    set.resize(8).unwrap();
    let held = dev.try_alloc().unwrap();
    let rest = dev.try_alloc_batch(4);
    let mut cx = Context::from_waker(Waker::noop());
    let mut join = pin!(split.join());
    assert!(join.as_mut().poll(&mut cx).is_pending());
    set.resize(3).unwrap();
    drop((held, rest));
    let now = join.as_mut().poll(&mut cx);
    assert!(matches!(now, Poll::Ready(Err(error)) if error == too_many(3)));
    assert_eq!(set.in_use(), 0);
}

/// Whoever waits for more than there are is told when the depth changes, not when a tag comes back.
#[test]
fn a_join_that_waits_is_told_of_a_shrink() {
    for policy in policies() {
        let (set, dev) = set(4, policy);
        let held = dev.try_alloc_batch(3);
        let told = Arc::new(Told::default());
        let waker = Waker::from(told.clone());
        let mut cx = Context::from_waker(&waker);
        let mut split = dev.split(3);
        let mut join = pin!(split.join());
        assert!(join.as_mut().poll(&mut cx).is_pending());
        set.resize(2).unwrap();
        assert!(told.0.load(Ordering::Relaxed), "{policy:?}");
        let now = join.as_mut().poll(&mut cx);
        let too_many = AllocError::TooMany {
            pieces: 3,
            depth: 2,
        };
        assert!(matches!(now, Poll::Ready(Err(error)) if error == too_many));
        assert_eq!(set.in_use(), held.len());
    }
}

/// Two of two tenants wait for three each when the depth falls to two for a moment: neither keeps a
/// part.
#[test]
fn a_join_is_given_no_part_by_a_shrink() {
    let set = TagSet::builder().depth(4).share(SharePolicy::None);
    let set = set.build(|_, _| ()).unwrap();
    let devs = ["sda", "sdb"].map(|name| set.add_tenant(name).unwrap());
    let mut cx = Context::from_waker(Waker::noop());
    let held = devs[0].try_alloc_batch(4);
    let mut splits = devs.each_ref().map(|dev| dev.split(3));
    let [one, two] = &mut splits;
    let mut joins = [Box::pin(one.join()), Box::pin(two.join())];
    for join in &mut joins {
        assert!(join.as_mut().poll(&mut cx).is_pending());
    }
    set.resize(2).unwrap();
    set.resize(4).unwrap();
    Tag::free_batch(held);
    for join in &mut joins {
        let Poll::Ready(Ok(tags)) = join.as_mut().poll(&mut cx) else {
            panic!("all four are free");
        };
        assert_eq!((tags.len(), set.in_use()), (3, 3));
    }
}

/// What had come for a piece by itself goes back first.
#[test]
fn a_join_after_some_pieces() {
    let (set, dev) = set(16, Admission::WholeIo);
    let mut split = dev.split(12);
    let first = split.next_blocking().unwrap();
    let rest = split.join_blocking().unwrap();
    assert_eq!((rest.len(), set.in_use()), (11, 12));
    drop((first, rest));
    assert_eq!(set.in_use(), 0);
}

/// Tags and splits move while their payloads stay, whatever the payload is.
#[test]
fn tags_and_splits_are_unpin() {
    fn is_unpin<U: Unpin>() {}
    is_unpin::<Tag<std::marker::PhantomPinned>>();
    is_unpin::<inflight_tags::Split<std::marker::PhantomPinned>>();
}

/// What a join has is no longer there to be freed by others, so it is woken for each tag.
#[test]
fn a_join_is_woken_for_the_last_tag() {
    let elastic = Admission::elastic_overcommit(2);
    for admission in policies().into_iter().chain([elastic]) {
        for depth in (1..40).chain([63, 64, 65, 128]) {
            let set: TagSet<()> = TagSet::builder()
                .depth(depth)
                .admission(admission)
                .build(|_, _| ())
                .unwrap();
            let dev = set.add_tenant("sda").unwrap();
            let tags = dev.try_alloc_batch(depth);
            let mut split = dev.split(depth);
            let told = Arc::new(Told::default());
            let waker = Waker::from(told.clone());
            let mut cx = Context::from_waker(&waker);
            let mut join = pin!(split.join());
            assert!(join.as_mut().poll(&mut cx).is_pending());
            let mut joined = None;
            for tag in tags {
                drop(tag);
                while joined.is_none() && told.0.swap(false, Ordering::Relaxed) {
                    if let Poll::Ready(tags) = join.as_mut().poll(&mut cx) {
                        joined = Some(tags.unwrap());
                    }
                }
            }
            let joined = joined.unwrap_or_else(|| panic!("{admission:?}, {depth} tags: not woken"));
            assert_eq!(joined.len(), depth);
        }
    }
}

/// Two joins above their share do not have a half each: one has all, the other none.
#[test]
fn joins_above_their_share_do_not_wait_for_each_other() {
    for (depth, one, other) in [(8, 6, 6), (16, 8, 9), (16, 9, 8), (16, 16, 16), (16, 9, 2)] {
        let (set, a) = set(depth, Admission::WholeIo);
        let b = set.add_tenant("sdb").unwrap();
        drop((a.try_alloc().unwrap(), b.try_alloc().unwrap()));
        let (mut of_a, mut of_b) = (a.split(one), b.split(other));
        let (mut of_a, mut of_b) = (pin!(of_a.join()), pin!(of_b.join()));
        let mut cx = Context::from_waker(Waker::noop());
        // Nothing else is in use, so the first one has all its tags at once.
        let Poll::Ready(Ok(first)) = of_a.as_mut().poll(&mut cx) else {
            panic!("{one} of {depth} tags are free");
        };
        let fits = one + other <= depth;
        assert_eq!(of_b.as_mut().poll(&mut cx).is_ready(), fits);
        drop(first);
        if !fits {
            let Poll::Ready(Ok(second)) = of_b.poll(&mut cx) else {
                panic!("{other} of {depth} tags are free");
            };
            assert_eq!(second.len(), other);
        }
    }
}

/// A join of more tags than its tenant's share has left keeps nothing from the others until all are
/// free, although its owner holds some of those that it waits for.
#[test]
fn a_join_that_does_not_fit_holds_up_nobody() {
    let (set, a) = set(8, Admission::WholeIo);
    let b = set.add_tenant("sdb").unwrap();
    drop(b.try_alloc().unwrap());
    let own = (a.try_alloc().unwrap(), a.try_alloc().unwrap());
    let mut split = a.split(8);
    let mut join = pin!(split.join());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(join.as_mut().poll(&mut cx).is_pending());
    assert_eq!(a.in_use(), 2);
    let of_b = b.try_alloc_batch(8);
    assert_eq!(of_b.len(), 4, "its share");
    assert!(
        a.alloc_timeout(Duration::from_secs(60)).is_ok(),
        "a small one passes"
    );
    drop(of_b);
    assert!(pin!(b.alloc()).poll(&mut cx).is_ready());
    drop(own);
    assert!(matches!(join.poll(&mut cx), Poll::Ready(Ok(tags)) if tags.len() == 8));
}
