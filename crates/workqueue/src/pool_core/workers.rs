//! The workers of a pool: which are idle, and which count as running.

use super::pwq_state::PwqIndex;

/// Identifies a worker of one pool.
pub type WorkerId = usize;

/// A reason not to count as running: it said that it blocks.
pub const BLOCKED: u8 = 1;
/// It was found asleep.
pub const ASLEEP: u8 = 2;
/// It is CPU-intensive, or its item's queue is unmanaged.
pub const INTENSIVE: u8 = 4;
/// It is a rescuer, or a worker of another pool.
pub(crate) const GUEST: u8 = 8;

/// How many idle workers are searched for one that suits a CPU.
const FEW_IDLE: usize = 8;

/// The phase of a worker's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkerPhase {
    /// There is no such worker.
    #[default]
    Free,
    /// Its thread is being created.
    Creating,
    /// It was idle and has been woken.
    Waking,
    /// It runs items, or looks for some.
    Active,
    /// It sleeps until it is woken.
    Idle,
    /// It has been told to exit.
    Leaving,
}

#[derive(Debug, Default)]
pub(crate) struct Worker {
    pub(crate) phase: WorkerPhase,
    /// Reasons not to count as running.
    flags: u8,
    /// Entries of its batch below this are settled.
    pub(crate) settled: u32,
    /// Entries that others have put back, from and to, if the worker has not noticed.
    pub(crate) recalled: Option<(u32, u32)>,
    /// The pwqs of which its batch holds a slot.
    pub(crate) held: Vec<PwqIndex>,
    /// When it became idle, in ns.
    idle_since: u64,
    /// The CPU on which it became idle, if that is known.
    idle_on: Option<usize>,
    /// One bit for each entry of its batch that was not counted as in flight when it was appended,
    /// but is now; as in [`Batch`](crate::batch::Batch).
    pub(crate) counted_later: u64,
}

/// The workers of a pool.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Workers {
    target: u32,
    nr_running: u32,
    /// Those that have been woken or are being created and have not arrived.
    nr_coming: u32,
    /// Whether a running worker has nothing to do and lingers before it sleeps.
    lingering: bool,
    /// Whether workers may be created.
    pub(crate) creates: bool,
    /// The last one to become idle is woken first, unless `left_cpu` is set.
    pub(super) idle: Vec<WorkerId>,
    /// The CPU that a blocking worker leaves, until one is woken or it continues.
    left_cpu: Option<usize>,
    all: Vec<Worker>,
    /// All except free ones, leaving ones and guests.
    nr_workers: usize,
}

impl Workers {
    pub(crate) fn new(target: usize) -> Self {
        Self {
            target: u32::try_from(target).unwrap_or(u32::MAX),
            creates: true,
            ..Self::default()
        }
    }

    pub(crate) fn target(&self) -> usize {
        self.target as usize
    }

    /// Workers that count as running, including those that have not arrived.
    #[must_use]
    pub fn nr_running(&self) -> usize {
        self.nr_running as usize
    }

    /// Workers that will take what is listed: they have not arrived yet, or linger.
    #[inline]
    pub(crate) fn nr_takers(&self) -> usize {
        self.nr_coming as usize + usize::from(self.lingering)
    }

    /// Whether a worker that has nothing to do lingers before it sleeps.
    #[inline]
    #[must_use]
    pub fn is_lingering(&self) -> bool {
        self.lingering
    }

    /// Sets whether a worker lingers. Only one does at a time.
    pub fn set_lingering(&mut self, lingering: bool) {
        self.lingering = lingering;
    }

    /// All workers of the pool, including those that have not arrived.
    pub(crate) fn nr_workers(&self) -> usize {
        self.nr_workers
    }

    pub(crate) fn nr_idle(&self) -> usize {
        self.idle.len()
    }

    /// Whether no further worker may run.
    #[must_use]
    pub fn are_enough(&self) -> bool {
        self.nr_running >= self.target
    }

    /// Whether more workers run than may, so that one of them has to stop.
    #[inline]
    #[must_use]
    pub fn are_too_many(&self) -> bool {
        self.nr_running > self.target
    }

    #[inline]
    pub(crate) fn get(&self, worker: WorkerId) -> &Worker {
        &self.all[worker]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, worker: WorkerId) -> &mut Worker {
        &mut self.all[worker]
    }

    /// The phase of a worker's life.
    #[cfg(any(test, feature = "unstable-sim"))]
    #[must_use]
    pub fn phase(&self, worker: WorkerId) -> WorkerPhase {
        self.all[worker].phase
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (WorkerId, &Worker)> {
        let all = self.all.iter().enumerate();
        all.filter(|(_, w)| w.phase != WorkerPhase::Free)
    }

    pub(super) fn change(&mut self, worker: WorkerId, change: impl FnOnce(&mut Worker)) {
        let worker = &mut self.all[worker];
        let (before, came) = (worker.is_running(), worker.is_coming());
        change(worker);
        let (after, comes) = (worker.is_running(), worker.is_coming());
        self.nr_running = self.nr_running + u32::from(after) - u32::from(before);
        self.nr_coming = self.nr_coming + u32::from(comes) - u32::from(came);
    }

    pub(super) fn add(&mut self, phase: WorkerPhase, flags: u8) -> WorkerId {
        let free = self.all.iter().position(|w| w.phase == WorkerPhase::Free);
        let worker = free.unwrap_or_else(|| {
            self.all.push(Worker::default());
            self.all.len() - 1
        });
        // Entries are counted on from the worker that had this number before.
        let Worker { settled, held, .. } = std::mem::take(&mut self.all[worker]);
        self.all[worker] = Worker {
            flags,
            settled,
            held,
            ..Worker::default()
        };
        self.nr_workers += usize::from(flags & GUEST == 0);
        self.change(worker, |w| w.phase = phase);
        worker
    }

    /// Counts a worker that is being created, such as the first of a pool.
    pub fn create(&mut self) -> WorkerId {
        self.add(WorkerPhase::Creating, 0)
    }

    /// Adds a rescuer, or a worker of another pool, that will run entries of this one.
    pub fn attach(&mut self) -> WorkerId {
        self.add(WorkerPhase::Active, GUEST)
    }

    /// Adds a worker without a thread. It is idle, but not on the list: only `wake_this` wakes it.
    pub(crate) fn add_aside(&mut self) -> WorkerId {
        self.add(WorkerPhase::Idle, 0)
    }

    pub(crate) fn set_aside(&mut self, worker: WorkerId) {
        self.change(worker, |w| {
            w.phase = WorkerPhase::Idle;
            w.flags = 0;
        });
    }

    /// A worker that was created or woken has arrived.
    pub fn arrive(&mut self, worker: WorkerId) {
        debug_assert!(matches!(
            self.all[worker].phase,
            WorkerPhase::Creating | WorkerPhase::Waking
        ));
        self.change(worker, |w| w.phase = WorkerPhase::Active);
    }

    /// The worker has had nothing to do since `since`, in ns.
    pub fn enter_idle(&mut self, worker: WorkerId, since: u64) {
        self.change(worker, |w| {
            debug_assert!(
                w.held.is_empty(),
                "only a worker whose batch has ended becomes idle"
            );
            w.phase = WorkerPhase::Idle;
            w.flags &= GUEST;
            w.idle_since = since;
        });
        self.idle.push(worker);
    }

    pub(crate) fn set_idle_on(&mut self, worker: WorkerId, cpu: usize) {
        self.all[worker].idle_on = Some(cpu);
    }

    /// It is about to sleep outside the pool, and leaves that CPU.
    pub(crate) fn block(&mut self, worker: WorkerId, cpu: usize) {
        self.set_flag(worker, BLOCKED, true);
        self.left_cpu = Some(cpu);
    }

    /// It continues, and needs its CPU.
    pub(crate) fn unblock(&mut self, worker: WorkerId) {
        self.set_flag(worker, BLOCKED, false);
        self.left_cpu = None;
    }

    /// The idle worker to wake next. If a CPU is being left, it is one that became idle there, if
    /// there is one among the last few: it can run there as soon as the blocked worker sleeps. A
    /// worker of another CPU might wait for a busy CPU while this one is idle.
    pub(super) fn pop_idle(&mut self) -> Option<WorkerId> {
        let last = self.idle.len().checked_sub(1)?;
        let there = self.left_cpu.take().and_then(|cpu| {
            let mut few = (0..=last).rev().take(FEW_IDLE);
            few.find(|at| self.all[self.idle[*at]].idle_on == Some(cpu))
        });
        Some(self.idle.remove(there.unwrap_or(last)))
    }

    /// The worker has left, or its thread was refused.
    pub fn remove(&mut self, worker: WorkerId) {
        self.idle.retain(|idle| *idle != worker);
        let w = &self.all[worker];
        let counted = w.flags & GUEST == 0 && w.phase != WorkerPhase::Leaving;
        self.nr_workers -= usize::from(counted);
        self.change(worker, |w| w.phase = WorkerPhase::Free);
    }

    /// Sets or clears a reason for the worker not to count as running.
    #[inline]
    pub fn set_flag(&mut self, worker: WorkerId, flag: u8, on: bool) {
        self.change(worker, |w| {
            w.flags = if on { w.flags | flag } else { w.flags & !flag };
        });
    }

    /// Its items have ended: clears what was found about them.
    #[inline]
    pub fn clear_flags(&mut self, worker: WorkerId) {
        if self.all[worker].flags & !GUEST != 0 {
            self.change(worker, |w| w.flags &= GUEST);
        }
    }

    /// The worker that has been idle longest, and since when.
    pub(crate) fn coldest(&self) -> Option<(WorkerId, u64)> {
        let worker = *self.idle.first()?;
        Some((worker, self.all[worker].idle_since))
    }

    /// Takes an idle worker off the list; it is to exit.
    pub(crate) fn dismiss(&mut self, worker: WorkerId) {
        self.idle.retain(|idle| *idle != worker);
        self.nr_workers -= 1;
        self.change(worker, |w| w.phase = WorkerPhase::Leaving);
    }
}

impl Worker {
    pub(crate) fn is_blocked(&self) -> bool {
        self.flags & (BLOCKED | ASLEEP) != 0
    }

    /// Whether it is a rescuer, or a worker of another pool.
    pub(crate) fn is_guest(&self) -> bool {
        self.flags & GUEST != 0
    }

    /// Whether it has no flag that lets others run beside it.
    pub(crate) fn may_hold_others_back(&self) -> bool {
        self.flags & !GUEST == 0
    }

    /// Whether it counts as running: active or on its way, with no flag against it.
    pub(crate) fn is_running(&self) -> bool {
        self.is_coming() || (self.phase == WorkerPhase::Active && self.flags == 0)
    }

    fn is_coming(&self) -> bool {
        matches!(self.phase, WorkerPhase::Creating | WorkerPhase::Waking) && self.flags == 0
    }
}
