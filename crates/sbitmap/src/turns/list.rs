//! The one list of waiters, and the nodes in it.
//!
//! Plain data for the inside of a lock: a doubly linked list over the indices of a `Vec`. Nothing
//! is allocated once it has had its largest size, and a waiter leaves in constant time. A node
//! that was granted is no longer linked; it stays in its slot until its owner fetches it.

use inflight_sync::wait::Notify;

const NIL: u32 = u32::MAX;

/// Names one stay of one waiter. A ticket of a waiter that has left matches nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    index: u32,
    serial: u64,
}

/// Who waits. A timed thread is a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Thread,
    Task,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting,
    /// Has all its ids.
    Granted {
        /// Of the grant.
        serial: u32,
        /// In which period its token was taken, if it took one.
        token: Option<u32>,
    },
    /// Will never have as many ids as it wants.
    Refused,
}

/// The ids of a waiter: one, without an allocation, or several in the caller's buffer.
#[derive(Debug)]
pub(super) enum Ids {
    One(Option<usize>),
    Many(Vec<usize>),
}

impl Ids {
    /// Room for `n` ids.
    pub(super) fn for_many(n: usize) -> Self {
        Self::Many(Vec::with_capacity(n))
    }

    fn push(&mut self, id: usize) {
        match self {
            Self::One(one) => *one = Some(id),
            Self::Many(ids) => ids.push(id),
        }
    }

    pub(super) fn into_vec(self) -> Vec<usize> {
        match self {
            Self::One(one) => one.into_iter().collect(),
            Self::Many(ids) => ids,
        }
    }

    pub(super) fn as_slice(&self) -> &[usize] {
        match self {
            Self::One(one) => one.as_slice(),
            Self::Many(ids) => ids,
        }
    }
}

/// One waiter. What a policy above needs to choose the next waiter has its place here.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    /// How many ids it waits for; it is granted all of them together.
    pub(super) want: usize,
    pub(super) ids: Ids,
    /// The credits of the turn that its grant begins or goes on with.
    pub(super) credits: u32,
    pub(super) state: State,
    /// `None` while somebody is about to tell it, or has told it.
    pub(super) notify: Option<Notify>,
    /// Whether the turns before it have ended for its sake.
    pub(super) collects: bool,
}

impl Node {
    pub(super) fn new(notify: Notify, want: usize, ids: Ids, credits: u32) -> Self {
        Self {
            kind: match notify {
                Notify::Thread(_) => Kind::Thread,
                Notify::Task(_) => Kind::Task,
            },
            want,
            ids,
            credits,
            state: State::Waiting,
            notify: Some(notify),
            collects: false,
        }
    }

    /// Adds an id. Returns whether the node has all it wants.
    pub(super) fn feed(&mut self, id: usize) -> bool {
        self.ids.push(id);
        self.ids.as_slice().len() == self.want
    }
}

#[derive(Debug)]
struct Slot {
    /// `None` while the slot is free.
    node: Option<Node>,
    /// Of the stay the slot holds or held last.
    serial: u64,
    prev: u32,
    /// Next waiter, or next free slot.
    next: u32,
}

#[derive(Debug)]
pub(super) struct List {
    slots: Vec<Slot>,
    head: u32,
    tail: u32,
    free: u32,
    len: usize,
    next_serial: u64,
}

impl List {
    pub(super) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            head: NIL,
            tail: NIL,
            free: NIL,
            len: 0,
            next_serial: 0,
        }
    }

    /// How many wait, those granted already not counted.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn push_back(&mut self, node: Node) -> Ticket {
        let ticket = self.place(node);
        let index = ticket.index;
        self.slot(index).prev = self.tail;
        match self.tail {
            NIL => self.head = index,
            tail => self.slot(tail).next = index,
        }
        self.tail = index;
        ticket
    }

    pub(super) fn push_front(&mut self, node: Node) -> Ticket {
        let ticket = self.place(node);
        let index = ticket.index;
        self.slot(index).next = self.head;
        match self.head {
            NIL => self.tail = index,
            head => self.slot(head).prev = index,
        }
        self.head = index;
        ticket
    }

    /// A slot for the node, linked to nobody.
    fn place(&mut self, node: Node) -> Ticket {
        let serial = self.next_serial;
        self.next_serial += 1;
        self.len += 1;
        let slot = Slot {
            node: Some(node),
            serial,
            prev: NIL,
            next: NIL,
        };
        let index = self.free;
        if index == NIL {
            let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 waiters");
            self.slots.push(slot);
            return Ticket { index, serial };
        }
        self.free = std::mem::replace(self.slot(index), slot).next;
        Ticket { index, serial }
    }

    fn slot(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize]
    }

    /// The node of a waiter that has not left, granted or not.
    pub(super) fn node(&mut self, ticket: Ticket) -> Option<&mut Node> {
        let slot = self.slots.get_mut(ticket.index as usize)?;
        slot.node.as_mut().filter(|_| slot.serial == ticket.serial)
    }

    pub(super) fn is_waiting(&self, ticket: Ticket) -> bool {
        self.peek(ticket).is_some_and(|n| n.state == State::Waiting)
    }

    pub(super) fn peek(&self, ticket: Ticket) -> Option<&Node> {
        let slot = self.slots.get(ticket.index as usize)?;
        slot.node.as_ref().filter(|_| slot.serial == ticket.serial)
    }

    /// The waiter whose turn it is.
    pub(super) fn head(&mut self) -> Option<&mut Node> {
        self.slots.get_mut(self.head as usize)?.node.as_mut()
    }

    pub(super) fn head_ticket(&self) -> Option<Ticket> {
        let slot = self.slots.get(self.head as usize)?;
        Some(Ticket {
            index: self.head,
            serial: slot.serial,
        })
    }

    /// Ends a waiter's waiting; its node stays for its owner. The caller says how it ended.
    pub(super) fn unlink(&mut self, ticket: Ticket) -> &mut Node {
        debug_assert!(self.is_waiting(ticket));
        let slot = self.slot(ticket.index);
        let (prev, next) = (slot.prev, slot.next);
        match prev {
            NIL => self.head = next,
            prev => self.slot(prev).next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => self.slot(next).prev = prev,
        }
        self.len -= 1;
        self.node(ticket).expect("it was waiting")
    }

    /// Takes a waiter's node out, as it is, and frees its slot. `None` if it has left before.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<Node> {
        if self.is_waiting(ticket) {
            self.unlink(ticket);
        }
        self.node(ticket)?;
        let free = self.free;
        self.free = ticket.index;
        let slot = self.slot(ticket.index);
        slot.next = free;
        slot.node.take()
    }

    /// How many ids waiters have that they have not fetched: those who have all they want, and
    /// those who have not.
    pub(super) fn unfetched(&self) -> (usize, usize) {
        let nodes = self.slots.iter().filter_map(|slot| slot.node.as_ref());
        nodes.fold((0, 0), |(granted, collected), node| {
            let ids = node.ids.as_slice().len();
            match node.state {
                State::Granted { .. } => (granted + ids, collected),
                State::Waiting | State::Refused => (granted, collected + ids),
            }
        })
    }

    /// All who wait, from the newest to the oldest.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = Ticket> {
        let mut at = self.tail;
        std::iter::from_fn(move || {
            let slot = self.slots.get(at as usize)?;
            let ticket = Ticket {
                index: at,
                serial: slot.serial,
            };
            at = slot.prev;
            Some(ticket)
        })
    }

    /// How to tell everybody. Threads stay as they are, tasks say anew how they want to be told.
    pub(super) fn notify_all(&mut self) -> Vec<Notify> {
        let tickets: Vec<Ticket> = self.newest_first().collect();
        let mut all = Vec::with_capacity(tickets.len());
        for ticket in tickets.into_iter().rev() {
            let node = self.node(ticket).expect("it is in the list");
            all.extend(match &node.notify {
                // Never a task's waker: cloning it may run anything.
                Some(Notify::Thread(unparker)) => Some(Notify::Thread(unparker.clone())),
                _ => node.notify.take(),
            });
        }
        all
    }
}
