//! What can be seen of a pool, and what its workers use.

use super::{Inner, Pool};
use crate::layout::Cpus;
use crate::machine::State;
use crate::meter::{self, Metered};
use crate::timekeeper::Alarm;
use crate::watchdog::Waiting;
use inflight_sync::Arc;
use inflight_sync::atomic::Ordering;
use std::time::Duration;

impl Inner {
    /// The numbers of the queues whose items the workers run.
    fn running(&self) -> impl Iterator<Item = u64> + '_ {
        let workers = self.core.workers();
        let running = workers.filter(|(_, state, _)| !matches!(state, State::Idle | State::Woken));
        running.map(|(worker, _, _)| self.seen[worker].charged.queue())
    }
}

impl Pool {
    /// What people call it.
    pub(crate) fn name(&self) -> String {
        let high = if self.place.is_high() { " highpri" } else { "" };
        let bh = if self.place.bh { " bh" } else { "" };
        match &self.place.cpus {
            Cpus::One(cpu) => format!("cpu {cpu}{bh}{high}"),
            Cpus::Pod { .. } => format!("u{}{high}", self.id),
        }
    }

    /// What waits here for a worker, if anything does.
    pub(crate) fn waiting(self: &Arc<Self>) -> Option<Waiting> {
        self.fetch_mail();
        self.recall();
        let inner = self.state.lock();
        let first = inner.core.waiting().next()?;
        Some(Waiting {
            place: format!("pool {}", self.name()),
            // Relaxed: a later look sees it.
            progress: inner.core.taken() + self.touched.load(Ordering::Relaxed),
            item: format!("{}: {}", first.queue.name(), first.work.name()),
            waiting: inner.core.ready(),
            running: inner.running().collect(),
        })
    }

    /// An item that runs here gets on. Relaxed: a later look of the watchdog sees it.
    pub(crate) fn touch(&self) {
        self.touched.fetch_add(1, Ordering::Relaxed);
    }

    /// With what has been rung for: items that nobody has looked at yet are ready.
    pub(crate) fn report(self: &Arc<Self>) -> PoolReport {
        self.fetch_mail();
        self.recall();
        self.state_now()
    }

    pub(crate) fn state_now(&self) -> PoolReport {
        let inner = self.state.lock();
        PoolReport {
            workers: inner.core.states().filter(|s| *s != State::Gone).count(),
            idle: inner.core.states().filter(|s| *s == State::Idle).count(),
            blocked: inner.core.states().filter(|s| *s == State::Blocked).count(),
            running: inner.core.running(),
            target: inner.core.target(),
            ready: inner.core.ready(),
            creating: inner.core.is_creating(),
            items: inner.running().collect(),
        }
    }

    /// U1: the calling worker is about to run.
    pub(crate) fn meter(self: &Arc<Self>) {
        if self.env.metering.is_on() {
            self.meter_from(meter::PERIOD);
        }
    }

    fn meter_from(self: &Arc<Self>, later: Duration) {
        if self.meter.arm() {
            let at = self.env.clock.now() + later;
            let alarm = Alarm::Meter(self.clone());
            if !self.env.timekeeper.set_alarm(&self.env, at, alarm) {
                self.meter.disarm(); // Who runs next tries again.
            }
        }
    }

    /// U2, U3: charges what the workers have used, and looks again if somebody runs.
    pub(crate) fn read_meter(self: &Arc<Self>) {
        if let Some(later) = self.meter.read(self) {
            self.meter_from(later);
        }
    }

    /// The workers whose CPU time can be read.
    pub(crate) fn metered(&self) -> Vec<Metered> {
        let inner = self.state.lock();
        let workers = inner.core.workers().filter_map(|worker| {
            let thread = inner.threads[worker.0]?;
            let told = &inner.seen[worker.0].charged;
            Some(Metered::new(worker, thread, told))
        });
        workers.collect()
    }
}

#[derive(Debug)]
pub(crate) struct PoolReport {
    pub(crate) workers: usize,
    pub(crate) idle: usize,
    pub(crate) blocked: usize,
    pub(crate) running: usize,
    pub(crate) target: usize,
    pub(crate) ready: usize,
    /// A worker is being created.
    pub(crate) creating: bool,
    /// The numbers of the queues whose items are being run.
    pub(crate) items: Vec<u64>,
}
