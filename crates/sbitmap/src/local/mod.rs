//! The local engine: each CPU keeps the ids it has just freed, and each id can be got by all CPUs.
//!
//! In front, one small stack of ids for each CPU, used without a locked instruction. Behind, the
//! shared words. When a getter finds neither, it closes and empties all stacks (*freeze*); from
//! then on every id passes through the words, until ids are plenty again (*thaw*). Only frozen may
//! the store say "none" or a caller sleep: so "none" is exact, and no id is stranded with a CPU
//! that does not need it. `PROTOCOL-local.md` has the steps, whose names stand here (MA, F1, Z …),
//! and the proofs.

mod batch;
mod bits_in_use;
mod drain_percpu;
mod get;
mod mode_word;
#[cfg(loom)]
pub(crate) mod model_backend;
mod put;
mod refill;
mod resize;
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

/// The largest depth. Larger maps are for the shared engine, which needs less memory for an id.
pub(crate) const MAX_DEPTH: usize = 1 << 16;

/// As many words, and words of the summary, are looked at one by one: half a nanosecond each.
const SUMMARY_THRESHOLDS: SummaryThresholds = SummaryThresholds {
    words: 16,
    groups: 4,
};

/// The largest table of stacks. CPUs beyond use the words.
const MOST_CPUS: usize = 1 << 12;

/// Choices a model or test makes; everybody else takes what [`StoreConfig::of`] finds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreConfig {
    pub(crate) backend: Backend,
    pub(crate) cpus: usize,
    pub(crate) limits: StackLimits,
    /// `None`: as soon as what a freeze costs without a barrier is made up for.
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
    /// How many ids there are to hand out now.
    depth: AtomicUsize,
    /// The mode, for the fast paths: the depth while stacks are for sections, else 0. Changed with
    /// E. It may be late: then a stack refuses, or is not asked.
    fast_depth: AtomicUsize,
    /// How many ids a stack may hold. Changed with E, while all stacks are closed.
    cap: AtomicU32,
    thaw_after: Option<u32>,
    unlock_after: Option<u32>,
    mode: ModeWord,
    slow: CachePadded<Slow>,
}

/// What only slow paths touch.
#[derive(Debug)]
struct Slow {
    /// E. Changes of mode, one at a time.
    mode_lock: Mutex<NextLimits>,
    /// What may still be opened.
    budget: AtomicU32,
    /// Counts puts in the words, one tick for every 32.
    ticks: AtomicU32,
    /// The tick of the last "none".
    last_none: AtomicU32,
    /// How many stacks the last freeze closed.
    closed: AtomicU32,
    /// Which stacks may be open, a bit for each: those that a freezer looks at.
    opened: Box<[AtomicU64]>,
    freezes: AtomicU32,
}

/// What the holder of E knows.
#[derive(Debug)]
struct NextLimits {
    /// What stacks may hold after the next thaw.
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
        // Too few ids for a stack, and for good: always cold.
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

    /// What keeps users of a stack apart on this machine.
    pub(crate) const fn backend(&self) -> Backend {
        self.stacks.backend()
    }

    fn cap(&self) -> u32 {
        // Relaxed: who opens a stack holds its refill lock, which came here from the freezer that
        // changed this; to others it is a guess.
        self.cap.load(Ordering::Relaxed)
    }

    fn layout(&self) -> Layout {
        // Relaxed: a resize makes its change known by a freeze; see `resize`.
        self.full.with_depth(self.depth.load(Ordering::Relaxed))
    }

    fn depths(&self) -> WordDepths {
        WordDepths::all(self.layout())
    }

    /// What the fast paths below can be told, so that they need not look: that the stacks are used
    /// by restartable sequences, and that the check takes no exchange.
    pub(crate) fn fast_path(&self) -> Option<Rseq> {
        self.stacks.rseq().filter(|_| !self.states.swaps())
    }
}
