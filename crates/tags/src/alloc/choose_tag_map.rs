//! Which tag map an allocation takes from: that of the hardware queue which was named, or which
//! serves the calling CPU; the reserved tags of it or the normal ones.

use crate::alloc::AllocOptions;
use crate::error::AllocError;
use crate::tag_layout::{TagMap, TagMapId};
use crate::tenant::Tenant;
use inflight_sync::cpu;

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
            None if self.bitmaps().layout.hw_queues == 1 => 0,
            None => {
                let mapped = self
                    .shared
                    .cpu_map
                    .hw_queue_of(options.kind, cpu::current());
                self.bitmaps().stand_in(mapped)
            }
        };
        let kind = if options.reserved {
            TagMap::Reserved
        } else {
            TagMap::Normal
        };
        TagMapId { hw_queue, kind }
    }
}
