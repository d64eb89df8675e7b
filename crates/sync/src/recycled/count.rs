//! A reference count. `tests/loom_recycled.rs` compiles this file with the model's atomics.

use super::count_atomic::{AtomicUsize, Ordering};

#[derive(Debug)]
pub(crate) struct Count(AtomicUsize);

/// There are too many.
#[derive(Debug)]
pub(crate) struct Overflow;

impl Count {
    /// Of so many.
    pub(crate) fn of(pointers: usize) -> Self {
        Self(AtomicUsize::new(pointers))
    }

    /// For who has one. So far from the end that all threads together do not get there before one
    /// of them has stopped.
    pub(crate) fn more(&self) -> Result<(), Overflow> {
        // Relaxed: who has one knows that the value is there; a new one publishes nothing.
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        if before > isize::MAX as usize {
            return Err(Overflow);
        }
        Ok(())
    }

    /// One has gone; whether it was the last.
    pub(crate) fn less(&self) -> bool {
        // Ordering: Release, pairs with the load below: what its owner has done with the value
        // comes before the value is dropped.
        if self.0.fetch_sub(1, Ordering::Release) != 1 {
            return false;
        }
        // Ordering: Acquire, pairs with the Release of all the others, whose read-modify-writes
        // lead up to what is read here. A load and no fence: sanitizers know it.
        self.0.load(Ordering::Acquire);
        true
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::Count;

    #[test]
    fn too_many_are_refused_before_the_count_is_at_its_end() {
        let count = Count::of(isize::MAX as usize);
        assert!(count.more().is_ok());
        assert!(count.more().is_err());
        assert!(count.more().is_err(), "and again");
    }

    #[test]
    fn the_last_one_is_told() {
        let count = Count::of(2);
        count.more().unwrap();
        assert_eq!([(); 3].map(|()| count.less()), [false, false, true]);
    }
}
