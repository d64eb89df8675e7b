//! Who empties the mailboxes: the seam to whatever has threads.

use inflight_sync::Arc;
use inflight_topology::CpuSet;
use std::fmt;

/// Has workers where completions can be sent: a runtime with a thread per CPU, a workqueue
/// (`inflight::WorkqueueSink`), or nothing at all ([`InlineSink`]).
///
/// It is asked once for each shard: when a [`Router`](crate::Router) is made, which keeps it, and
/// when CPUs come that nobody knew ([`Router::refresh`](crate::Router::refresh)). From then on
/// completions are handed over in the shard's mailbox, and the [`Runner`] is called when one
/// arrives in an empty mailbox.
///
/// ```
/// use inflight_steering::{CompletionSink, MailboxHandle, Runner};
/// use inflight_topology::CpuSet;
/// use std::sync::mpsc;
///
/// /// A thread that runs whatever mailbox it is told about:
/// /// `inbox.iter().for_each(|mailbox| mailbox.run())`.
/// struct Threaded(mpsc::Sender<MailboxHandle>);
/// struct ToThread(mpsc::Sender<MailboxHandle>, MailboxHandle);
///
/// impl CompletionSink for Threaded {
///     fn runner(&self, _: &CpuSet, mailbox: MailboxHandle) -> Option<Box<dyn Runner>> {
///         Some(Box::new(ToThread(self.0.clone(), mailbox)))
///     }
/// }
/// impl Runner for ToThread {
///     fn wake(&self, _cpu: usize) -> bool {
///         self.0.send(self.1.clone()).is_ok()
///     }
/// }
/// ```
pub trait CompletionSink: Send + Sync + 'static {
    /// The runner of the shard that serves `cpus` and whose completions are in `mailbox`. `None`:
    /// the sink has no worker there, and what would be sent to these CPUs runs where it is seen.
    ///
    /// A shard keeps its runner when some of its CPUs leave or others join them. It must not
    /// change which CPUs there are.
    fn runner(&self, cpus: &CpuSet, mailbox: MailboxHandle) -> Option<Box<dyn Runner>>;
}

/// Gets one mailbox emptied. Made by a [`CompletionSink`].
///
/// ```
/// use inflight_steering::{MailboxHandle, Runner};
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use std::sync::{Arc, mpsc};
///
/// /// The loop of one CPU: `while let Ok(mailbox) = inbox.recv() { mailbox.run() }`.
/// struct Loop {
///     mailbox: MailboxHandle,
///     inbox: mpsc::Sender<MailboxHandle>,
///     /// Set while the loop is not in `recv`.
///     awake: Arc<AtomicBool>,
/// }
///
/// impl Runner for Loop {
///     fn wake(&self, _cpu: usize) -> bool {
///         self.inbox.send(self.mailbox.clone()).is_ok() // else the loop has ended
///     }
///
///     fn is_awake(&self) -> bool {
///         self.awake.load(Ordering::Relaxed)
///     }
/// }
/// ```
pub trait Runner: Send + Sync {
    /// Has [`MailboxHandle::run`] called, on `cpu` or near it, at least once by a call that begins
    /// after this one did. A call that is under way already does not count: it may have looked.
    /// What the caller did before must be visible to it, as it is by a channel, a lock, an unpark
    /// or a workqueue.
    ///
    /// Called by whoever completes, for a completion that finds the mailbox empty; it should not
    /// block. Returns false if nobody will call `run`: then the caller runs what is in the mailbox.
    /// So it does after a panic, which then comes out of the completing call.
    fn wake(&self, cpu: usize) -> bool;

    /// Whether the worker runs, so that `wake` costs little. A hint, asked of an empty mailbox that
    /// nobody is running. By default it sleeps.
    fn is_awake(&self) -> bool {
        false
    }
}

/// The mailbox of a shard, for the worker that empties it.
///
/// It does not keep the mailbox open: that does the [`Router`](crate::Router). See
/// [`CompletionSink`] for its use.
#[derive(Clone)]
pub struct MailboxHandle(Arc<dyn RunMailbox>);

pub(crate) trait RunMailbox: Send + Sync {
    fn run(&self);
    fn is_empty(&self) -> bool;
}

impl MailboxHandle {
    pub(crate) fn new(mailbox: impl RunMailbox + 'static) -> Self {
        Self(Arc::new(mailbox))
    }

    /// Takes everything that is in the mailbox and runs it, in the order in which it came. What
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

impl fmt::Debug for MailboxHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MailboxHandle")
            .field("empty", &self.is_empty())
            .finish()
    }
}

/// Has no workers: every completion runs where it is seen, whatever the policy.
///
/// ```
/// use inflight_steering::{CompletionSink, InlineSink, MailboxHandle};
/// fn nobody(mailbox: MailboxHandle) -> bool {
///     InlineSink.runner(&"0-3".parse().unwrap(), mailbox).is_none()
/// }
/// # let _ = nobody;
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct InlineSink;

impl CompletionSink for InlineSink {
    fn runner(&self, _cpus: &CpuSet, _mailbox: MailboxHandle) -> Option<Box<dyn Runner>> {
        None
    }
}
