//! The interface to the threads that empty the done lists.

use inflight_sync::Arc;
use inflight_topology::CpuSet;

/// The workers to which completions can be sent: a runtime with a thread per CPU, a workqueue
/// (`inflight::WorkqueueSink`), or none at all ([`InlineSink`]).
///
/// [`runner`](Self::runner) is called once for each shard: when a [`Router`](crate::Router) is
/// made, which keeps the result, and when new CPUs are added
/// ([`Router::refresh`](crate::Router::refresh)). From then on completions are put in the shard's
/// done list, and the [`Runner`] is called when one arrives in an empty done list.
///
/// ```
/// use inflight_steering::{CompletionSink, DoneListHandle, Runner};
/// use inflight_topology::CpuSet;
/// use std::sync::mpsc;
///
/// /// A thread that runs whatever done list it is told about:
/// /// `inbox.iter().for_each(|list| list.run())`.
/// struct Threaded(mpsc::Sender<DoneListHandle>);
/// struct ToThread(mpsc::Sender<DoneListHandle>, DoneListHandle);
///
/// impl CompletionSink for Threaded {
///     fn runner(&self, _: &CpuSet, list: DoneListHandle) -> Option<Box<dyn Runner>> {
///         Some(Box::new(ToThread(self.0.clone(), list)))
///     }
/// }
/// impl Runner for ToThread {
///     fn wake(&self, _cpu: usize) -> bool {
///         self.0.send(self.1.clone()).is_ok()
///     }
/// }
/// ```
pub trait CompletionSink: Send + Sync + 'static {
    /// Returns the runner of the shard that serves `cpus` and whose completions are in `list`.
    /// `None`: the sink has no worker there, and completions for these CPUs run where they are
    /// seen.
    ///
    /// A shard keeps its runner when CPUs leave or join it. The call must not change which CPUs
    /// there are.
    fn runner(&self, cpus: &CpuSet, list: DoneListHandle) -> Option<Box<dyn Runner>>;
}

/// Wakes the worker of one done list. Made by a [`CompletionSink`].
///
/// ```
/// use inflight_steering::{DoneListHandle, Runner};
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use std::sync::{Arc, mpsc};
///
/// /// The loop of one CPU: `while let Ok(list) = inbox.recv() { list.run() }`.
/// struct Loop {
///     list: DoneListHandle,
///     inbox: mpsc::Sender<DoneListHandle>,
///     /// Set while the loop is not in `recv`.
///     awake: Arc<AtomicBool>,
/// }
///
/// impl Runner for Loop {
///     fn wake(&self, _cpu: usize) -> bool {
///         self.inbox.send(self.list.clone()).is_ok() // else the loop has ended
///     }
///
///     fn is_awake(&self) -> bool {
///         self.awake.load(Ordering::Relaxed)
///     }
/// }
/// ```
pub trait Runner: Send + Sync {
    /// Causes a call of [`DoneListHandle::run`], on `cpu` or near it, that begins after this call
    /// did. A call that is under way already does not count, because it may have read the list.
    /// Earlier writes of the caller must be visible to it, as they are through a channel, a lock,
    /// an unpark or a workqueue.
    ///
    /// The thread that completes calls this, for a completion that finds the done list empty; it
    /// should not block. Returns `false` if there will be no call of `run`: then the caller runs
    /// the done list itself. It also does so after a panic of `wake`, which the completing call
    /// then passes on.
    fn wake(&self, cpu: usize) -> bool;

    /// Returns whether the worker runs, so that `wake` costs little. A hint, read while the done
    /// list is empty and no thread runs it. By default `false`: it sleeps.
    fn is_awake(&self) -> bool {
        false
    }
}

/// The done list of a shard, for the worker that empties it.
///
/// The handle does not keep the done list open; the [`Router`](crate::Router) does. See
/// [`CompletionSink`] for its use.
#[derive(Clone)]
pub struct DoneListHandle(Arc<dyn RunDoneList>);

pub(crate) trait RunDoneList: Send + Sync {
    fn run(&self);
    fn is_empty(&self) -> bool;
}

impl DoneListHandle {
    pub(crate) fn new(list: impl RunDoneList + 'static) -> Self {
        Self(Arc::new(list))
    }

    /// Takes all completions in the done list and runs them, in the order in which they came. A
    /// later arrival wakes again. Two calls at once are possible; then each keeps the order of its
    /// completions.
    ///
    /// A call inside eight nested callbacks returns at once, with the list as it is. The list is
    /// run on this thread when the outermost of them has ended, and that call panics for it. So do
    /// not call `run` in a loop until the list is empty.
    ///
    /// # Panics
    ///
    /// Panics with the first panic of a callback, after all of them have been called.
    pub fn run(&self) {
        self.0.run();
    }

    /// Returns whether the list is empty now. For a loop that checks before it sleeps; the loop
    /// must also be woken by [`Runner::wake`] if that happens between the check and the sleep.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

inflight_sync::debug_fields!(DoneListHandle: |this| empty = this.is_empty());

/// A sink without workers: each completion runs where it is seen, whatever the policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct InlineSink;

impl CompletionSink for InlineSink {
    fn runner(&self, _cpus: &CpuSet, _done_list: DoneListHandle) -> Option<Box<dyn Runner>> {
        None
    }
}
