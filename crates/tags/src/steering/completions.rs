//! From a token that came back to its callback, on the CPU where it belongs.

use crate::error::RedeemError;
use crate::set::TagSet;
use crate::shared::SetSubscriber;
use crate::tag::Tag;
use crate::tenant::Tenant;
use inflight_steering::{Decision, Leftover, Router, ShardStats, Steered, SteeringStats, TenantId};
use inflight_sync::{Arc, Weak};
use inflight_topology::Topology;
use std::fmt;

/// Runs completions of a [`TagSet`] where they belong. Made by [`TagSet::completions`].
///
/// A cheap handle; the clones are one. When the last is dropped the done lists are
/// [closed](Self::close). A callback that holds one keeps them open for ever, unless they are
/// closed by hand.
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
    /// has the callback run where the request's policy wants it, which may be here and now. Returns
    /// what was decided, or for a done list that turned out to be closed, what was done instead.
    ///
    /// Callbacks that complete others in turn are nested eight deep. What comes on top waits in
    /// a done list, or, if nobody empties that, for the end of the callbacks around it: then it
    /// runs on this thread (reason [`Depth`](super::RedirectReason::Depth) either way).
    ///
    /// # Errors
    ///
    /// As [`TagSet::redeem`]; neither `fill` nor the callback is called then.
    ///
    /// # Panics
    ///
    /// With the panic of `fill`, and the tag is freed; or with that of a callback that ran here, or
    /// of [`Runner::wake`](super::Runner::wake), which counts as a refusal.
    pub fn complete(&self, token: u64, fill: impl FnOnce(&mut T)) -> Result<Decision, RedeemError> {
        let mut tag = self.inner.set.redeem(token)?;
        fill(&mut tag);
        Ok(self.complete_tag(tag))
    }

    /// The same for a tag that is in the caller's hand already: one redeemed as timed out
    /// ([`TagSet::redeem_timed_out`]), say, or one that never left as a token
    /// ([`Tag::submit_here`]).
    ///
    /// # Panics
    ///
    /// With the panic of a callback that ran here, or of [`Runner::wake`](super::Runner::wake).
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
    // Why: it acts, and who only wants that may ignore where.
    #[allow(clippy::must_use_candidate)]
    pub fn complete_tag(&self, tag: Tag<T>) -> Decision {
        self.inner.router.complete(tag)
    }

    /// As [`complete`](Self::complete), but what belongs here comes back to the caller, who runs it
    /// as it likes: with what it has borrowed, or after it has reaped the whole ring. What belongs
    /// elsewhere goes to its done list, and there to the callback.
    ///
    /// # Errors
    ///
    /// As [`TagSet::redeem`]; `fill` is not called then.
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

    /// [`steer`](Self::steer) for a tag that is in the caller's hand already, as
    /// [`complete_tag`](Self::complete_tag) is for [`complete`](Self::complete).
    pub fn steer_tag(&self, tag: Tag<T>) -> Steered<Tag<T>> {
        self.inner.router.steer(tag)
    }

    /// Says that whoever waited for `tag` goes on now, on the calling thread: if this is not the
    /// CPU it was submitted on, the submitter has moved, which
    /// [`submitter_moved`](SteeringStats::submitter_moved) counts. Many such mean that steering by
    /// the submitter's CPU misses.
    ///
    /// ```
    /// # use inflight_tags::{Tag, TagSet};
    /// # use inflight_topology::{Topology, set_current_cpu_for_thread};
    /// # let set = TagSet::builder().depth(1).build(|_, _| 0)?;
    /// # let dev = set.add_tenant("nvme0n1")?;
    /// let completions = set.completions(&Topology::synthetic("core:2")?).build(drop::<Tag<i32>>);
    /// set_current_cpu_for_thread(Some(0)); // as if this ran there
    /// let token = dev.alloc_blocking()?.into_token();
    /// set_current_cpu_for_thread(Some(1));
    /// completions.submitter_resumed(&set.redeem(token)?);
    /// assert_eq!(completions.stats().submitter_moved, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn submitter_resumed(&self, tag: &Tag<T>) {
        self.inner.router.submitter_resumed(tag);
    }

    /// What was counted, over all shards and tenants.
    #[must_use]
    pub fn stats(&self) -> SteeringStats {
        self.inner.router.stats()
    }

    /// What was counted for the requests of one tenant: nothing, if it is of another set. The
    /// numbers of all, with those that are gone, add up to [`stats`](Self::stats); but a
    /// batch in which several had a part counts for each of them, with that part.
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

    /// What was counted for each shard. One whose CPUs have left keeps its numbers, and the CPUs it
    /// served last.
    ///
    /// ```
    /// # use inflight_tags::{Tag, TagSet};
    /// # use inflight_topology::{Scope, Topology};
    /// # let set = TagSet::builder().depth(1).build(|_, _| 0)?;
    /// let topo = Topology::synthetic("cache:2 core:4")?;
    /// let completions = set.completions(&topo).scope(Scope::Cache).build(drop::<Tag<i32>>);
    /// let cpus: Vec<_> = completions.shard_stats().iter().map(|s| s.cpus.to_string()).collect();
    /// assert_eq!(cpus, ["0-3", "4-7"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn shard_stats(&self) -> Vec<ShardStats> {
        self.inner.router.shard_stats()
    }

    /// Closes all done lists, and runs what is in them on the calling thread. From now on every
    /// completion runs where it is seen, unless [`open_cpu`](Self::open_cpu) opens a done list
    /// again. Callbacks that workers have begun may still run when this returns.
    ///
    /// # Panics
    ///
    /// With the first panic of a callback, after all of them have been called.
    ///
    /// ```
    /// # use inflight_tags::{Tag, TagSet};
    /// # use inflight_topology::Topology;
    /// # let set = TagSet::builder().depth(1).build(|_, _| 0)?;
    /// # let dev = set.add_tenant("nvme0n1")?;
    /// let completions = set.completions(&Topology::synthetic("core:2")?).build(drop::<Tag<i32>>);
    /// completions.close();
    /// let token = dev.alloc_blocking()?.into_token();
    /// assert!(completions.complete(token, |_| ())?.is_inline());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        self.inner.router.close();
    }

    /// Closes the done list of the shard that `cpu` is in, and runs what is in it on the calling
    /// thread: for a CPU that goes away. Until [`open_cpu`](Self::open_cpu) completions for that
    /// shard run where they are seen. Nothing happens if there is no such shard.
    ///
    /// # Panics
    ///
    /// As [`close`](Self::close).
    pub fn close_cpu(&self, cpu: usize) {
        self.inner.router.close_cpu(cpu);
    }

    /// Opens the done list of `cpu`'s shard again. Nothing happens if it is open, if there is no
    /// such shard, or if the sink has no worker for it.
    pub fn open_cpu(&self, cpu: usize) {
        self.inner.router.open_cpu(cpu);
    }

    /// The set whose requests it completes.
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

impl<T: Send + 'static> fmt::Debug for Completions<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completions")
            .field("shards", &self.shard_stats().len())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
