//! A clock that is cheaper to read and coarser.

use super::{Clock, Instant};

/// A [`Clock`] read by the system's tick: for time stamps that need not be exact.
///
/// If the system has a cheap reading of the last tick (Linux, some 4 ns), [`now`](Ticks::now) is
/// the end of the present tick: later than the clock's own time by at most a tick, 1 to 10 ms, and
/// not before it as long as ticks come in time. Then a time span that begins with it never seems
/// longer than it was.
///
/// On a virtual machine ticks come late when its host has no CPU for it. Readings until the next
/// tick are then too early, by as much as that tick is late.
///
/// On other systems, and for a clock that is moved by hand, it is the clock itself.
///
/// ```
/// use inflight_sync::time::Clock;
/// use std::time::Duration;
/// let ticks = Clock::system().ticks();
/// assert!(ticks.now() <= ticks.now());
/// let clock = Clock::manual();
/// clock.advance(Duration::from_nanos(7));
/// assert_eq!(clock.ticks().now(), clock.now());
/// ```
#[derive(Clone, Debug)]
pub struct Ticks(ByTick);

#[derive(Clone, Debug)]
enum ByTick {
    /// The clock's start by the system's reading, and how long a tick is.
    System {
        start: u64,
        nanos: u64,
    },
    Clock(Clock),
}

pub(super) use tick::monotonic;

impl Ticks {
    pub(super) fn of(clock: &Clock) -> Self {
        Self(match tick::of(clock) {
            Some((start, nanos)) => ByTick::System { start, nanos },
            None => ByTick::Clock(clock.clone()),
        })
    }

    /// Returns the time at the end of the present tick.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Instant {
        match &self.0 {
            // Saturating: a tick that is late may be one of before the start.
            ByTick::System { start, nanos } => {
                Instant((tick::last() + *nanos).saturating_sub(*start))
            }
            ByTick::Clock(clock) => clock.now(),
        }
    }

    /// By how much it may be later than the clock: the length of a tick, or zero.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) const fn resolution(&self) -> std::time::Duration {
        std::time::Duration::from_nanos(match &self.0 {
            ByTick::System { nanos, .. } => *nanos,
            ByTick::Clock(_) => 0,
        })
    }
}

#[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
mod tick {
    use super::super::{Clock, start};

    /// Ticks longer than this are no use.
    const LONGEST: u64 = 10_000_000;

    const fn nanos(time: libc::timespec) -> u64 {
        // Neither is negative for a monotonic clock.
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    const ZERO: libc::timespec = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };

    #[inline]
    fn read(clock: libc::clockid_t) -> Option<u64> {
        let mut time = ZERO;
        // SAFETY: the pointer is to a timespec that is borrowed exclusively.
        let failed = unsafe { libc::clock_gettime(clock, &raw mut time) } != 0;
        (!failed).then_some(nanos(time))
    }

    pub(in super::super) fn monotonic() -> Option<u64> {
        read(libc::CLOCK_MONOTONIC)
    }

    /// When the last tick was.
    #[inline]
    pub(super) fn last() -> u64 {
        // `of` has read it once, and the clock does not go away.
        read(libc::CLOCK_MONOTONIC_COARSE).unwrap_or(0)
    }

    /// What the system said when the clock started, and the length of a tick.
    pub(super) fn of(clock: &Clock) -> Option<(u64, u64)> {
        let mut length = ZERO;
        // SAFETY: as in `read`.
        let failed =
            unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut length) } != 0;
        let (length, (_, before)) = (nanos(length), start());
        let usable = !failed
            && !clock.is_manual()
            && (1..=LONGEST).contains(&length)
            && before > 0
            && read(libc::CLOCK_MONOTONIC_COARSE).is_some();
        usable.then_some((before, length))
    }
}

#[cfg(not(all(target_os = "linux", not(any(loom, shuttle, miri)))))]
mod tick {
    use super::super::Clock;

    pub(in super::super) const fn monotonic() -> Option<u64> {
        None
    }

    pub(super) fn last() -> u64 {
        unreachable!("`of` returns `None` here")
    }

    pub(super) const fn of(_: &Clock) -> Option<(u64, u64)> {
        None
    }
}
