//! Returning the memory of lists that were long.

use std::collections::VecDeque;

/// Shrinks an empty ring to room for `most` entries.
#[inline]
pub(crate) fn shrink_ring<T>(ring: &mut VecDeque<T>, most: usize) {
    if ring.is_empty() && ring.capacity() > most {
        ring.shrink_to(most);
    }
}

/// Removes the free places at the end of a table, and most of its unused room.
pub(crate) fn shrink_table<T>(table: &mut Vec<T>, is_free: impl Fn(&T) -> bool) {
    while table.last().is_some_and(&is_free) {
        table.pop();
    }
    if table.capacity() > 4 * table.len() + 16 {
        table.shrink_to(2 * table.len());
    }
}
