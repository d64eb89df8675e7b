//! A state of the exploration, the events that may follow, and the invariants of each step.

use crate::machine::list::{List, Place};
use crate::machine::mutation::{Mutant, Mutation};
use crate::machine::{Action, Caps, Deferral, Flags, Id, Left, Machine, Step};
use inflight_sync::time::Instant;
use std::collections::HashSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    NotSubmitted,
    Waiting,
    Data,
    /// Its durable write is in the device's cache.
    Cached,
    /// The device has answered the durable write, and the call has not returned.
    Told(Result<(), ()>),
    Ended(Result<(), ()>),
    /// It has left the list, or given its data up.
    Gone,
}

/// Sets of requests are masks.
type Set = u8;

#[derive(Clone, PartialEq, Eq, Hash)]
struct World {
    machine: Machine<()>,
    now: Instant,
    stages: Vec<Stage>,
    ids: Vec<Option<Id>>,
    /// Whose data the device has written, and whose it cannot lose.
    written: Set,
    durable: Set,
    /// What had completed when each request was submitted.
    before: Vec<Set>,
    flushing: Option<Flushing>,
    flushes_of: Vec<u8>,
    /// What the device has dropped; whether it still has to report that; and what of it the machine
    /// knows.
    lost: Set,
    untold: bool,
    reported: Set,
    /// What was reported as lost before each request's first flush was issued.
    reported_before: Vec<Set>,
}

/// The flush at the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Flushing {
    generation: u64,
    covers: Set,
    told: Option<Result<(), ()>>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Submit(usize),
    DataDone(usize, Result<(), ()>),
    FlushDone(Result<(), ()>),
    Timeout,
    Leave(usize),
    /// The device drops its cache.
    Lose,
    /// The durable write is in the cache.
    Cache(usize),
    /// The device answers a call.
    Tell(usize),
    TellFlush,
    /// The owner of a durable write does not wait for its end.
    GiveUp(usize),
}

/// What may happen in a world beside submissions and completions.
#[derive(Clone, Copy)]
pub(super) struct Faults {
    pub(super) errors: bool,
    pub(super) leaving: bool,
    pub(super) timer: bool,
    /// The device drops its cache once. The only errors are then its reports of that.
    pub(super) loss: bool,
}

pub(super) struct Setting {
    pub(super) kinds: Vec<Flags>,
    pub(super) exclusive: bool,
    pub(super) caps: Caps,
    pub(super) deferral: Deferral,
    pub(super) faults: Faults,
    pub(super) mutation: Option<Mutation>,
}

impl Setting {
    fn start(&self) -> World {
        let mut machine = Machine::new(self.caps, self.deferral)
            .exclusive(self.exclusive)
            .tells_once(true);
        machine.mutant = Mutant(self.mutation);
        let count = self.kinds.len();
        World {
            machine,
            now: Instant::default(),
            stages: vec![Stage::NotSubmitted; count],
            ids: vec![None; count],
            written: 0,
            durable: 0,
            before: vec![0; count],
            flushing: None,
            flushes_of: vec![0; count],
            lost: 0,
            untold: false,
            reported: 0,
            reported_before: vec![0; count],
        }
    }

    fn writes_durably(&self, r: usize) -> bool {
        self.kinds[r].fua && self.caps.native_fua
    }

    fn events(&self, world: &World) -> Vec<Event> {
        let mut events = Vec::new();
        let results = |event: &dyn Fn(Result<(), ()>) -> Event, events: &mut Vec<Event>| {
            events.push(event(Ok(())));
            if self.faults.errors {
                events.push(event(Err(())));
            }
        };
        for (r, stage) in world.stages.iter().enumerate() {
            match stage {
                Stage::NotSubmitted => events.push(Event::Submit(r)),
                Stage::Data if self.faults.loss && self.writes_durably(r) => {
                    events.push(Event::Cache(r));
                }
                Stage::Cached => events.push(Event::Tell(r)),
                Stage::Told(result) => {
                    events.push(Event::DataDone(r, *result));
                    events.push(Event::GiveUp(r));
                }
                Stage::Data => results(&|e| Event::DataDone(r, e), &mut events),
                Stage::Waiting if self.faults.leaving => events.push(Event::Leave(r)),
                _ => {}
            }
        }
        match world.flushing {
            Some(_) if !self.faults.loss => results(&Event::FlushDone, &mut events),
            Some(Flushing { told: None, .. }) => events.push(Event::TellFlush),
            Some(Flushing {
                told: Some(result), ..
            }) => events.push(Event::FlushDone(result)),
            None => {}
        }
        if self.faults.loss && world.lost == 0 && world.written & !world.durable != 0 {
            events.push(Event::Lose);
        }
        if self.faults.timer
            && world
                .machine
                .next_deadline()
                .is_some_and(|at| at > world.now)
        {
            events.push(Event::Timeout);
        }
        events
    }

    /// The world after an event.
    fn step(&self, world: &World, event: Event) -> Result<World, String> {
        let mut next = world.clone();
        let mut actions = Vec::new();
        match event {
            Event::Submit(r) => {
                next.before[r] = next.completed_writes();
                let submitted = next.machine.submit(next.now, self.kinds[r], &mut actions);
                next.ids[r] = Some(submitted.expect("such flags exist"));
                next.stages[r] = Stage::Waiting;
            }
            Event::DataDone(r, result) => {
                if result.is_ok() && world.stages[r] == Stage::Data {
                    next.written |= 1 << r;
                    if self.writes_durably(r) || !self.caps.volatile_cache {
                        next.durable |= 1 << r;
                    }
                }
                next.data_done(r, result, &mut actions);
            }
            Event::GiveUp(r) => next.data_done(r, Err(()), &mut actions),
            Event::FlushDone(result) => {
                let flush = next.flushing.take().expect("in flight");
                if result.is_ok() && flush.told.is_none() {
                    next.durable |= flush.covers;
                }
                next.flush_done(flush.generation, result, &mut actions);
            }
            Event::Lose => {
                next.lost = next.written & !next.durable;
                next.untold = true;
            }
            Event::Cache(r) => {
                next.written |= 1 << r;
                next.stages[r] = Stage::Cached;
                next.machine.data_begun(next.ids[r].expect("submitted"));
            }
            Event::Tell(r) => next.stages[r] = Stage::Told(next.tell(1 << r)),
            Event::TellFlush => {
                let mut flush = next.flushing.expect("in flight");
                flush.told = Some(next.tell(flush.covers));
                next.flushing = Some(flush);
            }
            Event::Timeout => {
                next.now = next.machine.next_deadline().expect("asked for before");
                next.machine.tick(next.now, &mut actions);
            }
            Event::Leave(r) => {
                let id = next.ids[r].take().expect("submitted");
                let left = next.machine.leave(id);
                next.machine.release(id);
                next.stages[r] = Stage::Gone;
                if let (Left::Running, Some(flush)) = (left, next.flushing) {
                    if next.machine.first_waiting(flush.generation).is_none() {
                        next.flushing = None;
                        if flush.told.is_some() {
                            next.flush_done(flush.generation, Err(()), &mut actions);
                        } else {
                            let now = next.now;
                            next.machine.withdraw(now, flush.generation, &mut actions);
                        }
                    }
                }
            }
        }
        for action in actions {
            self.perform(&mut next, action)?;
        }
        if self.mutation.is_none() {
            next.count(world.owed())?;
        }
        next.forget_statistics();
        Ok(next)
    }

    fn perform(&self, world: &mut World, action: Action<()>) -> Result<(), String> {
        match action {
            Action::IssueFlush { generation, first } => {
                if world.flushing.is_some() {
                    return Err("two flushes in flight".to_owned());
                }
                if world.stages[world.request(first)] != Stage::Waiting {
                    return Err("the first waiter does something else".to_owned());
                }
                for r in 0..world.stages.len() {
                    let entry = world.ids[r].map(|id| *world.machine.requests.get(id));
                    let Some(entry) = entry else { continue };
                    if entry.place != Place::Waiting(generation) {
                        continue;
                    }
                    if entry.left.next() == Some(Step::Pre) {
                        world.reported_before[r] = world.reported;
                    }
                    world.flushes_of[r] += 1;
                    if world.flushes_of[r] > 2 {
                        return Err(format!("request {r} needs three flushes"));
                    }
                }
                world.flushing = Some(Flushing {
                    generation,
                    covers: world.written,
                    told: None,
                });
            }
            Action::Dispatch(id) => {
                let r = world.request(id);
                if world.stages[r] != Stage::Waiting {
                    return Err(format!("request {r} is started in {:?}", world.stages[r]));
                }
                let missing = world.before[r] & !world.durable & !world.reported_before[r];
                if self.kinds[r].preflush && missing != 0 {
                    return Err(format!("request {r} starts before {missing:b} is durable"));
                }
                world.stages[r] = Stage::Data;
                if !self.faults.loss {
                    world.machine.data_begun(id);
                }
            }
            Action::Complete(id, result) => {
                let r = world.request(id);
                if world.stages[r] != Stage::Waiting {
                    return Err(format!("request {r} ends in {:?}", world.stages[r]));
                }
                world.stages[r] = Stage::Ended(result);
                world.ids[r] = None;
                world.machine.release(id);
                if result.is_ok() {
                    let own = if self.kinds[r].fua { 1 << r } else { 0 };
                    let earlier = if self.kinds[r].preflush {
                        world.before[r] & !world.reported_before[r]
                    } else {
                        0
                    };
                    let missing = (own | earlier) & !world.durable;
                    if missing != 0 {
                        return Err(format!("request {r} ends before {missing:b} is durable"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Explores every state that can be reached. Returns how many there are, or what was wrong.
    pub(super) fn explore(&self) -> Result<usize, String> {
        let start = self.start();
        let mut seen = HashSet::from([start.clone()]);
        let mut todo = vec![start];
        while let Some(world) = todo.pop() {
            let events = self.events(&world);
            let stuck = (0..world.stages.len()).find(|&r| events.is_empty() && world.waits(r));
            if let Some(r) = stuck {
                return Err(format!("request {r} waits for ever"));
            }
            for event in events {
                let next = self.step(&world, event);
                let next = next.map_err(|what| format!("{event:?}: {what}"))?;
                if seen.insert(next.clone()) {
                    todo.push(next);
                }
            }
        }
        Ok(seen.len())
    }
}

impl World {
    fn request(&self, id: Id) -> usize {
        let found = self.ids.iter().position(|&own| own == Some(id));
        found.expect("the request of an action")
    }

    /// The device answers a call that is to make `covers` durable.
    fn tell(&mut self, covers: Set) -> Result<(), ()> {
        self.durable |= covers & !self.lost;
        if std::mem::take(&mut self.untold) {
            return Err(());
        }
        Ok(())
    }

    fn data_done(&mut self, r: usize, result: Result<(), ()>, actions: &mut Vec<Action<()>>) {
        if let (Stage::Told(_), Err(())) = (self.stages[r], result) {
            self.reported = self.lost;
        }
        self.stages[r] = Stage::Waiting;
        let id = self.ids[r].expect("submitted");
        self.machine.data_done(self.now, id, result, actions);
    }

    fn flush_done(&mut self, of: u64, result: Result<(), ()>, actions: &mut Vec<Action<()>>) {
        if result.is_err() {
            self.reported = self.lost;
        }
        self.machine.flush_done(self.now, of, result, actions);
    }

    /// Writes whose completion a submitter can have seen.
    fn completed_writes(&self) -> Set {
        let done = |r: &usize| matches!(self.stages[*r], Stage::Ended(Ok(())));
        let ended: Set = (0..self.stages.len()).filter(done).map(|r| 1 << r).sum();
        ended & self.written
    }

    /// Makes worlds equal that differ only in statistics, or in times that are not read any more.
    fn forget_statistics(&mut self) {
        let machine = &mut self.machine;
        // What matters of the number of failures is whether it has risen.
        let errors = std::mem::take(&mut machine.counters).errors;
        let risen = |before: &mut u64| *before = u64::from(errors == *before);
        machine.counters.errors = 1;
        machine.last_error = Some(());
        risen(&mut machine.failed_at_issue);
        let mut calls: Vec<&mut u64> = machine.flush_call.iter_mut().collect();
        for entry in machine.requests.iter_mut() {
            risen(&mut entry.failed_before);
            if let Place::Data { call, .. } = &mut entry.place {
                calls.extend(call);
            }
        }
        machine.calls.renumber(&mut calls);
        machine.issued_at = Instant::default();
        if !machine.exclusive {
            (machine.writes, machine.writes_at_issue) = (0, 0);
            machine.writes_flushed = None;
        }
        for list in &mut machine.waiting {
            if list.is_empty() {
                *list = List::new();
            }
        }
        if machine.waiting.iter().all(List::is_empty) {
            self.now = Instant::default();
        }
        for id in self.ids.iter().flatten() {
            machine.requests.get_mut(*id).joined = Instant::default();
        }
    }

    /// Flushes that were asked for and neither issued nor given up, one for each request.
    fn owed(&self) -> u64 {
        let owed = |id: &Id| {
            let entry = self.machine.requests.get(*id);
            let left = u64::from(entry.left.has(Step::Pre)) + u64::from(entry.left.has(Step::Post));
            match entry.place {
                Place::Waiting(generation) if generation < self.machine.open => left - 1,
                Place::Ended | Place::Free => 0,
                _ => left,
            }
        };
        self.ids.iter().flatten().map(owed).sum()
    }

    /// Each flush that was asked for in this step, or was owed before it, is counted once.
    fn count(&self, owed: u64) -> Result<(), String> {
        let c = self.machine.counters;
        let ended = c.merged + c.elided + c.failed_before + c.cancelled;
        if owed + c.requested() == ended + self.owed() {
            return Ok(());
        }
        Err(format!("{owed} owed, then {}: {c:?}", self.owed()))
    }

    fn waits(&self, r: usize) -> bool {
        matches!(self.stages[r], Stage::Waiting | Stage::Data)
    }
}
