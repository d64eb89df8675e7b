//! The timer of a reusable item: a queueing that waits for its delay.

use super::ReusableRef;
use super::word::{Seq, TIMER, is_live};
use crate::error::QueueError;
use crate::timer_queue::{Job, TimerKey};
use inflight_sync::Arc;

/// The queue that a timer is set for.
pub(crate) trait TimedQueue: Send + Sync {
    /// Removes the timer. `None` if it is due and not postponed, or was removed before.
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
    /// A flush waits for the run: no drain postpones it.
    pub(crate) flushed: bool,
    /// A handle on the queue.
    pub(crate) queue: Arc<dyn TimedQueue>,
}

/// Removes the timer of that queueing from the item.
pub(crate) fn forget(item: &ReusableRef, seq: Seq) -> Option<Armed> {
    let mut state = item.known_state()?;
    let is_it = state.timer.as_ref().is_some_and(|armed| armed.seq == seq);
    is_it.then(|| state.timer.take()).flatten()
}

/// Marks the timer of that queueing: drains no longer postpone it.
fn set_flushed(item: &ReusableRef, seq: Seq) {
    let mut state = item.known_state();
    let timer = state.as_mut().and_then(|state| state.timer.as_mut());
    if let Some(armed) = timer.filter(|armed| armed.seq == seq) {
        armed.flushed = true;
    }
}

/// Whether a flush waits for the run of that queueing.
pub(crate) fn is_flushed(item: &ReusableRef, seq: Seq) -> bool {
    let state = item.known_state();
    let timer = state.as_ref().and_then(|state| state.timer.as_ref());
    timer.is_some_and(|armed| armed.seq == seq && armed.flushed)
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
    let mut job = queue.remove(key);
    if job.is_none() {
        // The timer thread has the job, and may see this mark, or has postponed it.
        set_flushed(item, seq);
        job = queue.remove(key);
    }
    let Some(job) = job else {
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
    use crate::timer_queue::{Due, TimerQueue};
    use inflight_sync::Mutex;
    use inflight_sync::atomic::{AtomicUsize, Ordering};
    use inflight_sync::time::Clock;

    /// The timer thread has the job at the first `remove`, and has postponed it at the second.
    #[derive(Default)]
    struct Postpones {
        job: Mutex<Option<Job>>,
        looks: AtomicUsize,
        queued: AtomicUsize,
        refuses: bool,
    }

    impl TimedQueue for Postpones {
        fn remove(&self, _: TimerKey) -> Option<Job> {
            let looks = self.looks.fetch_add(1, Ordering::Relaxed);
            self.job.lock().take_if(|_| looks > 0)
        }

        fn check(&self, _: usize) -> Result<(), QueueError> {
            let refusal = self.refuses.then_some(QueueError::Draining);
            refusal.map_or(Ok(()), Err)
        }

        fn queue_now(&self, _: &ReusableRef, _: Seq, _: usize) -> Result<(), QueueError> {
            self.queued.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    /// An item that is queued on that pwq or waits for its delay, and whose timer is the queue's.
    fn armed(pwq: Option<u32>, queue: &Arc<Postpones>) -> (ReusableRef, Seq) {
        let (timers, now) = (TimerQueue::default(), Clock::manual().now());
        let duty = || Ok::<_, ()>(Job::Duty(Box::new(|| ())));
        let key = timers.set(now, false, duty).unwrap().unwrap();
        if let Some(Due::Now(_, job)) = timers.due(now) {
            *queue.job.lock() = Some(job);
        }
        let item = ReusableRef::new(Nothing);
        let seq = item.header().set_pending(pwq).unwrap();
        item.extra().state.lock().timer = Some(Armed {
            key,
            seq,
            cpu: 0,
            flushed: false,
            queue: queue.clone(),
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
        let (item, seq) = armed(None, &Arc::default());
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
            let refuses = true;
            let queue = Postpones {
                refuses,
                ..Postpones::default()
            };
            let (item, _) = armed(pwq, &Arc::new(queue));
            assert_eq!(expedite(&item), told);
            take_back(&item);
        }
    }

    /// *postpone*, case 2: what was postponed before the mark is found after it.
    #[test]
    fn a_flush_finds_what_was_postponed_meanwhile() {
        let queue = Arc::default();
        let (item, seq) = armed(None, &queue);
        assert_eq!(expedite(&item), Ok(Some(seq)));
        assert_eq!(queue.queued.load(Ordering::Relaxed), 1);
        assert!(forget(&item, seq).is_none(), "it waits for no time");
        take_back(&item);
    }
}
