//! The local engine: each CPU keeps the ids it has just freed, and nobody's id is out of reach.
//!
//! In front, one small stack of ids for each CPU, used without a locked instruction. Behind, the
//! shared words. When a getter finds neither, it closes and empties all stacks (*freeze*); from
//! then on every id passes through the words, until ids are plenty again (*thaw*). Only frozen may
//! the store say "none" or a caller sleep: so "none" is exact, and no id is stranded with a CPU
//! that does not need it. `PROTOCOL-local.md` has the steps, whose names stand here (MA, F1, Z …),
//! and the proofs.

mod batch;
mod control;
mod double_free;
mod freeze;
#[cfg(loom)]
pub(crate) mod model_backend;
mod queries;
mod refill;
mod resize;
mod summary;
mod words;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use crate::error::PutError;
use crate::layout::Layout;
use crate::request::Users;
use crate::word::Check;
use control::Control;
use double_free::DoubleFreeCheck;
use inflight_sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use inflight_sync::percpu::{Backend, CAPACITY, Stacks};
use inflight_sync::rseq::Rseq;
use inflight_sync::{CachePadded, Mutex};
pub(crate) use words::Flat;
use words::{Reach, Words};

/// The largest depth. Larger maps are for the shared engine, which needs less memory for an id.
pub(crate) const MAX_DEPTH: usize = 1 << 16;

/// The largest share of a CPU. Almost half of a stack's lines are then still free.
const LARGEST_CAP: usize = 32;

/// Thaw after this many ticks, of 32 puts each, in which nobody met "none".
///
/// A freeze with the barrier interrupts every CPU that runs the process, which is worth many puts;
/// to stay cold where ids are plenty costs an exchange on a shared word for each of them.
const THAW_AFTER: u32 = 4;

/// A freeze without it takes two locks for each stack that was open: a tick for so many stacks, and
/// the first is enough where there were fewer.
const STACKS_A_TICK: u32 = 16;

/// After so many ids that came into the locked stack of a CPU, without a freeze, sections are let
/// in.
///
/// It is what a barrier costs: so many without a lock have made up for it.
const UNLOCK_AFTER: u32 = 2_048;

/// As many words, and words of the summary, are looked at one by one: half a nanosecond each.
const FLAT: Flat = Flat {
    words: 16,
    groups: 4,
};

/// The largest table of stacks. CPUs beyond use the words.
const MOST_CPUS: usize = 1 << 12;

/// Choices a model or test makes; everybody else takes what [`Shape::of`] finds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) backend: Backend,
    pub(crate) cpus: usize,
    pub(crate) share: Share,
    /// `None`: as soon as what a freeze costs without a barrier is made up for.
    pub(crate) thaw_after: Option<u32>,
    /// Whether stacks are locked after ids ran short, and for how many ids that come into one.
    pub(crate) unlock_after: Option<u32>,
    /// More words than this have a summary, and a larger summary has one too.
    pub(crate) flat: Flat,
}

impl Shape {
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
            share: Share::of(depth, users.count),
            thaw_after: sections.then_some(THAW_AFTER),
            unlock_after,
            flat: FLAT,
        }
    }
}

/// How much of the ids the stacks may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// One stack.
    pub(crate) cap: u32,
    /// All of them.
    pub(crate) budget: u32,
}

impl Share {
    /// Half of the ids stay in the words, whatever the number of CPUs; the other half is for those
    /// that use them.
    pub(crate) fn of(depth: usize, users: usize) -> Self {
        let cap = (depth / (2 * users.max(1))).clamp(2, LARGEST_CAP.min(CAPACITY));
        Self {
            cap: cap as u32,
            budget: (depth / 2) as u32,
        }
    }

    /// Whether a single stack may hold its part.
    const fn suffices(self) -> bool {
        self.budget >= self.cap
    }
}

/// How far the fast path of a put has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FastPut {
    /// The id is in a stack.
    Done,
    /// Nothing has happened.
    Untried,
    /// The id is nobody's any more, and its stack has not taken it.
    Ended,
}

/// The store of ids. See the [module](self).
#[derive(Debug)]
pub(crate) struct PerCpuStore {
    stacks: Stacks,
    states: DoubleFreeCheck,
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
    control: Control,
    slow: CachePadded<Slow>,
}

/// What only slow paths touch.
#[derive(Debug)]
struct Slow {
    /// E. Changes of mode, one at a time.
    mode_lock: Mutex<Modes>,
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
struct Modes {
    /// What stacks may hold after the next thaw.
    share: Share,
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
        shape: Shape,
        users: usize,
    ) -> Self {
        debug_assert!(full.depth <= MAX_DEPTH && full.shift <= words::SHIFT_MAX);
        // Too few ids for a stack, and for good: always cold.
        let largest = Share::of(full.depth, users);
        let has_stacks = largest.suffices() || shape.share.suffices();
        let cpus = if has_stacks { shape.cpus } else { 0 };
        let stacks = Stacks::new(shape.backend, cpus);
        let is_warm = !stacks.is_empty() && shape.share.suffices();
        let words = Words::new(full, shape.flat);
        for i in 0..stacks.len() {
            // CPUs begin at different words.
            let first = i * full.with_depth(depth).words() / stacks.len();
            stacks.hint(i).store(first as u32, Ordering::Relaxed);
        }
        Self {
            states: DoubleFreeCheck::new(full.depth, check),
            words,
            full,
            depth: AtomicUsize::new(depth),
            fast_depth: AtomicUsize::new(if is_warm { depth } else { 0 }),
            cap: AtomicU32::new(shape.share.cap),
            thaw_after: shape.thaw_after,
            unlock_after: shape.unlock_after,
            control: Control::new(is_warm),
            slow: CachePadded::new(Slow {
                mode_lock: Mutex::new(Modes {
                    share: shape.share,
                    users,
                }),
                budget: AtomicU32::new(shape.share.budget),
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

    fn reach(&self) -> Reach {
        Reach::all(self.layout())
    }

    /// What the fast paths below can be told, so that they need not look: that the stacks are used
    /// by restartable sequences, and that the check takes no exchange.
    pub(crate) fn fast_path(&self) -> Option<Rseq> {
        self.stacks.rseq().filter(|_| !self.states.exchanges())
    }

    /// The fast path of `get`: this CPU's stack once, and nothing else that could take time.
    ///
    /// Else an id that is to be given to `put_above_depth`, if any.
    #[inline(always)]
    pub(crate) fn get_fast(&self, rseq: Option<Rseq>) -> Result<usize, Option<u32>> {
        // Relaxed: see `fast_depth`.
        let depth = self.fast_depth.load(Ordering::Relaxed);
        if depth == 0 {
            return Err(None);
        }
        let id = match rseq {
            Some(rseq) => self.stacks.pop_once_by(rseq, depth)?,
            None => self.stacks.pop_once(depth)?,
        };
        self.states.begin(id);
        Ok(id)
    }

    /// The fast path of `give_back`.
    #[inline(always)]
    pub(crate) fn give_back_fast(&self, rseq: Option<Rseq>, id: usize) -> FastPut {
        // Relaxed: see `fast_depth`.
        let below = id < self.fast_depth.load(Ordering::Relaxed);
        let ended = below
            && match rseq {
                Some(_) => self.states.end_alone(id),
                None => self.states.end(id),
            };
        if !ended {
            return FastPut::Untried;
        }
        let pushed = match rseq {
            Some(rseq) => self.stacks.push_once_by(rseq, id as u32),
            None => self.stacks.push_once(id as u32),
        };
        if pushed {
            FastPut::Done
        } else {
            FastPut::Ended
        }
    }

    /// Takes an id unless somebody waits; `None` is exact when nobody does.
    #[inline]
    pub(crate) fn get(&self) -> Option<usize> {
        // Relaxed: as in `layout`.
        let depth = self.depth.load(Ordering::Relaxed);
        // Closed stacks need not be asked.
        let seen = self.control.load_relaxed();
        let popped = if !seen.is_warm() {
            Err(None)
        } else if seen.is_locked() {
            let popped = self.stacks.pop_locked();
            popped.filter(|&id| (id as usize) < depth).ok_or(popped)
        } else {
            self.stacks.pop_below(depth)
        };
        let id = match popped {
            Ok(id) => id as usize,
            Err(other) => self.get_slow(other)?,
        };
        self.states.begin(id);
        Some(id)
    }

    /// Gives an id back. `true`: somebody may wait, and the caller sees to it.
    #[inline]
    pub(crate) fn give_back(&self, id: usize) -> Result<bool, PutError> {
        // Relaxed: as in `layout`.
        let below = id < self.depth.load(Ordering::Relaxed);
        if !below && id >= self.full.depth {
            return Err(PutError::OutOfRange { bit: id });
        }
        if !self.states.end(id) {
            return Err(PutError::NotAllocated { bit: id });
        }
        let seen = self.control.load_relaxed();
        if below && seen.is_warm() {
            if seen.is_locked() {
                if self.stacks.push_locked(id as u32) {
                    self.count_locked(1);
                    return Ok(false);
                }
            } else if self.stacks.push(id as u32) {
                return Ok(false);
            }
        }
        self.put_slow(id, below)
    }
}
