//! What a split collects for its next pieces, where it stands in line, and how it gives both up.

use super::{Split, SplitAt, SplitStep};
use crate::admission::Admission;
use crate::error::AllocError;
use crate::tag_maps::{TagMap, TagMapId};
use inflight_sbitmap::tenancy::{Request, Tenancy as _};

/// A request of more pieces than this part of the depth is given its tags in as many parts.
const PARTS: usize = 4;

impl<T: Send + 'static> Split<T> {
    /// One try, and what to wait for if it failed.
    pub(super) fn step(&mut self, waits: bool) -> SplitStep<T> {
        if self.remaining == 0 {
            return SplitStep::Done(Ok(None));
        }
        loop {
            if let Err(error) = self.queue.check(self.options) {
                self.give_back();
                return SplitStep::Done(Err(error));
            }
            if !waits && self.collected.is_empty() && self.target_in_line().is_some() {
                // A queue that is closed: the set is closed.
                let _ = self.part(|wait, bits| wait.fetch(bits));
            }
            if let Some(why) = self.queue.bitmaps().gate().state().refuses() {
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
            let bit = self.queue.bitmaps().in_hand(self.from, bit);
            if let Some(tag) = self.queue.admit(bit) {
                self.remaining -= 1;
                self.begun = true;
                if self.remaining == 0 {
                    self.leave();
                }
                return SplitStep::Done(Ok(Some(tag)));
            }
            // Refused: what has changed is seen above.
            self.give_back();
        }
    }

    /// Collects at least one bit, or says what to wait for.
    pub(super) fn collect(&mut self, waits: bool) -> Option<SplitStep<T>> {
        if self.collected.is_empty() {
            // One that has its place in a line stays there; else the thread may have moved.
            let in_line = self.target_in_line();
            let target = in_line.unwrap_or_else(|| self.queue.target(self.options));
            let request = self.request(target);
            match self.try_get(target, &request, waits) {
                Some(bits) => self.keep(target, bits),
                None => match self.overcommit(target) {
                    Some(target) => self.from = target,
                    None => return Some(SplitStep::WaitForBits(target, request)),
                },
            }
        }
        None
    }

    /// What is asked for.
    pub(super) fn request(&self, target: TagMapId) -> Request {
        let bitmaps = self.queue.bitmaps();
        let depth = bitmaps.bitmap(target).depth();
        let one = Request::one(self.queue.class());
        match bitmaps.admission() {
            Admission::WholeIo => Request {
                want: self.remaining,
                // Why in parts: a wait for one does not keep all tags idle.
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

    /// All bits that are asked for, at once: a request that has some of its bits would wait for
    /// others of its kind, and they for it.
    pub(super) fn try_get(
        &self,
        target: TagMapId,
        request: &Request,
        waits: bool,
    ) -> Option<Vec<usize>> {
        let bitmaps = self.queue.bitmaps();
        let bitmap = bitmaps.bitmap(target);
        let newcomer = waits && !request.privileged;
        if self.target_in_line().is_some() || (newcomer && !bitmap.admits_newcomer()) {
            return None;
        }
        let n = if waits || request.want <= bitmap.depth() {
            request.want
        } else {
            // Who does not wait keeps nobody waiting.
            request.part
        };
        if n > bitmap.depth() {
            return None;
        }
        let class = self.queue.class();
        let all = bitmaps.try_get_all(target, n, class);
        if all.is_some() || waits || self.joins_all {
            return all;
        }
        bitmaps.try_get_all(target, 1, class)
    }

    /// Collects a bit beyond the depth for a later piece, if the policy has any.
    pub(super) fn overcommit(&mut self, near: TagMapId) -> Option<TagMapId> {
        let bitmaps = self.queue.bitmaps();
        if !self.begun || near.kind != TagMap::Normal || bitmaps.geometry().extra == 0 {
            return None;
        }
        let extra = TagMapId {
            kind: TagMap::Extra,
            ..near
        };
        self.collected = bitmaps.try_get_all(extra, 1, self.queue.class())?;
        Some(extra)
    }

    pub(super) fn keep(&mut self, from: TagMapId, mut bits: Vec<usize>) {
        debug_assert!(self.collected.is_empty());
        // The lowest is the next.
        bits.sort_unstable_by(|a, b| b.cmp(a));
        self.collected = bits;
        self.from = from;
    }

    /// Where it has its place in line, if it has one.
    pub(super) const fn target_in_line(&self) -> Option<TagMapId> {
        match &self.at {
            SplitAt::Waits(wait) | SplitAt::Rests(wait) => Some(wait.target()),
            SplitAt::Nowhere | SplitAt::Thaw(_) => None,
        }
    }

    /// Gives up its place.
    pub(super) fn leave(&mut self) {
        let bitmaps = self.queue.bitmaps();
        match std::mem::replace(&mut self.at, SplitAt::Nowhere) {
            SplitAt::Nowhere => {}
            SplitAt::Thaw(mut place) => bitmaps.gate().leave_thaw(&mut place),
            SplitAt::Waits(mut wait) | SplitAt::Rests(mut wait) => wait.end(bitmaps),
        }
    }

    /// Ends a wait that has not ended.
    pub(super) fn stop_waiting(&mut self) {
        if matches!(self.at, SplitAt::Waits(_) | SplitAt::Thaw(_)) {
            self.leave();
        }
        self.end_wait();
    }

    /// Gives back what was collected or joined, and the place of one that is to have more. A task
    /// that waits stays: it is told when it has something to give back.
    pub(super) fn give_back(&mut self) {
        let joined = std::mem::take(&mut self.joined);
        if !joined.is_empty() {
            self.remaining += joined.len();
            self.begun = false;
        }
        // Also if a waker panics.
        let (bitmaps, bits) = (self.queue.bitmaps(), std::mem::take(&mut self.collected));
        let _bits = bitmaps.several_in_hand(self.from, bits);
        match std::mem::replace(&mut self.at, SplitAt::Nowhere) {
            SplitAt::Rests(mut wait) => wait.end(bitmaps),
            at => self.at = at,
        }
    }
}
