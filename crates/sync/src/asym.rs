//! A fence pair whose light side is nearly free.
//!
//! Two threads that each write one word and then read the other's need a full fence on both sides.
//! If one side runs a million times as often as the other, the kernel can put the fence into the
//! frequent side's instruction stream when the rare side needs it. The idea is the one behind
//! Linux's `membarrier` and folly's asymmetric barrier.

use crate::atomic::{Ordering, compiler_fence, fence};

/// The pair: [`light`](AsymFence::light) on the frequent side, [`heavy`](AsymFence::heavy) on the
/// rare one.
///
/// After a `light` on one thread and a `heavy` on another, at least one of the two sees the other's
/// writes before its fence. `heavy` costs microseconds while CPUs run threads of this process;
/// `light` stops only the compiler. If the system does not offer it, both are `fence(SeqCst)`.
///
/// ```
/// use inflight_sync::asym::AsymFence;
/// use inflight_sync::atomic::{AtomicBool, Ordering};
/// let (fence, mine, theirs) = (AsymFence::new(), AtomicBool::new(false), AtomicBool::new(false));
/// mine.store(true, Ordering::Relaxed);
/// fence.light(); // the other side: store, `heavy`, load
/// let saw = theirs.load(Ordering::Relaxed);
/// # fence.heavy();
/// # let _ = saw;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AsymFence {
    expedited: bool,
}

impl AsymFence {
    /// Asks the system once whether it has such fences; registers this process for them if so.
    #[must_use]
    pub fn new() -> Self {
        Self {
            expedited: register(),
        }
    }

    /// Makes the frequent side's fence.
    #[inline]
    pub fn light(&self) {
        if self.expedited {
            // Ordering: pairs with the barrier that `heavy` makes the kernel run on this CPU.
            compiler_fence(Ordering::SeqCst);
        } else {
            // Ordering: pairs with the fence in `heavy`.
            fence(Ordering::SeqCst);
        }
    }

    /// Makes the rare side's fence.
    pub fn heavy(&self) {
        if self.expedited {
            barrier();
        } else {
            // Ordering: pairs with the fence in `light`.
            fence(Ordering::SeqCst);
        }
    }
}

/// Makes a full fence for a thread whose last access to memory was a read-modify-write that
/// succeeded.
///
/// On x86-64 that access was a full fence by itself, so only the compiler is stopped; elsewhere,
/// and for tools that cannot know this, it is `fence(SeqCst)`.
///
/// ```
/// use inflight_sync::atomic::{AtomicU32, Ordering};
/// let given = AtomicU32::new(0);
/// given.fetch_add(1, Ordering::Release);
/// inflight_sync::asym::fence_after_rmw(); // then look for waiters
/// ```
#[inline]
pub fn fence_after_rmw() {
    if cfg!(all(inflight_rseq, target_arch = "x86_64")) {
        // Ordering: the locked instruction before it is the fence; pairs with the caller's partner.
        compiler_fence(Ordering::SeqCst);
    } else {
        // Ordering: pairs with the caller's partner.
        fence(Ordering::SeqCst);
    }
}

impl Default for AsymFence {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
pub(crate) mod system {
    /// Commands of membarrier(2).
    const QUERY: libc::c_int = 0;
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

    pub(crate) fn membarrier(command: libc::c_int) -> libc::c_long {
        // SAFETY: membarrier takes three numbers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
    }

    pub(super) fn register() -> bool {
        let offered = membarrier(QUERY);
        offered > 0
            && offered & libc::c_long::from(PRIVATE_EXPEDITED) != 0
            && membarrier(REGISTER_PRIVATE_EXPEDITED) == 0
    }

    pub(super) fn barrier() {
        let failed = membarrier(PRIVATE_EXPEDITED) != 0;
        // A process stays registered for life, so this cannot fail; going on without the barrier
        // would break the other side silently.
        assert!(!failed, "membarrier refused after registration");
    }
}

#[cfg(not(all(target_os = "linux", not(any(loom, shuttle, miri)))))]
mod system {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn barrier() {
        unreachable!("called only after a successful registration");
    }
}

use system::{barrier, register};

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::atomic::AtomicUsize;
    use crate::{Arc, thread};

    /// Store buffering: with a light fence on one side and a heavy one on the other, both sides
    /// reading the old value is impossible.
    fn store_buffering(asym: AsymFence, rounds: usize) {
        for _ in 0..rounds {
            let words = Arc::new([const { AtomicUsize::new(0) }; 3]);
            let [start, ..] = &*words;
            let other = thread::spawn({
                let words = words.clone();
                move || {
                    let [start, x, y] = &*words;
                    while start.load(Ordering::Acquire) == 0 {
                        crate::hint::spin_loop();
                    }
                    x.store(1, Ordering::Relaxed);
                    asym.light();
                    y.load(Ordering::Relaxed)
                }
            });
            start.store(1, Ordering::Release);
            let [_, x, y] = &*words;
            y.store(1, Ordering::Relaxed);
            asym.heavy();
            let here = x.load(Ordering::Relaxed);
            assert!(
                other.join().unwrap() + here > 0,
                "both sides missed the other"
            );
        }
    }

    #[test]
    fn one_side_sees_the_other() {
        let rounds = if cfg!(miri) { 5 } else { 500 };
        store_buffering(AsymFence::new(), rounds);
    }
}
