//! Which hardware queue a job's requests go by.

use crate::slot::Op;
use inflight::tags::HwQueueOptions;

/// How many hardware queues there are of each kind, in the order of the tag set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queues {
    /// For all requests of jobs that wait, but for reads if there are read queues.
    pub(crate) default: usize,
    pub(crate) read: usize,
    /// For all requests of jobs that poll.
    pub(crate) poll: usize,
}

impl Queues {
    pub(crate) fn total(self) -> usize {
        self.default + self.read + self.poll
    }

    /// The tag set's hardware queues.
    pub(crate) fn options(self) -> HwQueueOptions {
        HwQueueOptions::new(self.total())
            .read(self.read)
            .poll(self.poll)
    }

    /// The hardware queue of a job's request. If jobs poll there is a queue for that.
    pub(crate) fn of(self, job: usize, polls: bool, op: Op) -> usize {
        if polls {
            self.default + self.read + job % self.poll
        } else if op == Op::Read && self.read > 0 {
            self.default + job % self.read
        } else {
            job % self.default
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use inflight::tags::{QueueKind, TagSet};

    #[test]
    fn every_request_goes_by_a_queue_of_its_kind() {
        for (default, read, poll) in [(1, 0, 0), (3, 0, 2), (2, 2, 1), (1, 3, 4)] {
            let queues = Queues {
                default,
                read,
                poll,
            };
            let set = TagSet::builder().hw_queues(queues.options()).depth(1);
            let set = set.build(|_, _| ()).unwrap();
            for job in 0..9 {
                let kind = |polls, op| set.hw_queues().kind(queues.of(job, polls, op)).unwrap();
                let read_kind = match read {
                    0 => QueueKind::Default,
                    _ => QueueKind::Read,
                };
                assert_eq!(kind(false, Op::Read), read_kind);
                assert_eq!(kind(false, Op::Write), QueueKind::Default);
                assert_eq!(kind(false, Op::Sync), QueueKind::Default);
                if poll > 0 {
                    assert_eq!(kind(true, Op::Read), QueueKind::Poll);
                    assert_eq!(kind(true, Op::Sync), QueueKind::Poll);
                }
            }
        }
    }
}
