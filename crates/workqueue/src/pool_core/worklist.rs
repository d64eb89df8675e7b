//! The worklist: the pwqs that have entries and a slot, in the order in which workers take from
//! them. It is linked through the pwqs, so removal takes constant time and nothing is allocated. It
//! is a ring: the pool's own links, at index `NONE`, are between the last and the first.

use super::PoolCore;
use super::pwq_state::{Links, NONE, PwqIndex};

impl<T> PoolCore<T> {
    #[inline]
    pub(super) fn first_listed(&self) -> Option<PwqIndex> {
        let first = self.worklist.after;
        (first != NONE).then_some(first)
    }

    /// The pwqs that wait for a worker, in their order.
    pub(crate) fn worklist(&self) -> impl Iterator<Item = PwqIndex> {
        let mut next = self.worklist.after;
        std::iter::from_fn(move || {
            let index = (next != NONE).then_some(next)?;
            next = self.pwqs[index as usize].links.after;
            Some(index)
        })
    }

    #[inline]
    pub(super) fn list_last(&mut self, index: PwqIndex) {
        self.join(self.worklist.before, index);
        self.join(index, NONE);
    }

    pub(super) fn list_first(&mut self, index: PwqIndex) {
        self.join(index, self.worklist.after);
        self.join(NONE, index);
    }

    #[inline]
    pub(super) fn unlink(&mut self, index: PwqIndex) {
        let Links { before, after } = *self.links(index);
        self.join(before, after);
    }

    #[inline]
    fn join(&mut self, before: PwqIndex, after: PwqIndex) {
        self.links(before).after = after;
        self.links(after).before = before;
    }

    #[inline]
    fn links(&mut self, index: PwqIndex) -> &mut Links {
        if index == NONE {
            return &mut self.worklist;
        }
        &mut self.pwqs[index as usize].links
    }
}
