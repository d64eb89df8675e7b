//! Lists that were long once and are not any more give their memory back.

use std::collections::VecDeque;

/// An empty ring keeps room for `most` entries.
#[inline]
pub(crate) fn shrink_ring<T>(ring: &mut VecDeque<T>, most: usize) {
    if ring.is_empty() && ring.capacity() > most {
        ring.shrink_to(most);
    }
}

/// A table keeps no free places at its end, and room for some.
pub(crate) fn shrink_table<T>(table: &mut Vec<T>, is_free: impl Fn(&T) -> bool) {
    while table.last().is_some_and(&is_free) {
        table.pop();
    }
    if table.capacity() > 4 * table.len() + 16 {
        table.shrink_to(2 * table.len());
    }
}
