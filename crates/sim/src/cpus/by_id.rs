//! What is known of each usable CPU. Not every CPU of a machine is usable.

use std::ops::{Index, IndexMut};

/// Values by CPU number.
#[derive(Debug)]
pub(super) struct ById<T>(Vec<Option<T>>);

impl<T> FromIterator<(usize, T)> for ById<T> {
    fn from_iter<I: IntoIterator<Item = (usize, T)>>(all: I) -> Self {
        let mut values = Vec::new();
        for (cpu, value) in all {
            if values.len() <= cpu {
                values.resize_with(cpu + 1, || None);
            }
            values[cpu] = Some(value);
        }
        Self(values)
    }
}

impl<T> Index<usize> for ById<T> {
    type Output = T;

    fn index(&self, cpu: usize) -> &T {
        self.0[cpu].as_ref().expect("threads are on usable CPUs")
    }
}

impl<T> IndexMut<usize> for ById<T> {
    fn index_mut(&mut self, cpu: usize) -> &mut T {
        self.0[cpu].as_mut().expect("threads are on usable CPUs")
    }
}
