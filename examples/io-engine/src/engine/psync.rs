//! pread and pwrite on workers of a workqueue, for kernels and sandboxes without io_uring.

use std::fs::File;
use std::io;
use std::mem;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::thread;

use inflight::tags::{Completions, Tag};
use inflight::workqueue::{Workqueue, blocking};

use super::{Engine, Inbox};
use crate::slot::{Op, Slot};
use crate::stats::Reaping;

/// One job's way to the shared workers.
#[derive(Debug)]
pub(crate) struct Psync {
    file: Arc<File>,
    workers: Workqueue,
    completions: Completions<Slot>,
    inboxes: Arc<[Inbox]>,
    job: usize,
    notifier: Arc<Notifier>,
    /// Requests that are not back.
    under_way: usize,
    polls: bool,
    reaping: Reaping,
}

impl Psync {
    /// The engine of `job`, whose requests come back to its inbox.
    pub(crate) fn new(
        file: Arc<File>,
        workers: Workqueue,
        completions: Completions<Slot>,
        inboxes: Arc<[Inbox]>,
        job: usize,
        polls: bool,
    ) -> Self {
        let psync = Self {
            file,
            workers,
            completions,
            inboxes,
            job,
            notifier: Arc::default(),
            under_way: 0,
            polls,
            reaping: Reaping::default(),
        };
        psync.inbox().attach(psync.waker());
        psync
    }

    fn inbox(&self) -> &Inbox {
        &self.inboxes[self.job]
    }
}

impl Engine for Psync {
    fn start(&mut self, tag: Tag<Slot>) {
        tag.submit_here();
        self.under_way += 1;
        let file = Arc::clone(&self.file);
        let mut request = Request {
            tag: Some(tag),
            completions: self.completions.clone(),
        };
        // Dropping the handle detaches; the request itself reports back.
        drop(
            self.workers
                .spawn(move || blocking(|| request.perform(&file))),
        );
    }

    fn heed(&mut self) {
        self.notifier.lock().notified = false;
    }

    fn wait(&mut self, finished: &mut Vec<Tag<Slot>>) -> io::Result<()> {
        let before = finished.len();
        while self.polls
            && self.under_way > 0
            && self.inbox().is_empty()
            && !self.notifier.lock().notified
        {
            thread::yield_now();
        }
        if self.inbox().is_empty() {
            self.reaping.sleeps += u64::from(self.notifier.wait());
        }
        self.inbox().empty_into(finished);
        self.under_way -= finished.len() - before;
        Ok(())
    }

    fn waker(&self) -> Waker {
        Arc::clone(&self.notifier).into()
    }

    fn reaping(&self) -> Reaping {
        self.reaping
    }
}

/// A request on its way through a worker. It is completed when dropped, so that none is lost: not
/// when the worker panics, nor when the workqueue refuses it.
struct Request {
    tag: Option<Tag<Slot>>,
    completions: Completions<Slot>,
}

impl Request {
    fn perform(&mut self, file: &File) {
        let Some(tag) = &mut self.tag else { return };
        let offset = tag.next_offset();
        tag.result = Some(match tag.op {
            Op::Read => file.read_at(tag.rest_mut(), offset),
            Op::Write => file.write_at(tag.rest_mut(), offset),
            Op::Sync => file.sync_data().map(|()| 0),
        });
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(tag) = self.tag.take() {
            self.completions.complete_tag(tag);
        }
    }
}

/// Ends the wait of the job's thread.
#[derive(Debug, Default)]
struct Notifier {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    notified: bool,
    /// Whether the job's thread sleeps and nobody has woken it yet. Notifying a `Condvar` is a
    /// system call even if nobody waits, so it is done for a sleeper only.
    asleep: bool,
}

impl Notifier {
    /// Waits until it is notified; tells whether it had to sleep.
    fn wait(&self) -> bool {
        let mut state = self.lock();
        let slept = !state.notified;
        while !state.notified {
            state.asleep = true;
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        state.asleep = false;
        slept
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every step on the state is complete in itself, so a panic elsewhere spoils nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Notifier {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.lock();
        state.notified = true;
        let asleep = mem::take(&mut state.asleep);
        drop(state);
        if asleep {
            self.changed.notify_one();
        }
    }
}
