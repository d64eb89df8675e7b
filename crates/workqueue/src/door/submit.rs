//! The way of an item into a queue: at once, at its time, or from one time to another.

use super::{Door, DoorState, Shared, Spot};
use crate::attrs::{Cpus, Kind};
use crate::error::QueueError;
use crate::gate::Admitted;
use crate::item::{self, Uprooted, WorkRef};
use crate::pool::{Deed, Entry, Pool};
use crate::timekeeper::{Delayed, Poke};
use crate::trace::TraceStep;
use crate::work::{Modified, Queued};
use inflight_sync::{Arc, MutexGuard};
use std::time::Duration;

/// After how long an item is tried again whose time came when its pool could get no worker.
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// Q1 to Q3 are done: an item can enter this gate on its way to this pool, and nothing can fail.
struct Admission<'a> {
    door: MutexGuard<'a, DoorState>,
    gate: usize,
    pool: Arc<Pool>,
    may_be_running: bool,
}

/// What is left to do for an item that has entered, outside all locks.
#[must_use]
struct Entered {
    deed: Deed,
    active: bool,
    /// Where it was before.
    old: Option<item::Spot>,
}

impl Entered {
    fn settle(self, queue: &Arc<Shared>, work: &WorkRef) {
        self.deed.perform();
        drop(self.old);
        queue.trace(work, TraceStep::Queued);
        if self.active {
            queue.trace(work, TraceStep::Activated);
        }
        queue.system.watch();
    }
}

impl Shared {
    /// Which gate and place an item queued on `cpu` goes to, given the pool that runs it already.
    pub(super) fn route(&self, cpu: usize, runner: Option<&Arc<Pool>>) -> (usize, usize) {
        let place = match runner.map(|pool| &pool.place().cpus) {
            // Bound to bound: it counts where it runs.
            Some(Cpus::One(at)) if self.kind == Kind::Bound => self.layout.place_of(*at),
            _ => self.layout.place_of(cpu),
        };
        match self.kind {
            Kind::Bound => (place, place),
            Kind::Unbound(_) | Kind::Ordered(_) => (0, place),
        }
    }

    /// Q1-Q3: finds the way of an item, which is locked, as if it were queued from `cpu`.
    fn admission(
        self: &Arc<Self>,
        item: &item::Place,
        cpu: usize,
    ) -> Result<Admission<'_>, QueueError> {
        let runner = item.runner().cloned();
        let (gate, place) = self.route(cpu, runner.as_ref());
        let mut door = self.gates[gate].state.lock();
        if let Some(refusal) = door.refusal(self.key()) {
            return Err(refusal);
        }
        let may_be_running = runner.is_some();
        let pool = match runner {
            Some(pool) if !Arc::ptr_eq(pool.env(), self.env()) => {
                return Err(QueueError::OtherSystem);
            }
            Some(pool) => {
                self.check_manned(&door, &pool)?;
                pool
            }
            None => self.pool(&mut door, place)?,
        };
        Ok(Admission {
            door,
            gate,
            pool,
            may_be_running,
        })
    }

    /// Q4, S3: an item with PENDING set enters. It is locked; the gate is let go.
    fn enter(
        self: &Arc<Self>,
        work: &WorkRef,
        item: &mut item::Place,
        admission: Admission<'_>,
        instance: u64,
    ) -> Entered {
        let Admission {
            mut door,
            gate,
            pool,
            may_be_running,
        } = admission;
        let admitted = door.gate.admit(|colour, active| Entry {
            work: work.clone(),
            queue: self.clone(),
            pool: (!active).then(|| pool.clone()),
            gate,
            instance,
            colour,
            may_be_running,
        });
        let (ticket, deed) = match admitted {
            Admitted::Active(entry) => (None, pool.push(entry)),
            Admitted::Inactive(ticket) => (Some(ticket), Deed::default()),
        };
        let active = ticket.is_none();
        let spot = item::Spot::Queued(Spot {
            queue: self.clone(),
            gate,
            ticket,
            pool,
        });
        let old = work.set_spot(item, instance, spot);
        Entered { deed, active, old }
    }

    /// Queues the item as if from `cpu`.
    pub(crate) fn submit(
        self: &Arc<Self>,
        work: &WorkRef,
        cpu: usize,
    ) -> Result<Queued, QueueError> {
        if let Some(refused) = work.refuses() {
            return Ok(refused);
        }
        let mut item = work.place();
        let admission = self.admission(&item, cpu)?;
        // From here on nothing fails: PENDING is never seen set for an item that is not queued.
        let instance = match work.set_pending(&mut item) {
            Ok(instance) => instance,
            Err(refused) => return Ok(refused),
        };
        let entered = self.enter(work, &mut item, admission, instance);
        drop(item);
        entered.settle(self, work);
        Ok(Queued::Queued)
    }

    /// Queues the item after `delay`, as if from `cpu`.
    pub(crate) fn submit_later(
        self: &Arc<Self>,
        work: &WorkRef,
        cpu: usize,
        delay: Duration,
    ) -> Result<Queued, QueueError> {
        if delay.is_zero() {
            return self.submit(work, cpu);
        }
        if let Some(refused) = work.refuses() {
            return Ok(refused);
        }
        let mut item = work.place();
        self.refuse_at(&item, cpu)?;
        let mut keeper = self.env().timekeeper.ready(self.env())?;
        let instance = match work.set_pending(&mut item) {
            Ok(instance) => instance,
            Err(refused) => return Ok(refused),
        };
        let (armed, poke) = keeper.arm(
            self.clock().now() + delay,
            self.delayed(work, cpu, instance),
        );
        drop(keeper);
        let old = work.set_spot(&mut item, instance, item::Spot::Armed(armed));
        debug_assert!(old.is_none(), "it was not pending");
        drop(item);
        poke.perform();
        Ok(Queued::Queued)
    }

    /// Whether pending or not, the item is to be queued after `delay`, as if from `cpu`.
    pub(crate) fn resubmit_later(
        self: &Arc<Self>,
        work: &WorkRef,
        cpu: usize,
        delay: Duration,
    ) -> Result<Modified, QueueError> {
        let item = work.place();
        if work.is_blocked(&item) {
            return Ok(Modified::Disabled);
        }
        if delay.is_zero() {
            self.move_here(work, item, cpu)
        } else {
            self.move_later(work, item, cpu, delay)
        }
    }

    /// M1-M4 to another time.
    fn move_later(
        self: &Arc<Self>,
        work: &WorkRef,
        mut item: MutexGuard<'_, item::Place>,
        cpu: usize,
        delay: Duration,
    ) -> Result<Modified, QueueError> {
        self.refuse_at(&item, cpu)?;
        drop(self.env().timekeeper.ready(self.env())?);
        let (uprooted, instance) = Self::uproot(work, &mut item);
        let armed = self.env().timekeeper.ready(self.env()).map(|mut keeper| {
            let at = self.clock().now() + delay;
            keeper.arm(at, self.delayed(work, cpu, instance))
        });
        let result = armed.map(|(armed, poke)| {
            let old = work.set_spot(&mut item, instance, item::Spot::Armed(armed));
            debug_assert!(old.is_none(), "it was uprooted");
            poke
        });
        if result.is_err() {
            work.abandon(&mut item);
        }
        drop(item);
        let result = result.map(Poke::perform);
        Self::modified(result, uprooted, work)
    }

    /// M1-M4 into this queue.
    fn move_here(
        self: &Arc<Self>,
        work: &WorkRef,
        mut item: MutexGuard<'_, item::Place>,
        cpu: usize,
    ) -> Result<Modified, QueueError> {
        // Gates are locked one at a time, so that of the old place cannot be let go later.
        drop(self.admission(&item, cpu)?);
        let (uprooted, instance) = Self::uproot(work, &mut item);
        let admission = self.admission(&item, cpu);
        let result = admission.map(|admission| self.enter(work, &mut item, admission, instance));
        if result.is_err() {
            work.abandon(&mut item);
        }
        drop(item);
        let result = result.map(|entered| entered.settle(self, work));
        Self::modified(result, uprooted, work)
    }

    /// M2: the item, pending or not, is pending nowhere.
    fn uproot(work: &WorkRef, item: &mut item::Place) -> (Option<Uprooted>, u64) {
        let uprooted = work.uproot(item);
        let instance = match &uprooted {
            Some(uprooted) => uprooted.instance,
            None => work
                .set_pending(item)
                .expect("neither pending nor disabled, and locked"),
        };
        (uprooted, instance)
    }

    fn modified(
        result: Result<(), QueueError>,
        uprooted: Option<Uprooted>,
        work: &WorkRef,
    ) -> Result<Modified, QueueError> {
        let moved = uprooted.map(|uprooted| uprooted.settle(work)).is_some();
        result?;
        Ok(if moved {
            Modified::Moved
        } else {
            Modified::Queued
        })
    }

    /// T3, T4: an item's time has come.
    pub(crate) fn expire(self: &Arc<Self>, delayed: Delayed) {
        let Delayed {
            work,
            cpu,
            instance,
            ..
        } = delayed;
        let mut item = work.place();
        if !item.is_armed(instance) {
            return; // Cancelled, or moved to another time.
        }
        match self.admission(&item, cpu) {
            Ok(admission) => {
                let entered = self.enter(&work, &mut item, admission, instance);
                drop(item);
                entered.settle(self, &work);
            }
            // Accepted items are not lost because threads are scarce.
            Err(QueueError::NoWorker(_) | QueueError::OtherSystem) => {
                let Ok(mut keeper) = self.env().timekeeper.ready(self.env()) else {
                    drop(item);
                    return self.refuse_later(&work, instance);
                };
                let at = self.clock().now() + TRY_AGAIN;
                let (armed, poke) = keeper.arm(at, self.delayed(&work, cpu, instance));
                drop(keeper);
                let old = work.set_spot(&mut item, instance, item::Spot::Armed(armed));
                drop(item);
                poke.perform();
                drop(old);
            }
            Err(_) => {
                drop(item);
                self.refuse_later(&work, instance);
            }
        }
    }

    /// T5: an item whose time has come is not queued.
    pub(crate) fn refuse_later(&self, work: &WorkRef, instance: u64) {
        if work.give_up(instance) {
            self.refused_later();
        }
    }

    /// The item, which is locked and waits for its time, is queued now.
    pub(crate) fn expedite(
        self: &Arc<Self>,
        work: &WorkRef,
        mut item: MutexGuard<'_, item::Place>,
    ) -> Result<(), QueueError> {
        let Some((armed, instance)) = item.armed() else {
            return Ok(());
        };
        let cpu = armed.cpu();
        let admission = self.admission(&item, cpu)?;
        let alarm = armed.disarm();
        let entered = self.enter(work, &mut item, admission, instance);
        drop(item);
        entered.settle(self, work);
        drop(alarm);
        Ok(())
    }

    fn delayed(self: &Arc<Self>, work: &WorkRef, cpu: usize, instance: u64) -> Delayed {
        Delayed {
            work: work.clone(),
            queue: self.clone(),
            cpu,
            instance,
        }
    }

    /// Says no now rather than when the time has come.
    fn refuse_at(self: &Arc<Self>, item: &item::Place, cpu: usize) -> Result<(), QueueError> {
        let (gate, _) = self.route(cpu, item.runner());
        let door: &Door = &self.gates[gate];
        let refusal = door.state.lock().refusal(self.key());
        refusal.map_or(Ok(()), Err)
    }

    /// The pool of a place. It has, or is about to have, at least one worker, or the queue has a
    /// rescuer.
    fn pool(&self, door: &mut DoorState, place: usize) -> Result<Arc<Pool>, QueueError> {
        let slot = if self.kind == Kind::Bound { 0 } else { place };
        if let Some(pool) = &door.pools[slot] {
            return Ok(pool.clone());
        }
        let rescued = self.rescuer.is_some();
        let pool = self.system.pool(&self.layout.places[place], rescued);
        let pool = pool.map_err(|e| QueueError::NoWorker(e.kind()))?;
        self.check_manned(door, &pool)?;
        door.pools[slot] = Some(pool.clone());
        Ok(pool)
    }

    /// A queue without a rescuer uses no pool that never had a worker. Those it knows have.
    fn check_manned(&self, door: &DoorState, pool: &Arc<Pool>) -> Result<(), QueueError> {
        let known = |p: &Arc<Pool>| Arc::ptr_eq(p, pool);
        if self.rescuer.is_some() || door.pools.iter().flatten().any(known) {
            return Ok(());
        }
        pool.man().map_err(|e| QueueError::NoWorker(e.kind()))
    }
}
