//! Ours, in the settings that have a row of their own.

use crate::ids::Ids;
use crate::loads::Loads;
use crate::waiting::WaitIds;
use crate::{Contender, Part};
use inflight_sbitmap::{BackEnd, Engine, FairOptions, Fairness, Sbitmap, SbitmapQueue};

/// Ours without waiting.
#[must_use]
pub fn ours() -> Vec<Contender<dyn Loads>> {
    use Part::{Ours, Variant};
    vec![
        Contender::new("SbitmapQueue", Ours, |d| {
            Box::new(SbitmapQueue::builder(d).build().expect("valid"))
        }),
        Contender::new("SbitmapQueue, trusted", Variant, |d| {
            let queue = SbitmapQueue::builder(d).trusted(true);
            Box::new(queue.build().expect("valid"))
        }),
        Contender::new("SbitmapQueue, Shared", Variant, |d| {
            let queue = SbitmapQueue::builder(d).engine(Engine::Shared);
            Box::new(queue.build().expect("valid"))
        }),
        Contender::new("Sbitmap", Variant, |d| {
            Box::new(Sbitmap::builder(d).build().expect("valid"))
        }),
    ]
}

/// The back end that queues get in this process.
#[must_use]
pub fn back_end() -> BackEnd {
    let queue = SbitmapQueue::builder(64).build().expect("valid");
    queue.back_end()
}

/// Ours with waiting.
#[must_use]
pub fn ours_waiting() -> Vec<Contender<dyn WaitIds>> {
    use Part::{Ours, Variant};
    vec![
        Contender::new("Fair", Ours, |d| Box::new(queue(d, Fairness::fair()))),
        Contender::new("Fair, completer_polls", Variant, |d| {
            let polls = FairOptions::new().completer_polls(true);
            Box::new(queue(d, polls))
        }),
        Contender::new("Fifo", Variant, |d| Box::new(queue(d, Fairness::fifo()))),
        Contender::new("Batched", Variant, |d| {
            Box::new(queue(d, Fairness::batched()))
        }),
    ]
}

/// A queue for each fairness and each engine that it runs on.
#[must_use]
pub fn every_queue(depth: usize) -> Vec<(String, SbitmapQueue)> {
    let modes = [
        ("Fair", Fairness::fair(), Engine::Local),
        ("Fair", Fairness::fair(), Engine::Shared),
        ("Fifo", Fairness::fifo(), Engine::Local),
        ("Fifo", Fairness::fifo(), Engine::Shared),
        ("Batched", Fairness::batched(), Engine::Shared),
    ];
    let make = |(name, fairness, engine)| {
        let queue = SbitmapQueue::builder(depth).fairness(fairness);
        let queue = queue.engine(engine).build().expect("valid");
        (format!("{name} on {:?}", queue.back_end()), queue)
    };
    modes.map(make).into()
}

pub(crate) fn queue(depth: usize, fairness: impl Into<Fairness>) -> SbitmapQueue {
    let queue = SbitmapQueue::builder(depth).fairness(fairness);
    queue.build().expect("valid")
}

impl Ids for Sbitmap {
    type Local = ();

    fn local(&self, _: usize) {}

    #[inline]
    fn get(&self, (): &mut ()) -> Option<usize> {
        self.try_get()
    }

    #[inline]
    fn put(&self, (): &mut (), id: usize) {
        Sbitmap::put(self, id).expect("held");
    }

    #[inline]
    fn put_all(&self, (): &mut (), ids: &[usize]) {
        self.put_batch(ids).expect("held");
    }
}

impl Ids for SbitmapQueue {
    type Local = ();

    fn local(&self, _: usize) {}

    #[inline]
    fn get(&self, (): &mut ()) -> Option<usize> {
        self.try_get()
    }

    #[inline]
    fn put(&self, (): &mut (), id: usize) {
        SbitmapQueue::put(self, id).expect("held");
    }

    #[inline]
    fn put_all(&self, (): &mut (), ids: &[usize]) {
        self.put_batch(ids).expect("held");
    }
}
