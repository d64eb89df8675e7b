//! The futures of a tag.

use super::slow_path::Waiting;
use crate::error::AllocError;
use crate::tag::Tag;
use crate::tenant::Tenant;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The future of [`Tenant::alloc`], which describes the effect of dropping it, and of
/// [`Tenant::alloc_with`]. A poll after it was ready asks for another tag.
#[must_use = "futures do nothing unless polled"]
pub struct Alloc<'a, T: Send + 'static> {
    pub(super) tenant: &'a Tenant<T>,
    pub(super) wait: Waiting,
}

/// The future of [`Tenant::alloc_owned`]: `'static`, for one tag after the other. Otherwise as
/// [`Alloc`].
#[must_use = "futures do nothing unless polled"]
pub struct AllocOwned<T: Send + 'static> {
    pub(super) tenant: Tenant<T>,
    pub(super) wait: Waiting,
}

impl<T: Send + 'static> Future for Alloc<'_, T> {
    type Output = Result<Tag<T>, AllocError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.wait.poll(this.tenant, cx)
    }
}

impl<T: Send + 'static> Drop for Alloc<'_, T> {
    fn drop(&mut self) {
        self.wait.cancel(self.tenant);
    }
}

inflight_sync::debug_fields!([T: Send + 'static] Alloc<'_, T>: |this| tenant = this.tenant.name());

impl<T: Send + 'static> AllocOwned<T> {
    /// Waits for the next tag: for callers that keep the future and poll by hand, as a service's
    /// readiness. The errors are those of [`Tenant::alloc_with`].
    ///
    /// ```
    /// use inflight_tags::{AllocError, AllocOwned, Tag, TagSet};
    /// use std::task::{Context, Poll, Waker};
    /// /// A service in the shape of tower's: it is ready when it has a tag for the next request.
    /// struct Service { tags: AllocOwned<u64>, ready: Option<Tag<u64>> }
    /// impl Service {
    ///     fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AllocError>> {
    ///         while self.ready.is_none() {
    ///             match self.tags.poll_alloc(cx) {
    ///                 Poll::Ready(tag) => self.ready = Some(tag?),
    ///                 Poll::Pending => return Poll::Pending,
    ///             }
    ///         }
    ///         Poll::Ready(Ok(()))
    ///     }
    ///     fn call(&mut self, offset: u64) -> u64 {
    ///         let mut tag = self.ready.take().expect("poll_ready said so");
    ///         *tag = offset;
    ///         tag.into_token()
    ///     }
    /// }
    /// let set = TagSet::builder().depth(1).build(|_, _| 0)?;
    /// let mut service = Service { tags: set.add_tenant("sda")?.alloc_owned(), ready: None };
    /// let mut cx = Context::from_waker(Waker::noop());
    /// assert!(service.poll_ready(&mut cx)?.is_ready());
    /// let token = service.call(4096);
    /// assert!(service.poll_ready(&mut cx)?.is_pending(), "one at a time");
    /// drop(set.redeem(token)?);
    /// assert!(service.poll_ready(&mut cx)?.is_ready());
    /// service.ready = None;
    /// drop(inflight_sync::block_on(service.tags)?); // or as a future
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn poll_alloc(&mut self, cx: &mut Context<'_>) -> Poll<Result<Tag<T>, AllocError>> {
        self.wait.poll(&self.tenant, cx)
    }

    /// Returns the tenant of its tags.
    #[must_use]
    pub const fn tenant(&self) -> &Tenant<T> {
        &self.tenant
    }
}

impl<T: Send + 'static> Future for AllocOwned<T> {
    type Output = Result<Tag<T>, AllocError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_alloc(cx)
    }
}

impl<T: Send + 'static> Drop for AllocOwned<T> {
    fn drop(&mut self) {
        self.wait.cancel(&self.tenant);
    }
}

inflight_sync::debug_fields!([T: Send + 'static] AllocOwned<T>: |this| tenant = this.tenant.name());
