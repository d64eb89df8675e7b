//! A thread that does nothing for a while.

use inflight_sync::time::Clock;
use rustix::event::{Timespec, poll};
use std::time::Duration;

/// Returns after that time. Leaves the thread's parker alone: its token may be for somebody who
/// called this crate.
pub(crate) fn pause(time: Duration) {
    let clock = Clock::system();
    let end = clock.now() + time;
    loop {
        let left = end - clock.now();
        if left.is_zero() {
            return;
        }
        // Whatever it returns, the clock says whether the time is over.
        let _ = poll(&mut [], Some(&timespec(left)));
    }
}

pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}
