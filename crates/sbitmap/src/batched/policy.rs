//! The way of a batch through the wait queues.

use crate::wake_policy::WakePolicy;

/// How many wait queues there are; a power of two. Fewer in models, where each is explored.
pub(super) const WAIT_QUEUES: usize = if cfg!(loom) { 2 } else { 8 };

const _: () = assert!(WAIT_QUEUES.is_power_of_two());

/// The way of one batch through the queues: each at most once.
#[derive(Debug)]
pub(crate) struct QueueOrder {
    policy: WakePolicy,
    /// Where the turn stands.
    turn: usize,
    /// Queues already visited, a bit each.
    visited: u32,
}

impl QueueOrder {
    /// Only the low bits of `turn` count.
    pub(crate) const fn new(policy: WakePolicy, turn: usize) -> Self {
        Self {
            policy,
            turn: turn % WAIT_QUEUES,
            visited: 0,
        }
    }

    /// The next queue to look at, given how long the queues are. `None`: all were looked at, or
    /// those that are left were seen empty.
    ///
    /// The turn moves past the queue although it may have more waiters than the batch can wake.
    pub(crate) fn next(&mut self, len: impl Fn(usize) -> usize) -> Option<usize> {
        let by_turn = match self.policy {
            WakePolicy::RoundRobin => true,
            WakePolicy::FullestFirst => false,
            WakePolicy::BalancedRoundRobin { threshold } => {
                let (min, max) = (0..WAIT_QUEUES)
                    .map(&len)
                    .fold((usize::MAX, 0), |(min, max), n| (min.min(n), max.max(n)));
                max - min <= threshold
            }
        };
        let chosen = if by_turn {
            self.unvisited().next()
        } else {
            // Of equals the last is the maximum, hence from the end: the first in turn wins.
            let lens = self.unvisited().rev().map(|queue| (len(queue), queue));
            let fullest = lens.max_by_key(|&(len, _)| len);
            fullest.filter(|&(len, _)| len > 0).map(|(_, queue)| queue)
        }?;
        self.visited |= 1 << chosen;
        self.turn = (chosen + 1) % WAIT_QUEUES;
        Some(chosen)
    }

    /// Where the next batch begins.
    pub(crate) const fn next_queue(&self) -> usize {
        self.turn
    }

    fn unvisited(&self) -> impl DoubleEndedIterator<Item = usize> + use<> {
        let (turn, visited) = (self.turn, self.visited);
        (0..WAIT_QUEUES)
            .map(move |i| (turn + i) % WAIT_QUEUES)
            .filter(move |queue| visited >> queue & 1 == 0)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// The queues one batch visits, if no queue can use it up.
    fn visited(policy: WakePolicy, turn: usize, lens: [usize; 8]) -> Vec<usize> {
        let mut order = QueueOrder::new(policy, turn);
        std::iter::from_fn(|| order.next(|queue| lens[queue])).collect()
    }

    #[test]
    fn b20_in_turn_every_queue_is_visited_once() {
        let all = visited(WakePolicy::RoundRobin, 6, [9, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(all, [6, 7, 0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn b33_the_fullest_comes_first_and_of_equals_the_first_in_turn() {
        let lens = [1, 5, 0, 2, 5, 0, 0, 1];
        assert_eq!(visited(WakePolicy::FullestFirst, 0, lens), [1, 4, 3, 7, 0]);
        assert_eq!(visited(WakePolicy::FullestFirst, 2, lens), [4, 1, 3, 7, 0]);
        assert!(visited(WakePolicy::FullestFirst, 2, [0; 8]).is_empty());
    }

    #[test]
    fn b33_balanced_queues_are_served_in_turn() {
        let policy = WakePolicy::BalancedRoundRobin { threshold: 2 };
        let first = |lens| visited(policy, 3, lens)[0];
        assert_eq!(first([4, 2, 2, 2, 2, 2, 2, 3]), 3);
        assert_eq!(first([4, 2, 2, 1, 2, 2, 2, 3]), 0);
    }
}
