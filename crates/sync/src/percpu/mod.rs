//! Small stacks of ids, one for each CPU, that the owner uses without a lock.
//!
//! An allocator keeps the ids that a CPU has just freed in that CPU's stack, and hands them out
//! again from there: no cache line leaves the core. When ids run short, the allocator must be able
//! to stop that and find each id, so each stack has a *limit*, the number of ids it may hold; 0
//! closes it.
//!
//! # Exclusion
//!
//! | back end | two users of one stack | a user and the one who closes it |
//! |---|---|---|
//! | [`Rseq`](Backend::Rseq) | the kernel restarts the one it takes off the CPU | [`barrier`](Stacks::barrier): the kernel restarts all that run |
//! | [`TryLock`](Backend::TryLock) | a lock word in the stack's line; busy refuses | the same lock |
//! | `BusyFlag` (loom only) | one user for each stack | the flag and a full fence |
//!
//! The third stands for the first in models: a section that saw the limit completes before the
//! closer continues, and any other sees 0.
//!
//! A stack of the first may be opened for a while as one of the second:
//! [`open_locked`](Stacks::open_locked). Its users are slower, but the kernel's barrier, which
//! costs thousands of them, is not needed to close it.
//!
//! # To collect every id
//!
//! [`close`](Stacks::close) every stack, then make one [`barrier`](Stacks::barrier), then
//! [`drain`](Stacks::drain) every stack. No user commits anything to a closed stack after the
//! barrier. Only one thread at a time may do this, and no thread may [`open`](Stacks::open) a stack
//! from its close to the end of its drain: ids would be lost or handed out twice. Memory stays
//! sound whatever a caller does.
//!
//! ```
//! use inflight_sync::percpu::{Backend, Stacks};
//! let stacks = Stacks::new(Backend::best(), 4_096);
//! if let Some(here) = stacks.here() {
//!     stacks.open(here, 8);
//! }
//! let kept = stacks.push(7); // refused if the thread has moved to another CPU
//! let mut found = Vec::new();
//! (0..stacks.len()).for_each(|i| stacks.close(i));
//! stacks.barrier();
//! (0..stacks.len()).for_each(|i| stacks.drain(i, |id| found.push(id)));
//! assert_eq!(found.len(), usize::from(kept));
//! ```

mod backend;
mod counter;
#[cfg(any(loom, shuttle))]
mod model;
mod open_close;
#[cfg(inflight_rseq)]
#[cfg_attr(target_arch = "x86_64", path = "section_x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "section_aarch64.rs")]
mod section;
#[cfg(not(inflight_rseq))]
#[path = "section_none.rs"]
mod section;
mod stack;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub use backend::Backend;
pub use counter::PerCpuCounter;
#[cfg(any(loom, shuttle))]
pub use model::pushes;
pub use stack::CAPACITY;

use crate::CachePadded;
use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::rseq::Rseq;
use crate::{Mutex, cpu};
use stack::{Exclusion, Stack};

/// How often a section that the kernel interrupts is started again before the call is refused.
///
/// A thread that a debugger single-steps never ends one.
const RESTARTS: usize = 64;

// The results of a use of a stack that are neither an id nor a length.

/// It was done.
const DONE: i32 = 1;
/// Closed, empty, full or busy, or no stack for this CPU.
const REFUSED: i32 = -1;
/// The kernel took the thread off its CPU, or delivered a signal.
const ABORTED: i32 = -2;

/// One stack of ids for each CPU.
///
/// See the [module](self) for the protocol and an example.
///
/// ```
/// use inflight_sync::percpu::{Backend, Stacks};
/// use std::sync::atomic::Ordering::Relaxed;
/// let stacks = Stacks::new(Backend::TryLock, 1);
/// assert_eq!((stacks.len(), stacks.is_empty(), stacks.here()), (1, false, Some(0)));
/// assert_eq!((stacks.backend(), stacks.aborts()), (Backend::TryLock, 0));
/// assert!(!stacks.is_open(0) && !stacks.push(5), "closed until opened");
/// stacks.open(0, 2);
/// assert_eq!(stacks.push_all(&[5, 6, 7]), 2, "the third is refused");
/// assert_eq!(stacks.pop(), Some(6));
/// assert_eq!(stacks.pop_below(5), Err(Some(5)));
/// assert_eq!(stacks.pop_all(&mut [0; 4]), 0);
/// let _moving = stacks.refill_lock(0).try_lock().expect("nobody else");
/// stacks.hint(0).store(7, Relaxed);
/// stacks.count(0).store(1, Relaxed);
/// ```
#[derive(Debug)]
pub struct Stacks {
    rseq: Option<Rseq>,
    exclusion: Exclusion,
    stacks: Box<[Stack]>,
    /// Sections that the kernel interrupted. Rarely written: only when a thread loses its CPU.
    aborts: CachePadded<AtomicU64>,
}

impl Stacks {
    /// Makes `cpus` empty, closed stacks. With [`Backend::Rseq`] on a system that refuses it,
    /// [`Backend::TryLock`].
    #[must_use]
    pub fn new(backend: Backend, cpus: usize) -> Self {
        // CPU numbers have 32 bits; a table that long cannot be used to its end.
        let cpus = cpus.min(1 << 16);
        Self {
            rseq: match backend {
                Backend::Rseq => Rseq::probe(),
                _ => None,
            },
            exclusion: Exclusion::of(backend),
            stacks: (0..cpus).map(|_| Stack::new()).collect(),
            aborts: CachePadded::new(AtomicU64::new(0)),
        }
    }

    /// Returns the back end.
    #[must_use]
    pub const fn backend(&self) -> Backend {
        match self.rseq {
            Some(_) => Backend::Rseq,
            None => self.exclusion.backend(),
        }
    }

    /// Returns the number of stacks.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.stacks.len()
    }

    /// Returns whether there is no stack at all: every call is refused.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    /// Returns the stack of the calling thread's CPU; the CPU may be another as soon as this
    /// returns.
    ///
    /// `None` if there is no stack of that number.
    #[inline]
    #[must_use]
    pub fn here(&self) -> Option<usize> {
        match self.rseq {
            Some(rseq) => {
                let cpu = rseq.cpu_or_large() as usize;
                (cpu < self.stacks.len()).then_some(cpu)
            }
            None => self.here_by_any_number(),
        }
    }

    #[inline(never)]
    fn here_by_any_number(&self) -> Option<usize> {
        self.here_exclusively()
    }

    /// Users with a lock may use the stack of any CPU, so an old number or a thread's number
    /// serves.
    #[inline(always)]
    fn here_exclusively(&self) -> Option<usize> {
        let (cpu, len) = (cpu::recent(), self.stacks.len());
        if cpu < len {
            Some(cpu)
        } else {
            cpu.checked_rem(len)
        }
    }

    /// Takes the id that this CPU's stack got last.
    ///
    /// `None` if the stack is empty, closed, or busy.
    #[inline(always)]
    #[must_use = "the number is in no stack any more"]
    pub fn pop(&self) -> Option<u32> {
        self.pop_within(u64::from(u32::MAX) + 1).ok()
    }

    /// Takes an id as [`pop`](Stacks::pop), and checks in the same step whether the id is below
    /// `bound`, which is at most 2^32.
    ///
    /// # Errors
    ///
    /// The id, if one was popped that is not below `bound`.
    #[inline(always)]
    pub fn pop_below(&self, bound: usize) -> Result<u32, Option<u32>> {
        self.pop_within(bound as u64)
    }

    #[inline(always)]
    fn pop_within(&self, bound: u64) -> Result<u32, Option<u32>> {
        let result = self.pop_first();
        // As an unsigned number, a result that is no id is large.
        if (result as u64) < bound {
            Ok(result as u32)
        } else {
            match self.pop_again(result) {
                Some(id) if u64::from(id) < bound => Ok(id),
                other => Err(other),
            }
        }
    }

    #[inline(always)]
    fn pop_first(&self) -> i64 {
        match self.rseq {
            Some(rseq) => section::pop(rseq, &self.stacks),
            None => self.pop_exclusively(),
        }
    }

    /// One attempt of [`pop_below`](Stacks::pop_below), to be inlined.
    ///
    /// By a restartable sequence, for a caller that has kept the result of [`rseq`](Stacks::rseq)
    /// and need not ask again; `None` asks. With an `Rseq` of other stacks, users of stacks that a
    /// lock protects would no longer exclude each other.
    ///
    /// # Errors
    ///
    /// The id, if one was popped that is not below `bound`. `None` has no meaning: call `pop`.
    ///
    /// ```
    /// use inflight_sync::percpu::{Backend, Stacks};
    /// let stacks = Stacks::new(Backend::best(), 1);
    /// let rseq = stacks.rseq();
    /// assert_eq!(stacks.pop_once(rseq, 5), Err(None), "closed");
    /// assert!(!stacks.push_once(rseq, 5));
    /// ```
    #[inline(always)]
    pub fn pop_once(&self, rseq: Option<Rseq>, bound: usize) -> Result<usize, Option<u32>> {
        let result = match rseq {
            Some(rseq) => section::pop(rseq, &self.stacks),
            None => self.pop_first(),
        };
        if (result as u64) < bound as u64 {
            Ok(result as usize)
        } else {
            Err(u32::try_from(result).ok())
        }
    }

    /// Adds an id to this CPU's stack. `false` if the stack is full, closed, or busy.
    #[inline(always)]
    #[must_use = "a refused id is still the caller's"]
    pub fn push(&self, id: u32) -> bool {
        let result = self.push_first(id);
        result >= 0 || self.push_again(result, id)
    }

    #[inline(always)]
    fn push_first(&self, id: u32) -> i32 {
        match self.rseq {
            Some(rseq) => section::push(rseq, &self.stacks, id),
            None => self.push_exclusively(id),
        }
    }

    /// One attempt of [`push`](Stacks::push), in the way of [`pop_once`](Stacks::pop_once).
    #[inline(always)]
    #[must_use = "a refused id is still the caller's"]
    pub fn push_once(&self, rseq: Option<Rseq>, id: u32) -> bool {
        let result = match rseq {
            Some(rseq) => section::push(rseq, &self.stacks, id),
            None => self.push_first(id),
        };
        result >= 0
    }

    /// Returns the key to these stacks' restartable sequences, if those exclude their users.
    #[must_use]
    pub const fn rseq(&self) -> Option<Rseq> {
        self.rseq
    }

    #[inline(always)]
    fn pop_exclusively(&self) -> i64 {
        let mut result = i64::from(REFUSED);
        if let Some(stack) = self.entered() {
            if let Some(id) = stack.pop(self.exclusion) {
                result = i64::from(id);
            }
            stack.leave(self.exclusion);
        }
        result
    }

    #[inline(always)]
    fn push_exclusively(&self, id: u32) -> i32 {
        let mut result = REFUSED;
        if let Some(stack) = self.entered() {
            if stack.push(self.exclusion, id) {
                result = DONE;
            }
            stack.leave(self.exclusion);
        }
        result
    }

    /// The stack of this CPU, if no other thread uses it. It is the caller's until the caller
    /// leaves it.
    #[inline(always)]
    fn entered(&self) -> Option<&Stack> {
        let stack = self.stacks.get(self.here_exclusively()?)?;
        stack.enter(self.exclusion).then_some(stack)
    }

    #[cold]
    #[inline(never)]
    fn pop_again(&self, mut result: i64) -> Option<u32> {
        for rseq in self.rseq.iter().cycle().take(RESTARTS) {
            if result != i64::from(ABORTED) {
                break;
            }
            self.count_abort();
            result = section::pop(*rseq, &self.stacks);
        }
        match u32::try_from(result) {
            Ok(id) => Some(id),
            Err(_) => self.locked_here(|stack| stack.pop(Exclusion::TryLock))?,
        }
    }

    #[cold]
    #[inline(never)]
    fn push_again(&self, mut result: i32, id: u32) -> bool {
        for rseq in self.rseq.iter().cycle().take(RESTARTS) {
            if result != ABORTED {
                break;
            }
            self.count_abort();
            result = section::push(*rseq, &self.stacks, id);
        }
        result >= 0 || self.locked_here(|stack| stack.push(Exclusion::TryLock, id)) == Some(true)
    }

    /// `by_lock`, for a caller that was refused. Not if the stacks have only locks: that was just
    /// tried.
    fn locked_here<T>(&self, user: impl FnOnce(&Stack) -> T) -> Option<T> {
        if self.backend() == Backend::TryLock {
            return None;
        }
        self.by_lock(user)
    }

    /// Uses this CPU's stack under its lock, if it is open to users with a lock and the lock is
    /// free.
    #[inline(always)]
    fn by_lock<T>(&self, user: impl FnOnce(&Stack) -> T) -> Option<T> {
        let stack = &self.stacks[self.here()?];
        if !stack.is_locked() || !stack.enter(Exclusion::TryLock) {
            return None;
        }
        let result = user(stack);
        stack.leave(Exclusion::TryLock);
        Some(result)
    }

    /// Pushes one id after the other as [`push`](Stacks::push), with one lock for all if there is a
    /// lock. Returns how many were added, the first ones.
    #[must_use = "refused ids are still the caller's"]
    pub fn push_all(&self, ids: &[u32]) -> usize {
        let all = |stack: &Stack, exclusion| {
            let added = ids.iter().take_while(|&&id| stack.push(exclusion, id));
            added.count()
        };
        match self.by_lock(|stack| all(stack, Exclusion::TryLock)) {
            Some(added) => added,
            None if self.backend() == Backend::TryLock => 0,
            None => ids.iter().take_while(|&&id| self.push(id)).count(),
        }
    }

    /// Pops as [`pop`](Stacks::pop) until `ids` is full, in the way of
    /// [`push_all`](Stacks::push_all).
    #[must_use = "ids that are dropped are lost"]
    pub fn pop_all(&self, ids: &mut [u32]) -> usize {
        fn fill(ids: &mut [u32], next: impl FnMut() -> Option<u32>) -> usize {
            let found = std::iter::from_fn(next);
            ids.iter_mut()
                .zip(found)
                .map(|(place, id)| *place = id)
                .count()
        }
        match self.by_lock(|stack| fill(ids, || stack.pop(Exclusion::TryLock))) {
            Some(found) => found,
            None if self.backend() == Backend::TryLock => 0,
            None => fill(ids, || self.pop()),
        }
    }

    /// Pops as [`pop`](Stacks::pop), for a caller that knows that stacks are
    /// [`open_locked`](Stacks::open_locked), so that the call need not check.
    #[must_use = "the number is in no stack any more"]
    pub fn pop_locked(&self) -> Option<u32> {
        self.by_lock(|stack| stack.pop(Exclusion::TryLock))
            .flatten()
    }

    /// Pushes as [`push`](Stacks::push), in the way of [`pop_locked`](Stacks::pop_locked).
    #[must_use = "a refused id is still the caller's"]
    pub fn push_locked(&self, id: u32) -> bool {
        self.by_lock(|stack| stack.push(Exclusion::TryLock, id)) == Some(true)
    }

    fn count_abort(&self) {
        // Relaxed: a statistic.
        self.aborts.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many sections the kernel has interrupted so far. A stress test that never sees
    /// one has not tested them.
    #[must_use]
    pub fn aborts(&self) -> u64 {
        self.aborts.load(Ordering::Relaxed)
    }

    /// Returns the word for the place where the user of stack `i` begins its search for more.
    #[inline]
    #[must_use]
    pub fn hint(&self, i: usize) -> &AtomicU32 {
        &self.stacks[i].hint
    }

    /// Returns a number beside stack `i`, for its user to count with.
    #[must_use]
    pub fn count(&self, i: usize) -> &AtomicU32 {
        &self.stacks[i].count
    }

    /// Returns a lock beside stack `i`: for threads that move several ids, or open or close it.
    #[must_use]
    pub fn refill_lock(&self, i: usize) -> &Mutex<()> {
        &self.stacks[i].refill
    }
}
