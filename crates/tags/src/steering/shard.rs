//! The shards of a set of completions: a mailbox each, and what runs its contents.

use super::depth;
use super::mailbox::{Batch, Mailbox, Pushed};
use super::sink::{MailboxHandle, RunMailbox, Runner};
use super::stats::Counters;
use crate::tag::Tag;
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, CachePadded};
use inflight_topology::CpuSet;
use inflight_topology::steering::{Completion, Mailbox as Seen};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

type Callback<T> = Box<dyn Fn(Tag<T>) + Send + Sync>;
type Panic = Box<dyn std::any::Any + Send>;

/// What the mailboxes of a set share; workers keep it alive.
pub(super) struct Core<T> {
    callback: Callback<T>,
    /// What may not run inside the callbacks around it, and has no worker to go to. The thread that
    /// finds it empty runs it, as soon as those callbacks have ended.
    put_off: Mailbox<T>,
    /// One for each shard.
    boxes: Box<[ShardBox<T>]>,
}

pub(super) struct ShardBox<T> {
    mailbox: CachePadded<Mailbox<T>>,
    /// Calls of `run` under way.
    running: CachePadded<AtomicUsize>,
    pub(super) counters: Counters,
}

impl<T: Send + 'static> Core<T> {
    pub(super) fn new(shards: usize, callback: Callback<T>) -> Self {
        let shard = |_| ShardBox {
            mailbox: CachePadded::new(Mailbox::new()),
            running: CachePadded::new(AtomicUsize::new(0)),
            counters: Counters::default(),
        };
        Self {
            callback,
            put_off: Mailbox::new(),
            boxes: (0..shards).map(shard).collect(),
        }
    }

    pub(super) fn shard(&self, index: usize) -> &ShardBox<T> {
        &self.boxes[index]
    }

    /// Runs one completion here.
    pub(super) fn call(self: &Arc<Self>, tag: Tag<T>) {
        self.finish(self.run_each(std::iter::once(tag)));
    }

    /// Runs one completion on this thread, after the callbacks that run on it.
    pub(super) fn put_off(self: &Arc<Self>, tag: Tag<T>) {
        match self.put_off.push(tag) {
            Ok(Pushed::WasEmpty) => {
                if let Err(later) = depth::at_the_end(MailboxHandle::new(PutOff(self.clone()))) {
                    // No callback is running after all.
                    later.run();
                }
            }
            Ok(Pushed::Joined) => {}
            // It is never closed.
            Err(tag) => self.call(tag),
        }
    }

    /// Runs what is in a mailbox that has lost its worker: now, unless too many callbacks are
    /// around this.
    pub(super) fn run_soon(self: &Arc<Self>, shard: usize) {
        let core = self.clone();
        let mailbox = MailboxHandle::new(Handle { core, shard });
        let later = if depth::current() < Completion::MAX_DEPTH {
            Err(mailbox)
        } else {
            depth::at_the_end(mailbox)
        };
        if let Err(now) = later {
            now.run();
        }
    }

    /// Runs what is in a mailbox.
    pub(super) fn run(&self, shard: usize) {
        self.finish(self.run_shard(shard));
    }

    fn run_shard(&self, shard: usize) -> Option<Panic> {
        let shard = self.shard(shard);
        shard.running.fetch_add(1, Ordering::Relaxed);
        let panic = self.run_batch(shard, shard.mailbox.take());
        shard.running.fetch_sub(1, Ordering::Relaxed);
        panic
    }

    /// M4, and runs what was in it.
    pub(super) fn close(&self, shard: usize) -> Result<(), Panic> {
        let shard = self.shard(shard);
        self.run_batch(shard, shard.mailbox.close())
            .map_or(Ok(()), Err)
    }

    fn run_batch(&self, shard: &ShardBox<T>, batch: Batch<T>) -> Option<Panic> {
        if batch.len() == 0 {
            return None;
        }
        shard.counters.took(batch.len());
        self.run_each(batch)
    }

    /// Calls the callback for each, whether or not one panics; then what was put off meanwhile, and
    /// what that puts off, if this was the outermost call. Returns the first panic.
    fn run_each(&self, tags: impl Iterator<Item = Tag<T>>) -> Option<Panic> {
        let mut panic = None;
        let inside = depth::enter();
        for tag in tags {
            let called = catch_unwind(AssertUnwindSafe(|| (self.callback)(tag)));
            panic = panic.or(called.err());
        }
        for later in inside.leave().into_iter().flatten() {
            let ran = catch_unwind(AssertUnwindSafe(|| later.run()));
            panic = panic.or(ran.err());
        }
        panic
    }

    fn finish(&self, panic: Option<Panic>) {
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl<T: Send> ShardBox<T> {
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
    pub(super) fn push(&self, tag: Tag<T>) -> Result<Pushed, Tag<T>> {
        if self.mailbox.is_closed() {
            return Err(tag);
        }
        // Before the push, so that whoever sees the completion run sees it counted.
        self.counters.pushed();
        self.mailbox
            .push(tag)
            .inspect_err(|_| self.counters.not_pushed())
    }

    pub(super) fn open(&self) {
        self.mailbox.open();
    }
}

/// The mailbox of one shard.
pub(super) struct Handle<T> {
    pub(super) core: Arc<Core<T>>,
    pub(super) shard: usize,
}

impl<T: Send + 'static> RunMailbox for Handle<T> {
    fn run(&self) {
        self.core.run(self.shard);
    }

    fn is_empty(&self) -> bool {
        self.core.shard(self.shard).mailbox.is_empty()
    }
}

/// The mailbox of what was put off.
struct PutOff<T>(Arc<Core<T>>);

impl<T: Send + 'static> RunMailbox for PutOff<T> {
    fn run(&self) {
        let core = &self.0;
        core.finish(core.run_each(core.put_off.take()));
    }

    fn is_empty(&self) -> bool {
        self.0.put_off.is_empty()
    }
}

/// One shard, as those who complete see it.
pub(super) struct Shard {
    pub(super) cpus: CpuSet,
    /// None: nobody empties the mailbox, which is closed.
    pub(super) runner: Option<Box<dyn Runner>>,
}
