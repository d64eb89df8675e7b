//! A pwq of the core: its FIFO, its limit, and the reasons not to take from it.

use crate::fifo::Fifo;
use crate::flush_colour::FlushColours;
use crate::nr_active::{Limit, PwqId};

/// A pwq of one pool.
pub type PwqIndex = u32;

/// What a queue of entries needs to know of one.
pub trait PoolItem: Copy {
    /// The flush colour it is counted under.
    fn colour(&self) -> u8;
    /// It stands there in the FIFO of its pwq.
    fn set_position(&self, position: u32);
}

pub(super) const NONE: PwqIndex = PwqIndex::MAX;

/// The neighbours of a pwq that is on the worklist.
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

/// What went through a pwq.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PwqCounters {
    pub(crate) queued: u64,
    /// Runs that have ended.
    pub(crate) ended: u64,
    pub(crate) cancelled: u64,
}

/// First what each push touches.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct PwqState<T> {
    /// On the worklist, with a slot.
    pub(super) listed: bool,
    pub(super) links: Links,
    /// While something is in flight in it, its queue counts it as busy.
    pub(crate) counted: bool,
    /// Nothing is taken from it.
    pub(crate) frozen: bool,
    /// The same, until the pwq that it replaces is idle.
    pub(crate) plugged: bool,
    /// On the list of those that wait for a slot.
    pub(crate) pending: bool,
    /// Another pwq has replaced it: it takes nothing, and somebody wants to know when it is idle.
    pub(crate) retired: bool,
    /// A worker that runs its items does not count as running.
    pub(crate) unmanaged: bool,
    pub(crate) fifo: Fifo<T>,
    pub(crate) colours: FlushColours,
    pub(crate) counters: PwqCounters,
    pub(crate) limit: Limit,
    pub(crate) id: PwqId,
    /// Items that run on their callers' threads.
    pub(crate) inline: usize,
}

impl<T: PoolItem> PwqState<T> {
    pub(crate) fn new(id: PwqId, limit: Limit, unmanaged: bool) -> Self {
        Self {
            id,
            fifo: Fifo::default(),
            limit,
            colours: FlushColours::default(),
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

    pub(super) fn has_work(&self) -> bool {
        !self.fifo.is_empty() && !self.is_stopped()
    }

    /// It has entries and could run them, but has no slot.
    pub(crate) fn waits_for_slot(&self) -> bool {
        self.has_work() && !self.listed
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.colours.in_flight() == 0
    }
}
