//! Masks that were put, kept as they are beside a CPU's stack: the next mask is taken from there.
//!
//! ```text
//! word 32 | mask 32        0 = none
//! ```

use super::Local;
use super::words::{Group, lowest};

const fn number_of(group: Group) -> u64 {
    (group.word as u64) << 32 | group.mask
}

const fn group_of(number: u64) -> Group {
    Group {
        word: (number >> 32) as usize,
        mask: number & 0xffff_ffff,
    }
}

impl Local {
    /// Takes up to `n` ids of this CPU's bundle; none if there is none.
    #[inline(always)]
    pub(super) fn take_bundled(&self, n: u32) -> Group {
        const NONE: Group = Group { word: 0, mask: 0 };
        if !self.bundles {
            return NONE;
        }
        let Some(here) = self.stacks.here() else {
            return NONE;
        };
        let old = self.stacks.bundle(here);
        let Group { word, mask } = group_of(old);
        let taken = lowest(mask, n);
        if taken == 0 {
            return NONE;
        }
        let rest = mask ^ taken;
        let new = if rest == 0 {
            0
        } else {
            number_of(Group { word, mask: rest })
        };
        if !self.stacks.exchange_bundle(old, new) {
            return NONE;
        }
        let beyond = taken & !self.reach().mask(word);
        if beyond != 0 {
            self.give_beyond(Group { word, mask: beyond });
        }
        Group {
            word,
            mask: taken & !beyond,
        }
    }

    /// A put that raced with a resize left these, as an id in a stack.
    #[cold]
    #[inline(never)]
    fn give_beyond(&self, group: Group) {
        self.give(group);
    }

    /// Gives ids to this CPU's bundle, if it has room for them.
    #[inline]
    pub(super) fn bundle(&self, group: Group) -> bool {
        if !self.bundles || group.mask == 0 {
            return false;
        }
        let Some(here) = self.stacks.here() else {
            return false;
        };
        let old = self.stacks.bundle(here);
        let kept = group_of(old);
        if old != 0 && kept.word != group.word {
            return false;
        }
        let mask = kept.mask | group.mask;
        let new = number_of(Group { mask, ..group });
        self.stacks.exchange_bundle(old, new) || self.open_and_exchange(here, old, new)
    }

    #[cold]
    fn open_and_exchange(&self, here: usize, old: u64, new: u64) -> bool {
        // MA. A stack that is open has refused for another reason.
        !self.stacks.is_open(here)
            && self.control.glance().is_warm()
            && self.mover().is_some()
            && self.stacks.exchange_bundle(old, new)
    }

    /// D, for the bundle of a stack that has just been drained.
    pub(super) fn drain_bundle(&self, i: usize) {
        let group = group_of(self.stacks.drain_bundle(i));
        if group.mask != 0 {
            self.give(group);
        }
    }
}
