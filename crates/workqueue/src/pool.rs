//! A worker pool: the core behind its lock, and the threads that drive it.

use crate::door::Shared;
pub(crate) use crate::env::Env;
use crate::flush::Colour;
use crate::item::{Instance, POOL_KEYS, WorkRef};
use crate::layout::{Cpus, Place};
use crate::lending::{Lately, Notice, Reason};
use crate::machine::{Action, Core, Item, Next, Rest};
use crate::meter::Meter;
use crate::peers::Peers;
use crate::pools::{Lease, Pools};
use crate::rescuer::Rescuer;
use crate::sampler::{self, Finding, Sampler, Suspect};
use crate::threads::nice;
use crate::timekeeper::Alarm;
use crate::worker::{self, Seen};
#[cfg(not(any(loom, shuttle)))]
use inflight_sync::atomic::AtomicU32;
use inflight_sync::atomic::{AtomicU64, Ordering};
use inflight_sync::time::Instant;
use inflight_sync::{Arc, Mutex, MutexGuard, Unparker, Weak, cpu};
use inflight_topology::{CpuSet, PinGuard, Topology};
use std::fmt;
use std::io;
use std::time::Duration;

mod deeds;
mod distress;
mod lending;
mod poller;
mod tools;
mod visits;

use deeds::{Bring, wake_all};
pub(crate) use deeds::{Deed, Deeds, Help};
use distress::Distress;
pub(crate) use poller::Notify;

/// One queueing of one item, on its way through a gate and a pool.
pub(crate) struct Entry {
    pub(crate) work: WorkRef,
    pub(crate) queue: Arc<Shared>,
    /// Where it goes when it becomes active, as long as it is not.
    pub(crate) pool: Option<Arc<Lease>>,
    /// Which gate of the queue it passes; of an unbound one, which front end.
    pub(crate) gate: usize,
    pub(crate) instance: Instance,
    pub(crate) colour: Colour,
    /// The item was being run by this pool when it was queued.
    pub(crate) may_be_running: bool,
}

impl Entry {
    /// It may run, in that pool.
    pub(crate) fn into_active(mut self) -> (Arc<Lease>, Self) {
        let pool = self.pool.take();
        (pool.expect("an inactive entry knows its pool"), self)
    }
}

impl Item for Entry {
    type Key = usize;

    fn key(&self) -> usize {
        self.work.key()
    }

    fn may_be_running(&self) -> bool {
        self.may_be_running
    }

    fn is_intensive(&self) -> bool {
        self.queue.is_cpu_intensive()
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("work", &format_args!("{:#x}", self.work.key()))
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}

/// A name for the next pool. Of pools that exist at the same time two have the same one only if
/// millions of others have been made in between.
#[cfg(not(any(loom, shuttle)))]
fn key(_number: usize) -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    // Relaxed: a number, nothing is handed over.
    LAST.fetch_add(1, Ordering::Relaxed) % POOL_KEYS
}

/// In a model there is no state outside the model, and one system.
#[cfg(any(loom, shuttle))]
fn key(number: usize) -> u32 {
    u32::try_from(number).expect("few pools") % POOL_KEYS
}

/// What may wait for a worker that runs before another is woken, in ns: about the price of waking
/// one on another CPU.
pub(crate) const PATIENCE: u64 = 20_000;

/// What a worker takes at once, in ns.
const VISIT: u64 = 20_000;

pub(crate) struct Pool {
    /// Names the pool among all that exist, as long as there are not too many.
    key: u32,
    place: Place,
    /// Names it in dumps, and the threads of an unbound pool.
    id: usize,
    env: Arc<Env>,
    /// Where it stands as long as it is one of the system's.
    table: Weak<Pools>,
    sampler: Sampler,
    meter: Meter,
    /// How often an item has said that it gets on.
    touched: AtomicU64,
    /// How it is, for its peers.
    notice: Arc<Notice>,
    state: Mutex<Inner>,
}

struct Inner {
    core: Core<Entry>,
    /// Whose mailboxes are to be emptied: queues and gates.
    mail: Vec<(Arc<Shared>, usize)>,
    /// By worker.
    unparkers: Vec<Unparker>,
    /// Numbers of the workers' threads, by worker.
    threads: Vec<Option<u32>>,
    /// What was found out about the worker's item.
    seen: Vec<Arc<Seen>>,
    /// When the worker was woken, if it has not come yet and that matters.
    woken: Vec<Option<Instant>>,
    /// What workers take to come, in ns.
    delay: Lately,
    /// The timekeeper looks at the pool.
    watched: bool,
    /// Threads asked for, to number them.
    started: usize,
    /// Set while the timekeeper looks after the pool's distress.
    distress: Option<Distress>,
    /// The pools that help it and that it helps, if there are any.
    peers: Option<Arc<Peers>>,
    /// Those know that they may take something here.
    calling: bool,
    /// Somebody may put items in. Changes with the table's lock held.
    leased: bool,
    /// It is none of the system's pools any more.
    retired: bool,
    /// Of a pool of BH items.
    poller: Option<poller::Seat>,
}

/// Workers of a pool that has gone, who are to leave.
#[must_use = "they sleep"]
pub(crate) struct Retired(Vec<Unparker>);

impl Retired {
    /// Outside all locks.
    pub(crate) fn settle(self) {
        wake_all(&self.0);
    }
}

impl Inner {
    /// The calling thread is that worker.
    fn seat(&mut self, worker: usize, unparker: Unparker, seen: &Arc<Seen>) {
        let thread = sampler::proc::this_thread();
        if worker < self.unparkers.len() {
            self.unparkers[worker] = unparker;
            self.threads[worker] = thread;
            self.seen[worker] = seen.clone();
        } else {
            self.seen.push(seen.clone());
            self.woken.push(None);
            self.unparkers.push(unparker);
            self.threads.push(thread);
        }
    }

    /// Nobody has a lease, and nothing is left.
    fn is_unused(&self) -> bool {
        !self.leased && !self.retired && self.core.is_quiet()
    }

    fn unparkers(&self, workers: Vec<usize>) -> Vec<Unparker> {
        let workers = workers.into_iter();
        workers.map(|w| self.unparkers[w].clone()).collect()
    }
}

impl Pool {
    /// A pool with its first worker on the way. If there is none to be had, it is only made for a
    /// queue that has a rescuer.
    pub(crate) fn new(
        place: Place,
        id: usize,
        env: &Arc<Env>,
        table: &Arc<Pools>,
        rescued: bool,
    ) -> io::Result<Arc<Self>> {
        let pool = Arc::new(Self {
            key: key(id),
            state: Mutex::new(Inner {
                mail: Vec::new(),
                core: Core::new(place.target()),
                unparkers: Vec::new(),
                threads: Vec::new(),
                seen: Vec::new(),
                watched: false,
                started: 0,
                distress: None,
                peers: None,
                calling: false,
                woken: Vec::new(),
                delay: Lately::default(),
                leased: true,
                retired: false,
                poller: None,
            }),
            sampler: Sampler::default(),
            meter: Meter::default(),
            touched: AtomicU64::new(0),
            notice: Arc::default(),
            place,
            id,
            env: env.clone(),
            table: Arc::downgrade(table),
        });
        if pool.place.may_have_peers() {
            env.crowd.tell(pool.cpus(), &pool.notice);
        }
        if pool.is_timed() {
            let core = &mut pool.state.lock().core;
            if !pool.place.bh {
                core.be_generous(VISIT);
            }
            if pool.place.target() > 1 || pool.place.may_have_peers() {
                core.be_patient(PATIENCE);
            }
        }
        if pool.place.bh {
            let mut inner = pool.state.lock();
            inner.core.run_one_by_one();
            if rescued {
                // Its poller is about to come.
                inner.core.begin_unmanned();
                drop(inner);
                return Ok(pool);
            }
        }
        match pool.start_worker() {
            Err(refused) if !rescued => return Err(refused),
            Err(_) => drop(pool.creation_failed()),
            Ok(()) => {}
        }
        Ok(pool)
    }

    /// Before the pool takes the first item of a queue that has no rescuer: it gets its first
    /// worker, if it was made without.
    pub(crate) fn man(self: &Arc<Self>) -> io::Result<()> {
        if !self.state.lock().core.wants_first() {
            return Ok(());
        }
        let started = self.start_worker();
        if started.is_err() {
            drop(self.creation_failed());
        }
        started
    }

    fn start_worker(self: &Arc<Self>) -> io::Result<()> {
        let number = {
            let mut inner = self.state.lock();
            inner.started += 1;
            inner.started - 1
        };
        let high = if self.place.is_high() { "H" } else { "" };
        let name = match &self.place.cpus {
            Cpus::One(cpu) if self.place.bh => format!("inflight/bh:{cpu}{high}"),
            Cpus::One(cpu) => format!("inflight/{cpu}:{number}{high}"),
            Cpus::Pod { .. } => format!("inflight/u{}:{number}{high}", self.id),
        };
        let pool = self.clone();
        self.env.start_thread(name, move || worker::run(&pool))
    }

    /// The calling thread, a rescuer's, runs where the pool's workers do and queues as if it were
    /// one of them, until [`return_thread`](Pool::return_thread). Where pinning is refused it runs
    /// elsewhere, as they do.
    pub(crate) fn borrow_thread(&self) -> Option<PinGuard> {
        if let Cpus::One(cpu) = &self.place.cpus {
            inflight_sync::cpu::set_current_for_thread(Some(*cpu));
        }
        let topology = self.env.machine();
        let cpus = self.pinned_to(&topology)?;
        topology.pin_current_thread(&cpus).ok()
    }

    /// The end of [`borrow_thread`](Pool::borrow_thread).
    pub(crate) fn return_thread(&self, pinned: Option<PinGuard>) {
        drop(pinned);
        inflight_sync::cpu::set_current_for_thread(None);
    }

    /// Keeps the calling worker near its CPUs and gives it its priority, as far as the system lets
    /// it.
    pub(crate) fn settle_thread(&self) {
        let topology = self.env.machine();
        if let Some(cpus) = self.pinned_to(&topology) {
            // Where pinning is refused the worker runs elsewhere; what it queues stays with it.
            let _ = topology.pin_current_thread_for_good(&cpus);
        }
        if let Cpus::One(cpu) = &self.place.cpus {
            inflight_sync::cpu::set_current_for_thread(Some(*cpu));
        }
        if self.place.nice != 0 {
            nice::set(&self.env, self.place.nice);
        }
    }

    /// Where its workers are kept, if not everywhere.
    fn pinned_to(&self, topology: &Topology) -> Option<CpuSet> {
        match &self.place.cpus {
            Cpus::One(cpu) => Some([*cpu].into()),
            Cpus::Pod {
                allowed, strict, ..
            } => (*strict || allowed != topology.cpus()).then(|| allowed.clone()),
        }
    }

    /// The calling worker, which begins to work, goes back to its CPUs if it was woken on others.
    /// From then on it runs where the system wants it again. Returns whether it has moved.
    pub(crate) fn repatriate(&self) -> bool {
        let Cpus::Pod { cpus, strict, .. } = &self.place.cpus else {
            return false;
        };
        let may_stray = self.env.topology.is_this_machine() && self.place.may_have_peers();
        if *strict || !may_stray || cpus.contains(cpu::current()) {
            return false;
        }
        self.env.machine().pin_current_thread(cpus).is_ok()
    }

    pub(crate) fn env(&self) -> &Arc<Env> {
        &self.env
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn id(&self) -> usize {
        self.id
    }

    /// Names the pool in the words of items.
    pub(crate) fn key(&self) -> u32 {
        self.key
    }

    pub(crate) fn push(self: &Arc<Self>, entry: Entry) -> Deed {
        let rescuer = entry.queue.rescuer().cloned();
        let deed = self.patient_event(|core| ((), core.push(entry))).1;
        self.call_for_newcomers(rescuer.as_ref());
        deed
    }

    /// Entries of one queue, made while the pool is locked.
    pub(crate) fn push_all(
        self: &Arc<Self>,
        rescuer: Option<&Arc<Rescuer>>,
        entries: impl Iterator<Item = Entry>,
    ) -> Deed {
        let deed = self.patient_event(|core| ((), core.push_all(entries))).1;
        self.call_for_newcomers(rescuer);
        deed
    }

    /// V1: a mailbox with letters for this pool is to be emptied.
    pub(crate) fn ring(self: &Arc<Self>, queue: &Arc<Shared>, gate: usize) -> Deed {
        let deed = {
            let mut inner = self.state.lock();
            if inner.core.is_stopped() {
                return Deed::default(); // It has been emptied: nothing is queued.
            }
            let same = |(q, g): &(Arc<Shared>, usize)| *g == gate && Arc::ptr_eq(q, queue);
            if !inner.mail.iter().any(same) {
                inner.mail.push((queue.clone(), gate));
            }
            self.patient(inner, |core| ((), core.mail_came())).1
        };
        self.call_for_newcomers(queue.rescuer());
        deed
    }

    /// V3: of what was rung for there is more. The caller goes on with N1.
    fn still_rung(&self, mut mail: Vec<(Arc<Shared>, usize)>) {
        let mut inner = self.state.lock();
        if inner.core.is_stopped() {
            return; // As in `ring`.
        }
        // They were rung for before the others.
        mail.append(&mut inner.mail);
        inner.mail = mail;
        inner.core.mail_is_left();
    }

    /// V2: empties the mailboxes that have been rung for, if any. `false` if there was none.
    pub(crate) fn fetch_mail(self: &Arc<Self>) -> bool {
        let mail = self.take_mail(&mut self.state.lock());
        for (queue, gate) in &mail {
            queue.fetch(*gate);
        }
        !mail.is_empty()
    }

    fn take_mail(&self, inner: &mut Inner) -> Vec<(Arc<Shared>, usize)> {
        inner.core.mail_fetched();
        self.tell(inner);
        std::mem::take(&mut inner.mail)
    }

    /// A worker thread arrives.
    pub(crate) fn enter(&self, unparker: Unparker, seen: &Arc<Seen>) -> usize {
        let mut inner = self.state.lock();
        let me = inner.core.created();
        inner.seat(me, unparker, seen);
        me
    }

    /// R2: a rescuer arrives.
    pub(crate) fn attach(&self, unparker: Unparker, seen: &Arc<Seen>) -> usize {
        let mut inner = self.state.lock();
        let me = inner.core.attach();
        inner.seat(me, unparker, seen);
        me
    }

    /// R3: the next item of those queues, as long as the pool is in distress.
    pub(crate) fn rescue(
        self: &Arc<Self>,
        me: usize,
        mine: impl Fn(&Shared) -> bool,
    ) -> Option<Entry> {
        self.fetch_mail();
        let rescue = |core: &mut Core<Entry>| core.rescue(me, |entry| mine(&entry.queue));
        let (entry, deed) = self.event(|core| (rescue(core), Action::None));
        deed.perform();
        entry
    }

    /// R4: the rescuer leaves.
    pub(crate) fn detach(self: &Arc<Self>, me: usize) -> Deed {
        let deed = self.patient_event(|core| ((), core.detach(me))).1;
        let unused = self.state.lock().is_unused();
        if unused {
            self.offer();
        }
        deed
    }

    /// There is a lease again. The table's lock is held.
    pub(crate) fn leased(&self) {
        self.state.lock().leased = true;
    }

    /// There is no lease. The table's lock is held. If nothing is left in the pool it is over, and
    /// the workers are to be told.
    pub(crate) fn retire(&self) -> Option<Retired> {
        let mut inner = self.state.lock();
        inner.leased = false;
        if !inner.is_unused() {
            return None;
        }
        inner.retired = true;
        let woken = inner.core.stop();
        Some(Retired(inner.unparkers(woken)))
    }

    /// G3: nobody has a lease, and nothing is left.
    fn offer(self: &Arc<Self>) {
        if let Some(table) = self.table.upgrade() {
            table.release(self);
        }
    }

    /// Its workers leave before the system does.
    pub(crate) fn is_retired(&self) -> bool {
        self.state.lock().retired
    }

    /// See [`Core::would_wake`].
    pub(crate) fn would_wake(&self) -> bool {
        self.state.lock().core.would_wake()
    }

    /// Whether it matters how long items take.
    pub(crate) fn is_timed(&self) -> bool {
        // The looks that end all patience come by the system's time, or by the model's.
        let in_time = cfg!(loom) || !self.env.clock.is_manual();
        self.env.sampling.on && in_time
    }

    /// N1. `took` is what the item before took, in ns. `Fetch` says that a visit has begun.
    pub(crate) fn next(self: &Arc<Self>, me: usize, took: Option<u64>) -> (Next<Entry>, Deed) {
        let (mut took, mut room) = (took, Vec::new());
        let mut looked = false;
        loop {
            let mut inner = self.state.lock();
            if let Some(took) = took.take() {
                inner.core.took(took);
            }
            let gives_way = inner.core.gives_way(me);
            if !gives_way && inner.core.begin_recall(me) {
                // Items start in order: theirs come first.
                drop(inner);
                self.recall_but(Some(me));
                inner = self.state.lock();
                inner.core.end_recall();
            }
            if inner.mail.capacity() == 0 {
                std::mem::swap(&mut inner.mail, &mut room);
            }
            inner.core.at(me, cpu::current());
            let looks = !looked && !gives_way;
            if let Some((peers, mine)) = looks.then(|| inner.looks(me)).flatten() {
                drop(inner);
                if let Some(taken) = self.borrow(me, &peers, mine) {
                    return taken;
                }
                looked = true;
                continue;
            }
            let place = inner.hold();
            let (next, mut action) = inner.core.next(me);
            let lost = inner.retired && matches!(next, Next::Run(_));
            debug_assert!(!lost, "an item is found in a pool that is over");
            match next {
                Next::Fetch => {
                    let visits = inner.core.may_visit(me) > 0;
                    inner.core.hold(false);
                    let mut mail = std::mem::take(&mut inner.mail);
                    if visits && mail.len() == 1 {
                        // The note stays until the mailbox is empty: others come for letters too.
                        let (queue, gate) = mail[0].clone();
                        inner.mail = mail;
                        inner.core.mail_stays();
                        drop(inner);
                        if let Some(deed) = queue.draw(gate, self, me) {
                            return (Next::Fetch, deed);
                        }
                        mail = self.take_mail(&mut self.state.lock());
                    } else {
                        drop(inner);
                    }
                    mail.retain(|(queue, gate)| queue.fetch_some(*gate, self));
                    if mail.is_empty() {
                        room = mail;
                    } else {
                        self.still_rung(mail);
                    }
                    continue;
                }
                Next::Sleep if self.env.idle_timeout != Duration::MAX => {
                    let told = inner.core.went_idle(me, self.env.clock.now());
                    // Who parks brings nobody but a poller, or a thread in its place; such a pool
                    // has too few workers for one too many.
                    debug_assert!(told.is_none() || action == Action::None);
                    action = told.filter(|w| *w != me).map_or(action, Action::Wake);
                }
                _ => {}
            }
            let unused = inner.is_unused();
            let (next, deed) = self.held(inner, place, |_| (next, action));
            if unused {
                self.offer();
            }
            return (next, deed);
        }
    }

    /// B1. What the worker had in hand has been recalled.
    pub(crate) fn block(self: &Arc<Self>, me: usize) -> Deed {
        let cpu = cpu::current();
        let block = |core: &mut Core<Entry>| {
            core.at(me, cpu);
            core.block(me)
        };
        self.event(|core| ((), block(core))).1
    }

    /// A worker that is blocked already goes to sleep.
    pub(crate) fn ask_again(self: &Arc<Self>) -> Deed {
        self.patient_event(|core| ((), core.ask_again())).1
    }

    /// One that comes back may be the one that holds others back.
    pub(crate) fn unblock(self: &Arc<Self>, me: usize) -> Deed {
        self.event(|core| (core.unblock(me), Action::None)).1
    }

    /// How an idle worker goes on. Wakes those that are to leave with it.
    pub(crate) fn rest(&self, me: usize) -> Rest {
        let (rest, woken) = {
            let mut inner = self.state.lock();
            let now = self.env.clock.now();
            let (rest, woken) = inner.core.rest(me, now, self.env.idle_timeout);
            if rest == Rest::Work {
                self.has_come(&mut inner, me, now);
            }
            (rest, inner.unparkers(woken))
        };
        wake_all(&woken);
        rest
    }

    /// Sends the workers home. Nothing is queued and nothing will be.
    pub(crate) fn stop(&self) {
        let woken = {
            let mut inner = self.state.lock();
            let woken = inner.core.stop();
            // Their queues hold the system, and so this pool.
            let mail = std::mem::take(&mut inner.mail);
            let woken = inner.unparkers(woken);
            drop(inner);
            drop(mail);
            woken
        };
        wake_all(&woken);
    }

    /// As [`event`](Pool::event), but while the timekeeper looks after the pool's distress no
    /// thread is asked for.
    fn patient_event<R>(
        self: &Arc<Self>,
        f: impl FnOnce(&mut Core<Entry>) -> (R, Action),
    ) -> (R, Deed) {
        self.patient(self.state.lock(), f)
    }

    fn patient<R>(
        self: &Arc<Self>,
        mut inner: MutexGuard<'_, Inner>,
        f: impl FnOnce(&mut Core<Entry>) -> (R, Action),
    ) -> (R, Deed) {
        let place = inner.hold();
        self.held(inner, place, f)
    }

    /// As [`patient`](Pool::patient), where a better place has been looked for.
    fn held<R>(
        self: &Arc<Self>,
        mut inner: MutexGuard<'_, Inner>,
        place: Option<(Arc<Pool>, Reason)>,
        f: impl FnOnce(&mut Core<Entry>) -> (R, Action),
    ) -> (R, Deed) {
        let (result, mut action) = f(&mut inner.core);
        if self.is_asked_in_vain(&mut inner, action) {
            action = Action::None;
        }
        let help = inner.calls(place);
        let deed = self.deed(&mut inner, action);
        (result, Deed { help, ..deed })
    }

    /// One event of the core; its action becomes a deed.
    fn event<R>(self: &Arc<Self>, f: impl FnOnce(&mut Core<Entry>) -> (R, Action)) -> (R, Deed) {
        let mut inner = self.state.lock();
        let (result, action) = f(&mut inner.core);
        (result, self.deed(&mut inner, action))
    }

    fn bring(self: &Arc<Self>, inner: &mut Inner, action: Action) -> Bring {
        match action {
            Action::None => Bring::None,
            Action::Wake(worker) if inner.is_poller(worker) => Bring::Call(self.clone()),
            Action::Wake(worker) => {
                self.wakes(inner, worker);
                Bring::Wake(inner.unparkers[worker].clone())
            }
            Action::Create => Bring::Create(self.clone()),
        }
    }

    fn deed(self: &Arc<Self>, inner: &mut Inner, action: Action) -> Deed {
        let worker = self.bring(inner, action);
        let watched = self.env.sampling.on && !self.place.bh;
        let watch = watched && !inner.watched && inner.core.waits();
        if watch {
            inner.watched = true;
            inner.core.begin_looks();
        }
        self.tell(inner);
        Deed {
            worker,
            watch: watch.then(|| self.clone()),
            help: Help::None,
        }
    }

    /// L1: items wait behind others. The timekeeper looks at the pool from now on.
    fn begin_watch(self: &Arc<Self>) {
        let timekeeper = &self.env.timekeeper;
        let at = self.env.clock.now() + sampler::SOON;
        let set = timekeeper.set_alarm(&self.env, at, Alarm::Look(self.clone()));
        if !set {
            // The next event tries again. Nobody may wait for a look that does not come.
            self.state.lock().watched = false;
            self.recall();
            self.hasten(Core::hasten);
        }
    }

    /// L4: what has waited for those that run gets a worker of its own.
    fn hasten(self: &Arc<Self>, ask: impl FnOnce(&mut Core<Entry>) -> Action) {
        let mut inner = self.state.lock();
        let action = ask(&mut inner.core);
        let mut worker = Bring::None;
        if !self.is_asked_in_vain(&mut inner, action) {
            worker = self.bring(&mut inner, action);
        }
        let help = inner.calls(None);
        self.tell(&mut inner);
        drop(inner);
        let watch = None;
        Deed {
            worker,
            watch,
            help,
        }
        .perform();
    }

    /// L2, L3: one look at the pool.
    pub(crate) fn look(self: &Arc<Self>) {
        self.env.crowd.look(self.env.clock.now());
        self.recall();
        self.hasten(Core::look);
        if let Some(later) = self.sampler.look(self, self.env.sampling) {
            let at = self.env.clock.now() + later;
            let alarm = Alarm::Look(self.clone());
            self.env.timekeeper.set_if_there(at, alarm);
        }
    }

    /// The workers that hold others back. `None` if nothing waits.
    pub(crate) fn suspects(&self) -> Option<Vec<Suspect>> {
        let inner = self.state.lock();
        if !inner.core.waits() {
            return None;
        }
        let suspects = inner.core.suspects().filter_map(|(worker, turn)| {
            // In a model threads have no numbers, and nothing is read of them.
            let thread = inner.threads[worker].or(cfg!(loom).then_some(0))?;
            Some(Suspect {
                worker,
                turn,
                thread,
            })
        });
        Some(suspects.collect())
    }

    /// What was seen of workers in some turns. Returns whether any of it was news.
    pub(crate) fn found(self: &Arc<Self>, findings: Vec<(usize, u64, Finding)>) -> bool {
        let mut news = false;
        for (worker, turn, finding) in findings {
            // It may have taken more since it was looked at.
            self.recall_from(worker);
            let mut inner = self.state.lock();
            let (action, mark) = match finding {
                Finding::Asleep => (inner.core.found_asleep(worker, turn), worker::FOUND_ASLEEP),
                Finding::Intensive => (
                    inner.core.found_intensive(worker, turn),
                    worker::FOUND_INTENSIVE,
                ),
            };
            let Some(action) = action else { continue };
            news = true;
            let seen = inner.seen[worker].clone();
            // Relaxed, both: for a statistic and a hint.
            seen.found.store(mark, Ordering::Relaxed);
            let function = seen.function.load(Ordering::Relaxed);
            if mark == worker::FOUND_ASLEEP && function != 0 {
                self.env.learned.found_asleep(function);
            }
            let deed = self.deed(&mut inner, action);
            drop(inner);
            deed.perform();
        }
        news
    }

    /// Nothing has had to wait for long. `false` if something waits now.
    pub(crate) fn end_watch(&self) -> bool {
        let mut inner = self.state.lock();
        inner.watched = inner.core.waits();
        !inner.watched
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("place", &self.place)
            .field("state", &self.state_now())
            .finish_non_exhaustive()
    }
}
