//! The commits that wait for positions of the log, and their leader: pure, under the log's lock.
//!
//! At most one member leads. The leader writes out what was appended, flushes if a member needs
//! that, and steps down: all members whose position is reached end together, and of the others the
//! one that has waited longest leads next. `PROTOCOL.md` has the events.

use crate::error::DeviceError;
use inflight_sync::time::Instant;
use inflight_sync::wait::Notify;
use std::mem;
use std::task::Poll;

/// What a commit waits for.
///
/// ```
/// use inflight_flush::log::Durability;
/// assert!(Durability::Buffered < Durability::Flushed);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// The device has it: it survives the process, and not a loss of power.
    Buffered,
    /// It is durable.
    Flushed,
}

/// What a member has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Write, flush, and step down.
    Lead,
    Ended(Result<(), DeviceError>),
}

#[derive(Debug)]
struct Member {
    lsn: u64,
    durability: Durability,
    serial: u64,
    next: Option<Next>,
    /// When `next` was set.
    told: Instant,
    notify: Option<Notify>,
    /// Counted among those that a durable write or a flush serves.
    counted: bool,
}

/// Names a member until it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(usize);

#[derive(Debug, Default)]
pub(super) struct Group {
    /// Up to where the log was written, by calls that have returned.
    pub(super) written: u64,
    pub(super) durable: u64,
    leading: bool,
    failed: Option<DeviceError>,
    members: Vec<Option<Member>>,
    next_serial: u64,
}

impl Group {
    pub(super) fn new(end: u64) -> Self {
        Self {
            written: end,
            durable: end,
            ..Self::default()
        }
    }

    pub(super) fn reached(&self, lsn: u64, durability: Durability) -> bool {
        lsn <= match durability {
            Durability::Buffered => self.written,
            Durability::Flushed => self.durable,
        }
    }

    /// Adds a member. `look` says what it has to do.
    pub(super) fn join(&mut self, now: Instant, lsn: u64, durability: Durability) -> Key {
        let next = if let Some(error) = self.failed {
            Some(Next::Ended(Err(error)))
        } else if self.reached(lsn, durability) {
            Some(Next::Ended(Ok(())))
        } else if !self.leading {
            self.leading = true;
            Some(Next::Lead)
        } else {
            None
        };
        let member = Member {
            lsn,
            durability,
            serial: self.next_serial,
            next,
            told: now,
            notify: None,
            counted: false,
        };
        self.next_serial += 1;
        match self
            .members
            .iter_mut()
            .enumerate()
            .find(|(_, m)| m.is_none())
        {
            Some((at, place)) => {
                *place = Some(member);
                Key(at)
            }
            None => {
                self.members.push(Some(member));
                Key(self.members.len() - 1)
            }
        }
    }

    fn member(&mut self, key: Key) -> &mut Member {
        self.members[key.0]
            .as_mut()
            .expect("the member has not left")
    }

    /// What the member has to do. If that is not known yet, `notify` will be called. Also returns
    /// the `Notify` that is not needed, to be dropped without the lock.
    pub(super) fn look(&mut self, key: Key, notify: Notify) -> (Poll<Next>, Option<Notify>) {
        let member = self.member(key);
        match member.next {
            Some(next) => (Poll::Ready(next), Some(notify)),
            None => (Poll::Pending, member.notify.replace(notify)),
        }
    }

    /// When it became known what the member has to do.
    pub(super) fn told(&mut self, key: Key) -> Instant {
        self.member(key).told
    }

    /// The strongest durability that a member needs for a position up to `end`.
    ///
    /// Invariant: read under the lock under which members join, so every member that has joined
    /// gets the durability that it needs.
    pub(super) fn wanted(&self, end: u64) -> Option<Durability> {
        let waits = |m: &&Member| {
            let over = matches!(m.next, Some(Next::Ended(_))) || self.reached(m.lsn, m.durability);
            !over && m.lsn <= end
        };
        let members = self.members.iter().flatten().filter(waits);
        members.map(|m| m.durability).max()
    }

    /// The position up to which the log has to be written for the `most` waiting members with the
    /// lowest positions; `u64::MAX` if there are no others.
    pub(super) fn end_of(&self, most: usize) -> u64 {
        let waits = |m: &&Member| {
            !matches!(m.next, Some(Next::Ended(_))) && !self.reached(m.lsn, m.durability)
        };
        if self.members.len() <= most {
            return u64::MAX;
        }
        let waiting = self.members.iter().flatten().filter(waits);
        let mut ends: Vec<u64> = waiting.map(|m| m.lsn).collect();
        if ends.len() <= most {
            return u64::MAX;
        }
        *ends.select_nth_unstable(most - 1).1
    }

    /// How many members are served when the log is durable up to `end`. Each is counted once,
    /// although a flush may follow a durable write.
    pub(super) fn count_served(&mut self, end: u64) -> u64 {
        let waits = |m: &&mut Member| !matches!(m.next, Some(Next::Ended(_))) && m.lsn <= end;
        let members = self.members.iter_mut().flatten().filter(waits);
        let new = members.map(|m| u64::from(!mem::replace(&mut m.counted, true)));
        new.sum()
    }

    /// How many members wait for a position beyond `end`.
    pub(super) fn waiting_beyond(&self, end: u64) -> usize {
        let members = self.members.iter().flatten();
        let waits = |m: &&Member| !matches!(m.next, Some(Next::Ended(_))) && m.lsn > end;
        members.filter(waits).count()
    }

    /// Ends the members whose position is reached, or all if the log has failed; each once. A
    /// member that is to lead ends only when it steps down: otherwise no member would choose the
    /// next leader.
    pub(super) fn settle(&mut self, now: Instant) -> Vec<Notify> {
        let (failed, written, durable) = (self.failed, self.written, self.durable);
        let mut told = Vec::new();
        let waiting = self.members.iter_mut().flatten();
        for member in waiting.filter(|member| member.next != Some(Next::Lead)) {
            let reached = match member.durability {
                Durability::Buffered => member.lsn <= written,
                Durability::Flushed => member.lsn <= durable,
            };
            let end = match failed {
                // A position that was reached stays reached.
                _ if reached => Ok(()),
                Some(error) => Err(error),
                None => continue,
            };
            if !matches!(member.next, Some(Next::Ended(_))) {
                member.next = Some(Next::Ended(end));
                member.told = now;
                told.extend(member.notify.take());
            }
        }
        told
    }

    /// The leader is done: ends the members that were served, and chooses the next leader.
    pub(super) fn step_down(&mut self, now: Instant) -> Vec<Notify> {
        self.leading = false;
        for member in self.members.iter_mut().flatten() {
            if member.next == Some(Next::Lead) {
                member.next = None;
            }
        }
        let settled = self.settle(now);
        // The next leader is woken first: the device is idle until it runs.
        let mut told = Vec::from_iter(self.choose(now));
        told.extend(settled);
        told
    }

    /// Makes the one that has waited longest the leader.
    fn choose(&mut self, now: Instant) -> Option<Notify> {
        let waiting = self.members.iter_mut().flatten();
        let first = waiting
            .filter(|member| !matches!(member.next, Some(Next::Ended(_))))
            .min_by_key(|member| member.serial)?;
        self.leading = true;
        first.next = Some(Next::Lead);
        first.told = now;
        first.notify.take()
    }

    /// From now on every commit fails.
    pub(super) fn fail(&mut self, error: DeviceError) {
        self.failed.get_or_insert(error);
    }

    pub(super) const fn failed(&self) -> Option<DeviceError> {
        self.failed
    }

    /// Removes a member. If it was to lead, another one leads. Also returns the member's own
    /// `Notify`, to be dropped without the lock.
    pub(super) fn leave(&mut self, now: Instant, key: Key) -> (Vec<Notify>, Option<Notify>) {
        let member = self.members[key.0].take().expect("the member has not left");
        let told = match member.next {
            Some(Next::Lead) => self.step_down(now),
            _ => Vec::new(),
        };
        (told, member.notify)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// A flush for members that have joined meanwhile may follow the durable write of a group.
    #[test]
    fn a_member_is_served_once() {
        let now = Instant::default();
        let mut group = Group::new(0);
        for lsn in [1, 2, 4] {
            group.join(now, lsn, Durability::Flushed);
        }
        assert_eq!(group.count_served(2), 2);
        group.join(now, 3, Durability::Flushed);
        assert_eq!((group.count_served(4), group.count_served(4)), (2, 0));
    }

    /// Nobody needs a flush then.
    #[test]
    fn a_leader_whose_position_is_reached_wants_nothing() {
        let mut group = Group::new(0);
        group.join(Instant::default(), 1, Durability::Flushed);
        assert_eq!(group.wanted(u64::MAX), Some(Durability::Flushed));
        (group.written, group.durable) = (1, 1);
        assert_eq!(group.wanted(u64::MAX), None);
    }

    /// A commit without a leader makes the position of the next leader durable before that has
    /// begun to lead.
    #[test]
    fn who_is_to_lead_leads_though_its_position_is_reached() {
        let now = Instant::default();
        let nobody = || Notify::Task(std::task::Waker::noop().clone());
        let mut group = Group::new(0);
        let first = group.join(now, 1, Durability::Flushed);
        let second = group.join(now, 2, Durability::Flushed);
        assert!(matches!(
            group.look(first, nobody()).0,
            Poll::Ready(Next::Lead)
        ));
        assert!(group.look(second, nobody()).0.is_pending(), "it waits");
        (group.written, group.durable) = (1, 1);
        let _ = group.step_down(now);
        let _ = group.leave(now, first);
        (group.written, group.durable) = (2, 2);
        let _ = group.settle(now);
        let third = group.join(now, 3, Durability::Flushed);
        assert!(matches!(
            group.look(second, nobody()).0,
            Poll::Ready(Next::Lead)
        ));
        let _ = group.step_down(now);
        assert!(matches!(
            group.look(second, nobody()).0,
            Poll::Ready(Next::Ended(Ok(())))
        ));
        assert!(matches!(
            group.look(third, nobody()).0,
            Poll::Ready(Next::Lead)
        ));
    }
}
