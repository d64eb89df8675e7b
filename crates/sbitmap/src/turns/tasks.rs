//! The tasks at one home, first come first served: plain data for the inside of its lock.
//!
//! As the list of the line: slots that are linked while their task waits, keep its id until it is
//! fetched, and are used again.

use super::homes::Found;
use super::list::NIL;
use inflight_sync::wait::Notify;
use std::mem;

/// The place of a task at a home. A place that was left matches nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) home: usize,
    index: u32,
    serial: u64,
}

#[derive(Debug)]
enum State {
    Free,
    Waiting,
    Granted(usize),
}

#[derive(Debug)]
struct Slot {
    state: State,
    /// `None` while somebody is about to tell the task, or it is about to look.
    notify: Option<Notify>,
    age: u64,
    /// Of the task that has the slot or had it last.
    serial: u64,
    prev: u32,
    /// The next task, or the next free slot.
    next: u32,
}

#[derive(Debug)]
pub(super) struct Tasks {
    slots: Vec<Slot>,
    head: u32,
    tail: u32,
    free: u32,
    len: usize,
    next_serial: u64,
    /// Of the last that came, and how many of that age have come.
    age: u64,
    of_age: u32,
    /// Whether newcomers may stand here without the line's lock.
    pub(super) open: bool,
    pub(super) waits: u64,
    pub(super) wakeups: u64,
}

impl Default for Tasks {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            head: NIL,
            tail: NIL,
            free: NIL,
            len: 0,
            next_serial: 0,
            age: 0,
            of_age: 0,
            open: false,
            waits: 0,
            wakeups: 0,
        }
    }
}

impl Tasks {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    fn slot(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize]
    }

    /// The age of the head.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.slots.get(self.head as usize).map(|slot| slot.age)
    }

    /// At the back, `now` old or as old as the last. The age, if as many as `share` have it now.
    pub(super) fn push(
        &mut self,
        home: usize,
        now: u64,
        share: u32,
        notify: Option<Notify>,
    ) -> (Spot, Option<u64>) {
        if now > self.age {
            (self.age, self.of_age) = (now, 0);
        }
        self.of_age += 1;
        let serial = self.next_serial;
        self.next_serial += 1;
        let slot = Slot {
            state: State::Waiting,
            notify,
            age: self.age,
            serial,
            prev: self.tail,
            next: NIL,
        };
        let index = match self.free {
            NIL => {
                self.slots.push(slot);
                u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 waiters")
            }
            index => {
                self.free = mem::replace(self.slot(index), slot).next;
                index
            }
        };
        match self.tail {
            NIL => self.head = index,
            tail => self.slot(tail).next = index,
        }
        self.tail = index;
        self.len += 1;
        let spot = Spot {
            home,
            index,
            serial,
        };
        (spot, (self.of_age >= share).then_some(self.age))
    }

    fn unlink(&mut self, index: u32) {
        let (prev, next) = (self.slot(index).prev, self.slot(index).next);
        match prev {
            NIL => self.head = next,
            prev => self.slot(prev).next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => self.slot(next).prev = prev,
        }
        self.len -= 1;
    }

    fn release(&mut self, index: u32) {
        let free = mem::replace(&mut self.free, index);
        let slot = self.slot(index);
        slot.state = State::Free;
        slot.next = free;
    }

    /// The head has an id, and is to be told so. There must be one.
    pub(super) fn grant(&mut self, id: usize) -> Option<Notify> {
        let head = self.head;
        self.unlink(head);
        let slot = self.slot(head);
        slot.state = State::Granted(id);
        let notify = slot.notify.take();
        self.wakeups += u64::from(notify.is_some());
        notify
    }

    fn find(&mut self, spot: Spot) -> &mut Slot {
        let slot = self.slot(spot.index);
        debug_assert_eq!(slot.serial, spot.serial, "a place is left once");
        slot
    }

    /// Whether a task that waits is told so.
    pub(super) fn is_told_by(&mut self, spot: Spot, so: impl FnOnce(&Notify) -> bool) -> bool {
        self.find(spot).notify.as_ref().is_some_and(so)
    }

    /// The id of the task at this place, which is gone then.
    pub(super) fn fetch(&mut self, spot: Spot) -> Option<usize> {
        let State::Granted(id) = self.find(spot).state else {
            return None;
        };
        self.release(spot.index);
        Some(id)
    }

    /// As `fetch`. If there is none the task waits on, told by `notify`.
    pub(super) fn fetch_or_stay(&mut self, spot: Spot, notify: Notify) -> Found {
        match self.fetch(spot) {
            Some(id) => Found {
                id: Some(id),
                unused: Some(notify),
            },
            None => Found {
                id: None,
                unused: self.find(spot).notify.replace(notify),
            },
        }
    }

    /// The task gives its place up.
    pub(super) fn leave(&mut self, spot: Spot) -> Found {
        let slot = self.find(spot);
        let unused = slot.notify.take();
        let id = match slot.state {
            State::Granted(id) => Some(id),
            State::Waiting | State::Free => None,
        };
        if id.is_none() {
            self.unlink(spot.index);
        }
        self.release(spot.index);
        Found { id, unused }
    }

    pub(super) fn take_notifies(&mut self) -> Vec<Notify> {
        let mut all = Vec::with_capacity(self.len);
        let mut at = self.head;
        while let Some(slot) = self.slots.get_mut(at as usize) {
            all.extend(slot.notify.take());
            at = slot.next;
        }
        all
    }

    /// How many have an id that they have not fetched.
    pub(super) fn granted(&self) -> usize {
        let granted = |slot: &&Slot| matches!(slot.state, State::Granted(_));
        self.slots.iter().filter(granted).count()
    }
}
