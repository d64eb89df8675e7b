//! Waking a thread, and giving it tasks.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Wake;
use std::thread::ThreadId;

use futures_util::future::LocalBoxFuture;
use rustix::event::{EventfdFlags, eventfd};

use super::Reactor;

/// Wakes the thread.
#[derive(Debug)]
pub(crate) struct Notifier {
    pub(super) fd: OwnedFd,
    pub(super) notified: AtomicBool,
    thread: ThreadId,
}

impl Notifier {
    /// The calling thread's.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            fd: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
            notified: AtomicBool::new(false),
            thread: std::thread::current().id(),
        })
    }

    pub(super) fn notify(&self) {
        // Ordering: AcqRel, pairs with itself and with the swap in `run`: who sets it first writes.
        let was = self.notified.swap(true, Ordering::AcqRel);
        if !was && std::thread::current().id() != self.thread {
            let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        }
    }
}

impl Wake for Notifier {
    fn wake(self: Arc<Self>) {
        self.notify();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notify();
    }
}

/// A task for a thread, made there.
pub(super) type Spawn = Box<dyn FnOnce(&Rc<Reactor>) -> LocalBoxFuture<'static, ()> + Send>;

/// The way to a reactor from other threads.
#[derive(Clone)]
pub(crate) struct Remote {
    pub(super) notifier: Arc<Notifier>,
    pub(super) inbox: Arc<Mutex<Vec<Spawn>>>,
}

impl Remote {
    pub(crate) fn spawn(
        &self,
        task: impl FnOnce(&Rc<Reactor>) -> LocalBoxFuture<'static, ()> + Send + 'static,
    ) {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        inbox.push(Box::new(task));
        drop(inbox);
        self.notifier.notify();
    }

    pub(crate) fn wake(&self) {
        self.notifier.notify();
    }
}
