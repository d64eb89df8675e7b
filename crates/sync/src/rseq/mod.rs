//! Restartable sequences: a few instructions on the data of one CPU that the kernel starts again
//! when it takes the thread off that CPU in their midst.
//!
//! Since Linux 4.18 a thread may register an area in which the kernel writes the number of the CPU
//! it runs on; glibc 2.35 and later register one for every thread. The area is looked up at run
//! time, because a hard link to the symbols would break older and other C libraries. Under Miri,
//! sanitizers, model checkers and on other systems nothing is registered and every answer is
//! "no".

#[cfg(inflight_rseq)]
mod area;
#[cfg(not(inflight_rseq))]
#[path = "none.rs"]
mod area;

pub use area::Rseq;

/// The CPU the calling thread runs on, from the thread's registered area: a load, no call.
///
/// `None` where no area is registered. The number may be old as soon as it is read, and no table
/// need be that long: whoever uses it is correct for every number.
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
