//! What differs between operating systems: `describe` the machine, `pin` the calling thread and
//! get its old mask, `set` the mask of the calling thread.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub(crate) use linux::{describe, pin, set};

#[cfg(not(target_os = "linux"))]
mod other;
#[cfg(not(target_os = "linux"))]
pub(crate) use other::{describe, pin, set};
