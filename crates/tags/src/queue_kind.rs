//! Kinds of hardware queues: for reads, for polled requests, and for all others.

use std::fmt;

/// The kind of requests for which a hardware queue is.
///
/// A set may keep some of its hardware queues for reads and for polled requests
/// ([`read`](crate::HwQueueOptions::read), [`poll`](crate::HwQueueOptions::poll)), so that reads do
/// not wait behind writes, and a poller sees its own completions only. Each kind has a map of its
/// own from CPUs to hardware queues. The default queues serve a kind that the set does not have.
///
/// ```
/// use inflight_tags::{AllocOptions, HwQueueOptions, QueueKind, TagSet};
/// let set = TagSet::builder().hw_queues(HwQueueOptions::new(4).poll(1)).build(|_, _| ())?;
/// assert_eq!(set.hw_queues().for_kind(QueueKind::Poll, 1), 3);
/// let dev = set.add_tenant("nvme0n1")?;
/// let tag = dev.try_alloc_with(AllocOptions::new().polled())?;
/// assert_eq!(set.hw_queues().kind(tag.hw_queue()), Some(QueueKind::Poll));
/// let tag = dev.try_alloc_with(AllocOptions::new().read())?;
/// assert_eq!(set.hw_queues().kind(tag.hw_queue()), Some(QueueKind::Default));
/// assert_eq!(QueueKind::ALL.map(|kind| kind.to_string()), ["default", "read", "poll"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueueKind {
    /// All requests for which there is no other kind.
    #[default]
    Default,
    /// Reads.
    Read,
    /// Requests whose submitter polls for the completion.
    Poll,
}

impl QueueKind {
    /// All kinds, in the order of their hardware queues.
    pub const ALL: [Self; 3] = [Self::Default, Self::Read, Self::Poll];
}

impl fmt::Display for QueueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::Read => "read",
            Self::Poll => "poll",
        })
    }
}

/// How many of the hardware queues are of which kind; the others are default ones. Their order is
/// default, read, poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kinds {
    pub(crate) read: usize,
    pub(crate) poll: usize,
}

/// Consecutive hardware queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: usize,
    pub(crate) len: usize,
}

impl Kinds {
    /// How many there are of each kind. With too few hardware queues, as after a change of their
    /// number, one default queue comes first, then those for polling, then those for reads.
    const fn counts(self, hw_queues: usize) -> [usize; 3] {
        let beyond = hw_queues - 1;
        let poll = if self.poll < beyond {
            self.poll
        } else {
            beyond
        };
        let read = if self.read < beyond - poll {
            self.read
        } else {
            beyond - poll
        };
        [hw_queues - read - poll, read, poll]
    }

    /// The hardware queues that serve a kind: the default ones, if it has none.
    pub(crate) const fn span(self, kind: QueueKind, hw_queues: usize) -> Span {
        let [default, read, poll] = self.counts(hw_queues);
        match kind {
            QueueKind::Read if read > 0 => Span {
                first: default,
                len: read,
            },
            QueueKind::Poll if poll > 0 => Span {
                first: default + read,
                len: poll,
            },
            _ => Span {
                first: 0,
                len: default,
            },
        }
    }

    pub(crate) const fn of(self, hw_queue: usize, hw_queues: usize) -> QueueKind {
        let [default, read, _] = self.counts(hw_queues);
        if hw_queue < default {
            QueueKind::Default
        } else if hw_queue < default + read {
            QueueKind::Read
        } else {
            QueueKind::Poll
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn c8_each_queue_is_of_one_kind_and_a_missing_kind_is_the_default_one() {
        for hw_queues in 1..9 {
            for (read, poll) in (0..9).flat_map(|read| (0..9).map(move |poll| (read, poll))) {
                let kinds = Kinds { read, poll };
                let mut seen = vec![None; hw_queues];
                for kind in QueueKind::ALL {
                    let Span { first, len } = kinds.span(kind, hw_queues);
                    assert!(len > 0, "every kind is served");
                    if kind != QueueKind::Default && first == 0 {
                        assert_eq!(kinds.span(QueueKind::Default, hw_queues).len, len);
                        continue;
                    }
                    for (n, seen) in seen.iter_mut().enumerate().skip(first).take(len) {
                        assert_eq!(kinds.of(n, hw_queues), kind);
                        assert_eq!(seen.replace(kind), None);
                    }
                }
                assert!(seen.iter().all(Option::is_some));
                if read + poll < hw_queues {
                    assert_eq!(kinds.counts(hw_queues)[1..], [read, poll]);
                }
            }
        }
    }
}
