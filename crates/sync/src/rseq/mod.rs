//! Restartable sequences: a few instructions on the data of one CPU, which the kernel restarts if
//! it takes the thread off that CPU before they end.
//!
//! Since Linux 4.18 a thread may register an area in which the kernel writes the number of the CPU
//! that the thread runs on. glibc 2.35 and later register one for every thread. Under Miri,
//! sanitizers and model checkers, and on other systems, every function returns `None`.

#[cfg(inflight_rseq)]
mod area;
#[cfg(not(inflight_rseq))]
#[path = "none.rs"]
mod area;

pub use area::Rseq;

/// The CPU that the calling thread runs on, from the thread's registered area: a load, no call.
///
/// `None` if no area is registered. The number may be outdated as soon as it is read, and it may be
/// beyond the end of any table: the caller must be correct for every number.
///
/// ```
/// if let Some(cpu) = inflight_sync::rseq::cpu_id() {
///     println!("on CPU {cpu}");
/// }
/// ```
#[inline]
#[must_use]
pub fn cpu_id() -> Option<u32> {
    area::cpu_id()
}

#[cfg(test)]
mod tests;
