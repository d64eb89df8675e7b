//! The order in which a batch serves the wait queues.

/// In which order [`Fairness::Batched`](crate::Fairness::Batched) serves its wait queues.
///
/// Within a queue the longest waiting is woken first, under every policy. A batch that a queue
/// cannot use up goes on to the next.
///
/// ```
/// use inflight_sbitmap::{BatchedOptions, SbitmapQueue, WakePolicy};
/// let policy = WakePolicy::BalancedRoundRobin { threshold: 4 };
/// let batched = BatchedOptions::new().wake_policy(policy);
/// let queue = SbitmapQueue::builder(64).fairness(batched).build().unwrap();
/// # let _ = queue;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum WakePolicy {
    /// One queue after the other. Of eight batches in a row each queue is looked at by one.
    #[default]
    RoundRobin,
    /// The queue with the most waiters first. Newcomers go round the queues, so one that is
    /// passed over fills up until it is served; how long that takes depends on the newcomers.
    FullestFirst,
    /// One after the other while no queue has more than `threshold` waiters above another, else the
    /// fullest first.
    BalancedRoundRobin {
        /// The largest difference that counts as balanced.
        threshold: usize,
    },
}

/// The number of wait queues; a power of two. Fewer in models, which explore each.
pub(super) const WAIT_QUEUES: usize = if cfg!(loom) { 2 } else { 8 };

const _: () = assert!(WAIT_QUEUES.is_power_of_two());

/// The path of one batch through the queues: each at most once.
#[derive(Debug)]
pub(crate) struct QueueOrder {
    policy: WakePolicy,
    /// The next queue in turn.
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

    /// The next queue to look at, given the lengths of the queues. `None` if all were looked at, or
    /// the remaining ones are empty.
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
            // `max_by_key` returns the last of equals, so this goes backwards: the first in turn
            // wins.
            let lens = self.unvisited().rev().map(|queue| (len(queue), queue));
            let fullest = lens.max_by_key(|&(len, _)| len);
            fullest.filter(|&(len, _)| len > 0).map(|(_, queue)| queue)
        }?;
        self.visited |= 1 << chosen;
        self.turn = (chosen + 1) % WAIT_QUEUES;
        Some(chosen)
    }

    /// The queue where the next batch begins.
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

    /// The queues that one batch visits if none uses it up.
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
}
