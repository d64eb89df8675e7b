//! What is steered.

use crate::submit_info::Submission;
use inflight_sync::atomic::AtomicPtr;
use std::ptr::NonNull;

/// A tenant, by number: whose a request is.
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
    /// The last that is told apart.
    pub const LAST: Self = Self(inflight_sync::Grown::<u8>::MOST as u32 - 1);

    /// The tenant of a number; numbers beyond [`LAST`](Self::LAST) are that one's.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        if number < Self::LAST.0 {
            Self(number)
        } else {
            Self::LAST
        }
    }

    /// Its number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Its number, for tables.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a request in a done list points to: the next older one.
///
/// Only the owner of the request uses it, and M2 hands it over, so all accesses are Relaxed.
#[derive(Debug, Default)]
pub struct Link(pub(crate) AtomicPtr<()>);

impl Link {
    /// Of a request that is in no done list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

/// A completed request that goes to where it was submitted, by its one owner.
///
/// # Safety
///
/// [`into_raw`](Item::into_raw) gives a pointer that is not null and is aligned to two bytes or
/// more, to a request that neither moves nor ends until [`from_raw`](Item::from_raw) is called with
/// that pointer. [`link`](Item::link) gives the [`Link`] of that request, which nobody else uses
/// and no other request has.
///
/// ```
/// use inflight_steering::{Item, Link, Submission, TenantId};
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
/// ```
pub unsafe trait Item: Sized + Send + 'static {
    /// Gives up the ownership, to the pointer.
    fn into_raw(self) -> NonNull<()>;

    /// Takes it back.
    ///
    /// # Safety
    ///
    /// The pointer is from [`into_raw`](Item::into_raw), and this is the one call with it.
    unsafe fn from_raw(raw: NonNull<()>) -> Self;

    /// The request's link.
    ///
    /// # Safety
    ///
    /// The pointer is from [`into_raw`](Item::into_raw), and the request is not used after
    /// [`from_raw`](Item::from_raw).
    unsafe fn link<'a>(raw: NonNull<()>) -> &'a Link;

    /// Whose it is, by the pointer.
    ///
    /// # Safety
    ///
    /// As of [`link`](Item::link).
    unsafe fn tenant_of(raw: NonNull<()>) -> TenantId;

    /// Whose it is.
    fn tenant(&self) -> TenantId;

    /// Where it was submitted, and how it wants to be steered. `None`: nobody knows, and it runs
    /// where it is seen.
    fn submission(&self) -> Option<Submission>;
}
