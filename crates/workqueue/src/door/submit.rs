//! The way of an item into a queue: at once, at its time, or from one time to another.

use super::fronts::{Entered, Started};
use super::mail::{Bell, Letter};
use super::{Door, DoorState, Shared};
use crate::error::QueueError;
use crate::gate::{Admitted, Gate};
use crate::item::{Instance, Item, Run, Set, Unset, Uprooted, WorkRef};
use crate::layout::Cpus;
use crate::place::Place;
use crate::pool::{Deeds, Entry};
use crate::pools::Lease;
use crate::timekeeper::{Delayed, Poke};
use crate::trace::{self, TraceStep};
use crate::work::{Modified, Queued};
use crate::worker::{self, Own};
use inflight_sync::atomic::Ordering;
use inflight_sync::recycled::Recycled;
use inflight_sync::{Arc, MutexGuard};
use std::time::Duration;

/// After how long an item is tried again whose time came when its pool could get no worker.
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// Q1 to Q3 are done: an item can enter this gate on its way to this pool, and nothing can fail.
struct Admission<'a> {
    door: MutexGuard<'a, DoorState>,
    gate: usize,
    pool: Arc<Lease>,
    /// What was in the mailbox has come.
    deeds: Deeds,
}

/// What is left to do for an item that has entered, outside all locks.
#[must_use]
struct Queueing {
    deeds: Deeds,
    active: bool,
    /// Who has become active by a limit over all gates, be it this one or another.
    started: Started,
}

impl Queueing {
    fn settle(self, queue: &Arc<Shared>, work: &WorkRef) {
        self.deeds.perform();
        queue.trace(work, TraceStep::Queued);
        if self.active {
            queue.trace(work, TraceStep::Activated);
        }
        self.started.settle(queue);
        queue.system.watch();
    }
}

impl Shared {
    /// Which gate an item queued on `cpu` goes to, given the pool that runs it already.
    pub(super) fn gate_of(&self, cpu: usize, runner: Option<&Arc<Lease>>) -> usize {
        if self.gates.len() == 1 {
            return 0;
        }
        match runner.map(|pool| &pool.place().cpus) {
            // Bound to bound: it counts where it runs.
            Some(Cpus::One(at)) if self.mode.is_bound() => self.by_cpu.place_of(*at),
            _ => self.by_cpu.place_of(cpu),
        }
    }

    /// Q1-Q3 for an item, with the pool that ran it when it was asked.
    fn admission_of(
        self: &Arc<Self>,
        work: &WorkRef,
        cpu: usize,
    ) -> Result<(Option<u32>, Admission<'_>), QueueError> {
        loop {
            let runner = work.runner();
            match self.admission(runner, cpu) {
                // That run has ended, and its pool has gone.
                Err(QueueError::OtherSystem) if work.runner() != runner => {}
                admission => return Ok((runner, admission?)),
            }
        }
    }

    /// Q1-Q3: finds the way of an item, which that pool runs now, if any, as if it were queued from
    /// `cpu`.
    fn admission(
        self: &Arc<Self>,
        runner: Option<u32>,
        cpu: usize,
    ) -> Result<Admission<'_>, QueueError> {
        let gate = self.gate_of(cpu, None);
        let (mut door, deeds) = self.open(gate);
        let place = door.layout.place_of(cpu);
        let here = door.pools[place].as_ref().map(|p| p.key());
        if runner.is_some() && runner != here {
            drop(door);
            deeds.perform();
            return self.admission_where_it_runs(runner, cpu);
        }
        let pool = match door.refusal(self.key()) {
            Some(refusal) => Err(refusal),
            None => self.pool(gate, &mut door, place),
        };
        Self::admitted(door, gate, pool, deeds)
    }

    /// As [`admission`](Shared::admission), to another pool than that of `cpu`.
    fn admission_where_it_runs(
        self: &Arc<Self>,
        runner: Option<u32>,
        cpu: usize,
    ) -> Result<Admission<'_>, QueueError> {
        let pool = runner.and_then(|key| self.system.pools().find(key));
        let pool = pool.ok_or(QueueError::OtherSystem)?;
        let gate = self.gate_of(cpu, Some(&pool));
        let (door, deeds) = self.open(gate);
        let pool = match door.refusal(self.key()) {
            Some(refusal) => Err(refusal),
            None => self.check_manned(&door, &pool).map(|()| pool),
        };
        Self::admitted(door, gate, pool, deeds)
    }

    fn admitted(
        door: MutexGuard<'_, DoorState>,
        gate: usize,
        pool: Result<Arc<Lease>, QueueError>,
        deeds: Deeds,
    ) -> Result<Admission<'_>, QueueError> {
        match pool {
            Ok(pool) => Ok(Admission {
                door,
                gate,
                pool,
                deeds,
            }),
            Err(refusal) => {
                drop(door);
                deeds.perform();
                Err(refusal)
            }
        }
    }

    /// The gate counts an item. The entry, if it is active: it is to go to its pool.
    pub(super) fn admit(
        self: &Arc<Self>,
        limit: &mut Gate<Entry>,
        work: WorkRef,
        set: Set,
        gate: usize,
        pool: &Arc<Lease>,
    ) -> Entered {
        let gate = match self.fronts {
            Some(_) => limit.front(),
            None => gate,
        };
        let entry = |work, active: bool, colour| Entry {
            work,
            queue: self.clone(),
            pool: (!active).then(|| pool.clone()),
            gate,
            instance: set.instance,
            colour,
            may_be_running: set.may_be_running,
        };
        if let Some(fronts) = &self.fronts {
            let colour = limit.enter();
            return match fronts.slots.try_admit(gate) {
                Ok(()) => {
                    work.set_ticket(None);
                    Entered::Active(entry(work, true, colour))
                }
                Err(why) => Entered::Full(entry(work, false, colour), why),
            };
        }
        let admitted = limit.admit(|ticket, colour| {
            work.set_ticket(ticket);
            entry(work, ticket.is_none(), colour)
        });
        match admitted {
            Admitted::Active(entry) => Entered::Active(entry),
            Admitted::Inactive(_) => Entered::Inactive,
        }
    }

    /// The gate of a front end counts an item that is to wait.
    pub(super) fn inactive(
        self: &Arc<Self>,
        counts: &mut Gate<Entry>,
        work: WorkRef,
        set: Set,
        pool: &Arc<Lease>,
    ) -> Entry {
        Entry {
            work,
            queue: self.clone(),
            pool: Some(pool.clone()),
            gate: counts.front(),
            instance: set.instance,
            colour: counts.enter(),
            may_be_running: set.may_be_running,
        }
    }

    /// Q4, S3: an item with PENDING set enters; the gate is let go.
    fn enter(self: &Arc<Self>, work: &WorkRef, admission: Admission<'_>, set: Set) -> Queueing {
        let Admission {
            mut door,
            gate,
            pool,
            mut deeds,
        } = admission;
        work.set_gate(gate);
        let mut started = Started::default();
        let mut active = false;
        match self.admit(&mut door.gate, work.clone(), set, gate, &pool) {
            Entered::Active(entry) => {
                active = true;
                deeds.push(pool.push(entry));
            }
            Entered::Inactive => {}
            Entered::Full(entry, why) => {
                if let Some(fronts) = &self.fronts {
                    fronts.admit_slowly(entry, why, &mut started);
                }
            }
        }
        Queueing {
            deeds,
            active,
            started,
        }
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
        work.settle_in(self.key(), || self.home(cpu));
        // Traces are told in the order of the steps.
        if !trace::is_on(self.env()) {
            if let Some(queued) = self.post(&**work, cpu, &mut || work.clone()) {
                return Ok(queued);
            }
        }
        self.submit_to_gate(work, cpu)
    }

    /// Queues an item that only the caller knows, and that goes through no other queue. `work` is a
    /// pointer to it of the queue's own.
    pub(crate) fn submit_new<R: Run + 'static>(
        self: &Arc<Self>,
        item: &Item<R>,
        work: Recycled<Item<R>>,
        cpu: usize,
    ) -> Result<Queued, QueueError> {
        let mut work = Some(work);
        let mut handle = || -> WorkRef {
            let work = work.take().expect("it goes one way");
            Recycled::unsize(work, |item| item)
        };
        if !trace::is_on(self.env()) {
            if let Some(queued) = self.post(item, cpu, &mut handle) {
                return Ok(queued);
            }
        }
        self.submit_to_gate(&handle(), cpu)
    }

    /// S1 to S3, by way of the gate.
    fn submit_to_gate(self: &Arc<Self>, work: &WorkRef, cpu: usize) -> Result<Queued, QueueError> {
        loop {
            let (_, admission) = self.admission_of(work, cpu)?;
            // From here on nothing fails: PENDING is never seen set for an item that is not queued.
            match work.set_pending(Some(admission.pool.key())) {
                Ok(set) => {
                    let entered = self.enter(work, admission, set);
                    entered.settle(self, work);
                    return Ok(Queued::Queued);
                }
                Err(unset) => {
                    let Admission { door, deeds, .. } = admission;
                    drop(door);
                    deeds.perform();
                    if let Unset::Answer(answer) = unset {
                        return Ok(answer);
                    }
                }
            }
        }
    }

    /// V1: puts the item into the mailbox, which somebody empties soon. `None` if it has to ask the
    /// gate.
    fn post<R: Run + ?Sized>(
        self: &Arc<Self>,
        work: &Item<R>,
        cpu: usize,
        handle: &mut impl FnMut() -> WorkRef,
    ) -> Option<Queued> {
        let gate = self.gate_of(cpu, None);
        let door = &self.gates[gate];
        if door.letters() == 0 {
            match worker::keep(self, gate, work, handle) {
                Own::Answer(queued) => return Some(queued),
                Own::Enter => return None,
                Own::Post => {}
            }
        }
        let mailbox = &door.mail;
        let mut guard = mailbox.inside.lock();
        let mail = &mut *guard;
        let place = mail.layout.place_of(cpu);
        let bell = mail.bells[place].as_mut().filter(|_| !mail.closed)?;
        let set = match work.set_pending(Some(bell.pool.key())) {
            Ok(set) => set,
            Err(Unset::Answer(answer)) => return Some(answer),
            Err(Unset::RunsElsewhere) => return None,
        };
        work.set_gate(gate);
        // Who puts in the first letter for a pool rings there.
        let first = !std::mem::replace(&mut bell.rung, true);
        let ring = first.then(|| bell.pool.clone());
        mail.letters.push_back(Letter {
            work: handle(),
            set,
            pool: place,
        });
        // Relaxed: as said where it is.
        mailbox.letters.store(mail.letters.len(), Ordering::Relaxed);
        drop(guard);
        if let Some(pool) = ring {
            pool.ring(self, gate).perform();
        }
        self.system.watch();
        Some(Queued::Queued)
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
        work.settle_in(self.key(), || self.home(cpu));
        let mut item = work.place();
        self.refuse_at(work, cpu)?;
        let mut keeper = self.env().timekeeper.ready(self.env())?;
        let set = match work.set_pending(None) {
            Ok(set) => set,
            Err(Unset::Answer(answer)) => return Ok(answer),
            Err(Unset::RunsElsewhere) => unreachable!("it goes to no pool"),
        };
        let (armed, poke) = keeper.arm(
            self.clock().now() + delay,
            self.delayed(work, cpu, set.instance),
        );
        drop(keeper);
        let old = item.arm(armed, set.instance);
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
        mut item: MutexGuard<'_, Place>,
        cpu: usize,
        delay: Duration,
    ) -> Result<Modified, QueueError> {
        self.refuse_at(work, cpu)?;
        drop(self.env().timekeeper.ready(self.env())?);
        let (uprooted, instance) = Self::uproot(work, &mut item);
        let armed = self.env().timekeeper.ready(self.env()).map(|mut keeper| {
            let at = self.clock().now() + delay;
            keeper.arm(at, self.delayed(work, cpu, instance))
        });
        let result = armed.map(|(armed, poke)| {
            let old = item.arm(armed, instance);
            debug_assert!(old.is_none(), "it was uprooted");
            poke
        });
        if result.is_err() {
            work.abandon(&mut item);
        }
        let old = work.move_home(&mut item, self.key(), self.home(cpu));
        drop(item);
        drop(old);
        let result = result.map(Poke::perform);
        Self::modified(result, uprooted, work)
    }

    /// M1-M4 into this queue.
    fn move_here(
        self: &Arc<Self>,
        work: &WorkRef,
        mut item: MutexGuard<'_, Place>,
        cpu: usize,
    ) -> Result<Modified, QueueError> {
        // Gates are locked one at a time, so that of the old place cannot be let go later.
        let (_, Admission { door, deeds, .. }) = self.admission_of(work, cpu)?;
        drop(door);
        let (uprooted, instance) = Self::uproot(work, &mut item);
        let old = work.move_home(&mut item, self.key(), self.home(cpu));
        let entered = self.enter_pending(work, cpu, instance);
        if entered.is_err() {
            work.abandon(&mut item);
        }
        drop(item);
        drop(old);
        deeds.perform();
        let result = entered.map(|entered| entered.settle(self, work));
        Self::modified(result, uprooted, work)
    }

    /// Q1-Q4 for an item that is pending already, and locked.
    fn enter_pending(
        self: &Arc<Self>,
        work: &WorkRef,
        cpu: usize,
        instance: Instance,
    ) -> Result<Queueing, QueueError> {
        // If it runs, that run may end meanwhile, but no other can begin.
        let (runner, admission) = self.admission_of(work, cpu)?;
        let set = Set {
            instance,
            may_be_running: runner.is_some(),
        };
        Ok(self.enter(work, admission, set))
    }

    /// M2: the item, pending or not, is pending nowhere.
    fn uproot(work: &WorkRef, item: &mut Place) -> (Option<Uprooted>, Instance) {
        loop {
            if let Some(uprooted) = work.uproot(item) {
                let instance = uprooted.instance;
                return (Some(uprooted), instance);
            }
            // Another call may queue it in between: then it is taken from there.
            if let Ok(set) = work.set_pending(None) {
                return (None, set.instance);
            }
        }
    }

    fn modified(
        result: Result<(), QueueError>,
        uprooted: Option<Uprooted>,
        work: &WorkRef,
    ) -> Result<Modified, QueueError> {
        let moved = uprooted.map(|uprooted| uprooted.settle(work)).is_some();
        if result.is_err() {
            // M4: whoever found it pending meanwhile waits for nothing.
            work.tell();
        }
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
        match self.enter_pending(&work, cpu, instance) {
            Ok(entered) => {
                let armed = item.disarmed();
                drop(item);
                entered.settle(self, &work);
                drop(armed);
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
                let old = item.arm(armed, instance);
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
    pub(crate) fn refuse_later(&self, work: &WorkRef, instance: Instance) {
        if work.give_up(instance) {
            self.refused_later();
        }
    }

    /// The item, which is locked and waits for its time, is queued now.
    pub(crate) fn expedite(
        self: &Arc<Self>,
        work: &WorkRef,
        mut item: MutexGuard<'_, Place>,
    ) -> Result<(), QueueError> {
        let Some((armed, instance)) = item.armed() else {
            return Ok(());
        };
        let entered = self.enter_pending(work, armed.cpu(), instance)?;
        let alarm = armed.disarm();
        let armed = item.disarmed();
        drop(item);
        entered.settle(self, work);
        drop(alarm);
        drop(armed);
        Ok(())
    }

    fn delayed(self: &Arc<Self>, work: &WorkRef, cpu: usize, instance: Instance) -> Delayed {
        Delayed {
            work: work.clone(),
            queue: self.clone(),
            cpu,
            instance,
        }
    }

    /// Says no now rather than when the time has come.
    fn refuse_at(self: &Arc<Self>, work: &WorkRef, cpu: usize) -> Result<(), QueueError> {
        let runner = work.runner().and_then(|key| self.system.pools().find(key));
        let door: &Door = &self.gates[self.gate_of(cpu, runner.as_ref())];
        let refusal = door.state.lock().refusal(self.key());
        refusal.map_or(Ok(()), Err)
    }

    /// The pool of a place. It has, or is about to have, at least one worker, or the queue has a
    /// rescuer.
    pub(super) fn pool(
        &self,
        gate: usize,
        door: &mut DoorState,
        place: usize,
    ) -> Result<Arc<Lease>, QueueError> {
        if let Some(pool) = &door.pools[place] {
            return Ok(pool.clone());
        }
        let rescued = self.rescuer.is_some();
        let pool = self.system.pool(&door.layout.places[place], rescued);
        let pool = pool.map_err(|e| QueueError::NoWorker(e.kind()))?;
        self.check_manned(door, &pool)?;
        door.pools[place] = Some(pool.clone());
        self.gates[gate].mail.inside.lock().bells[place] = Some(Bell {
            pool: pool.clone(),
            rung: false,
        });
        Ok(pool)
    }

    /// A queue without a rescuer uses no pool that never had a worker. Those it knows have.
    fn check_manned(&self, door: &DoorState, pool: &Arc<Lease>) -> Result<(), QueueError> {
        let known = |p: &Arc<Lease>| Arc::ptr_eq(p, pool);
        if self.rescuer.is_some() || door.pools.iter().flatten().any(known) {
            return Ok(());
        }
        pool.man().map_err(|e| QueueError::NoWorker(e.kind()))
    }
}
