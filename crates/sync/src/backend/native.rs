//! std atomics and threads, parking_lot locks.

/// Atomic types and fences of the back end.
///
/// ```
/// use inflight_sync::atomic::{AtomicUsize, Ordering};
/// let n = AtomicUsize::new(1);
/// assert_eq!(n.fetch_add(1, Ordering::Relaxed), 1);
/// ```
pub mod atomic {
    pub use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        compiler_fence, fence,
    };
}

/// Interior mutability that loom can watch.
pub mod cell {
    /// An `UnsafeCell` whose accesses are closures, so that loom can see where each begins and
    /// ends.
    ///
    /// ```
    /// use inflight_sync::cell::UnsafeCell;
    /// let cell = UnsafeCell::new(3);
    /// // SAFETY: no other access to the cell exists while the closure runs.
    /// cell.with_mut(|p| unsafe { *p += 1 });
    /// assert_eq!(cell.into_inner(), 4);
    /// ```
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// Wraps a value.
        ///
        /// ```
        /// assert_eq!(inflight_sync::cell::UnsafeCell::new(7).into_inner(), 7);
        /// ```
        pub const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Gives the closure a pointer for reading.
        ///
        /// ```
        /// let cell = inflight_sync::cell::UnsafeCell::new(7);
        /// // SAFETY: nobody writes the cell while the closure runs.
        /// assert_eq!(cell.with(|p| unsafe { *p }), 7);
        /// ```
        #[inline]
        pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        /// Gives the closure a pointer for writing.
        ///
        /// ```
        /// let cell = inflight_sync::cell::UnsafeCell::new(7);
        /// // SAFETY: no other access to the cell exists while the closure runs.
        /// cell.with_mut(|p| unsafe { *p = 8 });
        /// assert_eq!(cell.into_inner(), 8);
        /// ```
        #[inline]
        pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }

        /// Takes the value out.
        ///
        /// ```
        /// assert_eq!(inflight_sync::cell::UnsafeCell::new(7).into_inner(), 7);
        /// ```
        pub fn into_inner(self) -> T {
            self.0.into_inner()
        }
    }
}

/// What to do while spinning.
pub mod hint {
    /// Tells the processor (or, under a model checker, the scheduler) that this is a spin
    /// loop.
    ///
    /// ```
    /// inflight_sync::hint::spin_loop();
    /// ```
    pub use std::hint::spin_loop;
}

/// A lock that is never poisoned, and its condition variable.
///
/// A timed wait is not offered: it would tie the code to the wall clock. Use
/// [`Parker::park_until`](crate::Parker::park_until) with a [`Clock`](crate::time::Clock).
///
/// ```
/// let m = inflight_sync::Mutex::new(1);
/// *m.lock() += 1;
/// assert_eq!(m.into_inner(), 2);
/// ```
pub use parking_lot::{Condvar, Mutex, MutexGuard};

/// Declares thread-local values; loom resets them for every execution.
///
/// ```
/// use std::cell::Cell;
/// inflight_sync::thread_local! { static DEPTH: Cell<u32> = Cell::new(0); }
/// DEPTH.with(|d| d.set(d.get() + 1));
/// assert_eq!(DEPTH.with(|d| d.get()), 1);
/// ```
pub use std::thread_local;

pub(crate) use std::thread as native_thread;
