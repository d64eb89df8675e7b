//! Asking for a line of memory before it is needed.

/// Asks for the line of `place`, to be written soon: the processor may fetch it meanwhile. The
/// address alone is used: there need not be a value any more.
///
/// Nothing but speed depends on it; on processors without such an instruction it does nothing.
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
    // SAFETY: a hint to the processor, which neither reads nor writes as far as a program can
    // tell, and cannot fault. Processors that do not know it pass over it.
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
