//! The thread's area as the C library registered it, and the kernel's barrier for sequences.

use crate::asym::system::membarrier;
// The offset is a fact of the loaded C library, the same for every thread and for the whole life of
// the process. So it is not part of any model.
use std::sync::atomic::{AtomicIsize, Ordering};

/// The offset of the CPU number in the area; the number is negative while the thread is not
/// registered.
const CPU_ID: usize = 4;
/// How many bytes of the area must be registered.
const NEEDED: u32 = 16;

/// Commands of membarrier(2).
const PRIVATE_EXPEDITED_RSEQ: libc::c_int = 1 << 7;
const REGISTER_PRIVATE_EXPEDITED_RSEQ: libc::c_int = 1 << 8;

/// The offset from the thread pointer to the area. Areas are aligned to 32, so no offset is odd.
static OFFSET: AtomicIsize = AtomicIsize::new(UNKNOWN);
const UNKNOWN: isize = 1;
const ABSENT: isize = 3;

/// Proof that restartable sequences can be used: threads have an area, and the kernel restarts
/// running sequences on request.
///
/// ```
/// match inflight_sync::rseq::Rseq::probe() {
///     Some(rseq) => rseq.barrier(), // per-CPU data without atomics
///     None => println!("a lock per CPU"),
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rseq {
    offset: isize,
}

impl Rseq {
    /// Looks up the area and registers the process for the barrier (Linux 5.10).
    ///
    /// The first registration takes tens of microseconds, or milliseconds if there are many threads
    /// already. Each later one takes a fifth of a microsecond.
    #[must_use]
    pub fn probe() -> Option<Self> {
        cpu_id()?;
        (membarrier(REGISTER_PRIVATE_EXPEDITED_RSEQ) == 0).then_some(Self {
            offset: OFFSET.load(Ordering::Relaxed),
        })
    }

    /// Restarts every sequence of this process that runs on any CPU, and orders memory with each:
    /// the caller sees a sequence that ended before, and a sequence that starts after sees what the
    /// caller wrote.
    ///
    /// Takes half a microsecond if no other CPU runs the process, and tens of microseconds
    /// otherwise.
    ///
    /// # Panics
    ///
    /// If the kernel refuses what it granted at registration: continuing without the barrier would
    /// silently break the exclusion that sequences give.
    pub fn barrier(self) {
        assert!(
            membarrier(PRIVATE_EXPEDITED_RSEQ) == 0,
            "membarrier refused after registration"
        );
    }

    /// The CPU that this thread runs on, or a number larger than any CPU's if the thread's area is
    /// not registered.
    #[inline(always)]
    pub(crate) fn cpu_or_large(self) -> u32 {
        let place = thread_pointer().wrapping_offset(self.offset + CPU_ID as isize);
        // SAFETY: as in `cpu_id`; an `Rseq` exists only if the offset was found.
        unsafe { place.cast::<u32>().read_volatile() }
    }

    /// The offset from the thread pointer to the area: x86-64 addresses with it.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) const fn offset(self) -> isize {
        self.offset
    }

    /// The calling thread's area.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub(crate) fn area(self) -> *mut u8 {
        thread_pointer().wrapping_offset(self.offset)
    }
}

#[inline]
pub(super) fn cpu_id() -> Option<u32> {
    // Relaxed: every thread that looks the offset up finds the same number.
    let mut offset = OFFSET.load(Ordering::Relaxed);
    if offset & 1 != 0 {
        if offset == UNKNOWN {
            offset = look_up();
        }
        if offset == ABSENT {
            return None;
        }
    }
    let place = thread_pointer().wrapping_offset(offset + CPU_ID as isize);
    // SAFETY: the offset comes from the C library that registered the area of this thread; the area
    // lives as long as the thread. The kernel changes the number only while the thread does not
    // run, and volatile keeps each read.
    let cpu = unsafe { place.cast::<i32>().read_volatile() };
    u32::try_from(cpu).ok()
}

#[cold]
fn look_up() -> isize {
    let offset = registered_offset().unwrap_or(ABSENT);
    // Relaxed: as in `cpu_id`.
    OFFSET.store(offset, Ordering::Relaxed);
    offset
}

/// The C library's `__rseq_offset`, if it registers areas.
fn registered_offset() -> Option<isize> {
    let size = symbol(c"__rseq_size")?.cast::<u32>();
    let offset = symbol(c"__rseq_offset")?.cast::<isize>();
    // SAFETY: glibc declares it as `const unsigned int` and sets it before any of our code runs.
    let size = unsafe { size.read() };
    // SAFETY: glibc declares it as `const ptrdiff_t` and sets it before any of our code runs.
    let offset = unsafe { offset.read() };
    (size >= NEEDED && offset & 1 == 0).then_some(offset)
}

fn symbol(name: &std::ffi::CStr) -> Option<*mut libc::c_void> {
    // SAFETY: dlsym gets a handle that is always valid and a string that ends in zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn thread_pointer() -> *mut u8 {
    let pointer: *mut u8;
    // SAFETY: the ABI keeps the thread pointer at the start of the fs segment; reading it changes
    // nothing.
    unsafe {
        core::arch::asm!(
            "mov {}, fs:0",
            out(reg) pointer,
            options(nostack, readonly, preserves_flags),
        );
    }
    pointer
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn thread_pointer() -> *mut u8 {
    let pointer: *mut u8;
    // SAFETY: the ABI keeps the thread pointer in this register; reading it changes nothing.
    unsafe {
        core::arch::asm!(
            "mrs {}, tpidr_el0",
            out(reg) pointer,
            options(nostack, nomem, preserves_flags),
        );
    }
    pointer
}
