//! From a redeemed token to its callback, on the CPU where the callback should run.

use crate::error::RedeemError;
use crate::set::TagSet;
use crate::shared::SetSubscriber;
use crate::tag::Tag;
use crate::tenant::Tenant;
use inflight_steering::{Decision, Leftover, Router, ShardStats, Steered, SteeringStats, TenantId};
use inflight_sync::{Arc, Weak};
use inflight_topology::Topology;

/// Runs completions of a [`TagSet`] on the CPU of their policy. Made by [`TagSet::completions`].
///
/// A cheap handle; all clones refer to the same completions. When the last is dropped the done
/// lists are [closed](Self::close). A callback that holds one keeps them open for ever, unless the
/// program closes them.
///
/// ```
/// use inflight_tags::steering::Decision;
/// use inflight_tags::{Tag, TagSet};
/// use inflight_topology::Topology;
/// use std::sync::mpsc;
///
/// struct Req { result: i32 }
/// let set = TagSet::builder().depth(8).build(|_, _| Req { result: 0 })?;
/// let dev = set.add_tenant("nvme0n1")?;
/// let (done, results) = mpsc::channel();
/// let completions = set
///     .completions(&Topology::discover()?)
///     .build(move |req: Tag<Req>| done.send(req.result).unwrap());
///
/// let token = dev.alloc_blocking()?.into_token();
/// completions.complete(token, |req| req.result = 4096)?;
/// assert_eq!(results.recv()?, 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Counters, and the end:
///
/// ```
/// # use inflight_tags::{Tag, TagSet};
/// # use inflight_topology::{Scope, Topology, set_current_cpu_for_thread};
/// # let set = TagSet::builder().depth(1).build(|_, _| 0)?;
/// # let dev = set.add_tenant("nvme0n1")?;
/// let topo = Topology::synthetic("cache:2 core:2")?;
/// let completions = set.completions(&topo).scope(Scope::Cache).build(drop::<Tag<i32>>);
/// let cpus: Vec<_> = completions.shard_stats().iter().map(|s| s.cpus.to_string()).collect();
/// assert_eq!(cpus, ["0-1", "2-3"]);
/// set_current_cpu_for_thread(Some(0)); // as if this ran there
/// let token = dev.alloc_blocking()?.into_token();
/// set_current_cpu_for_thread(Some(1));
/// completions.submitter_resumed(&set.redeem(token)?);
/// assert_eq!(completions.stats().submitter_moved, 1);
/// completions.close();
/// let token = dev.alloc_blocking()?.into_token();
/// assert!(completions.complete(token, |_| ())?.is_inline());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Completions<T: Send + 'static> {
    inner: Arc<CompletionsInner<T>>,
}

struct CompletionsInner<T: Send + 'static> {
    set: TagSet<T>,
    router: Router<Tag<T>>,
}

impl<T: Send + 'static> Completions<T> {
    pub(super) fn new(set: TagSet<T>, router: Router<Tag<T>>) -> Self {
        let inner = Arc::new(CompletionsInner { set, router });
        let subscriber: Weak<CompletionsInner<T>> = Arc::downgrade(&inner);
        inner.set.shared.add_subscriber(subscriber);
        Self { inner }
    }

    /// Completes the request of a token: redeems it, lets `fill` put the result into its slot, and
    /// runs the callback on the CPU that the request's policy names, perhaps here and now. Returns
    /// the decision, or, if the done list was closed, what was done instead. Without a
    /// [sink](super::CompletionsBuilder::sink) all done lists are closed, because they have no
    /// workers: the answer is `Inline(Closed)` where it would have been sent.
    ///
    /// Callbacks that complete others are nested eight deep. A deeper one waits in a done list, or,
    /// if the list has no worker, for the end of the outer callbacks: then it runs on this thread
    /// (reason [`Depth`](super::RedirectReason::Depth) in both cases).
    ///
    /// # Errors
    ///
    /// The errors of [`TagSet::redeem`]; neither `fill` nor the callback is called then.
    ///
    /// # Panics
    ///
    /// Panics with `fill`, and frees the tag; panics with a callback that ran here, or with
    /// [`Runner::wake`](super::Runner::wake), whose panic counts as a refusal.
    pub fn complete(&self, token: u64, fill: impl FnOnce(&mut T)) -> Result<Decision, RedeemError> {
        let mut tag = self.inner.set.redeem(token)?;
        fill(&mut tag);
        Ok(self.complete_tag(tag))
    }

    /// Completes the request of a tag that the caller holds: for example one redeemed as timed out
    /// ([`TagSet::redeem_timed_out`]), or one that was never a token ([`Tag::submit_here`]).
    ///
    /// # Panics
    ///
    /// Panics with a callback that ran here, or with [`Runner::wake`](super::Runner::wake).
    ///
    /// ```
    /// # use inflight_tags::{Tag, TagSet};
    /// # use inflight_topology::Topology;
    /// # let set = TagSet::builder().depth(1).build(|_, _| 0)?;
    /// # let dev = set.add_tenant("nvme0n1")?;
    /// let completions = set.completions(&Topology::synthetic("core:1")?).build(drop::<Tag<i32>>);
    /// let token = dev.alloc_blocking()?.into_token();
    /// set.for_each_in_flight(|t| { t.mark_timed_out(); });
    /// completions.complete_tag(set.redeem_timed_out(token)?);
    /// assert_eq!((set.in_use(), completions.stats().completed()), (0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    // A caller may ignore where it ran.
    #[allow(clippy::must_use_candidate)]
    pub fn complete_tag(&self, tag: Tag<T>) -> Decision {
        self.inner.router.complete(tag)
    }

    /// As [`complete`](Self::complete), but returns a completion that should run here to the
    /// caller. The caller runs it with borrowed data, or after it has reaped the whole ring. Other
    /// completions go to their done list, and there to the callback.
    ///
    /// # Errors
    ///
    /// The errors of [`TagSet::redeem`]; `fill` is not called then.
    ///
    /// ```
    /// # use inflight_tags::steering::Steered;
    /// # use inflight_tags::{Tag, TagSet};
    /// # use inflight_topology::Topology;
    /// # let set = TagSet::builder().depth(1).build(|_, _| 0)?;
    /// # let dev = set.add_tenant("nvme0n1")?;
    /// let completions = set.completions(&Topology::synthetic("core:1")?).build(drop::<Tag<i32>>);
    /// let token = dev.alloc_blocking()?.into_token();
    /// let mut bytes = 0;
    /// match completions.steer(token, |req| *req = 4096)? {
    ///     Steered::Here(req, _) => bytes += *req,
    ///     Steered::Sent { cpu, .. } => println!("it runs on CPU {cpu}"),
    /// }
    /// assert_eq!(bytes, 4096);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn steer(
        &self,
        token: u64,
        fill: impl FnOnce(&mut T),
    ) -> Result<Steered<Tag<T>>, RedeemError> {
        let mut tag = self.inner.set.redeem(token)?;
        fill(&mut tag);
        Ok(self.steer_tag(tag))
    }

    /// Does [`steer`](Self::steer) for a tag that the caller holds, as
    /// [`complete_tag`](Self::complete_tag) does for [`complete`](Self::complete).
    pub fn steer_tag(&self, tag: Tag<T>) -> Steered<Tag<T>> {
        self.inner.router.steer(tag)
    }

    /// Returns the counters of one tenant's requests: zeros, if it is of another set. The numbers
    /// of all tenants, former ones included, add up to [`stats`](Self::stats), except that a batch
    /// with requests of several tenants counts for each of them, with its part.
    ///
    /// ```
    /// # use inflight_tags::{Tag, TagSet};
    /// # use inflight_topology::Topology;
    /// let set = TagSet::builder().depth(2).build(|_, _| 0)?;
    /// let (log, data) = (set.add_tenant("log")?, set.add_tenant("data")?);
    /// let completions = set.completions(&Topology::synthetic("core:2")?).build(drop::<Tag<i32>>);
    /// completions.complete(log.alloc_blocking()?.into_token(), |_| ())?;
    /// let counted = [&log, &data].map(|queue| completions.tenant_stats(queue).completed());
    /// assert_eq!(counted, [1, 0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn tenant_stats(&self, tenant: &Tenant<T>) -> SteeringStats {
        let same = Arc::ptr_eq(&tenant.shared.bitmaps, &self.inner.set.shared.bitmaps);
        if same {
            self.inner.router.tenant_stats(tenant.id)
        } else {
            SteeringStats::default()
        }
    }

    /// As [`Router::submitter_resumed`].
    pub fn submitter_resumed(&self, tag: &Tag<T>) {
        self.inner.router.submitter_resumed(tag);
    }

    /// As [`Router::stats`].
    #[must_use]
    pub fn stats(&self) -> SteeringStats {
        self.inner.router.stats()
    }

    /// As [`Router::shard_stats`].
    #[must_use]
    pub fn shard_stats(&self) -> Vec<ShardStats> {
        self.inner.router.shard_stats()
    }

    /// As [`Router::close`], also the panics.
    pub fn close(&self) {
        self.inner.router.close();
    }

    /// As [`Router::close_cpu`], also the panics.
    pub fn close_cpu(&self, cpu: usize) {
        self.inner.router.close_cpu(cpu);
    }

    /// As [`Router::open_cpu`].
    pub fn open_cpu(&self, cpu: usize) {
        self.inner.router.open_cpu(cpu);
    }

    /// Returns the set of its requests.
    #[must_use]
    pub fn set(&self) -> &TagSet<T> {
        &self.inner.set
    }
}

impl<T: Send + 'static> SetSubscriber for CompletionsInner<T> {
    fn refresh(&self, topology: &Topology) -> Leftover {
        self.router.refresh(topology)
    }

    fn forget(&self, tenants: &[TenantId]) {
        self.router.forget(tenants);
    }
}

impl<T: Send + 'static> Clone for Completions<T> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

inflight_sync::debug_fields!([T: Send + 'static] Completions<T>: |this|
    shards = this.shard_stats().len(), stats = this.stats());
