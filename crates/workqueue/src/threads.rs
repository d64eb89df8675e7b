//! The threads of a system, from their start to their being joined.

use crate::panics::dispose;
use crate::pool::Env;
use inflight_sync::Arc;
use inflight_sync::thread::{Builder, JoinHandle};
use std::collections::BTreeMap;
use std::io;

/// The threads of a system.
#[derive(Default)]
pub(crate) struct Threads {
    /// In an order that is the same in every run: a model has to repeat itself.
    running: BTreeMap<u64, JoinHandle<()>>,
    started: u64,
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

impl Env {
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
        let env = self.clone();
        let builder = Builder::new().name(name).faults(&self.faults);
        let handle = builder.spawn(move || {
            if f() == End::Early {
                let before = env.threads.lock().leave(id);
                if let Some(Err(payload)) = before.map(JoinHandle::join) {
                    dispose(payload);
                }
            }
        })?;
        threads.started += 1;
        threads.running.insert(id, handle);
        Ok(())
    }
}

/// Priorities of threads.
pub(crate) mod nice {
    use crate::pool::Env;

    /// Gives the calling thread that priority. If the system refuses, the thread goes on without,
    /// and the refusal can be asked for.
    #[cfg(all(target_os = "linux", not(any(loom, shuttle))))]
    pub(crate) fn set(env: &Env, nice: i32) {
        let me = rustix::thread::gettid();
        if let Err(e) = rustix::process::setpriority_process(Some(me), nice) {
            let kind = std::io::Error::from(e).kind();
            *env.nice_refused.lock() = Some(kind);
        }
    }

    /// There are no priorities of single threads here.
    #[cfg(not(all(target_os = "linux", not(any(loom, shuttle)))))]
    pub(crate) fn set(env: &Env, _nice: i32) {
        *env.nice_refused.lock() = Some(std::io::ErrorKind::Unsupported);
    }
}
