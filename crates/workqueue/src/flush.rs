//! Flush colours: which of a gate's items were queued before a flush began.
//!
//! Every item carries the colour of the moment it was queued in, and each colour counts its items.
//! A flush closes the current colour and waits until no item of that colour or an older one is
//! left. Items queued later carry a later colour, so they cannot keep the flush waiting. Unlike the
//! kernel's sixteen, colours never run out, because only those with items left are kept.

use std::collections::VecDeque;

/// A moment between two flushes.
pub(crate) type Colour = u64;

/// The items of one gate, by colour.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Given to the next item.
    current: Colour,
    /// Colours with items left, oldest first.
    left: VecDeque<(Colour, usize)>,
}

impl Ledger {
    /// An item has been queued.
    pub(crate) fn enter(&mut self) -> Colour {
        self.enter_many(1)
    }

    /// As many have been queued.
    pub(crate) fn enter_many(&mut self, items: usize) -> Colour {
        match self.left.back_mut() {
            Some((colour, count)) if *colour == self.current => *count += items,
            _ => self.left.push_back((self.current, items)),
        }
        self.current
    }

    /// As many came in under a colour that has items left.
    pub(crate) fn enter_late(&mut self, colour: Colour, items: usize) {
        let mut left = self.left.iter_mut();
        let of_colour = left.find(|(c, _)| *c == colour);
        of_colour.expect("others are left").1 += items;
    }

    /// So many items have ended. Returns whether a flush may be over.
    pub(crate) fn leave_many(&mut self, colour: Colour, items: usize) -> bool {
        // Few colours are open at a time: one for each flush that has not returned.
        let at = self.left.iter().position(|(c, _)| *c == colour);
        let at = at.expect("an item that entered leaves once");
        self.left[at].1 -= items;
        if self.left[at].1 > 0 {
            return false;
        }
        self.left.remove(at);
        colour < self.current
    }

    /// A flush begins. Returns what it waits for, `None` if nothing is left.
    pub(crate) fn close(&mut self) -> Option<Colour> {
        let newest = self.left.back()?.0;
        if newest == self.current {
            self.current += 1;
        }
        Some(newest)
    }

    /// Whether everything up to `colour` has ended.
    pub(crate) fn is_over(&self, colour: Colour) -> bool {
        self.left.front().is_none_or(|(oldest, _)| *oldest > colour)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_of_nothing_is_over() {
        assert_eq!(Ledger::default().close(), None);
    }

    #[test]
    fn later_items_do_not_hold_a_flush() {
        let mut ledger = Ledger::default();
        let before = ledger.enter();
        let flush = ledger.close().unwrap();
        let after = ledger.enter();
        assert!(!ledger.is_over(flush));
        assert!(ledger.leave_many(before, 1), "the flusher is told");
        assert!(ledger.is_over(flush));
        assert!(!ledger.leave_many(after, 1), "nobody waits for this one");
    }

    #[test]
    fn an_older_colour_holds_a_younger_flush() {
        let mut ledger = Ledger::default();
        let old = ledger.enter();
        let first = ledger.close().unwrap();
        let young = ledger.enter();
        let second = ledger.close().unwrap();
        ledger.leave_many(young, 1);
        assert!(!ledger.is_over(first) && !ledger.is_over(second));
        ledger.leave_many(old, 1);
        assert!(ledger.is_over(first) && ledger.is_over(second));
    }

    /// More flushers than the kernel has colours, over one old item.
    #[test]
    fn seventeen_flushers_share_what_is_left() {
        let mut ledger = Ledger::default();
        let old = ledger.enter();
        let flushes: Vec<_> = (0..17).map(|_| ledger.close().unwrap()).collect();
        assert!(flushes.iter().all(|f| !ledger.is_over(*f)));
        assert!(ledger.leave_many(old, 1));
        assert!(flushes.iter().all(|f| ledger.is_over(*f)));
    }
}
