//! What kind of set a run has.

use fastrand::Rng;
use inflight_sbitmap::Engine;
use inflight_sync::Arc;
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::time::Clock;
use inflight_tags::{
    Admission, Force, HwQueueOptions, NoPreempt, SharePolicy, TagSet, WakeAccounting,
};

pub(crate) type Set = TagSet<Payload>;

pub(crate) const WEIGHTS: [u32; 5] = [0, 1, 3, 100, u32::MAX];

/// Owner 0 is nobody.
pub(crate) struct Payload {
    pub(crate) owner: u64,
    pub(crate) drops: Arc<AtomicUsize>,
}

impl Drop for Payload {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a set is built with, and which operations its run has.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) admission: Admission,
    pub(crate) share: SharePolicy,
    pub(crate) engine: Engine,
    pub(crate) max_depth: usize,
    pub(crate) depth: usize,
    pub(crate) reserved: usize,
    pub(crate) max_hw_queues: usize,
    pub(crate) hw_queues: usize,
    pub(crate) shared_tags: bool,
    pub(crate) before_wait: bool,
    pub(crate) freezes: bool,
    pub(crate) cancels: bool,
    pub(crate) resizes: bool,
}

impl Plan {
    pub(crate) fn new(rng: &mut Rng) -> Self {
        // From 32 on two tenants' even shares make wake batches above 1.
        let most = [20, 20, 100][rng.usize(0..3)];
        let max_depth = rng.usize(1..most);
        let reserved = if rng.bool() {
            rng.usize(0..max_depth)
        } else {
            0
        };
        let max_hw_queues = rng.usize(1..5);
        Self {
            admission: admission(rng),
            share: share(rng),
            engine: [Engine::Shared, Engine::Auto][rng.usize(0..2)],
            max_depth,
            depth: rng.usize(reserved + 1..=max_depth),
            reserved,
            max_hw_queues,
            hw_queues: rng.usize(1..=max_hw_queues),
            shared_tags: rng.bool(),
            before_wait: rng.u8(0..4) == 0,
            freezes: rng.bool(),
            cancels: rng.bool(),
            resizes: rng.bool(),
        }
    }

    pub(crate) fn build(
        &self,
        clock: &Clock,
        made: &Arc<AtomicUsize>,
        drops: &Arc<AtomicUsize>,
    ) -> Set {
        let rings = HwQueueOptions::new(self.hw_queues)
            .max(self.max_hw_queues)
            .shared_tags(self.shared_tags);
        let mut set = TagSet::builder()
            .hw_queues(rings)
            .depth(self.depth)
            .max_depth(self.max_depth)
            .reserved(self.reserved)
            .admission(self.admission)
            .share(self.share)
            .engine(self.engine)
            .clock(clock.clone());
        if self.before_wait {
            set = set.before_wait(|_| {});
        }
        let (made, drops) = (made.clone(), drops.clone());
        let payload = move |_, _| {
            made.fetch_add(1, Ordering::Relaxed);
            let drops = drops.clone();
            Payload { owner: 0, drops }
        };
        set.build(payload).unwrap()
    }
}

pub(crate) fn admission(rng: &mut Rng) -> Admission {
    let no_preempt = NoPreempt::default();
    match rng.u8(0..8) {
        0 => Admission::preempt(),
        1 => Admission::NoPreempt(no_preempt.threshold(rng.usize(0..4))),
        2 => {
            let no_preempt = no_preempt.threshold(rng.usize(0..3)).force(Force::Never);
            Admission::NoPreempt(no_preempt.accounting(WakeAccounting::PerWaiter))
        }
        3 => Admission::NoPreempt(no_preempt.threshold(0).force(Force::AsPosted)),
        4 => Admission::elastic_overcommit(rng.usize(1..6)),
        _ => Admission::WholeIo,
    }
}

pub(crate) fn share(rng: &mut Rng) -> SharePolicy {
    let min = rng.usize(0..4);
    match rng.u8(0..4) {
        0 => SharePolicy::None,
        1 => SharePolicy::Weighted { min },
        2 => SharePolicy::Fair { min },
        _ => SharePolicy::default(),
    }
}
