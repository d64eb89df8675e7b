//! Tenants: shares, and whom a free tag goes to. By counting; nothing here waits for a clock.

#![cfg(not(any(loom, shuttle)))]

use inflight_sbitmap::Engine;
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::{Arc, thread};
use inflight_tags::{
    Admission, AllocError, AllocOptions, NoPreempt, SharePolicy, Tag, TagSet, Tenant,
};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const PLAIN: AllocOptions = AllocOptions::new();

#[derive(Default)]
struct Counts(AtomicUsize);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

type Wait = Pin<Box<dyn Future<Output = Result<Tag<()>, AllocError>>>>;

/// A tenant with tasks that wait, and the tags they got, oldest first.
struct User {
    dev: Tenant<()>,
    waits: VecDeque<Wait>,
    tags: VecDeque<Tag<()>>,
}

impl User {
    fn of(set: &TagSet<()>, name: &str) -> Self {
        Self {
            dev: set.add_tenant(name).unwrap(),
            waits: VecDeque::new(),
            tags: VecDeque::new(),
        }
    }

    fn ask(&mut self, n: usize) {
        for _ in 0..n {
            let dev = self.dev.clone();
            self.waits
                .push_back(Box::pin(async move { dev.alloc().await }));
        }
        self.poll();
    }

    fn poll(&mut self) {
        let waker = Waker::from(Arc::new(Counts::default()));
        let mut cx = Context::from_waker(&waker);
        let tags = &mut self.tags;
        self.waits
            .retain_mut(|wait| match wait.as_mut().poll(&mut cx) {
                Poll::Ready(tag) => {
                    tags.push_back(tag.unwrap());
                    false
                }
                Poll::Pending => true,
            });
    }

    fn try_take(&mut self, n: usize) -> usize {
        let got: Vec<_> = (0..n).map_while(|_| self.dev.try_alloc().ok()).collect();
        let n = got.len();
        self.tags.extend(got);
        n
    }
}

/// Bits in words that all CPUs share, and by CPU.
const ENGINES: [Engine; 2] = [Engine::Shared, Engine::Local];

fn set_on(engine: Engine, depth: usize, policy: SharePolicy) -> TagSet<()> {
    let set = TagSet::builder().engine(engine).depth(depth).share(policy);
    set.clock(Clock::manual()).build(|_, _| ()).unwrap()
}

fn set(depth: usize, policy: SharePolicy) -> TagSet<()> {
    set_on(Engine::Auto, depth, policy)
}

/// The rule of the whole page: seven modest tenants and one that asks for everything.
#[test]
fn a_greedy_tenant_leaves_each_other_its_share() {
    for engine in ENGINES {
        let depth = 64;
        let set = set_on(engine, depth, SharePolicy::default());
        let mut greedy = User::of(&set, "greedy");
        greedy.ask(4 * depth);
        assert_eq!(
            greedy.tags.len(),
            depth,
            "one active tenant has the whole depth"
        );

        let mut others: Vec<_> = (0..7).map(|n| User::of(&set, &n.to_string())).collect();
        for other in &mut others {
            other.ask(20);
            assert!(other.tags.is_empty(), "all tags are in flight");
        }
        // The tags that the greedy one had at that moment complete; nobody else's.
        for _ in 0..depth {
            drop(greedy.tags.pop_front());
            greedy.poll();
            others.iter_mut().for_each(User::poll);
        }
        for other in &others {
            assert_eq!(other.tags.len(), 8, "its share, exactly");
        }
        assert_eq!(greedy.tags.len(), 8);

        // And so it stays, whoever completes.
        for round in 0..400 {
            let which = (round * 5) % 8;
            if which == 7 {
                drop(greedy.tags.pop_front());
            } else {
                let other = &mut others[which];
                drop(other.tags.pop_front());
                other.ask(1);
            }
            greedy.poll();
            others.iter_mut().for_each(User::poll);
            if greedy.waits.is_empty() {
                greedy.ask(8);
            }
            assert_eq!(greedy.tags.len(), 8);
            assert!(others.iter().all(|other| other.tags.len() == 8));
        }
    }
}

#[test]
fn c29_a_share_that_its_tenant_leaves_can_be_used_by_the_others() {
    for engine in ENGINES {
        let set = set_on(engine, 32, SharePolicy::default());
        let (mut a, mut b) = (User::of(&set, "a"), User::of(&set, "b"));
        assert_eq!(b.try_take(1), 1);
        assert_eq!(a.try_take(99), 16, "half of 32, as b is active");
        assert_eq!(a.dev.try_alloc().unwrap_err(), AllocError::Exhausted);
        a.ask(20);
        assert_eq!((a.tags.len(), a.waits.len()), (16, 20));
        b.tags.clear();
        a.poll();
        assert_eq!(a.tags.len(), 16, "b may come back");
        drop(b);
        a.poll();
        assert_eq!(a.tags.len(), 32, "b has gone, and a's waiters were served");
        a.tags.clear();
        a.poll();
        a.waits.clear();
        a.tags.clear();
        assert_eq!(set.in_use(), 0);
    }
}

#[test]
fn c28_an_idle_tenants_share_comes_back_when_its_time_is_up() {
    for engine in ENGINES {
        let clock = Clock::manual();
        let set = TagSet::builder()
            .engine(engine)
            .depth(32)
            .clock(clock.clone());
        let set = set.build(|_, _| ()).unwrap();
        let (mut a, mut b) = (User::of(&set, "a"), User::of(&set, "b"));
        assert_eq!((b.try_take(1), a.try_take(99)), (1, 16));
        b.tags.clear();
        let mut waited = Duration::ZERO;
        while a.try_take(1) == 0 {
            clock.advance(Duration::from_millis(500));
            waited += Duration::from_millis(500);
            assert!(waited <= Duration::from_secs(3), "at most 3 s");
        }
        assert!(waited >= Duration::from_secs(1), "not before it was idle");
        assert_eq!(a.try_take(99), 15);
        assert_eq!(a.dev.share(0), None);
        // It comes back with its next try, which others hear of although it fails.
        assert_eq!(b.try_take(1), 0);
        assert_eq!((a.dev.share(0), b.dev.share(0)), (Some(16), Some(16)));
    }
}

/// Nothing comes back for a long time: who waits meanwhile is not idle, and keeps its share.
#[test]
fn c28_a_tenant_that_waits_is_not_idle() {
    for admission in [Admission::WholeIo, Admission::preempt()] {
        let clock = Clock::manual();
        let set = TagSet::builder().depth(32).clock(clock.clone());
        let set = set.admission(admission).build(|_, _| ()).unwrap();
        let (mut a, mut b) = (User::of(&set, "a"), User::of(&set, "b"));
        assert_eq!((a.try_take(99), b.try_take(1)), (32, 0));
        // Both are active: of what a has now, half counts.
        for _ in 0..16 {
            drop(a.tags.pop_front());
            assert_eq!(a.try_take(1), 1);
        }
        b.ask(4);
        for _ in 0..8 {
            clock.advance(Duration::from_secs(1));
            assert_eq!(a.try_take(1), 0, "a is at its limit, and somebody looks");
        }
        assert_eq!((a.dev.share(0), b.dev.share(0)), (Some(16), Some(16)));
        b.waits.clear();
        for _ in 0..3 {
            clock.advance(Duration::from_secs(1));
            assert_eq!(a.try_take(1), 0, "all are in use");
        }
        assert_eq!(a.dev.share(0), None, "it waits no more");
    }
}

#[test]
fn a_tenant_that_never_asked_has_no_share() {
    for engine in ENGINES {
        let set = set_on(engine, 32, SharePolicy::default());
        let mut a = User::of(&set, "a");
        let _never = (set.add_tenant("b").unwrap(), set.add_tenant("c").unwrap());
        assert_eq!(a.try_take(99), 32);
    }
}

#[test]
fn a_tenants_head_that_may_not_be_served_blocks_nobody() {
    for engine in ENGINES {
        let set = set_on(engine, 8, SharePolicy::Fair { min: 1 });
        let (mut a, mut b) = (User::of(&set, "a"), User::of(&set, "b"));
        b.ask(1);
        a.ask(10);
        assert_eq!((a.tags.len(), a.waits.len()), (4, 6), "its share");
        b.ask(2);
        assert_eq!(
            b.tags.len(),
            3,
            "past a's waiters, which are at their limit"
        );
        assert_eq!(b.try_take(9), 1);
        drop(a.tags.pop_front());
        b.poll();
        a.poll();
        assert_eq!((a.tags.len(), b.tags.len()), (4, 4), "to a's next");
    }
}

#[test]
fn c32_by_weights_and_without_shares() {
    let set = set(60, SharePolicy::Weighted { min: 1 });
    let (mut a, mut b) = (User::of(&set, "a"), User::of(&set, "b"));
    a.dev.set_weight(2).unwrap();
    assert_eq!((b.try_take(1), a.try_take(99)), (1, 40));
    a.ask(30);
    b.dev.set_weight(4).unwrap();
    b.try_take(99);
    assert_eq!(b.tags.len(), 20, "as many as are left of its 40");
    a.waits.clear();

    let set = TagSet::builder().depth(60).share(SharePolicy::None);
    let set = set.build(|_, _| ()).unwrap();
    let (mut a, mut b) = (User::of(&set, "a"), User::of(&set, "b"));
    assert_eq!((b.try_take(1), a.try_take(99)), (1, 59));
    assert_eq!(a.dev.share(0), None);
}

/// H9. A light tenant's share is smaller than an even part of the depth: the wake batch follows
/// the least share, also when weights or the depth change while somebody waits.
#[test]
fn h9_a_weighted_share_below_the_wake_batch() {
    let no_preempt = Admission::NoPreempt(NoPreempt::default());
    let elastic = Admission::elastic_overcommit(4);
    for admission in [Admission::preempt(), no_preempt, elastic] {
        for last_change in ["weight", "mark", "depth"] {
            let set = TagSet::builder()
                .depth(64)
                .max_depth(128)
                .admission(admission);
            let set = set.share(SharePolicy::Weighted { min: 1 });
            let set = set.build(|_, _| ()).unwrap();
            let (a, b) = (set.add_tenant("a").unwrap(), set.add_tenant("b").unwrap());
            if last_change != "weight" {
                a.set_weight(63).unwrap();
            }
            if last_change == "depth" {
                set.resize(128).unwrap();
            }
            let tag_a = a.try_alloc().unwrap();
            let mut held = vec![b.try_alloc().unwrap()];
            if last_change == "weight" {
                a.set_weight(63).unwrap();
            }
            held.extend(std::iter::from_fn(|| b.try_alloc().ok()));
            assert_eq!(b.share(0), Some(held.len()));
            let told = Arc::new(Counts::default());
            let waker = Waker::from(told.clone());
            let mut wait = Box::pin(b.alloc());
            let mut cx = Context::from_waker(&waker);
            assert!(wait.as_mut().poll(&mut cx).is_pending());
            if last_change == "depth" {
                set.resize(64).unwrap(); // two tags a share of one now: this one's own are to go
            }
            drop(held);
            assert_eq!(
                told.0.load(Ordering::Relaxed),
                1,
                "{last_change}: its share is free"
            );
            assert!(matches!(wait.as_mut().poll(&mut cx), Poll::Ready(Ok(_))));
            drop(tag_a);
        }
    }
}

/// Who waits at its old share is served when the depth grows. When it shrinks, who has more than
/// its new share gets none beside a free tag.
#[test]
fn h9_shares_follow_the_depth() {
    let whole_io = ENGINES.map(|engine| (Admission::WholeIo, engine));
    for (admission, engine) in [
        whole_io[0],
        whole_io[1],
        (Admission::preempt(), Engine::Shared),
    ] {
        let set = TagSet::builder().engine(engine).admission(admission);
        let set = set
            .depth(4)
            .max_depth(8)
            .share(SharePolicy::Fair { min: 1 });
        let set = set.build(|_, _| ()).unwrap();
        let (mut a, mut b) = (User::of(&set, "a"), User::of(&set, "b"));
        assert_eq!((b.try_take(1), a.try_take(9)), (1, 2), "half of four");
        let told = Arc::new(Counts::default());
        let waker = Waker::from(told.clone());
        let mut cx = Context::from_waker(&waker);
        let mut wait = Box::pin(a.dev.alloc());
        assert!(wait.as_mut().poll(&mut cx).is_pending());
        set.resize(8).unwrap();
        assert_eq!(told.0.load(Ordering::Relaxed), 1, "{admission:?}: told");
        let Poll::Ready(Ok(tag)) = wait.as_mut().poll(&mut cx) else {
            panic!("{admission:?}: its share has grown")
        };
        drop(wait);
        a.tags.push_back(tag);
        assert_eq!((a.try_take(9), b.try_take(9)), (1, 3), "half of eight");

        set.resize(4).unwrap();
        b.tags.clear();
        assert_eq!(b.try_take(1), 1, "it counts, and there are tags");
        for left in [3, 2] {
            a.tags.pop_back();
            assert_eq!((a.tags.len(), a.try_take(9)), (left, 0), "{admission:?}");
        }
        a.tags.pop_back();
        assert_eq!(a.try_take(9), 1, "{admission:?}: half of four");
    }
}

/// The same on threads, at which a wakeup that is lost shows as a test that does not end.
#[test]
fn h9_light_tenants_on_threads() {
    let set = TagSet::builder().depth(64).admission(Admission::preempt());
    let set = set.share(SharePolicy::Weighted { min: 1 });
    let set = set.build(|_, _| ()).unwrap();
    let (a, b) = (set.add_tenant("a").unwrap(), set.add_tenant("b").unwrap());
    a.set_weight(63).unwrap();
    let _both_count = (a.try_alloc().unwrap(), b.try_alloc().unwrap());
    let rounds = if cfg!(miri) { 10 } else { 2_000 };
    let threads = [(); 3].map(|()| {
        let b = b.clone();
        thread::spawn(move || (0..rounds).for_each(|_| drop(b.alloc_blocking().unwrap())))
    });
    drop(_both_count);
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(set.in_use(), 0);
}

/// H9. The last change of shares is one of the depth: a share of sixteen, with batches of two,
/// becomes one of one.
#[test]
fn h9_a_share_that_shrinks_below_the_wake_batch() {
    let no_preempt = Admission::NoPreempt(NoPreempt::default());
    let elastic = Admission::elastic_overcommit(4);
    for admission in [Admission::preempt(), no_preempt, elastic] {
        let set = TagSet::builder().depth(256).admission(admission);
        let set = set.share(SharePolicy::Weighted { min: 1 });
        let set = set.build(|_, _| ()).unwrap();
        let (a, b) = (set.add_tenant("a").unwrap(), set.add_tenant("b").unwrap());
        a.set_weight(15).unwrap();
        let (_tag_a, tag_b) = (a.try_alloc().unwrap(), b.try_alloc().unwrap());
        assert_eq!(b.share(0), Some(16));
        set.resize(16).unwrap();
        assert_eq!(b.share(0), Some(1));
        let told = Arc::new(Counts::default());
        let waker = Waker::from(told.clone());
        let mut wait = Box::pin(b.alloc());
        let mut cx = Context::from_waker(&waker);
        assert!(wait.as_mut().poll(&mut cx).is_pending());
        drop(tag_b);
        assert_eq!(told.0.load(Ordering::Relaxed), 1, "its share is free");
        assert!(matches!(wait.as_mut().poll(&mut cx), Poll::Ready(Ok(_))));
    }
}

/// A tenant of no weight still gets a tag: nobody would wake it later.
#[test]
fn c32_a_weight_of_nothing_starves_nobody() {
    let set = set(8, SharePolicy::Weighted { min: 0 });
    let (mut a, mut b) = (User::of(&set, "a"), User::of(&set, "b"));
    a.dev.set_weight(0).unwrap();
    assert_eq!(b.try_take(1), 1);
    assert_eq!((a.try_take(8), a.dev.share(0)), (1, Some(1)));
    a.tags.clear();
    b.dev.set_weight(0).unwrap();
    b.tags.clear();
    assert_eq!((a.try_take(8), b.try_take(8)), (1, 1));
}

/// The smallest share is at most the depth, also when that changes.
#[test]
fn no_share_is_above_the_depth() {
    let min = usize::MAX;
    for policy in [SharePolicy::Fair { min }, SharePolicy::Weighted { min }] {
        let set = TagSet::builder().depth(8).reserved(2).share(policy);
        let set: TagSet<()> = set.build(|_, _| ()).unwrap();
        let (a, b) = (set.add_tenant("a").unwrap(), set.add_tenant("b").unwrap());
        let _tags = (a.try_alloc().unwrap(), b.try_alloc().unwrap());
        assert_eq!((a.share(0), b.share(0)), (Some(6), Some(6)), "{policy:?}");
        set.resize(5).unwrap();
        assert_eq!((a.share(0), b.share(0)), (Some(3), Some(3)), "{policy:?}");
    }
}

/// A tenant that takes the place of one that has left begins with a weight of 1.
#[test]
fn a_weight_leaves_with_its_tenant() {
    let set = set(40, SharePolicy::Weighted { min: 1 });
    let a = User::of(&set, "a");
    let heavy = set.add_tenant("heavy").unwrap();
    heavy.set_weight(3).unwrap();
    drop(heavy);
    let b = set.add_tenant("b").unwrap();
    let _tags = (a.dev.try_alloc(), b.try_alloc());
    assert_eq!((a.dev.share(0), b.share(0)), (Some(20), Some(20)));
}

/// Tags of a tenant that left count for nobody, whoever comes to its number.
#[test]
fn tags_of_a_tenant_that_left_are_on_nobodys_account() {
    let fair = SharePolicy::Fair { min: 4 };
    let set = TagSet::builder().hw_queues(2).depth(8).share(fair);
    let set = set.clock(Clock::manual()); // nobody turns idle
    let set: TagSet<()> = set.build(|_, _| ()).unwrap();
    let last = PLAIN.hw_queue(1);
    let stays = set.add_tenant("stays").unwrap();
    let take = |dev: &Tenant<()>, n| dev.try_alloc_batch_with(n, last).unwrap();
    for round in 0..3 {
        let leaves = set.add_tenant("leaves").unwrap();
        let of_stays = take(&stays, 2);
        let in_flight: Vec<u64> = take(&leaves, 4).into_iter().map(Tag::into_token).collect();
        assert_eq!(
            leaves.try_alloc_with(last).unwrap_err(),
            AllocError::Exhausted
        );
        drop(leaves);

        let comes = set.add_tenant("comes").unwrap();
        assert_eq!(comes.counted(1), 0, "round {round}");
        let two = take(&comes, 2);
        assert_eq!((two.len(), comes.counted(1)), (2, 2));
        for token in in_flight {
            drop(set.redeem(token).unwrap());
        }
        assert_eq!(comes.counted(1), 2);
        assert_eq!(take(&comes, 8).len(), 2, "up to its share");
        drop((of_stays, two));
    }
}

/// A request of more pieces than its tenant's share goes on as they complete, and others are served
/// meanwhile.
#[test]
fn a_split_above_its_tenants_share_goes_on() {
    for engine in ENGINES {
        let set = set_on(engine, 8, SharePolicy::Fair { min: 1 });
        let (a, mut b) = (set.add_tenant("a").unwrap(), User::of(&set, "b"));
        b.ask(1);
        let mut split = a.split(20);
        let mut tags = VecDeque::new();
        let waker = Waker::from(Arc::new(Counts::default()));
        let mut cx = Context::from_waker(&waker);
        let mut got = 0;
        while split.remaining() > 0 {
            let mut next = Box::pin(split.next());
            match next.as_mut().poll(&mut cx) {
                Poll::Ready(tag) => {
                    got += 1;
                    tags.extend(tag.unwrap());
                    assert!(tags.len() <= 4, "its share");
                }
                Poll::Pending => {
                    assert_eq!(tags.len(), 4);
                    drop(next);
                    assert_eq!(b.try_take(1), 1, "there is room for others");
                    b.tags.pop_back();
                    tags.pop_front();
                }
            }
        }
        assert_eq!(got, 20);
    }
}

#[test]
fn tenants_of_every_policy_run_dry_together() {
    for policy in [
        Admission::WholeIo,
        Admission::preempt(),
        Admission::NoPreempt(inflight_tags::NoPreempt::default()),
        Admission::elastic_overcommit(2),
    ] {
        let set = TagSet::builder().depth(8).admission(policy);
        let set = set.build(|_, _| ()).unwrap();
        let threads: Vec<_> = (0..6)
            .map(|n| {
                let dev = set.add_tenant(n.to_string()).unwrap();
                thread::spawn(move || {
                    for round in 0..100 {
                        if (n + round) % 3 == 0 {
                            let mut split = dev.split(n + 2);
                            while let Some(tag) = split.next_blocking().unwrap() {
                                drop(tag);
                            }
                        } else {
                            drop(dev.alloc_blocking().unwrap());
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(set.in_use(), 0);
        let last = set.add_tenant("last").unwrap();
        assert_eq!(last.try_alloc_batch(99).len(), 8, "{policy:?}");
    }
}

#[test]
fn a_tenant_knows_its_longest_wait() {
    let clock = Clock::manual();
    let set = TagSet::builder().depth(1).clock(clock.clone());
    let mut dev = User::of(&set.build(|_, _| ()).unwrap(), "a");
    dev.ask(2);
    clock.advance(Duration::from_millis(30));
    dev.tags.clear();
    dev.poll();
    let stats = dev.dev.stats();
    assert_eq!(
        (stats.waits, stats.longest_wait),
        (1, Duration::from_millis(30))
    );
}

/// Tags are free, and yet there is none for a tenant that has its share: the error says so.
#[test]
fn who_has_its_share_is_not_told_that_all_tags_are_in_use() {
    let set = TagSet::builder().depth(16).build(|_, _| ()).unwrap();
    let (one, other) = (
        set.add_tenant("one").unwrap(),
        set.add_tenant("other").unwrap(),
    );
    let _active = other.try_alloc().unwrap();
    let mine = one.try_alloc_batch(16);
    assert_eq!(mine.len(), 8);
    let error = one.try_alloc().unwrap_err();
    assert!(error.to_string().contains("share"), "{error}");
    assert!(set.in_use() < set.capacity());
}
