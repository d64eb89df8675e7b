//! Models of admission and shares (`src/split/`, `src/shares/`; C1 to C3 and M1
//! to M4 of PROTOCOL-shares.md, E1 and E2 of the bitmap's PROTOCOL.md), driving the shipped set.
//!
//! Seen to fail, at the quick bound; "in turns" is the wait queue of `WholeIo`, "in batches"
//! those of the other policies:
//!
//! | weaken | fails |
//! |---|---|
//! | P2, in turns | `h16_reserved` |
//! | V2, in turns | `h16_reserved`, `h9_a_share_that_grows` |
//! | M3 serves nobody, or before the tenant is inactive | `h9_a_share_that_grows` |
//! | the wake batch ignores shares | `h9_a_weight_makes_the_batch_smaller` |
//! | nobody looks again when shares change, in batches | `h9_a_weight_makes_the_batch_larger` |
//! | M4, the fence of `serve` | `h9_a_share_that_grows` |
//! | the AcqRel of a handle's drop | `h9_handles_leave_a_tag` |
//! | who leaves gives up its account before it is marked off | `h9_an_account_changes_hands` |
//! | `may_take` not asked for the next, in turns | `h9_shares`, `h9_a_share_that_grows` |
//! | `may_take` not asked for whom to wake, in batches | `h9_shares_in_batches` |
//! | C1, a try does not look at its share | `h32_overshoot` |
//! | C2 does not count | `h32_overshoot`, `h9_shares`, `h9_shares_in_batches` |
//! | C2 or C3 by a load and a store | `h32_overshoot` |
//! | C3 does not count | `h32_overshoot`, `h9_shares`, `h9_shares_in_batches` |
//! | C3 after P1 | `h9_shares`, `h9_shares_in_batches` |
//! | who wants a reserved bit waits where normal ones come | `h16_reserved` |
//! | a wait that is dropped tells no freezer | `h24_split_against_freeze` |
//! | a wait that is dropped does not put what it was granted | `h24_*`, `h25_*` |
//! | a split that is dropped between its parts does not leave | `h25_*` |
//! | a freeze does not take back what a join has | `h25_joins_and_a_freeze` |
//! | who blocks is told as the task that it was, in batches | `h25_a_task_goes_on_as_a_thread` |
//! | S2, in batches | `h2[678]_*`, `h9_shares_in_batches` |
//! | P2, in batches | `h26_*`, `h9_shares_in_batches` |
//! | S3, a newcomer does not look again among those who wait | `h2[678]_*`, `h9_shares_in_batches` |
//! | E2, nobody is let in because too few tags are in use | `h26_newcomers_meet` |
//! | a wake whose receiver is dropped goes to nobody | `h28_over_count` |
//!
//! Not seen here but by tests on one thread (`split.rs`, and in `src/shares/accounts.rs`): a wake
//! worth several tags of which only one is handed on, newcomers who count those that were woken
//! (E2), an owner that stays on a bit (C3).

#![cfg(loom)]

use inflight_sync::model::{Bound, check};
use inflight_sync::{block_on, thread};
use inflight_tags::{
    Admission, AllocOptions, Force, NoPreempt, SharePolicy, Tag, TagSet, WakeAccounting,
};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

const THREE: Bound = Bound {
    quick: Some(3),
    deep: Some(4),
};
const ONE_OR_THREE: Bound = Bound {
    quick: Some(1),
    deep: Some(3),
};
const TWO: Bound = Bound {
    quick: Some(2),
    deep: Some(3),
};

const UNBOUNDED: Bound = Bound {
    quick: None,
    deep: None,
};

/// For models of two waiters and two tags.
const ONE: Bound = Bound {
    quick: Some(1),
    deep: Some(2),
};

const PLAIN: AllocOptions = AllocOptions::new();

fn is_pending<F: Future>(future: Pin<&mut F>) -> bool {
    matches!(
        future.poll(&mut Context::from_waker(Waker::noop())),
        Poll::Pending
    )
}

fn set(depth: usize, admission: Admission) -> TagSet<()> {
    let set = TagSet::builder().depth(depth).ages(false);
    let set = set.share(SharePolicy::Fair { min: 1 }).admission(admission);
    set.build(|_, _| ()).unwrap()
}

fn strict(accounting: WakeAccounting) -> Admission {
    let rules = NoPreempt::default().threshold(0).force(Force::Never);
    Admission::NoPreempt(rules.accounting(accounting))
}

/// Two tenants with a share of one each: what one gives back goes to its own waiter, past the
/// other's, who came first.
fn shares(admission: Admission) {
    let set = set(2, admission);
    let (a, b) = (set.add_tenant("a").unwrap(), set.add_tenant("b").unwrap());
    // From now on both are active, and their tags counted.
    drop((a.try_alloc(), b.try_alloc()));
    let (tag_a, tag_b) = (a.try_alloc().unwrap(), b.try_alloc().unwrap());
    assert_eq!((a.counted(0), b.counted(0)), (1, 1));
    let extra = pin!(b.alloc());
    assert!(is_pending(extra));
    let waiter = thread::spawn({
        let a = a.clone();
        move || drop(a.alloc_blocking().unwrap())
    });
    drop(tag_a);
    waiter.join().unwrap();
    drop(tag_b);
}

#[test]
fn h9_shares() {
    check("h9_shares", THREE, || shares(Admission::WholeIo));
}

#[test]
fn h9_shares_in_batches() {
    check("h9_shares_in_batches", TWO, || shares(Admission::preempt()));
}

/// Two tenants of 16 tags each, so a batch is of two. Both tags of one come back while its waiter
/// comes to wait: the second completes the batch.
#[test]
fn h9_a_batch_of_two() {
    check("h9_a_batch_of_two", ONE_OR_THREE, || {
        let set = set(32, Admission::preempt());
        let (a, b) = (set.add_tenant("a").unwrap(), set.add_tenant("b").unwrap());
        drop((a.try_alloc(), b.try_alloc()));
        let mut held = a.try_alloc_batch(32);
        assert_eq!(held.len(), 16);
        let two = held.split_off(14);
        let waiter = thread::spawn({
            let a = a.clone();
            move || drop(a.alloc_blocking().unwrap())
        });
        two.into_iter().for_each(drop);
        waiter.join().unwrap();
        Tag::free_batch(held);
    });
}

/// A waiter is at its share of one, and the share grows, and the batch with it: no put is to come.
#[test]
fn h9_a_weight_makes_the_batch_larger() {
    check("h9_a_weight_makes_the_batch_larger", TWO, || {
        let set = TagSet::builder()
            .depth(32)
            .ages(false)
            .admission(Admission::preempt());
        let set = set.share(SharePolicy::Weighted { min: 1 });
        let set = set.build(|_, _| ()).unwrap();
        let (heavy, light) = (
            set.add_tenant("heavy").unwrap(),
            set.add_tenant("light").unwrap(),
        );
        drop(heavy.try_alloc());
        heavy.set_weight(31).unwrap();
        let held = light.try_alloc().unwrap();
        let waiter = thread::spawn({
            let light = light.clone();
            move || drop(light.alloc_blocking().unwrap())
        });
        heavy.set_weight(1).unwrap();
        waiter.join().unwrap();
        drop(held);
    });
}

/// The waiter's share becomes a single tag while it comes to wait and its tag is put: the batch
/// of two of before holds no wake back.
#[test]
fn h9_a_weight_makes_the_batch_smaller() {
    check("h9_a_weight_makes_the_batch_smaller", TWO, || {
        let set = TagSet::builder()
            .depth(32)
            .ages(false)
            .admission(Admission::preempt());
        let set = set.share(SharePolicy::Weighted { min: 1 });
        let set = set.build(|_, _| ()).unwrap();
        let (heavy, light) = (
            set.add_tenant("heavy").unwrap(),
            set.add_tenant("light").unwrap(),
        );
        drop(heavy.try_alloc());
        let held = light.try_alloc().unwrap();
        let waiter = thread::spawn({
            let light = light.clone();
            move || drop(light.alloc_blocking().unwrap())
        });
        heavy.set_weight(31).unwrap();
        assert_eq!(light.share(0), Some(1));
        drop(held);
        waiter.join().unwrap();
    });
}

/// A tenant leaves while another comes, which may get its account: the newcomer's share is kept.
#[test]
fn h9_an_account_changes_hands() {
    check("h9_an_account_changes_hands", TWO, || {
        let set = set(3, Admission::WholeIo);
        let (stays, leaves) = (
            set.add_tenant("stays").unwrap(),
            set.add_tenant("leaves").unwrap(),
        );
        // From now on both are active.
        let held = stays.try_alloc();
        drop(leaves.try_alloc());
        let leaver = thread::spawn(move || drop(leaves));
        let comes = set.add_tenant("comes").unwrap();
        let tag = comes.try_alloc();
        leaver.join().unwrap();
        assert_eq!((stays.share(0), comes.share(0)), (Some(2), Some(2)));
        drop((held, tag));
    });
}

/// Two handles of a tenant are dropped, one of them with a tag in flight, and another tenant comes:
/// the tag is on no account of the newcomer's.
#[test]
fn h9_handles_leave_a_tag() {
    check("h9_handles_leave_a_tag", TWO, || {
        let set = set(3, Admission::WholeIo);
        let (stays, leaves) = (
            set.add_tenant("stays").unwrap(),
            set.add_tenant("leaves").unwrap(),
        );
        // From now on both are active.
        let held = stays.try_alloc();
        drop(leaves.try_alloc());
        let submitter = thread::spawn({
            let leaves = leaves.clone();
            move || leaves.try_alloc().unwrap().into_token()
        });
        let leaver = thread::spawn(move || drop(leaves));
        let comes = set.add_tenant("comes").unwrap();
        let token = submitter.join().unwrap();
        leaver.join().unwrap();
        assert_eq!(comes.counted(0), 0);
        drop((set.redeem(token), held));
    });
}

/// A second tenant comes while the first one's waiter is served: whoever counts the tag, it is off
/// the account when it is back.
#[test]
fn h9_a_second_tenant_comes() {
    check("h9_a_second_tenant_comes", TWO, || {
        let set = set(1, Admission::WholeIo);
        let a = set.add_tenant("a").unwrap();
        let held = a.try_alloc().unwrap();
        let mut waiting = pin!(a.alloc());
        assert!(is_pending(waiting.as_mut()));
        let second = thread::spawn({
            let set = set.clone();
            move || drop(set.add_tenant("b").unwrap().try_alloc())
        });
        drop(held);
        match waiting.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(tag) => drop(tag.unwrap()),
            Poll::Pending => panic!("nobody else waits"),
        }
        second.join().unwrap();
        assert_eq!((set.in_use(), a.counted(0)), (0, 0));
    });
}

/// A tag is free, and its waiter at its limit; then the other tenant goes.
#[test]
fn h9_a_share_that_grows() {
    check("h9_a_share_that_grows", THREE, || {
        let set = set(2, Admission::WholeIo);
        let (a, b) = (set.add_tenant("a").unwrap(), set.add_tenant("b").unwrap());
        drop(b.try_alloc().unwrap());
        let held = a.try_alloc().unwrap();
        let waiter = thread::spawn({
            let a = a.clone();
            move || drop(a.alloc_blocking().unwrap())
        });
        drop(b);
        waiter.join().unwrap();
        drop(held);
    });
}

/// Who waits for a reserved tag is told of it, and needs no normal one.
#[test]
fn h16_reserved() {
    check("h16_reserved", UNBOUNDED, || {
        let set = TagSet::builder().depth(2).reserved(1).ages(false);
        let dev = set.build(|_, _| ()).unwrap().add_tenant("q").unwrap();
        let held = dev.try_alloc_with(PLAIN.reserved()).unwrap();
        let _normal = dev.try_alloc().unwrap();
        let waiter = thread::spawn({
            let dev = dev.clone();
            move || drop(dev.alloc_blocking_with(PLAIN.reserved()).unwrap())
        });
        drop(held);
        waiter.join().unwrap();
    });
}

/// A split that has been granted what it waited for, and is dropped, is nobody the freezer waits
/// for.
#[test]
fn h24_split_against_freeze() {
    check("h24_split_against_freeze", TWO, || {
        let set = set(1, Admission::WholeIo);
        let dev = set.add_tenant("q").unwrap();
        let held = dev.try_alloc().unwrap();
        let mut split = dev.split(1);
        let freezer = thread::spawn({
            let set = set.clone();
            move || drop(set.freeze_blocking())
        });
        {
            let next = pin!(split.next());
            let _ = is_pending(next);
            drop(held);
        }
        drop(split);
        freezer.join().unwrap();
        assert_eq!(set.in_use(), 0);
    });
}

/// A split is dropped before it has a tag, or between its two parts. Whoever waits behind it gets
/// one.
#[test]
fn h25_a_split_leaves_the_line() {
    check("h25_a_split_leaves_the_line", ONE, || {
        let set = set(2, Admission::WholeIo);
        let dev = set.add_tenant("q").unwrap();
        let held = [(); 2].map(|()| dev.try_alloc().unwrap());
        let mut split = dev.split(2);
        let mut next = Box::pin(split.next());
        assert!(is_pending(next.as_mut()));
        let waiter = thread::spawn({
            let dev = dev.clone();
            move || drop(dev.alloc_blocking().unwrap())
        });
        drop(held);
        let first = next.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(next);
        drop(first);
        drop(split);
        waiter.join().unwrap();
        assert_eq!(dev.try_alloc_batch(9).len(), 2);
    });
}

/// Two that want both tags: each gets both, and a freeze waits for neither.
#[test]
fn h25_joins_and_a_freeze() {
    check("h25_joins_and_a_freeze", ONE, || {
        let set = set(2, Admission::WholeIo);
        let dev = set.add_tenant("a").unwrap();
        let other = thread::spawn({
            let dev = dev.clone();
            move || assert_eq!(dev.split(2).join_blocking().unwrap().len(), 2)
        });
        drop(set.freeze_blocking());
        assert_eq!(block_on(dev.split(2).join()).unwrap().len(), 2);
        other.join().unwrap();
        assert_eq!(set.in_use(), 0);
    });
}

fn policies() -> [(&'static str, Admission); 4] {
    [
        ("whole_io", Admission::WholeIo),
        ("preempt", Admission::preempt()),
        ("no_preempt", strict(WakeAccounting::PerTag)),
        ("overcommit", Admission::elastic_overcommit(1)),
    ]
}

/// A split is polled, and then waits as a thread: whoever puts meanwhile tells the one or the
/// other, and the thread finds out.
#[test]
fn h25_a_task_goes_on_as_a_thread() {
    for (name, policy) in policies() {
        check(
            &format!("h25_a_task_goes_on_as_a_thread/{name}"),
            TWO,
            move || {
                let dev = set(1, policy).add_tenant("q").unwrap();
                let held = dev.try_alloc().unwrap();
                let mut split = dev.split(1);
                let mut cx = Context::from_waker(Waker::noop());
                assert!(split.poll_next(&mut cx).is_pending());
                let putter = thread::spawn(move || drop(held));
                assert!(split.next_blocking().unwrap().is_some());
                putter.join().unwrap();
                assert_eq!(dev.try_alloc_batch(9).len(), 1);
            },
        );
    }
}

/// The other way round, between two parts.
#[test]
fn h25_a_thread_goes_on_as_a_task() {
    for (name, policy) in policies() {
        check(
            &format!("h25_a_thread_goes_on_as_a_task/{name}"),
            ONE,
            move || thread_then_task(policy, false),
        );
    }
}

/// Another thread waits behind it, who may be served only when nobody is under way before it.
#[test]
fn h25_a_thread_behind_a_task() {
    check("h25_a_thread_behind_a_task", ONE, || {
        thread_then_task(Admission::WholeIo, true);
    });
}

fn thread_then_task(policy: Admission, is_behind: bool) {
    let dev = set(2, policy).add_tenant("q").unwrap();
    let held = [(); 2].map(|()| dev.try_alloc().unwrap());
    let mut split = dev.split(2);
    let putter = thread::spawn(move || drop(held));
    let first = split.next_blocking().unwrap();
    let behind = is_behind.then(|| {
        let dev = dev.clone();
        thread::spawn(move || drop(dev.alloc_blocking().unwrap()))
    });
    let second = block_on(poll_fn(|cx| split.poll_next(cx)));
    drop((first, second));
    behind.into_iter().for_each(|behind| behind.join().unwrap());
    putter.join().unwrap();
    assert_eq!(dev.try_alloc_batch(9).len(), 2);
}

/// A split that was polled tries while its tag comes, and is polled again: the grant is not thrown
/// away, nor the wake.
#[test]
fn h25_a_try_between_two_polls() {
    for (name, policy) in policies() {
        check(
            &format!("h25_a_try_between_two_polls/{name}"),
            TWO,
            move || {
                let dev = set(1, policy).add_tenant("q").unwrap();
                let held = dev.try_alloc().unwrap();
                let mut split = dev.split(1);
                let putter = thread::spawn(move || drop(held));
                let tag = block_on(poll_fn(|cx| match split.poll_next(cx) {
                    Poll::Pending => match split.try_next() {
                        Ok(tag) => Poll::Ready(tag.map(Ok)),
                        Err(_) => Poll::Pending,
                    },
                    ready => ready,
                }));
                assert!(tag.unwrap().is_ok());
                putter.join().unwrap();
                assert_eq!(dev.try_alloc_batch(9).len(), 1);
            },
        );
    }
}

/// Newcomers that are not let past: somebody comes to wake each of them.
#[test]
fn h26_no_preempt() {
    check("h26_no_preempt", ONE, || {
        let dev = set(1, strict(WakeAccounting::PerWaiter))
            .add_tenant("q")
            .unwrap();
        let held = dev.try_alloc().unwrap();
        let threads = [(); 2].map(|()| {
            let dev = dev.clone();
            thread::spawn(move || drop(dev.alloc_blocking().unwrap()))
        });
        drop(held);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// One was woken and its future is not polled. Two newcomers see each other wait, and the
/// tag that is free: no put would come to wake them.
#[test]
fn h26_newcomers_meet() {
    check("h26_newcomers_meet", TWO, || {
        let dev = set(1, strict(WakeAccounting::PerWaiter))
            .add_tenant("q")
            .unwrap();
        let held = dev.try_alloc().unwrap();
        let mut woken = Box::pin(dev.alloc());
        assert!(is_pending(woken.as_mut()));
        drop(held);
        let threads = [(); 2].map(|()| {
            let dev = dev.clone();
            thread::spawn(move || drop(dev.alloc_blocking().unwrap()))
        });
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// Woken for two tags, gone without one: both are for the next.
#[test]
fn h27_dropped_after_its_wake() {
    check("h27_dropped_after_its_wake", ONE, || {
        let dev = set(2, strict(WakeAccounting::PerTag))
            .add_tenant("q")
            .unwrap();
        let held = [(); 2].map(|()| dev.try_alloc().unwrap());
        let mut split = dev.split(2);
        let mut next = Box::pin(split.next());
        assert!(is_pending(next.as_mut()));
        let waiter = thread::spawn({
            let dev = dev.clone();
            move || drop(dev.alloc_blocking().unwrap())
        });
        drop(held);
        drop(next);
        drop(split);
        waiter.join().unwrap();
    });
}

/// One was woken and goes without running: neither its wake nor its count keeps a newcomer
/// asleep.
#[test]
fn h28_over_count() {
    check("h28_over_count", TWO, || {
        let dev = set(1, strict(WakeAccounting::PerWaiter))
            .add_tenant("q")
            .unwrap();
        let held = dev.try_alloc().unwrap();
        let mut woken = Box::pin(dev.alloc());
        assert!(is_pending(woken.as_mut()));
        let newcomer = thread::spawn({
            let dev = dev.clone();
            move || drop(dev.alloc_blocking().unwrap())
        });
        drop(held);
        drop(woken);
        newcomer.join().unwrap();
    });
}

/// Two threads of one tenant check at once: one tag above the share at most, none more once they
/// are counted, and the count comes back to nothing.
#[test]
fn h32_overshoot() {
    check("h32_overshoot", ONE, || {
        let set = set(4, Admission::WholeIo);
        let (a, b) = (set.add_tenant("a").unwrap(), set.add_tenant("b").unwrap());
        drop(b.try_alloc().unwrap());
        let first = a.try_alloc().unwrap();
        let share = a.share(0).unwrap();
        assert_eq!(share, 2);
        let thread = thread::spawn({
            let a = a.clone();
            move || a.try_alloc().ok()
        });
        let own = a.try_alloc().ok();
        let other = thread.join().unwrap();
        let got = 1 + usize::from(own.is_some()) + usize::from(other.is_some());
        assert!((2..=share + 1).contains(&got), "{got} of {share}");
        assert_eq!(a.counted(0), got);
        assert!(a.try_alloc().is_err(), "it has its share");
        let thread = thread::spawn(move || drop((first, other)));
        drop(own);
        thread.join().unwrap();
        assert_eq!(a.counted(0), 0);
    });
}
