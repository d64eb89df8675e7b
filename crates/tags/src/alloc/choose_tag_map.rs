//! Which tag map an allocation takes from: that of the hardware queue that was named or that serves
//! the calling CPU; its reserved tags or the normal ones.
//!
//! The fast path uses `only_tag_map` and `mapped_tag_map`, all others `choose_tag_map`. A waiter
//! that was woken chooses again: see `after_wake`.

use crate::alloc::AllocOptions;
use crate::error::AllocError;
use crate::queue_kind::QueueKind;
use crate::tag_layout::{TagMap, TagMapId};
use crate::tag_maps::TagMaps;
use crate::tenant::Tenant;
use inflight_sync::cpu;

impl TagMaps {
    /// The map of the normal tags, if the set has one hardware queue.
    #[inline(always)]
    pub(super) fn only_tag_map(&self) -> Option<TagMapId> {
        (self.layout.hw_queues == 1).then(|| TagMapId::normal(0))
    }
}

impl<T: Send + 'static> Tenant<T> {
    /// Whether the set has what the options ask for.
    pub(crate) fn check(&self, options: AllocOptions) -> Result<(), AllocError> {
        if let Some(n) = options.named() {
            let hw_queue = options.hw_queue;
            if n >= self.bitmaps().size.hw_queues() {
                return Err(AllocError::NoSuchHwQueue { hw_queue });
            }
            if options.mapped && !self.shared.cpu_map.serves_any(n) {
                return Err(AllocError::Unmapped { hw_queue });
            }
            if self.bitmaps().stand_in(n) != n {
                return Err(AllocError::InactiveHwQueue { hw_queue });
            }
        }
        if options.reserved && self.bitmaps().layout.reserved == 0 {
            return Err(AllocError::NoReserved);
        }
        Ok(())
    }

    /// The bitmap to take from, for options that have been checked.
    pub(crate) fn choose_tag_map(&self, options: AllocOptions) -> TagMapId {
        let hw_queue = match options.named() {
            Some(n) => n,
            None if self.bitmaps().only_tag_map().is_some() => 0,
            None => self.bitmaps().stand_in(self.mapped_here(options.kind)),
        };
        let kind = if options.reserved {
            TagMap::Reserved
        } else {
            TagMap::Normal
        };
        TagMapId { hw_queue, kind }
    }

    /// The map of the normal tags for the calling CPU, if no hardware queue is inactive.
    #[inline]
    pub(super) fn mapped_tag_map(&self, kind: QueueKind) -> TagMapId {
        TagMapId::normal(self.mapped_here(kind))
    }

    /// The hardware queue that serves the calling CPU if it is active.
    #[inline]
    fn mapped_here(&self, kind: QueueKind) -> usize {
        match self.bitmaps().layout.hw_queues {
            1 => 0,
            _ => self.shared.cpu_map.hw_queue_of(kind, cpu::current()),
        }
    }
}
