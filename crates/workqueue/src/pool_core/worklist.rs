//! The pwqs that have entries and a slot, in the order in which workers take from them: a list
//! through the pwqs themselves, so that each goes off it in constant time, and none is allocated
//! for.

use super::PoolCore;
use super::pwq_state::{Links, NONE, PwqIndex, PwqState};

fn links<T>(pwqs: &mut [Option<PwqState<T>>], index: PwqIndex) -> &mut Links {
    let pwq = pwqs[index as usize].as_mut().expect("it is there");
    &mut pwq.links
}

impl<T> PoolCore<T> {
    /// The pwq that is next.
    #[inline]
    pub(super) fn first_listed(&self) -> Option<PwqIndex> {
        let first = self.worklist.first;
        (first != NONE).then_some(first)
    }

    /// The pwqs that wait for a worker, in their turn.
    pub(crate) fn worklist(&self) -> impl Iterator<Item = PwqIndex> {
        let mut next = self.worklist.first;
        std::iter::from_fn(move || {
            let index = (next != NONE).then_some(next)?;
            let pwq = self.pwqs[index as usize].as_ref().expect("it is there");
            next = pwq.links.after;
            Some(index)
        })
    }

    /// At the end of the worklist, on which it is not.
    #[inline]
    pub(super) fn list_last(&mut self, index: PwqIndex) {
        self.link(self.worklist.last, index, NONE);
    }

    /// At its front.
    pub(super) fn list_first(&mut self, index: PwqIndex) {
        self.link(NONE, index, self.worklist.first);
    }

    #[inline]
    fn link(&mut self, before: PwqIndex, index: PwqIndex, after: PwqIndex) {
        *links(&mut self.pwqs, index) = Links { before, after };
        self.join(before, index);
        self.join(index, after);
    }

    /// Off the worklist, on which it is.
    #[inline]
    pub(super) fn unlink(&mut self, index: PwqIndex) {
        let Links { before, after } = *links(&mut self.pwqs, index);
        self.join(before, after);
    }

    /// These two are neighbours, or one of them is at an end.
    #[inline]
    fn join(&mut self, before: PwqIndex, after: PwqIndex) {
        if before == NONE {
            self.worklist.first = after;
        } else {
            links(&mut self.pwqs, before).after = after;
        }
        if after == NONE {
            self.worklist.last = before;
        } else {
            links(&mut self.pwqs, after).before = before;
        }
    }
}
