//! Flush colours: which entries of a pwq were queued before a flush began.
//!
//! Every entry has the colour that was current when it was queued, and each colour counts its
//! entries. A flush closes the current colour. It is over when no entry of that colour or an older
//! one is left. Later entries have a later colour, so they do not delay the flush. As in the kernel
//! there are sixteen colours, so fifteen flushes can be in progress. Flushes that begin meanwhile
//! share the next colour.

pub(crate) const COLOURS: usize = 16;

pub(crate) type FlushNumber = u64;

#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct FlushColours {
    total: usize,
    /// The next flush. Its colour is the current one.
    next: FlushNumber,
    in_flight: [u32; COLOURS],
    /// Every flush below this is over.
    over: FlushNumber,
    /// A flush wanted to begin when there was no free colour.
    wanted: bool,
}

const fn colour_of(flush: FlushNumber) -> u8 {
    (flush % COLOURS as u64) as u8
}

impl FlushColours {
    pub(crate) fn in_flight(&self) -> usize {
        self.total
    }

    pub(crate) fn current(&self) -> u8 {
        colour_of(self.next)
    }

    /// Counts entries under the current colour, or under one that other entries keep open.
    #[inline]
    pub(crate) fn enter_as(&mut self, colour: u8, entries: usize) {
        self.in_flight[usize::from(colour)] += entries as u32;
        self.total += entries;
    }

    /// Entries have ended. Returns whether that ended a flush.
    #[inline]
    pub(crate) fn leave(&mut self, colour: u8, entries: usize) -> bool {
        let left = &mut self.in_flight[usize::from(colour)];
        debug_assert!(*left as usize >= entries, "an entry ends once");
        *left -= entries as u32;
        self.total -= entries;
        *left == 0 && self.over < self.next && self.advance()
    }

    fn advance(&mut self) -> bool {
        let before = self.over;
        loop {
            while self.over < self.next && self.in_flight[usize::from(colour_of(self.over))] == 0 {
                self.over += 1;
            }
            if !self.wanted || self.is_full() {
                return self.over > before;
            }
            self.wanted = false;
            self.next += 1;
        }
    }

    fn is_full(&self) -> bool {
        self.next - self.over == COLOURS as u64 - 1
    }

    /// A flush begins. Returns the number to wait for; `None` if nothing is in flight.
    pub(crate) fn begin_flush(&mut self) -> Option<FlushNumber> {
        if self.total == 0 {
            return None;
        }
        if self.is_full() {
            self.wanted = true;
            return Some(self.next);
        }
        // Shares the flush before if nothing was queued since.
        self.next += u64::from(self.in_flight[usize::from(self.current())] > 0);
        Some(self.next - 1)
    }

    pub(crate) fn waits_for(&self, flush: FlushNumber, colour: u8) -> bool {
        let after_over = u64::from(colour).wrapping_sub(self.over) % COLOURS as u64;
        flush >= self.over && after_over <= flush - self.over
    }

    pub(crate) fn over(&self) -> FlushNumber {
        self.over
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl FlushColours {
        fn enter(&mut self) -> u8 {
            let colour = self.current();
            self.enter_as(colour, 1);
            colour
        }
    }

    /// I.22: one flush more than there are colours, over one old entry. What is queued after a
    /// flush delays it only if fifteen are in progress already.
    #[test]
    fn seventeen_flushes_share_what_is_left() {
        let mut colours = FlushColours::default();
        let old = colours.enter();
        let mut later = Vec::new();
        let flushes: Vec<_> = (0..17)
            .map(|_| {
                let flush = colours.begin_flush().unwrap();
                later.push(colours.enter());
                flush
            })
            .collect();
        assert!(flushes.iter().all(|flush| colours.over() <= *flush));
        colours.leave(old, 1);
        for (n, colour) in later.into_iter().enumerate() {
            assert!(n >= COLOURS - 1 || colours.over() > flushes[n], "{n}");
            colours.leave(colour, 1);
        }
        assert!(flushes.iter().all(|flush| colours.over() > *flush));
        assert_eq!(colours.in_flight(), 0);
    }

    proptest! {
        /// A flush waits only for entries that were queued before it and, if fifteen flushes are in
        /// progress, for those queued until the next one can begin.
        #[test]
        fn against_a_list_of_entries(
            steps in proptest::collection::vec((0..3u8, 0..50usize), 0..300)
        ) {
            let mut colours = FlushColours::default();
            let (mut entries, mut flushes) = (Vec::<(u8, u32)>::new(), Vec::new());
            for (n, (step, at)) in (0u32..).zip(steps) {
                match step {
                    0 => entries.push((colours.enter(), n)),
                    1 if !entries.is_empty() => {
                        let (colour, _) = entries.remove(at % entries.len());
                        colours.leave(colour, 1);
                    }
                    2 => flushes.extend(colours.begin_flush().map(|flush| (flush, n))),
                    _ => {}
                }
                for (flush, since) in &flushes {
                    let waits = entries.iter().any(|(_, queued)| queued < since);
                    prop_assert!(!(waits && (colours.over() > *flush)), "it is over too early");
                    for (colour, queued) in &entries {
                        let known = colours.waits_for(*flush, *colour);
                        prop_assert!(known || queued > since, "it waits for what was there");
                    }
                    let waits_on = entries.iter().any(|(c, _)| colours.waits_for(*flush, *c));
                    prop_assert_eq!(waits_on, colours.over() <= *flush);
                }
                flushes.retain(|(flush, _)| colours.over() <= *flush);
                prop_assert!(!entries.is_empty() || flushes.is_empty(), "all has ended");
                prop_assert_eq!(colours.in_flight(), entries.len());
            }
        }
    }
}
