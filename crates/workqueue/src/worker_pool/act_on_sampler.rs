//! *tick*, by the timer, of a pool in which something waits for running workers. One that sleeps
//! without having said so no longer counts as running, nor one that is CPU-intensive.

use super::{Away, PoolState, WorkerPool};
use crate::hog::Hog;
use crate::pool_core::{ASLEEP, INTENSIVE, WorkerId};
use crate::sampler::{self, Candidate, Sampler, Verdict};
use crate::workqueue_inner::Count;
use std::time::Duration;

impl PoolState {
    /// Whether a worker has entries that it has not begun and that have not been recalled.
    fn has_rest(&self, worker: WorkerId) -> bool {
        let batch = self.known_thread(worker).map(|thread| &thread.shared.batch);
        batch.is_some_and(|batch| batch.next() != batch.end()) && !self.is_recalled(worker)
    }

    /// Whether something waits for running workers: on the worklist, or in a batch.
    pub(super) fn waits(&self) -> bool {
        self.core.has_waiting() || self.core.workers.iter().any(|(w, _)| self.has_rest(w))
    }

    /// Whether the worker has not moved since the last tick, and has something left to take back.
    fn is_stuck(&mut self, worker: WorkerId) -> bool {
        if !self.has_batch(worker) {
            return false;
        }
        let next = self.thread(worker).shared.batch.next();
        let thread = self.thread_mut(worker);
        thread.seen.replace(next) == Some(next) && !self.is_recalled(worker)
    }

    /// Whether nothing is left to be recalled.
    fn is_recalled(&self, worker: WorkerId) -> bool {
        let end = self.thread(worker).shared.batch.end();
        let recalled = self.core.workers.get(worker).recalled;
        recalled.is_some_and(|(_, to)| to == end)
    }
}

impl WorkerPool {
    /// Plans another tick of the pool, whose `watched` is set.
    #[cold]
    pub(super) fn plan_tick(&self, later: Duration) {
        if cfg!(loom) {
            return; // A model ticks itself.
        }
        self.do_after(later, Self::tick);
    }

    fn tick(&self) {
        let now = self.shared.clock.now();
        self.shared.submitters.tick(now);
        let mut state = self.lock();
        state.note_running(now);
        state.recall_those(PoolState::is_stuck);
        self.unlock(state, true);
        if let Some(later) = self.sample() {
            self.plan_tick(later);
        }
    }

    /// Samples the workers once. Returns when to do it again, `None` if that is not needed.
    fn sample(&self) -> Option<Duration> {
        let mut sampler = self.sampler.lock();
        let Some(candidates) = self.candidates() else {
            if sampler.is_quiet() && self.end_watch() {
                *sampler = Sampler::default();
                return None;
            }
            return Some(sampler::SLOW);
        };
        let verdicts = sampler.look(candidates, self.shared.sampling.intensive);
        let news = self.found(verdicts);
        Some(sampler.next_look(news))
    }

    /// For models: finds all asleep (`true`) or computing, or nobody. Whether that was news.
    #[cfg(loom)]
    pub(crate) fn tick_finds(&self, asleep: Option<bool>) -> bool {
        let mut state = self.lock();
        state.recall_those(PoolState::is_stuck);
        self.unlock(state, true);
        let verdict = match asleep {
            None => return false,
            Some(true) => Verdict::Asleep,
            Some(false) => Verdict::Intensive(Duration::ZERO),
        };
        let seen = self.candidates().into_iter().flatten();
        self.found(seen.map(|c| (c.worker, c.turn, verdict)).collect())
    }

    fn found_one(&self, worker: WorkerId, turn: u32, verdict: Verdict) -> bool {
        let mut state = self.lock();
        let Some(thread) = state.known_thread(worker) else {
            return false;
        };
        if let Some(Away { pool, me, .. }) = &thread.away {
            // Its item is in that pool, which tells this one. If another worker has the number by
            // now, the turn is another one: workers of one number count their entries on.
            let (pool, me) = (pool.clone(), *me);
            drop(state);
            return pool.found_one(me, turn, verdict);
        }
        let (shared, own) = (thread.shared.clone(), thread.own.clone());
        let (Some(function), Some(pwq)) = (shared.function.get(), state.running(worker)) else {
            return false;
        };
        let w = state.core.workers.get(worker);
        // It must still run the same item and still be a candidate; otherwise this is not news.
        if !sampler::is_candidate(w, true) || turn != shared.batch.next() {
            return false;
        }
        if !state.is_recalled(worker) {
            state.recall(&[worker]);
        }
        let flag = match verdict {
            Verdict::Asleep => ASLEEP,
            Verdict::Intensive(_) => INTENSIVE,
        };
        state.core.workers.set_flag(worker, flag, true);
        let hog = match verdict {
            Verdict::Asleep => {
                pwq.wq.counted(Count::FoundAsleep);
                self.shared.known_blockers.found_asleep(function.key());
                None
            }
            // A hog holds the only CPU of its pool; unbound pools are meant for such items.
            Verdict::Intensive(_) if self.attrs.cpu.is_none() => None,
            Verdict::Intensive(used) => {
                pwq.wq.counted(Count::Intensive);
                let worker = state.busy_worker(worker, self.shared.clock.now());
                worker.map(|worker| Hog {
                    function: function.name(),
                    count: 0,
                    used,
                    worker,
                })
            }
        };
        self.unlock(state, true);
        if let Some((own, me)) = own {
            // A guest also holds its own pool back.
            own.flag_away(me, &shared, flag);
        }
        if let Some(mut hog) = hog {
            hog.worker.read_stack();
            if let Some(report) = self.shared.hogs.found(function.key(), hog) {
                self.shared.report(report);
            }
        }
        true
    }

    /// The workers that hold others back. `None` if nothing waits.
    fn candidates(&self) -> Option<Vec<Candidate>> {
        let state = self.lock();
        if !state.waits() {
            return None;
        }
        let candidates = state.core.workers.iter().filter_map(|(worker, w)| {
            let thread = state.known_thread(worker)?;
            let runs = thread.running_as().function.get().is_some();
            sampler::is_candidate(w, runs).then_some(Candidate {
                worker,
                turn: thread.running_as().batch.next(),
                // In a model threads have no numbers, and nothing is read of them.
                thread: thread.number.or(cfg!(loom).then_some(0))?,
            })
        });
        Some(candidates.collect())
    }

    /// Applies what was seen of workers in some turns. Returns whether any of it was news.
    fn found(&self, verdicts: Vec<(WorkerId, u32, Verdict)>) -> bool {
        let each = verdicts.into_iter();
        let found = each.map(|(worker, turn, verdict)| self.found_one(worker, turn, verdict));
        found.fold(false, |news, is_news| news | is_news)
    }

    /// Nothing has waited for a while: ends the watch. `false` if something waits now.
    fn end_watch(&self) -> bool {
        let mut state = self.lock();
        // From now on nothing is appended to a batch either.
        state.recall_all(|_| true);
        if state.waits() {
            self.unlock(state, true);
            return false;
        }
        state.watched = false;
        state.core.set_batching(false);
        self.unlock(state, false);
        true
    }
}

#[cfg(all(test, target_os = "linux", not(any(loom, shuttle, miri))))]
mod tests {
    use super::*;
    use crate::Attrs;
    use crate::test_support::{Rigged, Signal, end, hold, until};
    use inflight_topology::Scope;

    /// A worker sleeps in an item, and others have run the rest of its batch: nothing waits for it
    /// any more, so the watch can end, however long it sleeps.
    #[test]
    fn a_recalled_rest_that_has_run_waits_for_nobody() {
        let sys = Rigged::new("core:1", |builder| builder.sampling(true));
        let wq = sys.0.workqueue("recalled").bound().build().unwrap();
        let pool = &wq.inner().pwq_of(0).unwrap().pool;
        {
            let mut state = pool.lock();
            state.watched = true;
            state.core.set_batching(true);
        }
        let (first, open) = hold(&wq, 0);
        let (begun, awake) = (Signal::default(), Signal::default());
        let sleeps = wq.spawn(until(&begun, &awake, 1));
        let rest = wq.spawn(|| ());
        end((first, open));
        begun.wait(1);
        assert!(pool.lock().waits(), "the rest is in the batch");
        let mut seen = pool.candidates().expect("the rest waits");
        let seen = seen.pop().unwrap();
        assert!(pool.found(vec![(seen.worker, seen.turn, Verdict::Asleep)]));
        rest.wait().unwrap();
        let waits = pool.lock().waits();
        awake.raise();
        sleeps.wait().unwrap();
        assert!(!waits, "nothing waits for it");
    }

    /// A worker runs another pool's item, and that sleeps: then others run in its own pool too.
    #[test]
    fn a_guest_that_sleeps_holds_up_no_pool() {
        let sys = Rigged::new("core:2", |builder| builder);
        let attrs = Attrs::new().scope(Scope::Cpu);
        let wq = sys.0.workqueue("guest").unbound(attrs).build().unwrap();
        let [busy, own] = [0, 1].map(|cpu| wq.inner().pwq_of(cpu).unwrap().pool.clone());
        let [begun, open] = [(); 2].map(|()| Signal::default());
        let items = [1, 2].map(|number| {
            let item = wq.spawn_on(0, until(&begun, &open, 1));
            begun.wait(number);
            // The next item takes long, and there is another pool.
            busy.lock().core.note_service(1 << 40);
            item
        });
        assert_eq!(wq.stats().stolen, 1);
        let waits = wq.spawn_on(1, || ());
        let mut seen = own.candidates().expect("an item waits");
        let guest = seen.pop().unwrap();
        assert!(own.found(vec![(guest.worker, guest.turn, Verdict::Asleep)]));
        assert_eq!(wq.stats().found_asleep, 1, "while it sleeps");
        waits.wait().unwrap();
        // It is a blocked worker of its own pool only.
        let [victims, its] = [&busy, &own].map(|pool| pool.report());
        assert_eq!((victims.workers, victims.blocked), (1, 0));
        assert_eq!((its.workers, its.blocked), (2, 1));
        open.raise();
        items.into_iter().for_each(|item| item.wait().unwrap());
    }

    /// An item was seen asleep, and has then said that it blocks: that is no news. When it goes on,
    /// it counts as running.
    #[test]
    fn who_has_said_that_it_blocks_is_not_found_asleep() {
        let sys = Rigged::new("core:1", |builder| builder.sampling(true));
        let wq = sys.0.workqueue("says").bound().build().unwrap();
        let [begun, open, inside, awake, back, last] = [(); 6].map(|()| Signal::default());
        let sleeps = until(&inside, &awake, 1);
        let (before, after) = (until(&begun, &open, 1), until(&back, &last, 1));
        let says = wq.spawn(move || {
            before();
            crate::blocking(sleeps);
            after();
        });
        begun.wait(1);
        let waits = wq.spawn(|| ());
        let pool = &wq.inner().pwq_of(0).unwrap().pool;
        let mut seen = pool.candidates().expect("an item waits");
        let seen = seen.pop().unwrap();
        open.raise();
        inside.wait(1);
        assert!(!pool.found(vec![(seen.worker, seen.turn, Verdict::Asleep)]));
        waits.wait().unwrap();
        awake.raise();
        back.wait(1);
        let runs = {
            let state = pool.lock();
            state.core.workers.get(seen.worker).is_running()
        };
        last.raise();
        says.wait().unwrap();
        assert!(runs);
        assert_eq!(wq.stats().found_asleep, 0);
    }

    /// What a tick saw of a worker does not apply to the next item that it runs.
    #[test]
    fn what_was_seen_of_an_item_that_has_ended_is_no_news() {
        let sys = Rigged::new("core:1", |builder| builder.sampling(true));
        let wq = sys.0.workqueue("seen").bound().build().unwrap();
        let [begun, open] = [(); 2].map(|()| Signal::default());
        let items = [1, 2, 3].map(|number| wq.spawn(until(&begun, &open, number)));
        begun.wait(1);
        let pool = &wq.inner().pwq_of(0).unwrap().pool;
        let look = || {
            let mut seen = pool.candidates().expect("others wait");
            assert_eq!(seen.len(), 1);
            seen.pop().unwrap()
        };
        let seen = look();
        let function = {
            let state = pool.lock();
            state.thread(seen.worker).shared.function.get()
        };
        let knows = || pool.shared.known_blockers.knows(function.unwrap().key());
        open.raise();
        begun.wait(2);
        for verdict in [
            Verdict::Asleep,
            Verdict::Asleep,
            Verdict::Intensive(Duration::from_secs(1)),
        ] {
            assert!(!pool.found(vec![(seen.worker, seen.turn, verdict)]));
        }
        assert_eq!(pool.lock().core.workers.nr_running(), 1);
        assert!(sys.0.hogs().is_empty() && !knows());
        // A fresh look is news: the third item begins.
        let now = look();
        assert!(pool.found(vec![(now.worker, now.turn, Verdict::Asleep)]));
        assert_eq!(wq.stats().found_asleep, 1, "while it sleeps");
        begun.wait(3);
        open.raise();
        open.raise();
        items.into_iter().for_each(|item| item.wait().unwrap());
        wq.flush_blocking().unwrap();
        let stats = wq.stats();
        assert_eq!((stats.found_asleep, stats.cpu_intensive), (1, 0));
    }
}
