//! Threads that serve a whole system: where each sleeps, and its list of work.

use crate::proc;
use inflight_sync::{Mutex, Parker, Unparker};
use std::collections::VecDeque;
use std::io;

/// A thread that others start and wake. It looks for work when it arrives.
#[derive(Default)]
pub(crate) struct Sleeper(Mutex<State>);

#[derive(Default)]
struct State {
    started: bool,
    /// Where it sleeps, and its number, if threads have one.
    arrived: Option<(Unparker, Option<u32>)>,
}

impl Sleeper {
    pub(crate) fn start(&self, start: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.0.lock();
        if !state.started {
            start()?;
            state.started = true;
        }
        Ok(())
    }

    /// The calling thread is this thread. Returns the parker on which it sleeps.
    pub(crate) fn arrive(&self) -> Parker {
        let parker = Parker::current();
        self.0.lock().arrived = Some((parker.unparker(), proc::this_thread()));
        parker
    }

    pub(crate) fn wake(&self) {
        if let Some((thread, _)) = &self.0.lock().arrived {
            thread.unpark();
        }
    }

    pub(crate) fn number(&self) -> Option<u32> {
        self.0.lock().arrived.as_ref()?.1
    }
}

pub(crate) struct Inbox<T> {
    waiting: Mutex<Waiting<T>>,
    pub(crate) thread: Sleeper,
}

struct Waiting<T> {
    items: VecDeque<T>,
    /// The thread leaves when nothing is left.
    stopped: bool,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        let (items, stopped) = (VecDeque::new(), false);
        Self {
            waiting: Mutex::new(Waiting { items, stopped }),
            thread: Sleeper::default(),
        }
    }
}

impl<T> Inbox<T> {
    /// Adds an item, unless `may` refuses. Returns the item then, or if there is no thread.
    pub(crate) fn push(
        &self,
        item: T,
        may: impl FnOnce(&VecDeque<T>) -> bool,
        start: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), T> {
        let mut waiting = self.waiting.lock();
        if waiting.stopped || !may(&waiting.items) || self.thread.start(start).is_err() {
            return Err(item);
        }
        waiting.items.push_back(item);
        drop(waiting);
        self.thread.wake();
        Ok(())
    }

    /// The calling thread handles all items, each after `settle`, until it is stopped.
    pub(crate) fn serve(&self, mut settle: impl FnMut(), mut each: impl FnMut(T)) {
        let parker = self.thread.arrive();
        loop {
            settle();
            let (next, stopped) = {
                let mut waiting = self.waiting.lock();
                (waiting.items.pop_front(), waiting.stopped)
            };
            match next {
                Some(item) => each(item),
                None if stopped => return,
                None => parker.park(),
            }
        }
    }

    /// Nothing more comes: the thread leaves when it has handled what waits.
    pub(crate) fn stop(&self) {
        self.waiting.lock().stopped = true;
        self.thread.wake();
    }
}
