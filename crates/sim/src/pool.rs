//! The shipped core of a worker pool, driven without threads: items are numbers, and a batch is
//! one item.

use inflight_sync::Arc;
use inflight_workqueue::unstable::{
    Deferred, Limit, NrActive, PoolCore, PoolItem, PwqId, PwqIndex, WakeAction, WorkerId,
    WorkerPhase,
};

/// An item in the FIFO of its pwq. Its position matters to those who cancel, and nobody does.
#[derive(Clone, Copy, Debug)]
struct Entry {
    item: usize,
    colour: u8,
}

impl PoolItem for Entry {
    fn colour(&self) -> u8 {
        self.colour
    }

    fn set_position(&self, _: u32) {}
}

/// What a worker runs: an item, and what it gives back at the end.
#[derive(Clone, Copy, Debug)]
struct Running {
    pwq: PwqIndex,
    colour: u8,
}

/// A pool.
#[derive(Debug)]
pub(crate) struct Pool {
    core: PoolCore<Entry>,
    /// By worker.
    running: Vec<Option<Running>>,
}

impl Pool {
    /// A pool without workers, in which `target` may run at once.
    pub(crate) fn new(target: usize) -> Self {
        Self {
            core: PoolCore::new(target),
            running: Vec::new(),
        }
    }

    /// A queue is linked to the pool.
    pub(crate) fn add_pwq(&mut self, id: PwqId, limit: Limit) -> PwqIndex {
        self.core.add_pwq(id, limit, false)
    }

    /// Another worker, which has a thread already and is idle.
    pub(crate) fn add_idle(&mut self) -> WorkerId {
        let worker = self.core.workers.create();
        self.core.workers.arrive(worker);
        self.core.workers.enter_idle(worker, 0);
        worker
    }

    /// An item has come; nobody is brought for it yet.
    pub(crate) fn push(&mut self, pwq: PwqIndex, item: usize) {
        self.core.push(pwq, |colour| Entry { item, colour });
    }

    /// The worker to wake or create for what waits. Unless `now`, little work is left to running
    /// workers.
    pub(crate) fn need_worker(&mut self, now: bool) -> WakeAction {
        self.core.need_worker(now)
    }

    /// A worker is wanted, whatever waits.
    pub(crate) fn invite(&mut self) -> WakeAction {
        if self.core.workers.are_enough() {
            return WakeAction::None;
        }
        self.core.workers.wake_or_create()
    }

    /// The worker has come, if it was on its way, or its item has ended. Returns the pwqs, of this
    /// and other pools, that are to be granted a slot.
    pub(crate) fn ask(&mut self, worker: WorkerId) -> Vec<(Arc<NrActive>, PwqId)> {
        use WorkerPhase::{Creating, Waking};
        if matches!(self.core.workers.phase(worker), Creating | Waking) {
            self.core.workers.arrive(worker);
        }
        if let Some(Running { pwq, colour }) = self.running.get_mut(worker).and_then(Option::take) {
            self.core.ended(pwq, colour, 1, 1);
            self.core.release_held(worker, None);
        }
        let slot = |deferred| match deferred {
            Deferred::Slot(nr_active, pwq) => Some((nr_active, pwq)),
            Deferred::Flushed(..) | Deferred::Idle(..) => None,
        };
        self.core.drain_deferred().filter_map(slot).collect()
    }

    /// The pwq has waited for a slot, and has one.
    pub(crate) fn grant(&mut self, pwq: PwqIndex) {
        self.core.grant(pwq);
    }

    /// The worker takes an item, if it may run and there is one.
    pub(crate) fn take(&mut self, worker: WorkerId) -> Option<usize> {
        if self.core.workers.are_too_many() {
            return None;
        }
        let mut taken = None;
        self.core.take(worker, |pwq, places| {
            for &Entry { item, colour } in places.iter().flatten() {
                taken = Some((item, Running { pwq, colour }));
            }
        });
        let (item, running) = taken?;
        if self.running.len() <= worker {
            self.running.resize(worker + 1, None);
        }
        self.running[worker] = Some(running);
        Some(item)
    }

    /// A worker of another pool takes an item and runs it as a guest.
    pub(crate) fn steal(&mut self) -> Option<(WorkerId, usize)> {
        if !self.core.has_waiting() {
            return None;
        }
        let guest = self.core.workers.attach();
        let item = self.take(guest);
        if item.is_none() {
            self.core.workers.remove(guest);
        }
        Some((guest, item?))
    }

    /// The guest, whose item has ended and been [`ask`](Pool::ask)ed for, leaves.
    pub(crate) fn detach(&mut self, guest: WorkerId) {
        self.core.workers.remove(guest);
    }

    /// The worker sleeps.
    pub(crate) fn park(&mut self, worker: WorkerId, now: u64) {
        self.core.workers.enter_idle(worker, now);
    }

    /// Items took so many ns each.
    pub(crate) fn note_service(&mut self, ns: u64) {
        self.core.note_service(ns);
    }

    /// Whether items wait for those that run.
    pub(crate) fn has_waiting(&self) -> bool {
        self.core.has_waiting()
    }

    /// What it knows of itself.
    pub(crate) fn load(&self) -> inflight_workqueue::unstable::Load {
        inflight_workqueue::unstable::Load {
            waiting: self.core.listed(),
            awake: self.core.workers.nr_running(),
            service: self.core.service_ns(),
            ..Default::default()
        }
    }
}
