//! Random schedules of what crates above are given: tenants with shares that change, and who leave,
//! while their waiters sleep; small requests and large ones in parts; threads, tasks, deadlines.
//!
//! Everybody is served who has not left, a tenant's count comes back to nothing, and in turns no
//! tenant gets more than its share.
#![cfg(shuttle)]

mod shuttle_support;

use inflight_sbitmap::GetError;
use inflight_sbitmap::tenancy::{
    Force, NewcomerPolicy, Request, Rules, ShareLimiter, Tenancy, TenantIndex, Waiter,
};
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::time::Instant;
use inflight_sync::{Arc, block_on, thread};
use shuttle_support::{MODES, Mode, Owned, SECOND, Slot, Threads, Told, check, check_in};
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const TENANTS: usize = 3;
const MOST: usize = 8;

/// How many each tenant may have and has, and whose each bit is.
#[derive(Debug)]
struct Shares {
    limits: [AtomicUsize; TENANTS],
    active: [AtomicUsize; TENANTS],
    /// Tenant + 1.
    owners: [AtomicUsize; MOST],
    /// Found idle at the next look: this tenant's limit falls, the others' rise.
    idle: AtomicUsize,
    /// The largest limits there have been: nobody may ever have more.
    largest: [AtomicUsize; TENANTS],
    exact: bool,
}

#[derive(Debug)]
struct Limiter(Arc<Shares>);

impl Shares {
    fn new(limits: [usize; TENANTS], mode: Mode) -> Arc<Self> {
        Arc::new(Self {
            limits: limits.map(AtomicUsize::new),
            active: [0; TENANTS].map(AtomicUsize::new),
            owners: [0; MOST].map(AtomicUsize::new),
            idle: AtomicUsize::new(0),
            largest: limits.map(AtomicUsize::new),
            exact: !mode.is_batched(),
        })
    }

    fn set(&self, owned: &Owned, tenant: usize, limit: usize) {
        self.largest[tenant].fetch_max(limit, Ordering::Relaxed);
        self.limits[tenant].store(limit, Ordering::Relaxed);
        owned.queue.shares_changed();
    }

    fn assert_nobody_has_any(&self) {
        for active in &self.active {
            assert_eq!(active.load(Ordering::Relaxed), 0);
        }
    }
}

impl ShareLimiter for Limiter {
    fn may_take(&self, tenant: TenantIndex) -> bool {
        let tenant = tenant as usize;
        let limit = self.0.limits[tenant].load(Ordering::Relaxed);
        self.0.active[tenant].load(Ordering::Relaxed) < limit
    }

    fn took(&self, tenant: TenantIndex, bit: usize) {
        let active = self.0.active[tenant as usize].fetch_add(1, Ordering::Relaxed) + 1;
        let largest = self.0.largest[tenant as usize].load(Ordering::Relaxed);
        assert!(!self.0.exact || active <= largest, "{active} of {largest}");
        let before = self.0.owners[bit].swap(tenant as usize + 1, Ordering::Relaxed);
        assert_eq!(before, 0, "bit {bit} is counted already");
    }

    fn gives(&self, bit: usize) {
        let owner = self.0.owners[bit].swap(0, Ordering::Relaxed);
        assert_ne!(owner, 0, "bit {bit} is on nobody's account");
        self.0.active[owner - 1].fetch_sub(1, Ordering::Relaxed);
    }

    fn least_share(&self) -> Option<usize> {
        Some(1)
    }

    fn look_every(&self, tenant: TenantIndex) -> Option<Duration> {
        (tenant == 0).then_some(SECOND)
    }

    fn look_for_idle(&self, _: Instant) -> bool {
        let idle = self.0.idle.swap(0, Ordering::Relaxed) > 0;
        if idle {
            self.0.largest[0].fetch_max(2, Ordering::Relaxed);
            self.0.limits[0].store(2, Ordering::Relaxed);
        }
        idle
    }
}

/// A queue and its shares.
struct Shared {
    owned: Arc<Owned>,
    shares: Arc<Shares>,
    limiter: Limiter,
}

impl Shared {
    fn new(depth: usize, limits: [usize; TENANTS], mode: Mode) -> Arc<Self> {
        let shares = Shares::new(limits, mode);
        let rules = Rules {
            shares: Some(Arc::new(Limiter(shares.clone()))),
            ..Rules::default()
        };
        Arc::new(Self {
            owned: Owned::with_rules(depth, depth, mode, rules),
            limiter: Limiter(shares.clone()),
            shares,
        })
    }

    fn small(&self, tenant: TenantIndex) -> Waiter {
        self.owned.queue.waiter(Request::one(tenant))
    }

    fn large(&self, tenant: TenantIndex, want: usize, part: usize) -> Waiter {
        self.owned.queue.waiter(Request {
            want,
            part,
            large: true,
            ..Request::one(tenant)
        })
    }

    /// Puts what the tenants have on their accounts.
    fn put(&self, bits: &[usize]) {
        bits.iter().for_each(|&bit| self.limiter.gives(bit));
        self.owned.put(bits);
    }

    fn use_and_put(&self, bits: &[usize]) {
        self.owned.claim(bits);
        thread::yield_now();
        self.put(bits);
    }

    /// Waits as a thread until `want` have come and gone.
    fn block(&self, mut waiter: Waiter, want: usize) {
        let mut had = 0;
        while had < want {
            let mut bits = Vec::new();
            let queue = &self.owned.queue;
            waiter.block_part(&queue, None, &mut bits).unwrap();
            had += bits.len();
            self.use_and_put(&bits);
        }
        assert_eq!(had, want);
    }

    /// As `block`, as a task.
    fn wait_as_task(&self, mut waiter: Waiter, want: usize) {
        let mut had = 0;
        while had < want {
            let mut bits = Vec::new();
            let queue = &self.owned.queue;
            let poll = |cx: &mut Context<'_>| waiter.poll_part(&queue, cx, &mut bits);
            block_on(poll_fn(poll)).unwrap();
            had += bits.len();
            self.use_and_put(&bits);
        }
    }

    /// As a thread for one part and as a task for the next.
    fn alternate(&self, mut waiter: Waiter, want: usize) {
        let (mut had, mut n) = (0, 0);
        while had < want {
            let mut bits = Vec::new();
            let queue = &self.owned.queue;
            if n % 2 == 0 {
                waiter.block_part(&queue, None, &mut bits).unwrap();
            } else {
                let poll = |cx: &mut Context<'_>| waiter.poll_part(&queue, cx, &mut bits);
                block_on(poll_fn(poll)).unwrap();
            }
            n += 1;
            had += bits.len();
            self.use_and_put(&bits);
        }
    }

    /// Waits until the deadline, and leaves then.
    fn block_until(&self, mut waiter: Waiter, want: usize, deadline: Instant) {
        let mut had = 0;
        while had < want {
            let mut bits = Vec::new();
            let queue = &self.owned.queue;
            let result = waiter.block_part(&queue, Some(deadline), &mut bits);
            had += bits.len();
            self.use_and_put(&bits);
            match result {
                Ok(()) => {}
                Err(GetError::TimedOut) => break,
                Err(error) => panic!("{error}"),
            }
        }
        waiter.leave(&self.owned.queue);
    }

    /// One poll, and then it leaves, whatever it was granted.
    fn leave_after_poll(&self, mut waiter: Waiter) {
        let told = Waker::from(Arc::new(Told::default()));
        let mut bits = Vec::new();
        let queue = &self.owned.queue;
        let polled = waiter.poll_part(&queue, &Context::from_waker(&told), &mut bits);
        assert_eq!(polled == Poll::Ready(Ok(())), !bits.is_empty());
        self.use_and_put(&bits);
        let mut more = Vec::new();
        if polled.is_pending() {
            waiter.fetch_part(&queue, &mut more).unwrap();
            self.note_fetched(&more);
            self.use_and_put(&more);
        }
        waiter.leave(&queue);
    }

    /// What is fetched was counted when it was granted.
    fn note_fetched(&self, bits: &[usize]) {
        for &bit in bits {
            assert_ne!(self.shares.owners[bit].load(Ordering::Relaxed), 0);
        }
    }

    /// A newcomer that need not wait.
    fn try_past(&self, tenant: TenantIndex, large: bool) {
        let queue = &self.owned.queue;
        if !self.limiter.may_take(tenant) {
            return;
        }
        let bit = queue
            .try_get()
            .or_else(|| queue.try_get_held_up(tenant))
            .or_else(|| queue.try_get_past(tenant, large));
        if let Some(bit) = bit {
            // It races others of its tenant; crates above allow that.
            self.shares.largest[tenant as usize].fetch_add(1, Ordering::Relaxed);
            self.limiter.took(tenant, bit);
            self.use_and_put(&[bit]);
        }
    }

    fn assert_all_back(&self) {
        self.shares.assert_nobody_has_any();
        self.owned.assert_all_back();
    }
}

/// Shares fall to nothing and rise while waiters of all kinds sleep; in the end each has one.
fn shares_change(mode: Mode) {
    let shared = Shared::new(3, [1, 1, 2], mode);
    let mut threads = Threads::default();
    let t = &mut threads;
    t.on(&shared, |s| s.block(s.small(0), 1));
    t.on(&shared, |s| s.wait_as_task(s.small(1), 1));
    t.on(&shared, |s| s.block(s.large(1, 4, 2), 4));
    t.on(&shared, |s| s.wait_as_task(s.large(2, 3, 1), 3));
    t.on(&shared, |s| {
        s.block(s.small(2), 1);
        s.try_past(0, false);
        s.try_past(2, true);
    });
    t.on(&shared, |s| {
        for limits in [[0, 2, 1], [2, 0, 0], [0, 1, 3], [1, 1, 1]] {
            for (tenant, limit) in limits.into_iter().enumerate() {
                s.shares.set(&s.owned, tenant, limit);
            }
            thread::yield_now();
        }
    });
    threads.join();
    shared.assert_all_back();
}

/// The waiters of a tenant leave at each stage, by deadline, unfetched, amid their parts; those of
/// others need what it had.
fn tenants_leave(mode: Mode) {
    let shared = Shared::new(2, [2, 1, 2], mode);
    let deadline = shared.owned.clock.now() + SECOND;
    let mut threads = Threads::default();
    let t = &mut threads;
    t.on(&shared, move |s| {
        s.block_until(s.large(0, 4, 2), 4, deadline)
    });
    t.on(&shared, move |s| s.block_until(s.small(0), 1, deadline));
    t.on(&shared, |s| s.leave_after_poll(s.large(0, 2, 2)));
    t.on(&shared, |s| {
        s.leave_after_poll(s.small(0));
        // It is gone: it may have none any more.
        s.shares.set(&s.owned, 0, 0);
        s.shares.set(&s.owned, 1, 2);
    });
    t.on(&shared, |s| s.block(s.large(1, 3, 2), 3));
    t.on(&shared, |s| s.wait_as_task(s.small(1), 1));
    t.on(&shared, |s| s.wait_as_task(s.large(2, 2, 2), 2));
    threads.join_ticking(&shared.owned.clock, SECOND);
    shared.assert_all_back();
}

/// A wait changes its thread between its parts, and is a task here and a thread there.
fn waits_change_hands(mode: Mode) {
    let shared = Shared::new(2, [1, 2, 2], mode);
    let slot: Arc<Slot<(Waiter, usize)>> = Slot::new();
    let mut threads = Threads::default();
    let t = &mut threads;
    let to = slot.clone();
    t.on(&shared, move |s| {
        let mut waiter = s.large(1, 3, 1);
        let told = Waker::from(Arc::new(Told::default()));
        let mut bits = Vec::new();
        let cx = Context::from_waker(&told);
        let _polled = waiter.poll_part(&s.owned.queue, &cx, &mut bits);
        s.use_and_put(&bits);
        to.send((waiter, 3 - bits.len()));
    });
    t.on(&shared, move |s| {
        let (waiter, left) = slot.receive();
        s.block(waiter, left);
    });
    t.on(&shared, |s| {
        let mut waiter = s.small(1);
        let told = Waker::from(Arc::new(Told::default()));
        let mut bits = Vec::new();
        let cx = Context::from_waker(&told);
        if waiter
            .poll_part(&s.owned.queue, &cx, &mut bits)
            .is_pending()
        {
            let queue = &s.owned.queue;
            waiter.block_part(&queue, None, &mut bits).unwrap();
        }
        s.use_and_put(&bits);
    });
    t.on(&shared, |s| s.block(s.small(0), 1));
    t.on(&shared, |s| s.wait_as_task(s.large(1, 2, 2), 2));
    t.on(&shared, |s| s.alternate(s.large(2, 4, 1), 4));
    t.on(&shared, |s| s.alternate(s.large(0, 3, 1), 3));
    threads.join();
    shared.assert_all_back();
}

/// A tenant that may have one finds, while it sleeps, that another one is idle: it has two then.
fn an_idle_tenant_is_found(mode: Mode) {
    let shared = Shared::new(2, [1, 1, 1], mode);
    let mut threads = Threads::default();
    let t = &mut threads;
    // Only with the second one's bit can the first put its own.
    let (first, second) = (Slot::new(), Slot::new());
    let (done, kept) = (first.clone(), second.clone());
    shared.shares.idle.store(1, Ordering::Relaxed);
    t.on(&shared, move |s| {
        let mut waiter = s.small(0);
        let mut bits = Vec::new();
        let queue = &s.owned.queue;
        waiter.block_part(&queue, None, &mut bits).unwrap();
        s.owned.claim(&bits);
        first.send(());
        second.receive();
        s.put(&bits);
    });
    t.on(&shared, move |s| {
        done.receive();
        s.block(s.small(0), 1);
        kept.send(());
    });
    t.on(&shared, |s| s.block(s.small(1), 1));
    threads.join_ticking(&shared.owned.clock, SECOND);
    shared.assert_all_back();
}

/// Newcomers have to wait while others do and few bits are free, and the wakes come two by two: all
/// bits come back, and somebody takes one past them. Who was not let look is woken, or looks.
fn newcomers_wait(mode: Mode) {
    let newcomers = NewcomerPolicy {
        threshold: 0,
        force: Force::Never,
        per_tag: false,
    };
    let rules = Rules {
        newcomers: Some(newcomers),
        ..Rules::default()
    };
    let owned = Owned::with_rules(16, 16, mode, rules);
    let held: Vec<_> = (0..16).map(|_| owned.queue.try_get().unwrap()).collect();
    owned.claim(&held);
    let mut threads = Threads::default();
    for _ in 0..3 {
        threads.on(&owned, |o| {
            let mut waiter = o.queue.waiter(Request::one(0));
            o.use_and_put(&[waiter.block_one(&o.queue, None).unwrap()]);
        });
    }
    threads
        .on(&owned, |o| {
            let mut waiter = o.queue.waiter(Request::one(0));
            let mut bits = Vec::new();
            let cx = &Context::from_waker(Waker::noop());
            let _ = waiter.poll_part(&o.queue, cx, &mut bits);
            waiter.leave(&o.queue);
            bits.extend(o.queue.try_get());
            o.use_and_put(&bits);
        })
        .on(&owned, move |o| held.iter().for_each(|&bit| o.put(&[bit])));
    threads.join();
    owned.assert_all_back();
}

#[test]
fn shares_that_change() {
    check("shares_that_change", shares_change);
}

#[test]
fn tenants_that_leave() {
    check("tenants_that_leave", tenants_leave);
}

#[test]
fn waits_that_change_hands() {
    check("waits_that_change_hands", waits_change_hands);
}

#[test]
fn idle_tenants() {
    check("idle_tenants", an_idle_tenant_is_found);
}

#[test]
fn newcomers_that_wait() {
    let batched: Vec<_> = MODES.into_iter().filter(|mode| mode.is_batched()).collect();
    check_in("newcomers_that_wait", &batched, newcomers_wait);
}
