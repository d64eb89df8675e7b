//! A gate's mailbox: how items come to it without its lock.

use super::fronts::{Entered, Started};
use super::{Door, DoorState, Shared};
use crate::gate::Gate;
use crate::item::{Set, WorkRef};
use crate::layout::Layout;
use crate::limits::Full;
use crate::pool::Entry;
use crate::pool::{Deeds, Pool};
use crate::pools::Lease;
use inflight_sync::atomic::{AtomicUsize, Ordering};
use inflight_sync::{Arc, Mutex, MutexGuard};
use std::collections::VecDeque;

/// A gate's mailbox. Its lock comes after the gate's and before the pools'.
pub(super) struct Mailbox {
    pub(super) inside: Mutex<Mail>,
    /// How many letters there are. Written under the lock, and read where it is enough to know of
    /// those that came before, by whatever told the reader of them.
    pub(super) letters: AtomicUsize,
}

pub(super) struct Mail {
    /// Oldest first.
    pub(super) letters: VecDeque<Letter>,
    /// Nothing is put in: who queues asks the gate.
    pub(super) closed: bool,
    /// By the places of the gate's pools.
    pub(super) bells: Vec<Option<Bell>>,
    /// Where the items of the gate go.
    pub(super) layout: Arc<Layout>,
}

/// How a pool learns of its letters.
pub(super) struct Bell {
    pub(super) pool: Arc<Lease>,
    /// Somebody has rung, or is about to, since the mailbox was emptied.
    pub(super) rung: bool,
}

/// An item with PENDING set, on its way to the gate.
pub(super) struct Letter {
    pub(super) work: WorkRef,
    pub(super) set: Set,
    /// Which of the gate's pools it is to go to.
    pub(super) pool: usize,
}

/// So many letters a worker delivers at a time. While they lie in the mailbox another visit may
/// take them.
const SOME: usize = if cfg!(loom) { 1 } else { 64 };

/// And so many to a gate where they have to wait: fewer than run until more are fetched, so that
/// those that wait there come to an end, and what comes then can be taken in a visit.
const FEW: usize = if cfg!(loom) { 1 } else { 8 };

impl Mail {
    /// There are no letters: nobody has rung.
    pub(super) fn silence(&mut self) {
        for bell in self.bells.iter_mut().flatten() {
            bell.rung = false;
        }
    }
}

impl Door {
    /// Items that have been queued here.
    pub(super) fn queued(&self) -> u64 {
        let state = self.state.lock();
        state.gate.queued() + self.letters() as u64
    }

    pub(super) fn letters(&self) -> usize {
        // Relaxed: as said where it is.
        self.mail.letters.load(Ordering::Relaxed)
    }

    /// The letters become items that have been queued. The gate is locked.
    pub(super) fn deliver(&self, queue: &Arc<Shared>, gate: usize, state: &mut DoorState) -> Deeds {
        let mut deeds = queue.take_kept(gate, state);
        if self.letters() > 0 {
            let letters = self.empty(&mut self.mail.inside.lock(), &mut state.room);
            deeds.append(Self::sort(queue, gate, state, letters));
        }
        deeds
    }

    /// As [`deliver`](Door::deliver), for the oldest letters only. Returns whether that pool is
    /// still rung for.
    pub(super) fn deliver_some(
        &self,
        queue: &Arc<Shared>,
        gate: usize,
        state: &mut DoorState,
        pool: &Arc<Pool>,
    ) -> (Deeds, bool) {
        let mut deeds = queue.take_kept(gate, state);
        if self.letters() == 0 {
            return (deeds, false);
        }
        let mut some = std::mem::take(&mut state.room);
        let will_wait = queue.fronts.is_none() && state.gate.is_full();
        let most = if will_wait { FEW } else { SOME };
        let is_rung_for = {
            let mail = &mut *self.mail.inside.lock();
            let most = mail.letters.len().min(most);
            some.extend(mail.letters.drain(..most));
            self.taken_out(mail);
            let mut bells = mail.bells.iter().flatten();
            bells.any(|bell| bell.rung && Arc::ptr_eq(bell.pool.pool(), pool))
        };
        deeds.append(Self::sort(queue, gate, state, some));
        (deeds, is_rung_for)
    }

    /// Letters have been taken out. Returns how many are left.
    pub(super) fn taken_out(&self, mail: &mut Mail) -> usize {
        let left = mail.letters.len();
        // Relaxed: as said where it is.
        self.mail.letters.store(left, Ordering::Relaxed);
        if left == 0 {
            mail.silence();
        }
        left
    }

    /// Takes the letters out, and leaves `room`.
    pub(super) fn empty(&self, mail: &mut Mail, room: &mut VecDeque<Letter>) -> VecDeque<Letter> {
        // Relaxed: as said where it is.
        self.mail.letters.store(0, Ordering::Relaxed);
        mail.silence();
        std::mem::replace(&mut mail.letters, std::mem::take(room))
    }

    /// What was in the mailbox becomes items that have been queued. The gate is locked.
    pub(super) fn sort(
        queue: &Arc<Shared>,
        gate: usize,
        state: &mut DoorState,
        mut letters: VecDeque<Letter>,
    ) -> Deeds {
        let mut deeds = Deeds::default();
        {
            let DoorState {
                gate: limit, pools, ..
            } = state;
            let mut rest = letters.drain(..).peekable();
            while let Some(first) = rest.peek() {
                let place = first.pool;
                let pool = pools[place].as_ref().expect("its letter was accepted");
                let mut here = || {
                    let letter = rest.next_if(|letter| letter.pool == place)?;
                    Some((letter.work, letter.set))
                };
                queue.enter_some(gate, limit, pool, &mut here, &mut deeds);
            }
        }
        state.room = letters;
        deeds
    }
}

impl Shared {
    /// Locks a gate. What was in its mailbox has come; the deeds are for when no lock is held.
    pub(super) fn open(self: &Arc<Self>, gate: usize) -> (MutexGuard<'_, DoorState>, Deeds) {
        let door = &self.gates[gate];
        let mut state = door.state.lock();
        let deeds = door.deliver(self, gate, &mut state);
        (state, deeds)
    }

    /// Items that go to that pool become items that have been queued: all of them, or as many as
    /// come before one that is the first to wait. The gate is locked.
    pub(super) fn enter_some(
        self: &Arc<Self>,
        gate: usize,
        limit: &mut Gate<Entry>,
        pool: &Arc<Lease>,
        next: &mut dyn FnMut() -> Option<(WorkRef, Set)>,
        deeds: &mut Deeds,
    ) {
        let mut full = None;
        let mut active = || {
            while let Some((work, set)) = next() {
                match self.admit(limit, work, set, gate, pool) {
                    Entered::Active(entry) => return Some(entry),
                    Entered::Inactive => {}
                    Entered::Full(entry, why) => {
                        full = Some((entry, why));
                        return None;
                    }
                }
            }
            None
        };
        // The pool is left alone if nothing comes.
        if let Some(entry) = active() {
            let entries = std::iter::once(entry).chain(std::iter::from_fn(active));
            deeds.push(pool.push_all(self.rescuer(), entries));
        }
        // Lines come before pools.
        if let (Some((entry, why)), Some(fronts)) = (full, &self.fronts) {
            let mut started = Started::default();
            if why == Full::Behind {
                // All of them wait, and stand in line together.
                let others = std::iter::from_fn(|| {
                    let (work, set) = next()?;
                    Some(self.inactive(limit, work, set, pool))
                });
                let front = entry.gate;
                let all = std::iter::once(entry).chain(others);
                fronts.join_all(front, all, &mut started);
            } else {
                fronts.admit_slowly(entry, why, &mut started);
            }
            deeds.append(started.deeds);
        }
    }

    /// A section of a gate, with an empty mailbox. No lock is held.
    pub(super) fn in_gate<R>(
        self: &Arc<Self>,
        gate: usize,
        f: impl FnOnce(&mut DoorState, &mut Mail) -> R,
    ) -> R {
        let (mut state, deeds) = self.open(gate);
        let result = f(&mut state, &mut self.gates[gate].mail.inside.lock());
        drop(state);
        deeds.perform();
        result
    }

    pub(super) fn in_each_gate(
        self: &Arc<Self>,
        mut f: impl FnMut(usize, &mut DoorState, &mut Mail),
    ) {
        for gate in 0..self.gates.len() {
            self.in_gate(gate, |state, mail| f(gate, state, mail));
        }
    }

    /// V3 by a worker of that pool. Returns whether there are more.
    pub(crate) fn fetch_some(self: &Arc<Self>, gate: usize, pool: &Arc<Pool>) -> bool {
        let door = &self.gates[gate];
        let mut state = door.state.lock();
        let (deeds, more) = door.deliver_some(self, gate, &mut state, pool);
        drop(state);
        deeds.perform();
        more
    }

    /// V2: the mailbox of that gate has been rung for.
    pub(crate) fn fetch(self: &Arc<Self>, gate: usize) {
        let (state, deeds) = self.open(gate);
        drop(state);
        deeds.perform();
    }
}
