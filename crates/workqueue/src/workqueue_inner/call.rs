//! Functions that run on their caller's thread if no worker is about to take them.

use super::WorkqueueInner;
use crate::current;
use crate::error::{JoinError, PanicPayload};
use crate::item::Job;
use crate::panics::message;
use crate::pwq::{NOT_OPEN, Pwq};
use crate::trace::TraceStep;
use inflight_sync::{Arc, cpu};

impl WorkqueueInner {
    /// Runs `f` on this thread. Returns `f` if it has to be queued.
    pub(crate) fn call_inline<F: Job>(
        self: &Arc<Self>,
        f: F,
    ) -> Result<Result<F::Out, JoinError>, F> {
        // Bound items run on their CPUs.
        if self.mode.is_bound() || !current::may_begin_inline() {
            return Err(f);
        }
        let Ok(pwq) = self.pwq_of(cpu::current()) else {
            return Err(f);
        };
        let Some(colour) = self.slot_for_caller(pwq) else {
            return Err(f);
        };
        self.shared.arm_watchdog();
        let inside = current::begin_inline(pwq, colour);
        let result = self.run_here(f);
        drop(inside);
        let mut state = pwq.lock();
        state.core.end_inline(pwq.index, colour);
        pwq.pool.unlock(state, false);
        Ok(result)
    }

    /// Takes a slot, unless a worker would take a queued item without being woken for it.
    fn slot_for_caller(&self, pwq: &Pwq) -> Option<u8> {
        let attrs = &pwq.pool.attrs;
        // Its workers run on these CPUs only, and the caller on any that the system has. They may
        // also have a priority that the caller lacks.
        let is_masked = !self.shared.machine().cpus().is_subset(&attrs.allowed);
        if attrs.nice != 0 || attrs.strict || is_masked {
            return None;
        }
        let mut state = pwq.lock();
        let busy = state.core.workers.nr_running() > 0;
        // Whether a queue that is not open takes it, and how a refusal counts, is up to `spawn`.
        if busy || pwq.flags() & NOT_OPEN != 0 {
            return None;
        }
        state.core.begin_inline(pwq.index)
    }

    fn run_here<F: Job>(&self, f: F) -> Result<F::Out, JoinError> {
        let traced = self.shared.tracing.is_on().then(|| f.name().to_owned());
        let tell = |step| {
            if let Some(name) = &traced {
                self.shared.trace(&self.name, name, step);
            }
        };
        tell(TraceStep::Queued);
        tell(TraceStep::Activated);
        tell(TraceStep::Started);
        match f.run(|_| ()) {
            Ok(value) => {
                tell(TraceStep::Ended);
                Ok(value)
            }
            Err((item, payload)) => {
                self.panicked(&item, message(&payload).as_deref());
                tell(TraceStep::Panicked);
                Err(JoinError::Panicked(PanicPayload::new(item, payload)))
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::test_support::Rigged;
    use std::time::Duration;

    /// What waits for the slot of a call may wait for ever, and wakes no worker.
    #[test]
    fn a_call_is_watched() {
        let watched = |builder: crate::SystemBuilder| {
            let sampling = builder.sampling(false);
            sampling.watchdog(Duration::from_secs(30), |_| ())
        };
        let sys = Rigged::new("core:1", watched);
        let wq = sys.0.workqueue("calls").ordered().build().unwrap();
        let shared = wq.inner().shared.clone();
        let is_planned = move || shared.watchdog.arm(&shared.clock).is_none();
        assert!(wq.call_blocking(is_planned).unwrap());
    }
}
