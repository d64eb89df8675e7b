//! From a token that came back to its callback, on the CPU where it belongs.

use super::note::Noted;
use super::shard::{Core, Shard};
use super::{
    CompletionsBuilder, Decision, InlineReason, RedirectReason, ShardStats, SteeringPolicy,
    SteeringStats, depth,
};
use crate::error::RedeemError;
use crate::set::TagSet;
use crate::tag::Tag;
use inflight_sync::{Arc, cpu, thread};
use inflight_topology::Topology;
use inflight_topology::steering::{Completion, Mailbox};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs completions of a [`TagSet`] where they belong. Made by [`TagSet::completions`].
///
/// A cheap handle; the clones are one. When the last is dropped the mailboxes are
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
/// let dev = set.add_queue("nvme0n1");
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
    inner: Arc<Inner<T>>,
}

struct Inner<T: Send + 'static> {
    set: TagSet<T>,
    topology: Topology,
    /// The shard of each CPU; `NONE` if the topology does not know it.
    shard_of: Box<[u32]>,
    shards: Box<[Shard]>,
    core: Arc<Core<T>>,
}

const NONE: u32 = u32::MAX;

/// A completion that was steered but not run. See [`Completions::steer`].
#[derive(Debug)]
#[must_use = "a tag that is dropped is freed"]
pub enum Steered<T> {
    /// It belongs here: whoever steered it runs it.
    Here(Tag<T>, InlineReason),
    /// It is in the mailbox of a CPU, whose worker calls the callback.
    Sent {
        /// The CPU.
        cpu: usize,
        /// Why it was sent there.
        reason: RedirectReason,
    },
}

impl<T: Send + 'static> Completions<T> {
    pub(super) fn new(
        set: TagSet<T>,
        topology: Topology,
        shards: Box<[Shard]>,
        core: Arc<Core<T>>,
    ) -> Self {
        let cpus = shards.iter().filter_map(|shard| shard.cpus.last());
        let mut shard_of = vec![NONE; cpus.max().map_or(0, |last| last + 1)];
        for (index, shard) in shards.iter().enumerate() {
            for cpu in &shard.cpus {
                shard_of[cpu] = index as u32;
            }
        }
        Self {
            inner: Arc::new(Inner {
                set,
                topology,
                shard_of: shard_of.into(),
                shards,
                core,
            }),
        }
    }

    /// Completes the request of a token: redeems it, lets `fill` put the result into its slot, and
    /// has the callback run where the request's policy wants it, which may be here and now. Returns
    /// what was decided, or for a mailbox that turned out to be closed, what was done instead.
    ///
    /// Callbacks that complete others in turn are nested eight deep. What comes on top waits in
    /// a mailbox, or, if nobody empties that, for the end of the callbacks around it (reason
    /// [`Depth`](RedirectReason::Depth)). Then it runs on this thread, or on another one that has
    /// put something off before and not come to it yet.
    ///
    /// # Errors
    ///
    /// As [`TagSet::redeem`]; neither `fill` nor the callback is called then.
    ///
    /// # Panics
    ///
    /// With the panic of `fill`, and the tag is freed; or with that of a callback that ran here, or
    /// of [`Runner::wake`](super::Runner::wake), which counts as a refusal.
    ///
    /// ```
    /// # use inflight_tags::steering::{Decision, InlineReason};
    /// # use inflight_tags::{RedeemError, Tag, TagSet};
    /// # use inflight_topology::Topology;
    /// # let set = TagSet::builder().depth(1).build(|_, _| 0)?;
    /// # let dev = set.add_queue("nvme0n1");
    /// let completions = set.completions(&Topology::synthetic("core:1")?).build(|req: Tag<i32>| {
    ///     assert_eq!(*req, 4096);
    /// });
    /// let token = dev.alloc_blocking()?.into_token();
    /// completions.complete(token, |req| *req = 4096)?;
    /// // A token is good for one completion.
    /// assert_eq!(completions.complete(token, |_| ()), Err(RedeemError::Stale));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn complete(&self, token: u64, fill: impl FnOnce(&mut T)) -> Result<Decision, RedeemError> {
        let mut tag = self.inner.set.redeem(token)?;
        fill(&mut tag);
        Ok(self.hand_over(tag))
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
    /// # let dev = set.add_queue("nvme0n1");
    /// let completions = set.completions(&Topology::synthetic("core:1")?).build(drop::<Tag<i32>>);
    /// let token = dev.alloc_blocking()?.into_token();
    /// set.for_each_in_flight(|t| { t.mark_timed_out(); });
    /// completions.hand_over(set.redeem_timed_out(token)?);
    /// assert_eq!((set.in_use(), completions.stats().completed()), (0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    // Why: it acts, and who only wants that may ignore where.
    #[allow(clippy::must_use_candidate)]
    pub fn hand_over(&self, tag: Tag<T>) -> Decision {
        let inner = &*self.inner;
        let depth = depth::current();
        match inner.send(tag, depth) {
            Err((tag, observer, _)) if depth >= Completion::MAX_DEPTH => {
                inner.counters(observer).put_off();
                inner.core.put_off(tag);
                Decision::Redirect {
                    cpu: observer,
                    reason: RedirectReason::Depth,
                }
            }
            Err((tag, observer, reason)) => {
                inner.counters(observer).ran_inline(reason);
                inner.core.call(tag);
                Decision::Inline(reason)
            }
            Ok((cpu, reason)) => Decision::Redirect { cpu, reason },
        }
    }

    /// As [`complete`](Self::complete), but what belongs here comes back to the caller, who runs it
    /// as it likes: with what it has borrowed, or after it has reaped the whole ring. What belongs
    /// elsewhere goes to its mailbox, and there to the callback.
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
    /// # let dev = set.add_queue("nvme0n1");
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
    pub fn steer(&self, token: u64, fill: impl FnOnce(&mut T)) -> Result<Steered<T>, RedeemError> {
        let mut tag = self.inner.set.redeem(token)?;
        fill(&mut tag);
        Ok(self.steer_tag(tag))
    }

    /// [`steer`](Self::steer) for a tag that is in the caller's hand already, as
    /// [`hand_over`](Self::hand_over) is for [`complete`](Self::complete).
    ///
    /// ```
    /// # use inflight_tags::steering::Steered;
    /// # use inflight_tags::{Tag, TagSet};
    /// # use inflight_topology::Topology;
    /// # let set = TagSet::builder().depth(1).build(|_, _| 0)?;
    /// # let dev = set.add_queue("nvme0n1");
    /// let completions = set.completions(&Topology::synthetic("core:1")?).build(drop::<Tag<i32>>);
    /// let tag = dev.alloc_blocking()?;
    /// tag.submit_here(); // and given to a thread that does the IO
    /// assert!(matches!(completions.steer_tag(tag), Steered::Here(..)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn steer_tag(&self, tag: Tag<T>) -> Steered<T> {
        match self.inner.send(tag, 0) {
            Ok((cpu, reason)) => Steered::Sent { cpu, reason },
            Err((tag, observer, reason)) => {
                self.inner.counters(observer).ran_inline(reason);
                Steered::Here(tag, reason)
            }
        }
    }

    /// Says that whoever waited for `tag` goes on now, on the calling thread: if this is not the
    /// CPU it was submitted on, the submitter has moved, which
    /// [`submitter_moved`](SteeringStats::submitter_moved) counts. Many such mean that steering by
    /// the submitter's CPU misses.
    pub fn resumed(&self, tag: &Tag<T>) {
        let here = cpu::current();
        if tag.submitted_on().is_some_and(|cpu| cpu != here) {
            self.inner.counters(here).moved();
        }
    }

    /// What was counted, over all shards.
    #[must_use]
    pub fn stats(&self) -> SteeringStats {
        let mut sum = SteeringStats::default();
        for index in 0..self.inner.shards.len() {
            sum.add(&self.inner.core.shard(index).counters.read());
        }
        sum
    }

    /// What was counted for each shard.
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
        let shards = self.inner.shards.iter().enumerate();
        shards
            .map(|(index, shard)| ShardStats {
                cpus: shard.cpus.clone(),
                stats: self.inner.core.shard(index).counters.read(),
            })
            .collect()
    }

    /// Closes all mailboxes, and runs what is in them on the calling thread. From now on every
    /// completion runs where it is seen, unless [`open_cpu`](Self::open_cpu) opens a mailbox again.
    /// Callbacks that workers have begun may still run when this returns.
    ///
    /// # Panics
    ///
    /// With the first panic of a callback, after all of them have been called.
    ///
    /// ```
    /// # use inflight_tags::{Tag, TagSet};
    /// # use inflight_topology::Topology;
    /// # let set = TagSet::builder().depth(1).build(|_, _| 0)?;
    /// # let dev = set.add_queue("nvme0n1");
    /// let completions = set.completions(&Topology::synthetic("core:2")?).build(drop::<Tag<i32>>);
    /// completions.close();
    /// let token = dev.alloc_blocking()?.into_token();
    /// assert!(completions.complete(token, |_| ())?.is_inline());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        self.inner.close();
    }

    /// Closes the mailbox of the shard that `cpu` is in, and runs what is in it on the calling
    /// thread: for a CPU that goes away. Until [`open_cpu`](Self::open_cpu) completions for that
    /// shard run where they are seen. Nothing happens if there is no such shard.
    ///
    /// # Panics
    ///
    /// As [`close`](Self::close).
    ///
    /// ```
    /// # use inflight_tags::{Tag, TagSet};
    /// # use inflight_topology::Topology;
    /// # let set = TagSet::builder().depth(1).build(|_, _| 0)?;
    /// let completions = set.completions(&Topology::synthetic("core:2")?).build(drop::<Tag<i32>>);
    /// completions.close_cpu(1); // offline
    /// completions.open_cpu(1); // back
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close_cpu(&self, cpu: usize) {
        if let Some(shard) = self.inner.shard_index(cpu) {
            self.inner
                .core
                .close(shard)
                .unwrap_or_else(|panic| resume_unwind(panic));
        }
    }

    /// Opens the mailbox of `cpu`'s shard again. Nothing happens if it is open, if there is no such
    /// shard, or if the sink has no worker for it.
    pub fn open_cpu(&self, cpu: usize) {
        if let Some(shard) = self.inner.shard_index(cpu) {
            if self.inner.shards[shard].runner.is_some() {
                self.inner.core.shard(shard).open();
            }
        }
    }

    /// The set whose requests it completes.
    #[must_use]
    pub fn set(&self) -> &TagSet<T> {
        &self.inner.set
    }
}

impl<T: Send + 'static> Inner<T> {
    fn shard_index(&self, cpu: usize) -> Option<usize> {
        let shard = *self.shard_of.get(cpu)?;
        (shard != NONE).then_some(shard as usize)
    }

    /// Where things seen on a CPU are counted.
    fn counters(&self, cpu: usize) -> &super::stats::Counters {
        &self.core.shard(self.shard_index(cpu).unwrap_or(0)).counters
    }

    /// Decides, and sends what is to be sent. Comes back with what is to run here, the CPU this is,
    /// and why.
    fn send(
        &self,
        tag: Tag<T>,
        depth: u32,
    ) -> Result<(usize, RedirectReason), (Tag<T>, usize, InlineReason)> {
        let observer = cpu::current();
        let Some(noted) = tag.note().read() else {
            return Err((tag, observer, InlineReason::UnknownCpu));
        };
        match self.decide(observer, noted, depth) {
            Decision::Inline(reason) => Err((tag, observer, reason)),
            Decision::Redirect { cpu, reason } => match self.push(cpu, tag) {
                Ok(()) => Ok((cpu, reason)),
                Err(tag) => Err((tag, observer, InlineReason::Closed)),
            },
        }
    }

    fn decide(&self, observer: usize, noted: Noted, depth: u32) -> Decision {
        let submitter = noted.cpu.unwrap_or(usize::MAX);
        let mailbox = match self.shard_index(submitter) {
            // The rules say that it is unknown.
            None => Mailbox::Awake,
            Some(index) => match &self.shards[index].runner {
                Some(runner) => self.core.shard(index).state(&**runner),
                None => Mailbox::Closed,
            },
        };
        Completion::new(observer, submitter)
            .policy(noted.policy)
            .polled(noted.polled)
            .mailbox(mailbox)
            .one_shard(self.shards.len() == 1)
            .depth(depth)
            .decide(&self.topology)
    }

    /// # Errors
    /// Nobody empties the mailbox of that CPU.
    fn push(&self, cpu: usize, tag: Tag<T>) -> Result<(), Tag<T>> {
        let Some(index) = self.shard_index(cpu) else {
            return Err(tag);
        };
        let Some(runner) = &self.shards[index].runner else {
            return Err(tag);
        };
        let shard = self.core.shard(index);
        if shard.push(tag)?.was_empty() {
            shard.counters.woke();
            let woken = catch_unwind(AssertUnwindSafe(|| runner.wake(cpu)));
            if !matches!(woken, Ok(true)) {
                // Also after a panic: the next push will find the mailbox not empty, and not wake.
                shard.counters.refused();
                self.core.run_soon(index);
            }
            woken.unwrap_or_else(|panic| resume_unwind(panic));
        }
        Ok(())
    }

    /// # Panics
    /// With the first panic of a callback.
    fn close(&self) {
        let mut closed = Ok(());
        for shard in 0..self.shards.len() {
            closed = closed.and(self.core.close(shard));
        }
        if let Err(panic) = closed {
            // A thread that unwinds already cannot take another.
            if !thread::panicking() {
                resume_unwind(panic);
            }
        }
    }
}

impl<T: Send + 'static> Drop for Inner<T> {
    fn drop(&mut self) {
        self.close();
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
            .field("shards", &self.inner.shards.len())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl<T: Send + 'static> TagSet<T> {
    /// Describes where completions of this set run; `topology` says which CPUs there are and what
    /// they share.
    ///
    /// From its [`build`](CompletionsBuilder::build) on, each request notes the CPU it is submitted
    /// on; those that are in flight already run where they are seen. See the
    /// [module](crate::steering).
    ///
    /// ```
    /// # use inflight_tags::{Tag, TagSet};
    /// # use inflight_topology::Topology;
    /// # let set = TagSet::builder().depth(1).build(|_, _| 0)?;
    /// let completions = set.completions(&Topology::discover()?).build(|req: Tag<i32>| drop(req));
    /// # let _ = completions;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn completions(&self, topology: &Topology) -> CompletionsBuilder<T> {
        CompletionsBuilder::new(self.clone(), topology.clone())
    }

    /// Changes where completions run. Requests submitted from now on take the new policy with
    /// them; those in flight keep theirs.
    ///
    /// ```
    /// use inflight_tags::{Steering, TagSet};
    /// let set = TagSet::builder().build(|_, _| ())?;
    /// assert_eq!(set.steering().steering(), Steering::SameCache);
    /// set.set_steering(Steering::Inline);
    /// assert_eq!(set.steering().steering(), Steering::Inline);
    /// # Ok::<(), inflight_tags::BuildError>(())
    /// ```
    pub fn set_steering(&self, policy: impl Into<SteeringPolicy>) {
        self.shared.bitmaps.steering().set(policy.into());
    }

    /// Where completions of requests submitted now would run.
    /// See [`set_steering`](Self::set_steering).
    #[must_use]
    pub fn steering(&self) -> SteeringPolicy {
        self.shared.bitmaps.steering().get()
    }
}

impl<T> Tag<T> {
    /// Notes the calling CPU and the set's policy, as [`into_token`](Self::into_token) does. For
    /// requests whose tag itself travels, not its token: before it is given to the thread that does
    /// the IO.
    ///
    /// ```
    /// # use inflight_tags::{Steering, TagSet};
    /// let set = TagSet::builder().depth(1).steering(Steering::SameCpu).build(|_, _| ())?;
    /// let tag = set.add_queue("nvme0n1").alloc_blocking()?;
    /// tag.submit_here();
    /// assert!(tag.submitted_on().is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn submit_here(&self) {
        self.note().write(self.policy(), || self.is_polled());
    }

    /// [`into_token`](Self::into_token) for a request whose submitter looks for the completion
    /// itself. It runs where it is seen, whatever the policy, unless that is
    /// [`Force`](crate::Steering::Force).
    ///
    /// ```
    /// # use inflight_tags::steering::{Decision, InlineReason};
    /// # use inflight_tags::{Steering, Tag, TagSet};
    /// # use inflight_topology::Topology;
    /// let set = TagSet::builder().depth(1).steering(Steering::SameCpu).build(|_, _| ())?;
    /// let completions = set.completions(&Topology::synthetic("core:2")?).build(drop::<Tag<()>>);
    /// let token = set.add_queue("nvme0n1").alloc_blocking()?.into_polled_token();
    /// let ran = completions.complete(token, |_| ())?;
    /// assert_eq!(ran, Decision::Inline(InlineReason::Polled));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "only the token brings the tag back"]
    pub fn into_polled_token(self) -> u64 {
        self.issue(true)
    }

    /// The CPU its request was submitted on. A hint; none if nobody asked for it to be noted, by
    /// [`TagSetBuilder::steering`](crate::TagSetBuilder::steering) or
    /// [`TagSet::completions`](crate::TagSet::completions), before it was submitted. It stays until
    /// the slot is submitted again, so a tag that has not been submitted may tell of its slot's
    /// earlier use.
    ///
    /// ```
    /// # use inflight_tags::{Steering, TagSet};
    /// let set = TagSet::builder().depth(1).steering(Steering::SameCpu).build(|_, _| ())?;
    /// let token = set.add_queue("nvme0n1").alloc_blocking()?.into_token();
    /// let cpu = set.redeem(token)?.submitted_on();
    /// println!("submitted on {cpu:?}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn submitted_on(&self) -> Option<usize> {
        self.note().read()?.cpu
    }
}
