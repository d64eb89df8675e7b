//! What `Limits` must do, said in the plainest way: lists that are searched from end to end, and
//! stamps instead of lines.

use super::{FrontEnd, shares};

/// A front end: its inactive items, and since when it is in line.
#[derive(Clone, Debug, Default)]
struct Door {
    group: usize,
    inactive: Vec<u32>,
    since: Option<u64>,
}

impl Door {
    /// Out of turn. Who has nobody left has no place in line.
    fn take(&mut self, at: usize) -> u32 {
        let item = self.inactive.remove(at);
        if self.inactive.is_empty() {
            self.since = None;
        }
        item
    }
}

/// `Share::PerNode`, naively.
#[derive(Debug)]
pub(super) struct Oracle {
    doors: Vec<Door>,
    active: Vec<FrontEnd>,
    max: Vec<usize>,
    clock: u64,
}

impl Oracle {
    pub(super) fn new(max: usize, min: usize, cpus: &[usize], groups: &[usize]) -> Self {
        let door = |&group: &usize| Door {
            group,
            ..Door::default()
        };
        let mut oracle = Self {
            doors: groups.iter().map(door).collect(),
            active: Vec::new(),
            max: Vec::new(),
            clock: 0,
        };
        oracle.set(max, min, cpus);
        oracle
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn active_in(&self, group: usize) -> usize {
        let in_group = |front: &&FrontEnd| self.doors[**front].group == group;
        self.active.iter().filter(in_group).count()
    }

    fn has_room(&self, group: usize) -> bool {
        self.active_in(group) < self.max[group]
    }

    pub(super) fn admit(&mut self, front: FrontEnd, item: u32) -> Vec<u32> {
        let group = self.doors[front].group;
        if self.doors[front].inactive.is_empty() && self.has_room(group) {
            self.active.push(front);
            return vec![item];
        }
        let now = self.tick();
        let door = &mut self.doors[front];
        door.inactive.push(item);
        door.since.get_or_insert(now);
        Vec::new()
    }

    pub(super) fn leave(&mut self, front: FrontEnd) -> Vec<u32> {
        let at = self.active.iter().position(|other| *other == front);
        self.active.swap_remove(at.expect("one of it is active"));
        let group = self.doors[front].group;
        if !self.has_room(group) {
            return Vec::new();
        }
        let now = self.tick();
        let in_line = self.doors.iter_mut().enumerate();
        let in_line = in_line.filter(|(_, d)| d.group == group && d.since.is_some());
        let Some((first, door)) = in_line.min_by_key(|(_, d)| d.since) else {
            return Vec::new();
        };
        let item = door.inactive.remove(0);
        door.since = (!door.inactive.is_empty()).then_some(now);
        self.active.push(first);
        vec![item]
    }

    pub(super) fn remove(&mut self, front: FrontEnd, item: u32) -> Option<u32> {
        let at = self.doors[front].inactive.iter().position(|o| *o == item)?;
        Some(self.doors[front].take(at))
    }

    pub(super) fn set(&mut self, max: usize, min: usize, cpus: &[usize]) -> Vec<u32> {
        let shares = shares(max, min, cpus);
        self.max = shares.nodes;
        self.max.push(shares.nodeless);
        let mut started = Vec::new();
        loop {
            let before = started.len();
            for front in 0..self.doors.len() {
                let group = self.doors[front].group;
                if self.has_room(group) && !self.doors[front].inactive.is_empty() {
                    started.push(self.doors[front].take(0));
                    self.active.push(front);
                }
            }
            if started.len() == before {
                return started;
            }
        }
    }
}
