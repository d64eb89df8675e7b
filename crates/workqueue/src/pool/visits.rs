//! What the workers of a pool have in hand: how it gets there, and who takes it out.

use super::{Deed, Entry, Inner, Pool};
use crate::door::Shared;
use crate::hand::{Drawn, Held, Recalled, Whence};
use crate::item::Instance;
use crate::limits::gate_of;
use crate::machine::{Action, Item as _};
use inflight_sync::Arc;

impl Inner {
    /// Where the worker's visit has come from, if it is in one.
    fn visited(&self, worker: usize) -> Option<(Arc<Shared>, usize)> {
        if !self.core.visits(worker) {
            return None;
        }
        let hand = self.seen[worker].hand.lock();
        let whence = hand.whence()?;
        Some((whence.queue.clone(), whence.gate))
    }
}

impl Pool {
    /// V4: `fill` puts up to so many items into the worker's hand, or its share where so many
    /// workers take of them, of those that nobody else may be running, and says how many letters it
    /// has left where they were. `None` if there is no visit.
    pub(crate) fn begin_visit(
        self: &Arc<Self>,
        me: usize,
        from: (&Arc<Shared>, usize),
        fill: impl FnOnce((usize, usize), &mut Held, &dyn Fn(usize) -> bool) -> usize,
    ) -> Option<Deed> {
        let mut inner = self.state.lock();
        let most = inner.core.may_visit(me);
        if most == 0 {
            return None;
        }
        let (items, first, left) = {
            let mut hand = inner.seen[me].hand.lock();
            let share = (most, inner.core.sharers(me));
            let left = fill(share, &mut hand, &|key| inner.core.may_run(key));
            let (items, first) = hand.content()?;
            (items, first, left)
        };
        let is_it =
            |(queue, gate): &(Arc<Shared>, usize)| *gate == from.1 && Arc::ptr_eq(queue, from.0);
        match inner.mail.iter().position(is_it) {
            Some(at) if left == 0 => drop(inner.mail.remove(at)),
            // It is still the first whose letters are due.
            None if left > 0 => inner.mail.insert(0, (from.0.clone(), from.1)),
            _ => {}
        }
        let mail = !inner.mail.is_empty();
        let deed = self.patient(inner, |core| {
            ((), core.begin_visit(me, items, first, (mail, left)))
        });
        Some(deed.1)
    }

    /// V5: the worker keeps what its items queue from now on, if that is `next` at its gate and
    /// nothing waits in the pool; else it keeps nothing in this visit.
    pub(crate) fn let_keep(self: &Arc<Self>, me: usize, next: bool) -> (bool, Deed) {
        let mut inner = self.state.lock();
        let keeps = next && inner.core.may_keep(me);
        {
            let mut hand = inner.seen[me].hand.lock();
            if keeps {
                hand.begin_to_keep();
            } else {
                hand.keep_nothing();
            }
        }
        (keeps, self.deed(&mut inner, Action::None))
    }

    /// V6: what the worker has kept and not begun, if its visit is of that gate.
    pub(crate) fn take_kept(&self, worker: usize, from: &Arc<Shared>, gate: usize) -> Vec<Drawn> {
        let inner = self.state.lock();
        let mut hand = inner.seen[worker].hand.lock();
        let is_from = |w: &Whence| Arc::ptr_eq(&w.queue, from) && gate_of(w.gate) == gate;
        if hand.whence().is_some_and(is_from) {
            hand.take_kept()
        } else {
            Vec::new()
        }
    }

    /// N5: takes back what the worker has in hand, if it is from there. The gate is locked. What
    /// has slots of its own is ready again; what has not is returned.
    pub(crate) fn end_visit(
        self: &Arc<Self>,
        worker: usize,
        from: (&Arc<Shared>, usize),
    ) -> Option<(Recalled, Deed)> {
        let inner = self.state.lock();
        if !inner.core.visits(worker) {
            return None;
        }
        let mut recalled = {
            let mut hand = inner.seen[worker].hand.lock();
            let whence = hand.whence()?;
            if !Arc::ptr_eq(&whence.queue, from.0) || whence.gate != from.1 {
                return None;
            }
            hand.recall()?
        };
        let mut ready = Vec::new();
        if recalled.whence.on_one_slot.is_none() {
            ready = std::mem::take(&mut recalled.rest);
        }
        let ready = ready.into_iter().map(|drawn| drawn.entry(&recalled.whence));
        let now = recalled.now;
        let deed = self
            .patient(inner, |core| ((), core.recalled(worker, now, ready)))
            .1;
        Some((recalled, deed))
    }

    fn recall_each(self: &Arc<Self>, workers: Vec<usize>) {
        for worker in workers {
            let visited = self.state.lock().visited(worker);
            if let Some((queue, gate)) = visited {
                queue.recall(gate, self, worker);
            }
        }
    }

    /// N5 for a worker, and those with older visits. No lock is held.
    pub(crate) fn recall_from(self: &Arc<Self>, worker: usize) {
        let workers = self.state.lock().core.to_be_recalled_with(worker);
        self.recall_each(workers);
    }

    /// N5 for all workers but that one. No lock is held.
    pub(crate) fn recall_but(self: &Arc<Self>, but: Option<usize>) {
        let workers = self.state.lock().core.to_be_recalled(but);
        self.recall_each(workers);
    }

    /// Nothing is in hand, but what runs; the gates know of all that has ended. No lock is held.
    pub(crate) fn recall(self: &Arc<Self>) {
        self.recall_but(None);
    }

    /// Takes back an entry that no worker has taken.
    pub(crate) fn remove(&self, key: usize, instance: Instance) -> Option<Entry> {
        let mut inner = self.state.lock();
        let wanted = |e: &Entry| e.instance == instance && e.key() == key;
        let entry = inner.core.remove(wanted);
        self.tell(&mut inner);
        entry
    }
}
