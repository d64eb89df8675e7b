//! loom or shuttle. Both mirror std's names, so one source serves both.

#[cfg(loom)]
use loom as checker;
#[cfg(shuttle)]
use shuttle as checker;

use std::ops::{Deref, DerefMut};

/// Atomic types and fences of the back end.
pub mod atomic {
    #[cfg(shuttle)]
    pub use std::sync::atomic::compiler_fence;

    pub use super::checker::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        fence,
    };

    /// loom has no compiler fence. A full fence is stronger and may hide a race, so
    /// `docs/orderings.md` justifies each use of a compiler fence.
    #[cfg(loom)]
    pub fn compiler_fence(order: Ordering) {
        fence(order);
    }
}

/// What to do while spinning.
pub mod hint {
    pub use super::checker::hint::spin_loop;
}

#[doc(hidden)]
pub use checker::thread_local as checkers_thread_local;

/// As std's; the checkers' have no `const` form. Of one call all values have that form, or none.
#[doc(hidden)]
#[macro_export]
macro_rules! model_thread_local {
    ($($(#[$attr:meta])* $vis:vis static $name:ident: $ty:ty = const $init:block);* $(;)?) => {
        $crate::checkers_thread_local! { $($(#[$attr])* $vis static $name: $ty = $init;)* }
    };
    ($($any:tt)*) => {
        $crate::checkers_thread_local! { $($any)* }
    };
}
pub use model_thread_local as thread_local;

pub(crate) use checker::thread as native_thread;

/// A lock that is never poisoned.
#[derive(Debug, Default)]
pub struct Mutex<T>(checker::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Wraps a value.
    pub fn new(value: T) -> Self {
        Self(checker::sync::Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(|e| e.into_inner())))
    }

    /// Takes the lock if nobody holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(|g| MutexGuard(Some(g)))
    }

    /// The value, for the only owner.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(|e| e.into_inner())
    }

    /// Takes the value out.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(|e| e.into_inner())
    }
}

/// Holds the lock; unlocks when dropped.
#[derive(Debug)]
#[must_use]
pub struct MutexGuard<'a, T>(Option<checker::sync::MutexGuard<'a, T>>);

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0
            .as_ref()
            .expect("the lock is held except in Condvar::wait")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0
            .as_mut()
            .expect("the lock is held except in Condvar::wait")
    }
}

/// A condition variable in parking_lot's shape.
#[derive(Debug, Default)]
pub struct Condvar(checker::sync::Condvar);

impl Condvar {
    /// A condition variable nobody waits for.
    #[must_use]
    pub fn new() -> Self {
        Self(checker::sync::Condvar::new())
    }

    /// Unlocks, waits for a notification, locks again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard
            .0
            .take()
            .expect("the lock is held except in Condvar::wait");
        guard.0 = Some(self.0.wait(held).unwrap_or_else(|e| e.into_inner()));
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
