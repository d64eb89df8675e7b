//! Where the stacks end: refill, flush, and the words.

use super::words::{self, Given, Group, Reach};
use super::{LARGEST_CAP, PerCpuStore};
use crate::error::PutError;
use crate::word::offsets;
use inflight_sync::MutexGuard;
use inflight_sync::atomic::Ordering;

impl PerCpuStore {
    /// Where this CPU begins its search.
    pub(super) fn hint(&self) -> usize {
        self.stacks
            .here()
            .map_or(0, |i| self.stacks.hint(i).load(Ordering::Relaxed) as usize)
    }

    /// This CPU goes on at `word`.
    pub(super) fn point_at(&self, word: usize) {
        if let Some(here) = self.stacks.here() {
            let hint = self.stacks.hint(here);
            // Relaxed: any value is right. The look spares a line that others read.
            if hint.load(Ordering::Relaxed) as usize != word {
                hint.store(word as u32, Ordering::Relaxed);
            }
        }
    }

    /// `popped` is an id above the depth that a push racing with a resize left in a stack.
    #[cold]
    #[inline(never)]
    pub(super) fn get_slow(&self, popped: Option<u32>) -> Option<usize> {
        if popped.is_some_and(|id| self.put_above_depth(id)) {
            return None;
        }
        loop {
            let seen = self.control.load(); // A0
            if seen.waiters() != 0 {
                return None;
            }
            if seen.is_warm() {
                if let Some(id) = self.refill().or_else(|| self.take_shared(&self.reach())) {
                    return Some(id);
                }
                self.freeze();
            } else if !seen.is_drained() {
                self.freeze(); // waits for the one under way
            } else {
                let reach = self.reach();
                match self.words.take(&reach, self.hint(), 1) {
                    Ok(group) => {
                        self.point_at(group.word);
                        let id = self.only(group);
                        // Its neighbours are taken next, as they were put one after the other.
                        self.states.expect(id + 3);
                        return Some(id);
                    }
                    // A2 and A3.
                    Err(scan) => {
                        if self.words.are_still_empty(&reach, scan) && self.control.is_still(seen) {
                            self.note_none();
                            return None;
                        }
                    }
                }
            }
        }
    }

    /// The popped `id` is above the depth. Returns whether somebody may wait.
    #[cold]
    pub(crate) fn put_above_depth(&self, id: u32) -> bool {
        let given = self.give(self.group(id as usize));
        self.look(given.ticked)
    }

    /// One id from any word.
    pub(super) fn take_shared(&self, reach: &Reach) -> Option<usize> {
        let group = self.words.take(reach, self.hint(), 1).ok()?;
        self.point_at(group.word);
        Some(self.only(group))
    }

    fn only(&self, group: Group) -> usize {
        self.full.bit(group.word, group.mask.trailing_zeros())
    }

    /// MA: the refill lock of this CPU's stack, if it is free and the stack open, or can be opened.
    pub(super) fn refill_here(&self) -> Option<(usize, MutexGuard<'_, ()>)> {
        let here = self.stacks.here()?;
        // A look that may be old spares a CPU without a stack the lock.
        if !self.stacks.is_open(here) && !self.can_activate() {
            return None;
        }
        let guard = self.stacks.refill_lock(here).try_lock()?;
        (self.stacks.is_open(here) || self.activate(here)).then_some((here, guard))
    }

    /// Takes half a stack from one word: one step for all of them. The first is the caller's, and
    /// so many more came into the stack.
    fn refilled(&self) -> Option<(Group, u32)> {
        let (here, _refill) = self.refill_here()?;
        let n = (self.cap() / 2).max(1);
        // Relaxed: as in `point_at`.
        let hint = self.stacks.hint(here);
        let from = hint.load(Ordering::Relaxed) as usize;
        let group = self.words.take(&self.reach(), from, n).ok()?;
        hint.store(group.word as u32, Ordering::Relaxed);
        let rest = group.mask & (group.mask - 1);
        let mut ids = [0; 1 << words::SHIFT_MAX];
        let mut n = 0;
        for offset in offsets(rest) {
            let id = self.full.bit(group.word, offset);
            // Each get of one of these would else wait for its state to come from another CPU.
            self.states.expect(id);
            ids[n] = id as u32;
            n += 1;
        }
        let pushed = self.stacks.push_all(&ids[..n]);
        if pushed < n {
            // This thread runs on another CPU by now, or a freezer waits for the lock: either way
            // the ids are in the words before it is let go (MR).
            let refused = offsets(rest).skip(pushed);
            let mask = refused.fold(0, |mask, offset| mask | 1 << offset);
            self.words.give(Group { mask, ..group });
        }
        Some((group, n as u32))
    }

    fn refill(&self) -> Option<usize> {
        let (group, n) = self.refilled()?;
        if self.control.load_relaxed().is_locked() {
            self.count_locked(n);
        }
        Some(self.only(group))
    }

    /// Goes on with `give_back`, or after its fast path: the caller owned `id`, and its stack has
    /// not taken it. `below`: it is below the depth.
    #[cold]
    #[inline(never)]
    pub(crate) fn put_slow(&self, id: usize, below: bool) -> Result<bool, PutError> {
        if below && self.control.load_relaxed().is_warm() {
            if let Some((here, _refill)) = self.refill_here() {
                if self.stacks.push(id as u32) {
                    return Ok(false);
                }
                if self.stacks.is_open(here) {
                    self.flush(id);
                    return Ok(false);
                }
            }
        }
        let group = self.group(id);
        let given = self.give(group);
        self.point_at(group.word);
        if given.twice == 0 {
            Ok(self.look(given.ticked))
        } else {
            Err(PutError::NotAllocated { bit: id })
        }
    }

    /// Moves half a stack to the words, and `id` with it. The caller holds a refill lock whose
    /// stack is open, so no freeze ends before this has (MR).
    fn flush(&self, id: usize) {
        let mut groups = super::batch::Groups::new(self);
        groups.add(id);
        let mut others = [0; LARGEST_CAP / 2];
        let half = ((self.cap() / 2).max(1) as usize).min(others.len());
        let popped = self.stacks.pop_all(&mut others[..half]);
        for &other in &others[..popped] {
            groups.add(other as usize);
        }
        groups.finish();
    }

    pub(super) fn group(&self, id: usize) -> Group {
        let (word, offset) = self.full.split(id);
        Group {
            word,
            mask: 1 << offset,
        }
    }

    /// P1, P2 and PM.
    pub(super) fn give(&self, group: Group) -> Given {
        self.words.give(group)
    }

    /// P3, after P1, P2 and PM: whether somebody may wait. Thaws if ids have been plenty.
    pub(super) fn look(&self, ticked: bool) -> bool {
        let seen = self.control.load_relaxed();
        if seen.waiters() != 0 {
            return true;
        }
        if !seen.is_warm() && (ticked || cfg!(any(loom, shuttle))) {
            self.tick();
        }
        false
    }
}
