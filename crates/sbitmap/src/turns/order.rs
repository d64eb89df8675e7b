//! Who is the next: classes go round, and within a class the two lanes take turns.
//!
//! A class is one tenant's waiters. Within it small requests and large ones have a lane each, and
//! are served by turns, so that neither waits for all of the other; while the first of one has a
//! part that its owner has not fetched, the other is (F2). A queue whose users do not ask for a
//! class has one, with one lane: first come, first served.

use super::list::{List, NIL, NodeKey};
use crate::request::Class;

/// One of a class's two lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Lane {
    #[default]
    Small,
    Large,
}

impl Lane {
    const fn other(self) -> Self {
        match self {
            Self::Small => Self::Large,
            Self::Large => Self::Small,
        }
    }
}

/// The first and the last of a lane, by slot.
#[derive(Debug)]
pub(super) struct LaneEnds {
    pub(super) head: u32,
    pub(super) tail: u32,
    /// A request that has had some of its parts: nobody of its lane comes before its end.
    goes_on: Option<NodeKey>,
    /// The thread that looks now and then whether a token is lost.
    pub(super) watchdog: Option<NodeKey>,
}

impl LaneEnds {
    /// The slot of the next to be served.
    fn first(&self) -> u32 {
        self.goes_on.map_or(self.head, |key| key.index)
    }
}

#[derive(Debug)]
struct ClassQueues {
    small: LaneEnds,
    large: LaneEnds,
    /// Which is served next.
    next: Lane,
}

impl ClassQueues {
    const fn new() -> Self {
        const NOBODY: LaneEnds = LaneEnds {
            head: NIL,
            tail: NIL,
            goes_on: None,
            watchdog: None,
        };
        Self {
            small: NOBODY,
            large: NOBODY,
            next: Lane::Small,
        }
    }

    const fn ends(&self, lane: Lane) -> &LaneEnds {
        match lane {
            Lane::Small => &self.small,
            Lane::Large => &self.large,
        }
    }

    /// The slot of the next to be served: of the request that goes on, else of the lane whose turn
    /// it is. F2: not of a lane whose first `is_full`.
    fn first(&self, is_full: impl Fn(u32) -> bool) -> Option<u32> {
        let lane = match (self.small.goes_on, self.large.goes_on) {
            (_, Some(_)) => Lane::Large,
            (Some(_), None) => Lane::Small,
            (None, None) => self.next,
        };
        let lanes = [lane, lane.other()].map(|lane| self.ends(lane));
        let first = lanes.into_iter().find(|ends| {
            let first = ends.first();
            // Only a request that goes on can have a part.
            first != NIL && (ends.goes_on.is_none() || !is_full(first))
        });
        first.map(LaneEnds::first)
    }
}

/// The ends of all lanes, and whose turn it is.
#[derive(Debug)]
pub(super) struct Classes {
    all: Vec<ClassQueues>,
    /// The class that is served next, if it can be.
    turn: usize,
    /// A waiter that has some ids and is to have more before anybody else is served.
    pub(super) collecting: Option<NodeKey>,
}

impl Classes {
    pub(super) const fn new() -> Self {
        Self {
            all: Vec::new(),
            turn: 0,
            collecting: None,
        }
    }

    fn lanes(&mut self, class: Class) -> &mut ClassQueues {
        let class = class as usize;
        if class >= self.all.len() {
            self.all.resize_with(class + 1, ClassQueues::new);
        }
        &mut self.all[class]
    }

    pub(super) fn ends(&mut self, class: Class, lane: Lane) -> &mut LaneEnds {
        let lanes = self.lanes(class);
        match lane {
            Lane::Small => &mut lanes.small,
            Lane::Large => &mut lanes.large,
        }
    }

    /// Whatever was to go on with this waiter does not.
    pub(super) fn left(&mut self, class: Class, lane: Lane, key: NodeKey) {
        let ends = self.ends(class, lane);
        if ends.goes_on == Some(key) {
            ends.goes_on = None;
        }
        if self.collecting == Some(key) {
            self.collecting = None;
        }
    }

    /// Whether somebody of a class waits in this lane.
    pub(super) fn has(&self, class: Class, lane: Lane) -> bool {
        let lanes = self.all.get(class as usize);
        lanes.is_some_and(|lanes| lanes.ends(lane).head != NIL)
    }

    /// Whether nobody waits but small requests of one class.
    pub(super) fn has_one_lane(&self) -> bool {
        self.all.len() <= 1 && self.all.first().is_none_or(|lanes| lanes.large.head == NIL)
    }

    /// A waiter has been given all it wants.
    pub(super) fn served(&mut self, class: Class, lane: Lane) {
        self.lanes(class).next = lane.other();
        self.pass(class);
    }

    /// A waiter has been given a part, and goes on when its owner has fetched it and its class's
    /// turn comes again.
    pub(super) fn served_in_part(&mut self, class: Class, lane: Lane, key: NodeKey) {
        self.ends(class, lane).goes_on = Some(key);
        self.pass(class);
    }

    fn pass(&mut self, class: Class) {
        self.collecting = None;
        self.turn = class as usize + 1;
    }

    pub(super) fn heads_and_tails(&self) -> impl Iterator<Item = (u32, u32)> {
        let of = |ends: &LaneEnds| (ends.head, ends.tail);
        let both = move |lanes: &ClassQueues| [of(&lanes.small), of(&lanes.large)];
        self.all.iter().flat_map(both)
    }
}

impl List {
    /// The waiter whose turn it is, among the classes that `may` be served. `None`: nobody can be.
    ///
    /// One that collects is the next although its class may not be served any more.
    pub(super) fn next(&self, may: impl Fn(Class) -> bool) -> Option<NodeKey> {
        let index = self.next_slot(may)?;
        let serial = self.slots[index as usize].serial;
        Some(NodeKey { index, serial })
    }

    /// Its slot, which is not touched: its line is cold.
    pub(super) fn next_slot(&self, may: impl Fn(Class) -> bool) -> Option<u32> {
        let classes = &self.classes;
        if self.is_empty() || classes.collecting.is_some() {
            return classes.collecting.map(|key| key.index);
        }
        let n = classes.all.len();
        (0..n).find_map(|i| {
            let class = match classes.turn + i {
                class if class < n => class,
                wrapped => wrapped % n,
            };
            let index = classes.all[class].first(|index| self.is_full(index))?;
            may(class as Class).then_some(index)
        })
    }

    fn is_full(&self, index: u32) -> bool {
        let node = self.slots[index as usize].node.as_ref();
        node.is_some_and(|node| node.full)
    }
}
