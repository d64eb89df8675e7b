//! For systems that provide none of this.

use std::io::ErrorKind;
use std::time::Duration;

pub(crate) fn this_thread() -> Option<u32> {
    None
}

/// Single threads have no nice values here.
pub(crate) fn nice_of_process() -> i32 {
    0
}

pub(crate) fn set_nice(nice: i32, _of_process: i32) -> Result<(), ErrorKind> {
    match nice {
        0 => Ok(()),
        _ => Err(ErrorKind::Unsupported),
    }
}

/// No worker is found asleep here, so no function is known.
pub(crate) fn used_here() -> Option<Duration> {
    None
}

pub(crate) fn stack(_thread: u32) -> Option<String> {
    None
}

pub(crate) struct CpuClock;
pub(crate) type Files = CpuClock;

impl CpuClock {
    pub(crate) fn open(_thread: u32) -> Option<Self> {
        None
    }

    pub(crate) fn read(&self) -> Option<Duration> {
        None
    }

    pub(crate) fn is_asleep(&self) -> bool {
        false
    }

    pub(crate) fn cpu_time(&mut self) -> Option<Duration> {
        None
    }
}
