//! What a workqueue lets through at once, as a pure state machine.
//!
//! A gate stands between a workqueue and the pools. It counts the items that are active (on a
//! pool's list or being run) against `max_active` and keeps the others, oldest first, until one
//! ends. Items that one worker runs in a visit may share a slot, if they run in order. A bound or
//! BH workqueue has a gate for each CPU; an ordered one has a single gate. The gates of an unbound
//! one, its front ends, only count what passes: the limit is in [`limits`](crate::limits).

use crate::flush::{Colour, Ledger};
use crate::inactive::Inactive;
use crate::limits::FrontEnd;

/// Where an item went when it was queued.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admitted<T> {
    /// It may run: the caller hands it to its pool.
    Active(T),
    /// It waits in the gate under this ticket.
    Inactive(u64),
}

/// What one worker may take of so many free slots for items that it runs one after the other:
/// others may have use for the rest meanwhile. A model has few.
pub(crate) const fn visits_share(room: usize) -> usize {
    if cfg!(loom) { room } else { room.div_ceil(2) }
}

#[derive(Debug)]
pub(crate) struct Gate<T> {
    max_active: usize,
    /// Slots that are taken.
    active: usize,
    inactive: Inactive<T>,
    /// Nobody becomes active.
    frozen: bool,
    pub(crate) ledger: Ledger,
    /// What the limit calls it, if it is a front end.
    front: FrontEnd,
    queued: u64,
    /// Items that have ended, by running or by being cancelled.
    ended: u64,
}

impl<T> Gate<T> {
    pub(crate) fn new(max_active: usize) -> Self {
        Self {
            max_active,
            active: 0,
            inactive: Inactive::new(),
            frozen: false,
            ledger: Ledger::default(),
            front: 0,
            queued: 0,
            ended: 0,
        }
    }

    /// The gate of a front end: it lets nobody through by itself.
    pub(crate) fn of_front(front: FrontEnd) -> Self {
        Self {
            front,
            ..Self::new(0)
        }
    }

    pub(crate) fn front(&self) -> FrontEnd {
        self.front
    }

    /// From now on items come in by that front end; the others go out by theirs.
    pub(crate) fn set_front(&mut self, front: FrontEnd) {
        self.front = front;
    }

    /// A new item has come, and somebody else says whether it is active.
    pub(crate) fn enter(&mut self) -> Colour {
        self.queued += 1;
        self.ledger.enter()
    }

    /// A new item has come. `make` is told its ticket, if it is inactive, and its flush colour.
    pub(crate) fn admit(&mut self, make: impl FnOnce(Option<u64>, Colour) -> T) -> Admitted<T> {
        // Not past those that wait, even if the limit has just been raised: order is kept.
        let active = !self.is_full();
        let colour = self.enter();
        if active {
            self.active += 1;
            return Admitted::Active(make(None, colour));
        }
        let ticket = self.inactive.next_ticket();
        self.inactive.push(make(Some(ticket), colour));
        Admitted::Inactive(ticket)
    }

    /// The caller's own item has come, to run here and now. `None` if it would have to wait.
    pub(crate) fn admit_caller(&mut self) -> Option<Colour> {
        if self.is_full() {
            return None;
        }
        self.active += 1;
        Some(self.enter())
    }

    /// Takes that inactive item out. `None` if it has become active.
    pub(crate) fn remove(&mut self, ticket: u64, is_it: impl Fn(&T) -> bool) -> Option<T> {
        self.inactive.remove(ticket, is_it)
    }

    /// Whether that item waits for the only slot there is, which another one holds.
    pub(crate) fn is_behind_the_only_one(&self, ticket: u64, is_it: impl Fn(&T) -> bool) -> bool {
        self.max_active == 1 && self.inactive.get(ticket).is_some_and(is_it)
    }

    /// How many of so many newcomers would be active, and how many would have to wait.
    pub(crate) fn room_for(&self, newcomers: usize) -> (usize, usize) {
        let room = if self.frozen || !self.inactive.is_empty() {
            0
        } else {
            self.max_active.saturating_sub(self.active)
        };
        (newcomers.min(room), newcomers.saturating_sub(room))
    }

    /// So many items have come and ended, on the slot of one that has not.
    pub(crate) fn passed(&mut self, items: u64) {
        self.queued += items;
        self.ended += items;
    }

    /// An item has ended that was active (it gives its slot back) or not. Returns whether somebody
    /// who flushes or drains should look again.
    pub(crate) fn leave(&mut self, colour: Colour, was_active: bool) -> bool {
        self.leave_many(colour, 1, usize::from(was_active))
    }

    /// As many items have ended, which had so many slots.
    pub(crate) fn leave_many(&mut self, colour: Colour, items: usize, slots: usize) -> bool {
        self.active -= slots;
        if items == 0 {
            return false;
        }
        self.ended += items as u64;
        self.ledger.leave_many(colour, items) || self.is_idle()
    }

    /// How many newcomers one worker may take, of so many, to run them one after the other; all on
    /// one slot, if `on_one_slot`. They are active.
    pub(crate) fn admit_visit(&mut self, newcomers: usize, on_one_slot: bool) -> usize {
        if on_one_slot {
            let (slots, _) = self.room_for(newcomers.min(1));
            self.active += slots;
            return slots * newcomers;
        }
        let (room, _) = self.room_for(usize::MAX);
        let items = newcomers.min(visits_share(room));
        self.active += items;
        items
    }

    /// Whether nobody waits, and nobody has to.
    pub(crate) fn nobody_waits(&self) -> bool {
        !self.frozen && self.inactive.is_empty()
    }

    /// So many have come in before, while others of that colour were left.
    pub(crate) fn enter_late(&mut self, colour: Colour, items: usize) {
        if items > 0 {
            self.queued += items as u64;
            self.ledger.enter_late(colour, items);
        }
    }

    /// So many newcomers have come.
    pub(crate) fn enter_many(&mut self, items: usize) -> Colour {
        self.queued += items as u64;
        self.ledger.enter_many(items)
    }

    /// What has come before all that wait here, and waits again.
    pub(crate) fn put_back(&mut self, make: impl FnOnce(u64) -> T) {
        self.inactive.push_front(make);
    }

    /// The next inactive item, if there is room for it now. It has become active.
    pub(crate) fn promote(&mut self) -> Option<T> {
        self.promote_if(|_| true)
    }

    /// As [`promote`](Gate::promote), if it is such an item.
    pub(crate) fn promote_if(&mut self, such: impl Fn(&T) -> bool) -> Option<T> {
        let (_, first) = self.inactive.first()?;
        if !self.has_room() || !such(first) {
            return None;
        }
        let item = self.inactive.pop()?;
        self.active += 1;
        Some(item)
    }

    /// Changes the limit. After a rise the caller promotes until nothing comes.
    pub(crate) fn set_max_active(&mut self, max_active: usize) {
        self.max_active = max_active;
    }

    /// Freezes or thaws. After a thaw the caller promotes until nothing comes.
    pub(crate) fn set_frozen(&mut self, frozen: bool) {
        self.frozen = frozen;
    }

    fn has_room(&self) -> bool {
        !self.frozen && self.active < self.max_active
    }

    /// Whether a newcomer would have to wait.
    pub(crate) fn is_full(&self) -> bool {
        !self.has_room() || !self.inactive.is_empty()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.queued == self.ended
    }

    pub(crate) fn queued(&self) -> u64 {
        self.queued
    }

    pub(crate) fn ended(&self) -> u64 {
        self.ended
    }

    /// What has waited longest, with its ticket.
    pub(crate) fn first_inactive(&self) -> Option<(u64, &T)> {
        self.inactive.first()
    }

    pub(crate) fn max_active(&self) -> usize {
        self.max_active
    }

    pub(crate) fn active(&self) -> usize {
        self.active
    }

    pub(crate) fn inactive(&self) -> usize {
        self.inactive.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(gate: &mut Gate<&'static str>, item: &'static str) -> Admitted<&'static str> {
        gate.admit(|_, _| item)
    }

    #[test]
    fn holds_what_is_too_much_and_keeps_order() {
        let mut gate = Gate::new(1);
        assert_eq!(admit(&mut gate, "a"), Admitted::Active("a"));
        assert!(matches!(admit(&mut gate, "b"), Admitted::Inactive(_)));
        assert!(matches!(admit(&mut gate, "c"), Admitted::Inactive(_)));
        assert_eq!(gate.promote(), None, "no room");
        gate.leave(0, true);
        assert_eq!(gate.promote(), Some("b"));
        assert_eq!(gate.promote(), None, "the limit is one");
    }

    /// Raising the limit must not let a newcomer overtake.
    #[test]
    fn i14_a_newcomer_waits_behind_the_inactive() {
        let mut gate = Gate::new(1);
        let _ = admit(&mut gate, "a");
        let _ = admit(&mut gate, "b");
        gate.set_max_active(3);
        assert!(matches!(admit(&mut gate, "c"), Admitted::Inactive(_)));
        assert_eq!(
            [gate.promote(), gate.promote(), gate.promote()],
            [Some("b"), Some("c"), None]
        );
    }

    #[test]
    fn a_visit_takes_slots_for_what_there_is() {
        let mut gate: Gate<&str> = Gate::new(3);
        assert_eq!(gate.admit_visit(0, false) + gate.admit_visit(0, true), 0);
        assert_eq!(gate.active(), 0);
        assert_eq!((gate.admit_visit(5, false), gate.active()), (2, 2), "half");
        assert_eq!((gate.admit_visit(5, false), gate.active()), (1, 3));
        assert_eq!(gate.admit_visit(5, true), 0, "no slot is left");
        let mut ordered: Gate<&str> = Gate::new(1);
        assert_eq!((ordered.admit_visit(5, true), ordered.active()), (5, 1));
        let colour = ordered.enter_many(5);
        assert!(!ordered.leave_many(colour, 4, 0), "one is left");
        assert!(ordered.leave_many(colour, 1, 1) && ordered.is_idle());
    }

    /// What comes back from a visit is before what waits, and can be taken back.
    #[test]
    fn what_is_put_back_is_first() {
        let mut gate = Gate::new(1);
        let _ = admit(&mut gate, "a");
        let _ = admit(&mut gate, "d");
        let mut tickets = Vec::new();
        for item in ["c", "b"] {
            gate.put_back(|ticket| {
                tickets.push(ticket);
                item
            });
        }
        assert_eq!(gate.remove(tickets[0], |item| *item == "c"), Some("c"));
        gate.leave(0, true);
        assert_eq!(gate.promote(), Some("b"));
        gate.leave(0, true);
        assert_eq!(gate.promote(), Some("d"));
    }

    #[test]
    fn lowering_takes_effect_as_items_end() {
        let mut gate = Gate::new(3);
        for item in ["a", "b", "c", "d"] {
            let _ = admit(&mut gate, item);
        }
        gate.set_max_active(1);
        gate.leave(0, true);
        gate.leave(0, true);
        assert_eq!((gate.active(), gate.promote()), (1, None));
        gate.leave(0, true);
        assert_eq!(gate.promote(), Some("d"));
    }

    #[test]
    fn b35_nobody_becomes_active_while_it_is_frozen() {
        let mut gate = Gate::new(2);
        let _ = admit(&mut gate, "a");
        gate.set_frozen(true);
        assert_eq!(gate.room_for(1), (0, 1));
        assert!(matches!(admit(&mut gate, "b"), Admitted::Inactive(_)));
        assert_eq!((gate.promote(), gate.admit_caller()), (None, None));
        gate.leave(0, true);
        assert_eq!((gate.active(), gate.promote()), (0, None));
        gate.set_frozen(false);
        assert_eq!(gate.promote(), Some("b"));
    }

    #[test]
    fn a_cancelled_inactive_item_gives_no_slot_back() {
        let mut gate = Gate::new(1);
        let _ = admit(&mut gate, "a");
        let Admitted::Inactive(ticket) = admit(&mut gate, "b") else {
            panic!("the limit is one")
        };
        assert_eq!(gate.remove(ticket, |_| true), Some("b"));
        assert_eq!(gate.remove(ticket, |_| true), None);
        assert!(!gate.leave(0, false), "a is still there");
        assert_eq!((gate.active(), gate.inactive()), (1, 0));
        assert!(gate.leave(0, true) && gate.is_idle());
    }

    /// Places of items that were taken back are skipped, wherever they are.
    #[test]
    fn order_is_kept_around_what_was_taken_back() {
        let mut gate = Gate::new(1);
        let _ = admit(&mut gate, "a");
        let tickets: Vec<_> = ["b", "c", "d", "e"]
            .map(|item| match admit(&mut gate, item) {
                Admitted::Inactive(ticket) => ticket,
                Admitted::Active(_) => panic!("the limit is one"),
            })
            .into();
        assert_eq!(gate.remove(tickets[1], |_| true), Some("c"));
        assert_eq!(gate.remove(tickets[0], |_| true), Some("b"));
        assert_eq!(gate.first_inactive(), Some((tickets[2], &"d")));
        assert!(gate.is_behind_the_only_one(tickets[2], |_| true));
        assert!(
            !gate.is_behind_the_only_one(tickets[1], |_| true)
                && gate.remove(tickets[1], |_| true).is_none()
        );
        gate.leave(0, true);
        assert_eq!((gate.promote(), gate.inactive()), (Some("d"), 1));
        assert_eq!(
            gate.remove(tickets[2], |_| true),
            None,
            "it has become active"
        );
        assert_eq!(gate.remove(tickets[3], |_| true), Some("e"));
        assert_eq!((gate.inactive(), gate.first_inactive()), (0, None));
        let Admitted::Inactive(next) = admit(&mut gate, "f") else {
            panic!("d is still there")
        };
        assert!(next > tickets[3], "a ticket is given once");
    }
}
