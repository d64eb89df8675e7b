//! A value that is replaced while it is read.

use crate::Mutex;
use crate::atomic::{AtomicPtr, Ordering};
use std::marker::PhantomData;

/// A value that is replaced while it is read.
///
/// Readers pay one load and write nothing. A replaced value stays until the end, because a reader
/// may still use it: for values that change seldom.
///
/// ```
/// use inflight_sync::RetainedVersions;
/// let versions = RetainedVersions::new(1);
/// let first = versions.current();
/// versions.replace(|&version| version == 2, || 2);
/// assert_eq!((*first, *versions.current()), (1, 2));
/// versions.replace(|&version| version == 1, || unreachable!("it is kept"));
/// assert!(std::ptr::eq(first, versions.current()));
/// ```
pub struct RetainedVersions<T> {
    /// One of `all`.
    current: AtomicPtr<T>,
    /// Boxes, each once.
    all: Mutex<Vec<AtomicPtr<T>>>,
    owns: PhantomData<T>,
}

impl<T: Send + Sync> RetainedVersions<T> {
    /// Makes the first version.
    #[must_use]
    pub fn new(first: T) -> Self {
        let first = Box::into_raw(Box::new(first));
        Self {
            current: AtomicPtr::new(first),
            all: Mutex::new(vec![AtomicPtr::new(first)]),
            owns: PhantomData,
        }
    }

    /// Returns the present version.
    #[inline]
    pub fn current(&self) -> &T {
        // Ordering: pairs with the Release in `publish`.
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: a box that is kept until this is dropped, and only shared until then.
        unsafe { &*current }
    }

    /// Returns to an earlier version that is `alike`, or adds a new one.
    pub fn replace(&self, alike: impl Fn(&T) -> bool, new: impl FnOnce() -> T) {
        let mut all = self.all.lock();
        let earlier = all
            .iter()
            // Relaxed: written under the lock.
            .map(|version| version.load(Ordering::Relaxed))
            // SAFETY: as in `current`.
            .find(|&version| alike(unsafe { &*version }));
        let next = earlier.unwrap_or_else(|| {
            let new = Box::into_raw(Box::new(new()));
            all.push(AtomicPtr::new(new));
            new
        });
        // Ordering: pairs with the Acquire in `current`.
        self.current.store(next, Ordering::Release);
    }
}

crate::debug_fields!([T] RetainedVersions<T>);

impl<T> Drop for RetainedVersions<T> {
    fn drop(&mut self) {
        for version in self.all.lock().drain(..) {
            // Relaxed: a drop comes after all other uses.
            let version = version.load(Ordering::Relaxed);
            // SAFETY: a box, here once, and no reference is left.
            drop(unsafe { Box::from_raw(version) });
        }
    }
}
