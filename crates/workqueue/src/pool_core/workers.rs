//! The workers of a pool: who is idle, and who counts as running.

use super::pwq_state::PwqIndex;

/// A worker of one pool.
pub type WorkerId = usize;

/// Reasons not to count as running.
pub const BLOCKED: u8 = 1;
/// It was found asleep.
pub const ASLEEP: u8 = 2;
/// It computes for long, or its item's queue is not managed.
pub const INTENSIVE: u8 = 4;
/// A rescuer, or a worker of another pool.
pub(crate) const GUEST: u8 = 8;

/// So many idle workers are looked at for one that suits a CPU.
const FEW_IDLE: usize = 8;

/// Where a worker is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkerPhase {
    /// There is no such worker.
    #[default]
    Free,
    /// Its thread is being made.
    Creating,
    /// It is idle and has been woken.
    Waking,
    /// It runs items, or looks for some.
    Active,
    /// It sleeps until it is woken.
    Idle,
    /// It is told to leave.
    Leaving,
}

#[derive(Debug, Default)]
pub(crate) struct Worker {
    pub(crate) phase: WorkerPhase,
    /// Reasons not to count as running.
    flags: u8,
    /// It has no thread, and is not one of those that are idle.
    aside: bool,
    /// Entries of its batch below this are accounted for.
    pub(crate) settled: u32,
    /// Entries that others have put back and the worker has not noticed: from, to.
    pub(crate) recalled: Option<(u32, u32)>,
    /// Limited pwqs of which its batch holds a slot.
    pub(crate) held: Vec<PwqIndex>,
    /// When it went idle, in ns.
    idle_since: u64,
    /// The CPU on which it went idle, if that is known.
    idle_on: Option<usize>,
    /// Entries of its batch that are counted as in flight although they were not when they were
    /// appended, a bit each as in [`Batch`](crate::batch::Batch).
    pub(crate) counted_later: u64,
}

/// The workers of a pool.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Workers {
    target: u32,
    nr_running: u32,
    /// Those of them that have been woken or are being created, and are not there yet.
    nr_coming: u32,
    /// One of those that run has nothing to do and waits a little before it sleeps.
    lingering: bool,
    /// Nobody is created.
    pub(crate) creates: bool,
    /// The one that went idle last is woken first, but for `left_cpu`.
    pub(super) idle: Vec<WorkerId>,
    /// The CPU that a blocked worker is about to leave, until the next one is woken or it goes on.
    left_cpu: Option<usize>,
    all: Vec<Worker>,
    /// All but the free ones, those that leave, and guests.
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

    /// Workers that count as running, those on their way included.
    #[must_use]
    pub fn nr_running(&self) -> usize {
        self.nr_running as usize
    }

    /// Those that count as running and will take what is listed: they are on their way, or linger.
    #[inline]
    pub(crate) fn nr_takers(&self) -> usize {
        self.nr_coming as usize + usize::from(self.lingering)
    }

    /// Whether a worker that has nothing to do waits a little before it sleeps.
    #[inline]
    #[must_use]
    pub fn is_lingering(&self) -> bool {
        self.lingering
    }

    /// A worker begins that, or ends it. Only one at a time does.
    pub fn set_lingering(&mut self, lingering: bool) {
        self.lingering = lingering;
    }

    /// All workers that the pool has, those on their way included.
    pub(crate) fn nr_workers(&self) -> usize {
        self.nr_workers
    }

    pub(crate) fn nr_idle(&self) -> usize {
        self.idle.len()
    }

    /// No more may run.
    #[must_use]
    pub fn are_enough(&self) -> bool {
        self.nr_running >= self.target
    }

    /// One of those that run is to go: more run than may.
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

    /// Where a worker is in its life.
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
        // Its batch goes on counting where that of the worker before was.
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

    /// A further worker is created, as the first of a pool.
    pub fn create(&mut self) -> WorkerId {
        self.add(WorkerPhase::Creating, 0)
    }

    /// A rescuer, or a worker of another pool, comes to run entries of this one.
    pub fn attach(&mut self) -> WorkerId {
        self.add(WorkerPhase::Active, GUEST)
    }

    /// A worker without a thread, which is idle and only brought by its number.
    pub(crate) fn add_aside(&mut self) -> WorkerId {
        let worker = self.add(WorkerPhase::Idle, 0);
        self.all[worker].aside = true;
        self.nr_workers -= 1;
        worker
    }

    /// It is idle again.
    pub(crate) fn set_aside(&mut self, worker: WorkerId) {
        self.change(worker, |w| {
            w.phase = WorkerPhase::Idle;
            w.flags = 0;
        });
    }

    /// One that has been created or woken is there.
    pub fn arrive(&mut self, worker: WorkerId) {
        debug_assert!(matches!(
            self.all[worker].phase,
            WorkerPhase::Creating | WorkerPhase::Waking
        ));
        self.change(worker, |w| w.phase = WorkerPhase::Active);
    }

    /// There is nothing for it to do, since so many ns.
    pub fn enter_idle(&mut self, worker: WorkerId, since: u64) {
        self.change(worker, |w| {
            debug_assert!(w.held.is_empty(), "its batch has ended");
            w.phase = WorkerPhase::Idle;
            w.flags &= GUEST;
            w.idle_since = since;
            w.idle_on = None;
        });
        self.idle.push(worker);
    }

    /// It went idle on that CPU.
    pub(crate) fn set_idle_on(&mut self, worker: WorkerId, cpu: usize) {
        self.all[worker].idle_on = Some(cpu);
    }

    /// It is about to sleep outside, and leaves that CPU.
    pub(crate) fn block(&mut self, worker: WorkerId, cpu: usize) {
        self.set_flag(worker, BLOCKED, true);
        self.left_cpu = Some(cpu);
    }

    /// It goes on, and needs its CPU.
    pub(crate) fn unblock(&mut self, worker: WorkerId) {
        self.set_flag(worker, BLOCKED, false);
        self.left_cpu = None;
    }

    /// The idle worker that is woken next. For a CPU that is left it is one that went idle there,
    /// if there is one among the last few: the system lets it run there as soon as the other
    /// sleeps. Elsewhere it would wait for a CPU that is in use, beside one that is idle.
    pub(super) fn pop_idle(&mut self) -> Option<WorkerId> {
        let last = self.idle.len().checked_sub(1)?;
        let there = self.left_cpu.take().and_then(|cpu| {
            let mut few = (0..=last).rev().take(FEW_IDLE);
            few.find(|at| self.all[self.idle[*at]].idle_on == Some(cpu))
        });
        Some(self.idle.remove(there.unwrap_or(last)))
    }

    /// It has left, or its thread was refused.
    pub fn remove(&mut self, worker: WorkerId) {
        self.idle.retain(|idle| *idle != worker);
        let w = &self.all[worker];
        let counted = w.flags & GUEST == 0 && !w.aside && w.phase != WorkerPhase::Leaving;
        self.nr_workers -= usize::from(counted);
        self.change(worker, |w| (w.phase, w.aside) = (WorkerPhase::Free, false));
    }

    /// A reason for it not to count as running comes or goes.
    #[inline]
    pub fn set_flag(&mut self, worker: WorkerId, flag: u8, on: bool) {
        self.change(worker, |w| {
            w.flags = if on { w.flags | flag } else { w.flags & !flag };
        });
    }

    /// Its items have ended: what was found out about them counts no more.
    #[inline]
    pub fn clear_flags(&mut self, worker: WorkerId) {
        if self.all[worker].flags & !GUEST != 0 {
            self.change(worker, |w| w.flags &= GUEST);
        }
    }

    /// The one that has been idle for longest, and since when.
    pub(crate) fn coldest(&self) -> Option<(WorkerId, u64)> {
        let worker = *self.idle.first()?;
        Some((worker, self.all[worker].idle_since))
    }

    /// An idle worker is to leave.
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

    /// Nothing is known of it that would let others run beside it.
    pub(crate) fn may_hold_others_back(&self) -> bool {
        self.flags & !GUEST == 0
    }

    /// Whether it counts as running: it is active or on its way, and no reason says that it does
    /// not run.
    pub(crate) fn is_running(&self) -> bool {
        self.is_coming() || (self.phase == WorkerPhase::Active && self.flags == 0)
    }

    fn is_coming(&self) -> bool {
        matches!(self.phase, WorkerPhase::Creating | WorkerPhase::Waking) && self.flags == 0
    }
}
