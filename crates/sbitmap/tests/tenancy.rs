//! What crates above get: policies for newcomers, weights, tenants and lists. The order is compared
//! with a naive one.

#![cfg(not(any(loom, shuttle)))]

#[path = "common/turn_rig.rs"]
mod turn_rig;

use inflight_sbitmap::tenancy::{
    Force, NewcomerPolicy, Request, Rules, ShareLimiter, Tenancy, TenantIndex, Waiter,
};
use inflight_sbitmap::{Engine, Fairness, GetError, SbitmapQueue};
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::time::Instant;
use inflight_sync::{Arc, thread};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::task::{Context, Poll, Wake, Waker};
use turn_rig::{in_turns, wait_for_waiters};

#[derive(Default)]
struct Counts(AtomicUsize);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn with_newcomers(depth: usize, force: Force, per_tag: bool) -> SbitmapQueue {
    let newcomers = NewcomerPolicy {
        threshold: 8,
        force,
        per_tag,
    };
    let above = Rules {
        shares: None,
        newcomers: Some(newcomers),
        ..Rules::default()
    };
    let queue = SbitmapQueue::builder(depth).fairness(Fairness::batched());
    queue.build_with_rules(above).unwrap()
}

fn take(queue: &SbitmapQueue, n: usize) -> Vec<usize> {
    (0..n).map(|_| queue.try_get().unwrap()).collect()
}

/// Registers a waiter of this weight.
fn wait(queue: &SbitmapQueue, weight: u32, woken: &Arc<Counts>) -> Waiter {
    let request = Request {
        weight,
        ..Request::one(0)
    };
    let mut waiter = queue.waiter(request);
    let waker = Waker::from(woken.clone());
    let polled = waiter.poll_part(queue, &Context::from_waker(&waker), &mut Vec::new());
    assert!(polled.is_pending());
    waiter
}

/// How many of these waiters one batch of eight bits wakes, of `depth`.
fn woken_by_a_batch(depth: usize, weights: &[u32], per_tag: bool) -> usize {
    let queue = with_newcomers(depth, Force::Hysteresis, per_tag);
    let bits = take(&queue, depth);
    let woken = Arc::new(Counts::default());
    let mut waiters: Vec<_> = weights.iter().map(|&w| wait(&queue, w, &woken)).collect();
    queue.put_batch(&bits[..8]).unwrap();
    let count = woken.0.load(Ordering::Relaxed);
    waiters.iter_mut().for_each(|waiter| waiter.leave(&queue));
    count
}

#[test]
fn g20_wakes_by_weight() {
    assert_eq!(woken_by_a_batch(64, &[8, 1, 1], true), 1);
    assert_eq!(woken_by_a_batch(64, &[3; 9], true), 3);
    assert_eq!(
        woken_by_a_batch(64, &[1, 1], true),
        2,
        "and six are left for nobody"
    );
    assert_eq!(
        woken_by_a_batch(64, &[7, 9, 1], true),
        2,
        "the last one in part"
    );
    assert_eq!(
        woken_by_a_batch(64, &[8, 1, 1], false),
        3,
        "each worth one bit"
    );
    assert_eq!(
        woken_by_a_batch(64, &[1000, 1], true),
        1,
        "D26: at most the depth"
    );
}

/// After a close nothing is fetched, although a bit is free.
#[test]
fn a_fetch_after_a_close_is_refused() {
    for fairness in [Fairness::batched(), Fairness::fair(), Fairness::fifo()] {
        let queue = SbitmapQueue::builder(2).fairness(fairness).build().unwrap();
        let bits = take(&queue, 2);
        let mut waiter = wait(&queue, 1, &Arc::default());
        queue.close();
        queue.put(bits[0]).unwrap();
        let mut got = Vec::new();
        let fetched = waiter.fetch_part(&queue, &mut got);
        assert_eq!((fetched, queue.weight()), (Err(GetError::Closed), 1));
        waiter.leave(&queue);
    }
}

/// What a batch does not use up in one queue goes on to the next, of which there are eight.
#[test]
fn d24_a_batch_wakes_its_worth_or_everybody() {
    for n in [1, 5, 8, 11, 30] {
        let weights: Vec<u32> = (0..n).map(|i| 1 + i % 3).collect();
        let mut worth = 0;
        let enough = weights.iter().position(|&w| {
            worth += w;
            worth >= 8
        });
        let expected = enough.map_or(n as usize, |last| last + 1);
        let woken = woken_by_a_batch(64, &weights, true);
        // In turn over the queues, the first eight waiters are in the order they came.
        if expected <= 8 {
            assert_eq!(woken, expected, "{weights:?}");
        }
    }
}

#[test]
fn g18_the_threshold_and_plenty() {
    for (force, plenty) in [
        (Force::Hysteresis, 24),
        (Force::AsPosted, 16),
        (Force::Never, usize::MAX),
    ] {
        let queue = with_newcomers(64, force, false);
        let mut bits = take(&queue, 64);
        let woken = Arc::new(Counts::default());
        // A batch with few bits free ends the beginning, in which newcomers are let in.
        let mut waiters = vec![wait(&queue, 1, &woken)];
        queue.put_batch(&bits.split_off(56)).unwrap();
        waiters
            .drain(..)
            .for_each(|mut waiter| waiter.leave(&queue));
        bits.extend(take(&queue, 8));

        for _ in 0..8 {
            waiters.push(wait(&queue, 1, &woken));
        }
        assert!(queue.admits_newcomer(), "8 wait");
        for _ in 0..20 {
            waiters.push(wait(&queue, 1, &woken));
        }
        assert!(!queue.admits_newcomer(), "more wait");
        for free in [8, 16, 24] {
            queue.put_batch(&bits.split_off(bits.len() - 8)).unwrap();
            assert_eq!(
                queue.admits_newcomer(),
                free >= plenty,
                "{force:?}: {free} free"
            );
        }
        waiters.iter_mut().for_each(|waiter| waiter.leave(&queue));
    }
}

/// Each tenant may have so many.
#[derive(Debug)]
struct Limits {
    limit: AtomicUsize,
    active: Vec<AtomicUsize>,
    owners: Vec<AtomicUsize>,
}

#[derive(Debug)]
struct Shared(Arc<Limits>);

impl ShareLimiter for Shared {
    fn may_take(&self, tenant: TenantIndex) -> bool {
        self.0.active[tenant as usize].load(Ordering::Relaxed)
            < self.0.limit.load(Ordering::Relaxed)
    }

    fn took(&self, tenant: TenantIndex, bit: usize) {
        self.0.active[tenant as usize].fetch_add(1, Ordering::Relaxed);
        self.0.owners[bit].store(tenant as usize, Ordering::Relaxed);
    }

    fn gives(&self, bit: usize) {
        let tenant = self.0.owners[bit].load(Ordering::Relaxed);
        self.0.active[tenant].fetch_sub(1, Ordering::Relaxed);
    }
}

const TENANTS: usize = 3;
const DEPTH: usize = 6;
const PART: usize = 2;

/// A waiter as the naive list knows it.
#[derive(Clone, Debug)]
struct Naive {
    tenant: usize,
    large: bool,
    left: usize,
    has: usize,
    full: bool,
    gone: bool,
}

/// The rules of PROTOCOL-tenants.md, by looking at everybody.
#[derive(Debug)]
struct Oracle {
    limit: usize,
    free: usize,
    active: [usize; TENANTS],
    waiters: Vec<Naive>,
    turn: usize,
    small_next: [bool; TENANTS],
    goes_on: [Option<usize>; TENANTS],
    collecting: Option<usize>,
}

impl Oracle {
    fn next(&self) -> Option<usize> {
        if self.collecting.is_some() {
            return self.collecting;
        }
        (0..TENANTS)
            .map(|i| (self.turn + i) % TENANTS)
            .find_map(|tenant| {
                let head = |large| {
                    let waits = |w: &Naive| !w.gone && w.tenant == tenant && w.large == large;
                    self.waiters.iter().position(waits)
                };
                let large_first = !self.small_next[tenant];
                let first = match self.goes_on[tenant] {
                    Some(at) if self.waiters[at].full => head(false)?,
                    Some(at) => at,
                    None => head(large_first).or_else(|| head(!large_first))?,
                };
                (self.active[tenant] < self.limit).then_some(first)
            })
    }

    fn serve(&mut self) {
        while let Some(at) = self.next() {
            let tenant = self.waiters[at].tenant;
            let part = |w: &Naive| w.left.min(if w.large { PART } else { 1 });
            if self.waiters[at].has < part(&self.waiters[at]) && self.active[tenant] < self.limit {
                if self.free == 0 {
                    return;
                }
                self.free -= 1;
                self.active[tenant] += 1;
                self.waiters[at].has += 1;
            }
            let limited = self.active[tenant] >= self.limit;
            let waiter = &mut self.waiters[at];
            if waiter.has < part(waiter) && !limited {
                self.collecting = Some(at);
                continue;
            }
            self.collecting = None;
            self.turn = tenant + 1;
            waiter.full = true;
            waiter.gone = waiter.has == waiter.left;
            if waiter.gone {
                self.small_next[tenant] = waiter.large;
            }
            if waiter.large {
                self.goes_on[tenant] = (!waiter.gone).then_some(at);
            }
        }
    }

    /// Waits, or has not fetched all it was given.
    fn waits(&self, at: usize) -> bool {
        let waiter = &self.waiters[at];
        !waiter.gone || waiter.full
    }

    /// What the waiter finds when it looks.
    fn fetch(&mut self, at: usize) -> usize {
        let waiter = &mut self.waiters[at];
        if !waiter.full {
            return 0;
        }
        waiter.full = false;
        let has = std::mem::take(&mut waiter.has);
        waiter.left -= has;
        self.serve();
        has
    }

    fn leave(&mut self, at: usize) {
        let waiter = &mut self.waiters[at];
        (waiter.gone, waiter.full) = (true, false);
        let (tenant, has) = (waiter.tenant, std::mem::take(&mut waiter.has));
        if self.goes_on[tenant] == Some(at) {
            self.goes_on[tenant] = None;
        }
        if self.collecting == Some(at) {
            self.collecting = None;
        }
        self.serve();
        for _ in 0..has {
            self.active[tenant] -= 1;
        }
        self.free += has;
        self.serve();
    }
}

const ENGINES: [Engine; 2] = [Engine::Shared, Engine::Local];

fn in_parts(tenant: TenantIndex, want: usize) -> Request {
    Request {
        want,
        part: PART,
        large: true,
        ..Request::one(tenant)
    }
}

fn poll(queue: &SbitmapQueue, waiter: &mut Waiter) -> usize {
    let mut bits = Vec::new();
    let cx = Context::from_waker(Waker::noop());
    let _ = waiter.poll_part(queue, &cx, &mut bits);
    bits.len()
}

/// F2: a request that does not fetch its part keeps small ones of its tenant neither from waiting
/// with success nor from trying. Large ones stay behind it.
#[test]
fn a_part_that_nobody_fetches_holds_up_large_requests_only() {
    for engine in ENGINES {
        let queue = in_turns(8, engine);
        let bits: Vec<usize> = std::iter::from_fn(|| queue.try_get()).collect();
        let mut late = queue.waiter(in_parts(0, 6));
        let mut behind = queue.waiter(in_parts(0, 2));
        assert_eq!((poll(&queue, &mut late), poll(&queue, &mut behind)), (0, 0));
        assert_eq!(queue.try_get_held_up(0), None, "all are in use");
        queue.put_batch(&bits[..PART]).unwrap();
        assert_eq!(queue.snapshot().collected, PART);
        let woken = Arc::new(Counts::default());
        let mut small = wait(&queue, 1, &woken);
        queue.put_batch(&bits[PART..]).unwrap();
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!(poll(&queue, &mut small), 1);
        let mut newcomer = queue.waiter(Request::one(0));
        assert_eq!(poll(&queue, &mut newcomer), 1);
        assert!(queue.try_get_held_up(0).is_some());
        assert!(queue.try_get_past(0, false).is_some());
        assert_eq!(queue.try_get_past(0, true), None, "large");
        assert_eq!(poll(&queue, &mut behind), 0, "first come, first served");
        // It comes for its part, and nobody is served before its last.
        assert_eq!((poll(&queue, &mut late), poll(&queue, &mut late)), (2, 2));
        let mut last = queue.waiter(Request::one(0));
        assert_eq!(poll(&queue, &mut last), 0);
        queue.put(bits[0]).unwrap();
        assert_eq!((poll(&queue, &mut last), poll(&queue, &mut behind)), (0, 0));
        late.leave(&queue);
        queue.put_batch(&bits[1..3]).unwrap();
        assert_eq!((poll(&queue, &mut last), poll(&queue, &mut behind)), (1, 2));
    }
}

/// A thread that has its first part at once, and has yet to come back for the next, is not one that
/// is woken: nobody waits until it runs.
#[test]
fn a_part_that_a_thread_does_not_fetch_delays_no_other_thread() {
    for engine in ENGINES {
        let queue = Arc::new(in_turns(8, engine));
        let bits: Vec<usize> = std::iter::from_fn(|| queue.try_get()).collect();
        queue.put_batch(&bits[..PART]).unwrap();
        let (mut large, mut part) = (queue.waiter(in_parts(0, 6)), Vec::new());
        large.block_part(&queue, None, &mut part).unwrap();
        assert_eq!(part.len(), PART, "it did not wait");
        let other = queue.clone();
        let small = thread::spawn(move || other.get_blocking().unwrap());
        wait_for_waiters(&queue, 2);
        queue.put_batch(&bits[PART..2 * PART]).unwrap(); // the next part
        queue.put(bits[2 * PART]).unwrap();
        assert!(queue.is_set(bits[2 * PART]), "it is the other thread's");
        assert_eq!(small.join().unwrap(), bits[2 * PART]);
        large.leave(&queue);
    }
}

/// Turns that begin while a part waits for its owner are over when its next one is collected.
#[test]
fn a_turn_ends_when_the_next_part_is_collected() {
    let queue = in_turns(4, Engine::Shared);
    let bits = take(&queue, 4);
    let mut never = queue.waiter(Request::one(1));
    let mut late = queue.waiter(in_parts(0, 5));
    assert_eq!((poll(&queue, &mut never), poll(&queue, &mut late)), (0, 0));
    queue.put_batch(&bits[..3]).unwrap();
    let mut one = Vec::new();
    let mut small = queue.waiter(Request::one(0));
    let at_once = Some(Instant::from_nanos(0));
    small.block_part(&queue, at_once, &mut one).unwrap();
    queue.put_batch(&one).unwrap();
    let passed = queue.try_get().expect("this thread has its turn");
    assert_eq!(poll(&queue, &mut late), PART);
    late.leave(&queue);
    queue.put(passed).unwrap();
    assert_eq!(queue.try_get(), None, "its turn is over");
    assert!(queue.try_get_past(0, false).is_some());
    never.leave(&queue);
}

/// F0: the limit of a tenant falls while one of it has half of its part. With the next put it is
/// given that half and no more, and the id goes to the other tenant.
#[test]
fn f0_a_limit_that_falls_ends_the_part() {
    let limits = Arc::new(Limits {
        limit: AtomicUsize::new(2),
        active: (0..TENANTS).map(|_| AtomicUsize::new(0)).collect(),
        owners: (0..DEPTH).map(|_| AtomicUsize::new(2)).collect(),
    });
    let above = Rules {
        shares: Some(Arc::new(Shared(limits.clone()))),
        newcomers: None,
        ..Rules::default()
    };
    let queue = SbitmapQueue::builder(DEPTH).fairness(Fairness::fair());
    let queue = queue
        .engine(Engine::Shared)
        .build_with_rules(above)
        .unwrap();
    let bits = take(&queue, DEPTH);
    let (mut split, mut other) = (queue.waiter(in_parts(0, 4)), queue.waiter(Request::one(1)));
    assert_eq!(poll(&queue, &mut split), 0);
    queue.put(bits[0]).unwrap();
    assert_eq!((poll(&queue, &mut split), poll(&queue, &mut other)), (0, 0));
    assert_eq!(queue.snapshot().collected, 1);
    limits.limit.store(1, Ordering::Relaxed);
    queue.put(bits[1]).unwrap();
    assert_eq!(
        queue.snapshot().granted,
        1,
        "the other's, before anybody looks"
    );
    assert_eq!((poll(&queue, &mut other), poll(&queue, &mut split)), (1, 1));
    split.leave(&queue);
}

/// Nobody waits any more, so gets need no turn. The ids were free all the time, and no put comes.
#[test]
fn who_leaves_last_opens_the_fast_path() {
    for engine in ENGINES {
        let queue = in_turns(4, engine);
        let mut never = queue.waiter(Request::one(1));
        assert_eq!(poll(&queue, &mut never), 0);
        assert_eq!(queue.try_get(), None, "somebody waits");
        never.leave(&queue);
        assert!(queue.try_get().is_some());
    }
}

#[derive(Clone, Debug)]
enum Op {
    Join {
        tenant: usize,
        want: usize,
        lazy: bool,
    },
    Put,
    Look(usize),
    Leave(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..TENANTS, 0..6usize, any::<bool>())
            .prop_map(|(tenant, want, lazy)| Op::Join { tenant, want, lazy }),
        6 => Just(Op::Put),
        3 => (0..40usize).prop_map(Op::Look),
        1 => (0..40usize).prop_map(Op::Leave),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 400 }))]

    #[test]
    fn the_lists_serve_as_a_naive_one_does(
        limit in 1..=DEPTH, ops in proptest::collection::vec(op(), 0..80),
    ) {
        let limits = Arc::new(Limits {
            limit: AtomicUsize::new(limit),
            active: (0..TENANTS).map(|_| AtomicUsize::new(0)).collect(),
            owners: (0..DEPTH).map(|_| AtomicUsize::new(0)).collect(),
        });
        let above = Rules { shares: Some(Arc::new(Shared(limits.clone()))), ..Rules::default() };
        let queue = SbitmapQueue::builder(DEPTH).fairness(Fairness::fifo()).engine(Engine::Shared);
        let queue = queue.build_with_rules(above).unwrap();
        let mut oracle = Oracle {
            limit,
            free: DEPTH,
            active: [0; TENANTS],
            waiters: Vec::new(),
            turn: 0,
            small_next: [true; TENANTS],
            goes_on: [None; TENANTS],
            collecting: None,
        };
        let mut waiters: Vec<Waiter> = Vec::new();
        // Looks only when it is told to, so that what it is given waits for it.
        let mut is_lazy: Vec<bool> = Vec::new();
        let mut held: VecDeque<usize> = VecDeque::new();
        let waker = Waker::from(Arc::new(Counts::default()));
        let cx = Context::from_waker(&waker);
        for op in ops {
            let mut looks = None;
            match op {
                Op::Join { tenant, want, lazy } => {
                    looks = Some(waiters.len());
                    is_lazy.push(lazy);
                    // 0 is a small request, the others are large ones.
                    let (large, want) = (want > 0, want.max(1));
                    waiters.push(queue.waiter(Request {
                        want,
                        part: if large { PART } else { 1 },
                        large,
                        ..Request::one(tenant as TenantIndex)
                    }));
                    let (has, full, gone) = (0, false, false);
                    oracle.waiters.push(Naive { tenant, large, left: want, has, full, gone });
                    oracle.serve();
                }
                Op::Put => if let Some(bit) = held.pop_front() {
                    let tenant = limits.owners[bit].load(Ordering::Relaxed);
                    Shared(limits.clone()).gives(bit);
                    queue.put(bit).unwrap();
                    oracle.active[tenant] -= 1;
                    oracle.free += 1;
                    oracle.serve();
                },
                Op::Look(at) => looks = Some(at),
                Op::Leave(at) => if at < waiters.len() && oracle.waits(at) {
                    waiters[at].leave(&queue);
                    oracle.leave(at);
                },
            }
            // Everybody else looks until nobody finds anything.
            loop {
                let mut found = 0;
                for (at, waiter) in waiters.iter_mut().enumerate() {
                    if !oracle.waits(at) || (is_lazy[at] && looks != Some(at)) {
                        continue;
                    }
                    let mut bits = Vec::new();
                    let polled = waiter.poll_part(&queue, &cx, &mut bits);
                    prop_assert_eq!(polled == Poll::Ready(Ok(())), !bits.is_empty());
                    prop_assert_eq!(bits.len(), oracle.fetch(at), "waiter {}", at);
                    found += bits.len();
                    held.extend(bits);
                }
                if found == 0 {
                    break;
                }
            }
            prop_assert_eq!(queue.weight(), DEPTH - oracle.free);
        }
        waiters.iter_mut().for_each(|waiter| waiter.leave(&queue));
        for bit in held {
            Shared(limits.clone()).gives(bit);
            queue.put(bit).unwrap();
        }
        prop_assert_eq!(queue.weight(), 0);
        prop_assert!(limits.active.iter().all(|n| n.load(Ordering::Relaxed) == 0));
    }
}
