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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_has_little_room() {
        let mut ring: VecDeque<_> = (0..1_000).collect();
        ring.truncate(1);
        shrink_ring(&mut ring, 16);
        assert!(ring.capacity() >= 1_000, "it is not empty");
        ring.clear();
        shrink_ring(&mut ring, 16);
        assert!((16..100).contains(&ring.capacity()));
        let mut table: Vec<_> = (0..1_000).map(Some).collect();
        table[10..].fill(None);
        table[3] = None;
        shrink_table(&mut table, Option::is_none);
        assert_eq!(table.len(), 10);
        assert!(table.capacity() < 100);
    }
}
