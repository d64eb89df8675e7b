//! The timer of a delayed work.

use crate::cancel;
use crate::error::QueueError;
use crate::item::ReusableRef;
use crate::item::timer::{Armed, TimedQueue, forget};
use crate::item::word::{Seq, is_live};
use crate::queued::{Modified, Queued};
use crate::timer_queue::{Delayed, Job, TimerKey};
use crate::workqueue::{Handle, Workqueue};
use crate::workqueue_inner::{Origin, Pushed};
use std::time::Duration;

struct Expiry {
    item: ReusableRef,
    seq: Seq,
    cpu: usize,
    wq: Workqueue,
}

impl Delayed for Expiry {
    fn expire(self: Box<Self>) {
        let Self { item, seq, cpu, wq } = *self;
        // Ignored because a refusal is counted.
        let _ = wq.inner().queue_pending(&item, seq, cpu, Origin::Timer);
        drop(forget(&item, seq)); // Not before: a flush finds it, or the pushed entry.
        if let Some(last) = item.drop_unless_last() {
            wq.inner().shared.apart(move || drop(last));
        }
    }

    fn is_postponed(&self) -> bool {
        self.wq.inner().postpones()
    }

    fn abandon(self: Box<Self>) {
        drop(forget(&self.item, self.seq));
        let queue = self.wq.inner();
        queue.take_back(&self.item, self.seq, Origin::Timer);
    }
}

impl Workqueue {
    fn check_open(&self, cpu: usize) -> Result<(), QueueError> {
        let inner = self.inner();
        inner.may_queue(inner.flags_of(cpu)?, Origin::Timer)?;
        let (shared, started) = (&inner.shared, inner.shared.start_timer());
        started.map_err(shared.no_thread(QueueError::ShutDown, QueueError::NoTimer))
    }

    pub(crate) fn queue_later(
        &self,
        item: &ReusableRef,
        cpu: usize,
        delay: Duration,
    ) -> Result<Queued, QueueError> {
        if delay.is_zero() {
            return self.inner().queue(item, cpu);
        }
        self.check_open(cpu)?;
        self.begin_delay(item, cpu, delay)
    }

    pub(crate) fn requeue_later(
        &self,
        item: &ReusableRef,
        cpu: usize,
        delay: Duration,
    ) -> Result<Modified, QueueError> {
        let queue = self.inner();
        if delay.is_zero() {
            queue.check_queueing(cpu)?;
        } else {
            self.check_open(cpu)?;
        }
        // The check accepted it. A drain that has begun since, or a thread that was refused since,
        // does not refuse it any more.
        let origin = Origin::Own;
        loop {
            if let Some(seq) = cancel::take_for_later(item) {
                if delay.is_zero() {
                    queue.queue_pending(item, seq, cpu, origin)?;
                } else {
                    self.go_on_with_delay(item, seq, cpu, delay)?;
                }
                return Ok(Modified::Moved);
            }
            let queued = if delay.is_zero() {
                queue.queue_from(item, cpu, origin)?
            } else {
                self.begin_delay(item, cpu, delay)?
            };
            match queued {
                Queued::Queued => return Ok(Modified::Queued),
                Queued::Disabled => return Ok(Modified::Disabled),
                Queued::AlreadyPending => {} // Another thread has queued it meanwhile.
            }
        }
    }

    /// *queue* with a delay. If it is refused, nothing has changed.
    fn begin_delay(
        &self,
        item: &ReusableRef,
        cpu: usize,
        delay: Duration,
    ) -> Result<Queued, QueueError> {
        let header = item.header();
        if let Err(answer) = header.not_pending() {
            return Ok(answer);
        }
        let armed = self.arm(item, cpu, delay, || header.set_pending(None))?;
        Ok(armed.err().unwrap_or(Queued::Queued))
    }

    /// Sets the timer for an item pending with that number; if refused, it is idle again.
    fn go_on_with_delay(
        &self,
        item: &ReusableRef,
        seq: Seq,
        cpu: usize,
        delay: Duration,
    ) -> Result<(), QueueError> {
        let live = || is_live(item.header().load(), seq).then_some(seq).ok_or(());
        match self.arm(item, cpu, delay, live) {
            Ok(_) => Ok(()), // Set, or cancelled during the call.
            Err(refusal) => {
                self.inner().take_back(item, seq, Origin::Own);
                Err(refusal)
            }
        }
    }

    /// Sets the timer for the item. `set` gives the number with which the item is pending, or fails
    /// and no timer is set. It is called under the locks of the item and of the timers, once it is
    /// certain that the timer is accepted.
    fn arm<E>(
        &self,
        item: &ReusableRef,
        cpu: usize,
        delay: Duration,
        set: impl FnOnce() -> Result<Seq, E>,
    ) -> Pushed<E> {
        let shared = &self.inner().shared;
        let mut seq = 0;
        // If it is not used, it is dropped without the locks.
        let mut expiry = Some(Box::new(Expiry {
            item: item.clone(),
            seq,
            cpu,
            wq: self.clone(),
        }));
        let mut state = item.extra().state.lock();
        let at = shared.clock.now() + delay;
        let armed = shared.timers.set(at, true, || {
            seq = set()?;
            let mut expiry = expiry.take().expect("a timer is set once");
            expiry.seq = seq;
            Ok(Job::Delayed(expiry))
        });
        let key = match armed? {
            Ok(key) => key,
            Err(why) => return Ok(Err(why)),
        };
        let before = state.timer.replace(Armed {
            key,
            seq,
            cpu,
            queue: self.handle().clone(),
        });
        drop(state);
        // The thread that cancels that one has not removed its timer yet.
        drop(before.and_then(|armed| armed.queue.remove(armed.key)));
        Ok(Ok(()))
    }
}

impl TimedQueue for Handle {
    fn remove(&self, key: TimerKey) -> Option<Job> {
        self.inner.shared.timers.remove(key)
    }

    fn check(&self, cpu: usize) -> Result<(), QueueError> {
        self.inner.check_queueing(cpu)
    }

    fn queue_now(&self, item: &ReusableRef, seq: Seq, cpu: usize) -> Result<(), QueueError> {
        // `check` accepted it: a drain that has begun since does not refuse it.
        self.inner.queue_pending(item, seq, cpu, Origin::Own)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::test_support::Rigged;
    use crate::timer_queue::Due;
    use crate::{DelayedWork, WorkqueueSystem};
    use inflight_sync::block_on;
    use inflight_sync::time::Clock;
    use std::pin::pin;
    use std::task::{Context, Waker};

    /// The timer has taken a due job, a thread flushes the work, and a drain begins. The drain may
    /// wait for the flush, so the work does not wait for the drain.
    #[test]
    fn what_is_flushed_waits_for_no_drain() {
        const TICK: Duration = Duration::from_millis(1);
        let sys = WorkqueueSystem::builder().clock(Clock::manual());
        let sys = sys.build().unwrap();
        let wq = sys.workqueue("flushed").bound().build().unwrap();
        let work = DelayedWork::new(|| {});
        assert!(wq.queue_delayed(&work, TICK).unwrap().is_queued());
        let shared = &wq.inner().shared;
        let due = loop {
            match shared.timers.due(shared.clock.now() + TICK) {
                Some(Due::Now(due @ Job::Delayed(_))) => break due,
                Some(Due::Now(_)) => {}
                _ => panic!("a work waits for its time"),
            }
        };
        let mut flush = pin!(work.flush());
        let polled = flush.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        let drain = wq.drain();
        due.run();
        assert_eq!(block_on(flush), Ok(true));
        drop(drain);
    }

    /// One thread cancels a work, and before it has removed the timer, another one sets a new one.
    #[test]
    fn who_sets_a_timer_removes_the_one_before() {
        let sys = Rigged::new("core:1", |builder| builder);
        let wq = sys.0.workqueue("delayed").bound().build().unwrap();
        let work = DelayedWork::new(|| {});
        let key = || work.item.known_state().unwrap().timer.as_ref().unwrap().key;
        let keys = [1, 2].map(|ms| {
            let delay = Duration::from_millis(ms);
            assert!(wq.queue_delayed(&work, delay).unwrap().is_queued());
            let header = work.item.header();
            assert!(header.take_pending(header.load(), 0).is_some());
            key()
        });
        let timers = &wq.inner().shared.timers;
        assert_eq!(keys.map(|key| timers.remove(key).is_some()), [false, true]);
    }

    /// A thread has taken out a work to move it, and the system ends.
    #[test]
    fn a_move_that_is_refused_leaves_nothing_pending() {
        let sys = Rigged::new("core:1", |builder| builder);
        let wq = sys.0.workqueue("delayed").bound().build().unwrap();
        let work = DelayedWork::new(|| {});
        let delay = Duration::from_millis(1);
        assert!(wq.queue_delayed(&work, delay).unwrap().is_queued());
        let seq = cancel::take_for_later(&work.item).unwrap();
        wq.inner().shared.timers.close();
        let moved = wq.go_on_with_delay(&work.item, seq, 0, delay);
        assert_eq!(
            (moved, work.is_pending()),
            (Err(QueueError::ShutDown), false)
        );
    }
}
