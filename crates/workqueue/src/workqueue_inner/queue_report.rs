//! Statistics and reports of a queue.

use super::{Count, WorkqueueInner};
use crate::attrs::Mode;
use crate::choose_pool::PodMap;
use crate::pool_attrs::{PoolAttrs, Settings};
use crate::pwq::Pwq;
use crate::stats::WorkqueueStats;
use crate::watchdog::{Stall, StallSite, Waiting};
use crate::worker_pool::PwqLevel;
use inflight_sync::Arc;
use inflight_sync::atomic::Ordering;
use std::ptr;
use std::time::Duration;

impl WorkqueueInner {
    /// The sum of its pwqs, and how many of its items run or have a free slot.
    fn level(&self) -> (PwqLevel, usize) {
        let control = self.control.lock();
        // Each limit by its identity, with the sum of the pwqs that share it.
        let mut limits: Vec<(*const (), usize, PwqLevel)> = Vec::new();
        for pwq in &control.pwqs {
            let level = pwq.lock().level(pwq.index);
            let max = control.limit.max_active;
            let (limit, max) = match (self.mode, pwq.nr_active.as_ref()) {
                (_, Some(shared)) => (Arc::as_ptr(shared).cast(), shared.level().1),
                (Mode::Bh, _) => (Arc::as_ptr(pwq).cast(), usize::MAX),
                // One at a time, in whichever pwq it is.
                (Mode::Ordered, _) => (ptr::from_ref(self).cast(), max),
                _ => (Arc::as_ptr(pwq).cast(), max),
            };
            match limits.iter_mut().find(|(known, ..)| *known == limit) {
                Some((.., all)) => *all = all.plus(&level),
                None => limits.push((limit, max, level)),
            }
        }
        let active = |(_, max, level): &(_, usize, PwqLevel)| {
            let free = max.saturating_sub(level.executing);
            let free = if control.frozen { 0 } else { free };
            level.executing + free.min(level.waiting)
        };
        let active = limits.iter().map(active).sum();
        let levels = limits.iter().map(|(.., level)| level);
        (
            levels.fold(PwqLevel::default(), |sum, level| sum.plus(level)),
            active,
        )
    }

    /// Whether an item runs, or waits for a worker only.
    pub(crate) fn is_active(&self) -> bool {
        self.level().1 > 0
    }

    pub(crate) fn stats(&self) -> WorkqueueStats {
        let (level, active) = self.level();
        let metered = self.shared.metering.is_on();
        let cpu_time = Duration::from_nanos(self.cpu_time_ns.load(Ordering::Relaxed));
        WorkqueueStats {
            queued: level.queued,
            started: level.started,
            completed: level.completed,
            panicked: self.count(Count::Panicked),
            cancelled: level.cancelled,
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
            inactive: level.in_flight() - active,
        }
    }

    /// Whether an item queued now on that CPU would have to wait until others end.
    pub(crate) fn is_congested(&self, cpu: usize) -> bool {
        let in_flight = |pwq: &Pwq| pwq.lock().level(pwq.index).in_flight();
        match self.mode {
            Mode::Bh => false,
            Mode::Bound => self.known_pwq(cpu).map_or(0, in_flight) >= self.max_active(),
            Mode::Ordered => self.items() >= self.max_active(),
            Mode::Unbound => {
                let control = self.control.lock();
                let limit = self.limit_of(&control, cpu);
                let shares = |pwq: &&Arc<Pwq>| {
                    let own = pwq.nr_active.as_ref();
                    own.is_some_and(|own| Arc::ptr_eq(own, &limit))
                };
                let sharing = control.pwqs.iter().filter(shares);
                let in_flight: usize = sharing.map(|pwq| in_flight(pwq)).sum();
                in_flight >= limit.level().1
            }
        }
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn is_detached(&self) -> bool {
        self.control.lock().detached
    }

    pub(crate) fn items(&self) -> usize {
        self.level().0.in_flight()
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
            progress,
            stall: Stall {
                place: format!("queue {}", self.name),
                item: format!("{}: {}", self.name, first),
                waiting,
                running: control.pwqs.iter().flat_map(busy).collect(),
                since: Duration::ZERO,
            },
        })
    }
}
