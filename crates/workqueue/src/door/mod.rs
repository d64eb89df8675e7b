//! What is behind a workqueue handle: its gates, and the way of an item through them to a pool.

use crate::attrs::{Attrs, Kind, Mode};
use crate::gate::Gate;
use crate::item::WorkRef;
use crate::layout::{Cpus, Layout, Settings};
use crate::limits::{FrontEnd, Share, gate_of};
use crate::pool::{Entry, Env, Pool};
use crate::pools::Lease;
use crate::rescuer::Rescuer;
use crate::stats::WorkqueueStats;
use crate::submitter;
use crate::system;
use crate::trace::{self, TraceStep};
use crate::watchdog::Waiting;
use inflight_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use inflight_sync::time::Clock;
use inflight_sync::wait::Event;
use inflight_sync::{Arc, CachePadded, Mutex, cpu};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

mod back;
mod call;
mod flow;
mod fronts;
mod mail;
mod muster;
mod places;
mod submit;
mod visits;

pub(crate) use back::{Home, Withdrawn};
pub(crate) use flow::Promoted;
use fronts::Fronts;
pub(crate) use fronts::Limit;
use mail::{Letter, Mail, Mailbox};
pub(crate) use places::Move;

pub(crate) struct Shared {
    name: String,
    /// Names the queue among all of the system that ever were.
    number: u64,
    mode: Mode,
    highpri: bool,
    freezable: bool,
    /// C6 looks at it: who knows that a freeze has returned sees it by what told him so.
    frozen: AtomicBool,
    /// Changes with the settings' lock held.
    way: Mutex<Way>,
    /// The gates of a bound queue, or the front ends of an unbound one, by CPU.
    by_cpu: Layout,
    /// One for each CPU, but a single one for an ordered queue.
    gates: Box<[CachePadded<Door>]>,
    /// Of an unbound queue: where its gates lead, and the limit over all of them.
    fronts: Option<Fronts>,
    /// Items have ended: flushes and drains look again.
    event: Event,
    /// Items that were to be queued later, or again, and were refused then. Relaxed: a statistic.
    refused: AtomicU64,
    /// Its items hold nobody back once they have started.
    cpu_intensive: bool,
    counts: [AtomicU64; Count::KINDS],
    /// The name of the last item that has panicked, and what it said.
    last_panic: Mutex<Option<(String, Option<String>)>>,
    /// By CPU: what items take along to find the queue. Each has its own count of handles.
    homes: Box<[Arc<Home>]>,
    /// Runs the items when no worker can be had.
    rescuer: Option<Arc<Rescuer>>,
    /// All its places have pools, or are about to. Relaxed: nothing is handed over.
    mustered: AtomicBool,
    system: Arc<system::Shared>,
}

/// Where all its items go.
struct Way {
    attrs: Attrs,
    layout: Arc<Layout>,
}

/// What a queue's builder may switch on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    pub(crate) highpri: bool,
    pub(crate) mem_reclaim: bool,
    pub(crate) cpu_intensive: bool,
    pub(crate) power_efficient: bool,
    pub(crate) freezable: bool,
}

impl Flags {
    /// What of it a BH queue cannot be.
    pub(crate) fn not_bh(self) -> Option<&'static str> {
        let flags = [
            (self.mem_reclaim, "mem_reclaim"),
            (self.cpu_intensive, "cpu_intensive"),
            (self.power_efficient, "power_efficient"),
            (self.freezable, "freezable"),
        ];
        flags.into_iter().find_map(|(is, name)| is.then_some(name))
    }
}

/// What is counted for a queue as a whole. Relaxed: statistics.
#[derive(Clone, Copy)]
pub(crate) enum Count {
    CmWakeup,
    FoundAsleep,
    Intensive,
    /// In ns.
    CpuTime,
    /// How often an item has said that it gets on.
    Touched,
    /// How often another pool's worker was woken for it.
    Sent,
    /// How often that was because of submitters.
    Crowded,
    /// Items that another pool's worker has taken.
    Taken,
    /// Workers that began with it and went back to their CPUs for that.
    Repatriated,
}

/// More of them than this share a count of handles.
const HOMES: usize = 16;

impl Count {
    const KINDS: usize = 9;
}

struct Door {
    /// What has been queued and not been looked at yet.
    mail: CachePadded<Mailbox>,
    state: Mutex<DoorState>,
    /// Runs that have begun. Relaxed: a statistic.
    started: AtomicU64,
}

pub(crate) struct DoorState {
    gate: Gate<Entry>,
    /// Pools by place, or the only one. Filled as they are needed.
    pools: Vec<Option<Arc<Lease>>>,
    /// Where the items of this gate go.
    layout: Arc<Layout>,
    /// Room for the letters of the next visit.
    room: VecDeque<Letter>,
    /// V5: who may have kept items, of those pools.
    keeper: Option<(Arc<Pool>, usize)>,
    draining: usize,
    destroyed: bool,
    shut: bool,
    completed: u64,
    panicked: u64,
    cancelled: u64,
}

/// The CPU of a gate, if there is one for each.
fn cpu_of(by_cpu: &Layout, gate: usize) -> usize {
    match &by_cpu.places[gate].cpus {
        Cpus::One(cpu) => *cpu,
        Cpus::Pod { .. } => unreachable!("a place of a bound queue is a CPU"),
    }
}

impl Shared {
    pub(crate) fn new(
        name: String,
        kind: &Kind,
        flags: Flags,
        limit: Limit,
        rescuer: Option<Arc<Rescuer>>,
        system: &Arc<system::Shared>,
        settings: &Settings,
    ) -> Arc<Self> {
        let (mode, attrs) = (kind.mode(), kind.attrs());
        let layout = Arc::new(Layout::new(settings, mode, &attrs, flags.highpri));
        let by_cpu = Layout::by_cpu(settings, mode);
        let frozen = flags.freezable && settings.is_frozen();
        let fronts = (mode == Mode::Unbound).then(|| Fronts::new(settings, &attrs, limit, frozen));
        let leading = fronts
            .as_ref()
            .map(|fronts| fronts.leading(&settings.topology, &layout, &by_cpu));
        let single = mode == Mode::Ordered;
        let gates = if single { 1 } else { by_cpu.places.len() };
        let gate = |at: usize| match &leading {
            Some(fronts) => Gate::of_front(fronts[at]),
            None => {
                let mut gate = Gate::new(limit.max_active);
                gate.set_frozen(frozen);
                gate
            }
        };
        let door = |at: usize| {
            let layout = match cpu_of(&by_cpu, at) {
                _ if single => layout.clone(),
                cpu => Arc::new(layout.only(layout.place_of(cpu))),
            };
            let pools = layout.places.len();
            CachePadded::new(Door {
                mail: CachePadded::new(Mailbox {
                    inside: Mutex::new(Mail {
                        letters: VecDeque::new(),
                        closed: false,
                        bells: (0..pools).map(|_| None).collect(),
                        layout: layout.clone(),
                    }),
                    letters: AtomicUsize::new(0),
                }),
                state: Mutex::new(DoorState {
                    gate: gate(at),
                    pools: vec![None; pools],
                    layout,
                    room: VecDeque::new(),
                    keeper: None,
                    draining: 0,
                    destroyed: false,
                    shut: false,
                    completed: 0,
                    panicked: 0,
                    cancelled: 0,
                }),
                started: AtomicU64::new(0),
            })
        };
        let gates = (0..gates).map(door).collect();
        Arc::new_cyclic(|me| Self {
            homes: (0..system.env().topology.cpus().len().clamp(1, HOMES))
                .map(|_| Arc::new(Home(CachePadded::new(me.clone()))))
                .collect(),
            name,
            number: system.env().metering.number(),
            mode,
            highpri: flags.highpri,
            freezable: flags.freezable,
            frozen: AtomicBool::new(frozen),
            gates,
            by_cpu,
            fronts,
            way: Mutex::new(Way { attrs, layout }),
            event: Event::new(),
            refused: AtomicU64::new(0),
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            last_panic: Mutex::new(None),
            // Every active item of an unbound queue runs, up to its CPUs: the flag means nothing.
            cpu_intensive: flags.cpu_intensive && mode.is_bound(),
            rescuer,
            mustered: AtomicBool::new(false),
            system: system.clone(),
        })
    }

    /// Names the queue among all that exist.
    pub(crate) fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn is_cpu_intensive(&self) -> bool {
        self.cpu_intensive
    }

    /// Where its items go now.
    pub(crate) fn layout(&self) -> Arc<Layout> {
        self.way.lock().layout.clone()
    }

    pub(crate) fn attrs(&self) -> Attrs {
        self.way.lock().attrs.clone()
    }

    /// Whether a freeze holds its items.
    pub(crate) fn is_freezable(&self) -> bool {
        self.freezable
    }

    pub(crate) fn is_frozen(&self) -> bool {
        // Ordering: Acquire, pairs with the Release in `set_frozen`.
        self.frozen.load(Ordering::Acquire)
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// How many items are active, over all CPUs, and how many may be: on each CPU of a bound queue,
    /// altogether of an unbound one, without limit of a BH queue. With slots that are owed: where
    /// there are any an item runs, and those of an ordered queue have the slot of that one.
    pub(crate) fn level(&self) -> (usize, Option<usize>) {
        if let Some(fronts) = &self.fronts {
            let (active, _) = fronts.room_for(self.all_letters());
            return (fronts.slots.active() + active, self.max_active());
        }
        let active = self.gates.iter().map(|door| {
            let state = door.state.lock();
            state.gate.active() + state.gate.room_for(door.letters()).0
        });
        (active.sum(), self.max_active())
    }

    /// How many may be: the second half of [`level`](Shared::level).
    pub(crate) fn max_active(&self) -> Option<usize> {
        if let Some(fronts) = &self.fronts {
            return Some(fronts.slots.limits().0);
        }
        let max = || self.gates[0].state.lock().gate.max_active();
        (self.mode != Mode::Bh).then(max)
    }

    /// What each node is sure of, if that means anything.
    pub(crate) fn min_active(&self) -> Option<usize> {
        let slots = &self.fronts.as_ref()?.slots;
        (slots.share() == Share::PerNode).then(|| slots.limits().1)
    }

    /// Of an unbound queue: how many items are active and may be, by node, and if there are several
    /// of what belongs to none. As [`level`](Shared::level); a dump has recalled what is owed when
    /// it asked the pools.
    pub(crate) fn levels_by_node(&self) -> Vec<(usize, usize)> {
        let Some(fronts) = &self.fronts else {
            return Vec::new();
        };
        let coming = fronts.places_for(self.all_letters());
        let coming: Vec<_> = coming.map(|(front, active, _)| (front, active)).collect();
        fronts.slots.by_node(&coming)
    }

    /// By front end: what has been queued and not been looked at yet.
    fn all_letters(&self) -> impl Iterator<Item = (FrontEnd, usize)> + '_ {
        let letters = |door: &CachePadded<Door>| (door.state.lock().gate.front(), door.letters());
        self.gates.iter().map(letters)
    }

    pub(crate) fn is_highpri(&self) -> bool {
        self.highpri
    }

    pub(crate) fn kind(&self) -> Kind {
        self.mode.with(self.attrs())
    }

    pub(crate) fn env(&self) -> &Arc<Env> {
        self.system.env()
    }

    pub(crate) fn system(&self) -> &Arc<system::Shared> {
        &self.system
    }

    /// The CPU on which the caller is about to submit. Of an unbound queue it is noted (Y7).
    #[inline]
    pub(crate) fn here(&self) -> usize {
        let cpu = cpu::current();
        if !self.mode.is_bound() {
            submitter::note(&self.env().crowd, cpu);
        }
        cpu
    }

    pub(crate) fn clock(&self) -> Clock {
        self.env().clock.clone()
    }

    pub(crate) fn counted(&self, what: Count, times: u64) {
        self.counts[what as usize].fetch_add(times, Ordering::Relaxed);
    }

    /// Its items have used so much CPU time.
    pub(crate) fn used_cpu(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.counted(Count::CpuTime, nanos);
    }

    fn count(&self, what: Count) -> u64 {
        self.counts[what as usize].load(Ordering::Relaxed)
    }

    /// An item has panicked.
    pub(crate) fn panicked(&self, item: &str, message: Option<&str>) {
        let last = Some((item.to_owned(), message.map(str::to_owned)));
        *self.last_panic.lock() = last;
    }

    pub(crate) fn last_panic(&self) -> Option<(String, Option<String>)> {
        self.last_panic.lock().clone()
    }

    /// Tells it, if somebody wants to know. No lock may be held.
    pub(crate) fn trace(&self, work: &WorkRef, step: TraceStep) {
        if trace::is_on(self.env()) {
            trace::tell(self.env(), &self.name, work.name(), step);
        }
    }

    /// The same of items that may have ended since, by their names.
    fn trace_all(&self, items: &[String], step: TraceStep) {
        for item in items {
            trace::tell(self.env(), &self.name, item, step);
        }
    }

    /// What waits here because `max_active` others are active, if anything does.
    pub(crate) fn starved(&self) -> Option<Waiting> {
        let name = |entry: &Entry| entry.work.name().to_owned();
        let (first, waiting, moved) = match &self.fronts {
            Some(fronts) => fronts.slots.first_inactive(name)?,
            None => self.gates.iter().find_map(|door| {
                let state = door.state.lock();
                let (ticket, first) = state.gate.first_inactive()?;
                Some((name(first), state.gate.inactive(), ticket))
            })?,
        };
        Some(Waiting {
            place: format!("queue {}", self.name),
            progress: moved + self.count(Count::Touched),
            item: format!("{}: {first}", self.name),
            waiting,
            running: Vec::new(),
        })
    }

    /// An item was not queued although its time had come, or it was to run again.
    pub(crate) fn refused_later(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn rescuer(&self) -> Option<&Arc<Rescuer>> {
        self.rescuer.as_ref()
    }

    pub(crate) fn is_rescued_by(&self, rescuer: &Arc<Rescuer>) -> bool {
        self.rescuer().is_some_and(|r| Arc::ptr_eq(r, rescuer))
    }

    /// Nothing is queued and nothing will be.
    pub(crate) fn dismiss_rescuer(&self) {
        if let Some(rescuer) = &self.rescuer {
            rescuer.stop();
        }
    }

    /// What an item queued from that CPU takes along.
    pub(crate) fn home(&self, cpu: usize) -> Arc<Home> {
        self.homes[cpu % self.homes.len()].clone()
    }

    pub(crate) fn started(&self, gate: usize) {
        self.gates[gate_of(gate)]
            .started
            .fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn is_congested(&self, cpu: usize) -> bool {
        let gate = self.gate_of(cpu, None);
        let door = &self.gates[gate];
        let state = door.state.lock();
        if let Some(fronts) = &self.fronts {
            return fronts.slots.room(state.gate.front()) <= door.letters();
        }
        state.gate.room_for(door.letters() + 1).1 > 0
    }

    /// Its workers tell of what has ended.
    pub(super) fn recall_all(&self) {
        for door in &self.gates {
            let pools = door.state.lock().pools.clone();
            pools.iter().flatten().for_each(|pool| pool.recall());
        }
    }

    pub(crate) fn stats(&self) -> WorkqueueStats {
        self.recall_all();
        let metered = self.env().metering.is_on();
        let mut stats = WorkqueueStats {
            refused: self.refused.load(Ordering::Relaxed),
            cm_wakeups: self.count(Count::CmWakeup),
            found_asleep: self.count(Count::FoundAsleep),
            cpu_intensive: self.count(Count::Intensive),
            maydays: self.rescuer().map_or(0, |rescuer| rescuer.maydays()),
            cpu_time: metered.then(|| Duration::from_nanos(self.count(Count::CpuTime))),
            sent: self.count(Count::Sent),
            crowded: self.count(Count::Crowded),
            taken: self.count(Count::Taken),
            repatriated: self.count(Count::Repatriated),
            rescued: self.rescuer().map_or(0, |rescuer| rescuer.rescued()),
            ..WorkqueueStats::default()
        };
        for door in &self.gates {
            let state = door.state.lock();
            let letters = door.letters();
            let (active, inactive) = match self.fronts {
                Some(_) => (0, 0),
                None => state.gate.room_for(letters),
            };
            stats.queued += state.gate.queued() + letters as u64;
            stats.started += door.started.load(Ordering::Relaxed);
            stats.completed += state.completed + state.panicked;
            stats.panicked += state.panicked;
            stats.cancelled += state.cancelled;
            stats.active += state.gate.active() + active;
            stats.inactive += state.gate.inactive() + inactive;
        }
        if let Some(fronts) = &self.fronts {
            let (active, inactive) = fronts.room_for(self.all_letters());
            stats.active = fronts.slots.active() + active;
            stats.inactive = fronts.slots.inactive() + inactive;
        }
        stats
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.dismiss_rescuer();
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workqueue")
            .field("name", &self.name)
            .field("kind", &self.kind())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
