//! An allocation that found no tag at once: it looks closer, and waits.

use crate::alloc::{AllocOptions, WaitRecord};
use crate::close;
use crate::error::AllocError;
use crate::stats::Stripe;
use crate::tag::Tag;
use crate::tag_layout::TagMapId;
use crate::tenant::Tenant;
use inflight_sbitmap::tenancy::{Request, Tenancy as _};
use inflight_sync::atomic::AtomicU64;
use inflight_sync::time::Instant;

/// What one try came to, and what a waiting form does next.
pub(crate) enum AllocStep<T> {
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

    /// One try, and what to wait for if it failed. Who `waits` then is not let past those who wait
    /// already, if the policy says so.
    pub(crate) fn alloc_step(&self, options: AllocOptions, waits: bool) -> AllocStep<T> {
        loop {
            if let Err(error) = self.check(options) {
                return AllocStep::Done(Err(error));
            }
            // A look beforehand, so that a frozen set's bitmaps are left alone.
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
            // Refused: what has changed is seen above.
        }
    }

    /// As a thread, at most until the deadline.
    pub(super) fn alloc_sleeping(
        &self,
        options: AllocOptions,
        deadline: Option<Instant>,
    ) -> Result<Tag<T>, AllocError> {
        let mut record = WaitRecord::new();
        let result = self.alloc_as_thread(options, deadline, &mut record);
        record.end(self);
        result
    }

    fn alloc_as_thread(
        &self,
        options: AllocOptions,
        deadline: Option<Instant>,
        record: &mut WaitRecord,
    ) -> Result<Tag<T>, AllocError> {
        loop {
            let in_time = match self.alloc_step(options, true) {
                AllocStep::Done(result) => return result,
                AllocStep::WaitForThaw(_) => {
                    // The freeze may wait for what the hook submits.
                    if record.call_hook(self, self.choose_tag_map(options).hw_queue) {
                        continue;
                    }
                    record.begin(self);
                    self.bitmaps().wait_thaw(deadline)
                }
                AllocStep::WaitForBit(tag_map) => {
                    if record.call_hook(self, tag_map.hw_queue) {
                        continue;
                    }
                    record.begin(self);
                    let wait = self
                        .bitmaps()
                        .wait_for(tag_map, Request::one(self.tenant_index()));
                    match wait.ending(self.bitmaps()).block_one(deadline) {
                        Ok(bit) => match self.tag_after_wake(options, bit) {
                            Some(tag) => return Ok(tag),
                            None => true,
                        },
                        Err(ended) => return Err(self.refuse(close::answer_of_wait(ended))),
                    }
                }
            };
            if !in_time {
                return Err(self.refuse(AllocError::TimedOut));
            }
        }
    }

    /// Counts a refusal by its reason, if that is one that passes.
    pub(crate) fn refuse(&self, why: AllocError) -> AllocError {
        let why = close::answer_of_try(why, &self.bitmaps().gate);
        let counter: fn(&Stripe) -> &AtomicU64 = match why {
            AllocError::Exhausted => |stripe| &stripe.exhausted,
            AllocError::Frozen | AllocError::Quiesced => |stripe| &stripe.frozen,
            AllocError::TimedOut => |stripe| &stripe.timeouts,
            // A mistake of the caller.
            _ => return why,
        };
        self.tenant.counters.add(counter, 1);
        why
    }
}
