//! A waiter that was woken with a bit may have moved to another CPU meanwhile.

use crate::alloc::AllocOptions;
use crate::pending_tag::PendingTag;
use crate::tag::Tag;
use crate::tenant::Tenant;

impl<T: Send + 'static> Tenant<T> {
    /// After a sleep that ended with a bit: makes it a tag, unless a freeze has begun.
    ///
    /// The thread may have moved. A bit of the hardware queue where it runs now is better; the bit
    /// that it was woken for is then put, like any other.
    pub(super) fn tag_after_wake(
        &self,
        options: AllocOptions,
        bit: PendingTag<'_>,
    ) -> Option<Tag<T>> {
        let here = self.choose_tag_map(options);
        if here == bit.tag_map {
            return self.make_tag(bit);
        }
        match bit.moved(here) {
            Ok(bit) => self.make_tag(bit),
            Err(bit) => match self.bitmaps().try_get(here, self.tenant_index()) {
                Some(near) => {
                    drop(bit);
                    self.make_tag(near)
                }
                None => self.make_tag(bit),
            },
        }
    }
}
