//! Freeing several tags together.

use crate::slot::{PUT_AT_ONCE, Slot};
use crate::tag::Tag;
use std::ptr::NonNull;

impl<T> Tag<T> {
    /// Frees several tags: those of one hardware queue together, up to 32 with one check of the
    /// waiters. For a reaper of many completions; each tag ends as if it were dropped. The tags may
    /// be of different hardware queues, also of different sets.
    ///
    /// Waiters are served in their order, as many as there are free tags for them. All tags of a
    /// group are free before the first of these waiters is woken.
    ///
    /// # Panics
    ///
    /// Panics with the wakers of waiting tasks, as [dropping](Tag) does: once all tags are free,
    /// and all chosen waiters are woken.
    ///
    /// ```
    /// use inflight_tags::{Tag, TagSet};
    /// let set = TagSet::builder().depth(8).build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// let tokens: Vec<u64> = dev.try_alloc_batch(8).into_iter().map(Tag::into_token).collect();
    /// // The reaper's turn.
    /// let done = tokens.into_iter().filter_map(|token| set.redeem(token).ok());
    /// Tag::free_batch(done);
    /// assert_eq!(set.in_use(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn free_batch(tags: impl IntoIterator<Item = Self>) {
        let mut tags = ToFree::new(tags.into_iter().collect());
        while tags.free_next() {}
    }
}

/// Tags to be freed, grouped by bitmap.
struct ToFree<T>(Vec<Tag<T>>);

impl<T> ToFree<T> {
    fn new(mut tags: Vec<Tag<T>>) -> Self {
        tags.sort_unstable_by_key(|tag| tag.bitmap.addr());
        Self(tags)
    }

    /// Frees the last group. Returns whether there was one.
    fn free_next(&mut self) -> bool {
        let Some(bitmap) = self.0.last().map(|tag| tag.bitmap) else {
            return false;
        };
        let mut slots = [NonNull::<Slot<T>>::dangling(); PUT_AT_ONCE];
        let mut len = 0;
        while len < PUT_AT_ONCE && self.0.last().is_some_and(|tag| tag.bitmap == bitmap) {
            if let Some(tag) = self.0.pop() {
                slots[len] = tag.into_raw();
                len += 1;
            }
        }
        // SAFETY: each was a tag until now, which owned its slot; one bitmap is of one set.
        unsafe { Slot::free_all(&slots[..len]) };
        true
    }
}

impl<T> Drop for ToFree<T> {
    /// Frees the rest if a waker panics.
    fn drop(&mut self) {
        while self.free_next() {}
    }
}
