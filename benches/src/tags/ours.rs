//! Tag sets, and what they cannot be cheaper than.

use super::{Requests, TagLoads};
use crate::{Contender, Part};
use inflight_sbitmap::SbitmapQueue;
use inflight_tags::{Tag, TagSet, Tenant};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Tag sets in the settings that have a row of their own.
#[must_use]
pub fn ours() -> Vec<Contender<dyn TagLoads>> {
    vec![
        Contender::new("TagSet", Part::Ours, |depth| {
            Box::new(Tags::new(depth, true))
        }),
        Contender::new("TagSet, ages(false)", Part::Variant, |depth| {
            Box::new(Tags::new(depth, false))
        }),
    ]
}

#[derive(Debug)]
struct Tags {
    set: TagSet<u64>,
    dev: Tenant<u64>,
}

impl Tags {
    fn new(depth: usize, ages: bool) -> Self {
        let set = TagSet::builder().depth(depth).ages(ages);
        let set = set.build(|_, _| 0).expect("valid");
        let dev = set.add_tenant("bench").expect("the only one");
        Self { set, dev }
    }
}

impl Requests for Tags {
    type Held = Tag<u64>;

    #[inline]
    fn alloc(&self, value: u64) -> Option<Tag<u64>> {
        let mut tag = self.dev.try_alloc().ok()?;
        *tag = value;
        Some(tag)
    }

    #[inline]
    fn token(&self, held: Tag<u64>) -> u64 {
        held.into_token()
    }

    #[inline]
    fn redeem(&self, token: u64) -> Option<Tag<u64>> {
        self.set.redeem(token).ok()
    }

    #[inline]
    fn free(&self, held: Tag<u64>) {
        drop(held);
    }
}

/// The bitmap under a tag set, in the setting it has there: `n` gets and puts.
#[must_use]
pub fn bare_pair(bitmap: &SbitmapQueue, n: u64) -> Duration {
    let start = Instant::now();
    for _ in 0..n {
        let id = bitmap.try_get().expect("an id is free");
        bitmap.put(id).expect("held");
    }
    start.elapsed()
}

/// `n` compare-exchanges of a word that no other thread uses.
#[must_use]
pub fn compare_exchange(word: &AtomicU64, n: u64) -> Duration {
    let start = Instant::now();
    for _ in 0..n {
        // Relaxed: only the time matters.
        let now = word.load(Ordering::Relaxed);
        let changed = word.compare_exchange(now, now + 1, Ordering::Acquire, Ordering::Relaxed);
        assert!(changed.is_ok(), "nobody else");
    }
    start.elapsed()
}
