//! One CPU's stack: a few cache lines, and its use without restartable sections.

use super::Backend;
#[cfg(loom)]
use crate::atomic::fence;
use crate::atomic::{AtomicU32, Ordering};
use crate::{Mutex, thread};

/// The largest limit of a stack: its ids and its other fields take 256 bytes.
pub const CAPACITY: usize = if cfg!(loom) { 4 } else { 58 };

/// A bit of a limit: the stack is open to users with a lock.
const LOCKED: u32 = 1 << 31;

/// The offsets are known to the sections in assembly.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Stack {
    /// The number of ids. Invariant: at most `CAPACITY`, because only a push below the limit adds
    /// one.
    len: AtomicU32,
    /// The largest number of ids; 0: closed. With [`LOCKED`] it is open only to users with the
    /// lock: for sections it is a negative number then.
    limit: AtomicU32,
    /// 1: a user has the lock.
    lock: AtomicU32,
    pub(super) hint: AtomicU32,
    /// For the owner of the stacks to count with.
    pub(super) count: AtomicU32,
    /// For threads that move several ids, or open or close the stack.
    pub(super) refill: Mutex<()>,
    /// 32 bits wide: some processors forward a pushed value to the next pop without a memory
    /// access, but not one of 16 bits.
    ids: [AtomicU32; CAPACITY],
    /// 1: a user is inside. Models have this flag in place of sections.
    #[cfg(loom)]
    flag: AtomicU32,
}

#[cfg(inflight_rseq)]
const _: () = {
    assert!(size_of::<Stack>() == 256, "the sections shift by 8");
    assert!(std::mem::offset_of!(Stack, len) == 0);
    assert!(std::mem::offset_of!(Stack, limit) == 4);
    assert!(std::mem::offset_of!(Stack, ids) == 24);
};

/// How users without restartable sequences exclude each other.
///
/// An open stack is open to users of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exclusion {
    TryLock,
    #[cfg(loom)]
    BusyFlag,
}

impl Exclusion {
    pub(super) const fn of(backend: Backend) -> Self {
        match backend {
            #[cfg(loom)]
            Backend::BusyFlag => Self::BusyFlag,
            _ => Self::TryLock,
        }
    }

    pub(super) const fn backend(self) -> Backend {
        match self {
            Self::TryLock => Backend::TryLock,
            #[cfg(loom)]
            Self::BusyFlag => Backend::BusyFlag,
        }
    }

    /// How many ids a limit allows users of this kind; none if this is not above 0.
    #[inline(always)]
    const fn allowed(self, limit: u32) -> i32 {
        let limit = match self {
            Self::TryLock => limit ^ LOCKED,
            #[cfg(loom)]
            Self::BusyFlag => limit,
        };
        limit as i32
    }
}

impl Stack {
    pub(super) fn new() -> Self {
        Self {
            len: AtomicU32::new(0),
            limit: AtomicU32::new(0),
            lock: AtomicU32::new(0),
            hint: AtomicU32::new(0),
            count: AtomicU32::new(0),
            refill: Mutex::new(()),
            ids: std::array::from_fn(|_| AtomicU32::new(0)),
            #[cfg(loom)]
            flag: AtomicU32::new(0),
        }
    }

    /// Begins to use this stack exclusively. `false`: another thread uses it.
    #[inline(always)]
    pub(super) fn enter(&self, exclusion: Exclusion) -> bool {
        match exclusion {
            Exclusion::TryLock => self.try_lock(),
            #[cfg(loom)]
            Exclusion::BusyFlag => {
                // Relaxed: the fence orders it before the look at the limit.
                self.flag.store(1, Ordering::Relaxed);
                // Ordering: pairs with the fence in `Stacks::barrier`.
                fence(Ordering::SeqCst);
                true
            }
        }
    }

    /// Ends what `enter` began.
    #[inline(always)]
    pub(super) fn leave(&self, exclusion: Exclusion) {
        let inside = match exclusion {
            Exclusion::TryLock => &self.lock,
            #[cfg(loom)]
            Exclusion::BusyFlag => &self.flag,
        };
        // Ordering: Release pairs with the Acquire of the next holder, or in `wait_and_empty`.
        inside.store(0, Ordering::Release);
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        // Ordering: Acquire pairs with the Release of the last holder, in `leave` or in
        // `wait_and_empty`.
        self.lock_once(Ordering::Acquire)
    }

    /// A swap costs a tenth less than a compare and exchange, and a thread that finds 1 has changed
    /// nothing.
    #[cfg(not(loom))]
    #[inline(always)]
    fn lock_once(&self, order: Ordering) -> bool {
        self.lock.swap(1, order) == 0
    }

    /// Loom may order an unconditional swap after the holder's plain store of 0, although it read
    /// 1, and leave the lock taken.
    #[cfg(loom)]
    fn lock_once(&self, order: Ordering) -> bool {
        // Relaxed: a refusal orders nothing.
        let taken = self.lock.compare_exchange(0, 1, order, Ordering::Relaxed);
        taken.is_ok()
    }

    /// For the exclusive user.
    #[inline(always)]
    pub(super) fn pop(&self, exclusion: Exclusion) -> Option<u32> {
        // Ordering: Acquire pairs with the Release in `open`: a thread that sees the stack open
        // again sees it empty, as the closer left it. Therefore the limit is read first.
        if exclusion.allowed(self.limit.load(Ordering::Acquire)) <= 0 {
            return None;
        }
        // Relaxed: users exclude each other, and the last one's writes came with the lock.
        let top = self.len.load(Ordering::Relaxed).checked_sub(1)?;
        let id = self.ids[top as usize].load(Ordering::Relaxed);
        self.len.store(top, Ordering::Relaxed);
        Some(id)
    }

    /// For the exclusive user.
    #[inline(always)]
    pub(super) fn push(&self, exclusion: Exclusion, id: u32) -> bool {
        // Ordering: Acquire as in `pop`. A length read first could be from before a drain, and
        // its ids would come back to life.
        let limit = exclusion.allowed(self.limit.load(Ordering::Acquire));
        // Relaxed: as in `pop`.
        let len = self.len.load(Ordering::Relaxed);
        if len as i32 >= limit {
            return false;
        }
        self.ids[len as usize].store(id, Ordering::Relaxed);
        self.len.store(len + 1, Ordering::Relaxed);
        #[cfg(any(loom, shuttle))]
        super::model::count_push();
        true
    }

    /// For sections.
    pub(super) fn open(&self, limit: u32) {
        let limit = limit.min(CAPACITY as u32);
        // Ordering: Release pairs with the Acquire in `pop` and `push`.
        self.limit.store(limit, Ordering::Release);
    }

    /// For users with the lock.
    pub(super) fn open_locked(&self, limit: u32) {
        let limit = limit.min(CAPACITY as u32) | LOCKED;
        // Ordering: Release as in `open`.
        self.limit.store(limit, Ordering::Release);
    }

    /// Whether users with the lock would be let in: a guess.
    pub(super) fn is_locked(&self) -> bool {
        // Relaxed: checked again under the lock.
        self.limit.load(Ordering::Relaxed) & LOCKED != 0
    }

    pub(super) fn is_open(&self) -> bool {
        // Relaxed: the caller keeps closers and openers out by a lock, or wants a hint.
        self.limit.load(Ordering::Relaxed) != 0
    }

    pub(super) fn close(&self) {
        // Relaxed: `Stacks::barrier` orders it.
        self.limit.store(0, Ordering::Relaxed);
    }

    /// Takes all ids out. The caller knows that no user is under way.
    pub(super) fn empty(&self, mut each: impl FnMut(u32)) {
        // Relaxed: the barrier, the lock or the flag has made the last user's writes visible.
        let len = self.len.load(Ordering::Relaxed);
        for id in &self.ids[..len as usize] {
            each(id.load(Ordering::Relaxed));
        }
        // Relaxed: the next user comes after the Release in `open` or `wait_and_empty`.
        self.len.store(0, Ordering::Relaxed);
    }

    /// Waits for a user that is under way, then empties the stack.
    pub(super) fn wait_and_empty(&self, exclusion: Exclusion, each: impl FnMut(u32)) {
        let mut backoff = Backoff::default();
        match exclusion {
            Exclusion::TryLock => {
                while !self.try_lock() {
                    backoff.snooze();
                }
                self.empty(each);
                // Ordering: Release pairs with the Acquire in `try_lock`.
                self.lock.store(0, Ordering::Release);
            }
            #[cfg(loom)]
            Exclusion::BusyFlag => {
                // Ordering: Acquire pairs with the Release in `leave`.
                while self.flag.load(Ordering::Acquire) != 0 {
                    backoff.snooze();
                }
                self.empty(each);
            }
        }
    }
}

/// Waits for a user, which takes a few instructions unless it has lost its CPU.
#[derive(Default)]
struct Backoff(u32);

impl Backoff {
    fn snooze(&mut self) {
        self.0 += 1;
        #[cfg(not(any(loom, shuttle)))]
        if self.0 > 64 {
            // A waiter of a real-time class would yield to itself for ever.
            return std::thread::sleep(std::time::Duration::from_micros(50));
        }
        thread::yield_now();
    }
}
