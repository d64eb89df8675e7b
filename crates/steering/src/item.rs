//! The requests that are steered.

use crate::submit_info::Submission;
use inflight_sync::atomic::AtomicPtr;
use std::ptr::NonNull;

/// The number of a tenant.
///
/// ```
/// use inflight_steering::TenantId;
/// assert_eq!(TenantId::new(3).get(), 3);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(u32);

impl TenantId {
    /// The first.
    pub const FIRST: Self = Self(0);
    /// The last number with counters of its own.
    pub const LAST: Self = Self(inflight_sync::Grown::<u8>::MOST as u32 - 1);

    /// Returns the tenant of a number; numbers beyond [`LAST`](Self::LAST) mean `LAST`.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        if number < Self::LAST.0 {
            Self(number)
        } else {
            Self::LAST
        }
    }

    /// Returns its number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The link of a request in a done list to the next older one.
///
/// Only the owner of the request uses it, and M2 passes the ownership on, so all accesses are
/// Relaxed.
#[derive(Debug, Default)]
pub struct Link(pub(crate) AtomicPtr<()>);

impl Link {
    /// Makes the link of a request that is in no done list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

/// A completed request that is steered to the CPU of its submission, by its one owner. It counts
/// for its [`tenant`](Item::tenant), which [`tenant_of`](Item::tenant_of) returns, too.
///
/// # Safety
///
/// [`into_raw`](Item::into_raw) returns a pointer that is not null and is aligned to two bytes or
/// more, to a request that neither moves nor ends until [`from_raw`](Item::from_raw) is called with
/// that pointer. [`link`](Item::link) returns the [`Link`] of that request, which no other code
/// uses and no other request has.
///
/// ```
/// use inflight_steering::{Decision, InlineReason, InlineSink, Item, Link, Router, Submission};
/// use inflight_steering::TenantId;
/// use inflight_topology::{Scope, Topology, set_current_cpu_for_thread};
/// use std::ptr::NonNull;
///
/// struct Req { link: Link, bytes: u64, cpu: usize }
///
/// // SAFETY: a box stays where it is, and has its own link.
/// unsafe impl Item for Box<Req> {
///     fn into_raw(self) -> NonNull<()> {
///         NonNull::new(Box::into_raw(self)).expect("not null").cast()
///     }
///     unsafe fn from_raw(raw: NonNull<()>) -> Self {
///         // SAFETY: from `into_raw`, once.
///         unsafe { Box::from_raw(raw.cast().as_ptr()) }
///     }
///     unsafe fn link<'a>(raw: NonNull<()>) -> &'a Link {
///         // SAFETY: from `into_raw`.
///         unsafe { &raw.cast::<Req>().as_ref().link }
///     }
///     unsafe fn tenant_of(_: NonNull<()>) -> TenantId {
///         TenantId::FIRST
///     }
///     fn tenant(&self) -> TenantId {
///         TenantId::FIRST
///     }
///     fn submission(&self) -> Option<Submission> {
///         Some(Submission::on(self.cpu))
///     }
/// }
///
/// let topology = Topology::synthetic("cache:2 core:1")?;
/// let router = Router::new(topology, Scope::Cpu, InlineSink, |req: Box<Req>| {
///     assert_eq!(req.bytes, 4096);
/// });
/// set_current_cpu_for_thread(Some(0));
/// let req = Box::new(Req { link: Link::new(), bytes: 4096, cpu: 1 });
/// // It belongs to the other CPU, but `InlineSink` has no worker there.
/// assert_eq!(router.complete(req), Decision::Inline(InlineReason::Closed));
/// assert_eq!(router.stats().completed(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub unsafe trait Item: Sized + Send + 'static {
    /// Passes the ownership to the pointer.
    fn into_raw(self) -> NonNull<()>;

    /// Takes the ownership back.
    ///
    /// # Safety
    ///
    /// The pointer is from [`into_raw`](Item::into_raw), and this is the one call with it.
    unsafe fn from_raw(raw: NonNull<()>) -> Self;

    /// Returns the request's link.
    ///
    /// # Safety
    ///
    /// The pointer is from [`into_raw`](Item::into_raw), and the request is not used after
    /// [`from_raw`](Item::from_raw).
    unsafe fn link<'a>(raw: NonNull<()>) -> &'a Link;

    /// Returns its tenant, by the pointer.
    ///
    /// # Safety
    ///
    /// That of [`link`](Item::link).
    unsafe fn tenant_of(raw: NonNull<()>) -> TenantId;

    /// Returns its tenant.
    fn tenant(&self) -> TenantId;

    /// Returns the CPU of its submission, and its policy. `None`: not known, and the request runs
    /// where it is seen.
    fn submission(&self) -> Option<Submission>;
}
