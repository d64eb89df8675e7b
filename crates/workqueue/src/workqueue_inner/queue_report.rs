//! Statistics and reports of a queue.

use super::{Count, WorkqueueInner};
use crate::attrs::Mode;
use crate::choose_pool::PodMap;
use crate::pool_attrs::{PoolAttrs, Settings};
use crate::pwq::Pwq;
use crate::stats::WorkqueueStats;
use crate::watchdog::{StallSite, Waiting};
use crate::worker_pool::PwqLevel;
use inflight_sync::Arc;
use inflight_sync::atomic::Ordering;
use std::ptr;
use std::time::Duration;

impl WorkqueueInner {
    /// Each pwq, with its limit and the identity of that limit.
    fn pwq_levels(&self) -> Vec<(PwqLevel, usize, *const ())> {
        let control = self.control.lock();
        let level = |pwq: &Arc<Pwq>| {
            let level = pwq.lock().level(pwq.index);
            let max = control.limit.max_active;
            match (self.mode, pwq.nr_active.as_ref()) {
                (_, Some(shared)) => (level, shared.level().1, Arc::as_ptr(shared).cast()),
                (Mode::Bh, _) => (level, usize::MAX, Arc::as_ptr(pwq).cast()),
                // One at a time, in whichever pwq it is.
                (Mode::Ordered, _) => (level, max, ptr::from_ref(self).cast()),
                _ => (level, max, Arc::as_ptr(pwq).cast()),
            }
        };
        control.pwqs.iter().map(level).collect()
    }

    /// The number of items that run or have a free slot, and of those that wait for a slot.
    pub(crate) fn activity(&self) -> (usize, usize) {
        self.split(&self.pwq_levels())
    }

    fn split(&self, levels: &[(PwqLevel, usize, *const ())]) -> (usize, usize) {
        let mut limits: Vec<(*const (), usize, PwqLevel)> = Vec::new();
        for (level, max, limit) in levels {
            match limits.iter_mut().find(|(known, ..)| known == limit) {
                Some((_, _, all)) => {
                    all.executing += level.executing;
                    all.waiting += level.waiting;
                }
                None => limits.push((*limit, *max, *level)),
            }
        }
        let frozen = self.is_frozen();
        let of = |(_, max, level): &(_, usize, PwqLevel)| {
            let free = if frozen {
                0
            } else {
                max.saturating_sub(level.executing)
            };
            let ready = free.min(level.waiting);
            (level.executing + ready, level.waiting - ready)
        };
        let each = limits.iter().map(of);
        each.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    pub(crate) fn stats(&self) -> WorkqueueStats {
        let levels = self.pwq_levels();
        let (active, inactive) = self.split(&levels);
        let sum = |of: fn(&PwqLevel) -> u64| levels.iter().map(|(l, ..)| of(l)).sum::<u64>();
        let metered = self.shared.metering.is_on();
        let cpu_time = Duration::from_nanos(self.cpu_time_ns.load(Ordering::Relaxed));
        WorkqueueStats {
            queued: sum(|l| l.queued),
            started: sum(|l| l.started),
            completed: sum(|l| l.completed),
            panicked: self.count(Count::Panicked),
            cancelled: sum(|l| l.cancelled),
            refused: self.count(Count::Refused),
            cm_wakeups: self.count(Count::CmWakeup),
            found_asleep: self.count(Count::FoundAsleep),
            cpu_intensive: self.count(Count::Intensive),
            cpu_time: metered.then_some(cpu_time),
            maydays: self.rescuer.as_ref().map_or(0, |rescuer| rescuer.maydays()),
            rescued: self.count(Count::Rescued),
            remote_wakeups: self.count(Count::RemoteWakeups),
            stolen: self.count(Count::Stolen),
            repatriated: self.count(Count::Repatriated),
            placed: self.count(Count::Placed),
            active,
            inactive,
        }
    }

    /// Whether an item queued now on that CPU would have to wait until others end.
    pub(crate) fn is_congested(&self, cpu: usize) -> bool {
        let max_active = self.max_active();
        let in_flight = match self.mode {
            Mode::Bh => return false,
            Mode::Bound => {
                let level = |pwq: &Pwq| pwq.lock().level(pwq.index);
                self.known_pwq(cpu).map_or(0, |pwq| level(pwq).in_flight())
            }
            Mode::Unbound | Mode::Ordered => self.items(),
        };
        in_flight >= max_active
    }

    pub(crate) fn items(&self) -> usize {
        let levels = self.pwq_levels();
        levels.iter().map(|(l, ..)| l.in_flight()).sum()
    }

    pub(crate) fn last_panic(&self) -> Option<(String, Option<String>)> {
        self.last_panic.lock().clone()
    }

    pub(crate) fn pool_attrs_of(&self, cpu: usize) -> PoolAttrs {
        let control = self.control.lock();
        control.pods.pools[control.pods.index_of(cpu)].clone()
    }

    /// The pool for all CPUs that the queue may use.
    pub(crate) fn default_pool_attrs(&self, settings: &Settings) -> PoolAttrs {
        let attrs = self.attrs();
        PodMap::new(settings, Mode::Ordered, &attrs, self.flags.highpri)
            .pools
            .swap_remove(0)
    }

    pub(crate) fn limit(&self) -> Option<usize> {
        (self.mode != Mode::Bh).then(|| self.max_active())
    }

    pub(crate) fn starved(&self) -> Option<Waiting> {
        let control = self.control.lock();
        let now = self.shared.clock.now();
        let mut waiting = 0;
        let (mut first, mut progress) = (None, self.count(Count::Touched));
        for pwq in &control.pwqs {
            let state = pwq.lock();
            let level = state.level(pwq.index);
            progress += level.started;
            let core = state.core.pwq(pwq.index);
            if core.waits_for_slot() {
                waiting += level.waiting;
                let name = |entry: &crate::batch::Entry| {
                    // SAFETY: its entry is in the queue, and the lock is held.
                    unsafe { entry.item.name() }.to_owned()
                };
                first = first.or_else(|| core.fifo.front().map(name));
            }
        }
        let first = first.filter(|_| !control.frozen)?;
        let busy = |pwq: &Arc<Pwq>| {
            let mut state = pwq.lock();
            state.busy_workers(now, |index| index == pwq.index)
        };
        Some(Waiting {
            id: StallSite::Queue(self.number),
            place: format!("queue {}", self.name),
            progress,
            item: format!("{}: {}", self.name, first),
            waiting,
            running: control.pwqs.iter().flat_map(busy).collect(),
        })
    }
}
