//! The front ends of a queue and what waits in them.
//!
//! A front end is the queue's door on one CPU. It keeps its own inactive items in their order. The
//! front ends of one group (a memory node, or none) stand in one line when they have inactive
//! items; each slot that comes free goes to the first of the line, which then goes to its end.
//!
//! Invariant: a front end that has an inactive item and is not plugged is in its group's line. One
//! whose last item was cancelled may still be in it; it is skipped.

use std::collections::VecDeque;

/// One door of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Front<T> {
    group: usize,
    inactive: VecDeque<T>,
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
}

impl<T> Fronts<T> {
    pub(super) fn new(groups: usize) -> Self {
        Self {
            fronts: Vec::new(),
            lines: vec![VecDeque::new(); groups],
        }
    }

    /// A new front end. Its number is the count of those before it.
    pub(super) fn add(&mut self, group: usize, plugged: bool) -> usize {
        self.fronts.push(Front {
            group,
            inactive: VecDeque::new(),
            active: 0,
            listed: false,
            plugged,
        });
        self.fronts.len() - 1
    }

    pub(super) fn len(&self) -> usize {
        self.fronts.len()
    }

    pub(super) fn group(&self, front: usize) -> usize {
        self.fronts[front].group
    }

    /// Whether a newcomer of this front end has to stand behind others, slots or not.
    pub(super) fn must_wait(&self, front: usize) -> bool {
        let front = &self.fronts[front];
        front.plugged || !front.inactive.is_empty()
    }

    /// Whether somebody may stand in the group's line.
    pub(super) fn has_line(&self, group: usize) -> bool {
        !self.lines[group].is_empty()
    }

    /// The item waits in its front end, which stands in line.
    pub(super) fn join(&mut self, front: usize, item: T) {
        let door = &mut self.fronts[front];
        door.inactive.push_back(item);
        if !door.plugged && !door.listed {
            door.listed = true;
            self.lines[door.group].push_back(front);
        }
    }

    /// An item of the front end has become active without waiting.
    pub(super) fn start(&mut self, front: usize) {
        self.fronts[front].active += 1;
    }

    /// An active item of the front end has ended. Returns the group that has the slot.
    pub(super) fn finish(&mut self, front: usize) -> usize {
        self.fronts[front].active -= 1;
        self.fronts[front].group
    }

    /// The oldest item of the front end that has its turn; it is active now.
    pub(super) fn next(&mut self, group: usize) -> Option<(usize, T)> {
        while let Some(front) = self.lines[group].pop_front() {
            let door = &mut self.fronts[front];
            let item = door.inactive.pop_front();
            door.listed = !door.inactive.is_empty();
            if door.listed {
                self.lines[group].push_back(front);
            }
            if let Some(item) = item {
                door.active += 1;
                return Some((front, item));
            }
        }
        None
    }

    /// The oldest item of this front end, out of turn: the limit was raised.
    pub(super) fn next_of(&mut self, front: usize) -> Option<T> {
        let door = &mut self.fronts[front];
        if door.plugged {
            return None;
        }
        let item = door.inactive.pop_front()?;
        door.active += 1;
        Some(item)
    }

    /// Takes an inactive item back.
    pub(super) fn remove(&mut self, front: usize, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let inactive = &mut self.fronts[front].inactive;
        inactive.remove(inactive.iter().position(wanted)?)
    }

    /// From now on items of this front end become active.
    pub(super) fn unplug(&mut self, front: usize) {
        let door = &mut self.fronts[front];
        door.plugged = false;
        if !door.inactive.is_empty() && !door.listed {
            door.listed = true;
            self.lines[door.group].push_back(front);
        }
    }

    pub(super) fn active(&self, front: usize) -> usize {
        self.fronts[front].active
    }

    pub(super) fn inactive(&self, front: usize) -> usize {
        self.fronts[front].inactive.len()
    }

    /// The front ends in the group's line, first served first.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn line(&self, group: usize) -> impl Iterator<Item = usize> + '_ {
        self.lines[group].iter().copied()
    }
}
