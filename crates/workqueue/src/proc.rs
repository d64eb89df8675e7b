//! What the system says about a thread.

#[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
mod linux;
#[cfg(not(all(target_os = "linux", not(any(loom, shuttle, miri)))))]
mod none;

#[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
pub(crate) use linux::*;
#[cfg(not(all(target_os = "linux", not(any(loom, shuttle, miri)))))]
pub(crate) use none::*;
