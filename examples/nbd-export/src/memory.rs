//! Memory for the data of requests: how much the clients of one disk have, all together.
//!
//! Each client has a little of its own, so that short requests never wait for others'. What goes
//! beyond comes from what all share, in the order in which they ask.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use anyhow::{Context as _, Result};
use inflight::sbitmap::{Fairness, SbitmapQueue};

/// What each client has of its own.
const OWN: usize = 256 << 10;
/// What is shared is counted in these.
const UNIT: usize = 256 << 10;

/// What the clients of one disk share.
#[derive(Debug)]
pub(crate) struct Memory {
    units: SbitmapQueue,
    /// Units that clients hold. Others that are in use are kept for those who wait.
    held: AtomicUsize,
    line: Mutex<Line>,
}

/// Clients that wait, nearly in the order in which they get memory: two that ask at the same time
/// may be the other way round. Whom to send away needs no more.
#[derive(Debug, Default)]
struct Line {
    /// The number of each, and how many units it waits for.
    all: Vec<(u64, usize)>,
    next: u64,
}

impl Memory {
    pub(crate) fn new(bytes: usize) -> Result<Arc<Self>> {
        let units = SbitmapQueue::builder(bytes / UNIT).fairness(Fairness::fifo());
        Ok(Arc::new(Self {
            units: units.build().context("--memory")?,
            held: AtomicUsize::new(0),
            line: Mutex::default(),
        }))
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for so many units, behind those who have asked before.
    fn ask(self: &Arc<Self>, units: usize) -> Asking {
        let mut line = self.line();
        let number = line.next;
        line.next += 1;
        line.all.push((number, units));
        drop(line);
        let place = Place {
            memory: self.clone(),
            number,
        };
        let future = async move {
            let taken = place.memory.units.get_many(units).await;
            let taken = taken.expect("never closed, and no request needs more than all units");
            // Before it leaves the line: what nobody holds is kept for somebody there.
            place.memory.held.fetch_add(taken.len(), Ordering::Relaxed);
            taken
        };
        Asking {
            future: Box::pin(future),
            number,
            units,
        }
    }
}

/// A place in the line, until it is dropped.
struct Place {
    memory: Arc<Memory>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let Self { memory, number } = self;
        memory.line().all.retain(|(other, _)| other != number);
    }
}

struct Asking {
    future: Pin<Box<dyn Future<Output = Vec<usize>>>>,
    number: u64,
    units: usize,
}

/// One client's part of it.
pub(crate) struct Share {
    memory: Arc<Memory>,
    /// Bytes that its requests need.
    used: usize,
    /// Units that it has, enough for what goes beyond its own.
    held: Vec<usize>,
    /// More are on the way.
    asking: Option<Asking>,
}

impl Share {
    pub(crate) const fn new(memory: Arc<Memory>) -> Self {
        Self {
            memory,
            used: 0,
            held: Vec::new(),
            asking: None,
        }
    }

    pub(crate) const fn used(&self) -> usize {
        self.used
    }

    /// Takes memory for so many bytes. Pending if it is not there: the task is woken when it is,
    /// or has to ask again when it has given some back.
    pub(crate) fn poll_take(&mut self, bytes: usize, cx: &mut Context<'_>) -> Poll<()> {
        let units = beyond_own(self.used + bytes);
        if units > self.memory.units.depth() {
            // Its own requests have to end first. One alone always fits.
            return Poll::Pending;
        }
        let missing = units.saturating_sub(self.held.len());
        if missing == 0 {
            self.asking = None;
        } else {
            // Who needs fewer by now keeps its place in the line.
            if self
                .asking
                .as_ref()
                .is_none_or(|asking| asking.units < missing)
            {
                // It leaves its old place before it asks, so that it is not in the line twice.
                self.asking = None;
                self.asking = Some(self.memory.ask(missing));
            }
            if let Some(asking) = &mut self.asking {
                let Poll::Ready(taken) = asking.future.as_mut().poll(cx) else {
                    return Poll::Pending;
                };
                self.held.extend(taken);
                self.asking = None;
                self.put(units);
            }
        }
        self.used += bytes;
        Poll::Ready(())
    }

    /// Gives back the memory of so many bytes, also while more is asked for: others who hold some
    /// and ask may wait for it.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
        self.put(beyond_own(self.used));
    }

    /// Asks for no more, and loses its place in the line.
    pub(crate) fn give_up(&mut self) {
        self.asking = None;
    }

    /// Whether others wait for what this client has. What it has asked for may have come, all or
    /// some of it, without being in `held` yet: units that are kept are for the first in the line,
    /// then for the second.
    pub(crate) fn is_wanted(&self) -> bool {
        let memory = &self.memory;
        let line = memory.line();
        let others = line.all.len() - usize::from(self.asking.is_some());
        let is_kept_for = |asking: &Asking| {
            let before = line.all.iter().take_while(|it| it.0 != asking.number);
            let in_use = memory.units.weight();
            let kept = in_use.saturating_sub(memory.held.load(Ordering::Relaxed));
            kept > before.map(|it| it.1).sum()
        };
        others > 0 && (!self.held.is_empty() || self.asking.as_ref().is_some_and(is_kept_for))
    }

    /// Gives back what is held beyond so many units.
    fn put(&mut self, keep: usize) {
        if self.held.len() <= keep {
            return;
        }
        let surplus = self.held.split_off(keep);
        let put = self.memory.units.put_batch(&surplus);
        self.memory.held.fetch_sub(surplus.len(), Ordering::Relaxed);
        debug_assert!(put.is_ok(), "what is held was taken");
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.asking = None;
        self.put(0);
    }
}

/// How many units hold what is more than a client has of its own.
const fn beyond_own(bytes: usize) -> usize {
    bytes.saturating_sub(OWN).div_ceil(UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    fn take(share: &mut Share, bytes: usize) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        share.poll_take(bytes, &mut cx).is_ready()
    }

    #[test]
    fn short_requests_need_nothing_that_others_have() {
        let memory = Memory::new(4 * UNIT).unwrap();
        let [mut greedy, mut other] = [0, 1].map(|_| Share::new(memory.clone()));
        assert!(take(&mut greedy, OWN + 4 * UNIT));
        assert!(!greedy.is_wanted());
        assert!(take(&mut other, OWN) && !take(&mut other, 1));
        assert!(greedy.is_wanted() && !other.is_wanted());
        other.give_back(OWN);
        assert!(take(&mut other, 1), "it asks no more");
        assert!(!greedy.is_wanted());
    }

    /// It has got what it has asked for, and does not come for it.
    #[test]
    fn what_has_come_and_is_not_taken_is_held_too() {
        let memory = Memory::new(4 * UNIT).unwrap();
        let [mut one, mut stalled, mut third] = [0, 1, 2].map(|_| Share::new(memory.clone()));
        assert!(take(&mut one, OWN + 4 * UNIT));
        assert!(!take(&mut stalled, OWN + UNIT));
        assert!(!stalled.is_wanted(), "nobody else waits");
        assert!(!take(&mut third, OWN + 4 * UNIT));
        one.give_back(OWN + 4 * UNIT);
        assert!(!take(&mut third, OWN + 4 * UNIT));
        assert!(stalled.is_wanted());
        stalled.give_up();
        assert!(take(&mut third, OWN + 4 * UNIT));
    }

    /// A client is not sent away for memory that others have.
    #[test]
    fn who_waits_and_has_got_nothing_holds_nothing() {
        let memory = Memory::new(4 * UNIT).unwrap();
        let [mut one, mut first, mut second] = [0, 1, 2].map(|_| Share::new(memory.clone()));
        assert!(take(&mut one, OWN + 3 * UNIT));
        assert!(!take(&mut first, OWN + 2 * UNIT) && !take(&mut second, OWN + 2 * UNIT));
        assert!(
            one.is_wanted() && first.is_wanted(),
            "one unit is kept for it"
        );
        assert!(!second.is_wanted());
        one.give_back(2 * UNIT);
        assert!(first.is_wanted(), "it has not come for the other one");
        assert!(second.is_wanted(), "one of two has come");
        first.give_up();
        assert!(
            second.used() == 0 && !second.is_wanted(),
            "nobody else waits"
        );
    }

    #[test]
    fn who_waits_gets_what_is_given_back() {
        let memory = Memory::new(4 * UNIT).unwrap();
        let [mut one, mut other, mut third] = [0, 1, 2].map(|_| Share::new(memory.clone()));
        assert!(take(&mut one, OWN + 3 * UNIT));
        assert!(!take(&mut other, OWN + 2 * UNIT));
        assert!(
            !take(&mut third, OWN + UNIT),
            "not before the one that asked before"
        );
        one.give_back(3 * UNIT);
        assert!(take(&mut other, OWN + 2 * UNIT) && take(&mut third, OWN + UNIT));
        drop((other, third));
        assert!(take(&mut one, 3 * UNIT));
        assert_eq!((one.used(), one.held.len()), (OWN + 3 * UNIT, 3));
    }

    /// Three that hold memory ask for more, and then do not need what they hold.
    #[test]
    fn what_is_not_needed_any_more_goes_back_while_more_is_asked_for() {
        let memory = Memory::new(8 * UNIT).unwrap();
        let mut shares = [0; 3].map(|_| Share::new(memory.clone()));
        for share in &mut shares {
            assert!(take(share, OWN + 2 * UNIT));
        }
        for share in &mut shares {
            assert!(!take(share, OWN + 5 * UNIT));
        }
        for share in &mut shares {
            share.give_back(OWN + 2 * UNIT);
        }
        for share in &mut shares {
            assert!(take(share, OWN + 5 * UNIT), "in the order of asking");
            assert_eq!(share.held.len(), 5);
            share.give_back(OWN + 5 * UNIT);
        }
    }

    /// One who needs fewer than it has asked for does not lose its place.
    #[test]
    fn who_asks_keeps_its_place_and_no_more_than_it_needs() {
        let memory = Memory::new(4 * UNIT).unwrap();
        let [mut one, mut other, mut third] = [0, 1, 2].map(|_| Share::new(memory.clone()));
        assert!(take(&mut other, OWN + 2 * UNIT));
        assert!(take(&mut one, 1) && !take(&mut one, OWN + 3 * UNIT));
        assert!(!take(&mut third, OWN + 4 * UNIT));
        one.give_back(1);
        assert!(!take(&mut one, OWN + 3 * UNIT));
        other.give_back(OWN + 2 * UNIT);
        assert!(take(&mut one, OWN + 3 * UNIT));
        assert_eq!(one.held.len(), 3);
    }

    /// One alone gets all there is, and no more.
    #[test]
    fn more_than_there_is_waits_for_ones_own() {
        let memory = Memory::new(4 * UNIT).unwrap();
        let mut share = Share::new(memory);
        assert!(take(&mut share, 3 * UNIT));
        assert!(!take(&mut share, 3 * UNIT));
        share.give_back(3 * UNIT);
        assert!(take(&mut share, 3 * UNIT));
    }
}
