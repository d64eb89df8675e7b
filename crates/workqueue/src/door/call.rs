//! A function that runs on its caller's thread when no worker is about to take it.

use super::Shared;
use super::fronts::Started;
use crate::error::{JoinError, PanicPayload, QueueError};
use crate::flush::Colour;
use crate::handle;
use crate::item::Ended;
use crate::panics::caught;
use crate::trace::{self, TraceStep};
use crate::worker::{self, Running};
use inflight_sync::{Arc, cpu};
use std::any::type_name;

impl Shared {
    /// H1-H3, or the long way.
    pub(crate) fn call<T, F>(self: &Arc<Self>, f: F) -> Result<T, JoinError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // What is bound to CPUs runs there.
        let here = !self.mode.is_bound() && worker::may_begin_inline();
        let slot = if here {
            self.slot_for_caller()
        } else {
            Ok(None)
        };
        match slot {
            Ok(Some((gate, colour))) => {
                let inside = worker::begin_inline(Running {
                    work: 0,
                    queue: self.key(),
                    gate,
                    bh: false,
                });
                let (result, ended) = self.run_here(gate, f);
                drop(inside);
                self.leave(gate, colour, &ended);
                result
            }
            // It would not wait for the item, which would run all the same.
            Ok(None) if worker::may_not_sleep() => Err(JoinError::WouldDeadlock),
            Ok(None) => handle::spawn(self, Ok(self.here()), f).wait_or_take_back(),
            Err(refusal) => Err(JoinError::Rejected(refusal)),
        }
    }

    /// H1, H2: a slot, unless a worker will come to an item queued now without being woken for it.
    fn slot_for_caller(self: &Arc<Self>) -> Result<Option<(usize, Colour)>, QueueError> {
        let cpu = cpu::current();
        let at = self.gate_of(cpu, None);
        let gate = &self.gates[at];
        let mut door = gate.state.lock();
        if let Some(refusal) = door.refusal(self.key()) {
            return Err(refusal);
        }
        // H0: somebody's priority is not lent to others.
        if gate.letters() > 0 || !door.layout.lets_callers_run {
            return Ok(None);
        }
        let busy = |pool: &Arc<crate::pools::Lease>| !pool.would_wake();
        let place = door.layout.place_of(cpu);
        if door.pools[place].as_ref().is_some_and(busy) {
            return Ok(None);
        }
        let Some(fronts) = &self.fronts else {
            return Ok(door.gate.admit_caller().map(|colour| (at, colour)));
        };
        let mut started = Started::default();
        let each = &mut |_, entry| started.push(entry);
        let front = door.gate.front();
        let colour = fronts
            .slots
            .admit_now(front, each)
            .then(|| door.gate.enter());
        drop(door);
        started.settle(self);
        Ok(colour.map(|colour| (front, colour)))
    }

    /// H3: runs it as an item of this queue.
    fn run_here<T, F: FnOnce() -> T>(
        self: &Arc<Self>,
        gate: usize,
        f: F,
    ) -> (Result<T, JoinError>, Ended) {
        self.started(gate);
        self.system.watch();
        let traced = trace::is_on(self.env());
        let tell = |step| {
            if traced {
                trace::tell(self.env(), self.name(), type_name::<F>(), step);
            }
        };
        tell(TraceStep::Queued);
        tell(TraceStep::Activated);
        tell(TraceStep::Started);
        match caught(f) {
            Ok(value) => {
                tell(TraceStep::Ended);
                (Ok(value), Ended::Returned)
            }
            Err(payload) => {
                let payload = PanicPayload::new(type_name::<F>(), payload);
                let message = payload.message().map(str::to_owned);
                self.panicked(type_name::<F>(), message.as_deref());
                tell(TraceStep::Panicked);
                (Err(JoinError::Panicked(payload)), Ended::Panicked(message))
            }
        }
    }
}
