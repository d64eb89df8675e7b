//! Where the calling thread runs: a hint, never a fact.
//!
//! The thread may move to another CPU before the number is looked at. Whoever uses it must be
//! correct for every number.

use std::cell::Cell;

crate::thread_local! {
    // loom's macro has no const form.
    #[allow(clippy::missing_const_for_thread_local)]
    static OVERRIDE: Cell<Option<usize>> = Cell::new(None);
}

/// The number of the CPU the calling thread runs on, or the one set by [`set_current_for_thread`].
///
/// Asks the C library on Linux (about 1 ns). On other systems each thread keeps one number of its
/// own. Under a model checker it is 0 until set.
///
/// ```
/// let cpu = inflight_sync::cpu::current();
/// let slot = cpu % inflight_sync::cpu::possible();
/// # let _ = slot;
/// ```
#[must_use]
pub fn current() -> usize {
    OVERRIDE
        .try_with(Cell::get)
        .ok()
        .flatten()
        .unwrap_or_else(system_current)
}

/// Makes [`current`] answer `cpu` on the calling thread, `None` to ask the system again.
///
/// For tests, models and simulators: it moves no thread.
///
/// ```
/// use inflight_sync::cpu;
/// cpu::set_current_for_thread(Some(40));
/// assert_eq!(cpu::current(), 40);
/// cpu::set_current_for_thread(None);
/// ```
pub fn set_current_for_thread(cpu: Option<usize>) {
    OVERRIDE.with(|o| o.set(cpu));
}

/// How many CPUs the system may have: a size for tables indexed by CPU. At least 1.
///
/// CPU numbers may be sparse and therefore larger; take them modulo the table's size. Two under
/// loom.
///
/// ```
/// assert!(inflight_sync::cpu::possible() >= 1);
/// ```
#[must_use]
pub fn possible() -> usize {
    #[cfg(loom)]
    {
        2
    }
    #[cfg(all(target_os = "linux", not(loom)))]
    {
        // SAFETY: sysconf takes a number and touches no memory of ours.
        let n = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
        usize::try_from(n).unwrap_or(1).max(1)
    }
    #[cfg(all(not(target_os = "linux"), not(loom)))]
    {
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
    }
}

#[cfg(any(loom, shuttle))]
fn system_current() -> usize {
    0
}

#[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
fn system_current() -> usize {
    // SAFETY: sched_getcpu has no preconditions and touches no memory of ours.
    let cpu = unsafe { libc::sched_getcpu() };
    usize::try_from(cpu).unwrap_or(0)
}

#[cfg(all(any(not(target_os = "linux"), miri), not(any(loom, shuttle))))]
fn system_current() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    std::thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    OWN.try_with(|own| *own).unwrap_or(0)
}
