//! How the tags of a set are numbered: by hardware queue, and in each the reserved ones first, then
//! the normal ones, then those beyond the depth.

/// The most hardware queues, and the most tags of each. `Size` has the present numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TagLayout {
    pub(crate) hw_queues: usize,
    /// Tags per hardware queue, including reserved ones.
    pub(crate) depth: usize,
    /// Whether there is one table of tags for all hardware queues.
    pub(crate) shared_tags: bool,
    /// Tags 0..reserved of each hardware queue.
    pub(crate) reserved: usize,
    /// Tags depth..depth + extra of each hardware queue: for
    /// [`Admission::ElasticOvercommit`](crate::Admission).
    pub(crate) extra: usize,
}

impl TagLayout {
    pub(crate) const fn tags(self) -> usize {
        self.tables() * self.stride()
    }

    /// How many tables of tags there are, each with its bitmaps.
    pub(crate) const fn tables(self) -> usize {
        self.tables_of(self.hw_queues)
    }

    /// How many tables `hw_queues` have.
    pub(crate) const fn tables_of(self, hw_queues: usize) -> usize {
        if self.shared_tags { 1 } else { hw_queues }
    }

    /// The table of a hardware queue.
    #[inline]
    pub(crate) const fn table(self, hw_queue: usize) -> usize {
        if self.shared_tags { 0 } else { hw_queue }
    }

    /// The number of tag ids of a hardware queue.
    #[inline]
    pub(crate) const fn stride(self) -> usize {
        self.depth + self.extra
    }

    #[inline]
    pub(crate) const fn flat(self, hw_queue: usize, tag: usize) -> usize {
        self.table(hw_queue) * self.stride() + tag
    }

    /// The first tag of a bitmap within its hardware queue.
    const fn first_tag(&self, tag_map: TagMapId) -> usize {
        match tag_map.kind {
            TagMap::Reserved => 0,
            TagMap::Normal => self.reserved,
            TagMap::Extra => self.depth,
        }
    }

    #[inline]
    pub(crate) const fn tag_of(&self, tag_map: TagMapId, bit: usize) -> usize {
        self.first_tag(tag_map) + bit
    }

    /// The inverse of [`tag_of`](Self::tag_of).
    #[inline]
    pub(crate) const fn bit_of(&self, hw_queue: usize, tag: usize) -> (TagMapId, usize) {
        let kind = if tag < self.reserved {
            TagMap::Reserved
        } else if tag < self.depth {
            TagMap::Normal
        } else {
            TagMap::Extra
        };
        let tag_map = TagMapId { hw_queue, kind };
        (tag_map, tag - self.first_tag(tag_map))
    }

    /// All bitmaps, those of each table in the order of their tags.
    pub(crate) fn tag_map_ids(&self) -> impl Iterator<Item = TagMapId> + use<> {
        let layout = *self;
        let kinds = [TagMap::Reserved, TagMap::Normal, TagMap::Extra];
        (0..layout.tables())
            .flat_map(move |hw_queue| kinds.map(|kind| TagMapId { hw_queue, kind }))
            .filter(move |tag_map| match tag_map.kind {
                TagMap::Reserved => layout.reserved > 0,
                TagMap::Normal => true,
                TagMap::Extra => layout.extra > 0,
            })
    }
}

/// The bitmaps of a hardware queue, in the order of their tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TagMap {
    Reserved,
    Normal,
    /// Beyond the depth.
    Extra,
}

/// One of the bitmaps of one hardware queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TagMapId {
    pub(crate) hw_queue: usize,
    pub(crate) kind: TagMap,
}

impl TagMapId {
    #[inline]
    pub(crate) const fn normal(hw_queue: usize) -> Self {
        let kind = TagMap::Normal;
        Self { hw_queue, kind }
    }
}
