//! Who empties the done lists: the seam to whatever has threads.

use inflight_sync::Arc;
use inflight_topology::CpuSet;
use std::fmt;

/// Has workers where completions can be sent: a runtime with a thread per CPU, a workqueue
/// (`inflight::WorkqueueSink`), or nothing at all ([`InlineSink`]).
///
/// It is asked once for each shard: when a [`Router`](crate::Router) is made, which keeps it, and
/// when CPUs come that nobody knew ([`Router::refresh`](crate::Router::refresh)). From then on
/// completions are handed over in the shard's done list, and the [`Runner`] is called when one
/// arrives in an empty done list.
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
    /// The runner of the shard that serves `cpus` and whose completions are in `list`. `None`:
    /// the sink has no worker there, and what would be sent to these CPUs runs where it is seen.
    ///
    /// A shard keeps its runner when some of its CPUs leave or others join them. It must not
    /// change which CPUs there are.
    fn runner(&self, cpus: &CpuSet, list: DoneListHandle) -> Option<Box<dyn Runner>>;
}

/// Gets one done list emptied. Made by a [`CompletionSink`].
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
    /// Has [`DoneListHandle::run`] called, on `cpu` or near it, at least once by a call that begins
    /// after this one did. A call that is under way already does not count: it may have looked.
    /// What the caller did before must be visible to it, as it is by a channel, a lock, an unpark
    /// or a workqueue.
    ///
    /// Called by whoever completes, for a completion that finds the done list empty; it should not
    /// block. Returns false if nobody will call `run`: then the caller runs what is in the done
    /// list. So it does after a panic, which then comes out of the completing call.
    fn wake(&self, cpu: usize) -> bool;

    /// Whether the worker runs, so that `wake` costs little. A hint, asked of an empty done list
    /// that nobody is running. By default it sleeps.
    fn is_awake(&self) -> bool {
        false
    }
}

/// The done list of a shard, for the worker that empties it.
///
/// It does not keep the done list open: that does the [`Router`](crate::Router). See
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

    /// Takes everything that is in the done list and runs it, in the order in which it came. What
    /// arrives meanwhile wakes again. Two calls at once are possible, and then each keeps the order
    /// of what it took.
    ///
    /// # Panics
    ///
    /// With the first panic of a callback, after all of them have been called.
    pub fn run(&self) {
        self.0.run();
    }

    /// Whether nothing is in it now. For a loop that looks before it sleeps; the loop must also be
    /// woken by [`Runner::wake`] if that happens between the look and the sleep.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for DoneListHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DoneListHandle")
            .field("empty", &self.is_empty())
            .finish()
    }
}

/// Has no workers: every completion runs where it is seen, whatever the policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct InlineSink;

impl CompletionSink for InlineSink {
    fn runner(&self, _cpus: &CpuSet, _done_list: DoneListHandle) -> Option<Box<dyn Runner>> {
        None
    }
}
