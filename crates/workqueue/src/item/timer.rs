//! The timer of a reusable item: a queueing that waits for its delay.

use super::ReusableRef;
use super::word::{Seq, TIMER, is_live};
use crate::error::QueueError;
use crate::timer_queue::{Job, TimerKey};
use inflight_sync::Arc;

/// The queue that a timer is set for.
pub(crate) trait TimedQueue: Send + Sync {
    /// Removes the timer. `None` if the timer thread queues the item, or it was removed before.
    fn remove(&self, key: TimerKey) -> Option<Job>;

    fn check(&self, cpu: usize) -> Result<(), QueueError>;

    /// Queues the item, which is pending with that number and which `check` has accepted.
    fn queue_now(&self, item: &ReusableRef, seq: Seq, cpu: usize) -> Result<(), QueueError>;
}

/// The timer of an item, under the lock of the item's `Extra`.
pub(crate) struct Armed {
    pub(crate) key: TimerKey,
    pub(crate) seq: Seq,
    pub(crate) cpu: usize,
    /// A handle on the queue.
    pub(crate) queue: Arc<dyn TimedQueue>,
}

/// Removes the timer of that queueing from the item.
pub(crate) fn forget(item: &ReusableRef, seq: Seq) -> Option<Armed> {
    let mut state = item.known_state()?;
    let is_it = state.timer.as_ref().is_some_and(|armed| armed.seq == seq);
    is_it.then(|| state.timer.take()).flatten()
}

/// The queueing was cancelled: removes its timer. Returns what has to be dropped without a lock.
pub(crate) fn disarm(item: &ReusableRef, seq: Seq) -> Option<(Armed, Option<Job>)> {
    let armed = forget(item, seq)?;
    let job = armed.queue.remove(armed.key);
    Some((armed, job))
}

/// Queues an item now that waits for its delay. If its queue refuses, the delay continues.
pub(crate) fn expedite(item: &ReusableRef) -> Result<Option<Seq>, QueueError> {
    let armed = |armed: &Armed| (armed.key, armed.seq, armed.cpu, armed.queue.clone());
    let state = item.known_state();
    let known = state.and_then(|state| state.timer.as_ref().map(armed));
    let Some((key, seq, cpu, queue)) = known else {
        return Ok(None);
    };
    if let Err(refusal) = queue.check(cpu) {
        // It may have been queued before, or cancelled.
        let seen = item.header().load();
        let waits = is_live(seen, seq) && seen & TIMER != 0;
        return if waits { Err(refusal) } else { Ok(None) };
    }
    let Some(job) = queue.remove(key) else {
        return Ok(Some(seq)); // The timer queues it, or it was cancelled.
    };
    let queued = queue.queue_now(item, seq, cpu);
    drop((job, forget(item, seq))); // Not before: see `Expiry::expire`.
    queued.map(|()| Some(seq))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::tests::Nothing;
    use super::*;
    use crate::timer_queue::TimerQueue;
    use inflight_sync::time::Clock;

    /// A queue that is drained. The timer thread has the job.
    struct Drained;

    impl TimedQueue for Drained {
        fn remove(&self, _: TimerKey) -> Option<Job> {
            None
        }

        fn check(&self, _: usize) -> Result<(), QueueError> {
            Err(QueueError::Draining)
        }

        fn queue_now(&self, _: &ReusableRef, _: Seq, _: usize) -> Result<(), QueueError> {
            unreachable!("the timer thread queues it")
        }
    }

    /// An item that is queued on that pwq or waits for its delay, and whose timer is the queue's.
    fn armed(pwq: Option<u32>) -> (ReusableRef, Seq) {
        let (timers, now) = (TimerQueue::default(), Clock::manual().now());
        let duty = || Ok::<_, ()>(Job::Duty(Box::new(|| ())));
        let key = timers.set(now, false, duty).unwrap().unwrap();
        let item = ReusableRef::new(Nothing);
        let seq = item.header().set_pending(pwq).unwrap();
        item.extra().state.lock().timer = Some(Armed {
            key,
            seq,
            cpu: 0,
            queue: Arc::new(Drained),
        });
        (item, seq)
    }

    fn take_back(item: &ReusableRef) {
        let header = item.header();
        assert!(header.take_pending(header.load(), 0).is_some());
    }

    /// A work that is queued with a delay after a flush has begun may wait for days. The flush
    /// waits only for what was queued for it.
    #[test]
    fn a_flush_waits_for_no_time_that_was_set_later() {
        let (item, seq) = armed(None);
        assert_eq!(item.unended(None), None);
        assert_eq!(item.unended(Some(seq.wrapping_sub(1))), None);
        assert_eq!(item.unended(Some(seq)), Some(seq));
        take_back(&item);
    }

    /// A drain begins when the timer has queued the work and has not forgotten its time yet: a
    /// flush waits for the work, and is refused only while the work waits for its time.
    #[test]
    fn a_flush_is_not_refused_what_is_queued() {
        for (pwq, told) in [(Some(1), Ok(None)), (None, Err(QueueError::Draining))] {
            let (item, _) = armed(pwq);
            assert_eq!(expedite(&item), told);
            take_back(&item);
        }
    }

    /// Who has cancelled a queueing takes nothing from the one that has followed.
    #[test]
    fn the_timer_of_another_queueing_stays() {
        let (item, seq) = armed(None);
        assert!(forget(&item, seq.wrapping_sub(1)).is_none());
        assert!(forget(&item, seq).is_some());
        take_back(&item);
    }
}
