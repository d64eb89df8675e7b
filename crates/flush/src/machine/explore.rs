//! Every order of events that two to four requests allow, on the machine as it is shipped.
//!
//! A state is the machine and the world around it: what each request has done, what the device has
//! written, and which of it is durable. From each state every possible event is tried. What must
//! hold is looked at in each step, and at the end nobody is left waiting.
//!
//! Found by it, when a step is left out on purpose: see [`mutations_are_noticed`].

use super::list::{List, Place};
use super::mutation::{Mutant, Mutation};
use super::{Action, Caps, Counters, Deferral, Flags, Id, Left, Machine, Step};
use inflight_sync::time::Instant;
use std::collections::HashSet;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_millis(10);
const KINDS: [Flags; 4] = [
    Flags::flush(),
    Flags::write().preflush(),
    Flags::write().fua(),
    Flags::write().preflush().fua(),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    NotSubmitted,
    Waiting,
    Data,
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
    /// The flush at the device, and the data it covers.
    flushing: Option<(u64, Set)>,
    flushes_of: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Submit(usize),
    DataDone(usize, Result<(), ()>),
    FlushDone(Result<(), ()>),
    Timeout,
    Leave(usize),
}

/// What may happen in a world beside submissions and completions.
#[derive(Clone, Copy)]
struct Faults {
    errors: bool,
    leaving: bool,
    timer: bool,
}

struct Setting {
    kinds: Vec<Flags>,
    exclusive: bool,
    caps: Caps,
    deferral: Deferral,
    faults: Faults,
    mutation: Option<Mutation>,
}

impl Setting {
    fn start(&self) -> World {
        let mut machine = Machine::new(self.caps, self.deferral).exclusive(self.exclusive);
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
        }
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
                Stage::Data => results(&|e| Event::DataDone(r, e), &mut events),
                Stage::Waiting if self.faults.leaving => events.push(Event::Leave(r)),
                _ => {}
            }
        }
        if world.flushing.is_some() {
            results(&Event::FlushDone, &mut events);
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
                next.stages[r] = Stage::Waiting;
                if result.is_ok() {
                    next.written |= 1 << r;
                    let passes_cache = self.kinds[r].fua && self.caps.native_fua;
                    if passes_cache || !self.caps.volatile_cache {
                        next.durable |= 1 << r;
                    }
                }
                let id = next.ids[r].expect("submitted");
                next.machine.data_done(next.now, id, result, &mut actions);
            }
            Event::FlushDone(result) => {
                let (generation, covered) = next.flushing.take().expect("in flight");
                if result.is_ok() {
                    next.durable |= covered;
                }
                next.machine
                    .flush_done(next.now, generation, result, &mut actions);
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
                let generation = next.flushing.map(|(generation, _)| generation);
                if let (Left::Running, Some(generation)) = (left, generation) {
                    if next.machine.first_waiting(generation).is_none() {
                        next.flushing = None;
                        next.machine.withdraw(next.now, generation, &mut actions);
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
                    let place = world.ids[r].map(|id| world.machine.requests.get(id).place);
                    world.flushes_of[r] += u8::from(place == Some(Place::Waiting(generation)));
                    if world.flushes_of[r] > 2 {
                        return Err(format!("request {r} needs three flushes"));
                    }
                }
                world.flushing = Some((generation, world.written));
            }
            Action::Dispatch(id) => {
                let r = world.request(id);
                if world.stages[r] != Stage::Waiting {
                    return Err(format!("request {r} is started in {:?}", world.stages[r]));
                }
                let missing = world.before[r] & !world.durable;
                if self.kinds[r].preflush && missing != 0 {
                    return Err(format!("request {r} starts before {missing:b} is durable"));
                }
                world.stages[r] = Stage::Data;
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
                        world.before[r]
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

    /// Every state that can be reached. How many, or what was wrong.
    fn explore(&self) -> Result<usize, String> {
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

    /// Writes whose completion a submitter can have seen.
    fn completed_writes(&self) -> Set {
        let done = |r: &usize| matches!(self.stages[*r], Stage::Ended(Ok(())));
        let ended: Set = (0..self.stages.len()).filter(done).map(|r| 1 << r).sum();
        ended & self.written
    }

    /// Worlds that only statistics, or times that nobody looks at, tell apart are one.
    fn forget_statistics(&mut self) {
        let machine = &mut self.machine;
        machine.counters = Counters::default();
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

    /// Flushes that were asked for and neither issued nor given up, one for each who asks.
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

/// All multisets of `count` of the kinds.
fn combinations(of: &[Flags], count: usize) -> Vec<Vec<Flags>> {
    let Some(fewer) = count.checked_sub(1) else {
        return vec![Vec::new()];
    };
    let mut all = Vec::new();
    for (from, &first) in of.iter().enumerate() {
        for mut rest in combinations(&of[from..], fewer) {
            rest.push(first);
            all.push(rest);
        }
    }
    all
}

const NO_FAULTS: Faults = Faults {
    errors: false,
    leaving: false,
    timer: false,
};
const ALL_FAULTS: Faults = Faults {
    errors: true,
    leaving: true,
    timer: true,
};
/// Without the timer, which would hide that somebody is stuck.
const NO_TIMER: Faults = Faults {
    timer: false,
    ..ALL_FAULTS
};

fn settings(kinds: &[Flags], count: usize, devices: &[Caps], faults: Faults) -> Vec<Setting> {
    let mut all = Vec::new();
    for kinds in combinations(kinds, count) {
        for &caps in devices {
            for deferral in [Deferral::Off, Deferral::Bounded(TIMEOUT)] {
                all.push(Setting {
                    kinds: kinds.clone(),
                    exclusive: false,
                    caps,
                    deferral,
                    faults,
                    mutation: None,
                });
            }
        }
    }
    all
}

fn explore_each(settings: Vec<Setting>) -> usize {
    let explored = settings.into_iter().map(|setting| {
        let states = setting.explore();
        states.unwrap_or_else(|what| panic!("{:?} on {:?}: {what}", setting.kinds, setting.caps))
    });
    explored.sum()
}

/// No request waits for more than two flushes, either: see [`Setting::perform`].
#[test]
fn two_requests_with_every_fault() {
    let devices = [Caps::volatile(), Caps::volatile_with_fua(), Caps::durable()];
    for faults in [ALL_FAULTS, NO_TIMER] {
        let states = explore_each(settings(&KINDS, 2, &devices, faults));
        assert!(states > 1_550, "{states}");
    }
}

/// Without the timer, too, nobody waits for ever: a flush is deferred by data only, whose end
/// issues it.
#[test]
fn three_requests_with_every_fault() {
    let devices = [Caps::volatile(), Caps::volatile_with_fua()];
    for faults in [ALL_FAULTS, NO_TIMER] {
        let states = explore_each(settings(&KINDS, 3, &devices, faults));
        assert!(states > 37_551, "{states}");
    }
}

#[test]
fn four_requests() {
    let states = explore_each(settings(&KINDS, 4, &[Caps::volatile()], NO_FAULTS));
    assert!(states > 355_033, "{states}");
}

fn exclusive(count: usize, faults: Faults) -> Vec<Setting> {
    let kinds = [Flags::flush(), Flags::write(), Flags::write().fua()];
    let devices = [Caps::volatile(), Caps::volatile_with_fua()];
    let mut settings = settings(&kinds, count, &devices, faults);
    settings.iter_mut().for_each(|s| s.exclusive = true);
    settings
}

/// A domain that sees all writes ends a flush at once if there is nothing to flush; what completed
/// before is durable all the same.
#[test]
fn four_requests_of_an_exclusive_domain() {
    let states = explore_each(exclusive(3, ALL_FAULTS)) + explore_each(exclusive(4, NO_FAULTS));
    assert!(states > 300_000, "{states}");
}

#[test]
fn mutations_are_noticed() {
    let volatile = || settings(&KINDS, 3, &[Caps::volatile()], NO_FAULTS);
    for (mutation, settings, word) in [
        (Mutation::JoinRunning, volatile(), "durable"),
        (Mutation::NoIssueAfterData, volatile(), "for ever"),
        (Mutation::NoIssueAfterFlush, volatile(), "for ever"),
        (Mutation::IssueTwice, volatile(), "two flushes"),
        (Mutation::CleanAtEnd, exclusive(3, NO_FAULTS), "durable"),
    ] {
        let broken = settings.into_iter().map(|setting| Setting {
            mutation: Some(mutation),
            ..setting
        });
        let found: Vec<String> = broken.filter_map(|s| s.explore().err()).collect();
        assert!(
            found.iter().any(|what| what.contains(word)),
            "{mutation:?}: {:?}",
            found.first()
        );
    }
}
