//! The counters of where completions ran.

use inflight_sync::CachePadded;
use inflight_sync::atomic::{AtomicU64, Ordering};
use inflight_topology::CpuSet;
use inflight_topology::steering::InlineReason;

/// The number of values of [`SteeringStats`] that are sums over tenants and shards.
const SUMS: usize = 15;

/// How completions were run. See [`Router::stats`](crate::Router::stats).
///
/// Once nothing is under way, [`completed`](Self::completed) counts each completion once,
/// `redirect_wakeups` is at most `redirected`, and `batched` equals `redirected`.
///
/// ```
/// # use inflight_steering::SteeringStats;
/// let stats = SteeringStats::default();
/// assert_eq!((stats.completed(), stats.inlined(), stats.redirected), (0, 0, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SteeringStats {
    /// Completions run where they were seen, because that was the submitter's CPU.
    pub inline_same_cpu: u64,
    /// The same, because that CPU shares the submitter's cache.
    pub inline_same_cache: u64,
    /// The same, because the policy is inline.
    pub inline_policy: u64,
    /// The same, because there is only one shard.
    pub inline_one_shard: u64,
    /// The same, because the submitter polled and so saw them itself.
    pub inline_polled: u64,
    /// The same, because the submitter's done list is closed, or there never was one.
    pub inline_closed: u64,
    /// The same, because a CPU is not known: offline, or the request had no record of it.
    pub inline_unknown_cpu: u64,
    /// The same, because the submitter's worker sleeps and the cache is the same.
    pub inline_asleep: u64,
    /// Run after the end of the outer callbacks, because too many were nested and no done list took
    /// them.
    pub inline_depth: u64,
    /// Put into a done list.
    pub redirected: u64,
    /// Those of them that found the done list empty and woke its worker.
    pub redirect_wakeups: u64,
    /// Those of these wakeups that the worker refused; the pusher ran the done list.
    pub refused_wakeups: u64,
    /// How often a done list was taken that was not empty.
    pub batches: u64,
    /// The number of completions in all these batches.
    pub batched: u64,
    /// The number of completions in the largest batch.
    pub max_batch: u64,
    /// Submitters that resumed on another CPU than the one of the submission. Counted only by
    /// [`Router::submitter_resumed`](crate::Router::submitter_resumed).
    pub submitter_moved: u64,
    /// Callbacks that have panicked: each of a batch, although the worker gets only one panic.
    /// Counted for all together; 0 in the numbers of a shard or a tenant.
    pub panicked: u64,
}

impl SteeringStats {
    /// Returns the number of completions that ran without a done list.
    #[must_use]
    pub const fn inlined(&self) -> u64 {
        self.inline_same_cpu
            + self.inline_same_cache
            + self.inline_policy
            + self.inline_one_shard
            + self.inline_polled
            + self.inline_closed
            + self.inline_unknown_cpu
            + self.inline_asleep
            + self.inline_depth
    }

    /// Returns the number of completed requests: those that ran and those in a done list.
    #[must_use]
    pub const fn completed(&self) -> u64 {
        self.inlined() + self.redirected
    }

    /// Returns the number of completions that wait in done lists. Exact only while there are no
    /// completions and no worker runs.
    #[must_use]
    pub const fn waiting(&self) -> u64 {
        self.redirected.saturating_sub(self.batched)
    }

    /// All that are sums.
    fn sums(&mut self) -> [&mut u64; SUMS] {
        [
            &mut self.inline_same_cpu,
            &mut self.inline_same_cache,
            &mut self.inline_policy,
            &mut self.inline_one_shard,
            &mut self.inline_polled,
            &mut self.inline_closed,
            &mut self.inline_unknown_cpu,
            &mut self.inline_asleep,
            &mut self.inline_depth,
            &mut self.submitter_moved,
            &mut self.redirected,
            &mut self.redirect_wakeups,
            &mut self.refused_wakeups,
            &mut self.batches,
            &mut self.batched,
        ]
    }

    pub(crate) fn add(&mut self, mut other: Self) {
        for (sum, other) in self.sums().into_iter().zip(other.sums()) {
            *sum += *other;
        }
        self.max_batch = self.max_batch.max(other.max_batch);
        self.panicked += other.panicked;
    }
}

/// The counters of one shard: completions that ran inline are counted where they were seen, the
/// others where they were sent. From [`Router::shard_stats`](crate::Router::shard_stats).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardStats {
    /// The CPUs it serves.
    pub cpus: CpuSet,
    /// The counters.
    pub stats: SteeringStats,
}

/// What was counted for one tenant at one shard. Relaxed throughout: numbers nobody decides by.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    seen: CachePadded<SeenCounts>,
    sent: CachePadded<Sent>,
    taken: CachePadded<Batches>,
}

/// Written where completions are seen.
#[derive(Debug, Default)]
struct SeenCounts {
    same_cpu: AtomicU64,
    same_cache: AtomicU64,
    policy: AtomicU64,
    one_shard: AtomicU64,
    polled: AtomicU64,
    closed: AtomicU64,
    unknown_cpu: AtomicU64,
    asleep: AtomicU64,
    depth: AtomicU64,
    moved: AtomicU64,
}

/// Written by whoever pushes.
#[derive(Debug, Default)]
struct Sent {
    pushes: AtomicU64,
    wakeups: AtomicU64,
    refused: AtomicU64,
}

/// Written by whoever takes.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    batches: AtomicU64,
    batched: AtomicU64,
    max_batch: AtomicU64,
}

impl Batches {
    pub(crate) fn took(&self, batch: u64) {
        count(&self.batches);
        self.batched.fetch_add(batch, Ordering::Relaxed);
        self.max_batch.fetch_max(batch, Ordering::Relaxed);
    }

    /// In place of what is there.
    pub(crate) fn read(&self, stats: &mut SteeringStats) {
        stats.batches = self.batches.load(Ordering::Relaxed);
        stats.batched = self.batched.load(Ordering::Relaxed);
        stats.max_batch = self.max_batch.load(Ordering::Relaxed);
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn ran_inline(&self, reason: InlineReason) {
        count(match reason {
            InlineReason::SameCpu => &self.seen.same_cpu,
            InlineReason::SameCache => &self.seen.same_cache,
            InlineReason::Policy => &self.seen.policy,
            InlineReason::OneShard => &self.seen.one_shard,
            InlineReason::Polled => &self.seen.polled,
            InlineReason::Closed => &self.seen.closed,
            InlineReason::Asleep => &self.seen.asleep,
            // And what topology may add.
            _ => &self.seen.unknown_cpu,
        });
    }

    pub(crate) fn defer(&self) {
        count(&self.seen.depth);
    }

    pub(crate) fn moved(&self) {
        count(&self.seen.moved);
    }

    pub(crate) fn pushed(&self) {
        count(&self.sent.pushes);
    }

    /// It did not get in.
    pub(crate) fn not_pushed(&self) {
        self.sent.pushes.fetch_sub(1, Ordering::Relaxed);
    }

    /// A push that is to wake, or that was to and does not.
    pub(crate) fn wakes(&self, wakes: bool) {
        if wakes {
            count(&self.sent.wakeups);
        } else {
            self.sent.wakeups.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn refused(&self) {
        count(&self.sent.refused);
    }

    pub(crate) fn took(&self, batch: u64) {
        self.taken.took(batch);
    }

    /// All that are sums.
    fn sums(&self) -> [&AtomicU64; SUMS] {
        let (seen, sent, taken) = (&self.seen, &self.sent, &self.taken);
        [
            &seen.same_cpu,
            &seen.same_cache,
            &seen.policy,
            &seen.one_shard,
            &seen.polled,
            &seen.closed,
            &seen.unknown_cpu,
            &seen.asleep,
            &seen.depth,
            &seen.moved,
            &sent.pushes,
            &sent.wakeups,
            &sent.refused,
            &taken.batches,
            &taken.batched,
        ]
    }

    pub(crate) fn read(&self) -> SteeringStats {
        let mut stats = SteeringStats::default();
        for (to, from) in stats.sums().into_iter().zip(self.sums()) {
            *to = from.load(Ordering::Relaxed);
        }
        stats.max_batch = self.taken.max_batch.load(Ordering::Relaxed);
        stats
    }

    /// Empties these into others.
    pub(crate) fn move_to(&self, to: &Self) {
        for (from, to) in self.sums().into_iter().zip(to.sums()) {
            to.fetch_add(from.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
        let largest = self.taken.max_batch.swap(0, Ordering::Relaxed);
        to.taken.max_batch.fetch_max(largest, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::test_support::{Req, Woken, on};
    use crate::{CompletionSink, DoneListHandle, Router, Runner, Steered, TenantId};
    use inflight_topology::{Scope, Topology};

    #[test]
    fn a_batch_counts_once_for_each_tenant_however_many_there_are() {
        let topology = Topology::synthetic("cache:2 core:1").unwrap();
        let woken = Woken::default();
        let router = Router::new(topology, Scope::Cpu, woken.clone(), drop::<Box<Req>>);
        let tenants: Vec<_> = (0..17).map(TenantId::new).collect();
        // The second requests come after the first ones of all.
        for &tenant in tenants.iter().chain(&tenants) {
            let steered = on(0, || router.steer(Req::of(tenant, 1)));
            assert!(matches!(steered, Steered::Sent { cpu: 1, .. }));
        }
        let lists = woken.take();
        assert_eq!(lists.len(), 1, "one wakes");
        lists[0].run();
        for tenant in tenants {
            let stats = router.tenant_stats(tenant);
            let counted = (stats.batches, stats.batched, stats.max_batch);
            assert_eq!(counted, (1, 2, 2), "{tenant:?}");
        }
        let all = router.stats();
        assert_eq!((all.batches, all.batched, all.max_batch), (1, 34, 34));
    }

    #[test]
    fn what_is_moved_is_neither_lost_nor_counted_twice() {
        let (from, to) = (Counters::default(), Counters::default());
        from.ran_inline(InlineReason::Polled);
        from.pushed();
        from.wakes(true);
        from.took(3);
        to.took(2);
        let mut sum = from.read();
        sum.add(to.read());
        from.move_to(&to);
        assert_eq!((from.read(), to.read()), (SteeringStats::default(), sum));
    }

    /// A runner's wake throws what panics when it is dropped, and so does the callback that runs
    /// here instead. The first panic comes out.
    #[test]
    fn a_wake_and_a_callback_throw() {
        struct Thrown;
        impl Drop for Thrown {
            fn drop(&mut self) {
                panic!("dropped");
            }
        }
        struct Throws;
        impl CompletionSink for Throws {
            fn runner(&self, _: &CpuSet, _: DoneListHandle) -> Option<Box<dyn Runner>> {
                Some(Box::new(Self))
            }
        }
        impl Runner for Throws {
            fn wake(&self, _: usize) -> bool {
                std::panic::panic_any(Thrown);
            }
        }
        let topology = Topology::synthetic("cache:2 core:1").unwrap();
        let router = Router::new(topology, Scope::Cpu, Throws, |_: Box<Req>| {
            std::panic::panic_any(Thrown)
        });
        let steered = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            drop(on(0, || router.steer(Req::from(1))));
        }));
        std::mem::forget(steered.expect_err("the first panic comes out"));
    }
}
