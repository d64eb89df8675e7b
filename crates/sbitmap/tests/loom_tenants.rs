//! Models of what crates above are given: lists, parts and tenants. Events as in
//! `PROTOCOL-tenants.md`.
//!
//! Seen to fail, at the quick bound:
//!
//! | weaken | fails |
//! |---|---|
//! | P2, the fence in `put` | both `*_between_parts`, `parts_*`, `h9_eligible_by_its_own_put` |
//! | V2, the fence of the service | the same, `h9_eligible_by_a_larger_share` |
//! | M4, the fence of `serve` | `h9_eligible_by_a_larger_share` |
//! | `serve` serves nobody | `h9_eligible_by_a_larger_share`, `h9_past_*` |
//! | C3 (`gives`) after P1 | most, `h9_eligible_by_its_own_put` among them |
//! | V3 does not ask `may_take` for the next | all `h9_*` |
//! | V3 goes to a full one again | all with parts of one id |
//! | F0, ids that come together end at the limit | `f0_a_limit_falls_under_ids_that_come_together` |
//! | F2, all are free and yet do not fit | `f2_what_does_not_fit_waits_for_all_of_it` |
//! | F0, no less than a part is given | `h9_a_share_falls_under_a_collector` |
//! | a half-fed one is not the next | `h9_a_share_falls_under_a_collector` |
//! | a half-fed one that left is the next | `a_half_fed_split_leaves` |
//! | one that left goes on | both `*_between_parts`, `parts_*`, `a_fetched_part_*` |
//! | F1 does not return the token | `a_deadline_between_parts` |
//! | F1 does not serve | `a_fetched_part_*`, `a_part_meets_its_owner`, `parts_*` |
//! | who comes back for a part is not told | `a_part_meets_its_owner` |
//! | F2, a full one keeps all of its tenant | `f2_an_unfetched_part_lets_small_ones_pass` |
//! | who leaves leaves its part behind | `a_split_leaves_between_parts` |
//! | what is left behind is not put, or stays on the account | `a_split_leaves_between_parts` |
//! | a newcomer in a queue with tenants does not serve | `h9_past_a_tenant_at_its_limit` |
//! | `try_get_past` past those who may | `h9_past_a_thread_that_has_no_token_yet` |
//! | who goes on is not the first of its list and before the other | `parts_come_in_sequence` |
//!
//! What no execution can lose, as somebody else serves, or what only order tells, fails on one
//! thread, in `tests/tenancy.rs`: an id for a tenant above its limit, and a put with tenants that
//! hands out its own number instead of serving (`f0_*`); `leave` that does not serve
//! (`who_leaves_last_*`).
#![cfg(loom)]

use inflight_sbitmap::tenancy::{Request, Rules, ShareLimiter, Tenancy, TenantIndex, Waiter};
use inflight_sbitmap::{Engine, Fairness, SbitmapQueue};
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::model::{Bound, check};
use inflight_sync::time::{Clock, Instant};
use inflight_sync::{Arc, cpu, thread};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const UNBOUNDED: Bound = Bound {
    quick: None,
    deep: None,
};
const ONE: Bound = Bound {
    quick: Some(1),
    deep: Some(2),
};
const TWO: Bound = Bound {
    quick: Some(2),
    deep: Some(3),
};
const THREE: Bound = Bound {
    quick: Some(3),
    deep: Some(4),
};

/// Tenant 0 may have `limit` ids, others as many as they like.
#[derive(Debug)]
struct Limit {
    limit: AtomicUsize,
    active: [AtomicUsize; 2],
    /// Tenant + 1.
    owners: [AtomicUsize; 3],
}

#[derive(Debug)]
struct Accounts(Arc<Limit>);

// Relaxed throughout: what is needed beyond it is the queue's business.
impl ShareLimiter for Accounts {
    fn may_take(&self, tenant: TenantIndex) -> bool {
        let limit = self.0.limit.load(Ordering::Relaxed);
        tenant > 0 || self.0.active[0].load(Ordering::Relaxed) < limit
    }

    fn room(&self, tenant: TenantIndex) -> usize {
        let limit = self.0.limit.load(Ordering::Relaxed);
        match tenant {
            0 => limit.saturating_sub(self.0.active[0].load(Ordering::Relaxed)),
            _ => usize::MAX,
        }
    }

    fn took(&self, tenant: TenantIndex, bit: usize) {
        self.0.active[tenant as usize].fetch_add(1, Ordering::Relaxed);
        self.0.owners[bit].store(tenant as usize + 1, Ordering::Relaxed);
    }

    fn gives(&self, bit: usize) {
        let owner = self.0.owners[bit].swap(0, Ordering::Relaxed);
        if owner > 0 {
            self.0.active[owner - 1].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A queue whose ids are all taken, on nobody's account.
struct Model {
    queue: SbitmapQueue,
    limit: Arc<Limit>,
}

impl Model {
    fn new(depth: usize, limit: usize, clock: Clock) -> Arc<Self> {
        let zero = || AtomicUsize::new(0);
        let limit = Arc::new(Limit {
            limit: AtomicUsize::new(limit),
            active: [zero(), zero()],
            owners: [zero(), zero(), zero()],
        });
        let above = Rules {
            shares: Some(Arc::new(Accounts(limit.clone()))),
            ..Rules::default()
        };
        let queue = SbitmapQueue::builder(depth)
            .shift(1)
            .engine(Engine::Shared)
            .trusted(true)
            .fairness(Fairness::fair())
            .clock(clock)
            .build_with_rules(above)
            .unwrap();
        for _ in 0..depth {
            queue.try_get().unwrap();
        }
        Arc::new(Self { queue, limit })
    }

    fn small(&self, tenant: TenantIndex) -> Waiter {
        self.queue.waiter(Request::one(tenant))
    }

    fn large(&self, tenant: TenantIndex, want: usize, part: usize) -> Waiter {
        self.queue.waiter(Request {
            want,
            part,
            large: true,
            ..Request::one(tenant)
        })
    }

    /// `n` ids that come together, for tenant 0.
    fn together(&self, n: usize) -> Waiter {
        self.queue.waiter(Request {
            want: n,
            part: n,
            large: true,
            least_depth: n,
            ..Request::one(0)
        })
    }

    fn poll(&self, waiter: &mut Waiter) -> Vec<usize> {
        let mut bits = Vec::new();
        let cx = Context::from_waker(Waker::noop());
        let polled = waiter.poll_part(&self.queue, &cx, &mut bits);
        assert_eq!(polled == Poll::Ready(Ok(())), !bits.is_empty());
        bits
    }

    /// Waits for a part.
    fn block(&self, waiter: &mut Waiter) -> Vec<usize> {
        let mut bits = Vec::new();
        waiter.block_part(&self.queue, None, &mut bits).unwrap();
        assert!(!bits.is_empty());
        bits
    }

    fn one(&self, tenant: TenantIndex) -> usize {
        self.block(&mut self.small(tenant))[0]
    }

    fn put(&self, bits: &[usize]) {
        for &bit in bits {
            Accounts(self.limit.clone()).gives(bit);
            self.queue.put(bit).unwrap();
        }
    }

    fn spawn<T: Send + 'static>(
        self: &Arc<Self>,
        f: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let this = self.clone();
        // A CPU that no other thread alive has; the caller's is 0.
        let cpu = Arc::strong_count(&this) - 1;
        thread::spawn(move || {
            cpu::set_current_for_thread(Some(cpu));
            f(&this)
        })
    }

    /// Nobody waits, no account has anything, and so many ids are free.
    fn assert_quiet(&self, free: usize) {
        assert_eq!(self.queue.snapshot().ws_active, 0);
        let got = std::iter::from_fn(|| self.queue.try_get()).count();
        assert_eq!(got, free, "an id is lost");
    }

    fn assert_no_account(&self) {
        for active in &self.limit.active {
            assert_eq!(active.load(Ordering::Relaxed), 0);
        }
    }
}

const NO_LIMIT: usize = usize::MAX;

/// A large request of two parts stands between two small ones. Everybody gets what he wants,
/// the large one both parts.
#[test]
fn parts_between_two_small_waiters() {
    check("parts_between_two_small_waiters", ONE, || {
        let model = Model::new(2, NO_LIMIT, Clock::system());
        let mut first = model.small(0);
        assert!(model.poll(&mut first).is_empty());
        let split = model.spawn(|model| {
            let mut waiter = model.large(0, 2, 1);
            let mut bits = model.block(&mut waiter);
            bits.extend(model.block(&mut waiter));
            assert!(!waiter.is_in_list());
            model.put(&bits);
        });
        let small = model.spawn(|model| {
            let bit = model.one(0);
            model.put(&[bit]);
        });
        model.put(&[0]);
        model.put(&[1]);
        let bits = model.block(&mut first);
        model.put(&bits);
        split.join().unwrap();
        small.join().unwrap();
        model.assert_no_account();
        model.assert_quiet(2);
    });
}

/// F1: whoever has had a part keeps his list waiting until he fetches it, and then serves. The
/// small one keeps its id.
#[test]
fn a_fetched_part_lets_others_be_served() {
    check("a_fetched_part_lets_others_be_served", THREE, || {
        let model = Model::new(3, NO_LIMIT, Clock::system());
        let mut split = model.large(0, 2, 1);
        assert!(model.poll(&mut split).is_empty());
        let small = model.spawn(|model| model.one(0));
        model.put(&[0, 1, 2]);
        let mut bits = model.block(&mut split);
        bits.extend(model.block(&mut split));
        let kept = small.join().unwrap();
        assert!(!bits.contains(&kept));
        model.assert_quiet(0);
    });
}

/// F2: a part waits for its owner, who comes only when a small one of its tenant has had its id.
/// Both come to the list while the ids come.
#[test]
fn f2_an_unfetched_part_lets_small_ones_pass() {
    check("f2_an_unfetched_part_lets_small_ones_pass", THREE, || {
        let model = Model::new(3, NO_LIMIT, Clock::system());
        let mut split = model.large(0, 2, 1);
        assert!(model.poll(&mut split).is_empty());
        let small = model.spawn(|model| model.one(0));
        let putter = model.spawn(|model| model.put(&[0, 1]));
        let kept = small.join().unwrap();
        putter.join().unwrap();
        let part = model.poll(&mut split);
        assert_eq!(part, [1 - kept]);
        model.put(&[2]);
        assert_eq!(model.poll(&mut split), [2]);
        assert!(!split.is_in_list());
        model.put(&[0, 1, 2]);
        model.assert_no_account();
        model.assert_quiet(3);
    });
}

/// F1 against F2: the owner comes for its part while a small one is served past it. Each has what
/// it wants in the end.
#[test]
fn f2_the_owner_comes_while_others_pass() {
    check("f2_the_owner_comes_while_others_pass", TWO, || {
        let model = Model::new(3, NO_LIMIT, Clock::system());
        let mut split = model.large(0, 2, 1);
        assert!(model.poll(&mut split).is_empty());
        model.put(&[0]);
        let small = model.spawn(|model| model.one(0));
        let putter = model.spawn(|model| model.put(&[1, 2]));
        let mut bits = model.block(&mut split);
        bits.extend(model.block(&mut split));
        bits.push(small.join().unwrap());
        putter.join().unwrap();
        bits.sort_unstable();
        assert_eq!(bits, [0, 1, 2]);
        model.put(&bits);
        model.assert_no_account();
        model.assert_quiet(3);
    });
}

/// A large request leaves, before its part came, with a part that it has not fetched, or between
/// two parts. The small one behind it keeps its id.
#[test]
fn a_split_leaves_between_parts() {
    check("a_split_leaves_between_parts", THREE, || {
        let model = Model::new(2, NO_LIMIT, Clock::system());
        let mut split = model.large(0, 2, 1);
        assert!(model.poll(&mut split).is_empty());
        let small = model.spawn(|model| model.one(0));
        let putter = model.spawn(|model| model.put(&[0, 1]));
        let bits = model.poll(&mut split);
        split.leave(&model.queue);
        model.put(&bits);
        putter.join().unwrap();
        let kept = small.join().unwrap();
        model.put(&[kept]);
        model.assert_no_account();
        model.assert_quiet(2);
    });
}

/// The same by a deadline that passes while the next part comes.
#[test]
fn a_deadline_between_parts() {
    check("a_deadline_between_parts", TWO, || {
        let clock = Clock::manual();
        let model = Model::new(2, NO_LIMIT, clock.clone());
        let deadline = Instant::from_nanos(1);
        let split = model.spawn(move |model| {
            let mut waiter = model.large(0, 2, 1);
            let mut bits = Vec::new();
            let mut more = || {
                let part = waiter.block_part(&model.queue, Some(deadline), &mut bits);
                part.is_ok() && bits.len() < 2
            };
            while more() {}
            assert!(!waiter.is_in_list());
            model.put(&bits);
        });
        let small = model.spawn(|model| model.one(0));
        model.put(&[0]);
        clock.advance(Duration::from_nanos(1));
        split.join().unwrap();
        let kept = small.join().unwrap();
        assert_eq!(kept, 0);
        model.put(&[0, 1]);
        model.assert_no_account();
        model.assert_quiet(2);
    });
}

/// Who comes back for a part as a thread that came as a task, while the part comes.
#[test]
fn a_part_meets_its_owner() {
    check("a_part_meets_its_owner", UNBOUNDED, || {
        let model = Model::new(2, NO_LIMIT, Clock::system());
        let mut split = model.large(0, 2, 1);
        assert!(model.poll(&mut split).is_empty());
        let putter = model.spawn(|model| model.put(&[0, 1]));
        let mut bits = model.block(&mut split);
        bits.extend(model.block(&mut split));
        bits.sort_unstable();
        assert_eq!(bits, [0, 1]);
        putter.join().unwrap();
        model.assert_quiet(0);
    });
}

/// C3 against V2: a tenant at its limit waits beside a free id; what makes it eligible is a put of
/// its own, which another newcomer's service meets.
#[test]
fn h9_eligible_by_its_own_put() {
    check("h9_eligible_by_its_own_put", UNBOUNDED, || {
        let model = Model::new(2, 1, Clock::system());
        model.put(&[0, 1]);
        let own = model.one(0);
        let waiter = model.spawn(|model| model.one(0));
        model.put(&[own]);
        let kept = waiter.join().unwrap();
        model.put(&[kept]);
        model.assert_no_account();
        model.assert_quiet(2);
    });
}

/// M4 against V2: the limit is raised while somebody comes to wait.
#[test]
fn h9_eligible_by_a_larger_share() {
    check("h9_eligible_by_a_larger_share", UNBOUNDED, || {
        let model = Model::new(2, 1, Clock::system());
        model.put(&[0, 1]);
        let own = model.one(0);
        let waiter = model.spawn(|model| model.one(0));
        model.limit.limit.store(2, Ordering::Relaxed);
        model.queue.shares_changed();
        assert_ne!(waiter.join().unwrap(), own);
        model.assert_quiet(0);
    });
}

/// The limit falls under a request that has one of the two ids of its part: it gets that one (F0),
/// or both from somebody who reads the limit late. Who waits in the other tenant gets one.
#[test]
fn h9_a_share_falls_under_a_collector() {
    check("h9_a_share_falls_under_a_collector", THREE, || {
        let model = Model::new(2, 2, Clock::system());
        let mut split = model.large(0, 2, 2);
        assert!(model.poll(&mut split).is_empty());
        model.put(&[0]);
        let other = model.spawn(|model| model.one(1));
        model.limit.limit.store(1, Ordering::Relaxed);
        model.put(&[1]);
        let bits = model.poll(&mut split);
        model.put(&bits);
        let kept = other.join().unwrap();
        match bits[..] {
            [0] => assert_eq!(model.poll(&mut split), [1 - kept]),
            _ => assert_eq!(bits.len(), 2),
        }
        assert!(!split.is_in_list());
        model.put(&[kept]);
        if bits.len() == 1 {
            model.put(&[1 - kept]);
        }
        model.assert_no_account();
        model.assert_quiet(2);
    });
}

/// A tenant that may not be served waits. Whoever takes an id past it has served those who may
/// first, and told them.
#[test]
fn h9_past_a_tenant_at_its_limit() {
    check("h9_past_a_tenant_at_its_limit", TWO, || {
        let model = Model::new(2, 0, Clock::system());
        let mut limited = model.small(0);
        assert!(model.poll(&mut limited).is_empty());
        let other = model.spawn(|model| model.one(1));
        let putter = model.spawn(|model| model.put(&[0, 1]));
        let past = model.queue.try_get_past(1, false);
        putter.join().unwrap();
        let kept = other.join().unwrap();
        let past = past.or_else(|| model.queue.try_get_past(1, false)).unwrap();
        assert_ne!(past, kept);
        model.put(&[past, kept]);
        model.limit.limit.store(1, Ordering::Relaxed);
        model.queue.shares_changed();
        let bits = model.poll(&mut limited);
        assert_eq!(bits.len(), 1);
        model.put(&bits);
        model.assert_no_account();
        model.assert_quiet(2);
    });
}

/// Two threads wait, for two ids that they keep. The second one waits for the first one's token,
/// beside a free id: nobody takes that past it.
#[test]
fn h9_past_a_thread_that_has_no_token_yet() {
    check("h9_past_a_thread_that_has_no_token_yet", TWO, || {
        let model = Model::new(2, NO_LIMIT, Clock::system());
        let threads = [(); 2].map(|()| model.spawn(|model| model.one(0)));
        let both_wait = model.queue.snapshot().ws_active == 2;
        model.put(&[0, 1]);
        if both_wait {
            assert_eq!(model.queue.try_get_past(1, false), None);
        }
        let kept = threads.map(|thread| thread.join().unwrap());
        model.put(&kept);
        model.assert_no_account();
        model.assert_quiet(2);
    });
}

/// Whoever has had a part gets the one id that comes next, and keeps it: a small one of its tenant
/// that waits, or comes, has to wait on.
#[test]
fn parts_come_in_sequence() {
    check("parts_come_in_sequence", THREE, || {
        let model = Model::new(2, NO_LIMIT, Clock::system());
        let mut split = model.large(0, 2, 1);
        assert!(model.poll(&mut split).is_empty());
        model.put(&[0]);
        assert_eq!(model.poll(&mut split), [0]);
        let small = model.spawn(|model| model.one(0));
        model.put(&[1]);
        assert_eq!(model.block(&mut split), [1]);
        model.put(&[0, 1]);
        let kept = small.join().unwrap();
        model.put(&[kept]);
        model.assert_no_account();
        model.assert_quiet(2);
    });
}

/// A request that has one of the two ids of its part leaves while the other comes.
#[test]
fn a_half_fed_split_leaves() {
    check("a_half_fed_split_leaves", TWO, || {
        let model = Model::new(2, NO_LIMIT, Clock::system());
        let mut split = model.large(0, 2, 2);
        assert!(model.poll(&mut split).is_empty());
        model.put(&[0]);
        let small = model.spawn(|model| model.one(0));
        let putter = model.spawn(|model| model.put(&[1]));
        split.leave(&model.queue);
        putter.join().unwrap();
        let kept = small.join().unwrap();
        model.put(&[kept]);
        model.assert_no_account();
        model.assert_quiet(2);
    });
}

/// Ids that come together and exceed the limit: their waiter sleeps while one of them is free, and
/// has both when the other one comes.
#[test]
fn f2_what_does_not_fit_waits_for_all_of_it() {
    check("f2_what_does_not_fit_waits_for_all_of_it", TWO, || {
        let model = Model::new(2, 1, Clock::system());
        let joins = model.spawn(|model| model.block(&mut model.together(2)));
        let puts = model.spawn(|model| model.put(&[0]));
        model.put(&[1]);
        puts.join().unwrap();
        let bits = joins.join().unwrap();
        assert_eq!(bits.len(), 2);
        model.put(&bits);
        model.assert_no_account();
        model.assert_quiet(2);
    });
}

/// F0: the limit falls while ids that come together are collected. They come all the same, and
/// whoever waits behind them is served.
#[test]
fn f0_a_limit_falls_under_ids_that_come_together() {
    check("f0_a_limit_falls_under_ids_that_come_together", ONE, || {
        let model = Model::new(2, 2, Clock::system());
        let joins = model.spawn(|model| {
            let bits = model.block(&mut model.together(2));
            assert_eq!(bits.len(), 2);
            model.put(&bits);
        });
        let other = model.spawn(|model| {
            let bit = model.one(1);
            model.put(&[bit]);
        });
        model.put(&[0]);
        model.limit.limit.store(1, Ordering::Relaxed);
        model.put(&[1]);
        joins.join().unwrap();
        other.join().unwrap();
        model.assert_no_account();
        model.assert_quiet(2);
    });
}
