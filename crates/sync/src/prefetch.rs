//! Prefetching.

/// Prefetches the cache line of `place`, which is to be written soon. Only the address is used: the
/// value may be gone.
///
/// It affects only speed, and does nothing on processors without such an instruction.
///
/// ```
/// use inflight_sync::atomic::{AtomicU8, Ordering};
/// let state = AtomicU8::new(0);
/// inflight_sync::prefetch_to_write(&state); // its line comes while other work is done
/// state.store(1, Ordering::Relaxed);
/// ```
#[inline(always)]
pub fn prefetch_to_write<T>(place: *const T) {
    #[cfg(all(inflight_rseq, target_arch = "x86_64"))]
    // SAFETY: a hint to the processor, which changes nothing that a program can see and cannot
    // fault. Processors without it ignore it.
    unsafe {
        core::arch::asm!(
            "prefetchw [{}]",
            in(reg) place,
            options(nostack, readonly, preserves_flags),
        );
    }
    #[cfg(not(all(inflight_rseq, target_arch = "x86_64")))]
    let _ = place;
}
