//! What holds at any moment, and at the end.

use super::*;

impl Driver<'_> {
    /// What holds after each event.
    pub(super) fn check(&mut self) {
        // Workers.
        let coming = |t: &Thread<'_>| t.phase == Phase::Coming;
        let counts =
            |t: &Thread<'_>| coming(t) || (t.phase == Phase::Active && t.flags == 0 && !t.guest);
        let count =
            |is: &dyn Fn(&Thread<'_>) -> bool| self.threads.iter().filter(|t| is(t)).count();
        assert_eq!(self.core.workers.nr_running(), count(&counts));
        let lingers = usize::from(self.lingers.is_some());
        assert_eq!(self.core.workers.nr_takers(), count(&coming) + lingers);
        assert_eq!(
            self.core.workers.nr_idle(),
            count(&|t| t.phase == Phase::Idle)
        );
        let own = |t: &Thread<'_>| t.phase != Phase::Free && !t.guest;
        assert_eq!(self.core.workers.nr_workers(), count(&own));
        // Entries.
        let (mut listed, mut shared_used) = (0, 0);
        for (at, queue) in self.queues.iter_mut().enumerate() {
            let index = at as PwqIndex;
            let pwq = self.core.pwq(index);
            assert_eq!(pwq.fifo.len(), queue.waiting.len());
            assert_eq!(pwq.in_flight(), queue.in_flight.len());
            let has_work = !queue.waiting.is_empty() && !queue.stopped;
            assert!(has_work || !pwq.listed, "what is listed can be taken");
            listed += if pwq.listed { queue.waiting.len() } else { 0 };
            // Slots: one for each batch, whatever the number of its entries.
            let holds = |t: &&Thread<'_>| t.batch.iter().any(|(pwq, _)| *pwq == index);
            let batches = self.threads.iter().filter(holds).count();
            let used = batches + queue.parked + queue.inline.len() + usize::from(pwq.listed);
            match pwq.limit {
                Limit::Own { max, used: counted } => {
                    assert_eq!((max, counted), (queue.max, used));
                    assert!(used <= queue.max.max(queue.used), "more than there may be");
                    assert!(!pwq.listed || used <= max, "listed beyond the limit");
                    assert!(pwq.listed || !has_work || used >= max, "a slot is free");
                }
                Limit::Shared(_) => {
                    shared_used += used;
                    assert!(pwq.listed || pwq.pending || !has_work, "nobody knows of it");
                }
            }
            queue.used = used;
            // Flushes: one that is over had nothing older in flight.
            let over = pwq.over();
            for (flush, since) in &queue.flushes {
                let waits = queue.in_flight.values().any(|begun| begun <= since);
                assert!(*flush >= over || !waits, "it is over too early");
            }
        }
        let on_worklist: Vec<_> = self.core.worklist().collect();
        let mut sorted = on_worklist.clone();
        sorted.sort_unstable();
        let is_listed = |index: &PwqIndex| self.core.pwq(*index).listed;
        let of_listed: Vec<_> = (0..self.queues.len() as PwqIndex)
            .filter(is_listed)
            .collect();
        assert_eq!(sorted, of_listed, "{on_worklist:?}");
        assert_eq!(self.core.listed(), listed);
        assert_eq!(self.core.has_waiting(), listed > 0);
        assert!(self.core.ready() <= listed && (self.core.ready() > 0) == (listed > 0));
        let (nr, max) = self.shared.level();
        assert_eq!(nr, shared_used + self.foreign + self.grants.len());
        assert_eq!(max, self.shared_max);
        assert!(nr >= max || !self.shared.has_pending(), "a slot is free");
    }

    /// Everything continues and ends.
    pub(super) fn finish(mut self) {
        for at in 0..self.queues.len() {
            self.stop(at, false);
            while !self.queues[at].inline.is_empty() {
                self.end_inline(at);
            }
        }
        let mut rounds = 0;
        loop {
            while !self.grants.is_empty() {
                self.grant(0);
                self.unlock(true);
            }
            self.unlock(true);
            self.check();
            let is_over = self.queues.iter().all(|queue| queue.in_flight.is_empty());
            if is_over && self.foreign == 0 && self.grants.is_empty() {
                break;
            }
            for worker in 0..self.threads.len() {
                self.step(23, worker, 0);
                self.step(19, worker, 0);
                self.step(12, worker, 0);
                self.step(7, worker, 0);
            }
            self.step(35, rounds, 1);
            self.step(43, rounds, 0);
            rounds += 1;
            assert!(rounds < 1_000, "something is stranded");
        }
        for worker in 0..self.threads.len() {
            self.step(12, worker, 0);
        }
        assert!(self.queues.iter().all(|queue| queue.flushes.is_empty()));
        assert_eq!(self.shared.level().0, 0, "all slots are free");
        for (at, queue) in self.queues.iter().enumerate() {
            assert!(!queue.busy);
            let counters = self.core.pwq(at as PwqIndex).counters();
            let known = (queue.queued, queue.ended, queue.cancelled);
            assert_eq!((counters.queued, counters.ended, counters.cancelled), known);
            assert_eq!(queue.queued, queue.ended + queue.cancelled);
            self.core.remove_pwq(at as PwqIndex);
        }
    }
}
