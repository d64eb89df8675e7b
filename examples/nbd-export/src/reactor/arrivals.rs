//! How operations have ended that other threads saw end.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Buffer, Notifier};
use crate::adapter::Held;

/// An operation that has ended: its key, how the kernel answered, its buffer if that was elsewhere,
/// and its tag if it has one.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(super) key: usize,
    pub(super) result: i32,
    pub(super) buffer: Option<Buffer>,
    pub(super) tag: Option<Held>,
}

/// One thread's. Whatever arrives wakes it.
#[derive(Debug)]
pub(crate) struct Arrivals {
    all: Mutex<Vec<Arrival>>,
    notifier: Arc<Notifier>,
}

impl Arrivals {
    pub(super) fn new(notifier: &Arc<Notifier>) -> Arc<Self> {
        Arc::new(Self {
            all: Mutex::default(),
            notifier: notifier.clone(),
        })
    }

    pub(super) fn push(&self, arrival: Arrival) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(arrival);
        drop(all);
        self.notifier.notify();
    }

    pub(super) fn take(&self) -> Vec<Arrival> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *all)
    }
}

/// An operation that has ended, on its way to the thread whose it is.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(super) arrival: Arrival,
    pub(super) arrivals: Arc<Arrivals>,
}

impl Ended {
    /// Gives it to its thread, with its tag.
    pub(crate) fn deliver(mut self, tag: Held) {
        self.arrival.tag = Some(tag);
        self.arrivals.push(self.arrival);
    }
}

/// Arrivals of a thread that has no reactor.
#[cfg(test)]
pub(crate) struct Inbox(Arc<Arrivals>);

#[cfg(test)]
impl Inbox {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self(Arrivals::new(&Arc::new(Notifier::new()?))))
    }

    pub(crate) fn ended(&self, key: usize) -> Ended {
        Ended {
            arrival: Arrival {
                key,
                result: 0,
                buffer: None,
                tag: None,
            },
            arrivals: self.0.clone(),
        }
    }

    /// The keys of what has arrived, and whether it has a tag.
    pub(crate) fn arrived(&self) -> Vec<(usize, bool)> {
        let arrived = self.0.take();
        arrived.iter().map(|a| (a.key, a.tag.is_some())).collect()
    }
}
