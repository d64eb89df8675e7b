//! Clients, workers and the device: what threads do, and whom they wake.

use super::cpus::{Cpus, Event, Moves, Waker};
use super::model::{Interrupts, Load, Machine, Side};
use super::pools::{Call, Workers};
use crate::cpus::{Ns, ThreadId};
use inflight_topology::Scope;
use inflight_topology::wake::WakeSource;

/// What an item of a pool does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    /// Writes the journal, and wakes the client.
    Journal,
    /// Gives the IO to the device.
    Submit,
    /// Completes the IO, and wakes the client.
    Complete,
}

const ITEMS: [Item; 3] = [Item::Journal, Item::Submit, Item::Complete];

/// What the device has done.
#[derive(Clone, Copy, Debug)]
pub(super) enum Device {
    /// The IO of this client: the interrupt comes to a CPU.
    Done { client: usize },
    /// The CPU takes it.
    Taken { client: usize, cpu: usize },
}

/// What a thread is.
#[derive(Clone, Copy, Debug)]
enum Role {
    Client(usize),
    Worker { pool: usize, number: usize },
}

/// What a client does when it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Up to the journal.
    Before,
    /// Up to the IO.
    Submit,
}

#[derive(Debug)]
struct Client {
    thread: ThreadId,
    phase: Phase,
    /// It was woken because its IO is complete.
    completed: bool,
    /// Where it submitted its IO.
    cpu: usize,
    ios: usize,
    file_began: Ns,
    counted: Counted,
}

/// What is counted of a client after its first file, which warms up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) files: usize,
    pub(super) time: Ns,
    pub(super) moves: Option<Moves>,
}

#[derive(Debug)]
struct Pool {
    workers: Workers,
    /// By number of the worker.
    threads: Vec<Thread>,
    /// The CPU, if it is bound to one.
    cpu: Option<usize>,
}

/// A worker's thread.
#[derive(Clone, Copy, Debug)]
struct Thread {
    id: ThreadId,
    item: Option<(Item, usize)>,
    /// It has woken the client.
    tail: bool,
}

/// All that runs on a machine.
#[derive(Debug)]
pub(super) struct Clients {
    load: Load,
    machine: Machine,
    cpus: Cpus<Device>,
    roles: Vec<Role>,
    clients: Vec<Client>,
    /// One for each CPU, and then one for each cache.
    pools: Vec<Pool>,
    files: usize,
    unfinished: usize,
    ios: u64,
    /// Until when the device is busy.
    device: Ns,
}

impl Clients {
    pub(super) fn new(machine: &Machine, side: Side, clients: usize, seed: u64) -> Self {
        let cpus = Cpus::new(machine, side, seed);
        let mut all = Self {
            load: side.load,
            machine: machine.clone(),
            cpus,
            roles: Vec::new(),
            clients: Vec::new(),
            pools: Vec::new(),
            files: (machine.files / clients).max(2),
            unfinished: clients,
            ios: 0,
            device: 0,
        };
        let topology = all.cpus.topology.clone();
        for cpu in topology.cpus() {
            all.add_pool(Some(cpu), cpu, 1);
        }
        let caches = topology.pods(Scope::Cache);
        for cache in caches {
            let last = cache.cpus().last().expect("a cache has CPUs");
            all.add_pool(None, last, cache.cpus().len());
        }
        for client in 0..clients {
            // Forks are spread over the nodes, and there over the CPUs.
            let cache = caches[client % caches.len()].cpus();
            let cpu = cache.iter().nth(client / caches.len() % cache.len());
            let cpu = cpu.expect("within the cache");
            let thread = all.spawn(cpu, false, Role::Client(client));
            all.clients.push(Client {
                thread,
                phase: Phase::Before,
                completed: false,
                cpu,
                ios: 0,
                file_began: 0,
                counted: Counted::default(),
            });
            let source = WakeSource::Thread;
            all.wake(
                thread,
                Waker {
                    source,
                    cpu,
                    thread: None,
                },
            );
        }
        all
    }

    fn add_pool(&mut self, bound: Option<usize>, cpu: usize, target: usize) {
        let pool = self.pools.len();
        self.pools.push(Pool {
            workers: Workers::new(target),
            threads: Vec::new(),
            cpu: bound,
        });
        self.add_worker(pool, cpu);
    }

    fn add_worker(&mut self, pool: usize, cpu: usize) -> ThreadId {
        let number = self.pools[pool].threads.len();
        let bound = self.pools[pool].cpu.is_some();
        let id = self.spawn(cpu, bound, Role::Worker { pool, number });
        self.pools[pool].threads.push(Thread {
            id,
            item: None,
            tail: false,
        });
        id
    }

    fn spawn(&mut self, cpu: usize, bound: bool, role: Role) -> ThreadId {
        // Who forked it ran on a neighbour.
        let cache = self.cpus.topology.pod_of(Scope::Cache, cpu);
        let others = cache.into_iter().flat_map(|cache| cache.cpus().iter());
        let recent = others.filter(|&other| other != cpu).last();
        let thread = self.cpus.spawn(cpu, bound, recent);
        assert_eq!(thread, self.roles.len(), "each thread has a role");
        self.roles.push(role);
        thread
    }

    /// Runs until each client has done its files.
    pub(super) fn run(&mut self) {
        while self.unfinished > 0 {
            match self.cpus.next().expect("clients go on for ever") {
                Event::Done { cpu } => self.done(cpu),
                Event::OfLoad(Device::Done { client }) => {
                    let cpu = self.interrupted(self.clients[client].cpu);
                    let after = self.cpus.interrupt(cpu);
                    self.cpus.after(after, Device::Taken { client, cpu });
                }
                Event::OfLoad(Device::Taken { client, cpu }) => self.taken(client, cpu),
            }
        }
    }

    pub(super) fn counted(&self) -> impl Iterator<Item = &Counted> {
        self.clients.iter().map(|client| &client.counted)
    }

    pub(super) fn cpus_used(&self) -> usize {
        self.cpus.cpus_used()
    }

    pub(super) fn idle_exit_per_io(&self) -> f64 {
        self.cpus.idle_exit / self.ios as f64
    }

    /// Where the interrupt of an IO comes that was submitted there.
    fn interrupted(&mut self, submitter: usize) -> usize {
        let Interrupts::Near(part) = self.machine.interrupts else {
            return submitter;
        };
        let near = self.cpus.rng.f64() < part;
        let scope = if near { Scope::Cache } else { Scope::System };
        let pod = self.cpus.topology.pod_of(scope, submitter);
        let count = pod.map_or(0, |pod| pod.cpus().len());
        let chosen = self.cpus.rng.usize(..count.max(1));
        let pod = self.cpus.topology.pod_of(scope, submitter);
        pod.and_then(|pod| pod.cpus().iter().nth(chosen))
            .unwrap_or(submitter)
    }

    fn taken(&mut self, client: usize, cpu: usize) {
        match self.load {
            Load::Requeue | Load::RequeueBoundJournal => {
                self.queue(cpu, Item::Complete, client, cpu, None);
            }
            Load::Direct => {
                let source = WakeSource::Interrupt;
                self.wake_client(
                    client,
                    Waker {
                        source,
                        cpu,
                        thread: None,
                    },
                );
            }
        }
    }

    /// What runs there has done what it was to do.
    fn done(&mut self, cpu: usize) {
        let thread = self.cpus.running(cpu);
        match self.roles[thread] {
            Role::Client(client) => {
                self.client_done(client, thread, cpu);
                self.switch(cpu);
            }
            Role::Worker { pool, number } => self.worker_done(pool, number, cpu),
        }
    }

    fn client_done(&mut self, client: usize, thread: ThreadId, cpu: usize) {
        match (self.clients[client].phase, self.load) {
            (Phase::Before, Load::RequeueBoundJournal) => {
                self.queue(cpu, Item::Journal, client, cpu, Some(thread));
            }
            (Phase::Before, Load::Requeue | Load::Direct) => {
                let cache = self.cpus.topology.pod_of(Scope::Cache, cpu);
                let cache = cache.expect("every CPU has a cache").id();
                let bound = self.cpus.topology.cpus().len();
                self.queue(bound + cache, Item::Journal, client, cpu, Some(thread));
            }
            (Phase::Submit, Load::Direct) => self.submit(client, cpu),
            (Phase::Submit, Load::Requeue | Load::RequeueBoundJournal) => {
                self.queue(cpu, Item::Submit, client, cpu, Some(thread));
            }
        }
    }

    fn worker_done(&mut self, pool: usize, number: usize, cpu: usize) {
        let thread = self.pools[pool].threads[number];
        let (item, client) = thread.item.expect("it runs an item");
        if !thread.tail {
            match item {
                Item::Submit => self.submit(client, cpu),
                Item::Journal | Item::Complete => {
                    self.wake_by_worker(pool, thread.id, client, cpu);
                    if self.pools[pool].cpu.is_some() {
                        self.pools[pool].threads[number].tail = true;
                        return self.cpus.work(cpu, self.machine.times.tail);
                    }
                }
            }
        }
        self.pools[pool].workers.end();
        self.next_item(pool, number, cpu);
    }

    fn wake_by_worker(&mut self, pool: usize, thread: ThreadId, client: usize, cpu: usize) {
        let Pool {
            workers,
            cpu: bound,
            ..
        } = &self.pools[pool];
        let source = match bound {
            Some(_) => WakeSource::BoundWorker(workers.load()),
            None => WakeSource::Thread,
        };
        let thread = Some(thread);
        self.wake_client(
            client,
            Waker {
                source,
                cpu,
                thread,
            },
        );
    }

    /// Its journal is written, or its IO complete: whichever it waits for.
    fn wake_client(&mut self, client: usize, waker: Waker) {
        let state = &mut self.clients[client];
        (state.phase, state.completed) = match state.phase {
            Phase::Before => (Phase::Submit, false),
            Phase::Submit => (Phase::Before, true),
        };
        let thread = state.thread;
        self.wake(thread, waker);
    }

    fn wake(&mut self, thread: ThreadId, waker: Waker) {
        if let Some(idle) = self.cpus.wake(thread, waker) {
            self.switch(idle);
        }
    }

    /// An item comes into a pool, from a CPU.
    fn queue(
        &mut self,
        pool: usize,
        item: Item,
        client: usize,
        cpu: usize,
        thread: Option<ThreadId>,
    ) {
        let call = self.pools[pool]
            .workers
            .queue(client * ITEMS.len() + item as usize);
        let worker = match call {
            Call::Nobody => return,
            Call::Worker(number) => self.pools[pool].threads[number].id,
            Call::New(number) => {
                let worker = self.add_worker(pool, cpu);
                assert_eq!(number + 1, self.pools[pool].threads.len());
                worker
            }
        };
        let source = match thread {
            Some(_) => WakeSource::Thread,
            None => WakeSource::Interrupt,
        };
        self.wake(
            worker,
            Waker {
                source,
                cpu,
                thread,
            },
        );
    }

    /// The IO goes to the device.
    fn submit(&mut self, client: usize, cpu: usize) {
        self.clients[client].cpu = cpu;
        let service = self.machine.service;
        let short = (1.0 - service.long_part * service.long) / (1.0 - service.long_part);
        let long = self.cpus.rng.f64() < service.long_part;
        let mean = service.mean * if long { service.long } else { short };
        let takes = -mean * (1.0 - self.cpus.rng.f64()).ln();
        let begins = self.device.max(self.cpus.now());
        self.device = begins + (takes * 1000.0) as Ns;
        let after = (self.device - self.cpus.now()) as f64 / 1000.0;
        let latency = self.cpus.vary(self.machine.latency);
        self.cpus.after(after + latency, Device::Done { client });
    }

    /// The CPU takes the next thread that waits there.
    fn switch(&mut self, cpu: usize) {
        while let Some(thread) = self.cpus.begin(cpu) {
            match self.roles[thread] {
                Role::Client(client) => return self.client_runs(client, cpu),
                Role::Worker { pool, number } => {
                    if self.take_item(pool, number, cpu) {
                        return;
                    }
                }
            }
        }
        self.cpus.idle(cpu);
    }

    fn client_runs(&mut self, client: usize, cpu: usize) {
        if std::mem::take(&mut self.clients[client].completed) {
            self.completed(client);
        }
        let times = self.machine.times;
        let work = match self.clients[client].phase {
            Phase::Before => times.before,
            Phase::Submit => times.submit,
        };
        self.cpus.work(cpu, work);
    }

    fn completed(&mut self, client: usize) {
        self.ios += 1;
        let now = self.cpus.now();
        let state = &mut self.clients[client];
        state.ios += 1;
        if state.ios % self.machine.ios_per_file != 0 {
            return;
        }
        let took = now - std::mem::replace(&mut state.file_began, now);
        let moves = self.cpus.take_moves(state.thread);
        let counted = &mut state.counted;
        if state.ios == self.machine.ios_per_file || counted.files == self.files {
            return;
        }
        counted.files += 1;
        counted.time += took;
        let sum = counted.moves.map_or(moves, |sum| Moves {
            migrations: sum.migrations + moves.migrations,
            cross_node: sum.cross_node + moves.cross_node,
            visited: sum.visited.max(moves.visited),
        });
        counted.moves = Some(sum);
        self.unfinished -= usize::from(counted.files == self.files);
    }

    fn next_item(&mut self, pool: usize, number: usize, cpu: usize) {
        if !self.take_item(pool, number, cpu) {
            self.switch(cpu);
        }
    }

    /// The worker, which is on the CPU, begins an item. `false` if there is none.
    fn take_item(&mut self, pool: usize, number: usize, cpu: usize) -> bool {
        let Some(item) = self.pools[pool].workers.begin(number) else {
            self.pools[pool].threads[number].item = None;
            return false;
        };
        let (item, client) = (ITEMS[item % ITEMS.len()], item / ITEMS.len());
        let thread = &mut self.pools[pool].threads[number];
        (thread.item, thread.tail) = (Some((item, client)), false);
        let times = self.machine.times;
        let work = match item {
            Item::Journal => times.journal,
            Item::Submit | Item::Complete => times.worker,
        };
        self.cpus.work(cpu, work);
        true
    }
}
