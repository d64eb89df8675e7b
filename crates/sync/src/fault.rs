//! Faults as an ordinary parameter.

use crate::Arc;
use std::io;
// For tests, and part of no protocol: with std's atomics the models do not explore them.
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Refuses threads on demand, as a system at its limit would.
///
/// A clone shares the switches. The default, [`none`](Faults::none), never fails and costs nothing.
///
/// ```
/// use inflight_sync::{fault::Faults, thread};
/// let faults = Faults::new();
/// let builder = || thread::Builder::new().faults(&faults);
/// faults.fail_next_spawns(1);
/// assert!(builder().spawn(|| ()).is_err());
/// faults.refuse_spawns(true);
/// assert!(builder().spawn(|| ()).is_err());
/// faults.refuse_spawns(false);
/// builder().spawn(|| ()).unwrap().join().unwrap();
/// assert_eq!(faults.spawn_attempts(), 3);
/// assert_eq!(Faults::none().spawn_attempts(), 0);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Faults(Option<Arc<Switches>>);

#[derive(Debug, Default)]
struct Switches {
    refuse: AtomicBool,
    fail_next: AtomicUsize,
    attempts: AtomicUsize,
}

impl Faults {
    /// Returns faults that never occur.
    #[must_use]
    pub fn none() -> Self {
        Self(None)
    }

    /// Returns switches, all off.
    #[must_use]
    pub fn new() -> Self {
        Self(Some(Arc::default()))
    }

    /// Makes each thread creation fail while on. No effect on [`none`](Faults::none).
    pub fn refuse_spawns(&self, on: bool) {
        if let Some(s) = &self.0 {
            s.refuse.store(on, Ordering::Relaxed);
        }
    }

    /// Makes the next `n` thread creations fail. No effect on [`none`](Faults::none).
    pub fn fail_next_spawns(&self, n: usize) {
        if let Some(s) = &self.0 {
            s.fail_next.store(n, Ordering::Relaxed);
        }
    }

    /// Returns how many thread creations were asked for, refused ones included.
    #[must_use]
    pub fn spawn_attempts(&self) -> usize {
        self.0
            .as_ref()
            .map_or(0, |s| s.attempts.load(Ordering::Relaxed))
    }

    /// The fault point of thread creation.
    pub(crate) fn before_spawn(&self) -> io::Result<()> {
        let Some(s) = &self.0 else { return Ok(()) };
        s.attempts.fetch_add(1, Ordering::Relaxed);
        let counted = s
            .fail_next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
            .is_ok();
        if counted || s.refuse.load(Ordering::Relaxed) {
            return Err(io::Error::new(
                io::ErrorKind::WouldBlock,
                "thread creation refused by an injected fault",
            ));
        }
        Ok(())
    }
}
