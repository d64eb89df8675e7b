//! The way back from the workers to their message thread.

use parking_lot::Mutex;
use std::mem;
use std::thread::{self, Thread};

/// Which workers have answered. The message thread sleeps while none has.
#[derive(Debug)]
pub(super) struct Replies {
    list: Mutex<Vec<u32>>,
    messenger: Thread,
}

impl Replies {
    pub(super) fn of_this_thread() -> Self {
        Self {
            list: Mutex::default(),
            messenger: thread::current(),
        }
    }

    /// Only the first one wakes: the thread takes all.
    pub(super) fn push(&self, worker: u32) {
        let mut list = self.list.lock();
        list.push(worker);
        let first = list.len() == 1;
        drop(list);
        if first {
            self.messenger.unpark();
        }
    }

    /// The workers that have answered since the last call.
    pub(super) fn take(&self, into: &mut Vec<u32>) {
        let mut list = self.list.lock();
        if into.is_empty() {
            mem::swap(into, &mut list);
        } else {
            into.append(&mut list);
        }
    }

    /// The same; sleeps until one has.
    pub(super) fn wait(&self, into: &mut Vec<u32>) {
        loop {
            self.take(into);
            if !into.is_empty() {
                return;
            }
            thread::park();
        }
    }
}
