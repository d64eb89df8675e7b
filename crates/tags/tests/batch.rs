//! Tags freed together.
#![cfg(not(any(loom, shuttle)))]

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, Mutex};
use inflight_tags::{Admission, AllocError, AllocOptions, RedeemError, Tag, TagSet, Tenant};
use std::collections::BTreeSet;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

fn on(hw_queue: usize) -> AllocOptions {
    AllocOptions::new().hw_queue(hw_queue)
}

fn set(hw_queues: usize, depth: usize, admission: Admission) -> TagSet<usize> {
    let set = TagSet::builder().hw_queues(hw_queues).depth(depth);
    set.admission(admission).build(|_, tag| tag).unwrap()
}

type Waiter<'a> = Pin<Box<dyn Future<Output = Tag<usize>> + 'a>>;

fn waits<'a>(dev: &'a Tenant<usize>, options: AllocOptions, waker: &Waker) -> Waiter<'a> {
    let mut waiter: Waiter<'_> = Box::pin(async move { dev.alloc_with(options).await.unwrap() });
    let polled = waiter.as_mut().poll(&mut Context::from_waker(waker));
    assert!(polled.is_pending());
    waiter
}

fn ready(waiter: &mut Waiter<'_>) -> Option<Tag<usize>> {
    match waiter
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
    {
        Poll::Ready(tag) => Some(tag),
        Poll::Pending => None,
    }
}

struct Panics(AtomicUsize);
impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("the waker's panic");
    }
}

#[test]
fn c24_tags_of_several_queues_sets_and_kinds_are_all_freed() {
    let builder = TagSet::builder().hw_queues(3).depth(50).reserved(2);
    let one = builder.build(|_, tag| tag).unwrap();
    let other = set(1, 40, Admission::WholeIo);
    let (a, b) = (one.add_tenant("a").unwrap(), other.add_tenant("b").unwrap());
    for round in 0..3 {
        let mut tags = Vec::new();
        for hw_queue in [2, 0, 1] {
            tags.extend(a.try_alloc_batch_with(48, on(hw_queue)).unwrap());
            tags.extend(b.try_alloc_batch(13));
            tags.extend(a.try_alloc_with(on(hw_queue).reserved()));
        }
        assert_eq!(tags.len(), 3 * (48 + 13 + 1));
        tags.iter_mut().for_each(|tag| **tag += 1_000);
        Tag::free_batch(tags);
        assert_eq!((one.in_use(), other.in_use()), (0, 0));
        let stats = one.stats();
        assert_eq!(stats.frees, (round + 1) * 3 * 49);
        assert_eq!(stats.allocs, stats.frees);
    }
    // The payloads stay with their slots.
    let tag = a.try_alloc_with(on(2).reserved()).unwrap();
    assert_eq!(*tag % 1_000, tag.index());
    Tag::<()>::free_batch([]);
}

/// As dropping them: a token of the freed use is stale, and a freeze need not wait.
#[test]
fn c24_the_uses_end() {
    let set = set(1, 4, Admission::WholeIo);
    let tokens = set.add_tenant("q").unwrap().try_alloc_batch(4);
    let tokens: Vec<u64> = tokens.into_iter().map(Tag::into_token).collect();
    Tag::free_batch(tokens.iter().map(|&token| set.redeem(token).unwrap()));
    assert!(set.try_freeze().is_ok());
    for token in tokens {
        assert_eq!(
            set.redeem(token).unwrap_err(),
            RedeemError::Stale {
                token: token.into()
            }
        );
    }
}

/// Notes how many tags are in use when it is called.
struct Looks(TagSet<usize>, Mutex<Vec<usize>>);
impl Wake for Looks {
    fn wake(self: Arc<Self>) {
        let in_use = self.0.in_use();
        self.1.lock().push(in_use);
    }
}

/// All uses have ended before the first waiter is woken, and each waiter that can
/// be served is.
#[test]
fn c24_the_first_waiter_is_woken_after_the_last_use_has_ended() {
    for waiting in [1, 3, 8] {
        let set = set(1, 8, Admission::WholeIo);
        let dev = set.add_tenant("q").unwrap();
        let tags = dev.try_alloc_batch(8);
        let looks = Arc::new(Looks(set.clone(), Mutex::new(Vec::new())));
        let waker = Waker::from(looks.clone());
        let mut waiters: Vec<_> = (0..waiting)
            .map(|_| waits(&dev, AllocOptions::new(), &waker))
            .collect();
        Tag::free_batch(tags);
        let seen = looks.1.lock().clone();
        assert!(!seen.is_empty());
        assert!(seen.iter().all(|&in_use| in_use == 0), "{seen:?}");
        let got: Vec<_> = waiters.iter_mut().filter_map(ready).collect();
        assert_eq!(got.len(), waiting, "nobody is forgotten");
    }
}

/// More than a CPU keeps for itself, and as many as there are: each tag once, and each freed once.
#[test]
fn c24_a_batch_may_be_larger_than_a_cpus_own_stack() {
    for tenants in [1, 2] {
        let set = TagSet::builder().depth(300).build(|_, tag| tag).unwrap();
        let devs: Vec<_> = (0..tenants)
            .map(|n| set.add_tenant(n.to_string()).unwrap())
            .collect();
        for n in [1, 31, 33, 200, 300] {
            let tags = devs[0].try_alloc_batch(n);
            let numbers: BTreeSet<_> = tags.iter().map(Tag::index).collect();
            assert_eq!((tags.len(), numbers.len()), (n, n), "{tenants} tenants");
            assert!(tags.iter().all(|tag| **tag == tag.index()));
            let rest = devs[0].try_alloc_batch(301);
            assert_eq!(rest.len(), 300 - n, "as many as there are");
            Tag::free_batch(tags.into_iter().chain(rest));
            assert!(set.try_freeze().is_ok(), "none is left");
        }
        let (allocs, frees) = (set.stats().allocs, set.stats().frees);
        assert_eq!((allocs, frees), (5 * 300, 5 * 300));
        assert_eq!(devs[0].stats().allocs, 5 * 300);
    }
}

/// A waker panics at the first group: the other groups are freed, and their waiters served.
#[test]
fn c24_h24_a_panicking_waker_loses_nothing() {
    for admission in [Admission::WholeIo, Admission::preempt()] {
        let set = set(3, 40, admission);
        let dev = set.add_tenant("q").unwrap();
        let mut tags = Vec::new();
        for hw_queue in 0..3 {
            tags.extend(dev.try_alloc_batch_with(40, on(hw_queue)).unwrap());
        }
        let panics = Arc::new(Panics(AtomicUsize::new(0)));
        let waker = Waker::from(panics.clone());
        let mut waiters: Vec<_> = (0..3).map(|n| waits(&dev, on(n), &waker)).collect();
        let freed = catch_unwind(AssertUnwindSafe(|| Tag::free_batch(tags)));
        let message = freed.unwrap_err();
        assert_eq!(message.downcast_ref(), Some(&"the waker's panic"));
        assert_eq!(panics.0.load(Ordering::Relaxed), 3, "all are told");
        assert_eq!(set.in_use(), 0);
        let got: Vec<_> = waiters.iter_mut().filter_map(ready).collect();
        assert_eq!(got.len(), 3);
    }
}

/// Each tenant's count falls by its own tags, also if they come mixed.
#[test]
fn c24_the_tenants_counts_fall_first() {
    let set = set(1, 24, Admission::WholeIo);
    let devs = ["a", "b", "c"].map(|name| set.add_tenant(name).unwrap());
    let first: Vec<_> = devs
        .iter()
        .map(|dev| dev.try_alloc_with(on(0)).unwrap())
        .collect();
    drop(first);
    let mut tags = Vec::new();
    for _ in 0..8 {
        tags.extend(devs.iter().map(|dev| dev.try_alloc_with(on(0)).unwrap()));
    }
    assert_eq!(devs.each_ref().map(|dev| dev.counted(0)), [8; 3]);
    assert!(
        devs[0].try_alloc_with(on(0)).is_err(),
        "its share is 8 of 24"
    );
    let kept = tags.split_off(21);
    Tag::free_batch(tags);
    assert_eq!(devs.each_ref().map(|dev| dev.counted(0)), [1; 3]);
    let again = devs[0].try_alloc_batch(24);
    assert_eq!(again.len(), 7);
    Tag::free_batch(again.into_iter().chain(kept));
    assert_eq!(devs.each_ref().map(|dev| dev.counted(0)), [0; 3]);
}

/// A payload whose drop panics, after the last handle is gone: the others are dropped all the same.
#[test]
fn c24_the_last_tags_of_a_set_free_it() {
    struct Payload(Arc<AtomicUsize>, bool);
    impl Drop for Payload {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            assert!(!self.1, "the payload's panic");
        }
    }
    for panics in [false, true] {
        let dropped = Arc::new(AtomicUsize::new(0));
        let set = TagSet::builder().depth(5).build({
            let dropped = dropped.clone();
            move |_, tag| Payload(dropped.clone(), panics && tag == 2)
        });
        let set = set.unwrap();
        let tags = set.add_tenant("q").unwrap().try_alloc_batch(4);
        drop(set);
        assert_eq!(dropped.load(Ordering::Relaxed), 1, "the one nobody held");
        let freed = catch_unwind(AssertUnwindSafe(|| Tag::free_batch(tags)));
        assert_eq!(freed.is_err(), panics);
        assert_eq!(dropped.load(Ordering::Relaxed), 5);
        assert_eq!(Arc::strong_count(&dropped), 1, "the set is gone");
    }
}

/// Takes whatever is free when it is called.
struct Grabs(Tenant<usize>, Mutex<Vec<Vec<Tag<usize>>>>);
impl Wake for Grabs {
    fn wake(self: Arc<Self>) {
        let free = self.0.try_alloc_batch(8);
        self.1.lock().push(free);
    }
}

/// One put: who is woken first finds the whole group.
#[test]
fn c24_the_first_who_is_woken_finds_all_of_them() {
    let set = set(1, 8, Admission::preempt());
    let dev = set.add_tenant("q").unwrap();
    let tags = dev.try_alloc_batch(8);
    let grabs = Arc::new(Grabs(dev.clone(), Mutex::new(Vec::new())));
    let waker = Waker::from(grabs.clone());
    let mut waiter = waits(&dev, AllocOptions::new(), &waker);
    Tag::free_batch(tags);
    let found = std::mem::take(&mut *grabs.1.lock());
    assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [8]);
    found.into_iter().for_each(Tag::free_batch);
    assert!(ready(&mut waiter).is_some());
}

#[test]
fn a_batch_that_got_some_tags_is_not_counted_as_refused() {
    for hw_queues in [1, 2] {
        let set = TagSet::builder().hw_queues(hw_queues).depth(4).reserved(1);
        let set = set.build(|_, _| ()).unwrap();
        let dev = set.add_tenant("q").unwrap();
        let plain = AllocOptions::new();
        for options in [plain, plain.reserved()] {
            let options = options.hw_queue(0);
            assert!(!dev.try_alloc_batch_with(9, options).unwrap().is_empty());
        }
        // The short way, where there is one.
        let tags = dev.try_alloc_batch(9);
        assert_eq!((tags.len(), dev.stats().exhausted), (3, 0));
        let refused = dev.try_alloc_batch_with(9, plain.hw_queue(tags[0].hw_queue()));
        assert_eq!(refused.unwrap_err(), AllocError::Exhausted);
        assert_eq!(dev.stats().exhausted, 1);
        drop(tags);
        let _frozen = set.freeze_blocking();
        assert!(dev.try_alloc_batch(9).is_empty());
        assert!(dev.try_alloc_batch_with(9, plain.hw_queue(7)).is_err());
        let stats = dev.stats();
        assert_eq!((stats.exhausted, stats.frozen), (1, 1), "no mistakes");
    }
}
