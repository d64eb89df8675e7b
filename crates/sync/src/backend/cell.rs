//! Interior mutability that loom checks. shuttle does not check for data races.

/// An `UnsafeCell` whose accesses are closures, so that loom can see where each begins and
/// ends.
///
/// ```
/// use inflight_sync::cell::UnsafeCell;
/// let cell = UnsafeCell::new(3);
/// // SAFETY: no other access to the cell exists while the closure runs.
/// cell.with_mut(|p| unsafe { *p += 1 });
/// // SAFETY: as above.
/// assert_eq!(cell.with(|p| unsafe { *p }), 4);
/// assert_eq!(cell.into_inner(), 4);
/// ```
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    /// Gives the closure a pointer for reading.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Gives the closure a pointer for writing.
    #[inline]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }

    /// Takes the value out.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}
