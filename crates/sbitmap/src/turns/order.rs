//! Who is the next: classes go round, and within a class the two lanes take turns.
//!
//! A class is one tenant's waiters. Within it small requests and large ones have a lane each, and
//! are served by turns, so that neither waits for all of the other. A queue whose users do not ask
//! for a class has one, with one lane: first come, first served.

use super::list::{List, NIL, Ticket};
use crate::above::Class;

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
pub(super) struct Ends {
    pub(super) head: u32,
    pub(super) tail: u32,
    /// The thread that looks now and then whether a token is lost.
    pub(super) watcher: Option<Ticket>,
}

#[derive(Debug)]
struct Lanes {
    small: Ends,
    large: Ends,
    /// How many wait in both.
    len: usize,
    /// Which is served next.
    next: Lane,
    /// A request that has had some parts: nobody of its class comes before its end.
    goes_on: Option<Ticket>,
}

impl Lanes {
    const fn new() -> Self {
        const NOBODY: Ends = Ends {
            head: NIL,
            tail: NIL,
            watcher: None,
        };
        Self {
            small: NOBODY,
            large: NOBODY,
            len: 0,
            next: Lane::Small,
            goes_on: None,
        }
    }

    const fn ends(&self, lane: Lane) -> &Ends {
        match lane {
            Lane::Small => &self.small,
            Lane::Large => &self.large,
        }
    }

    /// The slot of the next to be served.
    const fn first(&self) -> u32 {
        match (self.goes_on, self.ends(self.next).head) {
            (Some(ticket), _) => ticket.index,
            (None, NIL) => self.ends(self.next.other()).head,
            (None, head) => head,
        }
    }
}

/// The ends of all lanes, and whose turn it is.
#[derive(Debug)]
pub(super) struct Classes {
    all: Vec<Lanes>,
    /// The class that is served next, if it can be.
    turn: usize,
    /// A waiter that has some ids and is to have more before anybody else is served.
    pub(super) collecting: Option<Ticket>,
}

impl Classes {
    pub(super) const fn new() -> Self {
        Self {
            all: Vec::new(),
            turn: 0,
            collecting: None,
        }
    }

    fn lanes(&mut self, class: Class) -> &mut Lanes {
        let class = class as usize;
        if class >= self.all.len() {
            self.all.resize_with(class + 1, Lanes::new);
        }
        &mut self.all[class]
    }

    pub(super) fn ends(&mut self, class: Class, lane: Lane) -> &mut Ends {
        let lanes = self.lanes(class);
        match lane {
            Lane::Small => &mut lanes.small,
            Lane::Large => &mut lanes.large,
        }
    }

    pub(super) fn joined(&mut self, class: Class) {
        self.lanes(class).len += 1;
    }

    /// Whatever was to go on with this waiter does not.
    pub(super) fn left(&mut self, class: Class, ticket: Ticket) {
        let lanes = self.lanes(class);
        lanes.len -= 1;
        if lanes.goes_on == Some(ticket) {
            lanes.goes_on = None;
        }
        if self.collecting == Some(ticket) {
            self.collecting = None;
        }
    }

    /// How many of a class wait.
    pub(super) fn len_of(&self, class: Class) -> usize {
        self.all.get(class as usize).map_or(0, |lanes| lanes.len)
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

    /// A waiter has been given a part, and goes on when its class's turn comes again.
    pub(super) fn served_in_part(&mut self, class: Class, ticket: Ticket) {
        self.lanes(class).goes_on = Some(ticket);
        self.pass(class);
    }

    fn pass(&mut self, class: Class) {
        self.collecting = None;
        self.turn = class as usize + 1;
    }

    pub(super) fn tails(&self) -> impl Iterator<Item = u32> {
        let both = |lanes: &Lanes| [lanes.small.tail, lanes.large.tail];
        self.all.iter().flat_map(both)
    }
}

impl List {
    /// The waiter whose turn it is, among the classes that `may` be served. `None`: nobody can be.
    ///
    /// One that collects is the next although its class may not be served any more.
    pub(super) fn next(&self, may: impl Fn(Class) -> bool) -> Option<Ticket> {
        let classes = &self.classes;
        if self.is_empty() || classes.collecting.is_some() {
            return classes.collecting;
        }
        let n = classes.all.len();
        (0..n).find_map(|i| {
            let class = match classes.turn + i {
                class if class < n => class,
                wrapped => wrapped % n,
            };
            let index = classes.all[class].first();
            let slot = self.slots.get(index as usize)?;
            let waits = slot.node.as_ref().is_some_and(|node| !node.full);
            let ticket = Ticket {
                index,
                serial: slot.serial,
            };
            (waits && may(class as Class)).then_some(ticket)
        })
    }
}
