//! std atomics and threads, parking_lot locks.

use std::ops::{Deref, DerefMut};

/// Atomic types and fences of the back end.
pub mod atomic {
    pub use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        compiler_fence, fence,
    };
}

/// What to do while spinning.
pub mod hint {
    /// Tells the processor (or, under a model checker, the scheduler) that this is a spin
    /// loop.
    pub use std::hint::spin_loop;
}

/// A lock that is never poisoned.
///
/// ```
/// let mut m = inflight_sync::Mutex::new(1);
/// *m.get_mut() += 1;
/// let mut guard: inflight_sync::MutexGuard<'_, i32> = m.lock();
/// *guard += 1;
/// assert!(m.try_lock().is_none(), "it is held");
/// drop(guard);
/// assert_eq!(m.into_inner(), 3);
/// ```
#[derive(Debug, Default)]
pub struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(self.0.lock())
    }

    /// Takes the lock if nobody holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().map(MutexGuard)
    }

    /// The value, for the only owner.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    /// Takes the value out.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

/// Holds the lock; unlocks when dropped.
#[derive(Debug)]
#[must_use = "the lock is released at once"]
pub struct MutexGuard<'a, T>(parking_lot::MutexGuard<'a, T>);

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// A condition variable.
///
/// A timed wait is not offered: it would tie the code to the wall clock. Use
/// [`Parker::park_until`](crate::Parker::park_until) with a [`Clock`](crate::time::Clock).
///
/// ```
/// use inflight_sync::{Arc, Condvar, Mutex, thread};
/// let shared = Arc::new((Mutex::new(false), Condvar::new()));
/// let setter = thread::spawn({
///     let shared = shared.clone();
///     move || {
///         *shared.0.lock() = true;
///         shared.1.notify_one(); // or all
///     }
/// });
/// let mut ready = shared.0.lock();
/// while !*ready {
///     shared.1.wait(&mut ready);
/// }
/// drop(ready);
/// setter.join().unwrap();
/// ```
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// A condition variable nobody waits for.
    #[must_use]
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    /// Unlocks, waits for a notification, locks again. May return spuriously.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(&mut guard.0);
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Declares thread-local values; loom resets them for every execution.
///
/// ```
/// use std::cell::Cell;
/// inflight_sync::thread_local! { static DEPTH: Cell<u32> = const { Cell::new(0) }; }
/// DEPTH.with(|d| d.set(d.get() + 1));
/// assert_eq!(DEPTH.with(|d| d.get()), 1);
/// ```
pub use std::thread_local;

pub(crate) use std::thread as native_thread;
