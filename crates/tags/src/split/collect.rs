//! The tags that a split collects for its next pieces, the queue in which it waits, and giving up
//! both.

use super::{Split, SplitAt, SplitStep};
use crate::admission::Admission;
use crate::error::AllocError;
use crate::tag_layout::{TagMap, TagMapId};
use inflight_sbitmap::tenancy::{Request, Tenancy as _};

/// A request for more pieces than this part of the depth gets its tags in so many parts.
const PARTS: usize = 4;

impl<T: Send + 'static> Split<T> {
    /// One try, and what to wait for if it failed.
    pub(super) fn step(&mut self, waits: bool) -> SplitStep<T> {
        if self.remaining == 0 {
            return SplitStep::Done(Ok(None));
        }
        loop {
            let refused = self.tenant.check(self.options);
            if let Err(error) = refused.and_then(|()| self.check_join()) {
                self.give_back();
                return SplitStep::Done(Err(error));
            }
            if !waits && self.collected.is_empty() && self.queued_in().is_some() {
                // The queue is closed, so the set is closed.
                let _ = self.fetch_part(|wait, bits| wait.fetch(bits));
            }
            if let Some(why) = self.tenant.bitmaps().gate.state().refuses() {
                self.give_back();
                return match why {
                    AllocError::Closed => SplitStep::Done(Err(why)),
                    _ => SplitStep::WaitForThaw(why),
                };
            }
            if let Some(step) = self.collect(waits) {
                return step;
            }
            let bit = self.collected.pop().expect("at least one was collected");
            let bit = self.tenant.bitmaps().pending_tag(self.from, bit);
            if let Some(tag) = self.tenant.make_tag(bit) {
                self.remaining -= 1;
                self.begun = true;
                if self.remaining == 0 {
                    self.leave();
                }
                return SplitStep::Done(Ok(Some(tag)));
            }
            // Refused: the check above sees what has changed.
            self.give_back();
        }
    }

    /// Collects at least one bit, or says what to wait for.
    pub(super) fn collect(&mut self, waits: bool) -> Option<SplitStep<T>> {
        if self.collected.is_empty() {
            // A split in a wait queue stays there; otherwise the thread may have moved.
            let queued = self.queued_in();
            let tag_map = queued.unwrap_or_else(|| self.tenant.choose_tag_map(self.options));
            let request = self.request(tag_map);
            match self.try_get(tag_map, &request, waits) {
                Some(bits) => self.set_collected(tag_map, bits),
                None => match self.overcommit(tag_map) {
                    Some(tag_map) => self.from = tag_map,
                    None => return Some(SplitStep::WaitForBits(tag_map, request)),
                },
            }
        }
        None
    }

    /// What is asked for.
    pub(super) fn request(&self, tag_map: TagMapId) -> Request {
        let bitmaps = self.tenant.bitmaps();
        let depth = bitmaps.bitmap(tag_map).depth();
        let one = Request {
            least_depth: if self.joins_all { self.pieces() } else { 1 },
            ..Request::one(self.tenant.tenant_index())
        };
        match bitmaps.admission {
            Admission::WholeIo => Request {
                want: self.remaining,
                // In parts, so that a wait for one request does not keep all tags idle.
                part: if self.joins_all {
                    self.remaining
                } else {
                    depth.div_ceil(PARTS).max(1).min(self.remaining)
                },
                large: true,
                ..one
            },
            _ => Request {
                privileged: self.begun,
                weight: u32::try_from(self.remaining).unwrap_or(u32::MAX),
                ..one
            },
        }
    }

    /// All bits of the request at once: a request that has some of its bits would wait for others
    /// of its kind, and they for it.
    pub(super) fn try_get(
        &self,
        tag_map: TagMapId,
        request: &Request,
        waits: bool,
    ) -> Option<Vec<usize>> {
        let bitmaps = self.tenant.bitmaps();
        let bitmap = bitmaps.bitmap(tag_map);
        let newcomer = waits && !request.privileged;
        if self.queued_in().is_some() || (newcomer && !bitmap.admits_newcomer()) {
            return None;
        }
        let n = if waits || request.want <= bitmap.depth() {
            request.want
        } else {
            // A caller that does not wait makes no others wait.
            request.part
        };
        if n > bitmap.depth() {
            return None;
        }
        let tenant = self.tenant.tenant_index();
        let all = bitmaps.try_get_all(tag_map, n, tenant);
        if all.is_some() || waits || self.joins_all {
            return all;
        }
        bitmaps.try_get_all(tag_map, 1, tenant)
    }

    /// Collects a bit beyond the depth for a later piece, if the policy has any.
    pub(super) fn overcommit(&mut self, near: TagMapId) -> Option<TagMapId> {
        let bitmaps = self.tenant.bitmaps();
        if !self.begun || near.kind != TagMap::Normal || bitmaps.layout.extra == 0 {
            return None;
        }
        let extra = TagMapId {
            kind: TagMap::Extra,
            ..near
        };
        self.collected = bitmaps.try_get_all(extra, 1, self.tenant.tenant_index())?;
        Some(extra)
    }

    pub(super) fn set_collected(&mut self, from: TagMapId, mut bits: Vec<usize>) {
        debug_assert!(self.collected.is_empty());
        // The lowest is the next.
        bits.sort_unstable_by(|a, b| b.cmp(a));
        self.collected = bits;
        self.from = from;
    }

    /// The tag map in whose wait queue it is, if it is in one.
    pub(super) const fn queued_in(&self) -> Option<TagMapId> {
        match &self.at {
            SplitAt::Waits(wait) | SplitAt::Paused(wait) => Some(wait.tag_map),
            SplitAt::Nowhere | SplitAt::Thaw(_) => None,
        }
    }

    /// Leaves the wait queue.
    pub(super) fn leave(&mut self) {
        let bitmaps = self.tenant.bitmaps();
        match std::mem::replace(&mut self.at, SplitAt::Nowhere) {
            SplitAt::Nowhere => {}
            SplitAt::Thaw(mut key) => bitmaps.gate.thawed.leave(&mut key),
            SplitAt::Waits(mut wait) | SplitAt::Paused(mut wait) => wait.end(bitmaps),
        }
    }

    /// Ends a wait that has not ended.
    pub(super) fn stop_waiting(&mut self) {
        if matches!(self.at, SplitAt::Waits(_) | SplitAt::Thaw(_)) {
            self.leave();
        }
        self.record.end(&self.tenant);
    }

    /// Puts what was collected or joined, and leaves the wait queue if it continues there. A task
    /// that waits stays: it is woken when it has something to put.
    pub(super) fn give_back(&mut self) {
        let joined = std::mem::take(&mut self.joined);
        if !joined.is_empty() {
            self.remaining += joined.len();
            self.begun = false;
        }
        // Also if a waker panics.
        let (bitmaps, bits) = (self.tenant.bitmaps(), std::mem::take(&mut self.collected));
        let _bits = bitmaps.pending_tags(self.from, bits);
        match std::mem::replace(&mut self.at, SplitAt::Nowhere) {
            SplitAt::Paused(mut wait) => wait.end(bitmaps),
            at => self.at = at,
        }
    }
}
