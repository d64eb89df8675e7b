//! The local engine: each CPU keeps the ids that it has just freed, and all CPUs can get every id.
//!
//! Each CPU has a small stack of ids, used without a locked instruction. Behind the stacks are the
//! shared words. A getter that finds no id in either closes and empties all stacks (*freeze*). From
//! then on every id passes through the words, until ids are plentiful again (*thaw*). The store may
//! report "none", and a caller may sleep, only while it is frozen. So "none" is exact, and no id is
//! stranded on a CPU that does not need it. `PROTOCOL-local.md` has the steps, whose names are used
//! here (MA, F1, Z …), and the proofs.

mod batch;
mod bits_in_use;
mod drain_percpu;
mod get;
mod mode_word;
#[cfg(loom)]
pub(crate) mod model_backend;
mod put;
mod refill;
mod stack_limits;
mod store;
mod summary;
mod thaw;
mod words;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use crate::double_free::{Check, IdStates};
use crate::layout::Layout;
use crate::rules::Users;
use inflight_sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use inflight_sync::percpu::{Backend, Stacks};
use inflight_sync::rseq::Rseq;
use inflight_sync::{CachePadded, Mutex};
use mode_word::ModeWord;
pub(crate) use put::FastPut;
pub(crate) use stack_limits::StackLimits;
use thaw::{THAW_AFTER, UNLOCK_AFTER};
pub(crate) use words::SummaryThresholds;
use words::{WordDepths, Words};

/// The largest depth. Larger maps use the shared engine, which needs less memory for an id.
pub(crate) const MAX_DEPTH: usize = 1 << 16;

/// Up to so many words, and words of the summary, are read one by one: half a nanosecond each.
const SUMMARY_THRESHOLDS: SummaryThresholds = SummaryThresholds {
    words: 16,
    groups: 4,
};

/// The largest table of stacks. CPUs with larger numbers use the words.
const MOST_CPUS: usize = 1 << 12;

/// Choices for a model or test; otherwise [`StoreConfig::of`] decides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreConfig {
    pub(crate) backend: Backend,
    pub(crate) cpus: usize,
    pub(crate) limits: StackLimits,
    /// `None` means as soon as the cost of a freeze without a barrier is recovered.
    pub(crate) thaw_after: Option<u32>,
    /// Whether stacks are locked after ids ran short, and for how many ids that come into one.
    pub(crate) unlock_after: Option<u32>,
    /// More words than this have a summary, and a larger summary has one too.
    pub(crate) thresholds: SummaryThresholds,
}

impl StoreConfig {
    /// What suits `depth` ids on this machine, used by these of its CPUs.
    pub(crate) fn of(depth: usize, users: Users) -> Self {
        Self::on(Backend::best(), depth, users)
    }

    /// As `of`, on another back end.
    pub(crate) fn on(backend: Backend, depth: usize, users: Users) -> Self {
        // Models choose for themselves.
        let sections = backend != Backend::TryLock;
        let unlock_after = (sections && !cfg!(loom)).then_some(UNLOCK_AFTER);
        Self {
            backend,
            cpus: users.of.min(MOST_CPUS),
            limits: StackLimits::of(depth, users.count),
            thaw_after: sections.then_some(THAW_AFTER),
            unlock_after,
            thresholds: SUMMARY_THRESHOLDS,
        }
    }
}

/// The store of ids. See the [module](self).
#[derive(Debug)]
pub(crate) struct PerCpuStore {
    stacks: Stacks,
    states: IdStates,
    words: Words,
    /// The words at the largest depth.
    full: Layout,
    /// How many ids may be handed out now.
    depth: AtomicUsize,
    /// The mode, for the fast paths: the depth while stacks are used by sections, else 0. Changed
    /// with E. It may be seen late: then a stack refuses, or is not tried.
    fast_depth: AtomicUsize,
    /// How many ids a stack may hold. Changed with E, while all stacks are closed.
    cap: AtomicU32,
    thaw_after: Option<u32>,
    unlock_after: Option<u32>,
    mode: ModeWord,
    slow: CachePadded<Slow>,
}

/// Fields that only slow paths use.
#[derive(Debug)]
struct Slow {
    /// E. One change of mode at a time.
    mode_lock: Mutex<NextLimits>,
    /// How many ids' worth of stacks may still be opened.
    budget: AtomicU32,
    /// Counts puts to the words, one tick for every 32.
    ticks: AtomicU32,
    /// The tick of the last "none".
    last_none: AtomicU32,
    /// How many stacks the last freeze closed.
    closed: AtomicU32,
    /// Which stacks may be open, a bit for each: the freezer looks at these.
    opened: Box<[AtomicU64]>,
    freezes: AtomicU32,
}

/// The state that the holder of E uses.
#[derive(Debug)]
struct NextLimits {
    /// The limits of stacks after the next thaw.
    limits: StackLimits,
    /// How many CPUs use the ids.
    users: usize,
}

impl PerCpuStore {
    /// `depth` ids, at most `full.depth`, in words of `full`, whose shift is at most 5.
    ///
    /// `users` CPUs share them.
    pub(crate) fn new(
        full: Layout,
        depth: usize,
        check: Check,
        config: StoreConfig,
        users: usize,
    ) -> Self {
        debug_assert!(full.depth <= MAX_DEPTH && full.shift <= words::SHIFT_MAX);
        // Too few ids for a stack at any depth: always cold.
        let largest = StackLimits::of(full.depth, users);
        let has_stacks = largest.suffices() || config.limits.suffices();
        let cpus = if has_stacks { config.cpus } else { 0 };
        let stacks = Stacks::new(config.backend, cpus);
        let is_warm = !stacks.is_empty() && config.limits.suffices();
        let words = Words::new(full, config.thresholds);
        for i in 0..stacks.len() {
            // CPUs begin at different words.
            let first = i * full.with_depth(depth).words() / stacks.len();
            stacks.hint(i).store(first as u32, Ordering::Relaxed);
        }
        Self {
            states: IdStates::new(full.depth, check),
            words,
            full,
            depth: AtomicUsize::new(depth),
            fast_depth: AtomicUsize::new(if is_warm { depth } else { 0 }),
            cap: AtomicU32::new(config.limits.cap),
            thaw_after: config.thaw_after,
            unlock_after: config.unlock_after,
            mode: ModeWord::new(is_warm),
            slow: CachePadded::new(Slow {
                mode_lock: Mutex::new(NextLimits {
                    limits: config.limits,
                    users,
                }),
                budget: AtomicU32::new(config.limits.budget),
                ticks: AtomicU32::new(0),
                last_none: AtomicU32::new(0),
                closed: AtomicU32::new(0),
                opened: (0..stacks.len().div_ceil(64))
                    .map(|_| AtomicU64::new(0))
                    .collect(),
                freezes: AtomicU32::new(0),
            }),
            stacks,
        }
    }

    /// The widest shift the words of this engine allow.
    pub(crate) const fn shift(wanted: u32) -> u32 {
        if wanted < words::SHIFT_MAX {
            wanted
        } else {
            words::SHIFT_MAX
        }
    }

    pub(crate) const fn bits_per_word(&self) -> usize {
        self.full.bits_per_word()
    }

    /// What protects a stack from concurrent users on this machine.
    pub(crate) const fn backend(&self) -> Backend {
        self.stacks.backend()
    }

    fn cap(&self) -> u32 {
        // Relaxed: a thread that opens a stack holds its refill lock, which came here from the
        // freezer that changed this; for others it is a guess.
        self.cap.load(Ordering::Relaxed)
    }

    fn layout(&self) -> Layout {
        // Relaxed: a resize publishes its change by a freeze; see `resize`.
        self.full.with_depth(self.depth.load(Ordering::Relaxed))
    }

    fn depths(&self) -> WordDepths {
        WordDepths::all(self.layout())
    }

    /// For the fast paths below, so that they need not check: returns the section if the stacks use
    /// restartable sequences and the check needs no exchange.
    pub(crate) fn fast_path(&self) -> Option<Rseq> {
        self.stacks.rseq().filter(|_| !self.states.swaps())
    }
}
