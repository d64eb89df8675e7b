//! The CPU of the calling thread: a hint, never a fact.
//!
//! The thread may move to another CPU before the number is used. The user of the number must be
//! correct for every number.
//!
//! ```
//! use inflight_sync::cpu;
//! let slot = cpu::current() % cpu::possible(); // of a table with a place for each CPU
//! assert!(cpu::usable() <= cpu::possible() && cpu::online() <= cpu::possible());
//! cpu::set_current_for_thread(Some(40)); // in a test
//! assert_eq!((cpu::current(), cpu::recent()), (40, 40));
//! assert_eq!(cpu::swap_current_for_thread(None), Some(40));
//! # let _ = slot;
//! ```

use std::cell::Cell;
use system::{configured, listed, mask_of_process, without_area};

// Const and without a destructor: an access is one load from the thread's own memory, without a
// check.
crate::thread_local! {
    static OVERRIDE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Returns the number of the calling thread's CPU, or the one set by [`set_current_for_thread`].
///
/// If the C library registered a [restartable-sequence area](crate::rseq) this is a load from the
/// thread's own memory, a fraction of a nanosecond; otherwise on Linux a call of the C library
/// (about 2 ns). On other systems, and if that call fails, each thread keeps one number of its own.
/// Under a model checker it is 0 until set.
#[inline]
#[must_use]
pub fn current() -> usize {
    match OVERRIDE.try_with(Cell::get) {
        Ok(Some(cpu)) => cpu,
        _ => system_current(),
    }
}

// The CPU of the last look-up, and for how many more calls it is returned.
std::thread_local! {
    static RECENT: Cell<(u32, u32)> = const { Cell::new((0, 0)) };
}

/// For how many calls of [`recent`] a look-up is used.
const USES: u32 = 64;

/// Returns the number of [`current`], which may be as old as 64 such calls: cheap where [`current`]
/// is a call of the system's library, and good enough to choose an item that others seldom use.
#[inline]
#[must_use]
pub fn recent() -> usize {
    if cfg!(any(loom, shuttle)) {
        return current();
    }
    match RECENT.try_with(Cell::get) {
        Ok((cpu, left)) if left > 0 => {
            let _set = RECENT.try_with(|recent| recent.set((cpu, left - 1)));
            cpu as usize
        }
        _ => ask_again(),
    }
}

#[cold]
fn ask_again() -> usize {
    let cpu = current();
    if let Ok(short) = u32::try_from(cpu) {
        let _set = RECENT.try_with(|recent| recent.set((short, USES)));
    }
    cpu
}

/// Makes [`current`] return `cpu` on the calling thread; `None` asks the system again.
///
/// For tests, models and simulators: it moves no thread.
pub fn set_current_for_thread(cpu: Option<usize>) {
    OVERRIDE.with(|o| o.set(cpu));
    RECENT.with(|recent| recent.set((0, 0)));
}

/// Does [`set_current_for_thread`], and returns the number set before.
pub fn swap_current_for_thread(cpu: Option<usize>) -> Option<usize> {
    let before = OVERRIDE.with(Cell::get);
    set_current_for_thread(cpu);
    before
}

/// Returns how many CPUs the system may have: a size for tables indexed by CPU. At least 1.
///
/// On Linux one more than the highest number a CPU may ever get, whatever the calling thread may
/// use. It reads a file: ask once, when the table is made. Elsewhere numbers may be larger than
/// that, so take them modulo the table's size. Two under loom.
#[must_use]
pub fn possible() -> usize {
    listed("possible").unwrap_or_else(configured)
}

/// Returns the number of [`possible`] for the CPUs that are online now: the size for a table that
/// would be too large otherwise. A machine that may have 512 CPUs can have four online.
///
/// CPUs that come online later may have larger numbers, for which a table of this size needs
/// another place. The call reads a file, as [`possible`] does.
#[must_use]
pub fn online() -> usize {
    listed("online").map_or_else(possible, |online| online.min(possible()))
}

/// Returns how many CPUs the process may use now: those of its first thread. At least 1, at most
/// [`possible`]. Divide by it to get each CPU's part.
#[must_use]
pub fn usable() -> usize {
    let possible = possible();
    mask_of_process().map_or(possible, |usable| usable.min(possible))
}

#[inline]
fn system_current() -> usize {
    if cfg!(any(loom, shuttle)) {
        return 0;
    }
    match crate::rseq::cpu_id() {
        Some(cpu) => cpu as usize,
        None => without_area(),
    }
}

/// Returns a number that stays with the thread; threads get 0, 1, 2 and so on at their first call.
fn number_of_thread() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    // The number only distinguishes threads: it publishes nothing else, and no model is about it.
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    std::thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    OWN.try_with(|own| *own).unwrap_or(0)
}

#[cfg(all(target_os = "linux", not(any(loom, miri))))]
mod system {
    /// The mask of the first thread, because others may be pinned, and this one seldom is.
    pub(super) fn mask_of_process() -> Option<usize> {
        // Room for 65,536 CPUs: the system refuses a mask that is too small for its own.
        let mut mask = [0u64; 1024];
        // SAFETY: the pointer and the size are those of the buffer, which the call fills at most.
        let known = unsafe {
            let (process, bytes) = (std::process::id() as libc::pid_t, size_of_val(&mask));
            libc::sched_getaffinity(process, bytes, mask.as_mut_ptr().cast())
        };
        let usable = mask.iter().map(|word| word.count_ones() as usize).sum();
        (known == 0 && usable > 0).then_some(usable)
    }

    /// Returns one more than the last number of one of the kernel's own lists.
    pub(super) fn listed(name: &str) -> Option<usize> {
        let list = std::fs::read_to_string(format!("/sys/devices/system/cpu/{name}")).ok()?;
        end_of_list(&list)
    }

    /// Lists (`0-3,8`) ascend, so that the last number is the highest.
    pub(super) fn end_of_list(list: &str) -> Option<usize> {
        let last: usize = list.trim().rsplit([',', '-']).next()?.parse().ok()?;
        last.checked_add(1)
    }

    /// The C library's answer. Some count no more than the CPUs of the calling thread's mask.
    pub(super) fn configured() -> usize {
        // SAFETY: sysconf takes a number and touches no memory of ours.
        let n = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
        usize::try_from(n).unwrap_or(1).max(1)
    }

    pub(super) fn without_area() -> usize {
        // SAFETY: sched_getcpu has no preconditions and touches no memory of ours.
        let cpu = unsafe { libc::sched_getcpu() };
        // It fails if the kernel has no such call or a filter of system calls forbids it.
        usize::try_from(cpu).unwrap_or_else(|_| super::number_of_thread())
    }
}

/// Other systems; an interpreter, which has no files of ours to show; and models.
#[cfg(not(all(target_os = "linux", not(any(loom, miri)))))]
mod system {
    pub(super) use super::number_of_thread as without_area;

    pub(super) const fn mask_of_process() -> Option<usize> {
        None
    }

    pub(super) const fn listed(_: &str) -> Option<usize> {
        None
    }

    pub(super) fn configured() -> usize {
        if cfg!(loom) {
            return 2;
        }
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::{USES, current, number_of_thread, recent, set_current_for_thread};

    #[test]
    fn a_recent_number_is_asked_for_again_and_never_hides_one_that_was_set() {
        set_current_for_thread(None);
        assert!((0..3 * USES).all(|_| recent() < usize::MAX));
        for cpu in [40, 41] {
            set_current_for_thread(Some(cpu));
            assert!((0..3 * USES).all(|_| recent() == cpu));
        }
        set_current_for_thread(None);
        let asked = recent();
        assert!(
            asked != 41 || current() == 41,
            "it does not outlive its setting"
        );
    }

    #[test]
    fn what_is_set_is_answered_by_that_thread_only() {
        for cpu in [0, 3, 65_535, usize::MAX] {
            set_current_for_thread(Some(cpu));
            assert_eq!(current(), cpu);
        }
        let other = std::thread::spawn(|| {
            set_current_for_thread(Some(7));
            current()
        });
        assert_eq!(other.join().expect("no panic"), 7);
        assert_eq!(current(), usize::MAX);
        set_current_for_thread(None);
        assert_ne!(current(), usize::MAX);
    }

    #[test]
    fn a_thread_keeps_its_number_and_shares_it_with_no_other() {
        let own = number_of_thread();
        assert_eq!(number_of_thread(), own);
        let other = std::thread::spawn(|| (number_of_thread(), number_of_thread()));
        let (first, second) = other.join().expect("no panic");
        assert_eq!(first, second);
        assert_ne!(first, own);
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn a_list_of_cpus_ends_with_the_highest() {
        use super::system::end_of_list;
        assert_eq!(end_of_list("0\n"), Some(1));
        assert_eq!(end_of_list("0-7\n"), Some(8));
        assert_eq!(end_of_list("0-3,8-11,64\n"), Some(65));
        for no_list in ["", "\n", "x", "0-", "99999999999999999999999"] {
            assert_eq!(end_of_list(no_list), None, "{no_list:?}");
        }
        assert_eq!(end_of_list(&usize::MAX.to_string()), None);
    }

    /// The mask of a pinned thread holds one CPU: whichever source answered, it must be that one.
    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn every_source_names_the_cpu_of_a_pinned_thread() {
        let pinned = std::thread::spawn(|| {
            let cpu = current();
            let mut mask = [0_u64; 16];
            if cpu >= 64 * mask.len() {
                return;
            }
            mask[cpu / 64] |= 1 << (cpu % 64);
            // SAFETY: the call reads `size_of_val(mask)` bytes from the pointer, which is the whole
            // array, borrowed here; process 0 is the calling thread.
            let done = unsafe {
                libc::sched_setaffinity(0, std::mem::size_of_val(&mask), mask.as_ptr().cast())
            };
            if done == 0 {
                assert_eq!(current(), cpu);
                assert_eq!(super::without_area(), cpu);
            }
        });
        pinned.join().expect("no panic");
    }
}
