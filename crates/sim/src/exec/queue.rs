//! What is planned, and for when.

use super::World;
use super::tasks::TaskId;
use inflight_sync::time::Instant;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::task::Waker;

/// Something that happens.
pub(super) enum Event {
    /// A task is polled.
    Poll(TaskId),
    /// A sleep is over.
    Timer(Waker),
    Call(Box<dyn FnOnce(&World)>),
}

struct Planned {
    at: Instant,
    /// Grows with each plan: events of one moment keep their order.
    number: u64,
    event: Event,
}

#[derive(Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Planned>,
    planned: u64,
}

impl Queue {
    pub(super) fn plan(&mut self, at: Instant, event: Event) {
        self.planned += 1;
        self.heap.push(Planned {
            at,
            number: self.planned,
            event,
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// The next event, unless it is later than `deadline`.
    pub(super) fn pop_until(&mut self, deadline: Option<Instant>) -> Option<(Instant, Event)> {
        let next = self.heap.peek()?;
        if deadline.is_some_and(|deadline| next.at > deadline) {
            return None;
        }
        self.heap.pop().map(|planned| (planned.at, planned.event))
    }
}

/// The greatest is the earliest, as a heap gives out its greatest.
impl Ord for Planned {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Planned {}
