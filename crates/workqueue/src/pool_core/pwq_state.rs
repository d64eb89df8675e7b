//! A pwq of the core: its FIFO, its limit, and the reasons not to take entries from it.

use crate::fifo::{self, Fifo};
use crate::flush_colour::{FlushColours, FlushNumber};
use crate::nr_active::{Limit, PwqId};
use std::mem;

/// The index of a pwq in its pool.
pub type PwqIndex = u32;

/// What a FIFO needs to know of an entry.
pub trait PoolItem: Copy {
    /// The flush colour that counts it.
    fn colour(&self) -> u8;
    /// Stores its position in the FIFO of its pwq.
    fn set_position(&self, position: u32);
}

pub(super) const NONE: PwqIndex = PwqIndex::MAX;

#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    pub(super) before: PwqIndex,
    pub(super) after: PwqIndex,
}

impl Default for Links {
    fn default() -> Self {
        Self {
            before: NONE,
            after: NONE,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PwqCounters {
    pub(crate) queued: u64,
    /// Runs that have ended.
    pub(crate) ended: u64,
    pub(crate) cancelled: u64,
}

/// While its pwq is listed, a push touches only the first cache line and a place of the FIFO.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct PwqState<T> {
    /// No pwq has this index.
    vacant: bool,
    /// On the worklist, with a slot.
    pub(super) listed: bool,
    /// Whether its queue counts it as busy while something is in flight in it.
    pub(crate) counted: bool,
    colour: u8,
    /// Frozen: nothing is taken from it.
    pub(crate) frozen: bool,
    /// Plugged: the same, until the pwq that it replaces is idle.
    pub(crate) plugged: bool,
    /// On the list of pwqs that wait for a slot.
    pub(crate) pending: bool,
    /// Another pwq has replaced it: it accepts nothing, and reports when it is idle.
    pub(crate) retired: bool,
    /// A worker that runs its items does not count as running.
    pub(crate) unmanaged: bool,
    pub(super) links: Links,
    /// Entries queued under the present colour that the fields below do not count yet.
    newcomers: u32,
    pub(crate) fifo: Fifo<T>,
    /// Items that run on their callers' threads.
    pub(crate) inline: usize,
    pub(crate) limit: Limit,
    counters: PwqCounters,
    colours: FlushColours,
    pub(crate) id: PwqId,
}

// The fields that a push touches are on one cache line.
const _: () = assert!(mem::offset_of!(PwqState<u64>, fifo) + fifo::PUSHED <= 64);

impl<T: PoolItem> PwqState<T> {
    pub(crate) fn new(id: PwqId, limit: Limit, unmanaged: bool) -> Self {
        Self {
            vacant: false,
            id,
            fifo: Fifo::default(),
            limit,
            colours: FlushColours::default(),
            colour: 0,
            newcomers: 0,
            listed: false,
            links: Links::default(),
            pending: false,
            frozen: false,
            plugged: false,
            retired: false,
            counted: false,
            unmanaged,
            inline: 0,
            counters: PwqCounters::default(),
        }
    }

    /// Whether nothing is taken from it: it is frozen, or waits for the pwq that it replaces.
    pub(crate) fn is_stopped(&self) -> bool {
        self.frozen || self.plugged
    }

    pub(super) fn vacant() -> Self {
        Self {
            vacant: true,
            ..Self::new(0, Limit::own(0), false)
        }
    }

    pub(super) fn is_vacant(&self) -> bool {
        self.vacant
    }

    pub(super) fn has_work(&self) -> bool {
        !self.fifo.is_empty() && !self.is_stopped()
    }

    /// Whether it has entries and could run them, but has no slot.
    pub(crate) fn waits_for_slot(&self) -> bool {
        self.has_work() && !self.listed
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.newcomers == 0 && self.colours.in_flight() == 0
    }

    #[inline]
    pub(crate) fn in_flight(&self) -> usize {
        self.colours.in_flight() + self.newcomers as usize
    }

    /// Counts a queued entry. Returns its colour.
    #[inline]
    pub(crate) fn enter(&mut self) -> u8 {
        self.newcomers += 1;
        self.colour
    }

    /// Counts entries as queued and in flight, under a colour that other entries keep open.
    pub(crate) fn enter_as(&mut self, colour: u8, entries: usize) {
        self.colours.enter_as(colour, entries);
        self.count_queued(entries);
    }

    /// Counts entries as queued that are not in flight.
    #[inline]
    pub(crate) fn count_queued(&mut self, entries: usize) {
        self.counters.queued += entries as u64;
    }

    pub(crate) fn count_cancelled(&mut self) {
        self.counters.cancelled += 1;
    }

    #[inline]
    fn count_newcomers(&mut self) {
        let newcomers = mem::take(&mut self.newcomers) as usize;
        self.colours.enter_as(self.colour, newcomers);
        self.count_queued(newcomers);
    }

    /// Entries have ended, `ran` of them by running. If that ended a flush, returns the first flush
    /// that is not over.
    #[inline]
    pub(super) fn leave(&mut self, colour: u8, entries: usize, ran: usize) -> Option<FlushNumber> {
        self.count_newcomers();
        self.counters.ended += ran as u64;
        let is_over = entries > 0 && self.colours.leave(colour, entries);
        if !is_over {
            return None;
        }
        self.colour = self.colours.current();
        Some(self.colours.over())
    }

    /// Begins a flush. `None` if there is nothing to wait for.
    pub(crate) fn begin_flush(&mut self) -> Option<FlushNumber> {
        self.count_newcomers();
        let flush = self.colours.begin_flush();
        self.colour = self.colours.current();
        flush
    }

    pub(crate) fn waits_for(&self, flush: FlushNumber, colour: u8) -> bool {
        self.colours.waits_for(flush, colour)
    }

    #[cfg(test)]
    pub(super) fn over(&self) -> FlushNumber {
        self.colours.over()
    }

    pub(crate) fn counters(&self) -> PwqCounters {
        PwqCounters {
            queued: self.counters.queued + u64::from(self.newcomers),
            ..self.counters
        }
    }
}
