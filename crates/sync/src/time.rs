//! Time as a value: the system's, or a clock that a test moves by hand.

mod ticks;
mod timer;

pub use ticks::Ticks;
pub use timer::{Sleep, Timer};

use crate::{Arc, Mutex, Unparker};
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on a [`Clock`], in nanoseconds since that clock's start.
///
/// ```
/// use inflight_sync::time::{Clock, Instant};
/// use std::time::Duration;
/// let clock = Clock::manual();
/// let start = clock.now();
/// clock.advance(Duration::from_micros(3));
/// assert_eq!(clock.now() - start, Duration::from_micros(3));
/// assert_eq!(start - clock.now(), Duration::ZERO);
/// assert_eq!(clock.now(), Instant::from_nanos(start.as_nanos() + 3_000));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// Returns the nanoseconds since the clock's start.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Makes an instant from nanoseconds: the inverse of [`as_nanos`](Instant::as_nanos), for
    /// instants in an atomic.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns the time from `earlier` to `self`, zero if `earlier` is in fact later.
    #[must_use]
    pub const fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn to_std(self) -> std::time::Instant {
        let start = system_start();
        // An instant too far away for the system is as good as never.
        start
            .checked_add(Duration::from_nanos(self.0))
            .unwrap_or_else(|| start + Duration::from_secs(u32::MAX.into()))
    }
}

/// A point on the system's clock.
#[cfg(not(any(loom, shuttle)))]
impl From<std::time::Instant> for Instant {
    /// A time before the clock's start becomes its start.
    ///
    /// ```
    /// use inflight_sync::time::{Clock, Instant};
    /// let before = Clock::system().now();
    /// assert!(Instant::from(std::time::Instant::now()) >= before);
    /// ```
    fn from(instant: std::time::Instant) -> Self {
        let since = instant.saturating_duration_since(system_start());
        Self(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    /// Saturates at the end of time, so that `Duration::MAX` means "never".
    fn add(self, d: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

fn system_start() -> std::time::Instant {
    start().0
}

/// Returns the system clock's start, and a moment at or before it by the system's own count.
fn start() -> (std::time::Instant, u64) {
    static START: std::sync::OnceLock<(std::time::Instant, u64)> = std::sync::OnceLock::new();
    *START.get_or_init(|| {
        let before = ticks::monotonic().unwrap_or(0);
        (std::time::Instant::now(), before)
    })
}

/// Returns how many turns of a spin loop last about `ns` nanoseconds on this machine: one takes
/// from 1 ns to 1 us. Measured once; 0 under a model checker.
///
/// ```
/// let turns = inflight_sync::time::spin_turns(4_000);
/// assert!(turns <= 4_000);
/// ```
#[must_use]
pub fn spin_turns(ns: u64) -> u32 {
    u32::try_from(turns_per_us().saturating_mul(ns) / 1_000).unwrap_or(u32::MAX)
}

fn turns_per_us() -> u64 {
    if cfg!(any(loom, shuttle)) {
        return 0;
    }
    static TURNS: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *TURNS.get_or_init(|| {
        let rounds = [(); 8].map(|()| {
            let began = std::time::Instant::now();
            for _ in 0..PROBE_TURNS {
                std::hint::spin_loop();
            }
            began.elapsed()
        });
        turns_per_us_by(&rounds)
    })
}

/// The number of turns in one measurement of a turn's length.
const PROBE_TURNS: u32 = 128;

/// Returns the turns per microsecond, where each of `rounds` is the time of [`PROBE_TURNS`]. The
/// shortest counts: others had to wait for a CPU.
fn turns_per_us_by(rounds: &[Duration]) -> u64 {
    let shortest = rounds.iter().min().map_or(0, Duration::as_nanos) as u64;
    // A turn takes between 1 ns and 1 us, whatever was measured.
    let (least, most) = (u64::from(PROBE_TURNS), 1_000 * u64::from(PROBE_TURNS));
    u64::from(PROBE_TURNS) * 1_000 / shortest.clamp(least, most)
}

/// A source of time.
///
/// Under a model checker the system's time stays at zero: no timeout fires by itself.
///
/// ```
/// use inflight_sync::time::Clock;
/// use std::time::Duration;
/// let (system, manual) = (Clock::system(), Clock::manual());
/// assert!(system.now() <= system.now());
/// assert!(manual.is_manual() && manual.now() == manual.now());
/// manual.advance(Duration::from_millis(2));
/// assert_eq!((manual.now().as_nanos(), manual.sleepers()), (2_000_000, 0));
/// ```
#[derive(Clone, Default)]
pub struct Clock(Option<Arc<Mutex<Manual>>>);

#[derive(Default)]
struct Manual {
    now: Instant,
    next_id: u64,
    sleepers: Vec<(u64, Instant, Unparker)>,
}

impl Clock {
    /// Returns the system's monotonic clock.
    #[must_use]
    pub fn system() -> Self {
        Self(None)
    }

    /// Makes a clock that does not run until [`advance`](Clock::advance) moves it.
    #[must_use]
    pub fn manual() -> Self {
        Self(Some(Arc::default()))
    }

    /// Returns whether this clock is moved by hand.
    #[must_use]
    pub fn is_manual(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the present time.
    #[must_use]
    pub fn now(&self) -> Instant {
        match &self.0 {
            Some(manual) => manual.lock().now,
            None => system_now(),
        }
    }

    /// Returns this clock read by the system's tick, at a third of the cost or less.
    #[must_use]
    pub fn ticks(&self) -> Ticks {
        Ticks::of(self)
    }

    /// Moves a manual clock forward and wakes the threads whose deadlines have come.
    ///
    /// # Panics
    ///
    /// If this is the system's clock.
    pub fn advance(&self, by: Duration) {
        let manual = self
            .0
            .as_ref()
            .expect("only a manual clock can be advanced");
        let mut due = Vec::new();
        {
            let mut manual = manual.lock();
            manual.now = manual.now + by;
            let now = manual.now;
            manual.sleepers.retain(|(_, deadline, unparker)| {
                let asleep = *deadline > now;
                if !asleep {
                    due.push(unparker.clone());
                }
                asleep
            });
        }
        due.iter().for_each(Unparker::unpark);
    }

    /// Returns how many threads sleep until a deadline on this manual clock; 0 for the system's.
    ///
    /// With it a test waits until a timed waiter sleeps before it moves the clock.
    #[must_use]
    pub fn sleepers(&self) -> usize {
        self.0
            .as_ref()
            .map_or(0, |manual| manual.lock().sleepers.len())
    }

    /// Registers a sleeper, unless its deadline has passed.
    pub(crate) fn sleeper(&self, deadline: Instant, unparker: Unparker) -> Option<Sleeper<'_>> {
        let manual = self.0.as_ref()?;
        let mut state = manual.lock();
        if state.now >= deadline {
            return None;
        }
        let id = state.next_id;
        state.next_id += 1;
        state.sleepers.push((id, deadline, unparker));
        Some(Sleeper { manual, id })
    }
}

fn system_now() -> Instant {
    if cfg!(any(loom, shuttle)) {
        return Instant(0);
    }
    let elapsed = system_start().elapsed();
    Instant(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
}

/// A thread that sleeps on a manual clock.
pub(crate) struct Sleeper<'a> {
    manual: &'a Mutex<Manual>,
    id: u64,
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        self.manual
            .lock()
            .sleepers
            .retain(|(id, ..)| *id != self.id);
    }
}

crate::debug_fields!(Clock: |this|
    kind = if this.is_manual() { "manual" } else { "system" }, now = this.now());

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::{Parker, thread};

    #[test]
    fn a_turn_is_as_long_as_the_shortest_measurement_says() {
        let by = |us: &[u64]| {
            let rounds: Vec<_> = us.iter().map(|us| Duration::from_micros(*us)).collect();
            turns_per_us_by(&rounds)
        };
        assert_eq!(
            by(&[2_000, 1, 9_000]),
            128,
            "two of three had to wait for a CPU"
        );
        assert_eq!(by(&[9, 8]), 16, "a turn of 62 ns");
        assert_eq!(by(&[9_000]), 1, "more than 1 us is not believed");
        assert_eq!(by(&[0]), 1_000, "nor one of less than 1 ns");
        // A turn takes 1 us at most.
        assert_eq!(spin_turns(u64::MAX), u32::MAX);
    }

    #[test]
    fn advancing_past_the_deadline_wakes_the_sleeper() {
        let clock = Clock::manual();
        let deadline = clock.now() + Duration::from_secs(5);
        let sleeper = thread::spawn({
            let clock = clock.clone();
            move || {
                let parker = Parker::current();
                while parker.park_until(&clock, deadline) {}
                clock.now()
            }
        });
        while clock.sleepers() == 0 {
            thread::yield_now();
        }
        clock.advance(Duration::from_secs(4));
        assert_eq!(clock.sleepers(), 1, "not yet due");
        clock.advance(Duration::from_secs(1));
        assert_eq!(sleeper.join().unwrap(), deadline);
        assert_eq!(clock.sleepers(), 0);
    }

    #[test]
    fn a_deadline_too_far_away_is_never() {
        let never = Clock::system().now() + Duration::MAX;
        assert_eq!(never.as_nanos(), u64::MAX);
        assert!(never.to_std() > std::time::Instant::now());
    }

    /// A stamp is late by at most a tick, and stamps keep up with the clock.
    #[test]
    fn a_tick_is_never_far_and_time_goes_on() {
        let clock = Clock::system();
        let ticks = clock.ticks();
        let (start, mut last) = (clock.now(), Instant::default());
        for _ in 0..if cfg!(miri) { 10 } else { 20_000 } {
            let (by_tick, after) = (ticks.now(), clock.now());
            assert!(by_tick >= last, "it goes forward");
            assert!(
                by_tick <= after + ticks.resolution(),
                "{by_tick:?} {after:?}"
            );
            last = by_tick;
        }
        // It keeps up with the clock, else this does not end.
        while ticks.now() <= start + 3 * ticks.resolution() {
            thread::yield_now();
        }
    }

    #[test]
    fn the_system_clock_reaches_its_deadline() {
        let clock = Clock::system();
        let deadline = clock.now() + Duration::from_micros(50);
        let parker = Parker::current();
        while parker.park_until(&clock, deadline) {}
        assert!(clock.now() >= deadline);
    }
}
