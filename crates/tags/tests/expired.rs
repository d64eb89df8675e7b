//! Waiting for requests whose time is up, as tasks.
#![cfg(not(any(loom, shuttle)))]

use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, block_on, thread};
use inflight_tags::{Clock, ExpiredOwned, RedeemError, TagSet};
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Counts how often it wakes.
#[derive(Default)]
struct Count(AtomicUsize);
impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Two tasks wait and each late request goes to one of them. They end when the set is closed and
/// its last tag is freed.
#[test]
fn each_late_request_goes_to_one_task() {
    let set = TagSet::builder().depth(8).timeout(Duration::from_millis(1));
    let set: TagSet<()> = set.build(|_, _| ()).unwrap();
    let dev = set.add_tenant("sda").unwrap();
    let tokens: BTreeSet<u64> = dev
        .try_alloc_batch(8)
        .into_iter()
        .map(|tag| tag.into_token())
        .collect();
    let tasks: Vec<_> = (0..2)
        .map(|_| {
            let mut timeouts = set.expired_owned();
            thread::spawn(move || {
                let mut told = Vec::new();
                block_on(async {
                    while let Some(late) = poll_fn(|cx| timeouts.poll_expired(cx)).await {
                        told.extend(late.token());
                        drop(late.redeem().unwrap());
                    }
                });
                let again = block_on(poll_fn(|cx| timeouts.poll_expired(cx)));
                assert!(again.is_none(), "it has ended");
                told
            })
        })
        .collect();
    set.close();
    let told: Vec<u64> = tasks.into_iter().flat_map(|t| t.join().unwrap()).collect();
    assert_eq!(told.len(), 8);
    assert_eq!(BTreeSet::from_iter(told), tokens);
}

/// However many tasks wait, one thread of the set's sleeps for them.
#[test]
fn tasks_that_wait_share_one_thread() {
    let clock = Clock::manual();
    let set = TagSet::builder().depth(8).clock(clock.clone());
    let set: TagSet<()> = set.build(|_, _| ()).unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let mut owned: Vec<ExpiredOwned<()>> = (0..8).map(|_| set.expired_owned()).collect();
    for timeouts in &mut owned {
        assert!(timeouts.poll_expired(&mut cx).is_pending());
    }
    let mut borrowed = pin!(set.expired());
    assert!(borrowed.as_mut().poll(&mut cx).is_pending());
    while clock.sleepers() == 0 {
        thread::yield_now();
    }
    assert_eq!(clock.sleepers(), 1);
    let _token = set
        .add_tenant("sda")
        .unwrap()
        .try_alloc()
        .unwrap()
        .into_token();
    clock.advance(30 * SECOND);
    assert!(borrowed.as_mut().poll(&mut cx).is_ready());
}

/// By a clock that stands: nobody looks again by himself.
#[test]
fn a_close_wakes_who_waits_for_timeouts_of_an_idle_set() {
    let clock = Clock::manual();
    let set = TagSet::builder().depth(8).clock(clock.clone());
    let set: TagSet<()> = set.build(|_, _| ()).unwrap();
    let thread = thread::spawn({
        let set = set.clone();
        move || set.expired_blocking().is_none()
    });
    let mut owned = set.expired_owned();
    let owned = thread::spawn(move || block_on(poll_fn(|cx| owned.poll_expired(cx))).is_none());
    let borrowed = thread::spawn({
        let set = set.clone();
        move || block_on(set.expired()).is_none()
    });
    while clock.sleepers() < 2 {
        thread::yield_now(); // one sleeps itself, one for both tasks
    }
    set.close();
    for ended in [thread, owned, borrowed] {
        assert!(ended.join().unwrap(), "the end");
    }
}

/// Who waits for timeouts is woken by one that is shorter than all before, and from then on looks
/// as often.
#[test]
fn a_shorter_timeout_wakes_who_waits_for_timeouts() {
    let clock = Clock::manual();
    let set = TagSet::builder().depth(2).clock(clock.clone());
    let set: TagSet<()> = set.build(|_, _| ()).unwrap();
    let dev = set.add_tenant("sda").unwrap();
    let count = Arc::new(Count::default());
    let wakes = || count.0.load(Ordering::Relaxed);
    let waker = Waker::from(count.clone());
    let mut cx = Context::from_waker(&waker);
    let mut expired = pin!(set.expired());
    assert!(expired.as_mut().poll(&mut cx).is_pending());
    let short = Duration::from_millis(50);
    let mut tag = dev.try_alloc().unwrap();
    tag.set_timeout(short);
    assert_eq!(wakes(), 1);
    assert!(expired.as_mut().poll(&mut cx).is_pending(), "not submitted");
    tag.set_timeout(2 * short);
    assert_eq!(wakes(), 1, "a longer one changes nothing");
    let token = tag.into_token();
    clock.advance(short);
    while wakes() < 2 {
        thread::yield_now(); // the set's thread wakes it
    }
    assert!(expired.as_mut().poll(&mut cx).is_pending(), "half its time");
    clock.advance(short);
    let Poll::Ready(Some(late)) = expired.as_mut().poll(&mut cx) else {
        panic!("its time is up");
    };
    assert_eq!(late.token(), Some(token));
    drop(late.redeem().unwrap());
}

#[test]
fn each_request_expires_once_at_its_own_time() {
    let clock = Clock::manual();
    let limit = Duration::from_secs(5);
    let set = TagSet::builder().depth(4).clock(clock.clone());
    let set = set.timeout(limit).build(|_, _| ()).unwrap();
    let dev = set.add_tenant("q").unwrap();
    let alloc = || dev.try_alloc().unwrap();
    assert_eq!(set.expire(|_| panic!("nothing is in flight")), None);
    let mut short = alloc();
    short.set_timeout(Duration::from_secs(1));
    let (short, usual, held) = (short.into_token(), alloc().into_token(), alloc());
    let expired = || {
        let mut tokens = BTreeSet::new();
        let next = set.expire(|token| assert!(tokens.insert(token)));
        (tokens, next)
    };
    clock.advance(Duration::from_secs(1));
    let last = clock.now() + Duration::from_secs(4);
    assert_eq!(expired(), ([short].into(), Some(last)));
    assert_eq!(expired(), ([].into(), Some(last)), "once");

    // A freeze waits for what has expired until somebody takes it.
    assert!(set.try_freeze().is_err());
    drop(set.redeem_timed_out(short).unwrap());
    // The slot's next use has the usual time again, and so has a second submission.
    let again = alloc().into_token();
    clock.advance(Duration::from_secs(4));
    let next = Some(clock.now() + Duration::from_secs(1));
    assert_eq!(expired(), ([usual].into(), next));
    drop(set.redeem(again).unwrap());
    let tag = set.redeem_timed_out(usual).unwrap();
    let usual = tag.into_token();
    let next = Some(clock.now() + limit);
    assert_eq!(expired(), ([].into(), next), "submitted anew");
    drop((set.redeem(usual).unwrap(), held));
    assert_eq!(expired(), ([].into(), None));
    assert!(set.try_freeze().is_ok());
}

/// Its owner has the tag: nobody has redeemed anything, and nobody can.
#[test]
fn there_is_nothing_to_redeem_of_a_tracked_tag() {
    let set = TagSet::builder().depth(1).timeout(Duration::ZERO);
    let set = set.build(|_, _| ()).unwrap();
    let mut tag = set.add_tenant("q").unwrap().try_alloc().unwrap();
    let id = tag.track();
    let late = set.try_expired().expect("its time is up");
    assert_eq!((late.id(), late.token()), (id, None));
    assert!(set.redeem(id).is_err(), "no token");
    let refused = late.redeem().unwrap_err();
    assert!(matches!(refused, RedeemError::Held { .. }), "{refused:?}");
    let said = refused.to_string();
    assert!(
        said.contains("held") && !said.contains("redeemed"),
        "{said}"
    );
    assert!(tag.is_overdue() && set.in_use() == 1, "its owner has it");
    let ids = [tag.track(), tag.track()];
    assert!(
        ids[0] != ids[1] && !ids.contains(&id),
        "each time another one"
    );
    assert_eq!(set.try_expired().expect("anew").id(), ids[1]);
}

/// `expire` has nobody to tell of it.
#[test]
fn a_tracked_tag_is_left_to_who_can_be_told_of_it() {
    let clock = Clock::manual();
    let set = TagSet::builder().depth(2).clock(clock.clone());
    let set = set.build(|_, _| ()).unwrap();
    let dev = set.add_tenant("q").unwrap();
    let mut tag = dev.try_alloc().unwrap();
    let id = tag.track();
    assert_eq!(
        set.expire(|_| panic!("early")),
        Some(clock.now() + 30 * SECOND)
    );
    let token = dev.try_alloc().unwrap().into_token();
    clock.advance(30 * SECOND);
    let mut late = Vec::new();
    assert_eq!(set.expire(|token| late.push(token)), None);
    assert!(late == [token] && !tag.is_overdue(), "{late:?}");
    let told: Vec<_> = set.iter_expired().map(|late| late.id()).collect();
    assert!(told == [id] && tag.is_overdue(), "{told:?}");
    drop(set.redeem_timed_out(token).unwrap());
}

/// A request whose handler gave up is not told again, and its tag is to be had by its token.
#[test]
fn an_expired_request_that_is_dropped() {
    let set = TagSet::builder().depth(1).timeout(Duration::ZERO);
    let set = set.build(|_, _| ()).unwrap();
    let token = set.add_tenant("q").unwrap().try_alloc().unwrap();
    let token = token.into_token();
    drop(set.try_expired().expect("its time is up"));
    assert!(set.try_expired().is_none() && set.try_freeze().is_err());
    let mut marked = Vec::new();
    set.for_each_in_flight(|t| marked.push((t.token(), t.is_timed_out())));
    assert_eq!(marked, [(token, true)]);
    drop(set.redeem_timed_out(token).unwrap());
    assert!(set.try_freeze().is_ok());
}

#[test]
fn a_timeout_of_nothing_is_over_at_once() {
    let set = TagSet::builder().depth(1).build(|_, _| ()).unwrap();
    let dev = set.add_tenant("q").unwrap();
    // The system's clock: a stamp lies anywhere within its tick.
    for _ in 0..10_000 {
        let mut tag = dev.try_alloc().unwrap();
        tag.set_timeout(Duration::ZERO);
        let token = tag.into_token();
        set.expire(|late| assert_eq!(late, token));
        drop(set.redeem_timed_out(token).unwrap());
    }
}

/// However short the timeout, who waits while no request is in flight does not look all the time.
#[test]
fn who_waits_in_an_idle_set_sleeps() {
    let clock = Clock::manual();
    let set = TagSet::builder().depth(1).timeout(Duration::ZERO);
    let set: TagSet<()> = set.clock(clock.clone()).build(|_, _| ()).unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let mut expired = pin!(set.expired());
    // The clock stands: a poll that does not sleep looks for ever.
    assert!(expired.as_mut().poll(&mut cx).is_pending());
    let token = set
        .add_tenant("sda")
        .unwrap()
        .try_alloc()
        .unwrap()
        .into_token();
    clock.advance(Duration::from_millis(10));
    let mut expired = pin!(set.expired());
    let Poll::Ready(Some(late)) = expired.as_mut().poll(&mut cx) else {
        panic!("its time is up");
    };
    assert_eq!(late.token(), Some(token));
    drop(late.redeem().unwrap());
}

/// Nothing expires in a set without ages, so a timeout of a request wakes nobody.
#[test]
fn a_timeout_in_a_set_without_ages_wakes_nobody() {
    let set = TagSet::builder()
        .depth(1)
        .ages(false)
        .clock(Clock::manual());
    let set: TagSet<()> = set.build(|_, _| ()).unwrap();
    let mut tag = set.add_tenant("sda").unwrap().try_alloc().unwrap();
    let wakes = Arc::new(Count::default());
    let waker = Waker::from(wakes.clone());
    let mut cx = Context::from_waker(&waker);
    let mut expired = pin!(set.expired());
    assert!(expired.as_mut().poll(&mut cx).is_pending());
    tag.set_timeout(Duration::ZERO);
    assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
}

/// Who waits for the end of a freeze is not woken by a timeout, nor who waits for timeouts by the
/// end of a freeze.
#[test]
fn timeouts_and_freezes_wake_their_own_waiters() {
    let set = TagSet::builder().depth(2).clock(Clock::manual());
    let set: TagSet<()> = set.build(|_, _| ()).unwrap();
    let dev = set.add_tenant("sda").unwrap();
    let mut tag = dev.try_alloc().unwrap();
    let quiesced = set.quiesce();
    let counts = [(); 2].map(|()| Arc::new(Count::default()));
    let wakes = || {
        counts
            .each_ref()
            .map(|count| count.0.load(Ordering::Relaxed))
    };
    let wakers = counts.each_ref().map(|count| Waker::from(count.clone()));
    let mut expired = pin!(set.expired());
    let mut cx = Context::from_waker(&wakers[0]);
    assert!(expired.as_mut().poll(&mut cx).is_pending());
    let mut alloc = pin!(dev.alloc());
    let mut cx = Context::from_waker(&wakers[1]);
    assert!(alloc.as_mut().poll(&mut cx).is_pending());
    tag.set_timeout(Duration::from_millis(1));
    assert_eq!(wakes(), [1, 0]);
    drop(quiesced);
    assert_eq!(wakes(), [1, 1]);
}
