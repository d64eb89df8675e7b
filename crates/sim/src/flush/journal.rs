//! Clients, pushes, log buffers and a disk.

use super::model::{Journal, Model};
use crate::cpus::{Events, Ns};
use fastrand::Rng;
use inflight_flush::machine::{Action, Id, Machine};
use inflight_flush::{Caps, Deferral, Flags};
use inflight_sync::time::Instant;
use std::collections::{HashMap, VecDeque};
use std::mem::take;

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Outcome {
    /// Mean time of a load file, in ms.
    pub file_ms: f64,
    /// Flushes of the disk for each commit.
    pub flushes_per_commit: f64,
    /// Flushes of the disk in a simulated second.
    pub flushes_per_s: f64,
    /// How many requests shared a flush, on average.
    pub merged: f64,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The client has something to write.
    Thought(usize),
    /// The disk has done the first of its queue.
    Served,
    /// A flush has ended, after the disk has done its part.
    Flushed(u64),
    /// The log buffer was written.
    LogWritten,
}

/// What the disk does, one after the other.
#[derive(Clone, Copy, Debug)]
enum Job {
    Data(usize),
    Flush(u64),
}

/// The purpose of a request.
#[derive(Clone, Debug)]
enum Owner {
    /// The eager flush of a push of these clients' commits.
    Push(Vec<usize>),
    Buffer,
}

struct Simulation<'a> {
    model: &'a Model,
    journal: Journal,
    rng: Rng,
    now: Ns,
    events: Events<Event>,
    machine: Machine<()>,
    owners: HashMap<Id, Owner>,
    disk: VecDeque<Job>,
    /// Clients whose commits wait for a worker, and how many workers push.
    waiting: Vec<usize>,
    pushing: usize,
    /// Clients whose records are in the buffer that is being filled, and in the one under way.
    filling: Vec<usize>,
    writing: Option<(Id, Vec<usize>)>,
    commits: Vec<usize>,
}

/// Runs so many clients on a machine.
///
/// # Panics
///
/// If there is no client.
#[must_use]
pub fn run(model: &Model, journal: Journal, clients: usize, seed: u64) -> Outcome {
    let mut simulation = Simulation {
        model,
        journal,
        rng: Rng::with_seed(seed),
        now: 0,
        events: Events::default(),
        // The log's buffers are durable writes of the disk.
        machine: Machine::new(Caps::volatile_with_fua(), Deferral::Off),
        owners: HashMap::new(),
        disk: VecDeque::new(),
        waiting: Vec::new(),
        pushing: 0,
        filling: Vec::new(),
        writing: None,
        commits: vec![0; clients],
    };
    for client in 0..clients {
        simulation.think(client);
    }
    simulation.run(clients)
}

impl Simulation<'_> {
    fn run(mut self, clients: usize) -> Outcome {
        let per_file = self.model.commits_per_file;
        let all = self.model.files.max(clients) * per_file;
        // The first load file of each does not count.
        let warm_up = clients * per_file;
        let mut counted = None;
        let mut done = 0;
        while done < warm_up + all {
            let next = self.events.pop_until(Ns::MAX);
            let (at, event) = next.expect("nobody waits for ever");
            self.now = at;
            self.happen(event);
            done = self.commits.iter().sum();
            if done >= warm_up && counted.is_none() {
                counted = Some((at, done, *self.machine.counters()));
            }
        }
        let (since, before, counters) = counted.expect("it has begun to count");
        let (took, commits) = ((self.now - since) as f64, (done - before) as f64);
        let issued = (self.machine.counters().issued - counters.issued) as f64;
        let merged = (self.machine.counters().merged - counters.merged) as f64;
        Outcome {
            file_ms: took / 1e6 * clients as f64 * per_file as f64 / commits,
            flushes_per_commit: issued / commits,
            flushes_per_s: issued / took * 1e9,
            merged: merged / issued,
        }
    }

    fn after(&mut self, us: f64, event: Event) {
        let varied = us * (1.0 + self.model.jitter * (2.0 * self.rng.f64() - 1.0));
        self.events.plan(self.now + (varied * 1e3) as Ns, event);
    }

    fn think(&mut self, client: usize) {
        self.after(self.model.think, Event::Thought(client));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Thought(client) => self.enter_disk(Job::Data(client)),
            Event::Served => {
                let job = self.disk.pop_front().expect("the disk has done something");
                self.start_disk();
                match job {
                    Job::Data(client) => {
                        self.waiting.push(client);
                        self.push();
                    }
                    Job::Flush(generation) => {
                        let rest = self.model.flush * (1.0 - self.model.flush_stalls);
                        self.after(rest, Event::Flushed(generation));
                    }
                }
            }
            Event::Flushed(generation) => {
                self.step(|machine, now, actions| {
                    machine.flush_done(now, generation, Ok(()), actions);
                });
            }
            Event::LogWritten => {
                let (id, _) = self.writing.as_ref().expect("a buffer is under way");
                let id = *id;
                self.step(|machine, now, actions| machine.data_done(now, id, Ok(()), actions));
            }
        }
    }

    fn enter_disk(&mut self, job: Job) {
        self.disk.push_back(job);
        if self.disk.len() == 1 {
            self.start_disk();
        }
    }

    fn start_disk(&mut self) {
        let takes = match self.disk.front() {
            None => return,
            Some(Job::Data(_)) => self.model.service,
            Some(Job::Flush(_)) => self.model.flush * self.model.flush_stalls,
        };
        self.after(takes, Event::Served);
    }

    /// A worker takes all commits that wait, as one push.
    fn push(&mut self) {
        if self.waiting.is_empty() || self.pushing == self.model.workers {
            return;
        }
        let clients = take(&mut self.waiting);
        match self.journal {
            Journal::FlushBefore => self.fill_buffer(clients),
            Journal::Eager => {
                self.pushing += 1;
                self.submit(Flags::flush(), Owner::Push(clients));
            }
        }
    }

    /// Records go into the buffer; somebody waits for them, so it is written at once, unless
    /// another buffer is under way.
    fn fill_buffer(&mut self, clients: Vec<usize>) {
        self.filling.extend(clients);
        self.write_buffer();
    }

    fn write_buffer(&mut self) {
        if self.writing.is_none() && !self.filling.is_empty() {
            self.submit(Flags::write().preflush().fua(), Owner::Buffer);
        }
    }

    fn submit(&mut self, flags: Flags, owner: Owner) {
        let mut actions = Vec::new();
        let now = Instant::from_nanos(self.now);
        let submitted = self.machine.submit(now, flags, &mut actions);
        let id = submitted.expect("such flags exist");
        if let Owner::Buffer = owner {
            self.writing = Some((id, Vec::new()));
        }
        self.owners.insert(id, owner);
        self.perform(actions);
    }

    fn step(&mut self, event: impl FnOnce(&mut Machine<()>, Instant, &mut Vec<Action<()>>)) {
        let mut actions = Vec::new();
        event(
            &mut self.machine,
            Instant::from_nanos(self.now),
            &mut actions,
        );
        self.perform(actions);
    }

    fn perform(&mut self, actions: Vec<Action<()>>) {
        for action in actions {
            match action {
                // A flush that stalls nobody waits for nobody, either.
                Action::IssueFlush { generation, .. } if self.model.flush_stalls == 0.0 => {
                    self.after(self.model.flush, Event::Flushed(generation));
                }
                Action::IssueFlush { generation, .. } => self.enter_disk(Job::Flush(generation)),
                Action::Dispatch(_) => {
                    // What came in while the flush ran goes with it.
                    let members = take(&mut self.filling);
                    let (_, writing) = self.writing.as_mut().expect("the buffer's own request");
                    *writing = members;
                    self.after(self.model.log_write, Event::LogWritten);
                }
                Action::Complete(id, result) => {
                    result.expect("nothing fails");
                    self.machine.release(id);
                    match self.owners.remove(&id).expect("somebody asked") {
                        Owner::Push(clients) => {
                            self.pushing -= 1;
                            self.fill_buffer(clients);
                            self.push();
                        }
                        Owner::Buffer => {
                            let (_, members) = self.writing.take().expect("it was written");
                            for client in members {
                                self.commits[client] += 1;
                                self.think(client);
                            }
                            self.write_buffer();
                        }
                    }
                }
            }
        }
    }
}
