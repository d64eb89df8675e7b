//! The system's timer queue: one thread that does jobs when their time has come.
//!
//! The thread starts with the first worker or the first delay, and sleeps until the earliest time
//! of the system's clock. The only code of the user that runs on it are wakers; the [report
//! thread](crate::threads) has the rest, unless the system ends.

use crate::error::QueueError;
use crate::inbox::Sleeper;
use crate::panics::contained;
use inflight_sync::time::Instant;
use inflight_sync::{Mutex, Parker};
use std::cell::Cell;
use std::collections::BTreeMap;

inflight_sync::thread_local! {
    static IS_TIMER: Cell<bool> = const { Cell::new(false) };
}

pub(crate) enum Job {
    /// Queues an item.
    Delayed(Box<dyn Delayed>),
    /// Anything else.
    Duty(Box<dyn FnOnce() + Send>),
}

pub(crate) trait Delayed: Send {
    fn expire(self: Box<Self>);
    /// Whether a drain of its queue goes on. Called under the lock of the timers.
    fn is_postponed(&self) -> bool;
    /// The system ends: it will not be queued.
    fn abandon(self: Box<Self>);
}

/// Identifies a job of a timer queue. Sorted by time, then by the order in which they were set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TimerKey {
    at: Instant,
    id: u64,
}

#[derive(Default)]
pub(crate) struct TimerQueue {
    state: Mutex<State>,
    pub(crate) thread: Sleeper,
}

#[derive(Default)]
struct State {
    jobs: BTreeMap<TimerKey, Job>,
    /// Those whose time has come, and which wait for the end of a drain.
    postponed: BTreeMap<TimerKey, Job>,
    next_id: u64,
    /// Delayed items are no longer accepted.
    closed: bool,
    /// The thread leaves.
    stopped: bool,
}

impl TimerQueue {
    /// Sets the job that `make` gives, unless `make` fails. `make` is called, under the lock, only
    /// once it is certain that the job is accepted. The thread has been started.
    pub(crate) fn set<E>(
        &self,
        at: Instant,
        delayed: bool,
        make: impl FnOnce() -> Result<Job, E>,
    ) -> Result<Result<TimerKey, E>, QueueError> {
        let mut state = self.state.lock();
        if state.stopped || (state.closed && delayed) {
            return Err(QueueError::ShutDown);
        }
        let job = match make() {
            Ok(job) => job,
            Err(why) => return Ok(Err(why)),
        };
        let id = state.next_id;
        let key = TimerKey { at, id };
        state.next_id += 1;
        let first = state.jobs.first_key_value().is_none_or(|(k, _)| key < *k);
        state.jobs.insert(key, job);
        drop(state);
        if first {
            self.thread.wake();
        }
        Ok(Ok(key))
    }

    /// Removes a job, unless the thread has begun it.
    pub(crate) fn remove(&self, key: TimerKey) -> Option<Job> {
        let mut state = self.state.lock();
        let job = state.jobs.remove(&key);
        job.or_else(|| state.postponed.remove(&key))
    }

    /// A drain has ended: does what waited for it and for no other one, in the order of the times.
    pub(crate) fn end_postponement(&self) {
        let due = {
            let mut state = self.state.lock();
            let all = std::mem::take(&mut state.postponed);
            let (waits, due) = all.into_iter().partition(|(_, job)| job.is_postponed());
            state.postponed = waits;
            due
        };
        for job in BTreeMap::into_values(due) {
            job.run();
        }
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn jobs_set(&self) -> u64 {
        self.state.lock().next_id
    }

    /// The calling thread is that of the timer queue. Returns the parker on which it sleeps.
    pub(crate) fn arrive(&self) -> Parker {
        IS_TIMER.with(|is_timer| is_timer.set(true));
        self.thread.arrive()
    }

    pub(crate) fn is_own_thread(&self) -> bool {
        IS_TIMER.with(Cell::get)
    }

    /// Accepts no more delayed items, and abandons those that wait. No queue is drained any more.
    pub(crate) fn close(&self) {
        let abandoned = {
            let mut state = self.state.lock();
            state.closed = true;
            let jobs = std::mem::take(&mut state.jobs);
            let (delayed, duties): (BTreeMap<_, _>, _) = jobs
                .into_iter()
                .partition(|(_, job)| matches!(job, Job::Delayed(_)));
            state.jobs = duties;
            delayed
        };
        for job in abandoned.into_values() {
            if let Job::Delayed(delayed) = job {
                // Dropping the last reference to an item runs the user's code.
                contained(|| delayed.abandon());
            }
        }
    }

    pub(crate) fn stop(&self) {
        let jobs = {
            let mut state = self.state.lock();
            state.stopped = true;
            std::mem::take(&mut state.jobs)
        };
        drop(jobs);
        self.thread.wake();
    }

    /// Takes a due job, or says until when to sleep. `None`: the thread has to leave. *Postpones*
    /// what comes due in a drain.
    pub(crate) fn due(&self, now: Instant) -> Option<Due> {
        let mut state = self.state.lock();
        if state.stopped {
            return None;
        }
        while let Some(first) = state.jobs.first_entry() {
            if first.key().at > now {
                return Some(Due::At(first.key().at));
            }
            let (key, job) = first.remove_entry();
            if !job.is_postponed() {
                return Some(Due::Now(job));
            }
            state.postponed.insert(key, job);
        }
        Some(Due::Nothing)
    }
}

pub(crate) enum Due {
    Now(Job),
    At(Instant),
    Nothing,
}

impl Job {
    fn is_postponed(&self) -> bool {
        matches!(self, Self::Delayed(delayed) if delayed.is_postponed())
    }

    /// Never panics: dropping the last reference to an item runs the user's code.
    pub(crate) fn run(self) {
        contained(|| match self {
            Self::Delayed(delayed) => delayed.expire(),
            Self::Duty(duty) => duty(),
        });
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use inflight_sync::time::Clock;

    /// The system ends: what the pools plan is done to the last, but no work is put off any more.
    #[test]
    fn a_closed_queue_accepts_duties_alone() {
        let (timers, now) = (TimerQueue::default(), Clock::manual().now());
        let set = |delayed| {
            let duty = || Ok::<_, ()>(Job::Duty(Box::new(|| ())));
            timers.set(now, delayed, duty).map(|set| set.is_ok())
        };
        assert_eq!([set(true), set(false)], [Ok(true), Ok(true)]);
        timers.close();
        assert_eq!(
            [set(true), set(false)],
            [Err(QueueError::ShutDown), Ok(true)]
        );
        timers.stop();
        assert_eq!(set(false), Err(QueueError::ShutDown));
    }
}
