//! An allocation that found no tag at once: it tries again with all checks, and waits.

use crate::alloc::{AllocOptions, WaitRecord};
use crate::close;
use crate::error::AllocError;
use crate::stats::Stripe;
use crate::tag::Tag;
use crate::tag_layout::TagMapId;
use crate::tag_wait::TagWait;
use crate::tenant::Tenant;
use inflight_sbitmap::tenancy::{Request, Tenancy as _};
use inflight_sync::atomic::AtomicU64;
use inflight_sync::time::Instant;
use inflight_sync::wait::WaiterKey;
use std::mem;
use std::task::{Context, Poll, ready};

/// The result of one try, and what a waiting form does next.
enum AllocStep<T> {
    Done(Result<Tag<T>, AllocError>),
    /// The gate is closed; why.
    WaitForThaw(AllocError),
    WaitForBit(TagMapId),
}

impl<T: Send + 'static> Tenant<T> {
    #[inline(never)]
    pub(super) fn try_alloc_slow(&self, options: AllocOptions) -> Result<Tag<T>, AllocError> {
        match self.alloc_step(options, false) {
            AllocStep::Done(result) => result,
            AllocStep::WaitForThaw(why) => Err(self.refuse(why)),
            AllocStep::WaitForBit(_) => Err(self.refuse(AllocError::Exhausted)),
        }
    }

    /// One try, and what to wait for if it failed. If the caller `waits`, it does not overtake the
    /// waiters, if the policy says so.
    fn alloc_step(&self, options: AllocOptions, waits: bool) -> AllocStep<T> {
        loop {
            if let Err(error) = self.check(options) {
                return AllocStep::Done(Err(error));
            }
            // A check beforehand, so that a frozen set's bitmaps are left alone.
            match self.bitmaps().gate.state().refuses() {
                Some(AllocError::Closed) => return AllocStep::Done(Err(AllocError::Closed)),
                Some(why) => return AllocStep::WaitForThaw(why),
                None => {}
            }
            let tag_map = self.choose_tag_map(options);
            if waits && !self.bitmaps().bitmap(tag_map).admits_newcomer() {
                return AllocStep::WaitForBit(tag_map);
            }
            let Some(bit) = self.bitmaps().try_get(tag_map, self.tenant_index()) else {
                return AllocStep::WaitForBit(tag_map);
            };
            if let Some(tag) = self.make_tag(bit) {
                return AllocStep::Done(Ok(tag));
            }
            // Refused: the check above sees what has changed.
        }
    }

    /// Counts a refusal by its reason, if the reason is temporary.
    pub(crate) fn refuse(&self, why: AllocError) -> AllocError {
        let why = close::answer_of_try(why, &self.bitmaps().gate);
        let counter: fn(&Stripe) -> &AtomicU64 = match why {
            AllocError::Exhausted => |stripe| &stripe.exhausted,
            AllocError::Frozen | AllocError::Quiesced => |stripe| &stripe.frozen,
            AllocError::TimedOut => |stripe| &stripe.timeouts,
            // An error of the caller.
            _ => return why,
        };
        self.tenant.counters.add(counter, 1);
        why
    }
}

/// An allocation that waits, as a task or as a thread. It must be cancelled before it is dropped.
#[derive(Debug)]
pub(super) struct Waiting {
    options: AllocOptions,
    record: WaitRecord,
    at: AllocAt,
}

#[derive(Debug)]
enum AllocAt {
    /// It is to try.
    Nowhere,
    /// It waits for the end of freezes and quiesces.
    Thaw(Option<WaiterKey>),
    WaitQueue(TagWait),
}

impl Waiting {
    pub(super) const fn new(options: AllocOptions) -> Self {
        Self {
            options,
            record: WaitRecord::new(),
            at: AllocAt::Nowhere,
        }
    }

    pub(super) fn poll<T: Send + 'static>(
        &mut self,
        tenant: &Tenant<T>,
        cx: &Context<'_>,
    ) -> Poll<Result<Tag<T>, AllocError>> {
        let result = loop {
            let ended = match &mut self.at {
                AllocAt::Nowhere => self.begin(tenant),
                AllocAt::Thaw(key) => {
                    ready!(tenant.bitmaps().gate.poll_thaw(key, cx));
                    self.at = AllocAt::Nowhere;
                    None
                }
                AllocAt::WaitQueue(wait) => {
                    let bit = ready!(wait.poll_one(tenant.bitmaps(), cx));
                    // If ending the wait panics, the bit is put back.
                    self.leave(tenant);
                    match bit {
                        Ok(bit) => tenant.tag_after_wake(self.options, bit).map(Ok),
                        Err(ended) => Some(Err(close::answer_of_wait(ended))),
                    }
                }
            };
            if let Some(result) = ended {
                break result;
            }
        };
        self.record.end(tenant);
        Poll::Ready(result)
    }

    /// As `poll` for a thread, at most until the deadline; nothing is left to cancel.
    pub(super) fn block<T: Send + 'static>(
        &mut self,
        tenant: &Tenant<T>,
        deadline: Option<Instant>,
    ) -> Result<Tag<T>, AllocError> {
        let bitmaps = tenant.bitmaps();
        let result = loop {
            let mut in_time = true;
            let ended = match mem::replace(&mut self.at, AllocAt::Nowhere) {
                AllocAt::Nowhere => self.begin(tenant),
                AllocAt::Thaw(_) => {
                    in_time = bitmaps.wait_thaw(deadline);
                    None
                }
                AllocAt::WaitQueue(wait) => match wait.ending(bitmaps).block_one(deadline) {
                    Ok(bit) => tenant.tag_after_wake(self.options, bit).map(Ok),
                    Err(ended) => Some(Err(tenant.refuse(close::answer_of_wait(ended)))),
                },
            };
            match ended {
                Some(result) => break result,
                None if in_time => {}
                None => break Err(tenant.refuse(AllocError::TimedOut)),
            }
        };
        self.record.end(tenant);
        result
    }

    /// Tries, or begins to wait.
    fn begin<T: Send + 'static>(
        &mut self,
        tenant: &Tenant<T>,
    ) -> Option<Result<Tag<T>, AllocError>> {
        match tenant.alloc_step(self.options, true) {
            AllocStep::Done(result) => return Some(result),
            AllocStep::WaitForThaw(_) => {
                // The freeze may wait for what the hook submits.
                let hw_queue = tenant.choose_tag_map(self.options).hw_queue;
                if !self.record.call_hook(tenant, hw_queue) {
                    self.record.begin(tenant);
                    self.at = AllocAt::Thaw(None);
                }
            }
            AllocStep::WaitForBit(tag_map) => {
                if !self.record.call_hook(tenant, tag_map.hw_queue) {
                    self.record.begin(tenant);
                    let request = Request::one(tenant.tenant_index());
                    self.at = AllocAt::WaitQueue(tenant.bitmaps().wait_for(tag_map, request));
                }
            }
        }
        None
    }

    /// Ends the wait. If a waker panics, it has ended all the same.
    fn leave<T: Send + 'static>(&mut self, tenant: &Tenant<T>) {
        let ended = Ended(&mut self.at);
        match ended.0 {
            AllocAt::Nowhere => {}
            AllocAt::Thaw(key) => tenant.bitmaps().gate.thawed.leave(key),
            AllocAt::WaitQueue(wait) => wait.end(tenant.bitmaps()),
        }
    }

    pub(super) fn cancel<T: Send + 'static>(&mut self, tenant: &Tenant<T>) {
        self.leave(tenant);
        self.record.end(tenant);
    }
}

/// A wait that ends, where it is: it is nowhere when this is dropped.
struct Ended<'a>(&'a mut AllocAt);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        *self.0 = AllocAt::Nowhere;
    }
}
