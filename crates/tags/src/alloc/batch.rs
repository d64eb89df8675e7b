//! Several tags at once.

use crate::alloc::AllocOptions;
use crate::error::AllocError;
use crate::slot::PUT_AT_ONCE;
use crate::tag::Tag;
use crate::tenant::Tenant;

impl<T: Send + 'static> Tenant<T> {
    /// Takes as many normal tags as are free now, up to `n`, all from the calling CPU's hardware
    /// queue: a plug's worth. None while the set is frozen or quiesced, or once it is closed.
    ///
    /// [`try_alloc_batch_with`](Tenant::try_alloc_batch_with) says why there is none.
    ///
    /// ```
    /// # use inflight_tags::{AllocError, AllocOptions, TagSet};
    /// let set = TagSet::builder().depth(6).build(|_, _| ())?;
    /// let dev = set.add_tenant("nvme0n1")?;
    /// let four = dev.try_alloc_batch(4);
    /// assert_eq!((four.len(), dev.try_alloc_batch(9).len()), (4, 2), "as many as there are");
    /// let two = dev.try_alloc_batch(2);
    /// let why = dev.try_alloc_batch_with(2, AllocOptions::new()).unwrap_err();
    /// assert_eq!((two.len(), why), (2, AllocError::Exhausted));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "the tags are freed when they are dropped"]
    pub fn try_alloc_batch(&self, n: usize) -> Vec<Tag<T>> {
        self.try_alloc_batch_with(n, AllocOptions::new())
            .unwrap_or_default()
    }

    /// Takes as many tags of the kind asked for as are free now, up to `n`, all from one hardware
    /// queue. At least one, unless `n` is 0. The errors are those of
    /// [`try_alloc_with`](Tenant::try_alloc_with).
    pub fn try_alloc_batch_with(
        &self,
        n: usize,
        options: AllocOptions,
    ) -> Result<Vec<Tag<T>>, AllocError> {
        let mut tags = self.batch_fast(options, n);
        let left = n - tags.len();
        if left > 0 || n == 0 {
            match self.batch_slow(options, left) {
                Ok(more) => tags.extend(more),
                Err(why) if tags.is_empty() => return Err(self.refuse(why)),
                Err(_) => {} // fewer than were asked for: no error
            }
        }
        Ok(tags)
    }

    /// The fast path, tag by tag: with one hardware queue the batch is of that one.
    fn batch_fast(&self, options: AllocOptions, n: usize) -> Vec<Tag<T>> {
        let mut tags = Vec::new();
        if self.bitmaps().only_tag_map().is_some() && options.is_normal_here() {
            tags.reserve(n.min(PUT_AT_ONCE));
            let fast = || self.alloc_fast(options.kind);
            tags.extend(std::iter::from_fn(fast).take(n));
        }
        tags
    }

    /// The slow path. A refusal is not counted yet, because there may be some tags.
    fn batch_slow(&self, options: AllocOptions, n: usize) -> Result<Vec<Tag<T>>, AllocError> {
        let bitmaps = self.bitmaps();
        loop {
            self.check(options)?;
            // A check beforehand, as in `alloc_step`.
            if let Some(why) = bitmaps.gate.state().refuses() {
                return Err(why);
            }
            let tag_map = self.choose_tag_map(options);
            let batch = bitmaps.try_get_batch(tag_map, n, self.tenant_index());
            if n > 0 && batch.len() == 0 {
                return Err(AllocError::Exhausted);
            }
            if let Some(tags) = self.make_tags(batch) {
                return Ok(tags);
            }
            // Refused: the check above sees what has changed.
        }
    }
}
