//! The threads of a system, from their start to their being joined.

use crate::panics::{dispose, notify_all};
use crate::system_shared::SystemShared;
use inflight_sync::Arc;
use inflight_sync::thread::{Builder, JoinHandle};
use inflight_topology::CpuSet;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;

inflight_sync::thread_local! {
    /// The address of the system whose thread this is, until the last of its locals is destroyed:
    /// those may hold the system too.
    // loom's macro has no const form.
    #[allow(clippy::missing_const_for_thread_local)]
    static SYSTEM: Cell<usize> = Cell::new(0);
    /// The name that this thread has been started with, if a system has started it.
    #[allow(clippy::missing_const_for_thread_local)]
    static NAME: RefCell<Option<String>> = RefCell::new(None);
}

/// The name of the calling thread, if it is a system's.
pub(crate) fn name() -> Option<String> {
    // While the thread's locals are being destroyed it has none.
    NAME.try_with(|name| name.borrow().clone()).ok().flatten()
}

/// The threads of a system.
#[derive(Default)]
pub(crate) struct Threads {
    /// In an order that is the same in every run: a model has to repeat itself.
    running: BTreeMap<u64, JoinHandle<()>>,
    started: u64,
    /// Threads whose function has returned.
    over: u64,
    /// One that has left before the system's end. The next one to leave joins it.
    left: Option<JoinHandle<()>>,
    /// No thread is started any more.
    pub(crate) stopped: bool,
    /// Somebody has taken the handles to join them.
    joining: bool,
    /// All threads have ended.
    pub(crate) joined: bool,
}

/// How a thread of the system ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The system goes on without it.
    Early,
    /// With the system, which joins it.
    WithSystem,
}

impl Threads {
    /// Whether all threads have done what they had to.
    pub(crate) fn are_over(&self) -> bool {
        self.stopped && self.over == self.started
    }

    /// The handles, for the first to ask: it is to join them.
    pub(crate) fn take(&mut self) -> Option<Vec<JoinHandle<()>>> {
        if std::mem::replace(&mut self.joining, true) {
            return None;
        }
        let running = std::mem::take(&mut self.running).into_values();
        Some(running.chain(self.left.take()).collect())
    }

    /// A thread is about to end before the system does. Returns another one that has done so, to be
    /// joined: threads that have left do not pile up.
    fn leave(&mut self, id: u64) -> Option<JoinHandle<()>> {
        // Not there: whoever shuts the system down has taken it, and joins it.
        let own = self.running.remove(&id)?;
        self.left.replace(own)
    }
}

impl SystemShared {
    /// Starts a thread that the end of the system waits for.
    pub(crate) fn start_thread(
        self: &Arc<Self>,
        name: String,
        f: impl FnOnce() -> End + Send + 'static,
    ) -> io::Result<()> {
        // The lock spans the start, so that whoever stops the threads joins this one or prevents
        // it.
        let mut threads = self.threads.lock();
        if threads.stopped {
            return Err(io::Error::other("the workqueue system has been shut down"));
        }
        let id = threads.started;
        let shared = self.clone();
        let builder = Builder::new().name(name.clone()).faults(&self.faults);
        let handle = builder.spawn(move || {
            SYSTEM.with(|s| s.set(shared.address()));
            NAME.with(|n| n.replace(Some(name)));
            let end = f();
            shared.threads.lock().over += 1;
            notify_all(&shared.thread_over);
            if end == End::Early {
                let before = shared.threads.lock().leave(id);
                if let Some(Err(payload)) = before.map(JoinHandle::join) {
                    dispose(payload);
                }
            }
        })?;
        threads.started += 1;
        threads.running.insert(id, handle);
        Ok(())
    }

    /// Whether the calling thread is one of the system's own.
    pub(crate) fn is_own_thread(&self) -> bool {
        SYSTEM
            .try_with(|system| system.get() == self.address())
            .unwrap_or(false)
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Gives the calling thread its CPUs and its priority, as far as the system lets it. Nothing is
    /// inherited from the thread that has made it.
    pub(crate) fn settle_thread(&self, cpus: &CpuSet, nice: i32) {
        // Where pinning is refused the thread runs elsewhere; what it queues stays with it.
        let _ = self.machine().pin_current_thread_for_good(cpus);
        nice::set(self, nice);
    }

    /// The same for threads that serve the whole system: they keep to the CPUs of unbound queues.
    pub(crate) fn settle_housekeeper(&self, nice: i32) {
        let cpus = self.unbound_cpus.lock().clone();
        self.settle_thread(&cpus, nice);
    }
}

/// Priorities of threads.
pub(crate) mod nice {
    use crate::system_shared::SystemShared;

    /// The priority of the process: that of its first thread.
    #[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
    pub(crate) fn of_process() -> i32 {
        rustix::process::getpriority_process(Some(rustix::process::getpid())).unwrap_or(0)
    }

    /// Gives the calling thread that priority; 0 is that of the process. If the system refuses, the
    /// thread goes on without, and the refusal can be asked for.
    #[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
    pub(super) fn set(shared: &SystemShared, nice: i32) {
        let me = Some(rustix::thread::gettid());
        let nice = if nice == 0 { shared.base_nice } else { nice };
        if rustix::process::getpriority_process(me) == Ok(nice) {
            return;
        }
        if let Err(e) = rustix::process::setpriority_process(me, nice) {
            let kind = std::io::Error::from(e).kind();
            *shared.nice_refused.lock() = Some(kind);
        }
    }

    /// There are no priorities of single threads here.
    #[cfg(not(all(target_os = "linux", not(any(loom, shuttle, miri)))))]
    pub(crate) fn of_process() -> i32 {
        0
    }

    #[cfg(not(all(target_os = "linux", not(any(loom, shuttle, miri)))))]
    pub(super) fn set(shared: &SystemShared, nice: i32) {
        if nice != 0 {
            *shared.nice_refused.lock() = Some(std::io::ErrorKind::Unsupported);
        }
    }
}
