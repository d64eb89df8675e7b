//! The shards of a set of completions: a mailbox each, and what runs its contents.

use super::depth::{self, Later, dispose};
use super::mailbox::{Batch, Mailbox, Pushed};
use super::seats::Seat;
use super::sink::{MailboxHandle, RunMailbox, Runner};
use super::stats::{Batches, BySeat, Counters, SteeringStats};
use crate::grown::Grown;
use crate::tag::Tag;
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, CachePadded};
use inflight_topology::CpuSet;
use inflight_topology::steering::{Completion, Mailbox as Seen};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

type Callback<T> = Box<dyn Fn(Tag<T>) + Send + Sync>;
pub(crate) type Panic = Box<dyn Any + Send>;

/// What runs completions; workers keep it alive.
pub(super) struct Core<T> {
    callback: Callback<T>,
}

/// The mailbox of some CPUs, and what was counted there.
pub(super) struct Shard<T> {
    mailbox: CachePadded<Mailbox<T>>,
    /// Calls of `run` under way.
    running: CachePadded<AtomicUsize>,
    batches: CachePadded<Batches>,
    /// By seat.
    queues: Grown<Counters>,
    /// Of queues that are gone.
    former: Counters,
}

impl<T: Send + 'static> Core<T> {
    pub(super) fn new(callback: Callback<T>) -> Self {
        Self { callback }
    }

    /// The mailbox of a shard, for its worker.
    pub(super) fn handle(self: &Arc<Self>, shard: &Arc<Shard<T>>) -> MailboxHandle {
        MailboxHandle::new(Handle {
            core: self.clone(),
            shard: shard.clone(),
        })
    }

    /// Runs one completion here.
    pub(super) fn call(&self, tag: Tag<T>) {
        finish(self.run_each(std::iter::once(tag)));
    }

    /// Runs one completion on this thread, after the callbacks that run on it.
    pub(super) fn put_off(self: &Arc<Self>, tag: Tag<T>) {
        let mut tag = Some(tag);
        let put_off = depth::at_the_end(|last| {
            let list = last.and_then(|last| last.as_any().downcast_mut::<PutOff<T>>());
            if let Some(list) = list.filter(|list| Arc::ptr_eq(&list.core, self)) {
                list.tags.extend(tag.take());
                return None;
            }
            Some(Box::new(PutOff {
                core: self.clone(),
                tags: tag.take().into_iter().collect(),
            }))
        });
        if let (false, Some(tag)) = (put_off, tag) {
            // No callback is running after all.
            self.call(tag);
        }
    }

    /// Runs what is in a mailbox that has lost its worker: now, unless too many callbacks are
    /// around this.
    pub(super) fn run_soon(self: &Arc<Self>, shard: &Arc<Shard<T>>) {
        let later = depth::current() >= Completion::MAX_DEPTH
            && depth::at_the_end(|_| Some(Box::new(self.handle(shard))));
        if !later {
            self.run(shard);
        }
    }

    /// Runs what is in a mailbox.
    pub(super) fn run(&self, shard: &Shard<T>) {
        shard.running.fetch_add(1, Ordering::Relaxed);
        let panic = self.run_batch(shard, shard.mailbox.take());
        shard.running.fetch_sub(1, Ordering::Relaxed);
        finish(panic);
    }

    /// M4, and runs what was in it.
    pub(super) fn close(&self, shard: &Shard<T>) -> Result<(), Panic> {
        self.run_batch(shard, shard.close()).map_or(Ok(()), Err)
    }

    pub(super) fn run_batch(&self, shard: &Shard<T>, batch: Batch<T>) -> Option<Panic> {
        if batch.len() == 0 {
            return None;
        }
        shard.took(&batch);
        self.run_each(batch)
    }

    /// Calls the callback for each, whether or not one panics; then what was put off meanwhile, and
    /// what that puts off, if this was the outermost call. Returns the first panic.
    fn run_each(&self, tags: impl Iterator<Item = Tag<T>>) -> Option<Panic> {
        let mut panic = None;
        let inside = depth::enter();
        for tag in tags {
            let called = catch_unwind(AssertUnwindSafe(|| (self.callback)(tag)));
            keep_first(&mut panic, called);
        }
        for later in inside.leave().into_iter().flatten() {
            let ran = catch_unwind(AssertUnwindSafe(|| later.run()));
            keep_first(&mut panic, ran);
        }
        panic
    }
}

fn keep_first(first: &mut Option<Panic>, result: Result<(), Panic>) {
    match result {
        Err(panic) if first.is_none() => *first = Some(panic),
        Err(panic) => dispose(panic),
        Ok(()) => {}
    }
}

fn finish(panic: Option<Panic>) {
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
}

/// The first of several panics.
pub(crate) fn first_of(results: impl Iterator<Item = Result<(), Panic>>) -> Result<(), Panic> {
    let mut first = None;
    results.for_each(|result| keep_first(&mut first, result));
    first.map_or(Ok(()), Err)
}

impl<T: Send> Shard<T> {
    pub(super) fn new() -> Self {
        Self {
            mailbox: CachePadded::new(Mailbox::new()),
            running: CachePadded::new(AtomicUsize::new(0)),
            batches: CachePadded::new(Batches::default()),
            queues: Grown::new(),
            former: Counters::default(),
        }
    }

    pub(super) fn counters(&self, seat: Seat) -> &Counters {
        self.queues.get_or_make(seat.index(), Counters::default)
    }

    fn took(&self, batch: &Batch<T>) {
        self.batches.took(batch.len());
        let mut by_seat = BySeat::new(|seat, n| self.counters(seat).took(n));
        batch.seats().for_each(|seat| by_seat.add(seat));
        by_seat.end();
    }

    /// What was counted, for all queues.
    pub(super) fn stats(&self) -> SteeringStats {
        let mut sum = self.former.read();
        self.queues.iter().for_each(|queue| sum.add(&queue.read()));
        self.batches.read(&mut sum);
        sum
    }

    /// What was counted for one queue.
    pub(super) fn stats_of(&self, seat: Seat) -> SteeringStats {
        let counters = self.queues.get(seat.index());
        counters.map_or_else(SteeringStats::default, Counters::read)
    }

    /// The queue of a seat is gone, and so are its tags.
    pub(super) fn forget(&self, seat: Seat) {
        if let Some(counters) = self.queues.get(seat.index()) {
            counters.move_to(&self.former);
        }
    }

    /// Whether somebody looks into the mailbox. A hint.
    pub(super) fn state(&self, runner: &dyn Runner) -> Seen {
        if self.mailbox.is_closed() {
            Seen::Closed
        } else if !self.mailbox.is_empty()
            || self.running.load(Ordering::Relaxed) > 0
            || runner.is_awake()
        {
            Seen::Awake
        } else {
            Seen::Asleep
        }
    }

    /// # Errors
    /// The mailbox is closed.
    pub(super) fn push(&self, tag: Tag<T>, counters: &Counters) -> Result<Pushed, Tag<T>> {
        if self.mailbox.is_closed() {
            return Err(tag);
        }
        // Before the push, so that whoever sees the completion run sees it counted.
        counters.pushed();
        self.mailbox
            .push(tag, |wakes| counters.wakes(wakes))
            .inspect_err(|_| counters.not_pushed())
    }

    /// M4. What was in it.
    pub(super) fn close(&self) -> Batch<T> {
        self.mailbox.close()
    }

    /// M5.
    pub(super) fn open(&self) {
        self.mailbox.open();
    }
}

/// The mailbox of one shard.
struct Handle<T> {
    core: Arc<Core<T>>,
    shard: Arc<Shard<T>>,
}

impl<T: Send + 'static> RunMailbox for Handle<T> {
    fn run(&self) {
        self.core.run(&self.shard);
    }

    fn is_empty(&self) -> bool {
        self.shard.mailbox.is_empty()
    }
}

/// What was put off on a thread, in the order in which that was done.
struct PutOff<T: Send + 'static> {
    core: Arc<Core<T>>,
    tags: Vec<Tag<T>>,
}

impl<T: Send + 'static> Later for PutOff<T> {
    fn run(self: Box<Self>) {
        finish(self.core.run_each(self.tags.into_iter()));
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// CPUs that share a mailbox, in one [view](super::view).
pub(super) struct Post<T> {
    pub(super) cpus: CpuSet,
    pub(super) shard: Arc<Shard<T>>,
    /// None: nobody empties the mailbox, which is closed.
    pub(super) runner: Option<Arc<dyn Runner>>,
}

impl<T> Post<T> {
    /// The same for other CPUs.
    pub(super) fn of(&self, cpus: CpuSet) -> Self {
        Self {
            cpus,
            shard: self.shard.clone(),
            runner: self.runner.clone(),
        }
    }
}
