//! What differs between operating systems: `describe` the machine, `pin` the calling thread and
//! get its old mask, `set` the mask of the calling thread, read the `current` one (the argument is
//! for the error).

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub(crate) use linux::{current, describe, pin, set};

#[cfg(not(target_os = "linux"))]
mod other;
#[cfg(not(target_os = "linux"))]
pub(crate) use other::{current, describe, pin, set};
