//! The steering policies of a set, a tenant and a tag.

use crate::set::TagSet;
use crate::slot::Slot;
use crate::tag::Tag;
use crate::tenant::Tenant;
use inflight_steering::{Item, Link, SteeringPolicy, Submission, TenantId};
use std::ptr::NonNull;

impl<T: Send + 'static> TagSet<T> {
    /// Sets where completions run, of all tenants without a [policy of their
    /// own](Tenant::set_steering). Requests submitted from now on have the new policy; those in
    /// flight keep theirs.
    pub fn set_steering(&self, policy: impl Into<SteeringPolicy>) {
        self.shared.bitmaps.policies.set(policy.into());
    }

    /// Returns where completions of requests submitted now would run, unless their tenant has its
    /// own policy. The [tenant's method](Tenant::set_steering) has an example.
    #[must_use]
    pub fn steering(&self) -> SteeringPolicy {
        self.shared.bitmaps.policies.get()
    }
}

impl<T: Send + 'static> Tenant<T> {
    /// Sets where completions of this tenant's requests run, whatever the set's policy: of those
    /// that are submitted from now on, until [`follow_set_steering`](Self::follow_set_steering). It
    /// holds for all clones of the tenant.
    ///
    /// ```
    /// use inflight_tags::{Steering, TagSet};
    /// let set = TagSet::builder().steering(Steering::SameCache).build(|_, _| ())?;
    /// let (log, data) = (set.add_tenant("log")?, set.add_tenant("data")?);
    /// log.set_steering(Steering::Force); // its writer wants to be called on its own CPU
    /// set.set_steering(Steering::Inline);
    /// let policies = [log, data].map(|tenant| tenant.steering().steering());
    /// assert_eq!(policies, [Steering::Force, Steering::Inline]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_steering(&self, policy: impl Into<SteeringPolicy>) {
        let policies = &self.bitmaps().policies;
        policies.set_own(self.id, Some(policy.into()));
    }

    /// Takes the set's policy again, for requests submitted from now on.
    pub fn follow_set_steering(&self) {
        self.bitmaps().policies.set_own(self.id, None);
    }

    /// Returns where completions of requests submitted now would run: by its own policy, or the
    /// set's. [`set_steering`](Self::set_steering) has an example.
    #[must_use]
    pub fn steering(&self) -> SteeringPolicy {
        let policies = &self.bitmaps().policies;
        policies.own(self.id).unwrap_or_else(|| policies.get())
    }
}

// SAFETY: a tag keeps its slot, which does not move; each slot has its own link, and only its owner
// uses it.
unsafe impl<T: Send + 'static> Item for Tag<T> {
    fn into_raw(self) -> NonNull<()> {
        Self::into_raw(self).cast()
    }

    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::from_raw(raw.cast()) }
    }

    unsafe fn link<'a>(raw: NonNull<()>) -> &'a Link {
        // SAFETY: the pointer is a slot's, which its tag keeps.
        unsafe { &raw.cast::<Slot<T>>().as_ref().link }
    }

    unsafe fn tenant_of(raw: NonNull<()>) -> TenantId {
        // SAFETY: as above.
        unsafe { raw.cast::<Slot<T>>().as_ref() }.info.tenant()
    }

    fn tenant(&self) -> TenantId {
        self.info().tenant()
    }

    fn submission(&self) -> Option<Submission> {
        self.info().read()
    }
}

impl<T> Tag<T> {
    /// Notes the calling CPU and the policy of its tenant, as [`into_token`](Self::into_token)
    /// does. For requests whose tag itself travels, not its token: before it is given to the thread
    /// that does the IO.
    ///
    /// ```
    /// # use inflight_tags::{Steering, TagSet};
    /// let set = TagSet::builder().depth(1).steering(Steering::SameCpu).build(|_, _| ())?;
    /// let tag = set.add_tenant("nvme0n1")?.alloc_blocking()?;
    /// tag.submit_here();
    /// assert!(tag.submitted_on().is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn submit_here(&self) {
        self.info().write(self.policies(), || self.is_polled());
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
    /// let token = set.add_tenant("nvme0n1")?.alloc_blocking()?.into_polled_token();
    /// let ran = completions.complete(token, |_| ())?;
    /// assert_eq!(ran, Decision::Inline(InlineReason::Polled));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "only the token brings the tag back"]
    pub fn into_polled_token(self) -> u64 {
        self.issue(true)
    }

    /// Returns the CPU on which its request was submitted last. A hint; `None` if it has not been
    /// submitted, or if the recording of CPUs was off then. It is turned on by
    /// [`TagSetBuilder::steering`](crate::TagSetBuilder::steering),
    /// [`Tenant::set_steering`](crate::Tenant::set_steering) or
    /// [`TagSet::completions`](crate::TagSet::completions).
    #[must_use]
    pub fn submitted_on(&self) -> Option<usize> {
        self.info().read()?.cpu
    }
}
