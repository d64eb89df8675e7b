//! A pool that gets no threads: it asks again, calls rescuers, and lets the timekeeper look after
//! it. `PROTOCOL.md`, R1-R4.

use super::{Deed, Inner, Pool};
use crate::machine::Action;
use crate::rescuer::Rescuer;
use crate::timekeeper::Alarm;
use inflight_sync::time::{Clock, Instant};
use inflight_sync::{Arc, Parker, Unparker, thread};
use std::time::Duration;

/// How often a refused thread is asked for at once.
const ATTEMPTS: usize = 4;

/// After how long a blocked worker asks again.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// How long a pool is short of a worker before it calls rescuers.
const FIRST_MAYDAY: Duration = Duration::from_millis(10);

/// After how long it calls again.
const NEXT_MAYDAY: Duration = Duration::from_millis(100);

/// After how long a pool whose distress the timekeeper looks after asks for a thread again.
const COOLDOWN: Duration = Duration::from_secs(1);

#[derive(Clone, Copy)]
pub(super) struct Distress {
    /// Until then events ask for no thread.
    cooldown: Instant,
    /// Rescuers have been called.
    called: bool,
}

impl Pool {
    /// Starts the worker that the core has asked for. If that fails, returns the blocked workers,
    /// one of which is to ask again.
    pub(super) fn bring_worker(self: &Arc<Self>) -> Result<(), Vec<Unparker>> {
        for _ in 0..ATTEMPTS {
            if self.start_worker().is_ok() {
                return Ok(());
            }
            thread::yield_now();
        }
        Err(self.creation_failed())
    }

    /// A thread was refused. Returns the blocked workers, one of which is to ask again.
    pub(super) fn creation_failed(self: &Arc<Self>) -> Vec<Unparker> {
        let mut inner = self.state.lock();
        let blocked = inner.core.create_failed();
        let blocked = inner.unparkers(blocked);
        let now = self.env.clock.now();
        let known = inner.distress;
        if known.is_some() || self.env.timekeeper.is_there() {
            inner.distress = Some(Distress {
                cooldown: now + COOLDOWN,
                called: known.is_some_and(|distress| distress.called),
            });
        }
        self.tell(&mut inner);
        let unused = inner.is_unused();
        drop(inner);
        if unused {
            self.offer();
        } else if known.is_none() {
            self.look_after_distress(now + FIRST_MAYDAY);
        }
        blocked
    }

    fn look_after_distress(self: &Arc<Self>, at: Instant) {
        let alarm = Alarm::Distress(self.clone());
        if !self.env.timekeeper.set_if_there(at, alarm) {
            self.state.lock().distress = None;
        }
    }

    /// R1: the timekeeper looks whether the pool still is in distress. If so it calls the rescuers
    /// and, from time to time, asks for a thread again.
    pub(crate) fn distress(self: &Arc<Self>) {
        self.fetch_mail();
        let now = self.env.clock.now();
        let mut inner = self.state.lock();
        if !inner.core.is_in_distress() {
            inner.distress = None;
            return;
        }
        let rescuers: Vec<_> = inner
            .core
            .waiting()
            .filter_map(|entry| entry.queue.rescuer().cloned())
            .collect();
        let mut ask = true;
        if let Some(distress) = &mut inner.distress {
            ask = now >= distress.cooldown;
            distress.called = true;
        }
        let help = inner.calls(None);
        drop(inner);
        rescuers.iter().for_each(|rescuer| rescuer.call(self));
        if ask {
            self.ask_again().perform();
        }
        Deed {
            help,
            ..Deed::default()
        }
        .perform();
        self.look_after_distress(now + NEXT_MAYDAY);
    }

    /// The calling worker is blocked, about to sleep, and no thread could be had for what is ready.
    /// Unless another one does so, it sleeps a little here instead; then its own sleep is left out,
    /// it looks at what it waits for, blocks anew and so asks again.
    pub(crate) fn keep_asking(&self, me: usize) {
        if !self.state.lock().core.keep(me) {
            return;
        }
        // Not the system's clock: that of a test may stand still.
        let clock = Clock::system();
        let deadline = clock.now() + ASK_AGAIN;
        let _ = Parker::current().park_until(&clock, deadline);
        self.state.lock().core.end_keeping();
    }

    /// A pool that has called already calls for each newcomer at once.
    pub(super) fn call_for_newcomers(self: &Arc<Self>, rescuer: Option<&Arc<Rescuer>>) {
        if let Some(rescuer) = rescuer.filter(|_| self.has_called()) {
            rescuer.call(self);
        }
    }

    fn has_called(&self) -> bool {
        self.state
            .lock()
            .distress
            .is_some_and(|distress| distress.called)
    }

    /// Whether a thread is wanted that was refused a moment ago: then it counts as refused again.
    pub(super) fn is_asked_in_vain(&self, inner: &mut Inner, action: Action) -> bool {
        let cooling = |d: Distress| self.env.clock.now() < d.cooldown;
        let in_vain = action == Action::Create && inner.distress.is_some_and(cooling);
        if in_vain {
            // Those who could keep asking have been told of the first failure, or ask themselves.
            drop(inner.core.create_failed());
        }
        in_vain
    }
}
