//! The front ends of a queue and what waits in them.
//!
//! A front end is the queue's door on one CPU. It keeps its own inactive items in their order. The
//! front ends of one group (a memory node, or none) stand in one line when they have inactive
//! items; each slot that comes free goes to the first of the line, which then goes to its end.
//!
//! Invariant: a front end is in its group's line if, and only if, it has an inactive item and is
//! not plugged.

use crate::inactive::Inactive;
use std::collections::VecDeque;

/// One door of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Front<T> {
    group: usize,
    inactive: Inactive<T>,
    #[cfg(any(test, feature = "unstable-sim"))]
    active: usize,
    listed: bool,
    /// Nothing becomes active here until an older front end has run dry.
    plugged: bool,
}

/// The doors of a queue, by number, and the lines of their groups.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Fronts<T> {
    fronts: Vec<Front<T>>,
    /// By group.
    lines: Vec<VecDeque<usize>>,
    /// By group: items that wait in its line.
    waiting: Vec<usize>,
}

impl<T> Fronts<T> {
    pub(super) fn new(groups: usize) -> Self {
        Self {
            fronts: Vec::new(),
            lines: vec![VecDeque::new(); groups],
            waiting: vec![0; groups],
        }
    }

    /// A new front end. Its number is the count of those before it.
    pub(super) fn add(&mut self, group: usize, plugged: bool) -> usize {
        self.fronts.push(Front {
            group,
            inactive: Inactive::new(),
            #[cfg(any(test, feature = "unstable-sim"))]
            active: 0,
            listed: false,
            plugged,
        });
        self.fronts.len() - 1
    }

    pub(super) fn len(&self) -> usize {
        self.fronts.len()
    }

    /// The item waits in its front end, which stands in line.
    pub(super) fn join(&mut self, front: usize, item: T) {
        let door = &mut self.fronts[front];
        door.inactive.push(item);
        if door.plugged {
            return;
        }
        self.waiting[door.group] += 1;
        if !door.listed {
            door.listed = true;
            self.lines[door.group].push_back(front);
        }
    }

    /// Items that wait in the group's line.
    pub(super) fn waiting(&self, group: usize) -> usize {
        self.waiting[group]
    }

    /// The oldest item of the front end that has its turn; the caller counts it.
    pub(super) fn next(&mut self, group: usize) -> Option<(usize, T)> {
        let front = self.lines[group].pop_front()?;
        let door = &mut self.fronts[front];
        let item = door.inactive.pop()?;
        door.listed = !door.inactive.is_empty();
        if door.listed {
            self.lines[group].push_back(front);
        }
        self.waiting[group] -= 1;
        Some((front, item))
    }

    /// One less waits in the front end, out of turn.
    fn fewer(&mut self, front: usize) {
        let door = &mut self.fronts[front];
        let group = door.group;
        if door.plugged {
            return;
        }
        self.waiting[group] -= 1;
        if door.inactive.is_empty() {
            door.listed = false;
            self.lines[group].retain(|other| *other != front);
        }
    }

    /// The oldest item of this front end, out of turn: the limit was raised. The caller counts it.
    pub(super) fn next_of(&mut self, front: usize) -> Option<T> {
        let door = &mut self.fronts[front];
        if door.plugged {
            return None;
        }
        let item = door.inactive.pop()?;
        self.fewer(front);
        Some(item)
    }

    /// The same of the front end whose turn it is, in their order, one item each, round after
    /// round.
    pub(super) fn next_in_rounds(&mut self, turn: &mut usize) -> Option<(usize, T)> {
        (0..self.len()).find_map(|_| {
            let front = *turn % self.len();
            *turn += 1;
            Some((front, self.next_of(front)?))
        })
    }

    /// Which front end of the group is the next.
    pub(super) fn first(&self, group: usize) -> Option<usize> {
        self.lines[group].front().copied()
    }

    /// What the front end keeps.
    pub(super) fn inside(&self, front: usize) -> &Inactive<T> {
        &self.fronts[front].inactive
    }

    /// Takes an inactive item back.
    pub(super) fn remove(
        &mut self,
        front: usize,
        ticket: u64,
        is_it: impl Fn(&T) -> bool,
    ) -> Option<T> {
        let item = self.fronts[front].inactive.remove(ticket, is_it)?;
        self.fewer(front);
        Some(item)
    }
}

/// With one group after another, and what is active.
#[cfg(any(test, feature = "unstable-sim"))]
impl<T> Fronts<T> {
    pub(super) fn group(&self, front: usize) -> usize {
        self.fronts[front].group
    }

    /// Whether a newcomer of this front end has to stand behind others, slots or not.
    pub(super) fn must_wait(&self, front: usize) -> bool {
        let front = &self.fronts[front];
        front.plugged || !front.inactive.is_empty()
    }

    /// An item of the front end has become active.
    pub(super) fn start(&mut self, front: usize) {
        self.fronts[front].active += 1;
    }

    /// An active item of the front end has ended. Returns the group that has the slot.
    pub(super) fn finish(&mut self, front: usize) -> usize {
        self.fronts[front].active -= 1;
        self.fronts[front].group
    }

    pub(super) fn active(&self, front: usize) -> usize {
        self.fronts[front].active
    }

    /// Takes an inactive item back, wherever it stands.
    pub(super) fn take(&mut self, front: usize, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let ticket = self.inside(front).find(wanted)?;
        self.remove(front, ticket, |_| true)
    }

    /// From now on items of this front end become active.
    pub(super) fn unplug(&mut self, front: usize) {
        let door = &mut self.fronts[front];
        door.plugged = false;
        self.waiting[door.group] += door.inactive.len();
        if !door.inactive.is_empty() && !door.listed {
            door.listed = true;
            self.lines[door.group].push_back(front);
        }
    }

    /// The front ends in the group's line, first served first.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn line(&self, group: usize) -> impl Iterator<Item = usize> + '_ {
        self.lines[group].iter().copied()
    }
}
