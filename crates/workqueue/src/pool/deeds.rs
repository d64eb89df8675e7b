//! What is left to do after events of a pool's core.

use super::Pool;
use crate::door::Shared;
use inflight_sync::{Arc, Unparker};

/// What is left to do after events of a core, outside the lock.
#[must_use = "a worker is waiting to be brought"]
#[derive(Default)]
pub(crate) struct Deed {
    pub(super) worker: Bring,
    /// A pool that is to be looked at from now on.
    pub(super) watch: Option<Arc<Pool>>,
    pub(super) help: Help,
}

/// Who is to help, outside the lock.
#[derive(Default)]
pub(crate) enum Help {
    #[default]
    None,
    /// A worker of that pool.
    Send(Arc<Pool>),
    /// Pools that are not there yet, of that queue.
    Muster(Arc<Shared>),
}

/// An [`Action`](crate::machine::Action) that has left the lock.
#[derive(Default)]
pub(super) enum Bring {
    #[default]
    None,
    Wake(Unparker),
    Create(Arc<Pool>),
    /// P2
    Call(Arc<Pool>),
}

impl Deed {
    pub(crate) fn is_none(&self) -> bool {
        !self.brings() && self.watch.is_none() && matches!(self.help, Help::None)
    }

    /// Whether a worker is brought.
    pub(crate) fn brings(&self) -> bool {
        !matches!(self.worker, Bring::None)
    }

    /// Does it. No lock of gates, pools or items may be held.
    #[inline]
    pub(crate) fn perform(self) {
        if !self.is_none() {
            self.perform_now();
        }
    }

    fn perform_now(self) {
        // A worker that waits with this library's means looks at its pool before it sleeps again.
        self.attempt().unwrap_or_else(|blocked| wake_all(&blocked));
    }

    /// Does it, for a worker that can [`keep`](Pool::keep_asking) asking. Else, if no thread can be
    /// had, those who may be able to are to be woken.
    pub(crate) fn attempt(self) -> Result<(), Vec<Unparker>> {
        let brought = match self.worker {
            Bring::None => Ok(()),
            Bring::Wake(unparker) => {
                unparker.unpark();
                Ok(())
            }
            Bring::Create(pool) => pool.bring_worker(),
            Bring::Call(pool) => {
                pool.call_poller();
                Ok(())
            }
        };
        if let Some(pool) = self.watch {
            pool.begin_watch();
        }
        match self.help {
            Help::None => {}
            Help::Send(pool) => pool.invite(),
            Help::Muster(queue) => queue.muster(),
        }
        brought
    }
}

/// What is left to do after several events, mostly nothing.
#[must_use = "a worker is waiting to be brought"]
#[derive(Default)]
pub(crate) struct Deeds {
    first: Deed,
    rest: Vec<Deed>,
}

impl Deeds {
    pub(crate) fn push(&mut self, deed: Deed) {
        if self.first.is_none() {
            self.first = deed;
        } else if !deed.is_none() {
            self.rest.push(deed);
        }
    }

    pub(crate) fn append(&mut self, other: Self) {
        self.push(other.first);
        self.rest.extend(other.rest);
    }

    /// Does them. No lock of gates, pools or items may be held.
    pub(crate) fn perform(self) {
        self.first.perform();
        self.rest.into_iter().for_each(Deed::perform);
    }
}

pub(super) fn wake_all(workers: &[Unparker]) {
    workers.iter().for_each(Unparker::unpark);
}
