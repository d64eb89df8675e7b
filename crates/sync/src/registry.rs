//! Numbers for shared values, by which other threads find the values while they exist.

use crossbeam_utils::sync::ShardedLock;
use std::sync::{Arc, OnceLock, PoisonError, Weak};

/// Numbers for shared values.
///
/// A look-up takes a lock of the calling thread's own, so that threads do not disturb each other;
/// adding or removing takes all of these locks. The locks are std's in every back end, because no
/// thread waits while it holds one.
///
/// ```
/// use inflight_sync::{Arc, registry::Registry};
///
/// static NAMES: Registry<String> = Registry::new(0); // numbers of no bits: one
/// let number = NAMES.reserve().unwrap();
/// assert_eq!(NAMES.reserve(), None, "all are in use");
/// let name = Arc::new("sda".to_owned());
/// NAMES.set(number, &name);
/// assert_eq!(NAMES.get(number).as_deref(), Some(&"sda".to_owned()));
/// drop(name);
/// assert_eq!(NAMES.get(number), None);
/// NAMES.free(number);
/// ```
pub struct Registry<T> {
    bits: u32,
    table: OnceLock<ShardedLock<RegistryTable<T>>>,
}

struct RegistryTable<T> {
    values: Vec<Weak<T>>,
    free: Vec<u32>,
}

impl<T> Registry<T> {
    /// Makes a registry of numbers with this many bits.
    #[must_use]
    pub const fn new(bits: u32) -> Self {
        Self {
            bits,
            table: OnceLock::new(),
        }
    }

    fn table(&self) -> &ShardedLock<RegistryTable<T>> {
        self.table.get_or_init(|| {
            ShardedLock::new(RegistryTable {
                values: Vec::new(),
                free: Vec::new(),
            })
        })
    }

    fn change<R>(&self, f: impl FnOnce(&mut RegistryTable<T>) -> R) -> R {
        let table = self.table().write();
        f(&mut table.unwrap_or_else(PoisonError::into_inner))
    }

    /// A number that nobody else has, until it is [freed](Registry::free). `None` if all are in
    /// use.
    pub fn reserve(&self) -> Option<u32> {
        self.change(|table| {
            if let Some(number) = table.free.pop() {
                return Some(number);
            }
            let number = u32::try_from(table.values.len()).ok()?;
            // With 32 bits there is nothing to shift out.
            if number.checked_shr(self.bits).is_some_and(|high| high != 0) {
                return None;
            }
            table.values.push(Weak::new());
            Some(number)
        })
    }

    /// Sets the value of a number. The registry does not keep it alive.
    pub fn set(&self, number: u32, value: &Arc<T>) {
        self.change(|table| table.values[number as usize] = Arc::downgrade(value));
    }

    /// Returns the value of a number, if there is one.
    pub fn get(&self, number: u32) -> Option<Arc<T>> {
        let table = self.table().read();
        let table = table.unwrap_or_else(PoisonError::into_inner);
        table.values.get(number as usize)?.upgrade()
    }

    /// Frees the number for another value.
    pub fn free(&self, number: u32) {
        self.change(|table| {
            table.values[number as usize] = Weak::new();
            table.free.push(number);
        });
    }
}

crate::debug_fields!([T] Registry<T>);

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_numbers_as_the_bits_say() {
        for (bits, numbers) in [(0, 1), (1, 2), (32, 9)] {
            let registry = Registry::<()>::new(bits);
            for number in 0..numbers {
                assert_eq!(registry.reserve(), Some(number), "{bits} bits");
            }
            assert_eq!(registry.reserve().is_none(), bits < 32);
        }
    }
}
