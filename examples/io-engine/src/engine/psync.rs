//! pread and pwrite on workers of a workqueue, for kernels and sandboxes without io_uring.

use std::fs::File;
use std::io;
use std::mem;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use inflight::tags::Tag;
use inflight::workqueue::{Workqueue, blocking};

use super::{Engine, Finished};
use crate::slot::{Op, Slot};

/// One job's way to the shared workers.
#[derive(Debug)]
pub(crate) struct Psync {
    file: Arc<File>,
    workers: Workqueue,
    returns: Arc<Returns>,
}

impl Psync {
    pub(crate) fn new(file: Arc<File>, workers: Workqueue) -> Self {
        Self {
            file,
            workers,
            returns: Arc::default(),
        }
    }
}

impl Engine for Psync {
    fn start(&mut self, tag: Tag<Slot>) {
        let file = Arc::clone(&self.file);
        let mut request = Request {
            tag: Some(tag),
            result: None,
            returns: self.returns.clone(),
        };
        // Dropping the handle detaches; the request itself reports back.
        drop(
            self.workers
                .spawn(move || blocking(|| request.perform(&file))),
        );
    }

    fn heed(&mut self) {
        self.returns.lock().rung = false;
    }

    fn wait(&mut self, finished: &mut Vec<Finished>) -> io::Result<()> {
        let mut state = self.returns.lock();
        while state.finished.is_empty() && !state.rung {
            state.asleep = true;
            let woken = self.returns.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        state.asleep = false;
        finished.append(&mut state.finished);
        Ok(())
    }

    fn waker(&self) -> Waker {
        Arc::clone(&self.returns).into()
    }
}

/// A request on its way through a worker. It reports back when dropped, so that none is lost: not
/// when the worker panics, nor when the workqueue refuses it.
struct Request {
    tag: Option<Tag<Slot>>,
    result: Option<io::Result<usize>>,
    returns: Arc<Returns>,
}

impl Request {
    fn perform(&mut self, file: &File) {
        let Some(tag) = &mut self.tag else { return };
        let offset = tag.next_offset();
        self.result = Some(match tag.op {
            Op::Read => file.read_at(tag.rest_mut(), offset),
            Op::Write => file.write_at(tag.rest_mut(), offset),
            Op::Sync => file.sync_data().map(|()| 0),
        });
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(tag) = self.tag.take() {
            let refused = || Err(io::Error::other("the request was not carried out"));
            let result = self.result.take().unwrap_or_else(refused);
            let finished = Finished { tag, result };
            self.returns.change(|state| state.finished.push(finished));
        }
    }
}

/// Where workers put what is finished and the job's thread waits for it.
#[derive(Debug, Default)]
struct Returns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    finished: Vec<Finished>,
    rung: bool,
    /// Whether the job's thread sleeps and nobody has woken it yet. Notifying a `Condvar` is a
    /// system call even if nobody waits, so it is done for a sleeper only.
    asleep: bool,
}

impl Returns {
    /// Changes the state to one that ends the wait.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let asleep = mem::take(&mut state.asleep);
        drop(state);
        if asleep {
            self.changed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every step on the state is complete in itself, so a panic elsewhere spoils nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Returns {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.change(|state| state.rung = true);
    }
}
