//! Issuers, IOs and the device.

use super::measure::Outcome;
use super::model::DmCrypt3900x;
use super::pools::{Pools, Tick};
use super::scenario::Scenario;
use crate::cpus::{Counters, Cpus, Kind, Load, Ns, ThreadId};
use inflight_topology::Topology;
use std::collections::VecDeque;

/// An IO: one slot of an issuer's depth.
#[derive(Clone, Copy, Debug)]
struct Io {
    issuer: usize,
    is_write: bool,
    /// It has never been submitted.
    is_new: bool,
    /// Where its data is.
    cache: usize,
    /// Where it was submitted.
    cpu: usize,
    submitted: Ns,
}

#[derive(Debug, Default)]
struct Issuer {
    /// IOs that have ended.
    ready: VecDeque<usize>,
    /// The one whose segment runs.
    current: usize,
}

/// The device has finished.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// What was read is to be decrypted.
    Read(usize),
    Written(usize),
    /// A pool is looked at.
    Tick(Tick),
}

impl From<Tick> for Event {
    fn from(tick: Tick) -> Self {
        Self::Tick(tick)
    }
}

#[derive(Debug, Default)]
struct Counts {
    reads: u64,
    writes: u64,
    items: u64,
    off_home: u64,
    latencies: Vec<Ns>,
}

/// All of the load.
#[derive(Debug)]
pub(super) struct Crypt {
    model: DmCrypt3900x,
    issuers: Vec<Issuer>,
    ios: Vec<Io>,
    pools: Pools,
    /// By worker thread: what it runs, and since when.
    running: Vec<(usize, Ns)>,
    device_free: f64,
    counts: Counts,
}

impl Crypt {
    pub(super) fn new(scenario: &Scenario, machine: &Topology, cpus: &mut Cpus<Event>) -> Self {
        let Scenario {
            issuers,
            scope,
            model,
            one_cache,
            ..
        } = scenario;
        let (mut threads, mut ios) = (Vec::new(), Vec::new());
        let kind = if *one_cache {
            Kind::Pinned
        } else {
            Kind::Drifter
        };
        for issuer in 0..*issuers {
            let spread = if *one_cache { 1 } else { cpus.caches() };
            let cache = issuer % spread;
            let members = cpus.cache(cache);
            let cpu = members[issuer / spread % members.len()];
            cpus.spawn(kind, cpu);
            let io = Io {
                issuer,
                is_write: false,
                is_new: true,
                cache,
                cpu,
                submitted: 0,
            };
            ios.extend(std::iter::repeat_n(io, model.depth));
            threads.push(Issuer {
                ready: (ios.len() - model.depth..ios.len()).collect(),
                ..Issuer::default()
            });
            cpus.wake(issuer, cache);
        }
        Self {
            pools: Pools::new(*scope, model, machine, cpus, *issuers),
            model: model.clone(),
            issuers: threads,
            ios,
            running: Vec::new(),
            device_free: 0.0,
            counts: Counts::default(),
        }
    }

    pub(super) fn begin_to_count(&mut self) {
        self.counts = Counts::default();
        self.pools.steals = Default::default();
        self.pools.repatriations = 0;
    }

    /// The device transfers one IO after the other, and each takes its latency beside.
    fn device(&mut self, cpus: &mut Cpus<Event>, latency: f64, event: Event) {
        let now = cpus.now() as f64;
        self.device_free = self.device_free.max(now) + self.model.transfer();
        let after = self.device_free - now + cpus.vary(latency);
        cpus.after(after as Ns, event);
    }

    fn complete(&mut self, cpus: &mut Cpus<Event>, io: usize) {
        let Io {
            issuer,
            is_write,
            submitted,
            ..
        } = self.ios[io];
        match is_write {
            true => self.counts.writes += 1,
            false => self.counts.reads += 1,
        }
        self.counts.latencies.push(cpus.now() - submitted);
        self.issuers[issuer].ready.push_back(io);
        let cache = cpus.cache_of(cpus.cpu_of(issuer));
        cpus.wake(issuer, cache);
    }

    fn issue(&mut self, cpus: &mut Cpus<Event>, issuer: usize, cpu: usize) -> Option<f64> {
        let slept = cpus.wait_of(issuer).is_some();
        let toll = cpus.toll_of(issuer);
        let io = self.issuers[issuer].ready.pop_front()?;
        let mut ns = self.model.submit + toll + if slept { cpus.switch() } else { 0.0 };
        let Io {
            is_new,
            is_write,
            cache,
            ..
        } = self.ios[io];
        if !is_new && !is_write {
            ns += self.model.verify + cpus.transfer(cache, cpus.cache_of(cpu));
        }
        let is_write = cpus.rng.bool();
        if is_write {
            ns += self.model.generate;
        }
        self.ios[io].is_write = is_write;
        self.ios[io].is_new = false;
        self.issuers[issuer].current = io;
        Some(cpus.vary(ns))
    }

    fn submitted(&mut self, cpus: &mut Cpus<Event>, issuer: usize, cpu: usize) {
        let io = self.issuers[issuer].current;
        let cache = cpus.cache_of(cpu);
        let state = &mut self.ios[io];
        (state.cache, state.cpu, state.submitted) = (cache, cpu, cpus.now());
        self.pools.submits(issuer, cpu);
        if self.ios[io].is_write {
            self.pools.queue(cpus, io, cpu);
        } else {
            self.device(cpus, self.model.read_latency, Event::Read(io));
        }
    }

    fn work(&mut self, cpus: &mut Cpus<Event>, thread: ThreadId, cpu: usize) -> Option<f64> {
        let waited = cpus.wait_of(thread);
        let io = self.pools.next(cpus, thread)?;
        let at = thread - self.issuers.len();
        if self.running.len() <= at {
            self.running.resize(at + 1, (0, 0));
        }
        self.running[at] = (io, cpus.now());
        let here = cpus.cache_of(cpu);
        let Io {
            is_write, cache, ..
        } = self.ios[io];
        self.counts.off_home += u64::from(cache != here);
        let part = if is_write { 1.0 } else { self.model.cold_read };
        let slept = if waited.is_some() { cpus.switch() } else { 0.0 };
        Some(cpus.vary(self.model.encrypt + slept + part * cpus.transfer(cache, here)))
    }

    fn worked(&mut self, cpus: &mut Cpus<Event>, thread: ThreadId, cpu: usize) {
        let (io, began) = self.running[thread - self.issuers.len()];
        self.pools.took(thread, cpus.now() - began, cpus.now());
        self.counts.items += 1;
        if self.ios[io].is_write {
            self.device(cpus, self.model.write_latency, Event::Written(io));
        } else {
            self.ios[io].cache = cpus.cache_of(cpu);
            self.complete(cpus, io);
        }
    }

    pub(super) fn outcome(
        mut self,
        cpus: &Cpus<Event>,
        seconds: f64,
        counters: Counters,
        busy: &[f64],
    ) -> Outcome {
        let Counts {
            reads,
            writes,
            items,
            off_home,
            ..
        } = self.counts;
        let per_item = |n: u64| n as f64 / items.max(1) as f64;
        let latencies = &mut self.counts.latencies;
        latencies.sort_unstable();
        let percentile = |p: usize| {
            let at = latencies.len() * p / 100;
            latencies.get(at).map_or(0.0, |ns| *ns as f64 / 1e6)
        };
        let all: f64 = busy.iter().sum();
        let share = |cache: usize| {
            let members = cpus.cache(cache).len();
            busy[cache] / (members as f64 * seconds * 1e9)
        };
        let usable: usize = (0..cpus.caches()).map(|c| cpus.cache(c).len()).sum();
        let shares = || (0..cpus.caches()).map(share);
        Outcome {
            mib_s: reads as f64 * self.model.kib / 1024.0 / seconds,
            cpu_pct: 100.0 * all / (seconds * 1e9 * usable as f64),
            cpu_us_per_io: all / 1e3 / (reads + writes).max(1) as f64,
            off_home: per_item(off_home),
            pulls: per_item(counters.pulls),
            repatriations: per_item(self.pools.repatriations),
            takes: per_item(self.pools.steals.taken),
            far_takes: per_item(self.pools.steals.far),
            scans: per_item(self.pools.steals.looks),
            switches: per_item(counters.switches),
            issuer_moves_per_s: counters.moves as f64 / seconds,
            p50_ms: percentile(50),
            p99_ms: percentile(99),
            cache_busy: (
                shares().fold(f64::MAX, f64::min),
                shares().fold(0.0, f64::max),
            ),
        }
    }
}

impl Load for Crypt {
    type Event = Event;

    fn next(&mut self, cpus: &mut Cpus<Event>, thread: ThreadId, cpu: usize) -> Option<f64> {
        if thread < self.issuers.len() {
            self.issue(cpus, thread, cpu)
        } else {
            self.work(cpus, thread, cpu)
        }
    }

    fn done(&mut self, cpus: &mut Cpus<Event>, thread: ThreadId, cpu: usize) {
        if thread < self.issuers.len() {
            self.submitted(cpus, thread, cpu);
        } else {
            self.worked(cpus, thread, cpu);
        }
    }

    fn event(&mut self, cpus: &mut Cpus<Event>, event: Event) {
        match event {
            Event::Read(io) => self.pools.queue(cpus, io, self.ios[io].cpu),
            Event::Written(io) => self.complete(cpus, io),
            Event::Tick(tick) => self.pools.tick(cpus, tick),
        }
    }
}
