//! What is planned, and for when.

use super::Ns;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

#[derive(Debug)]
struct Planned<E> {
    at: Ns,
    /// Grows with each plan: events of one moment keep their order.
    number: u64,
    event: E,
}

#[derive(Debug)]
pub(crate) struct Events<E> {
    heap: BinaryHeap<Planned<E>>,
    planned: u64,
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::new(),
            planned: 0,
        }
    }
}

impl<E> Events<E> {
    pub(crate) fn plan(&mut self, at: Ns, event: E) {
        self.planned += 1;
        self.heap.push(Planned {
            at,
            number: self.planned,
            event,
        });
    }

    /// The next event, unless it is later than `deadline`.
    pub(crate) fn pop_until(&mut self, deadline: Ns) -> Option<(Ns, E)> {
        if self.heap.peek()?.at > deadline {
            return None;
        }
        self.heap.pop().map(|planned| (planned.at, planned.event))
    }
}

/// The greatest is the earliest, as a heap gives out its greatest.
impl<E> Ord for Planned<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl<E> PartialOrd for Planned<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Planned<E> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<E> Eq for Planned<E> {}
