//! From a completed request to its callback, on the CPU that
//! [`decide`](inflight_topology::steering::decide) chooses.

use crate::cpu_map::{Known, ShardMap, Shards, lists};
use crate::item::{Item, TenantId};
use crate::nesting;
use crate::shard::{Core, ShardRef};
use crate::sink::CompletionSink;
use crate::stats::{Counters, ShardStats, SteeringStats};
use crate::submit_info::Submission;
use inflight_sync::panics::FirstPanic;
use inflight_sync::{Arc, Mutex, RetainedVersions, cpu};
use inflight_topology::steering::{Completion, Decision, DoneList, InlineReason, RedirectReason};
use inflight_topology::{Scope, Topology};

/// Runs the callback of each completed request where it was submitted, or here: done lists by CPU,
/// and the decision for each request.
///
/// No lock is held while a completion runs. A new policy holds for requests that are submitted
/// later, because each request keeps the policy of its submission. When the router is dropped the
/// done lists are [closed](Self::close).
///
/// [`Item`] has an example.
pub struct Router<I: Item> {
    core: Arc<Core<I>>,
    scope: Scope,
    sink: Box<dyn CompletionSink>,
    map: RetainedVersions<ShardMap<I>>,
    shards: Mutex<Shards<I>>,
}

/// Work for the caller: runs the completions of done lists that were closed.
///
/// # Panics
/// With the first panic of a callback, after all have been called.
pub type Leftover = Box<dyn FnOnce()>;

/// A completion that was steered but not run. See [`Router::steer`].
///
/// ```
/// use inflight_steering::Steered;
/// fn run<I>(steered: Steered<I>, finish: impl FnOnce(I)) {
///     match steered {
///         Steered::Here(req, _) => finish(req),
///         Steered::Sent { .. } => {} // its done list's worker calls the callback
///     }
/// }
/// ```
#[derive(Debug)]
#[must_use = "a request that is dropped is lost"]
pub enum Steered<I> {
    /// It should run here: the caller runs it.
    Here(I, InlineReason),
    /// It is in the done list of a CPU, whose worker calls the callback.
    Sent {
        /// The CPU.
        cpu: usize,
        /// The reason for sending it there.
        reason: RedirectReason,
    },
}

/// Returns the counters of the CPU that sees a completion.
fn counters<I: Item>(map: &ShardMap<I>, cpu: usize, tenant: TenantId) -> &Counters {
    map.counting(cpu).counters(tenant)
}

impl<I: Item> Router<I> {
    /// Makes a router with a done list for each pod of `scope`, emptied by the workers of `sink`.
    ///
    /// `callback` runs on the thread that sees a completion or empties a done list. It may complete
    /// others.
    ///
    /// # Panics
    ///
    /// Panics with [`CompletionSink::runner`], which is called here for each done list.
    pub fn new(
        topology: Topology,
        scope: Scope,
        sink: impl CompletionSink,
        callback: impl Fn(I) + Send + Sync + 'static,
    ) -> Self {
        let core = Arc::new(Core::new(Box::new(callback)));
        let lists = lists(&topology, scope, &[], &core, &sink);
        Self {
            core,
            scope,
            sink: Box::new(sink),
            shards: Mutex::new(Shards::new(&lists)),
            map: RetainedVersions::new(ShardMap::new(topology, lists)),
        }
    }

    /// Runs the callback on the CPU that the request's policy names, perhaps here and now. Returns
    /// the decision, or, if the done list was closed, what was done instead.
    ///
    /// Callbacks that complete others are nested eight deep. A deeper one waits in a done list, or,
    /// if the list has no worker, for the end of the outer callbacks: then it runs on this thread
    /// (reason [`Depth`](RedirectReason::Depth) in both cases).
    ///
    /// # Panics
    ///
    /// Panics with a callback that ran here, or with [`Runner::wake`](crate::Runner::wake), whose
    /// panic counts as a refusal.
    // Why: it acts, and a caller that wants only that may ignore where.
    #[allow(clippy::must_use_candidate)]
    pub fn complete(&self, item: I) -> Decision {
        let (map, depth, tenant) = (self.map.current(), nesting::current(), item.tenant());
        match self.send(map, item, depth) {
            Err((item, observer, _)) if depth >= Completion::MAX_DEPTH => {
                counters(map, observer, tenant).defer();
                self.core.defer(item);
                Decision::Redirect {
                    cpu: observer,
                    reason: RedirectReason::Depth,
                }
            }
            Err((item, observer, reason)) => {
                counters(map, observer, tenant).ran_inline(reason);
                self.core.call(item);
                Decision::Inline(reason)
            }
            Ok((cpu, reason)) => Decision::Redirect { cpu, reason },
        }
    }

    /// As [`complete`](Self::complete), but returns a completion that should run here to the
    /// caller.
    ///
    /// # Panics
    ///
    /// Panics with [`Runner::wake`](crate::Runner::wake).
    pub fn steer(&self, item: I) -> Steered<I> {
        let (map, tenant) = (self.map.current(), item.tenant());
        match self.send(map, item, 0) {
            Ok((cpu, reason)) => Steered::Sent { cpu, reason },
            Err((item, observer, reason)) => {
                counters(map, observer, tenant).ran_inline(reason);
                Steered::Here(item, reason)
            }
        }
    }

    /// Records that the waiter for the request now runs on the calling thread. If this is not the
    /// CPU of the submission, the submitter has moved, which
    /// [`submitter_moved`](SteeringStats::submitter_moved) counts. A large count means that
    /// steering by the submitter's CPU misses.
    pub fn submitter_resumed(&self, item: &I) {
        let here = cpu::current();
        let submitted = item.submission().and_then(|submission| submission.cpu);
        if submitted.is_some_and(|cpu| cpu != here) {
            counters(self.map.current(), here, item.tenant()).moved();
        }
    }

    /// Returns the counters, over all shards and tenants.
    #[must_use]
    pub fn stats(&self) -> SteeringStats {
        self.sum_of(None)
    }

    /// Returns the counters of one tenant's requests. The numbers of all tenants, former ones
    /// included, add up to [`stats`](Self::stats), except that a batch with requests of several
    /// tenants counts for each of them, with its part.
    #[must_use]
    pub fn tenant_stats(&self, tenant: TenantId) -> SteeringStats {
        self.sum_of(Some(tenant))
    }

    /// Returns the counters of each shard. A shard whose CPUs were removed keeps its numbers, and
    /// the CPUs it served last.
    #[must_use]
    pub fn shard_stats(&self) -> Vec<ShardStats> {
        let shards = self.shards.lock();
        let of = |known: &Known<I>| ShardStats {
            cpus: known.list.cpus.clone(),
            stats: known.list.shard.stats(),
        };
        shards.known.iter().map(of).collect()
    }

    /// Closes all done lists, and runs their completions on the calling thread. From now on each
    /// completion runs where it is seen, unless [`open_cpu`](Self::open_cpu) opens a done list
    /// again. Callbacks that workers have begun may still run when this returns.
    ///
    /// # Panics
    ///
    /// Panics with the first panic of a callback, after all of them have been called.
    pub fn close(&self) {
        let left = self.shards.lock().close_all();
        self.core.run_left(left);
    }

    /// Closes the done list of `cpu`'s shard, and runs its completions on the calling thread: for a
    /// CPU that is taken out of use. Until [`open_cpu`](Self::open_cpu) completions for that shard
    /// run where they are seen, also if a [`refresh`](Self::refresh) removes its CPUs and another
    /// brings them back. It is the shard that is closed, and not the CPU: if a refresh gives `cpu`
    /// to another shard, that one is open. Without such a shard it does nothing. It panics as
    /// [`close`](Self::close).
    pub fn close_cpu(&self, cpu: usize) {
        if let Some(list) = self.map.current().done_list(cpu) {
            let left = self.shards.lock().close(&list.shard);
            self.core.run_left(left);
        }
    }

    /// Opens the done list of `cpu`'s shard again. It does nothing if the list is open, if there is
    /// no such shard, or if the sink has no worker for it.
    pub fn open_cpu(&self, cpu: usize) {
        let list = self.map.current().done_list(cpu);
        if let Some(list) = list.filter(|list| list.runner.is_some()) {
            self.shards.lock().open(&list.shard);
        }
    }

    /// Decides by another topology from now on. One call at a time. Call the result outside all
    /// locks: it runs the completions of done lists that were closed.
    #[must_use = "completions wait for it"]
    pub fn refresh(&self, topology: &Topology) -> Leftover {
        if self.map.current().topology == *topology {
            return Box::new(|| ());
        }
        self.publish(topology);
        self.follow()
    }

    /// Those who complete decide by another topology from now on.
    fn publish(&self, topology: &Topology) {
        self.map.replace(
            |map| map.topology == *topology,
            || {
                let known: Vec<ShardRef<I>> = {
                    let shards = self.shards.lock();
                    let lists = shards.known.iter().map(|known| &known.list);
                    lists.map(|list| list.of(list.cpus.clone())).collect()
                };
                let lists = lists(topology, self.scope, &known, &self.core, &*self.sink);
                self.shards.lock().add(&lists);
                ShardMap::new(topology.clone(), lists)
            },
        );
    }

    /// Opens the done lists of the published map, and closes those that are not in it.
    fn follow(&self) -> Leftover {
        // M4 now, before the next refresh may open them.
        let left = self.shards.lock().follow(&self.map.current().lists);
        let core = self.core.clone();
        Box::new(move || core.run_left(left))
    }

    /// Records that these tenants and their requests are gone: their counters are added to those of
    /// the former tenants.
    pub fn forget(&self, tenants: &[TenantId]) {
        for known in &self.shards.lock().known {
            tenants
                .iter()
                .for_each(|&tenant| known.list.shard.forget(tenant));
        }
    }

    /// Of one tenant, or of all.
    fn sum_of(&self, tenant: Option<TenantId>) -> SteeringStats {
        let mut sum = SteeringStats::default();
        for known in &self.shards.lock().known {
            let shard = &known.list.shard;
            sum.add(tenant.map_or_else(|| shard.stats(), |tenant| shard.stats_of(tenant)));
        }
        if tenant.is_none() {
            sum.panicked = self.core.panicked();
        }
        sum
    }

    /// Decides, and sends the completion if it is to be sent. Otherwise returns it, with this CPU
    /// and the reason.
    fn send(
        &self,
        map: &ShardMap<I>,
        item: I,
        depth: u32,
    ) -> Result<(usize, RedirectReason), (I, usize, InlineReason)> {
        let observer = cpu::current();
        let Some(submission) = item.submission() else {
            return Err((item, observer, InlineReason::UnknownCpu));
        };
        match decide(map, observer, submission, depth) {
            Decision::Inline(reason) => Err((item, observer, reason)),
            Decision::Redirect { cpu, reason } => match self.push(map, cpu, item) {
                Ok(()) => Ok((cpu, reason)),
                Err(item) => Err((item, observer, InlineReason::Closed)),
            },
        }
    }

    /// # Errors
    /// If the done list of that CPU has no worker.
    fn push(&self, map: &ShardMap<I>, cpu: usize, item: I) -> Result<(), I> {
        let Some(list) = map.done_list(cpu) else {
            return Err(item);
        };
        let Some(runner) = &list.runner else {
            return Err(item);
        };
        let counters = list.shard.counters(item.tenant());
        let was_empty = list.shard.push(item, counters)?;
        if was_empty {
            let mut panic = FirstPanic::default();
            if panic.run(|| runner.wake(cpu)) != Some(true) {
                // Also after a panic: the next push will find the done list not empty, and not
                // wake.
                counters.refused();
                panic.run(|| self.core.run_soon(&list.shard));
            }
            panic.finish();
        }
        Ok(())
    }
}

fn decide<I: Item>(
    map: &ShardMap<I>,
    observer: usize,
    submission: Submission,
    depth: u32,
) -> Decision {
    let submitter = submission.cpu.unwrap_or(usize::MAX);
    let list = match map.done_list(submitter) {
        // The rules say that it is unknown.
        None => DoneList::Awake,
        Some(list) => match &list.runner {
            Some(runner) => list.shard.state(&**runner),
            None => DoneList::Closed,
        },
    };
    Completion::new(observer, submitter)
        .policy(submission.policy)
        .polled(submission.polled)
        .done_list(list)
        .one_shard(map.is_one_shard())
        .depth(depth)
        .decide(&map.topology)
}

impl<I: Item> Drop for Router<I> {
    fn drop(&mut self) {
        self.close();
    }
}

inflight_sync::debug_fields!([I: Item] Router<I>: |this|
    shards = this.shard_stats().len(), stats = this.stats());

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::DoneListHandle;
    use crate::test_support::{Req, Woken, on};
    use inflight_sync::atomic::{AtomicUsize, Ordering};

    fn machine(text: &str) -> Topology {
        Topology::synthetic(text).unwrap()
    }

    /// A request is completed between the two steps of a refresh.
    #[test]
    fn a_closed_router_that_gets_cpus_loses_nothing() {
        let (woken, ran) = (Woken::default(), Arc::new(AtomicUsize::new(0)));
        let counted = ran.clone();
        let small = machine("cache:2 core:1");
        let router = Router::new(small, Scope::Cpu, woken.clone(), move |_: Box<Req>| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        router.close();
        router.publish(&machine("cache:4 core:1"));
        let decision = on(0, || router.complete(Req::from(3)));
        router.follow()();
        woken.take().iter().for_each(DoneListHandle::run);
        assert_eq!(ran.load(Ordering::Relaxed), 1);
        assert_eq!(decision, Decision::Inline(InlineReason::Closed));
    }

    #[test]
    fn a_cpu_is_as_it_was_left_when_it_is_back() {
        let all = machine("cache:4 core:1");
        let callback = drop::<Box<Req>>;
        let router = Router::new(all.clone(), Scope::Cpu, Woken::default(), callback);
        let leaves_and_returns = || {
            router.refresh(&machine("cache:4 core:1 offline:3"))();
            router.open_cpu(3); // changes nothing: it is not there
            router.refresh(&all)();
        };
        let sent = || on(0, || router.complete(Req::from(3))).redirect();
        router.close_cpu(3);
        leaves_and_returns();
        assert_eq!(sent(), None, "closed");
        router.open_cpu(3);
        assert_eq!(sent(), Some(3));
        leaves_and_returns();
        assert_eq!(sent(), Some(3), "open");
        router.close();
        leaves_and_returns();
        assert_eq!(sent(), None, "all were closed");
        router.open_cpu(3);
        leaves_and_returns();
        assert_eq!(sent(), Some(3), "one was opened again");
    }
}
